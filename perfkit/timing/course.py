"""The course of a timed training: warm-up, window, over."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfkit.timing.recorder import StepRecorder


class TimedWindow(NamedTuple):
    """The measured steps: host seconds from the synchronization of the device to the completion
    of the last step, without pauses; `began` is the clock's reading at the start."""

    seconds: float
    began: float


@dataclass
class Course:
    """Times the steps of a training, which the caller takes until `window` is known.

    The warm-up has at least `warmup_steps` steps and ends when `window_after(step)` gives the
    number of steps of the window; peak memory is counted from its start.
    """

    recorder: StepRecorder
    warmup_steps: int
    window_after: Callable[[int], int | None]
    step: int = 0
    """the last step that has ended"""

    def __post_init__(self) -> None:
        self.window: TimedWindow | None = None
        self.window_began = 0.0
        self.last_step = 0
        self.window_steps: int | None = None
        self._begin_window_if_warm()

    def end_step(self, data_wait_seconds: float | None, loss: Any, result: Any) -> None:
        """End the next step, whose work has been submitted; see StepRecorder.stop."""
        self.step += 1
        self.recorder.stop(self.step, data_wait_seconds, loss, result)
        if self.window_steps is None:
            self._begin_window_if_warm()
        elif self.step == self.last_step:
            self._end_window()

    def _begin_window_if_warm(self) -> None:
        if self.step < self.warmup_steps:
            return
        self.window_steps = self.window_after(self.step)
        if self.window_steps is None:
            return
        self.last_step = self.step + self.window_steps
        self.recorder.device.reset_peak_memory()
        self.window_began = self.recorder.restart()

    def _end_window(self) -> None:
        ended = self.recorder.finish()
        seconds = ended - self.window_began - self.recorder.paused_seconds
        self.window = TimedWindow(seconds, self.window_began)
        self.recorder.write_rest()
