"""The stored form of an audit: figures and findings of each log, and claims.

outputs/audits/<label>/audit.json    an Audit, replaced atomically (docs/results.md)
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from perfkit.audit.answer import Answer
from perfkit.audit.claim import FAILED, Claim
from perfkit.audit.figure import BY_MEDIAN_STEP, TIMED, Figure, StepTime
from perfkit.audit.printed import PrintedQuantity
from perfkit.audit.statements import FactValue, Finding, SourcedFact
from perfkit.measuring.results.base import Stored
from perfkit.measuring.results.store import read_as, write_atomically

SCHEMA_VERSION: Literal[4] = 4
FOLDER = "audits"
FILE = "audit.json"


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
    """path as given; `#2` for the second training of a file with several"""
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

    @property
    def has_rates(self) -> bool:
        """Whether the log's prints have rates, of which other statistics can be computed."""
        others = (*TIMED, *BY_MEDIAN_STEP, "reported")
        return any(figure.statistic not in others for figure in self.figures)


class Audit(Stored):
    """Logs and claims. Shares are of 1."""

    schema_version: Literal[4]
    """readers refuse any other"""
    created: str
    """UTC, ISO 8601"""
    label: str
    """name of the audit"""
    command: str
    """command that repeats the audit"""
    tables: list[str]
    """published tables"""
    logs: list[AuditedLog]
    """each training of each file"""
    left_out: list[str]
    """unreadable files, with the reason"""
    claims: list[Claim]
    """each claimed number with each matching log"""

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
