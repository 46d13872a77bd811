"""perfkit.StepTimer in a rank that `perfkit run` has started."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perfkit.core.timing.batches import InputCount, TimedLoader, like_original
from perfkit.core.timing.devices import Clock
from perfkit.core.timing.session import Session, refuse_child
from perfkit.core.timing.told import ScriptWork
from perfkit.core.timing.training import TimedTraining, first_step


class MeasuringTimer:
    """Times the steps of a script under the protocol, and ends the script after the window.

    The first step begins with the timer or, if the batches come through `batches`, when the
    first batch is asked for. It is always part of the warm-up.
    """

    def __init__(
        self, work: ScriptWork, session: Session, clock: Clock = time.perf_counter
    ) -> None:
        self.work = work
        self.session = session
        self.clock = clock
        self.began = clock()
        self.input = InputCount()
        self.training: TimedTraining | None = None
        self.is_paused = False

    def batches(self, loader: Any) -> Any:
        """See StepTimer."""
        timed = TimedLoader(loader, self._count, self.clock)
        return like_original(timed, loader)

    def _count(self, batch: Any, wait_seconds: float) -> None:
        if self.is_paused:
            return
        if self.training is None and not self.input.has_read:
            self.began = self.clock() - wait_seconds
        self.input.add(batch, wait_seconds)
        if self.session.job.ranks > 1 and self.input.batches == 1:
            self.session.raw.write({"event": "batch", "step": self.session.step + 1})

    def step(self, loss: Any = None, *, result: Any = None) -> None:
        """See StepTimer."""
        session = self.session
        if session.has_ended:
            raise SystemExit(0)
        if session.error is not None:
            raise session.error
        try:
            self._end_step(loss, result)
        except Exception as error:
            # Remembered, since the script may catch it and go on.
            session.error = error
            raise
        if session.has_ended:
            raise SystemExit(0)

    def _end_step(self, loss: Any, result: Any) -> None:
        session = self.session
        if self.training is None:
            refuse_child()
            if session.step > 0:
                raise RuntimeError(
                    "the script has made a second StepTimer after the first steps; make one "
                    "timer, before the first epoch, and use it in all epochs"
                )
            seen = first_step(session, self.input.has_read, loss, result)
            self.training = TimedTraining(
                session, self.work, seen, self.input.take(), self.began, self.clock
            )
        else:
            self.training.end_step(self.input.take(), loss, result)
        session.step = self.training.course.step
        if self.training.course.window is not None:
            self.training.write_end()
            session.has_ended = True

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
