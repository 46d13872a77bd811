"""The training of a script, timed from its first step to the end of the window."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from perfkit.core.timing.batches import StepInput
from perfkit.core.timing.classification import ConfigMismatchError
from perfkit.core.timing.course import Course
from perfkit.core.timing.devices import Clock
from perfkit.core.timing.frameworks import ScriptFramework, imported_framework
from perfkit.core.timing.local_modules import late_modules
from perfkit.core.timing.named_warmup import NamedWarmup
from perfkit.core.timing.recorder import StepRecorder, loss_event
from perfkit.core.timing.script_peak import script_peak
from perfkit.core.timing.session import Session
from perfkit.core.timing.told import ScriptWork


class FirstStep(NamedTuple):
    """What the first step of a script shows."""

    framework: ScriptFramework
    device_type: str
    loss: Any
    counts_data_wait: bool


def first_step(session: Session, counts_data_wait: bool, loss: Any, result: Any) -> FirstStep:
    """Return what the first call of `timer.step` shows. Raises ConfigMismatchError if the
    script does not train as requested, and ValueError if it can't be measured."""
    job = session.job
    if job.warmup_limit is None and job.warmup_steps < 1:
        raise ValueError(
            "warmup_steps=0 was requested, but nothing tells when the first step of a script "
            "begins: the warm-up must have at least one step, -p warmup_steps 1"
        )
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
        work: ScriptWork,
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
        self.samples_per_row = samples_per_row(work, first_input)
        self.window_samples = 0
        self.device.synchronize()
        seconds = clock() - began
        self._write_told()
        self.recorder = StepRecorder(
            self.device, clock, self.write, work.samples_per_step, self.reads_losses_at_once
        )
        self._write_first_step(seconds, first_input)
        warmup = NamedWarmup(session.job, self.recorder, clock)
        job = session.job
        self.course = Course(
            self.recorder, job.warmup_steps, job.measured_steps, warmup.is_over, step=1
        )

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
        step = {"event": "step", "step": 1, "seconds": seconds}
        if self.first.counts_data_wait:
            step["data_wait_seconds"] = first_input.wait_seconds
        step["samples"] = self.work.samples_per_step
        events = [step]
        if self.first.loss is not None:
            events.append(loss_event(1, self.first.framework.readable(self.first.loss)))
        self.write(*events)

    def end_step(self, step_input: StepInput, loss: Any, result: Any) -> None:
        """End a step and, if it is the last one, the window."""
        framework = self.first.framework
        keep = framework.readable if self.reads_losses_at_once else framework.kept
        if self.course.last_step is not None:
            self.window_samples += self._samples(step_input)
        wait_seconds = step_input.wait_seconds if self.first.counts_data_wait else None
        watched = framework.watched(loss, result)
        self.course.end_step(wait_seconds, None, keep(loss), watched)

    def _samples(self, step_input: StepInput) -> int:
        """Return the samples of a step by the rows of its batches, if they are known. A short
        batch must not count as a full one."""
        told = self.work.samples_per_step
        if self.samples_per_row and step_input.rows:
            return min(step_input.rows * self.samples_per_row, told)
        return told

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the time of the block from the current step and the window."""
        before = self.recorder.paused_seconds
        with self.recorder.pause():
            yield
        seconds = self.recorder.paused_seconds - before
        self.write({"event": "pause", "step": self.course.step, "seconds": seconds})

    def write_end(self) -> None:
        """Write the events after the last step."""
        window = self.course.window
        assert window is not None
        self.write({"event": "window", **window._asdict(), "samples": self.window_samples})
        # Read before the measurement below allocates more.
        memory_bytes = self.device.peak_memory_bytes()
        job = self.session.job
        peak = script_peak(
            job.framework, self.first.device_type, self.work.precision, self.device
        )
        self.write({"event": "peak", **peak})
        late = late_modules(Path(job.script), job.static_modules)
        self.write({"event": "modules", "late": late})
        self.write({"event": "end", "memory_bytes": memory_bytes})


def samples_per_row(work: ScriptWork, first_input: StepInput) -> int | None:
    """Return how many samples a row of the first step's batches has: 1, or the tokens of a
    sequence if tokens are counted. None if the rows do not tell."""
    if not first_input.rows:
        return None
    samples, rest = divmod(work.samples_per_step, first_input.rows)
    return None if rest else samples
