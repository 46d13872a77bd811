"""A configuration on several Kubernetes nodes: an indexed Job with one pod per node, each of
which runs `perfkit run` with launcher=manual. Pods find each other by a Service's names.
"""

import re
import secrets
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template

from perfkit.config import Config, run_command, with_absolute_paths
from perfkit.driver.connection import SECRET
from perfkit.request import RequestError
from perfkit.request.plan import plan

TEMPLATE = Path(__file__).parent / "manifest.yaml.j2"
NAME_LENGTH = 50
"""A pod's name adds its index, and host names are limited to 63 characters."""


def _planned(model: str, values: dict[str, Any], mount: str) -> Config:
    """Plan the configuration, without checks of this machine. Raises RequestError."""
    problems = [
        f"{name}: set by the Job; leave it out"
        for name in ("launcher", "hosts")
        if name in values
    ]
    if values.get("nodes", 1) == 1:
        problems.append("nodes: set to 2 or more")
    if not Path(mount).is_absolute():
        problems.append(f"--mount: {mount!r} must begin with a slash")
    problems += [
        f"{name}: {values[name]!r} is not below {mount}, the claim's mount path"
        for name in ("data_dir", "outputs_dir")
        if name in values and not Path(str(values[name])).is_relative_to(mount)
    ]
    if problems:
        raise RequestError(problems)
    placeholder = {"launcher": "manual", "hosts": "named.later"}
    config = plan(model, values | placeholder, skip_checks=("machine", "data")).config
    if config.input != "synthetic" and "data_dir" not in values:
        raise RequestError([f"data_dir: set the folder of the data, below {mount}"])
    return config


def manifest(
    model: str, values: dict[str, Any], *, image: str, claim: str, mount: str
) -> tuple[str, str]:
    """Return the name of a Job that measures `model` with the parameters `values`, and the YAML
    of the Job, its Secret and its Service.

    `image` has perfkit installed. The PersistentVolumeClaim `claim`, which all pods can mount
    at once, holds data and results below `mount`. Raises RequestError.
    """
    values = with_absolute_paths(values)
    config = _planned(model, values, mount)
    words = [config.model, config.precision, config.topology, f"b{config.batch_size}"]
    words += [config.label] if config.label else []
    # Kubernetes requires a DNS label; it is unique, since a Job runs once.
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower())[:NAME_LENGTH]
    name = f"{name.rstrip('-')}-{secrets.token_hex(3)}"
    # <pod>.<service>
    hosts = [f"{name}-{index}.{name}" for index in range(config.nodes)]
    typed = {"outputs_dir": f"{mount}/outputs"} | values
    typed |= {"launcher": "manual", "hosts": ",".join(hosts)}
    template = Template(TEMPLATE.read_text(encoding="utf-8"), undefined=StrictUndefined)
    return name, template.render(
        name=name,
        config=config,
        hosts=hosts,
        command=run_command(config.model, typed),
        secret=secrets.token_hex(16),
        variable=SECRET,
        image=image,
        claim=claim,
        mount=mount,
    )
