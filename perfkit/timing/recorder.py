"""Records the steps of a training. Independent of frameworks: device and clock are arguments.

The device records events: readings of the clock on a CPU, events in the stream on a GPU. The
device is synchronized at the start of the window; inside the window, recording does not wait
for it. At the end, the host waits for the last step's event only, so batches that an input
already prepares on the device are not part of the window.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from typing import Any

from perfkit.timing.devices import Clock, Device
from perfkit.timing.raw_file import loss_line, step_line

MOST_RECENT = 1000
WriteLines = Callable[[list[str]], None]
"""Writes lines of the raw file in order."""


class LossNotFiniteError(ArithmeticError):
    """The loss became NaN or infinite, which ends the training."""

    failure_code = "loss_not_finite"


class NotSynchronizedError(RuntimeError):
    """A step was incomplete after the host had waited for it: the window's ends are unknown."""


PendingStep = tuple[int, Any, Any, float, float | None, Any]
"""A step whose work has been submitted: its number, its begin and end on the device, the
seconds before a pause in it, the wait for data, and its loss. No NamedTuple, which would take
0.3 µs more in every step."""


@dataclass
class StepRecorder:
    """Writes a `step` event as soon as the device has completed the step. The `loss` event
    follows immediately if `read_losses_at_once`, otherwise after the window."""

    device: Device
    clock: Clock
    write_lines: WriteLines
    samples_per_step: int
    read_losses_at_once: bool

    def __post_init__(self) -> None:
        self.pending: deque[PendingStep] = deque()
        # The steps and the losses of complete steps that are read after the window.
        self.unread: list[tuple[int, Any]] = []
        # The seconds of the last complete steps.
        self.recent: deque[float] = deque(maxlen=MOST_RECENT)
        self.restart()

    def restart(self) -> float:
        """Synchronize and begin the next step. Returns the clock's reading, seconds."""
        self.device.synchronize()
        self.write_rest()
        self.begin = self.device.record_event()
        self.seconds_before_pause = self.paused_seconds = 0.0
        return self.clock()

    def stop(self, step: int, data_wait_seconds: float | None, loss: Any, result: Any) -> None:
        """End a step whose work has been submitted, and begin the next step. `result` is what
        its update has returned. The wait for data may be unknown, and a script may have no
        loss."""
        end = self.device.record_event(result)
        self.pending.append(
            (step, self.begin, end, self.seconds_before_pause, data_wait_seconds, loss)
        )
        self.begin = end
        self.seconds_before_pause = 0.0
        self.write_complete()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time of the block from the step in which it lies. The device is
        synchronized before and after it. `paused_seconds` is the time of all pauses since the
        last restart."""
        device = self.device
        device.synchronize()
        stopped = device.record_event()
        device.wait_for(stopped)
        self.seconds_before_pause += device.seconds_between(self.begin, stopped)
        paused = self.clock()
        try:
            yield
        finally:
            device.synchronize()
            self.begin = device.record_event()
            self.paused_seconds += self.clock() - paused

    def write_complete(self) -> None:
        """Write the steps that the device has completed; does not wait."""
        pending, device = self.pending, self.device
        lines: list[str] = []
        try:
            while pending:
                step, begin, end, seconds_before_pause, wait, loss = pending[0]
                if not device.is_complete(end):
                    break
                pending.popleft()
                seconds = seconds_before_pause + device.seconds_between(begin, end)
                self.recent.append(seconds)
                lines.append(step_line(step, seconds, wait, self.samples_per_step))
                if loss is None:
                    continue
                if self.read_losses_at_once:
                    lines.append(loss_line(step, finite(loss, step)))
                else:
                    self.unread.append((step, loss))
        finally:
            # Includes the step whose loss is not finite.
            if lines:
                self.write_lines(lines)

    def wait_for_all_but(self, steps: int) -> None:
        """Wait until the device has completed all submitted steps but the last `steps`."""
        if len(self.pending) > steps:
            end = self.pending[-steps - 1][2]
            self.device.wait_for(end)
            self.write_complete()

    def finish(self) -> float:
        """Wait for the last step. Returns the clock's reading, seconds."""
        self.device.wait_for(self.begin)
        return self.clock()

    def write_rest(self) -> None:
        """Write the remaining steps and losses. Raises NotSynchronizedError if the device has
        not completed all steps."""
        self.write_complete()
        if self.pending:
            raise NotSynchronizedError(
                f"the host waited for the device, which had not completed step "
                f"{self.pending[0][0]}"
            )
        for step, loss in self.unread:
            self.write_lines([loss_line(step, finite(loss, step))])
        self.unread.clear()


def finite(loss: Any, step: int) -> float:
    """Read a loss, which waits for a GPU. Raises LossNotFiniteError."""
    value = float(loss)
    if not isfinite(value):
        raise LossNotFiniteError(f"the loss is {value} at step {step}")
    return value
