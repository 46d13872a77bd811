"""Traces some steps with the profiler of the framework that the script has imported. A rank
imports this module only if its job asks for a profile."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from gzip import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perfkit.timing.batches import Loader
from perfkit.timing.frameworks import imported_framework
from perfkit.timing.measuring_timer import MeasuringTimer
from perfkit.timing.raw_file import trace_file
from perfkit.timing.training import TimedTraining

STEP, INPUT = "perfkit.step", "perfkit.input"
"""Names of the ranges of a step, and of the wait for a batch, in the trace."""
UNNAMED_STEPS = 2
"""Steps after the profiler's start without a range: in the first, it loads its own parts."""
NAMED_STEPS = 5


class Profiler(ABC):
    """The profiler of a framework, whose module is `module`."""

    range: str
    """its context manager that names a range of time"""

    def __init__(self, module: Any) -> None:
        self.module = module

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self, trace: Path) -> None:
        """End the profile, and write its trace: JSON in Chrome's format, compressed by gzip."""

    def named(self, name: str) -> AbstractContextManager[Any]:
        """Return a range with this name in the trace."""
        named: AbstractContextManager[Any] = getattr(self.module.profiler, self.range)(name)
        return named


class TorchProfiler(Profiler):
    range = "record_function"

    def start(self) -> None:
        self.profiler = self.module.profiler.profile()
        self.profiler.start()

    def stop(self, trace: Path) -> None:
        self.profiler.stop()
        self.profiler.export_chrome_trace(str(trace))


class PaddleProfiler(Profiler):
    range = "RecordEvent"

    def start(self) -> None:
        # Otherwise, it writes a file of its own into the working directory.
        self.profiler = self.module.profiler.Profiler(on_trace_ready=lambda _profiler: None)
        self.profiler.start()

    def stop(self, trace: Path) -> None:
        self.profiler.stop()
        with TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            self.profiler.export(str(file), format="json")
            trace.write_bytes(compress(file.read_bytes()))


class JaxProfiler(Profiler):
    range = "TraceAnnotation"

    def start(self) -> None:
        self.folder = TemporaryDirectory()
        options = self.module.profiler.ProfileOptions()
        # It would record each call of a Python function.
        options.python_tracer_level = 0
        self.module.profiler.start_trace(self.folder.name, profiler_options=options)

    def stop(self, trace: Path) -> None:
        self.module.profiler.stop_trace()
        (file,) = Path(self.folder.name).rglob("*.trace.json.gz")
        trace.write_bytes(file.read_bytes())
        self.folder.cleanup()


PROFILERS: dict[str, Callable[[Any], Profiler]] = {
    "torch": TorchProfiler,
    "paddle": PaddleProfiler,
    "jax": JaxProfiler,
}
"""Name of a framework -> its profiler."""


class NamedLoader(Loader):
    """A loader that names the wait for each batch in the trace."""

    def __init__(self, original: Any, profiler: Profiler) -> None:
        super().__init__(original)
        self._profiler = profiler

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._original)
        while True:
            with self._profiler.named(INPUT):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch


class ProfilingTimer(MeasuringTimer):
    """Takes the steps of the protocol like the others; the profiler traces those of the window,
    whose times tell nothing. The device is synchronized around the named steps, so that the
    work that they submit lies between their ranges' begin and end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        job = self.session.job
        framework = imported_framework(job.framework)
        self.profiler = PROFILERS[job.framework](framework.module)
        self.step_range = ExitStack()

    def batches(self, loader: Any) -> Any:
        return super().batches(NamedLoader(loader, self.profiler))

    def _end_step(self, loss: Any, result: Any) -> None:
        if self.training is not None:
            self._end_range(self.training)
        super()._end_step(loss, result)
        assert self.training is not None
        if self.training.course.window_steps is not None:
            self._begin_range(self.training)

    def _end_range(self, training: TimedTraining) -> None:
        """End the range of a step, and with the last one the profile."""
        is_last = training.course.step + 1 == training.course.last_step
        if is_last:
            training.device.synchronize()
        self.step_range.close()
        if is_last:
            raw_file = self.session.raw.path
            self.profiler.stop(trace_file(raw_file))

    def _begin_range(self, training: TimedTraining) -> None:
        """Begin the range of the next step, and before the first one the profile."""
        course = training.course
        left = course.last_step - course.step
        if left == NAMED_STEPS + UNNAMED_STEPS:
            self.profiler.start()
        if left == NAMED_STEPS:
            training.device.synchronize()
        if 0 < left <= NAMED_STEPS:
            self.step_range.enter_context(self.profiler.named(STEP))
