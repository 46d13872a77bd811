"""Audit log files: read them, compute their figures and check claims."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path

from perfkit.analysis.published import SHAPES, cells_of, published
from perfkit.audit.audit import SCHEMA_VERSION, Audit, AuditedLog, Finding
from perfkit.audit.claims import Audited, check_claim, claims_of_tables
from perfkit.audit.dlperf import cases
from perfkit.audit.findings import findings_of, together
from perfkit.audit.formats import LogFormat
from perfkit.audit.log import LogError
from perfkit.audit.reader import read_logs
from perfkit.audit.recompute import Figures
from perfkit.core.format import plain
from perfkit.core.paths import portable
from perfkit.core.refusals import NotAvailable, Refusal
from perfkit.core.request import RequestError

NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
"""A printed number; commas only between thousands."""

MEANING = ("rate_of", "covers", "since", "source")
"""Fields of Semantics that an audit stores."""


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files under `paths`, without duplicates; a folder stands for all regular files
    in it and below, sorted by name. Raises RequestError."""
    if problems := [f"no file or folder {path}" for path in paths if not path.exists()]:
        raise RequestError(problems)
    found: dict[Path, Path] = {}
    for path in paths:
        files = sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]
        found.update((file.resolve(), file) for file in files)
    if not found:
        raise RequestError([f"no file in {', '.join(map(str, paths))}"])
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
    """Audit `files` against the cells of the published `tables`, or against `claim`, a number
    as printed.

    A claim is reproduced if a figure equals it to its printed digits, and near if a figure is
    within `tolerance`, a share. Files that can't be read are listed in `left_out`; the audit
    continues without them. `given` is the format of the files if it is not a known format.
    `progress` is called with each finished file. Raises RequestError.
    """
    unknown = [table for table in tables if table not in SHAPES]
    problems: list[Refusal | str] = []
    problems += [NotAvailable.of("--published", table, SHAPES) for table in unknown]
    if claim is not None and not 0 < _value(claim) < inf:
        problems.append(f"--claim {claim}: not a throughput; type it as printed: 10984.436")
    if not 0 <= tolerance < inf:
        problems.append(f"--tolerance {tolerance}: must be a share of at least 0")
    if problems:
        raise RequestError(problems)
    logs: list[Audited] = []
    left_out: list[str] = []
    for path in files:
        try:
            for log in read_logs(path, given):
                figures = Figures(log)
                logs.append((audited(figures), figures))
        except (ValueError, ArithmeticError) as error:
            reason = "" if isinstance(error, LogError) else "unusable numbers: "
            left_out.append(plain(portable(f"{path}: {reason}{error}"))[:2000])
        if claim and len(logs) > 1:
            names = " and ".join(portable(log.name) for log, _figures in logs[:2])
            raise RequestError(
                [f"--claim: compares one log, but {names} are logs; give one alone"]
            )
        progress(path)
    if claim and not logs:
        raise RequestError(["--claim: compares one log, but no file is one", *left_out])
    cells = cells_of(published()) if tables else []
    wanted = [c for table in dict.fromkeys(tables) for c in cells if c["table"] == table]
    claims = [*claims_of_tables(wanted, logs, tolerance)]
    if claim:
        claim_input = {"text": claim, "value": _value(claim), "place": "--claim"}
        claims.append(check_claim(claim_input, *logs[0], tolerance))
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
        findings=together(found, claims),
        dlperf=cases(found),
    )


def _value(claim: str) -> float:
    return float(claim.replace(",", "")) if NUMBER.fullmatch(claim.strip()) else nan


def audited(figures: Figures) -> AuditedLog:
    """Return the audit of a single log."""
    log = figures.log
    name = plain(portable(log.name))
    findings = findings_of(name, figures)
    if figures.rows and not figures.shown and not figures.samples:
        findings.insert(0, Finding("no_batch_size", {}, name))
    return AuditedLog(
        name=name,
        sha256=log.sha256,
        format=log.format,
        **{name: getattr(log.semantics, name) for name in MEANING},
        facts=log.facts,
        rank=figures.rank,
        figures=figures.shown,
        reported={plain(r.name): plain(r.text) for r in log.reported if not r.is_rate},
        input_share=figures.input_share,
        findings=findings,
    )
