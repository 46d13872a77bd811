"""A training, timed from its first step to the end of the window."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from perfkit.timing.batches import StepInput
from perfkit.timing.course import Course
from perfkit.timing.devices import Clock
from perfkit.timing.failure import ConfigMismatchError
from perfkit.timing.frameworks import Framework, imported_framework
from perfkit.timing.local_modules import late_modules
from perfkit.timing.peak import peak_event
from perfkit.timing.raw_file import loss_line, step_line
from perfkit.timing.recorder import StepRecorder, finite
from perfkit.timing.session import Session
from perfkit.timing.told import Told
from perfkit.timing.warmup import Warmup

FEWEST_TURNS = 4
"""Steps in which two numbers of rows take turns, from which on the larger is that of full
batches."""


class FirstStep(NamedTuple):
    """What the first step of a script shows."""

    framework: Framework
    device_type: str
    loss: Any
    counts_data_wait: bool


def first_step(session: Session, counts_data_wait: bool, loss: Any, result: Any) -> FirstStep:
    """Return what the first call of `timer.step` shows. Raises ConfigMismatchError if the
    script does not train as requested, and ValueError if it can't be measured."""
    job = session.job
    check_loss(loss)
    framework = imported_framework(job.framework)
    device_type = framework.device_type(loss, result)
    if device_type != job.device:
        raise ConfigMismatchError(
            f"device={job.device} was requested, but the script trains on the device "
            f"{device_type}: have it train on the device that is visible to it"
        )
    return FirstStep(framework, device_type, loss, counts_data_wait)


def check_loss(loss: Any) -> None:
    """Raise ValueError unless a loss is a single number or None."""
    shape = getattr(loss, "shape", ())
    if math.prod(shape) != 1:
        raise ValueError(
            f"timer.step got a loss of the shape {tuple(shape)}; it must be a single number, "
            "such as loss.mean()"
        )


class TimedTraining:
    """Records the steps after the first one, which began at `began`, and writes the events of
    the window's end."""

    def __init__(
        self,
        session: Session,
        work: Told,
        first: FirstStep,
        first_input: StepInput,
        began: float,
        clock: Clock,
    ) -> None:
        self.session = session
        self.work = work
        self.first = first
        self.write = session.raw.write
        self.device = first.framework.open_device(first.device_type)
        self.reads_losses_at_once = first.device_type == "cpu"
        self.inputs = [first_input]
        framework = first.framework
        self.keep = framework.readable if self.reads_losses_at_once else framework.kept
        self.device.synchronize()
        seconds = clock() - began
        self._write_told()
        self.recorder = StepRecorder(
            self.device,
            clock,
            session.raw.write_lines,
            work.samples_per_step,
            self.reads_losses_at_once,
        )
        self._write_first_step(seconds, first_input)
        warmup = Warmup(session.job, self.recorder, began, clock)
        job = session.job
        self.course = Course(self.recorder, job.warmup_steps, warmup.window_after, step=1)

    def _write_told(self) -> None:
        framework = self.first.framework
        told = {
            "event": "told",
            **self.work._asdict(),
            "framework": framework.name,
            "framework_version": framework.version,
            "device": self.first.device_type,
            "device_name": framework.device_name(self.first.device_type),
            "step_clock": self.device.step_clock,
            "counts_data_wait": self.first.counts_data_wait,
        }
        self.write(told)

    def _write_first_step(self, seconds: float, first_input: StepInput) -> None:
        _batches, seconds_waited, _rows = first_input
        wait_seconds = seconds_waited if self.first.counts_data_wait else None
        lines = [step_line(1, seconds, wait_seconds, self.work.samples_per_step)]
        if self.first.loss is not None:
            loss = self.first.framework.readable(self.first.loss)
            lines.append(loss_line(1, finite(loss, 1)))
        self.session.raw.write_lines(lines)

    def end_step(self, step_input: StepInput, loss: Any, result: Any) -> None:
        """End a step and, if it is the last one, the window."""
        self.inputs.append(step_input)
        batches, seconds, _rows = step_input
        watched = self.first.framework.watched(loss, result)
        self.course.end_step(seconds if batches else None, self.keep(loss), watched)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time of the block from the current step and the window."""
        before = self.recorder.paused_seconds
        try:
            with self.recorder.pause():
                yield
        finally:
            seconds = self.recorder.paused_seconds - before
            self.write({"event": "pause", "step": self.course.step, "seconds": seconds})

    def write_window(self) -> dict[str, Any]:
        """Write the events of the window's end, and return the fields of `end`."""
        window = self.course.window
        assert window is not None
        self.write({"event": "window", **window._asdict(), **self._read_in_window()})
        # Read before the measurement below allocates more.
        memory_bytes = self.device.peak_memory_bytes()
        self.write(peak_event(self.first.framework, self.work.precision, self.device))
        job = self.session.job
        late = late_modules(Path(self.session.script), job.static_modules)
        self.write({"event": "modules", "late": late})
        return {"memory_bytes": memory_bytes}

    def _read_in_window(self) -> dict[str, Any]:
        """Return the samples of the window and, if they are known, the batches that its steps
        have read, and the fewest and most rows of a step."""
        rows = [rows for _batches, _seconds, rows in self.inputs]
        steps = self.course.window_steps or 0
        rows_of_window = rows[-steps:]
        told = self.work.samples_per_step
        read: dict[str, Any] = {
            "samples": samples_of_steps(rows_of_window, usual_rows(rows), told)
        }
        batches = [count for count, _seconds, _rows in self.inputs[-steps:]]
        if all(batches):
            read["batches"] = sum(batches)
        if all(rows_of_window):
            read["rows"] = [min(rows_of_window), max(rows_of_window)]
        return read


def usual_rows(rows: Sequence[int]) -> int | None:
    """Return the rows of a step with full batches, given those of all steps, 0 where they are
    unknown: the most frequent number; of two that take turns, as with two batches an epoch, the
    larger. A loop that reads ahead has more in its first step. None if rows do not tell the
    samples, as in batches that are padded to their longest sequence, whose first axis is its
    length."""
    later = rows[1:]
    counts = Counter(number for number in later if number)
    if not counts:
        return None
    usual = max(counts, key=lambda number: (counts[number], number))
    take_turns = len(counts) == 2 and all(one != other for one, other in pairwise(later))
    if take_turns and len(later) >= FEWEST_TURNS:
        usual = max(counts)
    shorter = [number for number in counts if number < usual]
    return usual if len(shorter) <= 1 else None


def samples_of_steps(rows: Sequence[int], usual: int | None, told: int) -> int:
    """Return the samples of steps with these rows, of which full ones have `usual` rows and
    the `told` number of samples. A short batch must not count as a full one."""
    if usual is None:
        return told * len(rows)
    return sum(told * min(number or usual, usual) // usual for number in rows)
