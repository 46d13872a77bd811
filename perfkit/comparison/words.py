"""A comparison as text for a terminal."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from math import comb

from rich.table import Table
from rich.text import Text

from perfkit.comparison.history import History, Series
from perfkit.comparison.keys import KEYS, Value, beside
from perfkit.comparison.pairs import why_no_number
from perfkit.comparison.verdict import Comparison, Judged, Named, Number, Verdict
from perfkit.models import MODELS
from perfkit.statistics import fewest_values
from perfkit.text.format import FRAMEWORK_NAMES, interval, interval_words, number, percent
from perfkit.text.terminal import plain, table_lines, wrapped

SHOWN = 10
"""So many names of a kind are shown; the JSON has all."""
VERDICTS: tuple[Verdict, ...] = ("faster", "slower", "no difference", "undecided")
TITLE: dict[str, Callable[[Value], str]] = {
    "model": lambda model: MODELS[str(model)].name,
    "framework": lambda framework: FRAMEWORK_NAMES[str(framework)],
    "precision": str,
    "device": lambda device: str(device).upper(),
    "topology": str,
    "batch_size": lambda size: f"batch {size}",
    "input": str,
}
"""The keys that name a pair first, and how."""


def text(comparison: Comparison) -> str:
    """All that a reader needs of it, in lines of 80 columns at most."""
    pairs = comparison.pairs
    one = pairs[0] if len(pairs) == 1 else None
    lines = [_heading("A", comparison.a), _heading("B", comparison.b), ""]
    lines += _block(one, comparison) if one else _table(pairs)
    lines += ["", *map(wrapped, _notes(comparison)), *_left(comparison)]
    if not one:
        lines.append(_summary(comparison))
    return "\n".join(lines)


def _heading(side: str, named: Named) -> str:
    taken = f"{named.taken_as}, {named.count}" if named.count > 1 else named.taken_as
    return wrapped(f"{side}  {named.name} ({taken})")


def told_of(pair: Judged) -> Iterator[str]:
    """In what the two of a pair differ, and whether that they do the same work was verified."""
    for key, both in pair.across.items():
        yield f"across {key}: {beside(key, *both)}"
    for key, both in pair.differs.items():
        yield f"differs: {key} {beside(key, *both)}"
    if work := pair.same_work:
        when = f" in float32 and float64 ({work.created})" if work.created else ""
        rest = f"; {work.command}" if work.command and work.state != "verified" else ""
        yield f"same work: {work.state}{when}{rest}"


def _block(pair: Judged, comparison: Comparison) -> list[str]:
    """One pair with all that is known of its number."""
    width = max(len(f"{number(one.value)} {one.unit}") for one in (pair.a, pair.b))
    level = percent(pair.interval_level, 4)
    interval = f"{number(pair.interval[0])} – {number(pair.interval[1])} ({level})"
    return [
        ", ".join(word(pair.keys[key]) for key, word in TITLE.items() if key in pair.keys),
        *_number("A", pair.a, width),
        *_number("B", pair.b, width),
        f"  B / A  {number(pair.ratio):{width}}  {interval}",
        wrapped(_sentence(pair, comparison), "  "),
    ]


def _number(side: str, one: Number, width: int) -> list[str]:
    value = f"{number(one.value)} {one.unit}"
    sure = "published, without an interval"
    if one.n:
        low, high = one.interval or (None, None)
        sure = interval_words(low, high, one.interval_level, one.n)
    lines = [f"  {side:5}  {value:{width}}  {sure}", wrapped(one.name, " " * 9)]
    if one.warnings:
        lines.append(wrapped(f"warnings: {', '.join(one.warnings)}", " " * 9))
    return lines


def _sentence(pair: Judged, comparison: Comparison) -> str:
    """The verdict in words."""
    at, low, high = percent(comparison.level, 4), *map(change, pair.interval)
    match pair.verdict:
        case "undecided":
            return f"Undecided at {at}: {_too_few(pair, comparison.level)}."
        case "no difference":
            told = f"No difference shown at {at}: B is from {low} to {high} than A."
            if pair.interval[0] < 1 - comparison.threshold:
                most = percent(comparison.threshold)
                told += f" A regression of more than {most} is not excluded."
            return told
    end = ""
    if pair.verdict == "slower":
        within = "a regression: more than" if pair.regressed else "no regression: within"
        end = f"; {within} {percent(comparison.threshold)}"
    return f"B is {change(pair.ratio)} than A, at {at}{end}."


def change(ratio: float) -> str:
    return f"{percent(abs(ratio - 1))} {'slower' if ratio < 1 else 'faster'}"


def _too_few(pair: Judged, level: float) -> str:
    """Why an interval does not reach the level, and with how many repeats it would."""
    reached = percent(pair.interval_level, 4)
    if pair.published:
        enough = fewest_values(level)
        return f"n={pair.a.n or pair.b.n} reaches {reached} at most, n={enough} would do"
    enough = next(n for n in count(1) if 1 - 2 / comb(2 * n, n) >= level)
    return (
        f"n={pair.a.n} and n={pair.b.n} repeats reach {reached} at most, {enough} of each "
        "would do"
    )


def _table(pairs: list[Judged]) -> list[str]:
    """A line for each of several pairs."""
    units = " or ".join(sorted({pair.a.unit for pair in pairs}))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
    table.add_column("", overflow="fold")
    for heading in ("A", "B", "B / A"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name, pair in zip(_names(pairs), pairs, strict=True):
        low, high = map(number, pair.interval)
        said = "regression" if pair.regressed else pair.verdict
        values = (number(pair.a.value), number(pair.b.value), number(pair.ratio))
        table.add_row(*map(Text, (name, *values, f"{low} – {high}", said)))
    levels = sorted({percent(pair.interval_level, 4) for pair in pairs})
    return [
        *table_lines(table),
        "",
        wrapped(f"A and B are medians in {units}; intervals achieve {', '.join(levels)}."),
    ]


def _names(pairs: list[Judged]) -> list[str]:
    """What tells the pairs apart, in as few words as do."""
    telling: list[str] = []
    for key in dict.fromkeys([*TITLE, *KEYS]):
        if _kinds(pairs, [*telling, key]) > _kinds(pairs, telling):
            telling.append(key)
    if _kinds(pairs, telling) < len(pairs):
        return [f"{pair.a.name} | {pair.b.name}" for pair in pairs]
    return [
        ", ".join(
            TITLE[key](pair.keys[key]) if key in TITLE else plain(f"{key} {pair.keys[key]}")
            for key in telling
            if key in pair.keys
        )
        for pair in pairs
    ]


def _kinds(pairs: list[Judged], keys: list[str]) -> int:
    return len({tuple(pair.keys.get(key) for key in keys) for pair in pairs})


def _notes_of_pairs(comparison: Comparison) -> Iterator[str]:
    """What is told of single pairs, each once for all that it is true of."""
    pairs = comparison.pairs
    told: Counter[str] = Counter()
    for pair in pairs:
        told.update(told_of(pair))
        for side, one in (("A", pair.a), ("B", pair.b)):
            if one.status == "partial":
                told[f"{side} is partial: {one.n} of {one.repeats} repeats, as they are"] += 1
        if len(pairs) > 1 and pair.verdict == "undecided":
            told[f"undecided: {_too_few(pair, comparison.level)}"] += 1
    for note, times in told.items():
        of = "all" if times == len(pairs) else f"{times} of"
        yield note if len(pairs) == 1 else f"{note} ({of} {len(pairs)} pairs)"


def _notes(comparison: Comparison) -> Iterator[str]:
    """What keeps the numbers from being misread."""
    pairs = comparison.pairs
    yield from _notes_of_pairs(comparison)
    crossed = {key for pair in pairs for key in pair.across}
    for key in comparison.across:
        if key not in crossed:
            yield f"across {key}: it does not differ"
    if any(not pair.published for pair in pairs):
        yield (
            "B / A is the median of all ratios of a repeat of B to a repeat of A (Hodges and "
            "Lehmann), not the ratio of the medians; its interval is that of the Mann-Whitney "
            "test."
        )
    if any(pair.published for pair in pairs):
        yield (
            "The published number has no interval: that of B / A is the interval of the "
            "measured median alone. What the source does not tell, as versions, may differ."
        )
    if apart := [pair.seconds_apart for pair in pairs if pair.seconds_apart is not None]:
        longest = f"{'up to ' if len(apart) > 1 else ''}{_duration(max(apart))}"
        yield (
            f"A and B were begun {longest} apart and not in turn: how the machine drifted from "
            "one to the other is not in the interval."
        )
    if len(pairs) > 1:
        chance = number(len(pairs) * (1 - comparison.level), 2)
        yield (
            f"Of {len(pairs)} pairs that do not differ at all, up to {chance} on average are "
            f"called faster or slower at {percent(comparison.level, 4)}."
        )


def _duration(seconds: int) -> str:
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _left(comparison: Comparison) -> Iterator[str]:
    """Who was not compared."""
    for side, other, names in (("A", "B", comparison.alone_a), ("B", "A", comparison.alone_b)):
        if names:
            yield f"{len(names)} of {side} without partner in {other}, not compared:"
            yield from (wrapped(name, "  ") for name in names[:SHOWN])
            if names[SHOWN:]:
                yield f"  and {len(names) - SHOWN} more"
    for one in comparison.failed:
        lost = f"; A has the number, of {one.partner}: a regression" if one.partner else ""
        why = why_no_number(one.failure)
        yield wrapped(f"{one.side} {one.name} has no number: {why}{lost}")
    for reason in (*comparison.a.left_out, *comparison.b.left_out):
        yield wrapped(f"left out: {reason}")


def _summary(comparison: Comparison) -> str:
    said = Counter(pair.verdict for pair in comparison.pairs)
    words = ", ".join(f"{said[verdict]} {verdict}" for verdict in VERDICTS if said[verdict])
    regressed = sum(pair.regressed for pair in comparison.pairs)
    end = f"; {regressed} slower by more than {percent(comparison.threshold)}"
    return f"{len(comparison.pairs)} pairs at {percent(comparison.level, 4)}: {words}{end}"


def history_text(history: History) -> str:
    """Every series with its newest measurement and its changes of level, in lines of 80 columns
    at most."""
    lines = [line for series in history.series for line in (*_series_lines(series), "")]
    if not history.series:
        lines = ["No configuration has been measured three times yet.", ""]
    if history.left_out:
        lines += [wrapped(f"left out, measured fewer than three times: {history.left_out}")]
    regressed = sum(series.regressed for series in history.series)
    return "\n".join([*lines, f"{len(history.series)} series, {regressed} regressed"])


def _series_lines(series: Series) -> Iterator[str]:
    newest, count = series.newest, len(series.points)
    yield wrapped(plain(series.name))
    point = series.points[-1]
    text = f"{number(point.throughput)} {series.unit}, newest of {count}, {point.created[:10]}"
    yield wrapped(text, "  ")
    against = f"× {number(newest.ratio)} ({interval(*newest.interval)})"
    yield wrapped(f"{against} of the measurement before: {newest.verdict}", "  ")
    for change in series.changes:
        first = series.points[change.start]
        facts = [f"{name} {beside(name, *both)}" for name, both in first.changes.items()]
        ratio = f"× {number(change.ratio)} ({interval(*change.interval)})"
        rest = f"; +{len(facts) - 2} facts" if len(facts) > 2 else ""
        words = f"{'; '.join(facts[:2])}{rest}" or "no change of environment"
        yield wrapped(f"{first.created[:10]} {ratio}: {words}", "  ")
    if series.regressed:
        yield "  REGRESSED"
