"""Verdicts on a ratio in words, for every page and terminal."""

from collections.abc import Mapping

from perfkit.analysis.comparison.stored import ComparedNumber, PairResult
from perfkit.analysis.ratios import Ratio
from perfkit.analysis.verdicts import LEVEL, Verdict
from perfkit.analysis.warnings import severity, worst_first
from perfkit.measuring.format import number, percent
from perfkit.measuring.statements import N_
from perfkit.report.text.language import enumerated
from perfkit.report.text.language import gettext as _

WORDS: dict[Verdict, str] = {
    "faster": N_("faster"),
    "slower": N_("slower"),
    "no difference": N_("no difference over %(threshold)s"),
    "undecided": N_("can't tell"),
}
NAMED_WARNINGS = 2
"""Most warnings of a side that are named beside a verdict."""


def verdict_name(verdict: Verdict, threshold: float) -> str:
    """Return a verdict in a few words: "no difference over 2 %"."""
    return _(WORDS[verdict]) % {"threshold": percent(threshold)}


def ratio_words(ratio: Ratio, level: float = LEVEL) -> str:
    """Return a ratio with its interval, unless there are too few repeats for one."""
    value, low, high = digits_of(ratio.ratio, *ratio.interval)
    return f"{value} ({low} – {high})" if ratio.has_level(level) else value


def digits_of(ratio: float, low: float, high: float) -> list[str]:
    """Return a ratio and the ends of its interval with three digits or, if these do not tell
    the ends apart, with up to five."""
    values = (ratio, low, high)
    for digits in (3, 4, 5):
        texts = [number(value, digits) for value in values]
        if texts[1] != texts[2]:
            return texts
    return [number(value, 3) for value in values]


def verdict_line(
    pair: PairResult, level: float, threshold: float, a: str = "A", b: str = "B"
) -> str:
    """Return the verdict on the pair of sides `a` and `b` in a line: "PyTorch 1.92 × Paddle
    (1.79 to 2.21), faster"."""
    words = _("%(b)s %(ratio)s × %(a)s, %(verdict)s")
    if pair.has_level(level):
        words = _("%(b)s %(ratio)s × %(a)s (%(low)s to %(high)s), %(verdict)s")
    ratio, low, high = digits_of(pair.ratio, *pair.interval)
    facts = {"a": a, "b": b, "ratio": ratio, "low": low, "high": high}
    return words % (facts | {"verdict": verdict_words(pair, level, threshold)})


def verdict_words(pair: PairResult, level: float, threshold: float) -> str:
    """Return the verdict on a pair, with the number of repeats that would be enough for one."""
    name = verdict_name(pair.verdict, threshold)
    if pair.regressed:
        return _("%(verdict)s: a regression") % {"verdict": name}
    if pair.has_level(level):
        return name
    n = len(pair.turns) or min(side.n for side in (pair.a, pair.b) if side.n)
    words = _("%(verdict)s: n=%(n)d, %(enough)d are enough")
    return words % {"verdict": name, "n": n, "enough": pair.enough(level)}


def caution_words(sides: Mapping[str, ComparedNumber]) -> str:
    """Return the most severe warnings of each side by its name; empty without warnings that
    cast doubt on a number."""
    doubtful = []
    for name, side in sides.items():
        codes = [code for code in worst_first(side.warnings) if severity([code]) != "notice"]
        if codes:
            doubtful.append(f"{name} ({enumerated(codes[:NAMED_WARNINGS])})")
    if not doubtful:
        return ""
    return _("Caution: see the warnings of %(sides)s.") % {"sides": enumerated(doubtful)}
