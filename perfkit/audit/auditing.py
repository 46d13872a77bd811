"""Audit log files: read them, compute their figures and check claims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from perfkit.analysis.published import published
from perfkit.analysis.published.cells import cells_of
from perfkit.analysis.published.layouts import LAYOUTS
from perfkit.audit.answer import answer_of
from perfkit.audit.audit import (
    SCHEMA_VERSION,
    Audit,
    AuditedLog,
    LocatedFinding,
)
from perfkit.audit.claim import Claim
from perfkit.audit.claims import check_claim
from perfkit.audit.config_facts import with_stated_facts
from perfkit.audit.findings import findings_of
from perfkit.audit.formats import LogFormat
from perfkit.audit.log import Log, LogError
from perfkit.audit.log_numbers import LogFigures
from perfkit.audit.matching import claims_of_table
from perfkit.audit.printed import PrintedQuantity, printed_quantities
from perfkit.audit.quantity import EXAMPLES, read_claim
from perfkit.audit.reader import read_logs
from perfkit.audit.recompute import Figures, inside
from perfkit.audit.statements import FactValue
from perfkit.measuring.format import plain
from perfkit.measuring.request import RequestError, not_available
from perfkit.timing.failure import portable

LONGEST_REASON = 2000
"""Characters stored of the reason why a file can't be read."""


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files under `paths`, without duplicates; a folder stands for all regular files
    in it and below, sorted by name. Raises RequestError."""
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise RequestError([f"FILE: no file or folder {path}" for path in missing])
    by_target: dict[Path, Path] = {}
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            by_target[file.resolve()] = file
    if not by_target:
        raise RequestError([f"FILE: no file in {', '.join(map(str, paths))}"])
    return [*by_target.values()]


def audit(
    files: Sequence[Path],
    *,
    tables: Sequence[str] = (),
    claim: str | None = None,
    tolerance: float = 0.0,
    label: str = "",
    command: str = "",
    custom_format: LogFormat | None = None,
    stated: Mapping[str, FactValue] = {},
    progress: Callable[[Path], None] = lambda path: None,
) -> Audit:
    """Audit `files` against the cells of the published `tables`, or against `claim`, a number
    as printed.

    A claim is reproduced if a number of the log equals it to its digits, and near if one is
    within `tolerance`, a share. Files that can't be read are listed in `left_out`; the audit
    continues without them. `custom_format` is the format of the files if it is not a known
    format. `stated` are facts of all logs that win over those in the files. `progress` is
    called with each finished file. Raises RequestError.
    """
    _check_request(tables, claim, tolerance)
    logs: list[LogFigures] = []
    left_out: list[str] = []
    for path in files:
        try:
            logs += _read(path, custom_format, stated)
        except LogError as error:
            reason = plain(portable(f"{error.file}: {error}"))
            left_out.append(reason[:LONGEST_REASON])
        progress(path)
    count = len({each.figures.log.path for each in logs})
    if claim and count != 1:
        problem = f"--claim: compares one log, but {count} of the files are logs"
        raise RequestError([problem, *left_out])
    claims = _claims_of_tables(tables, logs, tolerance)
    number = read_claim(claim) if claim else None
    if number:
        claims.append(check_claim(number, logs[0], tolerance))
    return Audit(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        label=label,
        command=command,
        tables=[*tables],
        logs=[log for log, _figures in logs],
        left_out=left_out,
        claims=claims,
    )


def _check_request(tables: Sequence[str], claim: str | None, tolerance: float) -> None:
    problems = []
    for table in tables:
        if table not in LAYOUTS:
            problems.append(not_available("--published", table, LAYOUTS))
    if claim is not None and not read_claim(claim):
        problems.append(
            f"--claim: {claim} is not a number with a known unit; type it as in {EXAMPLES}"
        )
    if not 0 <= tolerance < inf:
        problems.append(f"--tolerance: {tolerance} must be a share of at least 0")
    if problems:
        raise RequestError(problems)


def _read(
    path: Path, custom_format: LogFormat | None, stated: Mapping[str, FactValue]
) -> list[LogFigures]:
    """Return the audited trainings of a file. Raises LogError."""
    audited = []
    try:
        for log in read_logs(path, custom_format):
            figures = Figures(_with_stated_facts(log, stated))
            audited.append(LogFigures(audited_log(figures), figures))
    except LogError:
        raise
    except (ValueError, ArithmeticError) as error:
        raise LogError(path, f"unusable numbers: {error}") from error
    return audited


def _with_stated_facts(log: Log, stated: Mapping[str, FactValue]) -> Log:
    if not stated:
        return log
    facts = with_stated_facts(log.facts, stated)
    notes = [*log.notes, *facts.contradictions.values()]
    return replace(log, facts=facts.by_name, notes=notes)


def _claims_of_tables(
    tables: Sequence[str], logs: list[LogFigures], tolerance: float
) -> list[Claim]:
    claims: list[Claim] = []
    cells = cells_of(published()) if tables else []
    for table in dict.fromkeys(tables):
        of_table = [each for each in cells if (each.table, each.status) == (table, "published")]
        claims += claims_of_table(of_table, logs, tolerance)
    return claims


def _printed(figures: Figures) -> list[PrintedQuantity]:
    """Return the quantities that the prints of the log have besides their times."""
    if not figures.rows:
        return []
    in_protocol = inside(figures.rows, "protocol")
    return printed_quantities(figures.log.printed, figures.rows, in_protocol)


def audited_log(figures: Figures) -> AuditedLog:
    """Return the audit of a single log."""
    log = figures.log
    reported = {}
    for figure in log.reported:
        if not figure.is_rate:
            reported[plain(figure.name)] = plain(figure.text)
    printed = _printed(figures)
    answer = None
    if log.windows.size or not log.of_several:
        answer = answer_of(figures, printed)
    findings = []
    for finding, line in findings_of(figures, answer, printed):
        findings.append(LocatedFinding(finding=finding, line=line))
    return AuditedLog(
        name=plain(portable(log.name)),
        sha256=log.sha256,
        format=log.format,
        rate_of=log.semantics.rate_of,
        covers=log.semantics.covers,
        since=log.semantics.since,
        step=log.semantics.step,
        of_several=log.of_several,
        source=log.semantics.source,
        facts=log.facts,
        figures=figures.shown,
        reported=reported,
        printed=printed,
        input_share=figures.input_share,
        findings=findings,
        step_times=figures.step_times,
        answer=answer,
    )
