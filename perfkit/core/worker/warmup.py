"""The end of an automatic warm-up: when the driver finds a steady state in the steps so far, or
at a limit of steps or seconds."""

import time
from collections.abc import Callable
from pathlib import Path

from perfkit.core.config import Protocol
from perfkit.timing.devices import Clock
from perfkit.timing.raw_file import steady_file

CHECK_STEPS = 5
"""Steps between two checks, at which the ranks wait for the device and each other."""
REASONS = (None, "seconds", "steady")
"""Reason for the end by the number that the ranks exchange."""


class AutoWarmup:
    """Ends the warm-up after the same step on all ranks, and writes the `warmup` event."""

    def __init__(
        self,
        protocol: Protocol,
        rank: int,
        raw_folder: Path,
        write: Callable[..., None],
        largest_of_ranks: Callable[[int], int],
        clock: Clock = time.perf_counter,
    ) -> None:
        self.protocol = protocol
        # Rank 0 decides; it always runs on the driver's machine.
        self.steady_file = steady_file(raw_folder) if rank == 0 else None
        self.write = write
        self.largest_of_ranks = largest_of_ranks
        self.clock = clock
        self.began = clock()

    def is_over(self, step: int) -> bool:
        """Return whether the window begins after `step`."""
        limit = self.protocol.warmup_limit
        if limit is None:
            return True
        seconds = self.clock() - self.began
        ended_by = None
        if step >= limit:
            ended_by = "steps"
        elif step % CHECK_STEPS == 0:
            reason = self._reason_to_end(seconds)
            ended_by = REASONS[self.largest_of_ranks(REASONS.index(reason))]
        if ended_by is None:
            return False
        event = {"event": "warmup", "steps": step, "seconds": seconds, "ended_by": ended_by}
        self.write(event)
        if self.steady_file:
            self.steady_file.unlink(missing_ok=True)
        return True

    def _reason_to_end(self, seconds: float) -> str | None:
        """Return why this rank ends the warm-up after `seconds`; None to go on, and on all
        ranks that don't decide."""
        if self.steady_file is None:
            return None
        if self.steady_file.exists():
            return "steady"
        limit = self.protocol.warmup_seconds
        return "seconds" if limit and seconds >= limit else None
