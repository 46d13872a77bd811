"""What may help against a failure."""

from perfkit.measuring.config import Config
from perfkit.measuring.results.failures import Failure


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
    return ""
