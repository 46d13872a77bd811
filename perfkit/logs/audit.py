"""An audit as it is stored: what each log gives, what was claimed, and what was found.

    outputs/audits/<label>/audit.json    an Audit, replaced atomically

`docs/results.md` describes the format.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from perfkit.logs.config_facts import Sourced
from perfkit.results.schema import Finding, Stored
from perfkit.results.store import make_folder, read_as, write_atomically

SCHEMA_VERSION: Literal[2] = 2
FOLDER = "audits"
"""Where audits lie below the outputs."""
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
"""What suites take for a throughput, the simplest explanation of a number first."""
Period = Literal["all", "warm", "protocol", "steady"]
"""All steps; all but the first 20 of a training; steps 21 to 120 of one epoch; from where the
test for steady state finds the steps at their final level."""
State = Literal["reproduced", "near", "not reproduced", "no number", "no log"]
Stage = Literal["claimed", "explained", "protocol", "steady"]


class Figure(Stored):
    """A throughput that a log gives, in samples per second. Shares are of 1."""

    statistic: Statistic
    period: Period | None  # null for what the log reports
    throughput: float | None  # of all devices, if known
    per_device: float | None  # of one device, if known
    rounding: float  # how far what the log rounds may move it
    first: int | None  # first step in it, from 1, of its epoch
    last: int | None = None
    steps: int = 0  # steps in it, of all epochs
    epochs: int = 0
    prints: int = 0
    wait_share: float | None = None  # data wait, of these steps' time
    skipped: int = 0  # prints left out at the beginning
    name: str = ""  # what the log calls it
    text: str = ""  # as the log prints it
    line: int | None = None

    @property
    def value(self) -> float:
        """Of all devices or, where their number is unknown, of one."""
        return self.throughput or self.per_device or 0.0

    @property
    def method(self) -> tuple[Any, ...]:
        """How it was computed, to tell whether two figures were computed alike."""
        return self.statistic, self.period, self.skipped, self.name


class AuditedLog(Stored):
    """One training of a file and what follows from it."""

    name: str  # its path as given; #2: the second training in it
    sha256: str
    format: str
    rate_of: Literal["device", "all"]
    covers: Literal["window", "running", "step"]  # which steps a print tells of
    since: int  # of means, their first step in an epoch
    source: str  # where that is known from
    facts: dict[str, Sourced]
    rank: int  # whose prints are taken; -1 if none is named
    figures: list[Figure]
    reported: dict[str, str]  # what else the log reports, as it is printed
    input_share: float | None  # data wait, a share of the time of all steps
    findings: list[Finding]

    def fact(self, name: str) -> int | str | None:
        return self.facts[name].value if name in self.facts else None

    def figure(self, statistic: str, period: str) -> Figure | None:
        return next(
            (f for f in self.figures if (f.statistic, f.period) == (statistic, period)), None
        )

    @property
    def reference(self) -> Figure | None:
        """Samples / time over what the protocol asks for or, where that is not there, over what
        is nearest to it; by the prints' clock where nothing else tells the time."""
        methods = product(("samples/time", "clock"), ("protocol", "warm", "all"))
        return next((f for one in methods if (f := self.figure(*one))), None)

    @property
    def steady(self) -> Figure | None:
        """The same over all steady steps."""
        return self.figure("samples/time", "steady") or self.figure("clock", "steady")


class Explanation(Stored):
    """A figure that is the claimed number to its digits."""

    figure: Figure
    devices: int | None  # of so many devices; null: of all, as the log has it
    value: float
    truncated: bool = False  # the claim's digits were cut off instead of rounded


class WaterfallStage(Stored):
    """A step on the way from a published number to the steady throughput."""

    stage: Stage
    value: float
    difference: float | None  # from the stage before, a share
    figure: Figure | None


class Claim(Stored):
    """A claimed number and what the log behind it gives."""

    text: str  # with the digits that were claimed
    value: float | None
    place: str  # where it is claimed
    table: str | None = None
    gpu: str | None = None
    framework: str | None = None
    precision: str | None = None
    topology: str | None = None
    batch_size: int | None = None
    log: str | None  # the log at its place
    state: State
    explanations: list[Explanation] = Field([])  # the simplest first
    closest: Figure | None = None
    difference: float | None = None  # closest / claimed - 1
    reference: Figure | None = None  # samples / time over the protocol's steps
    reference_difference: float | None = None  # reference / claimed - 1
    tried: int = 0  # figures that were compared with it
    chance: float = 0.0  # of figures as simple, expected to agree by chance: results.md
    waterfall: list[WaterfallStage] = Field([])  # from the claim to the steady steps
    findings: list[Finding] = Field([])


class Case(Stored):
    """The runs of one topology in a folder of DLPerf's layout."""

    model: str
    case: str  # nodes and devices: 2n8g
    batch_size: int
    speeds: dict[int, float]  # run -> samples/s, two digits


class Audit(Stored):
    """Logs, claims and findings. Shares are of 1."""

    schema_version: Literal[2]
    created: str  # UTC, ISO 8601
    label: str
    command: str
    tables: list[str]
    tolerance: float
    logs: list[AuditedLog]
    left_out: list[str]  # files that can't be read, and why
    claims: list[Claim]
    findings: list[Finding]  # of several logs or claims together
    dlperf: list[Case]

    @property
    def failed(self) -> bool:
        """Whether a claim with a log behind it can't be reproduced."""
        return any(claim.state in ("not reproduced", "no number") for claim in self.claims)


def audit_folders(outputs: Path) -> Iterator[Path]:
    """The folders of the audits under `outputs`, by name."""
    for path in sorted(outputs.glob(f"{FOLDER}/*/{FILE}")):
        yield path.parent


def read_audit(folder: Path) -> Audit:
    """Raises ResultError."""
    return read_as(Audit, folder / FILE, SCHEMA_VERSION)


def write_audit(folder: Path, audit: Audit) -> None:
    """Raises OSError."""
    make_folder(folder)
    text = audit.model_dump_json(indent=1, exclude_defaults=True)
    write_atomically(folder / FILE, f"{text}\n")
