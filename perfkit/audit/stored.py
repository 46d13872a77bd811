"""An audit as it is stored: what each log gives, what was claimed, and what was seen.

    outputs/audits/<label>/audit.json    an Audit, replaced atomically

`docs/results.md` describes the format.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from perfkit.results.files import read_as, write_atomically
from perfkit.results.schema import Stored

SCHEMA_VERSION: Literal[1] = 1
FOLDER = "audits"
"""Where audits lie below the outputs."""
FILE = "audit.json"

Statistic = Literal[
    "told",
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
Period = Literal["all", "warm", "protocol"]
"""All steps; all but the first 20 of a training; steps 21 to 120 of one epoch."""
State = Literal["reproduced", "near", "not reproduced", "no number", "no log"]

Share = Annotated[float, Field(description="a share of 1")]


class Figure(Stored):
    """A throughput that a log gives, in samples per second."""

    statistic: Statistic
    period: Annotated[Period | None, Field(description="null for what the log tells itself")]
    throughput: Annotated[float | None, Field(description="of all devices, if known")]
    per_device: Annotated[float | None, Field(description="of one device, if known")]
    rounding: Annotated[Share, Field(description="how far what the log rounds may move it")]
    first: Annotated[int | None, Field(description="first step in it, from 1, of its epoch")]
    last: int | None
    steps: Annotated[int, Field(description="steps in it, of all epochs")]
    epochs: int
    prints: int
    skipped: Annotated[int, Field(description="prints left out at the beginning")] = 0
    name: Annotated[str, Field(description="what the log calls it")] = ""
    text: Annotated[str, Field(description="as the log prints it")] = ""
    line: int | None = None

    @property
    def way(self) -> tuple[Any, ...]:
        """How it was computed, to tell whether two figures were computed alike."""
        return self.statistic, self.period, self.skipped, self.name


class Finding(Stored):
    """What was seen: its name, where, and its figures by name."""

    name: str
    file: Annotated[str, Field(description="the log's name here; empty for several logs")]
    line: int | None
    figures: dict[str, Any]


class Said(Stored):
    """What a log tells of its configuration, and which line, or its name, says so."""

    value: int | str
    said_by: str


class AuditedLog(Stored):
    """One file and what follows from it."""

    name: Annotated[str, Field(description="its path as it was given")]
    sha256: str
    format: str
    rate_of: Literal["device", "all"]
    covers: Annotated[str, Field(description="which steps a print tells of")]
    source: Annotated[str, Field(description="where that is known from")]
    facts: dict[str, Said]
    rank: Annotated[int, Field(description="whose prints are taken; -1 if none is named")]
    figures: list[Figure]
    input_share: Annotated[
        float | None, Field(description="of the steps' time, waited for input; all steps")
    ]
    findings: list[Finding]

    def fact(self, name: str) -> int | str | None:
        said = self.facts.get(name)
        return said.value if said else None

    @property
    def right(self) -> Figure | None:
        """Samples / time over what the protocol asks for or, where that is not there, over what
        is nearest to it; by the prints' clock where nothing else tells the time."""
        by = {(figure.statistic, figure.period): figure for figure in self.figures}
        ways = product(("samples/time", "clock"), ("protocol", "warm", "all"))
        return next((by[way] for way in ways if way in by), None)


class Explanation(Stored):
    """A figure that is the claimed number to its digits."""

    figure: Figure
    devices: Annotated[
        int | None, Field(description="of so many devices; null: of all, as the log has it")
    ]
    value: float


class Claim(Stored):
    """A claimed number and what the log behind it gives."""

    text: Annotated[str, Field(description="with the digits that were claimed")]
    value: float | None
    place: Annotated[str, Field(description="where it is claimed")]
    table: str | None
    gpu: str | None
    framework: str | None
    precision: str | None
    topology: str | None
    batch_size: int | None
    log: Annotated[str | None, Field(description="the log at its place")]
    state: State
    explanations: Annotated[list[Explanation], Field(description="the simplest first")]
    closest: Figure | None
    difference: Annotated[float | None, Field(description="closest / claimed - 1")]
    right: Annotated[
        Figure | None, Field(description="samples / time over the protocol's steps")
    ]
    right_difference: Annotated[float | None, Field(description="right / claimed - 1")]
    tried: Annotated[int, Field(description="figures that were compared with it")]
    chance: Annotated[
        float,
        Field(description="of figures as simple, expected to agree by chance: results.md"),
    ]
    findings: list[Finding]


class Case(Stored):
    """The runs of one topology in a folder of DLPerf's layout."""

    model: str
    case: Annotated[str, Field(description="nodes and devices: 2n8g")]
    batch_size: int
    speeds: Annotated[dict[int, float], Field(description="run -> samples/s, two digits")]


class Audit(Stored):
    """Logs, claims and findings. Shares are of 1."""

    schema_version: Literal[1]
    created: Annotated[str, Field(description="UTC, ISO 8601")]
    label: str
    command: str
    tables: list[str]
    tolerance: Share
    logs: list[AuditedLog]
    left_out: Annotated[list[str], Field(description="files that can't be read, and why")]
    claims: list[Claim]
    findings: Annotated[list[Finding], Field(description="of several logs or claims together")]
    dlperf: list[Case]

    @property
    def failed(self) -> bool:
        """Whether a claim with a log behind it can't be reproduced."""
        return any(claim.state in ("not reproduced", "no number") for claim in self.claims)

    def __str__(self) -> str:
        from perfkit.audit.words import text

        return text(self)


def audit_folders(outputs: Path) -> Iterator[Path]:
    """The folders of the audits under `outputs`, by name."""
    for path in sorted(outputs.glob(f"{FOLDER}/*/{FILE}")):
        yield path.parent


def read_audit(folder: Path) -> Audit:
    """Raises ResultError."""
    return read_as(Audit, folder / FILE, SCHEMA_VERSION)


def write_audit(folder: Path, audit: Audit) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, audit.model_dump_json(indent=1) + "\n")
