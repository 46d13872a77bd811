"""Comparisons as text for a terminal, in lines of at most 80 columns."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from perfkit.analysis.comparison.keys import (
    KEYS,
    KeyValue,
    format_pair,
    rarely_telling,
    telling,
)
from perfkit.analysis.comparison.stored import (
    ComparedNumber,
    Comparison,
    InterleavedComparison,
    PairResult,
    SameWork,
    Unmeasured,
    Variant,
)
from perfkit.analysis.ratios import Method, Ratio
from perfkit.analysis.verdicts import WORDS, Verdict
from perfkit.analysis.warnings import worst_first
from perfkit.analysis.wording import arguments_text, long_title, own_options
from perfkit.measuring.format import amount, interval, number, percent, plain, rate_text
from perfkit.report.text.names import (
    TOO_FEW,
    peak_share,
    variant_name,
    verdict_name,
)
from perfkit.report.text.terminal import coloured, tabulated, wrapped
from perfkit.report.words import counted_warnings, machine_words
from perfkit.training.frameworks import FRAMEWORKS

MOST_NAMES = 10
"""Most measurements without a partner that are listed; the JSON has all."""
PAIR_NAMES: dict[str, Callable[[KeyValue], str]] = {
    "model": lambda model: long_title(str(model)),
    "framework": lambda framework: FRAMEWORKS[str(framework)].display_name,
    "precision": str,
    "device": lambda device: str(device).upper(),
    "topology": str,
    "batch_size": lambda size: f"batch {size}",
    "input": str,
}
"""Keys that name a pair, the most important first, and their text."""
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
PEAK_NOTE = (
    "The peak is the speed of the framework's own matrix product, the higher one of before and "
    "after the training."
)


# Comparisons of stored measurements.


def comparison_text(comparison: Comparison) -> str:
    """Return what `perfkit compare` prints, the verdict first."""
    lines = [*_verdicts(comparison), ""]
    for side, selection in (("A", comparison.a), ("B", comparison.b)):
        count = f", {selection.count}" if selection.count > 1 else ""
        lines.append(wrapped(f"{side}  {selection.name} ({selection.taken_as}{count})"))
    lines += ["", *_number_lines(comparison)]
    lines += map(wrapped, _notes(comparison))
    lines += _alone("A", "B", comparison.alone_a)
    lines += _alone("B", "A", comparison.alone_b)
    for failed in comparison.failed:
        if not failed.regressed:
            lines.append(wrapped(_without_number(failed)))
    for reason in comparison.a.left_out + comparison.b.left_out:
        lines.append(wrapped(f"left out: {reason}"))
    return "\n".join(lines)


def _verdicts(comparison: Comparison) -> Iterator[str]:
    """Yield the verdict on a single pair, or the counts of several, and new failures."""
    pairs = comparison.pairs
    if len(pairs) == 1:
        statement = pairs[0].statement(comparison.level, comparison.threshold)
        yield coloured(wrapped(statement.text()), pairs[0].verdict)
    elif pairs:
        yield wrapped(_counts(comparison))
    for failed in comparison.failed:
        if failed.regressed:
            yield wrapped(_without_number(failed))


def _number_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the numbers and the ratio of a single pair, or a table of several pairs."""
    pairs = comparison.pairs
    if len(pairs) == 1:
        (pair,) = pairs
        yield _pair_name(pair.keys, PAIR_NAMES)
        yield from _side("A  ", pair.a.name, pair.a)
        yield from _side("B  ", pair.b.name, pair.b)
        yield from _ratio("B / A", pair, comparison.level, "A", "B")
    elif pairs:
        units = sorted({pair.a.unit for pair in pairs})
        yield from _table(pairs, comparison)
        yield ""
        medians = f"A and B are medians in {' or '.join(units)}"
        levels = {pair.interval_level for pair in pairs}
        reached = sorted(level for level in levels if level >= comparison.level)
        if reached:
            achieved = ", ".join(percent(level, 4) for level in reached)
            medians += f"; intervals achieve {achieved}"
        yield wrapped(f"{medians}.")
    if pairs:
        yield ""


def _side(prefix: str, name: str, side: ComparedNumber) -> Iterator[str]:
    """Yield a number, and below it its name and its warnings."""
    source = f"n={side.n}" if side.n else "published, without an interval"
    indent = "  " + " " * len(prefix)
    yield f"  {prefix}{rate_text(side.value, side.unit, *(side.interval or ()))}, {source}"
    yield wrapped(name, indent)
    codes = worst_first(side.warnings)
    if codes:
        yield wrapped(counted_warnings(codes), indent)


def _ratio(heading: str, pair: PairResult, level: float, a: str, b: str) -> Iterator[str]:
    """Yield the ratio of a pair with its interval, and what else is known about it."""
    count = f", n={amount(len(pair.turns), 'pair')}" if pair.turns else ""
    yield wrapped(f"{heading}  {_with_interval(pair, level, count)}", "  ")
    for rate in pair.rates:
        yield wrapped(f"{heading} of the {rate.name}  {_with_interval(rate, level)}", "  ")
    machine = machine_words(pair.rates)
    if machine:
        yield wrapped(machine, "  ")
    caution = pair.caution(a, b)
    if caution:
        yield wrapped(caution.text(), "  ")


def _with_interval(ratio: Ratio, level: float, count: str = "") -> str:
    """Return a ratio with its interval, or that there are too few repeats for the level."""
    sure = TOO_FEW
    if ratio.has_level(level):
        sure = f"{interval(*ratio.interval)} ({percent(ratio.interval_level, 4)}{count})"
    return f"{number(ratio.ratio)}  {sure}"


def _pair_name(values: Mapping[str, KeyValue], keys: Iterable[str]) -> str:
    """Return these keys of a pair as a short name."""
    names = []
    for key in keys:
        if values.get(key) is None:
            continue
        if key in PAIR_NAMES:
            names.append(PAIR_NAMES[key](values[key]))
        else:
            names.append(f"{key} {values[key]}")
    return plain(", ".join(names))


def _table(pairs: list[PairResult], comparison: Comparison) -> Iterator[str]:
    """Yield the lines of a table of pairs, which are named by the keys in which they differ, or
    by their measurements if that doesn't tell them apart."""
    keys = []
    for key in dict.fromkeys([*PAIR_NAMES, *KEYS]):
        values = {pair.keys.get(key) for pair in pairs}
        if len(values) > 1:
            keys.append(key)
    every = [str(pair.keys.get("arguments") or "") for pair in pairs]
    names = [_pair_name(_with_own_arguments(pair.keys, every), keys) for pair in pairs]
    if len({*names}) < len(pairs):
        names = [f"{pair.a.name} | {pair.b.name}" for pair in pairs]
    rows = []
    verdicts: dict[str, Verdict] = {}
    for name, pair in zip(names, pairs, strict=True):
        numbers = [number(pair.a.value), number(pair.b.value), number(pair.ratio)]
        words = verdict_name(pair.verdict, comparison.threshold)
        if pair.regressed:
            words = f"{words}, a regression"
        verdicts[words] = pair.verdict
        is_tested = pair.has_level(comparison.level)
        ends = interval(*pair.interval) if is_tested else "–"
        rows.append([name, *numbers, ends, words])
    headings = ["", "A", "B", "B / A", "interval", "verdict"]
    for line in tabulated(rows, headings, left=["interval", "verdict"]):
        yield _with_colour(line, verdicts)


def _with_colour(line: str, verdicts: Mapping[str, Verdict]) -> str:
    """Return a line of a table with the words of a verdict at its end in their colour."""
    for words, verdict in verdicts.items():
        if line.endswith(f" {words}"):
            return line.removesuffix(words) + coloured(words, verdict)
    return line


def _with_own_arguments(
    keys: Mapping[str, KeyValue], every: list[str]
) -> Mapping[str, KeyValue]:
    """Return the keys of a pair of scripts with the arguments that not `every` pair has."""
    if "arguments" not in keys:
        return keys
    own = own_options(str(keys["arguments"] or ""), every)
    return {**keys, "arguments": arguments_text(" ".join(own)) or "–"}


def _notes(comparison: Comparison) -> Iterator[str]:
    """Yield the notes on single pairs, each once with the number of its pairs, then those on
    all pairs."""
    pairs = comparison.pairs
    counts: Counter[str] = Counter()
    for pair in pairs:
        counts.update(_pair_notes(pair))
        counts.update(_partial(pair))
        if len(pairs) > 1:
            counts.update(_verdict_notes(pair, comparison))
    for note, count in counts.items():
        yield note if len(pairs) == 1 else f"{note} ({_of_all(count, len(pairs))} pairs)"
    differing = {key for pair in pairs for key in pair.across}
    for key in comparison.across:
        if key not in differing:
            yield f"across {key}: it does not differ"
    methods = {pair.method for pair in pairs}
    for method, note in METHODS.items():
        if method in methods:
            yield note
    if len(pairs) > 1:
        chance = number(len(pairs) * (1 - comparison.level), 2)
        yield (
            f"Of {len(pairs)} pairs that do not differ at all, up to {chance} on average are "
            f"called faster or slower at {percent(comparison.level, 4)}."
        )


def _of_all(count: int, total: int) -> str:
    return f"all {total}" if count == total else f"{count} of {total}"


def _pair_notes(pair: PairResult) -> Iterator[str]:
    """Yield the differences of a pair, and whether the same work was verified."""
    for key, values in telling(pair.across).items():
        yield f"across {key}: {format_pair(key, *values)}"
    for key, values in telling(pair.differs).items():
        yield f"differs: {key} {format_pair(key, *values)}"
    others = [*rarely_telling(pair.across), *rarely_telling(pair.differs)]
    if others:
        yield f"differs, but rarely explains a ratio (values: --json): {', '.join(others)}"
    if pair.same_work:
        yield _same_work(pair.same_work)


def _same_work(work: SameWork) -> str:
    note = f"same work: {work.state}"
    if work.created:
        note += f" in float32 and float64 ({work.created})"
    if work.command and work.state != "verified":
        note += f"; {work.command}"
    return note


def _partial(pair: PairResult) -> Iterator[str]:
    for name, side in (("A", pair.a), ("B", pair.b)):
        if side.status == "partial":
            yield f"{name} is partial: {side.n} of {amount(side.repeats or 0, 'repeat')}"


def _verdict_notes(pair: PairResult, comparison: Comparison) -> Iterator[str]:
    """Yield what a table doesn't show of a verdict: how many repeats it lacks, and warnings."""
    if not pair.has_level(comparison.level):
        statement = pair.statement(comparison.level, comparison.threshold)
        yield statement.text().rstrip(".")
    machine = machine_words(pair.rates)
    if machine:
        yield machine.rstrip(".")
    caution = pair.caution()
    if caution:
        yield caution.text().rstrip(".")


def _alone(side: str, other: str, names: list[str]) -> Iterator[str]:
    """Yield the measurements of a side that have no partner."""
    if not names:
        return
    yield f"{len(names)} of {side} without partner in {other}, not compared:"
    for name in names[:MOST_NAMES]:
        yield wrapped(name, "  ")
    if len(names) > MOST_NAMES:
        yield f"  and {len(names) - MOST_NAMES} more"


def _without_number(failed: Unmeasured) -> str:
    """Return why a measurement has no number, and whether that is a regression."""
    text = f"{failed.side} {failed.name} has no number: {failed.reason}"
    if failed.partner:
        other = "B" if failed.side == "A" else "A"
        text += f"; {other} has the number, from {failed.partner}"
    if failed.regressed:
        text += ": a regression"
    return text


def _counts(comparison: Comparison) -> str:
    """Return how many pairs have each verdict."""
    pairs = comparison.pairs
    counts = Counter(pair.verdict for pair in pairs)
    parts = []
    for verdict in WORDS:
        if verdict in counts:
            words = verdict_name(verdict, comparison.threshold)
            parts.append(f"{counts[verdict]} {words}")
    regressed = sum(pair.regressed for pair in pairs)
    return (
        f"{len(pairs)} pairs at {percent(comparison.level, 4)}: {', '.join(parts)}; "
        f"{regressed} slower by more than {percent(comparison.threshold)}"
    )


# Interleaved comparisons.


def interleaved_text(comparison: InterleavedComparison) -> str:
    """Return what `perfkit compare --live` prints, the verdicts first."""
    lines = [*_interleaved_verdicts(comparison), ""]
    repeats = amount(comparison.repeats, "repeat")
    lines += [f"{comparison.title}, {repeats} of each, interleaved", ""]
    for variant in comparison.variants:
        lines += _variant(variant, comparison)
    for pair in comparison.pairs:
        lines += ["", *_interleaved_pair(pair, comparison)]
    lines.append("")
    if comparison.pairs:
        lines.append(wrapped(METHODS["pairs"]))
        if comparison.has_peaks:
            lines.append(wrapped(PEAK_NOTE))
    if not comparison.complete:
        lines.append("Not complete; the same command continues it and retries what failed:")
        lines.append(wrapped(comparison.command))
    return "\n".join(lines).rstrip("\n")


def _interleaved_verdicts(comparison: InterleavedComparison) -> Iterator[str]:
    """Yield the verdict on each variant that has a ratio."""
    base = variant_name(comparison.base, comparison)
    for pair in comparison.pairs:
        variant = variant_name(comparison.variant_of(pair), comparison)
        statement = pair.statement(comparison.level, comparison.threshold, base, variant)
        yield coloured(wrapped(statement.text()), pair.verdict)
    if not comparison.pairs:
        yield "No ratio yet: no pair of repeats can be compared."


def _variant(variant: Variant, comparison: InterleavedComparison) -> Iterator[str]:
    """Yield the name of a variant, its number, its shares of the peak, and what went wrong."""
    yield wrapped(variant_name(variant, comparison))
    if variant.number:
        yield from _side("", variant.id, variant.number)
    else:
        yield wrapped(variant.id, "  ")
    if variant.of_own_peak is not None:
        own = peak_share([variant.of_own_peak])
        highest = peak_share([variant.of_highest_peak])
        yield f"  {own} of its own matrix-multiply peak, {highest} of the highest"
    if variant.failure:
        yield wrapped(f"failed: {variant.failure.line()}{_kept(variant)}", "  ")
    for key, values in variant.differs.items():
        difference = f"{key} {format_pair(key, *values)}"
        yield wrapped(f"not compared, since it differs: {difference}", "  ")


def _kept(variant: Variant) -> str:
    """Return how many repeats of a failed variant are kept; empty without any."""
    if not (variant.number and variant.number.n):
        return ""
    count = variant.number.n
    return f"; {amount(count, 'repeat')} {'is' if count == 1 else 'are'} kept"


def _interleaved_pair(pair: PairResult, comparison: InterleavedComparison) -> Iterator[str]:
    base = variant_name(comparison.base, comparison)
    variant = variant_name(comparison.variant_of(pair), comparison)
    yield from _ratio(f"{variant} / {base}", pair, comparison.level, base, variant)
    ratios = ", ".join(map(number, pair.ratios))
    yield wrapped(f"pair by pair: {ratios}", "  ")
    for note in _pair_notes(pair):
        yield wrapped(note, "  ")
    if pair.out_of_turn:
        repeats = ", ".join(map(str, pair.out_of_turn))
        yield wrapped(
            f"not interleaved, judging by the start times: pair {repeats}; the ratio includes "
            "drift of the machine between the two repeats",
            "  ",
        )
