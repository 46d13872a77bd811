"""Writers of other suites' logs, for tests of the readers."""

import json
import re
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


def as_file(text):
    """Convert DLLogger's prints to the JSON lines of its file."""
    lines = []
    for line in text.splitlines():
        at, place, pairs = re.fullmatch(r"DLL (.{26}) - (.*?) +(\S+ : .*)", line).groups()
        record = {"timestamp": "0", "datetime": at, "elapsedtime": "0", "type": "LOG"}
        numbers = [int(number) for number in re.findall(r"\d+", place)]
        record["step"] = numbers
        if len(numbers) == 1:
            record["step"] = numbers[0]
        data = {}
        for name, value in re.findall(r"(\S+) : ([\d.e-]+)(?= |$)", pairs):
            data[name] = float(value)
        record["data"] = data
        lines.append(f"DLLL {json.dumps(record)}\n")
    return "".join(lines)


WRITERS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
SUITES = {name: Suite(**entry) for name, entry in WRITERS.items()}
"""Format -> its writer."""
IN_FILES = [name for name in SUITES if re.search(r"\S : {rate", SUITES[name].line)]
"""Formats that `as_file` converts."""


ODD_NUMBERS = (
    "0",
    "-1",
    "nan",
    "inf",
    "1e308",
    "-1e-308",
    "9" * 17,
    "9" * 40,
    "12,810",
    "12,81",
    "1_234",
    "1.2M",
    "51.2 ms",
    "1:02:03.4",
    "3.4e999",
    "99:99:99",
    "",
)
"""Texts that a damaged or unusual log has in place of a number."""


def mutated(text, random):
    """Return a log with some damage: numbers replaced, characters and lines lost, doubled or
    exchanged, the end cut off."""
    for _time in range(random.randint(1, 12)):
        begin = random.randrange(len(text) + 1)
        end = min(len(text), begin + random.choice([1, 3, 40, 400]))
        part = text[begin:end]
        match random.randrange(7):
            case 0:
                odd = random.choice(ODD_NUMBERS)
                text = text[:begin] + re.sub(r"\d[\d.,]*", odd, part, count=3) + text[end:]
            case 1:
                text = text[:begin] + text[end:]
            case 2:
                text = text[:end] + part + text[end:]
            case 3:
                text = text[:begin] + part[::-1] + text[end:]
            case 4:
                character = chr(random.choice([0, 9, 10, 13, 27, 44, 48, 57, 0x661, 0xFFFD]))
                text = text[:begin] + character * random.choice([1, 30]) + text[begin:]
            case 5:
                lines = text.splitlines(True)
                random.shuffle(lines)
                text = "".join(lines)
            case 6:
                text = text[: max(1, end)]
    return text or "\n"


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
