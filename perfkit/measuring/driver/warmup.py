"""Follows rank 0 while it trains, and tests whether its warm-up is over."""

import contextlib
import time
from collections.abc import Sequence
from math import ceil, inf
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from perfkit.measuring.config import Config
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.statistics import median
from perfkit.timing.warmup import MOST_AHEAD, WARMUP_SHARE, WindowStart, window_steps
from perfkit.training.frameworks import FRAMEWORKS

WARMUP_TEST_SHARE = 0.05
"""Steps between two tests, which take CPU time, as a share of the warm-up so far."""
LEAD_STEPS = 3
"""Steps by which a rank may be ahead of another one, and the step that it is in."""
NOTICE_SECONDS, NODES_NOTICE_SECONDS = 1.0, 5.0
"""On one machine, ranks see a file within milliseconds, unless the machine is busy. Nodes look
at a shared file four times a second."""
RECENT_STEPS = 50
"""Steps whose times predict those of the next ones."""
SHORTEST_STEP = 1e-6


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
        from perfkit.measuring.steady import is_warmed_up

        if not is_warmed_up(step_seconds, self.measured_steps, self.pass_steps):
            return False
        self.next = inf
        return True


def load_test() -> None:
    """Load the libraries of the warm-up's test, which takes seconds on a busy machine, while a
    training may take all steps of its warm-up within a second."""
    from perfkit.measuring.steady import FEWEST_STEPS, is_warmed_up

    is_warmed_up([1.0] * FEWEST_STEPS, 1)


class WarmupEnd:
    """Ends the warm-up: tells a single rank that it is steady, and several after which step all
    are to end it, without an exchange in the process group of the user: it names a step that
    lies ahead of all ranks.

    A rank that has passed the step fails. Ranks end the warm-up at its limit of steps, and a
    single one after the longest time, without being told.
    """

    def __init__(
        self, config: Config, protocol: Protocol, pass_steps: float | None = None
    ) -> None:
        self.is_alone = config.ranks == 1
        self.protocol = protocol
        is_asynchronous = config.accelerated or FRAMEWORKS[config.framework].runs_ahead
        submits_ahead = is_asynchronous and not protocol.measured_seconds
        self.lead_steps = LEAD_STEPS + (MOST_AHEAD if submits_ahead else 0)
        self.lead_seconds = NOTICE_SECONDS if config.nodes == 1 else NODES_NOTICE_SECONDS
        self.test = WarmupTest(protocol, pass_steps)
        must_be_steady = protocol.warmup_limit is not None
        self.has_named = protocol.fixes_warmup or (self.is_alone and not must_be_steady)
        if must_be_steady:
            load_test()

    def start(self, first: "Follower") -> WindowStart | None:
        """Return where the window starts when the warm-up is to end, given rank 0; once."""
        if self.has_named or not first.warmup_step or not self._is_over(first):
            return None
        self.has_named = True
        # The test took a while.
        first.read_on()
        protocol = self.protocol
        step = first.step
        if not self.is_alone:
            step = max(self._step_ahead(first), protocol.warmup_steps)
            if protocol.warmup_limit:
                step = min(step, protocol.warmup_limit)
        steps = window_steps(
            protocol.measured_steps, protocol.measured_seconds, first.step_seconds[1:]
        )
        return WindowStart(step, steps)

    def _step_ahead(self, first: "Follower") -> int:
        """Return a step that no rank will have reached when it learns of it."""
        usual = median(first.step_seconds[-RECENT_STEPS:])
        steps_of_notice = ceil(self.lead_seconds / max(usual, SHORTEST_STEP))
        return first.step + self.lead_steps + steps_of_notice

    def _is_over(self, first: "Follower") -> bool:
        protocol = self.protocol
        if first.seconds_since_first_step() < WARMUP_SHARE * protocol.measured_seconds:
            return False
        if protocol.warmup_limit is None:
            return first.step >= max(protocol.warmup_steps, 2)
        return self._takes_too_long(first) or self.test.ends_with(first.step_seconds)

    def _takes_too_long(self, first: "Follower") -> bool:
        limit = self.protocol.warmup_seconds
        if self.is_alone or limit is None:
            return False
        return first.seconds_since_first_step() >= limit


class Follower:
    """Reads a rank's raw file while it is written, each line once."""

    def __init__(self, path: Path, protocol: Protocol) -> None:
        self.path = path
        self.protocol = protocol
        self.warmup_steps: float = protocol.warmup_steps if protocol.fixes_warmup else inf
        self.window_steps = protocol.measured_steps
        self.step_seconds: list[float] = []
        self.offset = self.step = self.samples = 0
        self.seconds = 0.0
        self.unit = ""
        """What a script counts, once it has told that."""
        self.first_step_at: float | None = None
        self.follows_prints = self.has_window = False

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
                with contextlib.suppress(ValueError):
                    self._apply(from_json(line))

    def _apply(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "told" if not self.follows_prints:
                self.unit = event["unit"]
            case "warmup":
                self.warmup_steps, self.window_steps = event["steps"], event["window_steps"]
            case "window":
                self.has_window = True
            case "print":
                self._take_print(event)
            case "step" if not self.follows_prints:
                self._take(event["step"], event["seconds"], event["samples"])

    def _take_print(self, event: dict[str, Any]) -> None:
        """Take a line of a command's log, which tells of steps, while their samples are
        unknown."""
        self.follows_prints, self.unit = True, "steps"
        if event["in_window"]:
            self.warmup_steps = min(self.warmup_steps, event["step"] - event["steps"])
        else:
            self.warmup_steps = inf
        self._take(event["step"], event["seconds"], event["steps"])

    def _take(self, step: int, seconds: float, samples: int) -> None:
        if self.first_step_at is None:
            self.first_step_at = time.monotonic()
        self.step = step
        self.step_seconds.append(seconds)
        if step > self.warmup_steps:
            self.samples += samples
            self.seconds += seconds

    def seconds_since_first_step(self) -> float:
        """Return the seconds since the first step was read; 0 before."""
        if self.first_step_at is None:
            return 0.0
        return time.monotonic() - self.first_step_at

    @property
    def warmup_step(self) -> int:
        """Return the last step of a warm-up without a fixed length; 0 once it is over."""
        return self.step if self.warmup_steps == inf else 0

    @property
    def state(self) -> str:
        """The last step and, where it is known, of how many; what the rank does otherwise."""
        if self.has_window:
            return "window done, ending"
        if not self.step:
            return "starting"
        if self.warmup_steps == inf:
            return f"warm-up step {self.step}"
        last_step = int(self.warmup_steps) + self.window_steps
        of = f"/{last_step}" if self.step <= last_step else ""
        return f"step {self.step}{of}"

    @property
    def planned_step(self) -> int:
        """Return the last step in the protocol's count, which has the shortest possible
        warm-up and window."""
        if self.warmup_steps == inf:
            return 0
        in_window = self.step - int(self.warmup_steps)
        if in_window > 0:
            in_window = in_window * self.protocol.measured_steps // self.window_steps
            in_window = min(in_window, self.protocol.measured_steps)
        return max(0, in_window + self.protocol.warmup_steps)

    @property
    def samples_per_second(self) -> float:
        """Return this rank's throughput in the window so far; 0 before its first step."""
        return self.samples / self.seconds if self.seconds else 0.0
