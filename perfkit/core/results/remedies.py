"""What may help against a failure, as one sentence, in English."""

import re

from perfkit.core.config import Config
from perfkit.core.models import model_of
from perfkit.core.paths import constraints_path
from perfkit.core.results.failures import (
    DiskFull,
    Failure,
    LossNotFinite,
    NodeTimeout,
    OutOfMemory,
    Timeout,
    WorkerError,
)
from perfkit.core.script_config import AnyConfig

MISSING_MODULE = re.compile(r"No module named '(\w+)")
"""Python's text about a module that is not installed."""


def remedy(failure: Failure, config: AnyConfig) -> str:
    """Return what may help against the failure of this configuration; empty if nothing is
    known."""
    match failure:
        case OutOfMemory():
            return _less_memory(config)
        case Timeout() | NodeTimeout():
            return f"a longer limit: -p timeout {2 * config.timeout}"
        case DiskFull():
            return "free disk space, or use another folder: -p outputs_dir FOLDER"
        case LossNotFinite() if isinstance(config, Config) and config.precision != "fp32":
            return "see whether it is the precision: -p precision fp32"
        case WorkerError(detail=detail):
            return _installation(detail, config)
    return ""


def _less_memory(config: AnyConfig) -> str:
    """Return how a training needs less memory."""
    if not isinstance(config, Config):
        return "a smaller batch, by an argument of the script"
    options = []
    if config.batch_size > 1:
        smaller = config.batch_size // 2
        options.append(f"a smaller batch: -p batch_size {smaller}")
    if config.batch_size % 2 == 0:
        batches = 2 * config.accumulate
        options[-1] += f" (and -p accumulate {batches} for the same samples per step)"
    if model_of(config).in_blocks and config.recompute == "none":
        options.append("activations computed again: -p recompute full")
    if config.sample_size > 128:
        size = "image_size" if config.image_size else "sequence_length"
        options.append(f"smaller samples: -p {size} {config.sample_size // 2}")
    return "; or ".join(options)


def _installation(detail: str, config: AnyConfig) -> str:
    """Return the command that installs a module for the workers that a rank lacks."""
    missing = MISSING_MODULE.search(detail)
    if not missing:
        return ""
    constraints = "" if config.python else f"-c {constraints_path('constraints.txt')} "
    command = f"{config.interpreter} -m pip install {constraints}{missing[1]}"
    return f"install the package of that module, if it has the same name: {command}"
