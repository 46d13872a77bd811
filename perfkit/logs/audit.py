"""The stored form of an audit: figures of each log, claims and findings.

outputs/audits/<label>/audit.json    an Audit, replaced atomically (docs/results.md)
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from perfkit.logs.config_facts import Sourced, Value
from perfkit.messages import STORED, Message
from perfkit.results.schema import Stored
from perfkit.results.store import make_folder, read_as, write_atomically

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
    period: Period | None  # null for reported figures
    throughput: float | None  # of all devices, if known
    per_device: float | None  # of one device, if known
    rounding: float  # largest error from the log's rounding, a share
    first: int | None  # first step covered, from 1 in its epoch
    last: int | None = None
    steps: int = 0  # steps covered, in all epochs
    epochs: int = 0
    prints: int = 0
    wait_share: float | None = None  # data wait / time of these steps
    skipped: int = 0  # prints skipped at the beginning
    name: str = ""  # name in the log
    text: str = ""  # text in the log
    line: int | None = None

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

    name: str  # path as given; #2: the second training in the file
    sha256: str
    format: str
    rate_of: Literal["device", "all"]
    covers: Literal["window", "running", "step"]  # steps that a print covers
    since: int  # first step of an epoch that means include
    source: str  # source of these semantics
    facts: dict[str, Sourced]
    rank: int  # rank whose prints are used; -1 if unnamed
    figures: list[Figure]
    reported: dict[str, str]  # other reported figures, name -> text
    input_share: float | None  # data wait / time of all steps
    findings: list[Finding]

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
    devices: int | None  # multiplied by this count; null: all devices of the log
    value: float
    truncated: bool = False  # the claim's digits were truncated instead of rounded


class WaterfallStage(Stored):
    """A stage between a published number and the steady throughput."""

    stage: Stage
    value: float
    difference: float | None  # from the previous stage, a share
    figure: Figure | None


class Claim(Stored):
    """A claimed number and the figures of the log behind it."""

    text: str  # as printed
    value: float | None
    place: str  # where the number is published
    table: str | None = None
    gpu: str | None = None
    framework: str | None = None
    precision: str | None = None
    topology: str | None = None
    batch_size: int | None = None
    log: str | None
    state: State
    explanations: list[Explanation] = Field([])  # simplest first
    closest: Figure | None = None
    difference: float | None = None  # closest / claimed - 1
    reference: Figure | None = None  # samples / time over the protocol's steps
    reference_difference: float | None = None  # reference / claimed - 1
    tried: int = 0  # figures compared with the claim
    chance: float = 0.0  # equally simple figures expected to match by chance: results.md
    waterfall: list[WaterfallStage] = Field([])  # from the claim to the steady steps
    findings: list[Finding] = Field([])


class Case(Stored):
    """Runs of one topology in a folder with DLPerf's layout."""

    model: str
    case: str  # nodes and devices per node: 2n8g
    batch_size: int
    speeds: dict[int, float]  # run -> samples/s, two decimals


class Audit(Stored):
    """Logs, claims and findings. Shares are of 1."""

    schema_version: Literal[2]
    created: str  # UTC, ISO 8601
    label: str
    command: str
    tables: list[str]
    tolerance: float
    logs: list[AuditedLog]
    left_out: list[str]  # unreadable files, with the reason
    claims: list[Claim]
    findings: list[Finding]  # about several logs or claims together
    dlperf: list[Case]

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
