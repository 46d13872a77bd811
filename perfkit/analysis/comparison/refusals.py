"""Reasons why a comparison is refused."""

from collections.abc import Iterable
from gettext import NullTranslations
from typing import Annotated, Any, Literal, Self

from perfkit.core.refusals import Refusal, nearest_name
from perfkit.core.statements import ENGLISH, Format, Statement, Verbatim


class ComparisonRefusal(Refusal):
    """A reason why a comparison is refused. Its parameter is empty if the reason is neither
    about an option nor about one side alone."""

    parameter: str = ""
    """name of the option or parameter, or the side A or B"""

    def text(self, language: NullTranslations = ENGLISH) -> str:
        sentence = Statement.text(self, language)
        return f"{self.parameter}: {sentence}" if self.parameter else sentence


# Options.


class NotAKey(ComparisonRefusal):
    code = "not_a_key"
    allowed: list[str]
    nearest: str | None = None

    @classmethod
    def of(cls, key: str, keys: Iterable[str]) -> Self:
        """Refuse a key of `--across` that is not one of the `keys` that must agree."""
        allowed = list(keys)
        nearest = nearest_name(key, allowed)
        return cls(parameter=f"--across {key}", allowed=allowed, nearest=nearest)

    def english(self) -> str:
        if self.nearest is None:
            return (
                "not a key that must agree (software and labels may differ anyway); the keys "
                "are %(allowed)s"
            )
        return (
            "not a key that must agree; did you mean '%(nearest)s'? (software and labels may "
            "differ anyway); the keys are %(allowed)s"
        )


class LevelOutOfRange(ComparisonRefusal):
    code = "level_out_of_range"
    sentence = "%(value)s is not between 0.5 and 1; 0.95 is usual"
    parameter: str = "level"
    value: str


class ThresholdOutOfRange(ComparisonRefusal):
    code = "threshold_out_of_range"
    sentence = "%(value)s is not between 0 and 1; 0.02 is 2 %%"
    parameter: str = "threshold"
    value: str


class NothingSince(ComparisonRefusal):
    code = "nothing_since"
    sentence = (
        "%(value)s: no measurement of a series has this label, or was made on this day or "
        "later; a day is written as 2026-11-23, a time as 2026-11-23T21:06 (UTC)"
    )
    parameter: str = "--since"
    value: str


# What A and B select.


class NoPath(ComparisonRefusal):
    code = "no_path"
    sentence = "no file or folder %(path)s"
    path: str


class NoSuchTable(ComparisonRefusal):
    code = "no_such_table"
    allowed: list[str]
    nearest: str | None = None

    def english(self) -> str:
        if self.nearest is None:
            return "no such published table; there are %(allowed)s"
        return "no such published table; there are %(allowed)s; did you mean '%(nearest)s'?"


class NoSuchLabel(ComparisonRefusal):
    code = "no_such_label"
    label: str
    """the label in quotes"""
    folder: str
    allowed: list[str]
    nearest: str | None = None

    def english(self) -> str:
        if not self.allowed:
            return "no label %(label)s under %(folder)s, which has none"
        if self.nearest is None:
            return "no label %(label)s under %(folder)s, which has %(allowed)s"
        return (
            "no label %(label)s under %(folder)s, which has %(allowed)s; did you mean "
            "'%(nearest)s'?"
        )


class LabelsUnreadable(ComparisonRefusal):
    code = "labels_unreadable"
    sentence = "no label %(label)s: %(reason)s"
    label: str
    """the label in quotes"""
    reason: str


class NothingReadable(ComparisonRefusal):
    code = "nothing_readable"
    sentence = "no readable measurement in %(folder)s"
    folder: str


class NothingLabelled(ComparisonRefusal):
    code = "nothing_labelled"
    sentence = "no measurement to compare of %(label)s"
    label: str
    """the label in quotes"""


class ContradictsRawFiles(ComparisonRefusal):
    code = "contradicts_raw_files"
    sentence = "%(file)s: contradicts its raw files: %(difference)s"
    file: str
    difference: str


class FileLeftOut(ComparisonRefusal):
    """A file can't be read, or its values contradict its raw files."""

    code = "file_left_out"
    sentence = "%(reason)s"
    reason: str


# Which measurements are compared.


class BothPublished(ComparisonRefusal):
    code = "both_published"
    sentence = "A and B are both published; one of them must be measured"


class SameMeasurement(ComparisonRefusal):
    code = "same_measurement"
    sentence = "A and B name the same measurement, %(name)s"
    name: str


class UnitsDiffer(ComparisonRefusal):
    code = "units_differ"
    sentence = "%(a)s is in %(a_unit)s, %(b)s in %(b_unit)s"
    a: str
    a_unit: str
    b: str
    b_unit: str


class SeveralPartners(ComparisonRefusal):
    code = "several_partners"
    name: str
    side: Literal["A", "B"]
    """the side of the partners"""
    count: Verbatim
    partners: list[str]
    """names of the first of them"""

    def english(self) -> str:
        if self.count > len(self.partners):
            return (
                "%(name)s matches %(count)s measurements in %(side)s: %(partners)s …; pick one "
                "by its folder, or select a label"
            )
        return (
            "%(name)s matches %(count)s measurements in %(side)s: %(partners)s; pick one by "
            "its folder, or select a label"
        )


class NoNumber(ComparisonRefusal):
    code = "no_number"
    sentence = "%(side)s %(name)s has no number: %(reason)s"
    side: Literal["A", "B"]
    name: str
    reason: str


def _indented(texts: list[str], _language: NullTranslations) -> str:
    return "\n".join(f"  {text}" for text in texts)


class PairDiffers(ComparisonRefusal):
    """The closest pair of A and B differs in keys that must agree."""

    code = "pair_differs"
    a: str
    b: str
    keys: list[str]
    """the keys that differ"""
    values: Annotated[list[str], Format(_indented)]
    """each key with its two values, as text"""
    is_only_pair: bool
    in_same_place: bool
    """false for a published number and a measurement of other work, which `--across` can't
    allow"""

    def english(self) -> str:
        lines = ["A %(a)s", "B %(b)s", "differ in", "%(values)s"]
        if not self.is_only_pair:
            lines.insert(0, "nothing in A agrees with anything in B; the closest pair:")
        if self.in_same_place:
            lines += ["to compare them anyway, and record the differences:", "  %(options)s"]
        else:
            lines.append("a published number is compared with measurements in its place only")
        return "\n".join(lines)

    def parts(self) -> dict[str, Any]:
        return {"options": " ".join(f"--across {key}" for key in self.keys)}

    def lines(self) -> list[str]:
        return self.text().split("\n")


# Interleaved comparisons.


class InVariant(ComparisonRefusal):
    """A reason that concerns a single variant, the parameter."""

    code = "in_variant"
    sentence = "%(refusal)s"
    refusal: Refusal


class NotAnAssignment(ComparisonRefusal):
    code = "not_an_assignment"
    sentence = "%(word)s is not NAME=VALUE"
    word: str
    """the text in quotes"""


class SharedOnly(ComparisonRefusal):
    code = "shared_only"
    sentence = "must be the same for all variants; use -p %(parameter)s %(value)s"
    value: str


class SetForAll(ComparisonRefusal):
    code = "set_for_all"
    sentence = "set for all variants by -p; set it in only one place"


class SetTwice(ComparisonRefusal):
    code = "set_twice"
    sentence = "is set twice"


class TooFewVariants(ComparisonRefusal):
    code = "too_few_variants"
    parameter: str = "variants"
    count: Verbatim
    of_script: bool

    def english(self) -> str:
        if self.of_script:
            return (
                "%(count)s given, but at least two are needed, the base first: arguments='' "
                "arguments='--x'"
            )
        return (
            "%(count)s given, but at least two are needed, the base first: framework=paddle "
            "framework=torch"
        )


class NotForLive(ComparisonRefusal):
    code = "not_for_live"
    sentence = "not for --live, where all variants make equally many repeats"


class RepeatsNotAuto(ComparisonRefusal):
    code = "repeats_not_auto"
    sentence = "'auto' is not for --live: all variants make equally many; set a number"
    parameter: str = "repeats"


class TooFewForVerdict(ComparisonRefusal):
    code = "too_few_for_verdict"
    sentence = (
        "%(repeats)s are too few for a verdict at the %(level)s %% level, which takes at least "
        "%(fewest)s: -p repeats %(fewest)s"
    )
    parameter: str = "repeats"
    repeats: Verbatim
    level: str
    """the level in percent"""
    fewest: Verbatim


class SameVariants(ComparisonRefusal):
    code = "same_variants"
    sentence = "%(a)s and %(b)s are the same"
    a: str
    b: str


class ProtocolsDiffer(ComparisonRefusal):
    code = "protocols_differ"
    sentence = "must be the same for all variants; -p protocol %(a)s or %(b)s"
    parameter: str = "protocol"
    a: str
    b: str
