"""Verdicts on a ratio of throughputs B / A: the only place that decides them from an interval.

faster         the interval lies above 1
slower         the interval lies below 1; a regression, if the ratio is also below 1 - threshold
no difference  the interval contains 1 and lies within 1 ± threshold
undecided      the interval contains 1 and values beyond 1 ± threshold, or it does not reach the
               level, because there are too few repeats: "can't tell"

`threshold` is the difference that matters, as a share.
"""

from gettext import NullTranslations
from itertools import count
from math import comb
from typing import Annotated, ClassVar, Literal

from perfkit.measuring.format import percent
from perfkit.measuring.statements import N_, Format, Share, Statement
from perfkit.measuring.statistics import Estimate

Verdict = Literal["faster", "slower", "no difference", "undecided"]
LEVEL, THRESHOLD = 0.95, 0.02
"""The level of intervals, and the smallest difference that matters, unless requested."""
WORDS: dict[Verdict, str] = {
    "faster": N_("faster"),
    "slower": N_("slower"),
    "no difference": N_("no difference over %(threshold)s"),
    "undecided": N_("can't tell"),
}
"""Verdict -> its words in a table."""


def verdict(ratio: Estimate, level: float, threshold: float) -> Verdict:
    """Return what the interval of a ratio shows about B."""
    if ratio.level < level:
        return "undecided"
    if ratio.low > 1:
        return "faster"
    if ratio.high < 1:
        return "slower"
    is_within = 1 - threshold <= ratio.low and ratio.high <= 1 + threshold
    return "no difference" if is_within else "undecided"


def has_regressed(ratio: Estimate, level: float, threshold: float) -> bool:
    """Return whether B is slower at `level`, by more than the threshold."""
    is_slower = verdict(ratio, level, threshold) == "slower"
    return is_slower and ratio.value < 1 - threshold


def fewest_of_each(level: float) -> int:
    """Return how many repeats of both measurements are enough for a verdict at `level` if the
    repeats were not interleaved."""
    return next(n for n in count(1) if 1 - 2 / comb(2 * n, n) >= level)


# Verdicts in sentences.


def _speed(ratio: float, language: NullTranslations) -> str:
    sentence = N_("%(share)s slower") if ratio < 1 else N_("%(share)s faster")
    return language.gettext(sentence) % {"share": percent(abs(ratio - 1))}


Speed = Annotated[float, Format(_speed)]
"""A ratio of throughputs, written as "3 % slower"."""
Distance = Annotated[float, Format(lambda ratio, _language: percent(abs(ratio - 1)))]
"""A ratio of throughputs, written as "3 %" where the sentence says whether that is slower."""
PreciseShare = Annotated[float, Format(lambda share, _language: percent(share, 4))]
"""A fraction, such as a confidence level, written in percent with up to four digits."""


class PairStatement(Statement):
    """A verdict on a pair, or a caution beside it."""

    classes: ClassVar = {}


class Decided(PairStatement):
    """A verdict whose interval, from `low` to `high`, excludes 1."""

    a: str
    b: str
    change: Speed
    low: Distance
    high: Distance
    level: PreciseShare


class Faster(Decided):
    """The interval lies above 1."""

    code = "faster"
    sentence = N_("%(b)s is %(change)s than %(a)s (%(low)s to %(high)s at %(level)s).")


class Slower(Decided):
    """The interval lies below 1; the ratio is within the threshold."""

    code = "slower"
    sentence = N_(
        "%(b)s is %(change)s than %(a)s (%(high)s to %(low)s at %(level)s); no regression: "
        "within %(threshold)s."
    )
    threshold: Share


class Regressed(Decided):
    """The interval lies below 1, and the ratio exceeds the threshold."""

    code = "regressed"
    sentence = N_(
        "%(b)s is %(change)s than %(a)s (%(high)s to %(low)s at %(level)s); a regression: "
        "more than %(threshold)s."
    )
    threshold: Share


class Around1(PairStatement):
    """A verdict whose interval, from `low` to `high`, contains 1."""

    a: str
    b: str
    low: Speed
    high: Speed
    level: PreciseShare
    threshold: Share


class NoDifference(Around1):
    """The interval contains 1 and lies within the threshold: only then is equality stated."""

    code = "no_difference"
    sentence = N_(
        "No difference over %(threshold)s: %(b)s is from %(low)s to %(high)s than %(a)s, at "
        "%(level)s."
    )


class CannotTell(Around1):
    """The interval contains 1, and values beyond the threshold."""

    code = "cannot_tell"

    def english(self) -> str:
        if self.low < 1 - self.threshold:
            return N_(
                "Can't tell: %(b)s is from %(low)s to %(high)s than %(a)s, at %(level)s. A "
                "regression of more than %(threshold)s is not excluded."
            )
        return N_(
            "Can't tell: %(b)s is from %(low)s to %(high)s than %(a)s, at %(level)s. A "
            "regression of more than %(threshold)s is excluded."
        )


class TooFewPairs(PairStatement):
    """The range of all interleaved pairs does not reach the level."""

    code = "too_few_pairs"
    sentence = N_(
        "Can't tell at %(level)s: n=%(n)s pairs reach at most %(reached)s; %(enough)s pairs "
        "are enough."
    )
    level: PreciseShare
    n: int
    reached: PreciseShare
    enough: int

    def english(self) -> str:
        if self.n == 1:
            return N_("Can't tell at %(level)s by a single pair; %(enough)s pairs are enough.")
        return self.sentence


class TooFewRepeats(PairStatement):
    """The range of all repeats beside a published number does not reach the level."""

    code = "too_few_repeats"
    sentence = N_(
        "Can't tell at %(level)s: n=%(n)s repeats reach at most %(reached)s; n=%(enough)s is "
        "enough."
    )
    level: PreciseShare
    n: int
    reached: PreciseShare
    enough: int

    def english(self) -> str:
        if self.n == 1:
            return N_("Can't tell at %(level)s by a single repeat; n=%(enough)s is enough.")
        return self.sentence


class TooFewOfEach(PairStatement):
    """The range of all ratios of two repeats does not reach the level."""

    code = "too_few_of_each"
    sentence = N_(
        "Can't tell at %(level)s: n=%(n_a)s and n=%(n_b)s repeats reach at most %(reached)s; "
        "%(enough)s repeats of each are enough."
    )
    level: PreciseShare
    n_a: int
    n_b: int
    reached: PreciseShare
    enough: int

    def english(self) -> str:
        if self.n_a == self.n_b == 1:
            return N_(
                "Can't tell at %(level)s by a single repeat of each; %(enough)s repeats of "
                "each are enough."
            )
        return self.sentence


class FewRepeats(PairStatement):
    """A measurement has too few repeats to be told from another one."""

    code = "few_repeats"
    sentence = N_(
        "Can't tell: %(n)s repeats show neither their spread nor a difference at %(level)s; "
        "%(enough)s repeats are enough."
    )
    n: int
    level: PreciseShare
    enough: int


def few_repeats(n: int) -> FewRepeats | None:
    """Return how many repeats a measurement of `n` needs to be told from another one; None if
    it has them."""
    enough = fewest_of_each(LEVEL)
    return FewRepeats(n=n, level=LEVEL, enough=enough) if n < enough else None


class SeeWarnings(PairStatement):
    """A side has warnings; `sides` has the names of such sides and the codes."""

    code = "see_warnings"
    sentence = N_("Caution: see the warnings of %(sides)s.")
    sides: list[str]
