"""Logs for the tests: as other suites write them, and as if they had been read; and what an
audit makes of them."""

import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfkit.audit.auditing import audited_log
from perfkit.audit.formats import Semantics
from perfkit.audit.log import WINDOW, Log
from perfkit.audit.log_numbers import LogFigures
from perfkit.audit.reader import read_logs
from perfkit.audit.recompute import Figures
from perfkit.audit.statements import ByLine, SourcedFact

BATCH = 32
START = datetime(2026, 3, 1, 23, 59, 30, tzinfo=UTC)


def clock(seconds):
    return f"{START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S.%f}"


@dataclass(frozen=True)
class Suite:
    """A suite's line for a step, from logs.toml."""

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


FACTS = {
    "model": "resnet50",
    "framework": "paddle",
    "precision": "fp32",
    "nodes": 1,
    "devices": 8,
    "ranks": 8,
    "batch_size": 256,
}
FALLING = np.linspace(7, 6, 12)
"""Losses of a training."""


def windows(count=12, each=10, after=0, **columns):
    """Return `count` consecutive prints of `each` steps in one epoch."""
    number = np.arange(1, count + 1)
    last = after + each * number
    values = dict.fromkeys(WINDOW, np.nan)
    values |= {"rank": -1, "epoch": 0, "run": 0, "line": number}
    values |= {"first": last - each + 1, "last": last} | columns
    rows = pd.DataFrame(values, range(count)).astype(WINDOW)
    steps = rows["last"] - rows["first"] + 1
    rows["printed_seconds"] = rows["seconds"] / steps
    rows["own_rate"] = rows["rate"]
    return rows


def make_log(*rows, facts=FACTS, reported=(), notes=(), name="x.log", sha="a", **semantics):
    """Return a log with these prints."""
    usual = {"rate_of": "device", "reader": "in", "source": "this test"}
    meaning = Semantics(**usual | semantics)
    sourced = {}
    for fact, value in facts.items():
        sourced[fact] = SourcedFact(value=value, by=ByLine(line=1))
    if not rows:
        rows = [windows(0)]
    return Log(
        path=Path(name),
        format="made by hand",
        sha256=sha,
        semantics=meaning,
        windows=pd.concat(rows, ignore_index=True),
        facts=sourced,
        reported=[*reported],
        notes=[*notes],
    )


def by_statistic(log):
    """Return the figures of a log by statistic and period."""
    figures = {}
    for figure in Figures(log).shown:
        figures[figure.statistic, figure.period] = figure
    return figures


def recomputed(log):
    """Return an audit's record of a log, and all figures."""
    figures = Figures(log)
    return LogFigures(audited_log(figures), figures)


def findings_of(log):
    """Return the located findings of a log by code."""
    findings = recomputed(log).log.findings
    return {located.code: located for located in findings}


def codes(findings):
    return {located.code for located in findings}
