"""The training loop and its timer. Framework-free: device, trainer and clock are handed in.

A mark is a point in the device's own time: a reading of the clock on a CPU, an event in the
stream on a GPU. Marks are recorded inside the window without waiting for the device; it is
synchronized where the window begins and where it ends, and nowhere between.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from perfkit.frameworks.base import Clock, Device, Trainer

Event = dict[str, Any]
Record = Callable[..., None]
"""Writes the events given, in their order."""
ALONE_STEPS = 3


class LossNotFiniteError(ArithmeticError):
    """The loss became NaN or infinite: what follows is no training."""


class NotSynchronizedError(RuntimeError):
    """The device still had work after it was synchronized: no window can be told from it."""


class Window(NamedTuple):
    """What was measured: samples of this rank and host seconds between synchronized ends.
    `began` is the clock's reading at the first of them."""

    samples: int
    seconds: float
    began: float


@dataclass
class StepTimer:
    """Writes a `step` event for each step, as soon as the device has completed it, and its
    `loss` with it or, unless `read_losses_at_once`, after the window."""

    device: Device
    clock: Clock
    record: Record
    samples_per_step: int
    read_losses_at_once: bool

    def __post_init__(self) -> None:
        # Step, marks of its begin and end, seconds of waiting for data, loss.
        self.pending: deque[tuple[int, Any, Any, float, Any]] = deque()
        self.unread: list[tuple[int, Any]] = []
        self.restart()

    def restart(self) -> float:
        """Synchronize and let the next step begin now; returns the clock's reading, seconds."""
        self.device.synchronize()
        self.write_rest()
        self.begin = self.device.record_event()
        return self.clock()

    def stop(self, step: int, data_wait_seconds: float, loss: Any) -> None:
        """Mark the end of a step whose work has been handed over; the next step begins."""
        end = self.device.record_event()
        self.pending.append((step, self.begin, end, data_wait_seconds, loss))
        self.begin = end
        self.write_complete()

    def write_complete(self) -> None:
        """Write the steps that the device has completed, without waiting for it."""
        pending, device = self.pending, self.device
        events: list[Event] = []
        try:
            while pending and device.is_complete(pending[0][2]):
                step, begin, end, data_wait_seconds, loss = pending.popleft()
                events.append(
                    {
                        "event": "step",
                        "step": step,
                        "seconds": device.seconds_between(begin, end),
                        "data_wait_seconds": data_wait_seconds,
                        "samples": self.samples_per_step,
                    }
                )
                if self.read_losses_at_once:
                    events.append(loss_event(step, loss))
                else:
                    self.unread.append((step, loss))
        finally:
            if events:
                self.record(*events)

    def write_rest(self) -> None:
        """Write what is left after a synchronization. Raises NotSynchronizedError if the device
        still has work."""
        self.write_complete()
        if self.pending:
            raise NotSynchronizedError(
                f"the device was synchronized and had not completed step {self.pending[0][0]}"
            )
        for step, loss in self.unread:
            self.record(loss_event(step, loss))
        self.unread.clear()


def loss_event(step: int, loss: Any) -> Event:
    """Read a loss, which waits for a GPU. Raises LossNotFiniteError."""
    value = float(loss)
    if not math.isfinite(value):
        raise LossNotFiniteError(f"the loss is {value} at step {step}")
    return {"event": "loss", "step": step, "value": value}


def train(
    trainer: Trainer,
    batches: Iterator[Any],
    device: Device,
    record: Record,
    *,
    samples_per_step: int,
    accumulate: int,
    warmup_steps: int,
    measured_steps: int,
    read_losses_at_once: bool,
    announce: bool = False,
    clock: Clock = time.perf_counter,
) -> Window:
    """Train for warm-up plus measured steps and time them; `samples_per_step` is of this rank,
    in `accumulate` micro-batches.

    `data_wait_seconds` of a step is host time spent waiting for its batches. Losses are read
    at once only where that does not make the host wait for the device (a CPU); elsewhere
    after the window. With `announce` a `batch` event says that a step has its batches, which
    tells a rank that hangs from those that wait for it. Raises LossNotFiniteError,
    NotSynchronizedError, and whatever trainer and batches raise.
    """
    timer = StepTimer(device, clock, record, samples_per_step, read_losses_at_once)

    def take(step: int) -> None:
        waited = 0.0
        loss = None
        for micro_batch in range(1, accumulate + 1):
            asked = clock()
            batch = next(batches)
            waited += clock() - asked
            if announce and micro_batch == accumulate:
                record({"event": "batch", "step": step})
            share = trainer.backward(batch, sync_gradients=micro_batch == accumulate)
            loss = share if loss is None else loss + share
        trainer.update()
        timer.stop(step, waited, loss)

    for step in range(1, warmup_steps + 1):
        take(step)

    began = timer.restart()
    for step in range(warmup_steps + 1, warmup_steps + measured_steps + 1):
        take(step)
    device.synchronize()
    window = Window(samples_per_step * measured_steps, clock() - began, began)

    timer.write_rest()
    return window


def seconds_alone(
    trainer: Trainer,
    batches: Iterator[Any],
    device: Device,
    *,
    accumulate: int,
    clock: Clock = time.perf_counter,
) -> float:
    """Seconds that this rank needs for a step's batches, forward and backward passes when it
    waits for no other rank: the median of ALONE_STEPS, made after the window.

    In a window all ranks step together, so that step times do not tell which of them the
    others wait for; this does. No parameter changes.
    """
    seconds = []
    for _ in range(ALONE_STEPS):
        device.synchronize()
        began = clock()
        for _micro_batch in range(accumulate):
            trainer.backward(next(batches), sync_gradients=False)
        device.synchronize()
        seconds.append(clock() - began)
        trainer.zero_grad()
    return median(seconds)
