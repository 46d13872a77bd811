"""What may help against a failure."""

import re
from collections.abc import Iterator

from perfkit.core.config import Config
from perfkit.core.parameters import takes
from perfkit.core.paths import constraints_path
from perfkit.core.results.failures import Failure
from perfkit.core.script_config import AnyConfig

MISSING_MODULE = re.compile(r"No module named '(\w+)")
"""Python's text about a module that is not installed."""


def remedy(failure: Failure, config: AnyConfig) -> str:
    """Return what may help against the failure of this configuration, without a full stop;
    empty if nothing is known."""
    match failure.code:
        case "out_of_memory":
            return "; or ".join(_less_memory(config))
        case "timeout" | "node_timeout":
            return f"a longer limit: -p timeout {2 * config.timeout}"
        case "loss_not_finite" if isinstance(config, Config) and config.precision != "fp32":
            return "see whether it is the precision: -p precision fp32"
        case "worker_error":
            return _installation(failure.reason, config)
    return ""


def _less_memory(config: AnyConfig) -> Iterator[str]:
    """Yield what makes a training need less memory."""
    if not isinstance(config, Config):
        yield "a smaller batch, by an argument of the script"
        return
    if config.batch_size > 1:
        smaller = f"a smaller batch: -p batch_size {config.batch_size // 2}"
        if config.batch_size % 2 == 0:
            batches = 2 * config.accumulate
            smaller += f" (and -p accumulate {batches} for the same samples per step)"
        yield smaller
    if takes(config.model, "recompute") and config.recompute == "none":
        yield "activations computed again: -p recompute full"
    if config.sample_size > 128:
        parameter = "image_size" if config.image_size else "sequence_length"
        yield f"smaller samples: -p {parameter} {config.sample_size // 2}"


def _installation(reason: str, config: AnyConfig) -> str:
    """Return the command that installs a module for the workers that a rank lacks."""
    missing = MISSING_MODULE.search(reason)
    if not missing:
        return ""
    constraints = "" if config.python else f"-c {constraints_path('constraints.txt')} "
    command = f"{config.interpreter} -m pip install {constraints}{missing[1]}"
    return f"install the package of that module, if it has the same name: {command}"
