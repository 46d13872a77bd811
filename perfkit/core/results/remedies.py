"""What may help against a failure: a statement without a full stop."""

import re
from collections.abc import Iterator
from functools import reduce
from typing import ClassVar

from perfkit.core.config import Config
from perfkit.core.parameters import takes
from perfkit.core.paths import constraints_path
from perfkit.core.results.failures import (
    Failure,
    LossNotFinite,
    NodeTimeout,
    OutOfMemory,
    Timeout,
    WorkerError,
)
from perfkit.core.script_config import AnyConfig
from perfkit.core.statements import N_, Statement, Verbatim

MISSING_MODULE = re.compile(r"No module named '(\w+)")
"""Python's text about a module that is not installed."""


class Remedy(Statement):
    """What may help against a failure."""

    classes: ClassVar = {}


class SmallerBatch(Remedy):
    """A smaller batch; with so many batches accumulated, if the old one can be divided, a step
    has the same samples."""

    code = "smaller_batch"
    size: Verbatim
    batches: Verbatim | None = None

    def english(self) -> str:
        if self.batches is None:
            return N_("a smaller batch: -p batch_size %(size)s")
        return N_(
            "a smaller batch: -p batch_size %(size)s (and -p accumulate %(batches)s for the "
            "same samples per step)"
        )


class SmallerBatchOfScript(Remedy):
    code = "smaller_batch_of_script"
    sentence = N_("a smaller batch, by an argument of the script")


class Recompute(Remedy):
    code = "recompute"
    sentence = N_("activations computed again: -p recompute full")


class SmallerSamples(Remedy):
    code = "smaller_samples"
    sentence = N_("smaller samples: -p %(parameter)s %(size)s")
    parameter: str
    size: Verbatim


class LongerLimit(Remedy):
    code = "longer_limit"
    sentence = N_("a longer limit: -p timeout %(seconds)s")
    seconds: Verbatim


class FullPrecision(Remedy):
    code = "full_precision"
    sentence = N_("see whether it is the precision: -p precision fp32")


class InstallModule(Remedy):
    code = "install_module"
    sentence = N_("install the package of that module, if it has the same name: %(command)s")
    command: str


class Either(Remedy):
    """One remedy or another."""

    code = "either"
    sentence = N_("%(one)s; or %(other)s")
    one: Remedy
    other: Remedy


def remedy(failure: Failure, config: AnyConfig) -> Remedy | None:
    """Return what may help against the failure of this configuration; None if nothing is
    known."""
    match failure:
        case OutOfMemory():
            options = [*_less_memory(config)]
            if options:
                return reduce(lambda one, other: Either(one=one, other=other), options)
        case Timeout() | NodeTimeout():
            return LongerLimit(seconds=2 * config.timeout)
        case LossNotFinite() if isinstance(config, Config) and config.precision != "fp32":
            return FullPrecision()
        case WorkerError(detail=detail):
            return _installation(detail, config)
    return None


def _less_memory(config: AnyConfig) -> Iterator[Remedy]:
    """Yield what makes a training need less memory."""
    if not isinstance(config, Config):
        yield SmallerBatchOfScript()
        return
    if config.batch_size > 1:
        is_even = config.batch_size % 2 == 0
        batches = 2 * config.accumulate if is_even else None
        yield SmallerBatch(size=config.batch_size // 2, batches=batches)
    if takes(config.model, "recompute") and config.recompute == "none":
        yield Recompute()
    if config.sample_size > 128:
        parameter = "image_size" if config.image_size else "sequence_length"
        yield SmallerSamples(parameter=parameter, size=config.sample_size // 2)


def _installation(detail: str, config: AnyConfig) -> InstallModule | None:
    """Return the command that installs a module for the workers that a rank lacks."""
    missing = MISSING_MODULE.search(detail)
    if not missing:
        return None
    constraints = "" if config.python else f"-c {constraints_path('constraints.txt')} "
    command = f"{config.interpreter} -m pip install {constraints}{missing[1]}"
    return InstallModule(command=command)
