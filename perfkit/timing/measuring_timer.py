"""perfkit.StepTimer in a rank that is measured: of the training, or of its input alone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfkit.timing.batches import (
    InputCount,
    ReadLoader,
    TimedLoader,
    endless,
    like_original,
    prepared_batches,
)
from perfkit.timing.devices import Clock
from perfkit.timing.frameworks import imported_framework
from perfkit.timing.session import Session, refuse_child
from perfkit.timing.told import Told
from perfkit.timing.training import TimedTraining, first_step

FEWEST_BATCHES, FEWEST_SECONDS = 12, 3.0
"""Batches and seconds for which the input alone is read at least."""


class MeasuringTimer:
    """Times the steps of a training under the protocol. After the window, it ends the script if
    it `exits`; otherwise the batches end, and the script goes on.

    The first step begins with the timer or, if the batches come through `batches`, when the
    first batch is asked for. It is always part of the warm-up.
    """

    def __init__(
        self, work: Told, session: Session, *, exits: bool, clock: Clock = time.perf_counter
    ) -> None:
        self.work = work
        self.session = session
        self.exits = exits
        self.clock = clock
        self.began = clock()
        self.input = InputCount()
        self.is_parallel = session.job.ranks > 1
        self.training: TimedTraining | None = None
        self.is_paused = False

    def batches(self, loader: Any) -> Any:
        """See StepTimer."""
        timed: ReadLoader | TimedLoader
        if self.session.job.task == "read_input":
            timed = ReadLoader(loader, self._read_input)
        else:
            timed = TimedLoader(loader, self._count, self._is_over, self.clock)
        return like_original(timed, loader)

    def _is_over(self) -> bool:
        return self.session.end is not None

    def _count(self, batch: Any, wait_seconds: float) -> None:
        if self.is_paused:
            return
        if self.training is None and not self.input.has_read:
            self.began = self.clock() - wait_seconds
        self.input.add(batch, wait_seconds)
        if self.is_parallel and self.input.batches == 1:
            self.session.raw.write({"event": "batch", "step": self.session.step + 1})

    def note(self, values: dict[str, Any]) -> None:
        """See StepTimer."""
        self.session.raw.write({"event": "note", "values": values})

    def step(self, loss: Any = None, *, result: Any = None) -> None:
        """See StepTimer."""
        session = self.session
        if session.has_ended:
            raise SystemExit(0)
        if session.error is not None:
            raise session.error
        if session.end is not None:
            return
        try:
            self._end_step(loss, result)
        except Exception as error:
            # Remembered, since the script may catch it and go on.
            session.error = error
            raise
        if session.end is not None and self.exits:
            session.write_end()
            raise SystemExit(0)

    def _end_step(self, loss: Any, result: Any) -> None:
        session, training = self.session, self.training
        if training is None:
            training = self.training = self._begin_training(loss, result)
        else:
            training.end_step(self.input.take(), loss, result)
        course = training.course
        session.step = course.step
        session.steps = course.last_step or session.steps
        if course.window is not None:
            session.end = training.write_window()

    def _begin_training(self, loss: Any, result: Any) -> TimedTraining:
        """End the first step."""
        session = self.session
        if session.job.task == "read_input":
            raise RuntimeError(
                "the script does not read its batches through timer.batches(loader), so its "
                "input can't be read without the training"
            )
        refuse_child()
        if session.step > 0:
            raise RuntimeError(
                "the script has made a second StepTimer after the first steps; make one "
                "timer, before the first epoch, and use it in all epochs"
            )
        seen = first_step(session, self.input.has_read, loss, result)
        return TimedTraining(
            session, self.work, seen, self.input.take(), self.began, self.clock
        )

    @contextmanager
    def pause(self) -> Iterator[None]:
        """See StepTimer."""
        if self.is_paused:
            # A pause within a pause, whose time counts once.
            yield
            return
        self.is_paused = True
        try:
            with self._outermost_pause():
                yield
        finally:
            self.is_paused = False

    @contextmanager
    def _outermost_pause(self) -> Iterator[None]:
        if self.training is not None:
            with self.training.pause():
                yield
            return
        paused = self.clock()
        try:
            yield
        finally:
            self.began += self.clock() - paused

    def _read_input(self, loader: Any) -> None:
        """Read a loader at full speed, write the event `input`, and raise SystemExit."""
        session = self.session
        if not session.has_ended:
            session.raw.write({"event": "input", "intervals": self._intervals(loader)})
            session.write_end()
        raise SystemExit(0)

    def _intervals(self, loader: Any) -> list[float]:
        """Return the seconds from one batch to the next. Raises RuntimeError for too few."""
        framework = imported_framework(self.session.job.framework)
        batches = endless(loader)
        for _prepared in range(prepared_batches(loader) + 2):
            next(batches, None)
        intervals: list[float] = []
        asked = self.clock()
        for _batch in batches:
            framework.wait()
            received = self.clock()
            intervals.append(received - asked)
            asked = received
            if len(intervals) >= FEWEST_BATCHES and sum(intervals) >= FEWEST_SECONDS:
                return intervals
        raise RuntimeError(
            "timer.batches got a generator or another iterator that ends too early to tell its "
            f"speed, after {len(intervals)} batches that count, and can't begin anew: pass an "
            "object that can be iterated over again, such as a DataLoader, or have it yield at "
            f"least {FEWEST_BATCHES} further batches, for {FEWEST_SECONDS:g} s"
        )
