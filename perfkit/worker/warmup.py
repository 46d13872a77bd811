"""When the warm-up of a repeat is over whose protocol leaves its length open: once the driver,
which tests the steps so far, says so, or at a limit."""

import time
from collections.abc import Callable
from pathlib import Path

from perfkit.config import Protocol
from perfkit.frameworks.base import Clock
from perfkit.results.store import steady_file

CHECK_STEPS = 5
"""The ranks agree once in so many steps: for that, they wait for the device and each other."""
REASONS = (None, "seconds", "steady")
"""What ends it, by the number that the ranks exchange."""


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
        # Rank 0, which decides, is on the driver's machine, also of several nodes.
        self.steady_file = steady_file(raw_folder) if rank == 0 else None
        self.write = write
        self.largest_of_ranks = largest_of_ranks
        self.clock = clock
        self.began = clock()

    def is_over(self, step: int) -> bool:
        """Whether the window begins after `step`."""
        limit, most_seconds = self.protocol.warmup_limit, self.protocol.warmup_seconds
        if limit is None:
            return True
        seconds = self.clock() - self.began
        known = ended_by = None
        if step >= limit:
            ended_by = "steps"
        elif step % CHECK_STEPS == 0:
            if self.steady_file and self.steady_file.exists():
                known = "steady"
            elif self.steady_file and most_seconds and seconds >= most_seconds:
                known = "seconds"
            ended_by = REASONS[self.largest_of_ranks(REASONS.index(known))]
        if ended_by:
            event = {"event": "warmup", "steps": step, "seconds": seconds}
            self.write(event | {"ended_by": ended_by})
            if self.steady_file:
                self.steady_file.unlink(missing_ok=True)
        return ended_by is not None
