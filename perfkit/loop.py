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
from typing import Any, NamedTuple, Protocol

Clock = Callable[[], float]
Record = Callable[[dict[str, Any]], None]


class Device(Protocol):
    """What the timer needs of a device."""

    def synchronize(self) -> None:
        """Wait until all work handed to the device is done."""

    def mark(self) -> Any:
        """A mark behind all work handed over so far; does not wait."""

    def passed(self, mark: Any) -> bool:
        """Whether the device has come past `mark`; does not wait."""

    def seconds_between(self, earlier: Any, later: Any) -> float:
        """Device time between two marks that have passed, seconds."""


class CpuDevice:
    """A CPU, where a step is done when its call returns."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.mark = clock

    def synchronize(self) -> None:
        return

    def passed(self, mark: float) -> bool:
        return True

    def seconds_between(self, earlier: float, later: float) -> float:
        return later - earlier


class Trainer(Protocol):
    """One model with its optimizer on one device."""

    def step(self, batch: Any) -> Any:
        """One optimizer step on `batch`; the loss, not yet read from the device."""


class LossNotFiniteError(ArithmeticError):
    """The loss became NaN or infinite: what follows is no training."""


class Window(NamedTuple):
    """What was measured: samples of this rank and host seconds between synchronized ends."""

    samples: int
    seconds: float


class Step(NamedTuple):
    """One step whose end is marked and may not have passed yet."""

    step: int
    begin: Any
    end: Any
    data_wait_seconds: float
    loss: Any


@dataclass
class StepTimer:
    """Turns marks into `step` events, each as soon as the device has come past its end."""

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
        self.write_passed()
        self.write_losses()
        self.begin = self.device.mark()
        return self.clock()

    def stop(self, step: int, data_wait_seconds: float, loss: Any) -> None:
        """The step's work has been handed over: mark its end, which begins the next."""
        end = self.device.mark()
        self.pending.append(Step(step, self.begin, end, data_wait_seconds, loss))
        self.begin = end
        self.write_passed()

    def write_passed(self) -> None:
        while self.pending and self.device.passed(self.pending[0].end):
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
    warmup_steps: int,
    measured_steps: int,
    read_losses_at_once: bool,
    clock: Clock = time.perf_counter,
) -> Window:
    """Train for warm-up plus measured steps and time them; `samples` is per step of this rank.

    `data_wait_seconds` of a step is host time spent waiting for its batch. Losses are read
    at once only where that does not make the host wait for the device (a CPU); elsewhere
    after the window. Raises LossNotFiniteError, and whatever trainer and batches raise.
    """
    timer = StepTimer(device, clock, record, samples)

    def take(step: int) -> None:
        asked = clock()
        batch = next(batches)
        waited = clock() - asked
        loss = trainer.step(batch)
        timer.stop(step, waited, loss)
        if read_losses_at_once:
            timer.write_losses()

    for step in range(1, warmup_steps + 1):
        take(step)

    began = timer.restart()
    for step in range(warmup_steps + 1, warmup_steps + measured_steps + 1):
        take(step)
    device.synchronize()
    window = Window(samples * measured_steps, clock() - began)

    timer.write_passed()
    timer.write_losses()
    return window
