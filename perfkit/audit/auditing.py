"""Audit log files: read them, compute their figures and check claims."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path

from perfkit.analysis.published import published
from perfkit.analysis.published.cells import PublishedCell, cells_of
from perfkit.analysis.published.layouts import LAYOUTS
from perfkit.audit.answer import Answer, answer_of, every_expert_counted
from perfkit.audit.audit import (
    GIVEN,
    SCHEMA_VERSION,
    Audit,
    AuditedLog,
    Claim,
    ClaimedNumber,
    LocatedFinding,
)
from perfkit.audit.claims import LogFigures, check_claim
from perfkit.audit.config_facts import with_stated_facts
from perfkit.audit.dlperf import cases
from perfkit.audit.figure import StepTime
from perfkit.audit.findings import findings_of
from perfkit.audit.formats import LogFormat
from perfkit.audit.impossible_prints import impossible_prints
from perfkit.audit.joint_findings import joint_findings
from perfkit.audit.log import Log, LogError
from perfkit.audit.log_ratios import log_ratios, log_scaling, verdict_of
from perfkit.audit.matching import claims_of_tables
from perfkit.audit.own_print import flops_apart, with_own_print
from perfkit.audit.printed import PrintedQuantity, printed_quantities
from perfkit.audit.printed_otherwise import with_other_lines
from perfkit.audit.quantity import ALLOWED, claimed_quantity
from perfkit.audit.quantity_claims import check_quantity, claim_of_step_rate
from perfkit.audit.reader import read_logs
from perfkit.audit.recompute import Figures, inside
from perfkit.audit.refusals import (
    NegativeShare,
    NoFileIn,
    NoLog,
    NoSuchFile,
    NoThroughput,
    SeveralLogs,
    TableOfOtherUnit,
)
from perfkit.audit.single_lines import with_single_lines
from perfkit.audit.slow_windows import slow_windows
from perfkit.audit.statements import (
    CoarseClock,
    FactValue,
    Finding,
    ImpossibleUtilization,
    SourcedFact,
)
from perfkit.core.format import plain
from perfkit.core.paths import portable
from perfkit.core.refusals import NotAvailable, Refusal
from perfkit.core.request import RequestError

NUMBER = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
"""A printed number; commas only between thousands."""
COARSE_CLOCK = 0.02
"""Share by which the timestamps' last digit may move the answer before it is reported."""
LONGEST_REASON = 2000
"""Characters stored of the reason why a file can't be read."""


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files under `paths`, without duplicates; a folder stands for all regular files
    in it and below, sorted by name. Raises RequestError."""
    missing: list[Refusal] = []
    for path in paths:
        if not path.exists():
            missing.append(NoSuchFile(parameter="FILE", path=str(path)))
    if missing:
        raise RequestError(missing)
    by_target: dict[Path, Path] = {}
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            by_target[file.resolve()] = file
    if not by_target:
        folders = [str(path) for path in paths]
        raise RequestError([NoFileIn(parameter="FILE", folders=folders)])
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

    A claim is reproduced if a figure equals it to its printed digits, and near if a figure is
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
        if claim and len(logs) > 1:
            _refuse_several(logs)
        progress(path)
    if claim and not logs:
        raise RequestError([NoLog(parameter="--claim"), *left_out])
    claims = _claims_of_tables(tables, logs, tolerance)
    if claim:
        checked = _check_one(claim, logs[0], tolerance)
        claims.append(with_single_lines(checked, logs[0]))
    claims = _with_other_lines(claims, logs)
    audited_logs = [log for log, _figures in logs]
    ratios = [*log_ratios(logs)]
    return Audit(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        label=label,
        command=command,
        tables=[*tables],
        tolerance=tolerance,
        logs=audited_logs,
        left_out=left_out,
        claims=claims,
        findings=joint_findings(audited_logs, claims),
        dlperf=cases(audited_logs),
        ratios=ratios,
        scaling=[*log_scaling(audited_logs)],
        verdict=verdict_of(audited_logs, ratios),
    )


def _check_request(tables: Sequence[str], claim: str | None, tolerance: float) -> None:
    problems: list[Refusal] = []
    for table in tables:
        if table not in LAYOUTS:
            problems.append(NotAvailable.of("--published", table, LAYOUTS))
    if claim is not None and not 0 < _value(claim) < inf and not claimed_quantity(claim):
        problems.append(NoThroughput(parameter="--claim", value=claim, allowed=ALLOWED))
    if not 0 <= tolerance < inf:
        problems.append(NegativeShare(parameter="--tolerance", value=str(tolerance)))
    if problems:
        raise RequestError(problems)


def _check_one(claim: str, audited: LogFigures, tolerance: float) -> Claim:
    """Check the claim of the command line: a quantity if it has a unit, else a number that may
    be any figure of the log."""
    quantity = claimed_quantity(claim)
    if quantity:
        return check_quantity(quantity, audited, tolerance)
    number = ClaimedNumber(text=claim, value=_value(claim), place=GIVEN)
    checked = check_claim(number, audited, tolerance)
    if checked.state in ("not reproduced", "no number") and not checked.explanations:
        return claim_of_step_rate(number, audited.log) or checked
    return checked


def _with_other_lines(claims: list[Claim], logs: list[LogFigures]) -> list[Claim]:
    """Return the claims, those that no log explains with the lines that print them."""
    figures = {log.name: figures_of_log for log, figures_of_log in logs}
    looked_up = []
    for claim in claims:
        looked_up.append(with_other_lines(claim, figures[claim.log]) if claim.log else claim)
    return looked_up


def _value(claim: str) -> float:
    """Return the number that a claim prints; nan if it is none."""
    if NUMBER.fullmatch(claim.strip()):
        return float(claim.replace(",", ""))
    return nan


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


def _refuse_several(logs: list[LogFigures]) -> None:
    first, second = (portable(audited.log.name) for audited in logs[:2])
    raise RequestError([SeveralLogs(parameter="--claim", first=first, second=second)])


def _claims_of_tables(
    tables: Sequence[str], logs: list[LogFigures], tolerance: float
) -> list[Claim]:
    if not tables:
        return []
    cells = cells_of(published())
    compared = []
    for table in dict.fromkeys(tables):
        of_table = [cell for cell in cells if cell.table == table]
        _refuse_other_unit(of_table[0])
        compared += of_table
    return [*claims_of_tables(compared, logs, tolerance)]


def _refuse_other_unit(cell: PublishedCell) -> None:
    """Raise RequestError if a table's numbers are printed per device, or in another unit than
    that of the model's throughput."""
    if cell.printed_unit != cell.unit:
        unit = cell.printed_unit.replace(" per ", "/")
        refusal = TableOfOtherUnit(
            table=cell.table, unit=cell.printed_unit, claim=f"{cell.printed} {unit}"
        )
        raise RequestError([refusal])


def _printed(figures: Figures) -> list[PrintedQuantity]:
    """Return the quantities that the prints of the log have besides their times."""
    if not figures.rows:
        return []
    in_protocol = inside(figures.rows, "protocol")
    return printed_quantities(figures.log.printed, figures.rows, in_protocol)


def _of_experts(answer: Answer | None, facts: Mapping[str, SourcedFact]) -> Iterator[Finding]:
    """Yield the finding that a language model has no TFLOP/s because of its experts."""
    if answer and answer.tokens:
        yield from every_expert_counted(facts)


def _coarse_clock(answer: Answer | None, step_times: Sequence[StepTime]) -> Iterator[Finding]:
    """Yield the finding that an answer by timestamps may be off by their last digit."""
    if answer is None or answer.basis != "clock":
        return
    for time in step_times:
        share = time.clock_rounding or 0.0
        if time.period == answer.period and share > COARSE_CLOCK:
            yield CoarseClock(share=share, seconds=time.mean_seconds * time.steps)


def _impossible(answer: Answer | None) -> Iterator[Finding]:
    if answer and answer.model and not answer.model.is_possible:
        yield ImpossibleUtilization(share=answer.model.mfu or 0.0)


def audited_log(figures: Figures) -> AuditedLog:
    """Return the audit of a single log."""
    log = figures.log
    name = plain(portable(log.name))
    reported = {}
    for figure in log.reported:
        if not figure.is_rate:
            reported[plain(figure.name)] = plain(figure.text)
    printed = _printed(figures)
    answer = None
    if log.windows.size or not log.of_several:
        answer = answer_of(figures.shown, figures.step_times, log.facts, printed)
        answer = with_own_print(answer, figures)
    slow = slow_windows(figures, answer)
    findings = []
    for finding, line in slow.notes:
        findings.append(LocatedFinding(finding=finding, file=name, line=line))
    findings_of_answer = (
        *_of_experts(answer, log.facts),
        *flops_apart(answer),
        *_coarse_clock(answer, figures.step_times),
    )
    for finding in findings_of_answer:
        findings.append(LocatedFinding(finding=finding, file=name))
    findings += findings_of(name, figures, slow)
    for finding in (*_impossible(answer), *impossible_prints(printed, log.facts)):
        findings.append(LocatedFinding(finding=finding, file=name))
    return AuditedLog(
        name=name,
        sha256=log.sha256,
        format=log.format,
        rate_of=log.semantics.rate_of,
        covers=log.semantics.covers,
        since=log.semantics.since,
        step=log.semantics.step,
        of_several=log.of_several,
        source=log.semantics.source,
        facts=log.facts,
        rank=figures.rank,
        figures=figures.shown,
        reported=reported,
        printed=printed,
        input_share=figures.input_share,
        findings=findings,
        step_times=figures.step_times,
        answer=answer,
    )
