"""Comparisons and series as text for a terminal, from terminal.txt.j2, in lines of at most 80
columns."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.analysis.comparison.keys import KEYS, Differences, Value, format_pair
from perfkit.analysis.ratios import Method, Verdict
from perfkit.analysis.warning_types import worst_first
from perfkit.core.format import interval, number, percent, plain
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import model_named
from perfkit.core.statistics import fewest_values
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _
from perfkit.report.text.messages import COMPARISON
from perfkit.report.text.terminal import laid_out, tabulated

if TYPE_CHECKING:
    from perfkit.analysis.comparison.stored import Comparison, PairResult
    from perfkit.core.results.failures import Failure

TEMPLATE = Path(__file__).with_name("terminal.txt.j2")
SHOWN = 10
"""Most names of a kind that are shown; the JSON has all."""
WORST = 2
"""Most warnings of a side that are named beside a verdict."""
VERDICTS: dict[Verdict, str] = {
    "faster": "faster",
    "slower": "slower",
    "no difference": "no difference shown",
    "undecided": "undecided",
}
"""Verdict -> its words: an interval that contains 1 does not show that there is no difference.
"""
TITLE: dict[str, Callable[[Value], str]] = {
    "model": lambda model: model_named(str(model)).name,
    "framework": lambda framework: FRAMEWORKS[str(framework)].display_name,
    "precision": str,
    "device": lambda device: str(device).upper(),
    "topology": str,
    "batch_size": lambda size: f"batch {size}",
    "input": str,
}
"""Keys that name a pair, most important first, and their text."""
METHODS: dict[Method, str] = {
    "pairs": "The repeats were interleaved: the ratio is the median of the ratios of repeat k "
    "to repeat k; its interval lies between two of these and holds for any distribution.",
    "Hodges-Lehmann": "B / A is the median of all ratios of a repeat of B to a repeat of A "
    "(Hodges and Lehmann), not the ratio of the medians; its interval is that of the "
    "Mann-Whitney test. The repeats were not interleaved: the interval does not cover drift of "
    "the machine between A and B.",
    "median": "The published number has no interval: B / A has the interval of the measured "
    "median alone. Facts that the source does not state, such as versions, may differ.",
}
"""How the ratio is computed."""


def as_text(macro: str, shown: Any) -> str:
    """Return a comparison, an interleaved comparison or a history as text."""
    return laid_out(TEMPLATE, macro, shown, words=sys.modules[__name__], text=names)


def why_no_number(failure: "Failure | None") -> str:
    return failure.line() if failure else "not finished"


def caution(pair: "PairResult", a: str, b: str) -> str:
    """Return a sentence with the worst warnings of each side; empty without warnings."""
    sides = [
        f"{name} ({', '.join(worst_first(side.warnings)[:WORST])})"
        for name, side in ((a, pair.a), (b, pair.b))
        if side.warnings
    ]
    return _(COMPARISON["warned"]) % {"sides": ", ".join(sides)} if sides else ""


def verdict_sentence(pair: "PairResult", level: float, threshold: float, a: str, b: str) -> str:
    """Return the verdict on a pair whose sides are named `a` and `b`, in the current language.
    If it is undecided, the sentence has the number of repeats needed. Equality is stated only
    within the threshold, and only if the whole interval is."""
    code: str = "regressed" if pair.regressed else pair.verdict.replace(" ", "_")
    if code == "no_difference" and pair.interval[0] < 1 - threshold:
        code = "not_excluded"
    elif code == "no_difference" and pair.interval[1] <= 1 + threshold:
        code = "equal"
    enough = fewest_values(level)
    n: int | str | None = len(pair.turns) or pair.a.n or pair.b.n
    if code == "undecided":
        code = pair.method
    if pair.method == "Hodges-Lehmann":
        n = f"{pair.a.n} and n={pair.b.n}"
        enough = next(n for n in count(1) if 1 - 2 / comb(2 * n, n) >= level)
    change, low, high = (
        _(COMPARISON["share_slower" if ratio < 1 else "share_faster"])
        % {"share": percent(abs(ratio - 1))}
        for ratio in (pair.ratio, *pair.interval)
    )
    values = {"a": a, "b": b, "change": change, "low": low, "high": high, "n": n}
    values |= {"level": percent(level, 4), "threshold": percent(threshold)}
    values |= {"reached": percent(pair.interval_level, 4), "enough": enough}
    return _(COMPARISON[code]) % values


def title(values: Mapping[str, Value], keys: Iterable[str] = TITLE) -> str:
    """Return these keys of a pair as a short title."""
    return ", ".join(
        TITLE[key](values[key]) if key in TITLE else plain(f"{key} {values[key]}")
        for key in keys
        if key in values
    )


def table(pairs: "list[PairResult]") -> list[str]:
    """Return a table of pairs, named by the keys in which they differ."""
    order = dict.fromkeys([*TITLE, *KEYS])
    keys = [key for key in order if len({pair.keys.get(key) for pair in pairs}) > 1]
    names = [title(pair.keys, keys) for pair in pairs]
    are_named = len({*names}) == len(pairs)
    rows = [
        (
            name if are_named else f"{pair.a.name} | {pair.b.name}",
            *map(number, (pair.a.value, pair.b.value, pair.ratio)),
            interval(*pair.interval),
            "regression" if pair.regressed else VERDICTS[pair.verdict],
        )
        for name, pair in zip(names, pairs, strict=True)
    ]
    headings = ("", "A", "B", "B / A", *(left := ("interval", "verdict")))
    return tabulated(rows, headings, left)


def known(pair: "PairResult") -> Iterator[str]:
    """Yield the differences of a pair, and whether the same work was verified."""
    for key, values in pair.across.items():
        yield f"across {key}: {format_pair(key, *values)}"
    for key, values in pair.differs.items():
        yield f"differs: {key} {format_pair(key, *values)}"
    if work := pair.same_work:
        when = f" in float32 and float64 ({work.created})" if work.created else ""
        rest = f"; {work.command}" if work.command and work.state != "verified" else ""
        yield f"same work: {work.state}{when}{rest}"


def facts(changes: Differences) -> str:
    """Return the first two changes of the environment, and the number of others."""
    found = [f"{name} {format_pair(name, *values)}" for name, values in changes.items()]
    more = [f"+{len(found) - 2} facts"] if found[2:] else []
    return "; ".join([*found[:2], *more]) or "no change of environment"


def notes(comparison: "Comparison") -> Iterator[str]:
    """Yield notes on the numbers: first those on single pairs, each once with the number of
    pairs, then those on all pairs."""
    pairs = comparison.pairs
    found: Counter[str] = Counter()
    for pair in pairs:
        found.update(known(pair))
        for name, side in (("A", pair.a), ("B", pair.b)):
            if side.status == "partial":
                found[f"{name} is partial: {side.n} of {side.repeats} repeats"] += 1
        if len(pairs) > 1 and pair.verdict == "undecided":
            found[verdict_sentence(pair, comparison.level, 0, "A", "B").rstrip(".")] += 1
        if len(pairs) > 1 and (warned := caution(pair, "A", "B")):
            found[warned.rstrip(".")] += 1
    for note, times in found.items():
        of = "all" if times == len(pairs) else f"{times} of"
        yield note if len(pairs) == 1 else f"{note} ({of} {len(pairs)} pairs)"
    used = {pair.method for pair in pairs}
    crossed = {key for pair in pairs for key in pair.across}
    alike = [key for key in comparison.across if key not in crossed]
    yield from (f"across {key}: it does not differ" for key in alike)
    yield from (note for method, note in METHODS.items() if method in used)
    if len(pairs) > 1:
        chance = number(len(pairs) * (1 - comparison.level), 2)
        yield (
            f"Of {len(pairs)} pairs that do not differ at all, up to {chance} on average are "
            f"called faster or slower at {percent(comparison.level, 4)}."
        )
