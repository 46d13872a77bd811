"""perfkit.StepTimer: the timer of a user's own training script."""

from contextlib import AbstractContextManager
from typing import Any, TypeVar

from perfkit.timing.measuring_timer import MeasuringTimer
from perfkit.timing.plain_timer import PlainTimer
from perfkit.timing.session import current_session
from perfkit.timing.told import Told

Loader = TypeVar("Loader")


class StepTimer:
    """Times the steps of a training script.

        timer = perfkit.StepTimer(samples_per_step=64, unit="images")
        for images, labels in timer.batches(loader):
            ...
            optimizer.step()
            timer.step(loss)

    Under `perfkit run`, the timer ends the script by SystemExit when it has taken the steps of
    the protocol; with `exits=False`, only the batches of `timer.batches` end, and the script
    goes on. Otherwise the script trains as before, and one line on stderr tells its throughput
    at the end.

    `samples_per_step` counts the samples of one optimizer step of this process, with
    accumulation those of all its batches; `unit` says what a sample is, a plural noun: "images"
    or "images/s". If they are known: `flops_per_sample`, the floating-point operations of a
    sample's forward and backward pass, the number of trainable `parameters`, and `precision`,
    the number format of the matrix products, such as "bf16". Raises ValueError for other
    values.
    """

    __slots__ = ("_timer",)

    def __init__(
        self,
        samples_per_step: int,
        unit: str = "samples",
        flops_per_sample: float | None = None,
        parameters: int | None = None,
        precision: str | None = None,
        *,
        exits: bool = True,
    ) -> None:
        told = Told.checked(samples_per_step, unit, flops_per_sample, parameters, precision)
        session = current_session()
        self._timer: PlainTimer | MeasuringTimer
        if session is None:
            self._timer = PlainTimer(told)
            return
        if session.job.profile:
            from perfkit.timing.profile import ProfilingTimer

            self._timer = ProfilingTimer(told, session, exits=exits)
            return
        self._timer = MeasuringTimer(told, session, exits=exits)

    def batches(self, loader: Loader) -> Loader:
        """Return the loader, or any iterable over batches, so that the time spent waiting for
        each batch is recorded. Without it, the wait is unknown."""
        batches: Loader = self._timer.batches(loader)
        return batches

    def step(self, loss: Any = None, *, result: Any = None) -> None:
        """End a step. Call it after the optimizer's step, on every rank.

        `loss` is a number or a tensor with one element. On a CPU it is read at once; otherwise
        it is copied on the device and read after the window. JAX computes asynchronously and
        has no events: `result` is an array that the update returns, by default the loss. It may
        be a tree of arrays, of which the smallest is copied, so that they can be donated; an
        array by itself is not copied.
        """
        self._timer.step(loss, result=result)

    def note(self, **values: Any) -> None:
        """Store facts about the training with its raw events, such as `note(version="1.2")`:
        numbers, texts, lists and dicts of these. Without `perfkit run`, it does nothing. Raises
        TypeError for other values."""
        self._timer.note(values)

    def pause(self) -> AbstractContextManager[None]:
        """Return a context for an evaluation, a checkpoint or the like inside the loop, which
        every rank must enter, also one that has nothing to do in it. Its time does not count;
        under `perfkit run` the device is synchronized before and after it."""
        return self._timer.pause()
