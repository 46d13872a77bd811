"""A configuration on several nodes of Kubernetes: an indexed Job, one pod a node, each of which
runs `perfkit run` with launcher=manual; the pods find each other by a Service's names.
"""

import re
import secrets
from pathlib import Path
from typing import Any

from perfkit.config import Config, run_command, select
from perfkit.driver.connection import SECRET
from perfkit.request.errors import RequestError
from perfkit.request.plan import plan

NAME_LENGTH = 50
"""A pod adds its index, and a host name has up to 63 characters."""
WAIT = """\
end=$(($(date +%s) + TIMEOUT))
for host in $HOSTS; do
  until getent hosts "$host" >/dev/null; do
    [ "$(date +%s)" -lt $end ] || { echo "$host has not come within TIMEOUT s"; exit 1; }
    sleep 2
  done
done
"""
"""Until all pods have an address; before that, perfkit would refuse their names."""


def _planned(model: str, values: dict[str, Any], mount: str) -> Config:
    """The configuration, as far as it can be judged from here."""
    problems = [
        f"{name}: follows from the Job; leave it out"
        for name in ("launcher", "hosts")
        if name in values
    ]
    if values.get("nodes", 1) == 1:
        one = "for one node: perfkit sweep --profile kubernetes"
        problems.append(f"nodes: say how many, 2 or more; {one}")
    if not Path(mount).is_absolute():
        problems.append(f"--mount: {mount!r} must begin with a slash")
    problems += [
        f"{name}: {values[name]!r} is not below {mount}, where the claim is"
        for name in select(is_path=True)
        if name in values and not Path(str(values[name])).is_relative_to(mount)
    ]
    if problems:
        raise RequestError(problems)
    led = {"launcher": "manual", "hosts": "named.later"}
    config = plan(model, values | led, skip_checks=("machine", "data")).config
    if config.input != "synthetic" and "data_dir" not in values:
        raise RequestError([f"data_dir: say where the data is, below {mount}"])
    return config


def _job_name(config: Config) -> str:
    """A name that Kubernetes takes, a DNS label; another one each time, as a Job runs once."""
    words = [config.model, config.precision, config.topology, f"b{config.batch_size}"]
    words += [config.label] if config.label else []
    text = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())[:NAME_LENGTH]
    return f"{text.rstrip('-')}-{secrets.token_hex(3)}"


def objects(
    model: str, values: dict[str, Any], *, image: str, claim: str, mount: str
) -> list[dict[str, Any]]:
    """The Secret, the Service and the Job that measure `model` with the parameters `values`.

    `image` has perfkit installed; the PersistentVolumeClaim `claim`, which all pods can mount
    at once, is at `mount`: data and results are below it. Raises RequestError.
    """
    config = _planned(model, values, mount)
    name = _job_name(config)
    # Copied below: the same one twice would be an anchor in YAML.
    labels = {"app.kubernetes.io/name": "perfkit", "app.kubernetes.io/instance": name}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": dict(labels)},
        "stringData": {"secret": secrets.token_hex(16)},
    }
    port = config.listen_port
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            # No address of its own: it only gives each pod a name, also before it is ready.
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app.kubernetes.io/instance": name},
            "ports": [
                {"name": "meeting", "port": port},
                {"name": "workers", "port": port + 1},
            ],
        },
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "completionMode": "Indexed",
            "completions": config.nodes,
            "parallelism": config.nodes,
            # A pod that fails has said why, and the others end with it.
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": _pod(config, name, values, image, claim, mount),
            },
        },
    }
    return [secret, service, job]


def _pod(
    config: Config, name: str, values: dict[str, Any], image: str, claim: str, mount: str
) -> dict[str, Any]:
    # <pod>.<service>
    hosts = [f"{name}-{index}.{name}" for index in range(config.nodes)]
    given = {"outputs_dir": f"{mount}/outputs"} | values
    given |= {"launcher": "manual", "hosts": ",".join(hosts)}
    container: dict[str, Any] = {
        "name": "perfkit",
        "image": image,
        "command": run_command(config.model, given),
        "env": [
            {"name": SECRET, "valueFrom": {"secretKeyRef": {"name": name, "key": "secret"}}}
        ],
        "volumeMounts": [
            {"name": "shared", "mountPath": mount},
            {"name": "memory", "mountPath": "/dev/shm"},
        ],
    }
    if config.device == "gpu":
        container["resources"] = {"limits": {"nvidia.com/gpu": config.gpus}}
    waiting = {
        "name": "wait-for-all",
        "image": image,
        "command": ["sh", "-c", WAIT.replace("TIMEOUT", str(config.timeout))],
        "env": [{"name": "HOSTS", "value": " ".join(hosts)}],
    }
    own_node = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/instance": name}},
    }
    return {
        "restartPolicy": "Never",
        "subdomain": name,
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own_node]}
        },
        "initContainers": [waiting],
        "containers": [container],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": claim}},
            # The 64 MiB that a container has of its own are too few for NCCL and loaders.
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
