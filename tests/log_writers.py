"""Writers of other suites' logs, for tests of the readers."""

import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from perfkit.audit.reader import read_logs

BATCH = 32
START = datetime(2026, 3, 1, 23, 59, 30, tzinfo=UTC)


def clock(seconds):
    return f"{START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S.%f}"


@dataclass(frozen=True)
class Suite:
    """A suite's line for a step, from log_writers.toml."""

    line: str
    covers: str = "window"
    since: int = 1
    window: int = 0
    head: str = ""

    def text(self, seconds, every=10, epoch=0):
        """Return prints at every `every`-th step, given the seconds of each step."""
        text = self.head
        for step in range(every, len(seconds) + 1, every):
            before = step - every
            first = self._first(step, every)
            mean = np.mean(seconds[first - 1 : step])
            wait = mean / 4
            elapsed = np.sum(seconds[:step])
            ended = START + timedelta(seconds=elapsed)
            line = self.line.format(
                k=step,
                i=step - 1,
                before=before,
                epoch=epoch,
                at=ended,
                unix=ended.timestamp(),
                elapsed=elapsed,
                hours=elapsed / 3600,
                duration=timedelta(seconds=elapsed),
                mean=mean,
                ms=1000 * mean,
                inverse=1 / mean,
                total=np.sum(seconds[before:step]),
                wait=wait,
                rate=BATCH / mean,
                samples=BATCH * (step - first + 1),
                both=BATCH / (mean + wait),
            )
            text += f"{line}\n"
        return text

    def _first(self, step, every):
        """Return the first step in the mean that is printed at a step."""
        begin = 1
        if step >= self.since:
            begin = self.since
        match self.covers:
            case "running":
                return begin
            case "rolling":
                return max(begin, step - self.window + 1)
            case "step":
                return step
        return max(begin, step - every + 1)


WRITERS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
SUITES = {name: Suite(**entry) for name, entry in WRITERS.items()}
"""Format -> its writer."""


def paddleclas(seconds, every=10, epoch=0):
    return SUITES["PaddleClas, static graph"].text(seconds, every, epoch)


@pytest.fixture
def write(tmp_path):
    """Writes text or bytes to a file and returns its path."""

    def written(text, name="some.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, str):
            text = text.encode()
        path.write_bytes(text)
        return path

    return written


@pytest.fixture
def read(write):
    """Returns the only log in a file with this text."""

    def read_one(text, name="some.log", form=None):
        path = write(text, name)
        (log,) = read_logs(path, form)
        return log

    return read_one
