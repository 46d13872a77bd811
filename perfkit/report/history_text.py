"""The history of configurations as text for a terminal, in lines of at most 80 columns."""

from collections.abc import Iterator

from perfkit.analysis.comparison.history import History, Series
from perfkit.analysis.comparison.keys import Differences, format_pair
from perfkit.analysis.ratios import Ratio
from perfkit.core.format import amount, interval, number, plain
from perfkit.core.statements import N_
from perfkit.report.text.names import verdict_name
from perfkit.report.text.terminal import wrapped

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
        count = history.left_out
        lines.append(f"left out: {amount(count, 'measurement')} in series of fewer than three")
    regressed = sum(series.regressed for series in history.series)
    lines.append(f"{len(history.series)} series, {regressed} regressed")
    return "\n".join(lines)


def _series(series: Series, threshold: float) -> Iterator[str]:
    """Yield the newest throughput of a series, its changes of level, and a regression."""
    point = series.points[-1]
    count, day = len(series.points), point.created[:10]
    throughput = f"{number(point.throughput)} {series.unit}"
    verdict = verdict_name(series.newest.verdict, threshold)
    yield wrapped(plain(series.name))
    yield wrapped(f"{throughput}, newest of {count}, {day}", "  ")
    yield wrapped(f"{_times(series.newest)} of the measurement before: {verdict}", "  ")
    for change in series.changes:
        first = series.points[change.start]
        facts = _facts(first.changes)
        yield wrapped(f"{first.created[:10]} {_times(change)}: {facts}", "  ")
        if change.attribution:
            yield wrapped(change.attribution.statement.text(), "    ")
    fall = series.fall(threshold)
    if series.regressed:
        yield "  REGRESSED"
    elif fall:
        ago = count - fall.start
        yield f"  a lower level (× {number(fall.ratio)}) began {amount(ago, 'measurement')} ago"


def _times(ratio: Ratio) -> str:
    return f"× {number(ratio.ratio)} ({interval(*ratio.interval)})"


def _facts(changes: Differences) -> str:
    """Return the first changes of the environment, and the number of others."""
    facts = [f"{name} {format_pair(name, *values)}" for name, values in changes.items()]
    if not facts:
        return "no change of environment"
    if len(facts) > MOST_FACTS:
        facts = [*facts[:MOST_FACTS], f"+{amount(len(facts) - MOST_FACTS, 'fact')}"]
    return "; ".join(facts)
