"""From files to an audit."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path
from textwrap import shorten

from perfkit.audit.course import Course
from perfkit.audit.dlperf import cases
from perfkit.audit.figures import Recomputed, figures_of
from perfkit.audit.findings import findings_of, together
from perfkit.audit.stored import SCHEMA_VERSION, Audit, AuditedLog, Claim, Said
from perfkit.config import portable
from perfkit.importers import read_log
from perfkit.importers.log import Log, LogError, Running, Step
from perfkit.request.refusal import nearest
from perfkit.text.terminal import plain, wrapped


class AuditError(ValueError):
    """Nothing was audited; the message says why, a line or more for each of `problems`."""

    def __init__(self, problems: Sequence[str]) -> None:
        lines = [wrapped(problem, "  ") for problem in problems]
        super().__init__("\n".join(["Not audited.", *lines]))


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files that these name, each once; a folder names all in it and below, by name. Raises
    AuditError."""
    problems = [f"no file or folder {path}" for path in paths if not path.exists()]
    if problems:
        raise AuditError(problems)
    found: dict[Path, Path] = {}
    for path in paths:
        some = (
            sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        )
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
    progress: Callable[[Path], None] = lambda path: None,
) -> Audit:
    """What each of `files` gives, beside the cells of the published `tables`, or beside
    `claim`, a number as it is printed.

    A claim is reproduced by a figure that is the same to its digits, or near one within
    `tolerance`, a share. A file that can't be read is named in `left_out`, and the others go
    on. `progress` is told each file that is done. Raises AuditError.
    """
    problems = [*_problems(tables, claim)]
    if problems:
        raise AuditError(problems)
    logs, courses, left_out = [], [], []
    for path in files:
        try:
            one, course = _recomputed(read_log(path))
            logs.append(one)
            courses.append(course)
        except LogError as error:
            left_out.append(shorten(plain(portable(str(error))), 160, placeholder=" …"))
        progress(path)
    if claim and len(logs) != 1:
        read = f"{len(logs)} of them can be read" if logs else "it can't be read"
        raise AuditError([f"--claim: is of one log; {read}", *left_out])
    claims = _claims(logs, tables, claim, tolerance)
    audited = [one.log for one in logs]
    return Audit(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        label=label,
        command=command,
        tables=[*tables],
        tolerance=tolerance,
        logs=audited,
        left_out=left_out,
        claims=claims,
        findings=together(audited, courses, claims),
        dlperf=cases(logs),
    )


def _problems(tables: Sequence[str], claim: str | None) -> Iterator[str]:
    """What is wrong with a request."""
    if tables:
        from perfkit.reference.cells import SHAPES

        known = ", ".join(SHAPES)
        for table in tables:
            if table not in SHAPES:
                told = f"those are {known}{nearest(table, [*SHAPES])}"
                yield f"--published {table}: no published table; {told}"
    if claim is not None and not 0 < _value(claim) < inf:
        yield f"--claim {claim}: no throughput; type it as it is printed: 10984.436"


def _value(claim: str) -> float:
    try:
        return float(claim.replace(",", ""))
    except ValueError:
        return nan


def _claims(
    logs: list[Recomputed], tables: Sequence[str], claim: str | None, tolerance: float
) -> list[Claim]:
    # Not above: pandas, which the tables are read with, takes more memory and more time than
    # most logs.
    claims: list[Claim] = []
    if tables:
        from perfkit.audit.places import claims_of_tables
        from perfkit.reference.cells import cells_of
        from perfkit.reference.table import published

        every = cells_of(published())
        cells = [
            cell for table in dict.fromkeys(tables) for cell in every if cell["table"] == table
        ]
        claims += claims_of_tables(cells, logs, tolerance)
    if claim:
        from perfkit.audit.claims import Given, judged

        claims.append(judged(Given(claim, _value(claim), "--claim"), logs[0], tolerance))
    return claims


def _recomputed(log: Log) -> tuple[Recomputed, Course]:
    """All that follows from one log alone."""
    figures, name = figures_of(log), plain(portable(str(log.path)))
    course = Course.of(log, figures.rank)
    audited = AuditedLog(
        name=name,
        sha256=log.sha256,
        format=log.format,
        rate_of=log.meaning.rate_of,
        covers=_covers(log),
        source=log.meaning.source,
        facts={
            key: Said(value=_tame(fact.value), said_by=plain(fact.said_by))
            for key, fact in log.facts.items()
        },
        rank=figures.rank,
        figures=figures.shown,
        input_share=figures.input_share,
        findings=findings_of(log, name, figures, course),
    )
    return Recomputed(audited, figures), course


def _tame(value: int | str) -> int | str:
    return plain(value) if isinstance(value, str) else value


def _covers(log: Log) -> str:
    """Which steps a print tells of, in words."""
    covers = log.meaning.covers
    if isinstance(covers, Step):
        return "the last step"
    if isinstance(covers, Running):
        return f"a running mean since step {covers.since}"
    return f"the steps since the last print, from step {covers.since} on"
