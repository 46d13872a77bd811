"""The stored form of an audit: figures and findings of each log, and claims.

outputs/audits/<label>/audit.json    an Audit, replaced atomically (docs/results.md)
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from perfkit.audit.answer import Answer
from perfkit.audit.figure import (
    TIMED,
    Figure,
    Period,
    Statistic,
    StepTime,
    first_figure,
    unit_for,
)
from perfkit.audit.printed import PrintedQuantity
from perfkit.audit.quantity import ClaimedKind, LogQuantity, Of
from perfkit.audit.statements import FactValue, Finding, SourcedFact
from perfkit.core.results.base import Stored
from perfkit.core.results.store import read_as, write_atomically

SCHEMA_VERSION: Literal[3] = 3
FOLDER = "audits"
FILE = "audit.json"

ClaimState = Literal[
    "reproduced",
    "near",
    "one line",
    "printed otherwise",
    "not reproduced",
    "no number",
    "no log",
]
GIVEN = "--claim"
"""Place of a number that the command line claims."""
FAILED: tuple[ClaimState, ...] = ("printed otherwise", "not reproduced", "no number")
"""States of a claim that its log does not confirm."""
Stage = Literal["claimed", "explained", "protocol", "steady"]


class LocatedFinding(Stored):
    """A finding, and its line in the log."""

    finding: Finding
    line: int | None = None
    """line number; None if it is not a single line"""

    @property
    def code(self) -> str:
        return self.finding.code


class AuditedLog(Stored):
    """One training of a file and the figures and findings derived from it."""

    name: str
    """path as given; `#2` for the second training in a file whose trainings have different
    configurations"""
    sha256: str
    """digest of the file"""
    format: str
    """log format"""
    rate_of: Literal["device", "all"]
    """whether a printed rate is that of one device or of all"""
    covers: Literal["window", "running", "rolling", "step"]
    """steps that a print covers: those since the last print, a running mean, a mean over the
    log's own window, or the last step"""
    since: int
    """first step of an epoch that running means include"""
    step: Literal["update", "batch", "epoch"] = "update"
    """what the log counts as a step: an optimizer update, a batch, or an epoch"""
    of_several: bool = False
    """whether the reported figures are those of several models, none of which is the answer"""
    source: str
    """source of this meaning of the prints"""
    facts: dict[str, SourcedFact]
    """facts of the configuration, by name"""
    rank: int
    """rank whose prints are used, the slowest of the ranks that cover the most steps; -1 if the
    log names no rank"""
    figures: list[Figure]
    """throughputs computed from the prints, or reported by the log"""
    reported: dict[str, str]
    """other figures that the log reports, such as times: name -> text"""
    printed: list[PrintedQuantity] = Field(default=[])
    """quantities that each line prints besides its time, as printed"""
    input_share: float | None
    """share of the time of all steps that was data wait"""
    findings: list[LocatedFinding]
    """findings about this log"""
    step_times: list[StepTime] = Field([])
    """seconds of an optimizer update, by period"""

    answer: Answer | None = None
    """throughput and seconds of a step, the answer to how fast the log's training was"""

    def fact(self, name: str) -> FactValue | None:
        """Return a fact by its name; None if it is unknown."""
        if name not in self.facts:
            return None
        return self.facts[name].value

    def figure(self, *periods: Period, of: Sequence[Statistic] = TIMED) -> Figure | None:
        """Return the first existing figure of these statistics and, for each statistic, of
        these periods. By default, it is samples / time or, if no print has a time, the same by
        the prints' clock."""
        return first_figure(self.figures, of, periods)

    @property
    def has_rates(self) -> bool:
        """Whether the log's prints have rates, of which other statistics can be computed."""
        others = (*TIMED, "reported")
        return any(figure.statistic not in others for figure in self.figures)

    @property
    def reference(self) -> Figure | None:
        """Samples / time over the protocol's steps or, if missing, over the nearest period."""
        return self.figure("protocol", "warm", "all")


class Explanation(Stored):
    """A figure equal to the claimed number to its printed digits."""

    figure: Figure
    """the figure"""
    devices: int | None
    """number of devices by which the figure of one device is multiplied; None: all devices of
    the log"""
    value: float
    """the product, which equals the claim"""
    truncated: bool = False
    """whether the claim's digits were truncated instead of rounded; considered only if no
    rounded figure matches"""


class WaterfallStage(Stored):
    """A stage between a published number and the steady throughput."""

    stage: Stage
    """the number at this stage"""
    value: float
    """throughput"""
    difference: float | None
    """difference from the previous stage, as a share"""
    figure: Figure | None
    """figure with this throughput"""


class ClaimedNumber(Stored):
    """A number as it was published, and what it is of as far as the source says."""

    text: str
    """the number as published"""
    value: float
    """its value"""
    place: str
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
    quantity: ClaimedKind | None = None
    """what the number is, if its unit says so or the log reports it as that; its value is in
    this unit, MFU in percent"""
    of: Of = ""
    """whether the unit says that the number is of one device or of all"""


class Claim(ClaimedNumber):
    """A claimed number and the figures of the log behind it."""

    log: str | None
    """name of the matching log, if any"""
    unit: str = ""
    """unit of the log's throughputs, if the claim has none"""
    state: ClaimState
    """reproduced: a figure equals the claim, to its digits and the log's; near: a figure is
    within the tolerance; one line: no figure, but a printed line has the number; printed
    otherwise: no step has it, but another line prints it; no number: the log has none"""
    explanations: list[Explanation] = Field([])
    """every figure that equals the claim, the simplest first"""
    quantities: list[LogQuantity] = Field([])
    """the same for a claim with a unit"""
    closest_quantity: LogQuantity | None = None
    """the number of the log that is closest to a claim with a unit"""
    closest: Figure | None = None
    """closest figure"""
    difference: float | None = None
    """closest / claimed - 1"""
    reference: Figure | None = None
    """samples / time over the protocol's steps or, without them, over the nearest period"""
    reference_difference: float | None = None
    """reference / claimed - 1"""
    tried: int = 0
    """number of figures compared with the claim"""
    chance: float = 0.0
    """number of equally simple figures expected to match by chance"""
    waterfall: list[WaterfallStage] = Field([])
    """stages from the claim to the steady steps"""
    findings: list[LocatedFinding] = Field([])
    """findings about this number"""

    @property
    def is_of_one_device(self) -> bool:
        """Whether the number is the figure of one device."""
        return is_of_one_device(self, self.explanations)

    def unit_of(self, *, of_all: bool) -> str:
        """Return the unit of a throughput of all devices or of one; empty if it is unknown."""
        return unit_for(self.unit, of_all=of_all)


def is_of_one_device(number: ClaimedNumber, explanations: Sequence[Explanation]) -> bool:
    """Return whether a number of the command line is the figure of one device; those of a table
    are of all devices."""
    return bool(not number.table and explanations and explanations[0].devices == 1)


class Case(Stored):
    """Runs of one topology in a folder with DLPerf's layout."""

    model: str
    """model of the folder"""
    case: str
    """nodes and devices per node: 2n8g"""
    batch_size: int
    """samples per device"""
    speeds: dict[int, float]
    """run -> samples/s, with two decimals"""


class Audit(Stored):
    """Logs and claims. Shares are of 1."""

    schema_version: Literal[3]
    """readers refuse any other"""
    created: str
    """UTC, ISO 8601"""
    label: str
    """name of the audit"""
    command: str
    """command that repeats the audit"""
    tables: list[str]
    """published tables"""
    tolerance: float
    """allowed difference of a figure from a claim, as a share"""
    logs: list[AuditedLog]
    """each training of each file"""
    left_out: list[str]
    """unreadable files, with the reason"""
    claims: list[Claim]
    """each claimed number with each matching log"""
    dlperf: list[Case]
    """runs in DLPerf's layout"""

    @property
    def failed(self) -> bool:
        """Whether a claim with a log is not reproduced."""
        return any(claim.state in FAILED for claim in self.claims)


def audit_folders(outputs: Path) -> Iterator[Path]:
    """Yield the audit folders under `outputs`, sorted by name."""
    for path in sorted(outputs.glob(f"{FOLDER}/*/{FILE}")):
        yield path.parent


def read_audit(folder: Path) -> Audit:
    """Read the audit in `folder`. Raises ResultError."""
    return read_as(Audit, folder / FILE)


def write_audit(folder: Path, audit: Audit) -> None:
    """Write the audit atomically into `folder`. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    # On one line: indented, the figures of many logs would take half as much space again.
    text = audit.model_dump_json(exclude_defaults=True)
    write_atomically(folder / FILE, f"{text}\n")
