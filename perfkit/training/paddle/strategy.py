"""Applies a preset's options in the installed Paddle and records each outcome: applied, ignored
or missing.

Paddle accepts options that nothing reads. Each option is therefore passed to the component that
honors it today in this kind of training (`DataParallel` around a dynamic graph or `to_static`),
or reported as ignored or missing.
"""

from typing import Any, Literal, NamedTuple

import paddle
from paddle.distributed import fleet

from perfkit.training.options import Options
from perfkit.training.paddle.presets import STRATEGIES

FLAGS = (
    "conv_workspace_size_limit",
    "cudnn_batchnorm_spatial_persistent",
    "cudnn_exhaustive_search",
)
"""Options whose only effect is the flag of the same name."""
UNREAD = {
    "_fuse_grad_size_in_TFLOPS": "read only by minimize() of fleet's static programs",
    "execution_strategy": "read only by static programs not created by to_static",
    "sync_nccl_allreduce": "read only by Paddle 1's ParallelExecutor",
    "nccl_comm_num": "DataParallel has one communicator",
    "auto": "read neither by dynamic graphs nor by to_static: nothing was switched on",
}


class Outcome(NamedTuple):
    """What became of an option: `applied`, `ignored` or `missing`, and by what or why."""

    state: Literal["applied", "ignored", "missing"]
    how: str


def _set_flag(flag: str, value: Any) -> Outcome:
    try:
        paddle.set_flags({flag: value})
    except ValueError:
        return Outcome("missing", f"this build of Paddle has no {flag}")
    return Outcome("applied", f"paddle.set_flags({{{flag!r}: {value!r}}})")


class Strategy:
    """Applies the preset `options.strategy`: sets its flags and provides the arguments of
    DataParallel and to_static, and the value and the outcome of every option."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.data_parallel: dict[str, Any] = {}
        self.to_static: dict[str, Any] = {}
        self.outcomes: dict[str, dict[str, Any]] = {}
        for option, value in STRATEGIES[options.strategy].items():
            outcome = self._apply(option, value)
            self.outcomes[option] = {"value": value, **outcome._asdict()}

    def _apply(self, option: str, value: Any) -> Outcome:
        part, _, name = option.rpartition(".")
        if option == "amp":
            return Outcome("applied", "precision=amp: auto_cast and GradScaler")
        if option in FLAGS:
            return _set_flag(f"FLAGS_{option}", value)
        if option == "fuse_grad_size_in_MB":
            return self._bucket(value)
        if part == "build_strategy":
            return self._build(name, value)
        if part:
            exists = hasattr(paddle.static, "ExecutionStrategy")
        else:
            exists = hasattr(fleet.DistributedStrategy, option)
        if not exists:
            return Outcome("missing", "this Paddle has no such option")
        return Outcome("ignored", UNREAD[part or option])

    def _bucket(self, megabytes: int) -> Outcome:
        if self.options.ranks == 1:
            return Outcome("ignored", "one process exchanges no gradients")
        self.data_parallel["comm_buffer_size"] = megabytes
        return Outcome("applied", f"DataParallel(comm_buffer_size={megabytes})")

    def _build(self, name: str, value: Any) -> Outcome:
        strategy = self.to_static.get("build_strategy") or paddle.static.BuildStrategy()
        if not hasattr(strategy, name):
            return Outcome("missing", "BuildStrategy has no such option")
        if self.options.execution == "dynamic":
            return Outcome("ignored", "a dynamic graph builds no program")
        if getattr(paddle.framework, "use_pir_api", bool)():
            reads = "Paddle 3's to_static reads only BuildStrategy.build_cinn_pass"
            return Outcome("ignored", reads)
        setattr(strategy, name, value)
        self.to_static["build_strategy"] = strategy
        return Outcome("applied", "to_static(build_strategy=…)")
