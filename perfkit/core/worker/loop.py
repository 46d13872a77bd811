"""The training loop and its timer. Independent of frameworks: device, trainer and clock are
arguments.

The device records events: readings of the clock on a CPU, events in the stream on a GPU. The
device is synchronized at the start of the window; inside the window, recording does not wait
for it. At the end, the host waits for the last step's event only, so batches that an input
already prepares on the device are not part of the window.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any, NamedTuple

from perfkit.core.frameworks.devices import Clock, Device
from perfkit.core.frameworks.trainer import Trainer

Write = Callable[..., None]
"""Writes events (dicts) in order."""
COMPUTE_STEPS = 3


class LossNotFiniteError(ArithmeticError):
    """The loss became NaN or infinite, which ends the training."""


class NotSynchronizedError(RuntimeError):
    """A step was incomplete after the host had waited for it: the window's ends are unknown."""


class TimedWindow(NamedTuple):
    """The measured steps: host seconds from the synchronization of the device to the completion
    of the last step; `began` is the clock's reading at the start."""

    seconds: float
    began: float


@dataclass
class StepTimer:
    """Writes a `step` event as soon as the device has completed the step. The `loss` event
    follows immediately if `read_losses_at_once`, otherwise after the window."""

    device: Device
    clock: Clock
    write: Write
    samples_per_step: int
    read_losses_at_once: bool

    def __post_init__(self) -> None:
        # Step, its begin and end event, seconds of data wait and of submission, loss.
        self.pending: deque[tuple[int, Any, Any, float, float | None, Any]] = deque()
        self.unread: list[tuple[int, Any]] = []
        self.restart()

    def restart(self) -> float:
        """Synchronize and begin the next step. Returns the clock's reading, seconds."""
        self.device.synchronize()
        self.write_rest()
        self.begin = self.device.record_event()
        return self.clock()

    def stop(
        self,
        step: int,
        data_wait_seconds: float,
        submit_seconds: float | None,
        loss: Any,
        result: Any,
    ) -> None:
        """End a step whose work has been submitted, and begin the next step. `result` is what
        its update has returned."""
        end = self.device.record_event(result)
        self.pending.append((step, self.begin, end, data_wait_seconds, submit_seconds, loss))
        self.begin = end
        self.write_complete()

    def write_complete(self) -> None:
        """Write the steps that the device has completed; does not wait."""
        pending, device = self.pending, self.device
        events = []
        try:
            while pending and device.is_complete(pending[0][2]):
                step, begin, end, data_wait, submit_seconds, loss = pending.popleft()
                event = {
                    "event": "step",
                    "step": step,
                    "seconds": device.seconds_between(begin, end),
                    "data_wait_seconds": data_wait,
                    "samples": self.samples_per_step,
                }
                if submit_seconds is not None:
                    event["submit_seconds"] = submit_seconds
                events.append(event)
                if self.read_losses_at_once:
                    events.append(loss_event(step, loss))
                else:
                    self.unread.append((step, loss))
        finally:
            # Includes the step whose loss is not finite.
            if events:
                self.write(*events)

    def finish(self) -> float:
        """Wait for the last step. Returns the clock's reading, seconds."""
        self.device.wait_for(self.begin)
        return self.clock()

    def write_rest(self) -> None:
        """Write the remaining steps and losses. Raises NotSynchronizedError if the device has
        not completed all steps."""
        self.write_complete()
        if self.pending:
            step = self.pending[0][0]
            raise NotSynchronizedError(
                f"the host waited for the device, which had not completed step {step}"
            )
        for step, loss in self.unread:
            self.write(loss_event(step, loss))
        self.unread.clear()


def loss_event(step: int, loss: Any) -> dict[str, Any]:
    """Read a loss, which waits for a GPU. Raises LossNotFiniteError."""
    value = float(loss)
    if not isfinite(value):
        raise LossNotFiniteError(f"the loss is {value} at step {step}")
    return {"event": "loss", "step": step, "value": value}


def train(
    trainer: Trainer,
    batches: Iterator[Any],
    device: Device,
    write: Write,
    *,
    samples_per_step: int,
    accumulate: int,
    warmup_steps: int,
    measured_steps: int,
    read_losses_at_once: bool,
    announce: bool = False,
    is_warmed_up: Callable[[int], bool] = lambda _step: True,
    clock: Clock = time.perf_counter,
) -> TimedWindow:
    """Train for the warm-up and the measured steps, and time them. The warm-up has at least
    `warmup_steps` steps and ends when `is_warmed_up(step)` is true. `samples_per_step` counts
    the samples of this rank in all `accumulate` micro-batches.

    `data_wait_seconds` of a step is the host time spent waiting for its batches, and
    `submit_seconds` the rest of the time until the last call of the step has returned, recorded
    only if none of the calls waits for the device. Set
    `read_losses_at_once` only if reading a loss does not wait for the device (on a CPU). Peak
    memory is counted from the start of the window. `announce` writes a `batch` event when a
    step has its batches, which tells a rank that hangs from ranks that wait for it. Raises
    LossNotFiniteError, NotSynchronizedError, and errors of trainer and batches.
    """
    timer = StepTimer(device, clock, write, samples_per_step, read_losses_at_once)
    only_submits = device.is_asynchronous and not trainer.waits_in_update

    def train_step(step: int) -> None:
        waited = 0.0
        loss = None
        began = asked = clock()
        for micro_batch in range(1, accumulate + 1):
            batch = next(batches)
            waited += clock() - asked
            last = micro_batch == accumulate
            if announce and last:
                write({"event": "batch", "step": step})
            share = trainer.backward(batch, sync_gradients=last)
            loss = share if loss is None else loss + share
            if not last:
                asked = clock()
        result = trainer.update()
        submit_seconds = None
        if only_submits:
            submit_seconds = clock() - began - waited
        timer.stop(step, waited, submit_seconds, loss, result)

    for step in range(1, warmup_steps + 1):
        train_step(step)
    while not is_warmed_up(warmup_steps):
        warmup_steps += 1
        train_step(warmup_steps)

    device.reset_peak_memory()
    began = timer.restart()
    for step in range(warmup_steps + 1, warmup_steps + measured_steps + 1):
        train_step(step)
    ended = timer.finish()
    window = TimedWindow(ended - began, began)
    timer.write_rest()
    return window


def compute_seconds(
    trainer: Trainer,
    batches: Iterator[Any],
    device: Device,
    accumulate: int,
    clock: Clock = time.perf_counter,
) -> float:
    """Return the seconds of a step's batches, forward and backward passes without waiting for
    other ranks: the median of COMPUTE_STEPS steps. Does not change parameters.

    Inside the window, all ranks step together, so step times do not show which rank the others
    wait for. This time, measured after the window, does.
    """
    seconds = []
    for _ in range(COMPUTE_STEPS):
        device.synchronize()
        began = clock()
        for _micro_batch in range(accumulate):
            trainer.backward(next(batches), sync_gradients=False)
        device.synchronize()
        seconds.append(clock() - began)
        trainer.zero_grad()
    return median(seconds)
