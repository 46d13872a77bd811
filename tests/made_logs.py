"""Logs made by hand, as if they had been read, and what an audit makes of them."""

from pathlib import Path

import numpy as np
import pandas as pd

from perfkit.audit.audit import ClaimedNumber
from perfkit.audit.auditing import audited_log
from perfkit.audit.claims import LogFigures, check_claim
from perfkit.audit.formats import Semantics
from perfkit.audit.log import WINDOW, Log
from perfkit.audit.recompute import Figures
from perfkit.audit.statements import ByLine, SourcedFact

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
    values = {"rank": -1, "epoch": 0, "run": 0, "line": number}
    values |= {"first": last - each + 1, "last": last} | columns
    every = {name: values.get(name, np.nan) for name in WINDOW}
    rows = pd.DataFrame(every, range(count)).astype(WINDOW)
    steps = rows["last"] - rows["first"] + 1
    rows["printed_seconds"] = rows["seconds"] / steps
    rows["own_rate"] = rows["rate"]
    return rows


def make_log(*rows, facts=FACTS, reported=(), notes=(), name="x.log", sha="a", **semantics):
    """Return a log with these prints."""
    meaning = {"rate_of": "device", "reader": "in", "source": "this test"} | semantics
    sourced = {}
    for fact, value in facts.items():
        sourced[fact] = SourcedFact(value=value, by=ByLine(line=1))
    return Log(
        path=Path(name),
        format="made by hand",
        sha256=sha,
        semantics=Semantics(**meaning),
        windows=pd.concat(rows or [windows(0)], ignore_index=True),
        facts=sourced,
        reported=[*reported],
        notes=[*notes],
    )


def cold_epoch():
    """Return a slow first epoch and six faster ones."""
    epochs = []
    for epoch, time in enumerate([0.14, *[0.125] * 6]):
        epochs.append(windows(20, 20, seconds=20 * time, rate=256 / time, epoch=epoch))
    return pd.concat(epochs)


def by_statistic(log):
    """Return the figures of a log by statistic and period."""
    return {(figure.statistic, figure.period): figure for figure in Figures(log).shown}


def recomputed(log):
    """Return an audit's record of a log, and all figures."""
    figures = Figures(log)
    return LogFigures(audited_log(figures), figures)


def findings_of(log):
    """Return the located findings of a log by code."""
    return {located.code: located for located in recomputed(log).log.findings}


def claimed(text, log, tolerance=0.0):
    """Return the check of a number against a log."""
    number = ClaimedNumber(text=text, value=float(text), place="--claim")
    return check_claim(number, recomputed(log), tolerance)


def codes(findings):
    return {located.code for located in findings}
