"""perfkit.StepTimer: the timer of a user's own training script."""

from contextlib import AbstractContextManager
from typing import Any, TypeVar

from perfkit.core.timing.input_timer import InputTimer
from perfkit.core.timing.measuring_timer import MeasuringTimer
from perfkit.core.timing.plain_timer import PlainTimer
from perfkit.core.timing.session import current_session
from perfkit.core.timing.told import ScriptWork

Loader = TypeVar("Loader")


class StepTimer:
    """Times the steps of a training script.

        timer = perfkit.StepTimer(samples_per_step=64, unit="images")
        for images, labels in timer.batches(loader):
            ...
            optimizer.step()
            timer.step(loss)

    Under `perfkit run`, the timer ends the script by SystemExit when it has taken the steps of
    the protocol. Otherwise the script trains as before, and one line on stderr tells its
    throughput at the end.

    `samples_per_step` counts the samples of one optimizer step of this process, with
    accumulation those of all its batches; `unit` says what a sample is, a plural noun. If they
    are known: `flops_per_sample`, the floating-point operations of a sample's forward and
    backward pass, the number of trainable `parameters`, and `precision`, the number format of
    the matrix products, such as "bf16". Raises ValueError for other values.
    """

    __slots__ = ("_timer",)

    def __init__(
        self,
        samples_per_step: int,
        unit: str = "samples",
        flops_per_sample: float | None = None,
        parameters: int | None = None,
        precision: str | None = None,
    ) -> None:
        work = ScriptWork.checked(
            samples_per_step, unit, flops_per_sample, parameters, precision
        )
        session = current_session()
        self._timer: PlainTimer | MeasuringTimer | InputTimer
        if session is None:
            self._timer = PlainTimer(work)
            return
        session.has_timer = True
        if session.job.task == "script_input":
            self._timer = InputTimer(session)
        else:
            self._timer = MeasuringTimer(work, session)

    def batches(self, loader: Loader) -> Loader:
        """Return the loader, or any iterable over batches, so that the time spent waiting for
        each batch is recorded. Without it, the wait is unknown."""
        batches: Loader = self._timer.batches(loader)
        return batches

    def step(self, loss: Any = None, *, result: Any = None) -> None:
        """End a step. Call it after the optimizer's step, on every rank.

        `loss` is a number or a tensor with one element. On a CPU it is read at once; otherwise
        it is copied on the device and read after the window. JAX computes asynchronously and
        has no events: `result` is an array, or a tree of arrays, that the update returns, by
        default the loss.
        """
        self._timer.step(loss, result=result)

    def pause(self) -> AbstractContextManager[None]:
        """Return a context for an evaluation, a checkpoint or the like inside the loop, which
        every rank must enter, also one that has nothing to do in it. Its time does not count;
        under `perfkit run` the device is synchronized before and after it."""
        return self._timer.pause()
