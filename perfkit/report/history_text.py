"""The history of configurations as text for a terminal, in lines of at most 80 columns."""

from collections.abc import Iterator

from perfkit.analysis.comparison.history import Change, Drop, History, Point, Series
from perfkit.analysis.comparison.keys import Differences, format_pair
from perfkit.analysis.ratios import Ratio
from perfkit.analysis.verdicts import LEVEL
from perfkit.measuring.format import amount, interval, number, percent, plain, rate_text
from perfkit.measuring.statements import N_
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import TOO_FEW
from perfkit.report.text.terminal import coloured, wrapped
from perfkit.report.words import machine_words

RATIO_NOTE = N_(
    "A ratio is the median of all ratios of a repeat to an earlier one (Hodges and Lehmann), "
    "not the ratio of the medians. The measurements were not interleaved: its interval does "
    "not cover drift of the machine between them."
)
"""How the ratios of a history are computed."""
MOST_FACTS = 2
"""Most facts of a changed environment that are shown."""


def history_text(history: History) -> str:
    """Return what `perfkit history` prints."""
    lines = []
    for series in history.series:
        lines += [*_series(series, history.threshold), ""]
    if history.series:
        lines.append(wrapped(RATIO_NOTE))
    else:
        lines += ["No configuration has been measured three times yet.", ""]
    if history.left_out:
        count = amount(history.left_out, "measurement")
        lines.append(f"left out: {count} in series of fewer than three")
    regressed = sum(series.regressed for series in history.series)
    lines.append(f"{len(history.series)} series: {regressed} regressed")
    return "\n".join(lines)


def _series(series: Series, threshold: float) -> Iterator[str]:
    """Yield whether a series regressed, its newest throughput, and its changes of level."""
    point = series.points[-1]
    count, day = len(series.points), point.created[:10]
    throughput = rate_text(point.throughput, series.unit, *(point.interval or ()))
    outcome = wrapped(drop_words(series.drop, threshold), "  ")
    yield wrapped(plain(series.name))
    yield coloured(outcome, "slower") if series.regressed else outcome
    if series.accepted:
        yield wrapped(f"accepted: the level of {when(series.accepted)}", "  ")
    yield wrapped(f"{throughput}, newest of {count}, {day}", "  ")
    for change in series.changes:
        first = series.points[change.start]
        facts = _facts(first.changed_environment)
        yield wrapped(f"{when(first)} × {ratio_words(change)}: {facts}", "  ")
        yield from _machine(change)


def drop_words(drop: Drop | None, threshold: float) -> str:
    """Return by how much a series regressed and how to accept it, or that no drop was found."""
    if drop is None:
        return _("No drop over %(threshold)s found.") % {"threshold": percent(threshold)}
    words = _(
        "Regression: the newest level is %(share)s slower than the best accepted one "
        "(%(least)s to %(most)s at %(level)s), since %(since)s. To accept it: -p label "
        "accepted-NAME for the next measurement, or --since %(since)s."
    )
    low, high = drop.interval
    return words % {
        "share": percent(1 - drop.ratio),
        "least": percent(1 - high),
        "most": percent(1 - low),
        "level": percent(drop.interval_level, 4),
        "since": plain(drop.since),
    }


def _machine(change: Change) -> Iterator[str]:
    """Yield the rates of the machine beside a change of level, and whether they fell too."""
    if change.rates:
        rates = [f"{rate.name} × {ratio_words(rate)}" for rate in change.rates]
        yield wrapped("; ".join(rates), "    ")
    machine = machine_words(change.rates)
    if machine:
        yield wrapped(machine, "    ")


def when(point: Point) -> str:
    """Return the day of a measurement, and its label."""
    return f"{point.created[:10]} {plain(point.label)}".rstrip()


def ratio_words(ratio: Ratio) -> str:
    """Return a ratio with its interval, or that there are too few repeats for one."""
    sure = interval(*ratio.interval) if ratio.has_level(LEVEL) else _(TOO_FEW)
    return f"{number(ratio.ratio)} ({sure})"


def _facts(changes: Differences) -> str:
    """Return the first changes of the environment, and the number of others."""
    facts = [f"{name} {format_pair(name, *values)}" for name, values in changes.items()]
    if not facts:
        return "nothing has changed in the stored environment, interpreter and threads"
    if len(facts) > MOST_FACTS:
        facts = [*facts[:MOST_FACTS], f"+{amount(len(facts) - MOST_FACTS, 'fact')}"]
    return "; ".join(facts)
