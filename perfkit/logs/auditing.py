"""From files to an audit."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path

from perfkit.config import portable
from perfkit.logs.audit import SCHEMA_VERSION, Audit, AuditedLog, Claim, Fact
from perfkit.logs.claims import Audited, ClaimInput, check_claim, claims_of_tables
from perfkit.logs.dlperf import cases
from perfkit.logs.findings import findings_of, first_losses, together
from perfkit.logs.formats import LogFormat
from perfkit.logs.log import Log, LogError
from perfkit.logs.reader import read_logs
from perfkit.logs.recompute import Figures, figures_of
from perfkit.reference.cells import SHAPES, cells_of
from perfkit.reference.table import published
from perfkit.request.errors import suggest
from perfkit.text.terminal import plain, wrapped

NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
"""A number as it is printed: commas between thousands alone."""


class AuditError(ValueError):
    """Nothing was audited; the message says why, a line or more for each of `problems`."""

    def __init__(self, problems: Sequence[str]) -> None:
        lines = [wrapped(problem, "  ") for problem in problems]
        super().__init__("\n".join(["Not audited.", *lines]))


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files that these name, each once; a folder names all regular files in it and below,
    by name. Raises AuditError."""
    problems = [f"no file or folder {path}" for path in paths if not path.exists()]
    if problems:
        raise AuditError(problems)
    found: dict[Path, Path] = {}
    for path in paths:
        some = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for one in some:
            found.setdefault(one.resolve(), one)
    if not found:
        raise AuditError([f"no file in {', '.join(map(str, paths))}"])
    return [*found.values()]


def audit(
    files: Sequence[Path],
    *,
    tables: Sequence[str] = (),
    claim: str | None = None,
    tolerance: float = 0.0,
    label: str = "",
    command: str = "",
    given: LogFormat | None = None,
    progress: Callable[[Path], None] = lambda path: None,
) -> Audit:
    """What each of `files` gives, beside the cells of the published `tables`, or beside
    `claim`, a number as it is printed.

    A claim is reproduced by a figure that is the same to its digits, or near one within
    `tolerance`, a share. A file that can't be read is named in `left_out`, and the others go
    on. `given` is the format of the files, if none of those known. `progress` is called with
    each file that is done. Raises AuditError.
    """
    if problems := [*_problems(tables, claim, tolerance)]:
        raise AuditError(problems)
    logs: list[Audited] = []
    losses, left_out = [], []
    for path in files:
        try:
            for log in read_logs(path, given):
                figures = figures_of(log)
                logs.append((audited(log, figures), figures))
                losses.append(first_losses(figures))
        except LogError as error:
            left_out.append(plain(portable(str(error)))[:2000])
        progress(path)
    if claim and len(logs) != 1:
        read = f"{len(logs)} of them can be read" if logs else "it can't be read"
        raise AuditError([f"--claim: is of one log; {read}", *left_out])
    claims: list[Claim] = []
    if tables:
        every = cells_of(published())
        wanted = [c for table in dict.fromkeys(tables) for c in every if c["table"] == table]
        claims += claims_of_tables(wanted, logs, tolerance)
    if claim:
        claims.append(
            check_claim(ClaimInput(claim, _value(claim), "--claim"), *logs[0], tolerance)
        )
    found = [log for log, _figures in logs]
    return Audit(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        label=label,
        command=command,
        tables=[*tables],
        tolerance=tolerance,
        logs=found,
        left_out=left_out,
        claims=claims,
        findings=together(found, losses, claims),
        dlperf=cases(found),
    )


def _problems(tables: Sequence[str], claim: str | None, tolerance: float) -> Iterator[str]:
    """What is wrong with a request."""
    for table in tables:
        if table not in SHAPES:
            there = f"those are {', '.join(SHAPES)}{suggest(table, [*SHAPES])}"
            yield f"--published {table}: no published table; {there}"
    if claim is not None and not 0 < _value(claim) < inf:
        yield f"--claim {claim}: no throughput; type it as it is printed: 10984.436"
    if not 0 <= tolerance < inf:
        yield f"--tolerance {tolerance}: no share"


def _value(claim: str) -> float:
    return float(claim.replace(",", "")) if NUMBER.fullmatch(claim.strip()) else nan


def audited(log: Log, figures: Figures) -> AuditedLog:
    """All that follows from one log alone."""
    name = plain(portable(log.name))
    return AuditedLog(
        name=name,
        sha256=log.sha256,
        format=log.format,
        rate_of=log.semantics.rate_of,
        covers=log.semantics.covers,
        since=log.semantics.since,
        source=log.semantics.source,
        facts={
            key: Fact(
                value=plain(fact.value) if isinstance(fact.value, str) else fact.value,
                by=fact.by,
            )
            for key, fact in log.facts.items()
        },
        rank=figures.rank,
        figures=figures.shown,
        reported={plain(r.name): plain(r.text) for r in log.reported if r.unit != "samples/s"},
        input_share=figures.input_share,
        findings=findings_of(log, name, figures),
    )
