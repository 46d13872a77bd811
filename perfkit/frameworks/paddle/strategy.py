"""What becomes of a preset's options in this Paddle: applied, ignored or missing, and how.

That Paddle has an option does not mean that anything reads it: each is handed to what acts on
it today, in the kind of training that runs here (`DataParallel` around a dynamic graph or
`to_static`), or named as what it is.
"""

from dataclasses import dataclass, field
from typing import Any

import paddle
from paddle.distributed import fleet

from perfkit.config import Config
from perfkit.frameworks.paddle.presets import STRATEGIES

FLAGS = (
    "conv_workspace_size_limit",
    "cudnn_batchnorm_spatial_persistent",
    "cudnn_exhaustive_search",
)
"""Options whose only effect is the flag of the same name."""
UNREAD = {
    "_fuse_grad_size_in_TFLOPS": "only minimize() of fleet's static programs reads it",
    "execution_strategy": "only static programs that to_static did not make read it",
    "sync_nccl_allreduce": "its flag was for Paddle 1's ParallelExecutor alone",
    "nccl_comm_num": "DataParallel has one communicator",
    "auto": "neither dynamic graph nor to_static reads it: nothing was switched on",
}
Outcome = dict[str, Any]


@dataclass
class Applied:
    """What the trainer has to use, and the outcome of every option."""

    data_parallel: dict[str, Any] = field(default_factory=dict)
    to_static: dict[str, Any] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)


def apply(config: Config) -> Applied:
    """Apply the preset `config.strategy`; flags are set at once."""
    applied = Applied()
    for option, value in STRATEGIES[config.strategy].items():
        state, how = _apply(option, value, config, applied)
        applied.outcomes[option] = {"value": value, "state": state, "how": how}
    return applied


def _apply(option: str, value: Any, config: Config, applied: Applied) -> tuple[str, str]:
    part, _, name = option.rpartition(".")
    if option in FLAGS:
        return _set_flag(f"FLAGS_{option}", value)
    if part == "build_strategy":
        return _build(name, value, config, applied)
    if option == "fuse_grad_size_in_MB":
        return _bucket(value, config, applied)
    if option == "amp":
        return "applied", "precision=amp: auto_cast and GradScaler"
    owner = paddle.static if part == "execution_strategy" else fleet.DistributedStrategy
    if not hasattr(owner, "ExecutionStrategy" if part else option):
        return "missing", "this Paddle has no such option"
    return "ignored", UNREAD[part or option]


def _bucket(megabytes: int, config: Config, applied: Applied) -> tuple[str, str]:
    if config.ranks == 1:
        return "ignored", "one process exchanges no gradients"
    applied.data_parallel["comm_buffer_size"] = megabytes
    return "applied", f"DataParallel(comm_buffer_size={megabytes})"


def _set_flag(flag: str, value: Any) -> tuple[str, str]:
    try:
        paddle.set_flags({flag: value})
    except ValueError:
        return "missing", f"this build of Paddle has no {flag}"
    return "applied", f"paddle.set_flags({{{flag!r}: {value!r}}})"


def _build(name: str, value: Any, config: Config, applied: Applied) -> tuple[str, str]:
    strategy = applied.to_static.get("build_strategy") or paddle.static.BuildStrategy()
    if not hasattr(strategy, name):
        return "missing", "BuildStrategy has no such option"
    if config.execution == "dynamic":
        return "ignored", "a dynamic graph builds no program"
    if getattr(paddle.framework, "use_pir_api", bool)():
        return "ignored", "of a BuildStrategy, Paddle 3's to_static reads build_cinn_pass alone"
    setattr(strategy, name, value)
    applied.to_static["build_strategy"] = strategy
    return "applied", "to_static(build_strategy=…)"
