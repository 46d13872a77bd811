"""A configuration on several nodes of Kubernetes: an indexed Job, one pod a node, each of which
runs `perfkit run` with launcher=manual; the pods find each other by a Service's names.
"""

import re
import secrets
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template

from perfkit.config import Config, run_command
from perfkit.driver.connection import SECRET
from perfkit.request import RequestError
from perfkit.request.plan import plan

TEMPLATE = Path(__file__).parent / "manifest.yaml.j2"
NAME_LENGTH = 50
"""A pod adds its index, and a host name has up to 63 characters."""


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
        for name in ("data_dir", "outputs_dir")
        if name in values and not Path(str(values[name])).is_relative_to(mount)
    ]
    if problems:
        raise RequestError(problems)
    led = {"launcher": "manual", "hosts": "named.later"}
    config = plan(model, values | led, skip_checks=("machine", "data")).config
    if config.input != "synthetic" and "data_dir" not in values:
        raise RequestError([f"data_dir: say where the data is, below {mount}"])
    return config


def manifest(
    model: str, values: dict[str, Any], *, image: str, claim: str, mount: str
) -> tuple[str, str]:
    """The name of a Job that measures `model` with the parameters `values`; and, as YAML, that
    Job with its Secret and its Service.

    `image` has perfkit installed; the PersistentVolumeClaim `claim`, which all pods can mount
    at once, is at `mount`: data and results are below it. Raises RequestError.
    """
    config = _planned(model, values, mount)
    words = [config.model, config.precision, config.topology, f"b{config.batch_size}"]
    words += [config.label] if config.label else []
    # A DNS label, as Kubernetes has it; another one each time, as a Job runs once.
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
