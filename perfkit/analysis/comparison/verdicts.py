"""Verdicts on a pair of measurements as statements: what its interval shows about B."""

from gettext import NullTranslations
from itertools import count
from math import comb
from typing import Annotated, ClassVar

from perfkit.analysis.ratios import Verdict
from perfkit.core.format import percent
from perfkit.core.statements import N_, Format, Share, Statement

VERDICTS: dict[Verdict, str] = {
    "faster": N_("faster"),
    "slower": N_("slower"),
    "no difference": N_("no difference shown"),
    "undecided": N_("undecided"),
}
"""Verdict -> its words in a table: an interval that contains 1 does not show that there is no
difference."""


def _speed(ratio: float, language: NullTranslations) -> str:
    sentence = N_("%(share)s slower") if ratio < 1 else N_("%(share)s faster")
    return language.gettext(sentence) % {"share": percent(abs(ratio - 1))}


Speed = Annotated[float, Format(_speed)]
"""A ratio of throughputs, written as "3 % slower"."""
PreciseShare = Annotated[float, Format(lambda share, _language: percent(share, 4))]
"""A fraction, such as a confidence level, written in percent with up to four digits."""


class PairStatement(Statement):
    """A verdict on a pair, or a caution beside it."""

    classes: ClassVar = {}


class Faster(PairStatement):
    """The interval lies above 1."""

    code = "faster"
    sentence = N_("%(b)s is %(change)s than %(a)s, at %(level)s.")
    a: str
    b: str
    change: Speed
    level: PreciseShare


class Slower(PairStatement):
    """The interval lies below 1; the ratio is within the threshold."""

    code = "slower"
    sentence = N_(
        "%(b)s is %(change)s than %(a)s, at %(level)s; no regression: within %(threshold)s."
    )
    a: str
    b: str
    change: Speed
    level: PreciseShare
    threshold: Share


class Regressed(PairStatement):
    """The interval lies below 1, and the ratio exceeds the threshold."""

    code = "regressed"
    sentence = N_(
        "%(b)s is %(change)s than %(a)s, at %(level)s; a regression: more than %(threshold)s."
    )
    a: str
    b: str
    change: Speed
    level: PreciseShare
    threshold: Share


class Equal(PairStatement):
    """The whole interval is within the threshold: only then is equality stated."""

    code = "equal"
    sentence = N_(
        "No difference of more than %(threshold)s at %(level)s: %(b)s is from %(low)s to "
        "%(high)s than %(a)s."
    )
    a: str
    b: str
    low: Speed
    high: Speed
    level: PreciseShare
    threshold: Share


class NoDifferenceShown(PairStatement):
    """The interval contains 1, and values above the threshold."""

    code = "no_difference"
    sentence = N_(
        "No difference shown at %(level)s: %(b)s is from %(low)s to %(high)s than %(a)s."
    )
    a: str
    b: str
    low: Speed
    high: Speed
    level: PreciseShare


class RegressionNotExcluded(PairStatement):
    """The interval contains 1, and slowdowns beyond the threshold."""

    code = "not_excluded"
    sentence = N_(
        "No difference shown at %(level)s: %(b)s is from %(low)s to %(high)s than %(a)s. "
        "A regression of more than %(threshold)s is not excluded."
    )
    a: str
    b: str
    low: Speed
    high: Speed
    level: PreciseShare
    threshold: Share


class TooFewPairs(PairStatement):
    """The range of all interleaved pairs does not reach the level."""

    code = "too_few_pairs"
    sentence = N_(
        "Undecided at %(level)s: n=%(n)s pairs reach at most %(reached)s; %(enough)s pairs are "
        "enough."
    )
    level: PreciseShare
    n: int
    reached: PreciseShare
    enough: int


class TooFewRepeats(PairStatement):
    """The range of all repeats beside a published number does not reach the level."""

    code = "too_few_repeats"
    sentence = N_(
        "Undecided at %(level)s: n=%(n)s repeats reach at most %(reached)s; n=%(enough)s is "
        "enough."
    )
    level: PreciseShare
    n: int
    reached: PreciseShare
    enough: int


class TooFewOfEach(PairStatement):
    """The range of all ratios of two repeats does not reach the level."""

    code = "too_few_of_each"
    sentence = N_(
        "Undecided at %(level)s: n=%(n_a)s and n=%(n_b)s repeats reach at most %(reached)s; "
        "%(enough)s repeats of each are enough."
    )
    level: PreciseShare
    n_a: int
    n_b: int
    reached: PreciseShare
    enough: int


class SeeWarnings(PairStatement):
    """A side has warnings; `sides` has the names of such sides and the codes."""

    code = "see_warnings"
    sentence = N_("Caution: see the warnings of %(sides)s.")
    sides: list[str]


def fewest_of_each(level: float) -> int:
    """Return how many repeats of both measurements are enough for a verdict at `level` if the
    repeats were not interleaved."""
    return next(n for n in count(1) if 1 - 2 / comb(2 * n, n) >= level)
