"""The training loop and its timer. Framework-free: device, trainer and clock are handed in.

An event is a point in the device's own time: a reading of the clock on a CPU, an event in the
stream on a GPU. Events are recorded inside the window without waiting for the device; it is
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

Record = Callable[[dict[str, Any]], None]
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


class Step(NamedTuple):
    """One step whose end is recorded and may not be complete yet."""

    step: int
    begin: Any
    end: Any
    data_wait_seconds: float
    loss: Any


@dataclass
class StepTimer:
    """Turns device events into `step` events, each as soon as its end is complete."""

    device: Device
    clock: Clock
    record: Record
    samples: int

    def __post_init__(self) -> None:
        self.pending: deque[Step] = deque()
        self.unread: list[tuple[int, Any]] = []
        self.restart()

    def restart(self) -> float:
        """Let the next step begin now, with the device idle; the clock's reading, seconds."""
        self.device.synchronize()
        self.write_rest()
        self.begin = self.device.record_event()
        return self.clock()

    def stop(self, step: int, data_wait_seconds: float, loss: Any) -> None:
        """The step's work has been handed over: record its end, which begins the next."""
        end = self.device.record_event()
        self.pending.append(Step(step, self.begin, end, data_wait_seconds, loss))
        self.begin = end
        self.write_passed()

    def write_passed(self) -> None:
        while self.pending and self.device.is_complete(self.pending[0].end):
            done = self.pending.popleft()
            self.record(
                {
                    "event": "step",
                    "step": done.step,
                    "seconds": self.device.seconds_between(done.begin, done.end),
                    "data_wait_seconds": done.data_wait_seconds,
                    "samples": self.samples,
                }
            )
            self.unread.append((done.step, done.loss))

    def write_rest(self) -> None:
        """Write what is left, the device being synchronized. Raises NotSynchronizedError if it
        is not."""
        self.write_passed()
        if self.pending:
            step = self.pending[0].step
            raise NotSynchronizedError(
                f"synchronized, the device was not done with step {step}"
            )
        self.write_losses()

    def write_losses(self) -> None:
        """Read the losses of the steps written so far; on a GPU this waits for the device."""
        for step, loss in self.unread:
            value = float(loss)
            if not math.isfinite(value):
                raise LossNotFiniteError(f"the loss is {value} at step {step}")
            self.record({"event": "loss", "step": step, "value": value})
        self.unread.clear()


def train(
    trainer: Trainer,
    batches: Iterator[Any],
    device: Device,
    record: Record,
    *,
    samples: int,
    accumulate: int,
    warmup_steps: int,
    measured_steps: int,
    read_losses_at_once: bool,
    announce: bool = False,
    clock: Clock = time.perf_counter,
) -> Window:
    """Train for warm-up plus measured steps and time them; `samples` is per step of this rank,
    in `accumulate` micro-batches.

    `data_wait_seconds` of a step is host time spent waiting for its batches. Losses are read
    at once only where that does not make the host wait for the device (a CPU); elsewhere
    after the window. With `announce` a `batch` event says that a step has its batches, which
    tells a rank that hangs from those that wait for it. Raises LossNotFiniteError,
    NotSynchronizedError, and whatever trainer and batches raise.
    """
    timer = StepTimer(device, clock, record, samples)

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
        if read_losses_at_once:
            timer.write_losses()

    for step in range(1, warmup_steps + 1):
        take(step)

    began = timer.restart()
    for step in range(warmup_steps + 1, warmup_steps + measured_steps + 1):
        take(step)
    device.synchronize()
    window = Window(samples * measured_steps, clock() - began, began)

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
