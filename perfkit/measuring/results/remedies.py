"""What may help against a failure."""

import re

from perfkit.measuring.config import Config
from perfkit.measuring.paths import in_checkout
from perfkit.measuring.results.failures import Failure

MISSING_MODULE = re.compile(r"No module named '(\w+)")
"""Python's text about a module that is not installed."""


def remedy(failure: Failure, config: Config) -> str:
    """Return what may help against the failure of this configuration, without a full stop;
    empty if nothing is known."""
    match failure.code:
        case "out_of_memory":
            return "; or ".join(config.work.less_memory())
        case "timeout" | "node_timeout":
            return f"a longer limit: -p timeout {2 * config.timeout}"
        case "loss_not_finite" if config.work.precision not in (None, "fp32"):
            return "see whether it is the precision: -p precision fp32"
        case "worker_error":
            return _installation(failure.reason, config)
    return ""


def _installation(reason: str, config: Config) -> str:
    """Return the command that installs a module for the workers that a rank lacks."""
    missing = MISSING_MODULE.search(reason)
    if not missing:
        return ""
    constraints = "" if config.python else "-c constraints.txt "
    command = in_checkout(f"{config.interpreter} -m pip install {constraints}{missing[1]}")
    return f"install the package of that module, if it has the same name: {command}"
