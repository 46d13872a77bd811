"""`perfkit audit`: what training logs of other suites give."""

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit.cli.options import FORMAT_OPTIONS, FORMAT_REGEX, JSON_FILE
from perfkit.cli.telling import refuse, tell
from perfkit.config import LABEL, portable, resolved_path
from perfkit.request.errors import RequestError

if TYPE_CHECKING:
    from perfkit.logs.audit import Audit


@click.command(
    epilog="\b\nExit status: 0 done, 1 a claim can't be reproduced or no file can be read,\n"
    "2 the request was wrong.",
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path)
)
@click.option(
    "--published",
    "tables",
    multiple=True,
    metavar="TABLE",
    help="Compare with the numbers of a published table, such as paddle-resnet50-report, each "
    "with the log at its place; may be given many times.",
)
@click.option(
    "--claim",
    metavar="NUMBER",
    help="Compare one log with this throughput, typed with the digits it is published with.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default="0: to the claim's digits",
    metavar="PERCENT",
    help="How far from a claim the closest figure may be.",
)
@FORMAT_REGEX
@FORMAT_OPTIONS
@click.option(
    "--label",
    metavar="NAME",
    help="Keep it as a page, audits/NAME/report.html, which the index links to.",
)
@click.option(
    "--outputs",
    default="outputs",
    show_default=True,
    metavar="FOLDER",
    help="Where the page is kept.",
)
@JSON_FILE
def audit(
    paths: tuple[Path, ...],
    tables: tuple[str, ...],
    claim: str | None,
    tolerance: float,
    regex: str | None,
    options: str,
    label: str | None,
    outputs: str,
    file: str | None,
) -> None:
    """Recompute throughputs from training logs of other suites.

    Each FILE is a log, or a folder with logs in it, of Paddle's suites, NVIDIA's DLLogger,
    MLPerf, MXNet, TensorFlow, mmcv, Megatron-LM and others (docs/reference/formats.md), also
    packed by gzip or xz; the content tells which. Another format is given by --format-regex.
    Each log gives its throughput by every statistic that suites use, over the protocol's steps
    21 to 120, over all there are and over those that are steady: samples / time is what a
    throughput is, the others are what may have been published.

    \b
      perfkit audit train.log
      perfkit audit train.log --claim 10984.436
      perfkit audit logs/ --published paddle-resnet50-report --label paddle

    A claim is reproduced if some figure is the same to its digits, rounded or truncated; which
    figure stands beside it, the simplest first, how easily so many figures agree by chance, and
    how the claim comes down to the steady throughput. The findings are what is odd about a log,
    with file and line: data waits, restarts, missing prints, losses that training can't have.
    A folder in DLPerf's layout (1n8g/r50_b128_fp32_1.log) gives DLPerf's own summary too. A
    file that can't be read is named; the others go on.
    """
    from perfkit.logs.auditing import AuditError, files_of
    from perfkit.logs.auditing import audit as audited
    from perfkit.logs.formats import FormatError, user_format
    from perfkit.logs.wording import text
    from perfkit.text.terminal import plain

    words = ["perfkit", "audit", *map(str, paths)]
    words += [word for table in tables for word in ("--published", table)]
    words += ["--claim", claim] if claim else []
    words += ["--tolerance", f"{tolerance:g}"] if tolerance else []
    words += ["--format-regex", regex] if regex else []
    words += ["--format-options", options] if options else []
    words += ["--label", label] if label else []
    try:
        if label is not None and not re.fullmatch(LABEL, label or " "):
            raise AuditError([f"--label {label}: 40 letters, digits, _ and - at most"])
        given = user_format(regex, options) if regex else None
        sizes = {path: path.stat().st_size for path in files_of(paths)}
        size = sum(sizes.values())
        with click.progressbar(length=size, label="Logs", file=sys.stderr) as bar:
            found = audited(
                [*sizes],
                tables=tables,
                claim=claim,
                tolerance=tolerance / 100,
                label=label or "",
                command=plain(portable(shlex.join(words))),
                given=given,
                progress=lambda path: bar.update(sizes[path]),
            )
    except (AuditError, FormatError) as error:
        refuse(error)
    tell(found, file, text(found))
    if label:
        click.echo(_kept(found, resolved_path(outputs), label), err=file == "-")
    raise SystemExit(found.failed or not found.logs)


def _kept(found: "Audit", outputs: Path, label: str) -> Path:
    """The page of an audit that is kept."""
    # Not before: what pages are made with takes more memory than reading a large log.
    from perfkit.logs.audit import FOLDER, write_audit
    from perfkit.report.site import publish_audit

    folder = outputs / FOLDER / label
    try:
        write_audit(folder, found)
    except (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        refuse(RequestError([f"--outputs: {error.filename}: {error.strerror}"]))
    publish_audit(folder)
    return folder / "report.html"
