"""The stored form of an audit: figures of each log, claims and findings.

outputs/audits/<label>/audit.json    an Audit, replaced atomically (docs/results.md)
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from perfkit.audit.config_facts import Sourced, Value
from perfkit.core.messages import STORED, Message
from perfkit.core.results.base import Stored
from perfkit.core.results.store import make_folder, read_as, write_atomically

SCHEMA_VERSION: Literal[2] = 2
FOLDER = "audits"
FILE = "audit.json"

Statistic = Literal[
    "reported",
    "samples/time",
    "clock",
    "mean of rates",
    "harmonic mean",
    "median",
    "last print",
    "first print",
    "maximum",
    "mean after skipping",
]
"""Statistics that suites report as throughput, the simplest explanation of a number first."""
TIMED: tuple[Statistic, ...] = ("samples/time", "clock")
Period = Literal["all", "warm", "protocol", "steady"]
"""all: all steps; warm: without the first 20 of a training; protocol: steps 21 to 120 of one
epoch; steady: from the step at which the steady-state test finds the final level."""
State = Literal["reproduced", "near", "not reproduced", "no number", "no log"]
Stage = Literal["claimed", "explained", "protocol", "steady"]


class Figure(Stored):
    """A throughput in samples per second, computed or reported by the log. Shares are of 1."""

    statistic: Statistic
    """samples/time, the throughput: from the printed times or, if only rates are printed, their
    harmonic mean weighted by steps; clock: the same by the timestamps of the lines; reported:
    the log's own figure; others: of the printed rates"""
    period: Period | None
    """all steps; warm: without the first 20 of each training, unless these are the protocol's
    steps; protocol: steps 21 to 120 of the first epoch that has all of them or, if none has, of
    the epoch that has the most; steady: the windows from the point where the steady-state test
    finds the final level; None for a reported figure"""
    throughput: float | None
    """throughput of all devices; None if their number is unknown"""
    per_device: float | None
    """throughput of one device; None if the number of devices is unknown"""
    rounding: float
    """effect of the last printed digit, as a share; for a mean of rates that spread over many
    of their last digits, three standard deviations"""
    first: int | None
    """first step covered, counted from 1 in its epoch"""
    last: int | None = None
    """last step covered"""
    steps: int = 0
    """number of steps covered, in all epochs"""
    epochs: int = 0
    """number of epochs covered"""
    prints: int = 0
    """number of prints used; a print that also covers steps outside the period is excluded"""
    wait_share: float | None = None
    """share of these steps' time that was data wait; for samples/time"""
    skipped: int = 0
    """prints left out at the beginning; for `mean after skipping`"""
    name: str = ""
    """name of a reported figure in the log"""
    text: str = ""
    """digits of a reported figure in the log"""
    line: int | None = None
    """line of a reported figure"""

    @property
    def value(self) -> float:
        """Throughput of all devices, or of one if their number is unknown."""
        return self.throughput or self.per_device or 0.0

    @property
    def method(self) -> tuple[Any, ...]:
        """Key of the computation; equal for figures computed the same way."""
        return self.statistic, self.period, self.skipped, self.name


@dataclass(frozen=True, config=STORED)
class Finding(Message):
    """A finding of an audit, and its place in the logs."""

    file: str = ""
    """name of the log; empty for several logs"""
    line: int | None = None
    """line number; None if it is not a single line"""


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
    covers: Literal["window", "running", "step"]
    """steps that a print covers: those since the last print, a running mean, or the last
    step"""
    since: int
    """first step of an epoch that running means include"""
    source: str
    """source of this meaning of the prints"""
    facts: dict[str, Sourced]
    """facts of the configuration, by name"""
    rank: int
    """rank whose prints are used, the slowest of the ranks that cover the most steps; -1 if the
    log names no rank"""
    figures: list[Figure]
    """throughputs computed from the prints, or reported by the log"""
    reported: dict[str, str]
    """other figures that the log reports, such as times: name -> text"""
    input_share: float | None
    """share of the time of all steps that was data wait"""
    findings: list[Finding]
    """findings about this log"""

    def fact(self, name: str) -> Value:
        return self.facts[name].value if name in self.facts else None

    def figure(self, *periods: Period, of: Sequence[Statistic] = TIMED) -> Figure | None:
        """Return the first known figure of these statistics and periods; by default samples /
        time or, if no print has a time, by the prints' clock."""
        known = {(figure.statistic, figure.period): figure for figure in self.figures}
        return next((known[key] for key in product(of, periods) if key in known), None)

    @property
    def has_rates(self) -> bool:
        """Whether the log's prints have rates."""
        return any(f.statistic not in (*TIMED, "reported") for f in self.figures)

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


class Claim(Stored):
    """A claimed number and the figures of the log behind it."""

    text: str
    """the number as published"""
    value: float | None
    """its value; None if the text is no number"""
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
    log: str | None
    """name of the matching log, if any"""
    state: State
    """reproduced: a figure equals the claim, to its digits and the log's; near: a figure is
    within the tolerance; no number: the log has none"""
    explanations: list[Explanation] = Field([])
    """every figure that equals the claim, the simplest first"""
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
    findings: list[Finding] = Field([])
    """findings about this number"""


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
    """Logs, claims and findings. Shares are of 1."""

    schema_version: Literal[2]
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
    findings: list[Finding]
    """findings about several logs or claims together"""
    dlperf: list[Case]
    """runs in DLPerf's layout"""

    @property
    def failed(self) -> bool:
        """Whether a claim with a log is not reproduced."""
        return any(claim.state in ("not reproduced", "no number") for claim in self.claims)


def audit_folders(outputs: Path) -> Iterator[Path]:
    """Yield the audit folders under `outputs`, sorted by name."""
    for path in sorted(outputs.glob(f"{FOLDER}/*/{FILE}")):
        yield path.parent


def read_audit(folder: Path) -> Audit:
    """Read the audit in `folder`. Raises ResultError."""
    return read_as(Audit, folder / FILE, SCHEMA_VERSION)


def write_audit(folder: Path, audit: Audit) -> None:
    """Write the audit atomically into `folder`. Raises OSError."""
    make_folder(folder)
    text = audit.model_dump_json(indent=1, exclude_defaults=True)
    write_atomically(folder / FILE, f"{text}\n")
