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
