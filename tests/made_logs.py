"""Logs made by hand, as if they had been read, and what an audit makes of them."""

from pathlib import Path

import numpy as np
import pandas as pd

from perfkit.audit.auditing import audited_log
from perfkit.audit.formats import Semantics
from perfkit.audit.log import WINDOW, Log
from perfkit.audit.log_numbers import LogFigures
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
