"""The end of an automatic warm-up, after the step that the driver names."""

import time
from pathlib import Path
from typing import Literal

from perfkit.timing.devices import Clock
from perfkit.timing.job import Job
from perfkit.timing.raw_file import json_line, steady_file
from perfkit.timing.recorder import StepRecorder

MOST_AHEAD = 16
"""Steps that a rank may submit before the device has completed them. The driver, which sees
complete steps alone, names a step that lies further ahead."""
Ending = Literal["steady", "steps", "seconds"]


class LateWarmupError(RuntimeError):
    """This rank learned too late after which step the warm-up ends."""

    def __init__(self, step: int, last_step: int) -> None:
        super().__init__(f"the warm-up ends after step {last_step}, but this is step {step}")
        self.step = step
        self.last_step = last_step


class NamedWarmup:
    """Ends the warm-up of all ranks after the same step, without an exchange between them: the
    driver writes the number of a step that no rank has reached into a file. At the limit of
    steps, all ranks end it without being told."""

    def __init__(
        self,
        job: Job,
        recorder: StepRecorder,
        began: float,
        clock: Clock = time.perf_counter,
    ) -> None:
        """The first step began at `began`."""
        self.limit = job.warmup_limit
        self.limit_seconds = job.warmup_seconds
        self.file = steady_file(Path(job.raw_folder))
        self.recorder = recorder
        self.clock = clock
        self.began = began
        self.last_step: int | None = None

    def is_over(self, step: int) -> bool:
        """Return whether the window begins after `step`. Raises LateWarmupError."""
        if self.limit is None:
            return True
        self.recorder.wait_for_all_but(MOST_AHEAD)
        seconds = self.clock() - self.began - self.recorder.paused_seconds
        ended_by = self._ended_by(step, self.limit, seconds)
        if ended_by is None:
            return False
        event = {"event": "warmup", "steps": step, "seconds": seconds, "ended_by": ended_by}
        self.recorder.write_lines([json_line(event)])
        return True

    def _ended_by(self, step: int, limit: int, seconds: float) -> Ending | None:
        """Return why the warm-up ends after `step`; None if it goes on."""
        if self.last_step is None:
            self.last_step = self._named_step()
        if self.last_step is not None:
            if step > self.last_step:
                raise LateWarmupError(step, self.last_step)
            if step == self.last_step:
                has_taken_too_long = self.limit_seconds and seconds >= self.limit_seconds
                return "seconds" if has_taken_too_long else "steady"
        return "steps" if step >= limit else None

    def _named_step(self) -> int | None:
        """Return the step that the driver has named; None if it has not yet."""
        try:
            text = self.file.read_text()
        except OSError:
            return None
        return int(text) if text.strip().isdecimal() else None
