"""Follows rank 0 while it trains, and tests whether its warm-up is over."""

import contextlib
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfkit.core.config import Protocol

WARMUP_TEST_SHARE = 0.05
"""Steps between two tests, which take CPU time, as a share of the warm-up so far."""


class WarmupTest:
    """Tests at intervals whether a warm-up without a fixed length is over. `pass_steps` is the
    number of steps of a pass through the data set, ignored above the warm-up's limit."""

    def __init__(self, protocol: Protocol, pass_steps: float | None) -> None:
        self.measured_steps = protocol.measured_steps
        limit = protocol.warmup_limit
        self.pass_steps = pass_steps if limit and pass_steps and pass_steps <= limit else None
        self.next: float = inf if limit is None else 1

    def ends_with(self, step_seconds: Sequence[float]) -> bool:
        """Return whether the warm-up is over after these steps; true once."""
        count = len(step_seconds)
        if count < self.next:
            return False
        self.next = (1 + WARMUP_TEST_SHARE) * count
        # Imported here, since SciPy takes half a second.
        from perfkit.core.steady import is_warmed_up

        if not is_warmed_up(step_seconds, self.measured_steps, self.pass_steps):
            return False
        self.next = inf
        return True


Count = Annotated[int, Field(ge=0, le=10**9)]


class RankEvent(BaseModel):
    """The fields of raw events that show a rank's progress."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    event: str
    pid: Count = 0
    step: Count = 0
    steps: Count = 0
    samples: Count = 0
    seconds: Annotated[float, Field(ge=0, le=1e9)] = 0.0


class Follower:
    """Reads a rank's raw file while it is written, each line once."""

    def __init__(self, path: Path, protocol: Protocol) -> None:
        self.path = path
        self.protocol = protocol
        auto = protocol.warmup_limit is not None
        self.warmup_steps: float = inf if auto else protocol.warmup_steps
        self.step_seconds: list[float] = []
        self.offset = self.pid = self.step = self.samples = 0
        self.seconds = 0.0

    def read_on(self) -> None:
        """Read the lines written since the last call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                # The whole file is validated at the end.
                with contextlib.suppress(ValidationError):
                    self._apply(RankEvent.model_validate_json(line))

    def _apply(self, event: RankEvent) -> None:
        if event.event == "start":
            self.pid = event.pid
        elif event.event == "warmup":
            self.warmup_steps = event.steps
        elif event.event == "step":
            self.step = event.step
            self.step_seconds.append(event.seconds)
            if self.step > self.warmup_steps:
                self.samples += event.samples
                self.seconds += event.seconds

    @property
    def warmup_step(self) -> int:
        """Return the last step of a warm-up without a fixed length; 0 once it is over."""
        return self.step if self.warmup_steps == inf else 0

    @property
    def planned_step(self) -> int:
        """Return the last step in the protocol's count, which has the shortest possible
        warm-up."""
        if self.warmup_steps == inf:
            return 0
        return max(0, self.step - int(self.warmup_steps) + self.protocol.warmup_steps)

    @property
    def samples_per_second(self) -> float:
        """Return this rank's throughput in the window so far; 0 before its first step."""
        return self.samples / self.seconds if self.seconds else 0.0
