"""Reasons why an audit is refused."""

from collections.abc import Iterable
from typing import Self

from perfkit.core.refusals import Refusal, nearest_name


class NoSuchFile(Refusal):
    code = "no_such_file"
    sentence = "no file or folder %(path)s"
    path: str


class NoFileIn(Refusal):
    code = "no_file_in"
    sentence = "no file in %(folders)s"
    folders: list[str]


class NoClaim(Refusal):
    code = "no_claim"
    sentence = "%(value)s is not a number with a known unit; type it as in %(examples)s"
    value: str
    examples: str


class UnitMissing(Refusal):
    code = "unit_missing"
    sentence = "%(value)s needs a log or a unit, as in '12,810 tokens/s'"
    value: str


class UnknownGpu(Refusal):
    code = "unknown_gpu"
    value: str
    precision: str | None = None
    allowed: list[str]

    def english(self) -> str:
        if self.precision:
            return (
                "the peak of %(value)s in %(precision)s is not known; known GPUs: %(allowed)s"
            )
        return "the peak of %(value)s is not known; known GPUs: %(allowed)s"


class UnknownFact(Refusal):
    code = "unknown_fact"
    value: str
    allowed: list[str]
    nearest: str | None = None

    @classmethod
    def of(cls, name: str, allowed: Iterable[str]) -> Self:
        names = [*allowed]
        return cls(parameter="-p", value=name, allowed=names, nearest=nearest_name(name, names))

    def english(self) -> str:
        if self.nearest is None:
            return "no fact of a log is called %(value)s; known: %(allowed)s"
        return (
            "no fact of a log is called %(value)s; did you mean %(nearest)s? known: %(allowed)s"
        )


class NoCount(Refusal):
    code = "no_count"
    sentence = "%(value)s is no positive number of this kind; type it like 256, 8.03e9 or 8B"
    value: str


class NegativeShare(Refusal):
    code = "negative_share"
    sentence = "%(value)s must be a share of at least 0"
    value: str


class SeveralLogs(Refusal):
    code = "several_logs"
    sentence = "compares one log, but %(first)s and %(second)s are logs; give one alone"
    first: str
    second: str


class NoLog(Refusal):
    code = "no_log"
    sentence = "compares one log, but no file is one"


# The format on the command line.


class InvalidRegex(Refusal):
    code = "invalid_regex"
    fault: str
    """in the words of Python's `re`"""
    place: int | None = None
    """characters before the fault"""
    rest: str = ""
    """the regex from there on"""

    def english(self) -> str:
        if self.place is None:
            return "%(fault)s"
        return "%(fault)s, behind %(place)s characters: '%(rest)s'"


class UnknownGroup(Refusal):
    code = "unknown_group"
    names: list[str]
    allowed: list[str]
    nearest: str | None = None

    def english(self) -> str:
        if self.nearest is None:
            return "unknown group %(names)s; known: %(allowed)s"
        return "unknown group %(names)s; did you mean %(nearest)s? known: %(allowed)s"


class StepMissing(Refusal):
    code = "step_missing"
    sentence = "has no group for the step that a line is of; put <step> where its number is"


class SpeedMissing(Refusal):
    code = "speed_missing"
    sentence = "has no group for the speed of a step; put one of these where it is: %(allowed)s"
    allowed: list[str]


class WrongOption(Refusal):
    code = "wrong_option"
    sentence = "%(option)s: %(fault)s; known options: %(allowed)s"
    option: str
    fault: str
    """in pydantic's words"""
    allowed: list[str]


class RateOfMissing(Refusal):
    code = "rate_of_missing"
    sentence = "add rate_of=device or rate_of=all"
