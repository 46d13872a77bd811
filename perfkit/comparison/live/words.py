"""A live comparison as text for a terminal."""

from collections.abc import Iterable

from perfkit.comparison.keys import beside
from perfkit.comparison.live.stored import JudgedInTurn, LiveComparison, LiveSide
from perfkit.comparison.words import change, told_of
from perfkit.models import MODELS
from perfkit.statistics import fewest_values
from perfkit.text.format import interval_words, number, percent
from perfkit.text.messages import coded
from perfkit.text.terminal import wrapped

INDENT = "  "


def text(comparison: LiveComparison) -> str:
    """All that a reader needs of it, in lines of 80 columns at most."""
    plural = "s" * (comparison.repeats != 1)
    made = f"{comparison.repeats} repeat{plural} of each, in turn"
    lines = [f"{MODELS[comparison.model].name}, {made}", ""]
    for side in comparison.sides:
        lines += _side(side)
    for pair in comparison.pairs:
        lines += ["", *_pair(pair, comparison)]
    lines += ["", *map(wrapped, _notes(comparison))]
    return "\n".join(lines)


def _side(side: LiveSide) -> Iterable[str]:
    yield wrapped(side.name)
    if one := side.number:
        low, high = one.interval or (None, None)
        sure = interval_words(low, high, one.interval_level, one.n or 0)
        yield f"  {number(one.value)} {one.unit}  {sure}"
    if side.of_own_peak is not None:
        yield (
            f"  {percent(side.of_own_peak)} of its own matrix-multiply peak, "
            f"{percent(side.of_highest_peak)} of the highest"
        )
    yield wrapped(side.id, INDENT)
    if one and one.warnings:
        yield wrapped(f"warnings: {', '.join(one.warnings)}", INDENT)
    if side.failure:
        kept = f"; {one.n} repeats are kept" if one else ""
        yield wrapped(f"failed: {coded(side.failure)}{kept}", INDENT)
    for key, values in side.differs.items():
        yield wrapped(f"not compared, for it differs: {key} {beside(key, *values)}", INDENT)


def _pair(pair: JudgedInTurn, comparison: LiveComparison) -> Iterable[str]:
    name, base = comparison.side_of(pair).name, comparison.base.name
    low, high = pair.interval
    sure = interval_words(low, high, pair.interval_level, len(pair.turns))
    yield wrapped(f"{name} / {base}")
    yield f"  {number(pair.ratio)}  {sure if len(pair.turns) > 1 else 'no interval (n=1)'}"
    yield wrapped(f"pair by pair: {', '.join(map(number, pair.ratios))}", INDENT)
    yield wrapped(_sentence(pair, comparison), INDENT)
    for note in told_of(pair):
        yield wrapped(note, INDENT)
    if pair.out_of_turn:
        which = ", ".join(map(str, pair.out_of_turn))
        yield wrapped(
            f"not in turn: the repeats of pair {which}, by when they began; how the machine "
            "drifted between them is in the ratio",
            INDENT,
        )


def _sentence(pair: JudgedInTurn, comparison: LiveComparison) -> str:
    """The verdict in words."""
    name, base = comparison.side_of(pair).name, comparison.base.name
    at, low, high = percent(comparison.level, 4), *map(change, pair.interval)
    match pair.verdict:
        case "undecided":
            reached = percent(pair.interval_level, 4)
            return (
                f"Undecided at {at}: n={len(pair.turns)} pairs reach {reached} at most, "
                f"{fewest_values(comparison.level)} would do."
            )
        case "no difference":
            return f"No difference shown at {at}: {name} is from {low} to {high} than {base}."
    end = f", by more than {percent(comparison.threshold)}" if pair.regressed else ""
    return f"{name} is {change(pair.ratio)} than {base}, at {at}{end}."


def _notes(comparison: LiveComparison) -> Iterable[str]:
    if comparison.pairs:
        yield (
            "A ratio is the median of those of repeat k to repeat k, made one after the other; "
            "its interval is between two of them, for any distribution of the ratios. "
            "A peak is what the framework's own matrix product reached after each window."
        )
    if not comparison.complete:
        yield "Not complete; the same command goes on, and tries what failed again:"
        yield comparison.command
