"""The history of configurations as text for a terminal, in lines of at most 80 columns."""

from collections import Counter
from collections.abc import Iterator

from perfkit.analysis.comparison.history import History, Newest, Point, Series
from perfkit.analysis.comparison.keys import Differences, format_pair
from perfkit.analysis.ratios import Ratio
from perfkit.analysis.verdicts import Verdict
from perfkit.core.format import amount, interval, number, percent, plain
from perfkit.core.statements import N_
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext
from perfkit.report.text.names import TOO_FEW, verdict_name
from perfkit.report.text.terminal import coloured, wrapped

RATIO_NOTE = N_(
    "A ratio is the median of all ratios of a repeat to an earlier one (Hodges and Lehmann), "
    "not the ratio of the medians. The measurements were not interleaved: its interval does "
    "not cover drift of the machine between them."
)
"""How the ratios of a history are computed."""
DROP_WORDS: dict[Verdict, str] = {
    "slower": N_("regression"),
    "no difference": N_("no drop over %(threshold)s"),
    "undecided": N_("can't tell"),
}
"""Verdict on a series -> its words in a table."""
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
    return "\n".join([*lines, *_counts(history)])


def _series(series: Series, threshold: float) -> Iterator[str]:
    """Yield what a series shows about a drop, its newest throughput, and its changes of
    level."""
    point = series.points[-1]
    count, day = len(series.points), point.created[:10]
    throughput = f"{number(point.throughput)} {series.unit}"
    yield wrapped(plain(series.name))
    yield coloured(wrapped(series.outcome.text(), "  "), series.verdict)
    if series.untested:
        yield wrapped(series.untested.text(), "  ")
    if series.accepted:
        yield wrapped(f"accepted: the level of {when(series.accepted)}", "  ")
    yield wrapped(f"{throughput}, newest of {count}, {day}", "  ")
    if series.compared:
        yield wrapped(_compared(series.compared, threshold), "  ")
    for change in series.changes:
        first = series.points[change.start]
        facts = _facts(first.changed_environment)
        yield wrapped(f"{when(first)} {_times(change)}: {facts}", "  ")
        if change.attribution:
            yield wrapped(change.attribution.statement.text(), "    ")


def _compared(newest: Newest, threshold: float) -> str:
    """Return the ratio of the newest measurement to the one before, with its verdict."""
    if not newest.is_tested:
        return f"× {number(newest.ratio)} of the measurement before: {TOO_FEW}"
    verdict = verdict_name(newest.verdict, threshold)
    return f"{_times(newest)} of the measurement before: {verdict}"


def when(point: Point) -> str:
    """Return the day of a measurement, and its label."""
    return f"{point.created[:10]} {plain(point.label)}".rstrip()


def _times(ratio: Ratio) -> str:
    return f"× {number(ratio.ratio)} ({interval(*ratio.interval)})"


def _facts(changes: Differences) -> str:
    """Return the first changes of the environment, and the number of others."""
    facts = [f"{name} {format_pair(name, *values)}" for name, values in changes.items()]
    if not facts:
        return "nothing has changed in the stored environment, interpreter and threads"
    if len(facts) > MOST_FACTS:
        facts = [*facts[:MOST_FACTS], f"+{amount(len(facts) - MOST_FACTS, 'fact')}"]
    return "; ".join(facts)


# All series.


def _counts(history: History) -> Iterator[str]:
    """Yield how many series have which verdict, and what may have been missed."""
    verdicts = Counter(series.verdict for series in history.series)
    parts = []
    for verdict in DROP_WORDS:
        if verdict in verdicts:
            parts.append(f"{verdicts[verdict]} {drop_words(verdict, history.threshold)}")
    yield ": ".join(filter(None, [f"{len(history.series)} series", ", ".join(parts)]))
    if verdicts["undecided"]:
        yield coloured(wrapped(missed(history)), "undecided")


def drop_words(verdict: Verdict, threshold: float) -> str:
    """Return the verdict on a series in a few words: "no drop over 2 %"."""
    return _(DROP_WORDS[verdict]) % {"threshold": percent(threshold)}


def missed(history: History) -> str:
    """Return in how many series a drop may have been missed, at least one."""
    count = sum(series.verdict == "undecided" for series in history.series)
    words = ngettext(
        "Can't tell for %(count)s of %(all)s series: a drop over %(threshold)s could have been "
        "missed.",
        "Can't tell for %(count)s of %(all)s series: a drop over %(threshold)s could have been "
        "missed.",
        count,
    )
    threshold = percent(history.threshold)
    return words % {"count": count, "all": len(history.series), "threshold": threshold}
