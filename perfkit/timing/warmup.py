"""The end of the warm-up, and the length of the window."""

import time
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Literal, NamedTuple

from perfkit.timing.devices import Clock
from perfkit.timing.job import Job
from perfkit.timing.raw_file import json_line, steady_file
from perfkit.timing.recorder import StepRecorder

LOOK_SECONDS = 0.1
"""Time between two looks at the driver's file."""
MOST_AHEAD = 16
"""Steps that a rank may submit before the device has completed them. The driver, which sees
complete steps alone, names a step that lies further ahead."""
WARMUP_SHARE = 1 / 3
"""Shortest warm-up before a window of seconds, as a share of it."""
RECENT_SECONDS = 1.0
"""The last steps of the warm-up, whose median gives the number of those of a window."""
MOST_STEPS = 10**6
Ending = Literal["length", "steady", "steps", "seconds"]


class LateWarmupError(RuntimeError):
    """This rank learned too late after which step the warm-up ends."""

    failure_code = "late_warmup"


class WindowStart(NamedTuple):
    """The last step before the window, and the number of the window's steps: what the driver
    tells the ranks."""

    last_step: int
    window_steps: int

    @classmethod
    def of(cls, text: str) -> "WindowStart":
        """Return the start that `str` has written."""
        last_step, steps = map(int, text.split())
        return cls(last_step, steps)

    def __str__(self) -> str:
        return f"{self.last_step} {self.window_steps}"


def window_steps(measured_steps: int, seconds: float, step_seconds: Sequence[float]) -> int:
    """Return the number of steps of a window of at least `seconds` and `measured_steps`, given
    the times of the last steps before it."""
    if not seconds or not step_seconds:
        return measured_steps
    recent: list[float] = []
    for step in reversed(step_seconds):
        recent.append(step)
        if sum(recent) >= RECENT_SECONDS:
            break
    median = sorted(recent)[len(recent) // 2]
    needed = ceil(seconds / median) if median else MOST_STEPS
    return max(measured_steps, min(needed, MOST_STEPS))


class Warmup:
    """Ends a warm-up that is not a number of steps. A single rank does so by its own clock or,
    if it has to be steady, once the driver has written its file. Several ranks end it after the
    same step, without an exchange between them: the driver writes the number of a step that no
    rank has reached into the file. At the limit of steps, all end it without being told."""

    def __init__(
        self,
        job: Job,
        recorder: StepRecorder,
        began: float,
        clock: Clock = time.perf_counter,
    ) -> None:
        """The first step began at `began` and has ended."""
        self.job = job
        self.is_alone = job.ranks == 1
        self.is_fixed = job.warmup_limit is None and not job.measured_seconds
        self.least_seconds = WARMUP_SHARE * job.measured_seconds
        self.file = steady_file(Path(job.raw_folder))
        self.recorder = recorder
        self.clock = clock
        self.began = self.looked = began
        self.first_ended = clock()
        self.start: WindowStart | None = None

    def window_after(self, step: int) -> int | None:
        """Return the number of steps of the window that begins after `step`; None if the
        warm-up goes on. Raises LateWarmupError."""
        job = self.job
        if self.is_fixed:
            return job.measured_steps
        # Without a wait, the host would be ahead of the steps that tell how long they take.
        self.recorder.wait_for_all_but(0 if job.measured_seconds else MOST_AHEAD)
        now = self.clock()
        if self.start is None and now - self.looked >= LOOK_SECONDS:
            self.looked = now
            self.start = self._told_start()
        paused = self.recorder.paused_seconds
        ended_by = self._ended_by(step, now - self.began - paused)
        is_short = now - self.first_ended - paused < self.least_seconds
        if ended_by is None or (self.is_alone and is_short):
            return None
        steps = self._window_steps()
        seconds = now - self.began - paused
        event = {"event": "warmup", "steps": step, "seconds": seconds, "ended_by": ended_by}
        self.recorder.write_lines([json_line(event | {"window_steps": steps})])
        return steps

    def _ended_by(self, step: int, seconds: float) -> Ending | None:
        """Return why the warm-up ends after `step`; None if it goes on."""
        job = self.job
        takes_too_long = job.warmup_seconds is not None and seconds >= job.warmup_seconds
        if self.is_alone:
            if job.warmup_limit is None:
                return "length"
            if takes_too_long:
                return "seconds"
            if self.start is not None:
                return "steady"
        elif self.start is not None:
            last_step = self.start.last_step
            if step > last_step:
                raise LateWarmupError(
                    f"it had already taken step {step} when it learned that the warm-up ends "
                    f"after step {last_step}; fix the length of the warm-up: -p warmup_steps "
                    "NUMBER -p measured_seconds 0"
                )
            if step == last_step and job.warmup_limit is None:
                return "length"
            if step == last_step:
                return "seconds" if takes_too_long else "steady"
        return "steps" if job.warmup_limit and step >= job.warmup_limit else None

    def _told_start(self) -> WindowStart | None:
        """Return what the driver has told; None if it has not yet."""
        try:
            return WindowStart.of(self.file.read_text())
        except OSError:
            return None

    def _window_steps(self) -> int:
        job = self.job
        if not self.is_alone and self.start is not None:
            return self.start.window_steps
        return window_steps(job.measured_steps, job.measured_seconds, self.recorder.recent)
