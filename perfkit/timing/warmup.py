"""The end of an automatic warm-up."""

import time
from pathlib import Path
from typing import Literal

from perfkit.timing.devices import Clock
from perfkit.timing.job import Job
from perfkit.timing.raw_file import json_line, steady_file
from perfkit.timing.recorder import StepRecorder

LOOK_SECONDS = 0.1
"""Time between two looks at the driver's file."""
MOST_AHEAD = 16
"""Steps that a rank may submit before the device has completed them. The driver, which sees
complete steps alone, names a step that lies further ahead."""
Ending = Literal["steady", "steps", "seconds"]


class LateWarmupError(RuntimeError):
    """This rank learned too late after which step the warm-up ends."""

    failure_code = "late_warmup"


class Warmup:
    """Ends an automatic warm-up. A single rank does so by its own clock, or once the driver has
    written its file, since the steps are steady. Several ranks end it after the same step,
    without an exchange between them: the driver writes the number of a step that no rank has
    reached into the file. At the limit of steps, all end it without being told."""

    def __init__(
        self,
        job: Job,
        recorder: StepRecorder,
        began: float,
        clock: Clock = time.perf_counter,
    ) -> None:
        """The first step began at `began`."""
        self.is_alone = job.ranks == 1
        self.limit = job.warmup_limit
        self.limit_seconds = job.warmup_seconds
        self.file = steady_file(Path(job.raw_folder))
        self.recorder = recorder
        self.clock = clock
        self.began = self.looked = began
        self.last_step: int | None = None

    def is_over(self, step: int) -> bool:
        """Return whether the window begins after `step`. Raises LateWarmupError."""
        if self.limit is None:
            return True
        self.recorder.wait_for_all_but(MOST_AHEAD)
        now = self.clock()
        if self.last_step is None and now - self.looked >= LOOK_SECONDS:
            self.looked = now
            self.last_step = self._named_step()
        seconds = now - self.began - self.recorder.paused_seconds
        ended_by = self._ended_by(step, self.limit, seconds)
        if ended_by is None:
            return False
        event = {"event": "warmup", "steps": step, "seconds": seconds, "ended_by": ended_by}
        self.recorder.write_lines([json_line(event)])
        return True

    def _ended_by(self, step: int, limit: int, seconds: float) -> Ending | None:
        """Return why the warm-up ends after `step`; None if it goes on."""
        takes_too_long = self.limit_seconds is not None and seconds >= self.limit_seconds
        if self.is_alone:
            if takes_too_long:
                return "seconds"
            if self.last_step is not None:
                return "steady"
        elif self.last_step is not None:
            if step > self.last_step:
                raise LateWarmupError(
                    f"it had already taken step {step} when it learned that the warm-up ends "
                    f"after step {self.last_step}; fix the length of the warm-up: "
                    "-p warmup_steps NUMBER"
                )
            if step == self.last_step:
                return "seconds" if takes_too_long else "steady"
        return "steps" if step >= limit else None

    def _named_step(self) -> int | None:
        """Return the step that the driver has named; None if it has not yet."""
        try:
            text = self.file.read_text()
        except OSError:
            return None
        return int(text) if text.strip().isdecimal() else None
