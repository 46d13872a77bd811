"""The training loop and its timer. Framework-free: device, trainer and clock are arguments.

The device records events in its own time: readings of the clock on a CPU, events in the stream
on a GPU. Inside the window they are recorded without waiting for the device, which is
synchronized where the window begins. Where it ends the host waits for the last step's event:
what an input has begun to prepare on the device by then is no part of the window.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from perfkit.frameworks.base import Clock, Device, Trainer

Write = Callable[..., None]
"""Writes the events given, dicts, in their order."""
COMPUTE_STEPS = 3


class LossNotFiniteError(ArithmeticError):
    """The loss became NaN or infinite: what follows is no training."""


class NotSynchronizedError(RuntimeError):
    """A step was not complete after the host had waited for it: the window's ends are
    unknown."""


class Window(NamedTuple):
    """The measured steps: samples of this rank and host seconds from a synchronized device
    to the completion of the last step.
    `began` is the clock's reading at the first of them."""

    samples: int
    seconds: float
    began: float


@dataclass
class StepTimer:
    """Writes a `step` event for each step as soon as the device has completed it. Its `loss` is
    read and written with it or, unless `read_losses_at_once`, after the window."""

    device: Device
    clock: Clock
    write: Write
    samples_per_step: int
    read_losses_at_once: bool

    def __post_init__(self) -> None:
        # Step, its begin and end on the device, seconds of waiting for data, loss.
        self.pending: deque[tuple[int, Any, Any, float, Any]] = deque()
        self.unread: list[tuple[int, Any]] = []
        self.restart()

    def restart(self) -> float:
        """Synchronize and begin the next step; returns the clock's reading, seconds."""
        self.device.synchronize()
        self.write_rest()
        self.begin = self.device.record_event()
        return self.clock()

    def stop(self, step: int, data_wait_seconds: float, loss: Any) -> None:
        """End a step whose work has been handed to the device, and begin the next."""
        end = self.device.record_event()
        self.pending.append((step, self.begin, end, data_wait_seconds, loss))
        self.begin = end
        self.write_complete()

    def write_complete(self) -> None:
        """Write the steps that the device has completed; does not wait for it."""
        pending, device = self.pending, self.device
        events = []
        try:
            while pending and device.is_complete(pending[0][2]):
                step, begin, end, data_wait_seconds, loss = pending.popleft()
                seconds = device.seconds_between(begin, end)
                events.append(
                    {
                        "event": "step",
                        "step": step,
                        "seconds": seconds,
                        "data_wait_seconds": data_wait_seconds,
                        "samples": self.samples_per_step,
                    }
                )
                if self.read_losses_at_once:
                    events.append(loss_event(step, loss))
                else:
                    self.unread.append((step, loss))
        finally:
            # Also the step whose loss is not finite.
            if events:
                self.write(*events)

    def finish(self) -> float:
        """Wait for the last step; returns the clock's reading, seconds."""
        self.device.wait_for(self.begin)
        return self.clock()

    def write_rest(self) -> None:
        """Write what is left once the device has completed all steps. Raises
        NotSynchronizedError where it has not."""
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
    """Read a loss, for which the host waits for a GPU. Raises LossNotFiniteError."""
    value = float(loss)
    if not math.isfinite(value):
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
) -> Window:
    """Train for warm-up plus measured steps and time them. The warm-up takes `warmup_steps` and
    as many more as it takes until `is_warmed_up` is true of the last one. `samples_per_step`
    is of this rank, in `accumulate` micro-batches.

    `data_wait_seconds` of a step is host time spent waiting for its batches. Losses are read
    at once only where that does not make the host wait for the device (a CPU); elsewhere
    after the window. The device's peak memory is counted from the window's begin on. With
    `announce` a `batch` event says that a step has its batches, which
    distinguishes a rank that hangs from those that wait for it. Raises LossNotFiniteError,
    NotSynchronizedError, and what trainer and batches raise.
    """
    timer = StepTimer(device, clock, write, samples_per_step, read_losses_at_once)

    def train_step(step: int) -> None:
        waited = 0.0
        loss = None
        for micro_batch in range(1, accumulate + 1):
            asked = clock()
            batch = next(batches)
            waited += clock() - asked
            last = micro_batch == accumulate
            if announce and last:
                write({"event": "batch", "step": step})
            share = trainer.backward(batch, sync_gradients=last)
            loss = share if loss is None else loss + share
        trainer.update()
        timer.stop(step, waited, loss)

    for step in range(1, warmup_steps + 1):
        train_step(step)
    while not is_warmed_up(warmup_steps):
        warmup_steps += 1
        train_step(warmup_steps)

    device.reset_peak_memory()
    began = timer.restart()
    for step in range(warmup_steps + 1, warmup_steps + measured_steps + 1):
        train_step(step)
    window = Window(samples_per_step * measured_steps, timer.finish() - began, began)
    timer.write_rest()
    return window


def compute_seconds(
    trainer: Trainer,
    batches: Iterator[Any],
    device: Device,
    accumulate: int,
    clock: Clock = time.perf_counter,
) -> float:
    """Seconds that this rank needs for a step's batches, forward and backward passes without
    waiting for other ranks: the median of COMPUTE_STEPS, run after the window.

    In a window all ranks step together, so that step times do not show which rank the others
    wait for; this does. No parameter changes.
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
