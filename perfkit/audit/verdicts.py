"""What a comparison of logs states: a ratio of throughputs with its interval, and a verdict on
two logs."""

from typing import Annotated, ClassVar

from pydantic import Field

from perfkit.audit.statements import Difference
from perfkit.core.results.base import Positive, Stored
from perfkit.core.statements import N_, Digits3, Format, Share, Statement

Name = Annotated[str, Format(lambda name, _language: name)]

Factor = Annotated[float, Format(lambda factor, _language: f"{factor:.4g}")]
"""A ratio of counts, without trailing zeros."""


class FactDifference(Stored):
    """A fact in which two logs differ."""

    name: str
    """name of the fact"""
    value: str
    """the fact in the log; empty if unknown"""
    base: str
    """the fact in the log that it is compared with; empty if unknown"""


class LogRatio(Stored):
    """The throughput of a log over that of the first log."""

    log: str
    """name of the log"""
    base: str
    """name of the first log"""
    unit: str
    """unit of both throughputs"""
    of_all: bool
    """whether both are of all devices, or both of one"""
    ratio: Positive
    """throughput / throughput of the first log"""
    low: Positive | None
    """lower end of the interval; None if one of the logs has too few blocks of steps"""
    high: Positive | None
    """upper end of the interval"""
    level: float
    """confidence level of the interval, for the steps of these two runs"""
    blocks: int
    """blocks of consecutive steps of this log that were resampled"""
    base_blocks: int
    """blocks of the first log"""
    differing: list[FactDifference] = Field(default=[])
    """facts in which both logs differ"""


class LogScaling(Stored):
    """The throughput of one device among several over that of one among the fewest."""

    log: str
    """name of the log"""
    base: str
    """log of the same work on the fewest devices"""
    devices: int
    """devices of the log"""
    base_devices: int
    """devices of that other log"""
    share: Positive
    """share of ideal scaling: the ratio of the throughputs per device"""


# Two logs.


class Verdict(Statement):
    """What two logs tell about their throughputs."""

    classes: ClassVar = {}


class Judged(Verdict):
    """A verdict that rests on an interval."""

    log: Name
    base: Name
    low: Difference
    high: Difference
    level: Share
    blocks: int
    base_blocks: int


class Faster(Judged):
    """The interval of the ratio lies above 1, and not within 1 % of it."""

    code = "faster"
    sentence = N_(
        "%(log)s is %(share)s faster than %(base)s (%(level)s interval: %(low)s to %(high)s)."
    )
    share: Share


class Slower(Judged):
    """The interval of the ratio lies below 1, and not within 1 % of it."""

    code = "slower"
    sentence = N_(
        "%(log)s is %(share)s slower than %(base)s (%(level)s interval: %(low)s to %(high)s)."
    )
    share: Share


class NoDifference(Judged):
    """The interval of the ratio lies within 1 % of 1, or includes 1 and lies within 2 %."""

    code = "no_difference"
    sentence = N_(
        "%(log)s and %(base)s do not differ by more than %(share)s (%(level)s interval: "
        "%(low)s to %(high)s)."
    )
    share: Share


class CannotTell(Judged):
    """The interval of the ratio includes 1 and is wide."""

    code = "cannot_tell"
    sentence = N_(
        "Whether %(log)s is faster or slower than %(base)s can't be told: the %(level)s "
        "interval is %(low)s to %(high)s."
    )


class Scales(Verdict):
    """The two logs have different numbers of devices."""

    code = "scales"
    sentence = N_(
        "%(log)s has %(ratio)s times the throughput of %(base)s on %(factor)s times the "
        "devices, %(share)s of ideal scaling (%(level)s interval of the ratio: %(low)s to "
        "%(high)s)."
    )
    log: Name
    base: Name
    ratio: Digits3
    low: Digits3
    high: Digits3
    level: Share
    factor: Factor
    share: Share
    blocks: int
    base_blocks: int


class TooFewLines(Verdict):
    """One of the logs has too few printed lines for an interval."""

    code = "too_few_lines"
    sentence = N_(
        "Whether %(log)s differs from %(base)s can't be told: the throughputs differ by "
        "%(difference)s, but %(few)s has only %(lines)s of the %(needed)s printed lines that "
        "an interval needs."
    )
    log: Name
    base: Name
    difference: Difference
    few: Name
    lines: int
    needed: int


class OtherUnits(Verdict):
    """The throughputs count different things."""

    code = "other_units"
    sentence = N_(
        "%(log)s and %(base)s are not compared: one counts %(unit)s, the other %(base_unit)s."
    )
    log: Name
    base: Name
    unit: str
    base_unit: str

    def english(self) -> str:
        if not self.unit or not self.base_unit:
            return N_(
                "%(log)s and %(base)s are not compared: one does not tell what it counts."
            )
        return self.sentence


class OtherLogWork(Verdict):
    """The logs are of different work."""

    code = "other_log_work"
    sentence = N_(
        "%(log)s and %(base)s are not compared: they did different work (%(name)s %(value)s "
        "and %(base_value)s)."
    )
    log: Name
    base: Name
    name: str
    value: str
    base_value: str


class OtherFormats(Verdict):
    """The logs have different formats, and no fact tells that they did the same work."""

    code = "other_formats"
    sentence = N_(
        "%(log)s and %(base)s are not compared: their formats differ (%(format)s and "
        "%(base_format)s), and nothing tells that they did the same work; if they did, add -p "
        "parameters COUNT."
    )
    log: Name
    base: Name
    format: str
    base_format: str


class UnknownThroughput(Verdict):
    """A log has no throughput."""

    code = "unknown_throughput"
    sentence = N_(
        "%(log)s and %(base)s are not compared: the throughput of %(unknown)s is unknown."
    )
    log: Name
    base: Name
    unknown: Name


class OtherExtent(Verdict):
    """One throughput is of all devices, the other of one."""

    code = "other_extent"
    sentence = N_(
        "%(log)s and %(base)s are not compared: one throughput is of all devices, the other of "
        "one."
    )
    log: Name
    base: Name
