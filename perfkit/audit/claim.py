"""The stored form of a claim, and of the numbers of a log that it is compared with."""

from typing import Literal

from pydantic import Field

from perfkit.audit.figure import Figure, StepTime
from perfkit.measuring.results.base import Stored

Of = Literal["device", "all", ""]
"""Whether a number is that of one device or of all; empty if it is of neither or unknown."""
ClaimedQuantity = Literal[
    "tokens/s", "samples/s", "TFLOP/s", "MFU", "s/step", "steps/s", "minutes"
]
"""What can be claimed, and its unit. MFU is in percent; minutes are those of a training."""
ClaimState = Literal["reproduced", "near", "close", "not reproduced", "no number", "no log"]
GIVEN = "--claim"
"""Place of a number that the command line claims."""
FAILED: tuple[ClaimState, ...] = ("close", "not reproduced", "no number")
"""States of a claim that its log does not confirm."""
NumberStatistic = Literal["", "first", "median", "last", "mean", "harmonic mean"]


class LogNumber(Stored):
    """A number of a log in the claimed quantity. It is computed from a throughput (`figure`),
    the `time` of a step, or a quantity that the log prints or reports (`name`)."""

    value: float
    """the number"""
    unit: str
    """its unit; empty if nothing tells it"""
    of: Of
    """whether it is of one device or of all"""
    rounding: float = 0.0
    """effect of the last printed digit, as a share"""
    figure: Figure | None = None
    """the throughput that it is computed from"""
    conversion: str = ""
    """how the throughput becomes the number, in names of facts; empty if it is the number"""
    time: StepTime | None = None
    """the time of a step that it is"""
    name: str = ""
    """name of a printed quantity or of a reported figure in the log"""
    statistic: NumberStatistic = ""
    """of the time of a step, or of the prints: of all, and the means of those of steps 21 to
    120; empty for others"""

    @property
    def skipped(self) -> int:
        """Prints left out at the beginning."""
        return self.figure.skipped if self.figure else 0


class ClaimedNumber(Stored):
    """A number as it was published, and what it is of as far as the source says."""

    text: str
    """the number as published"""
    value: float
    """its value, in the unit of its quantity"""
    half: float
    """half a unit of its last digit"""
    quantity: ClaimedQuantity | None
    """what the number is; None without a unit: the log's throughput"""
    of: Of
    """whether it says that it is of one device or of all"""
    place: str = GIVEN
    """where the number is published, in words"""
    table: str | None = None
    """published table"""
    gpu: str | None = None
    """GPU of the published number"""
    framework: str | None = None
    """framework of the published number"""
    precision: str | None = None
    """precision of the published number"""
    topology: str | None = None
    """nodes x devices of the published number"""
    batch_size: int | None = None
    """batch size per device of the published number"""


class Claim(ClaimedNumber):
    """A claimed number and the numbers of the log that it is compared with."""

    log: str | None
    """name of the matching log, if any"""
    state: ClaimState
    """reproduced: a statistic of the log has its digits; near: one is within the tolerance;
    close: only its truncated digits, or a mean without many first prints, agree; no number: the
    log has none in this quantity"""
    matches: list[LogNumber] = Field(default=[])
    """every number of the log with the claim's digits, the simplest first; of a claim that is
    not reproduced, those of all devices instead of one or the reverse"""
    closest: LogNumber | None = None
    """the closest number of the log, unless one reproduces the claim"""
    difference: float | None = None
    """that of the match or of the closest number / claimed - 1"""
    reference: float | None = None
    """the log's answer in the claim's quantity"""
    reference_difference: float | None = None
    """reference / claimed - 1"""
    needs: list[str] = Field(default=[])
    """options of the command line without which the log has no number in this quantity"""

    @property
    def compared(self) -> LogNumber | None:
        """The number of the log that the claim is, or is closest to."""
        return self.closest or next(iter(self.matches), None)
