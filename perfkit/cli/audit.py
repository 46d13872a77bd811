"""`perfkit audit`."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from perfkit.cli import options
from perfkit.measuring.config import LABEL
from perfkit.measuring.request import RequestError
from perfkit.report.terminal import echo
from perfkit.timing.failure import portable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfkit.audit.formats import LogFormat
    from perfkit.audit.statements import FactValue


@options.command(failure="claim not reproduced or impossible, or no readable file")
@click.argument("paths", nargs=-1, metavar="[FILE…]", type=click.Path(path_type=Path))
@click.option(
    "--published",
    "tables",
    multiple=True,
    metavar="TABLE",
    help="Compare with a published table, such as paddle-resnet50-report; repeatable.",
)
@click.option(
    "--claim",
    metavar="NUMBER",
    help="Compare one log with NUMBER, which may have a unit ('12,810 tokens/s', '45 % MFU'), "
    "to its digits. Without a FILE: tell whether it is possible.",
)
@options.percent("--tolerance", 0, "Allowed difference from a claim; 0: equal digits.")
@click.option(
    "--format-regex",
    "regex",
    metavar="REGEX",
    help="Regex of a printed line in another log format, such as '<step> .* <rate> img/s'; "
    "--formats lists the groups.",
)
@click.option(
    "--format-options",
    "semantics",
    default="",
    show_default=False,
    metavar="NAME=VALUE…",
    help="Meaning of the groups, such as 'rate_of=all covers=window unit=images/s'.",
)
@click.option(
    "-p",
    "pairs",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="State what the logs lack: batch_size or global_batch_size of one optimizer update, "
    "devices (all), sequence_length, parameters, layers, hidden_size, gpu_model, "
    "peak_tflops, precision; repeatable.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Show all statistics, facts and findings."
)
@click.option(
    "--formats",
    "lists_formats",
    is_flag=True,
    help="List the known log formats, and the groups and options of another one.",
)
@click.option("--label", metavar="NAME", help="Write a page, audits/NAME/report.html.")
@options.OUTPUTS
@options.JSON_FILE
@click.pass_context
def audit(
    context: click.Context,
    paths: tuple[Path, ...],
    tables: tuple[str, ...],
    claim: str | None,
    tolerance: float,
    regex: str | None,
    semantics: str,
    pairs: tuple[tuple[str, str], ...],
    everything: bool,
    lists_formats: bool,
    label: str | None,
    outputs: Path,
    file: str | None,
) -> None:
    """Recompute throughputs from training logs of other suites.

    FILE is a log or a folder of logs, plain or compressed by gzip or xz. The first line is the
    answer: samples / time of the steady steps or, without a steady state, of steps 21 to 120. A
    claim is reproduced if a statistic has its digits.

    \b
      perfkit audit train.log -p batch_size 32 -p devices 8 --claim 10984.436
    """
    from perfkit.audit.auditing import audit as audit_files
    from perfkit.audit.auditing import files_of
    from perfkit.audit.parameters import stated_facts
    from perfkit.measuring.driver.progress import Bar
    from perfkit.measuring.format import printable
    from perfkit.report.audit_summary import audit_section
    from perfkit.report.formats import formats_section

    if lists_formats:
        options.print_section(formats_section())
        return
    if label is not None and not re.fullmatch(LABEL, label or " "):
        problem = f"--label: {label}; use at most 40 letters, digits, _ and -"
        raise RequestError([problem])
    stated = stated_facts(pairs)
    if not paths:
        _need_files({"--published": tables, "--format-regex": regex, "--label": label})
        _audit_claim_alone(claim, stated, file)
    custom_format = _format(regex, semantics)
    command = shlex.join(["perfkit", *context.find_root().obj])
    sizes = {path: path.stat().st_size for path in files_of(paths)}
    with Bar("Logs", sum(sizes.values())) as bar:
        audited = audit_files(
            [*sizes],
            tables=tables,
            claim=claim,
            tolerance=tolerance,
            label=label or "",
            command=printable(portable(command)),
            custom_format=custom_format,
            stated=stated,
            progress=lambda path: bar.advance(sizes[path]),
        )
    options.print_result(audited, file, audit_section(audited, everything=everything))
    if label:
        # Imported only now: writing pages takes more memory than reading a large log.
        from perfkit.audit.audit import FOLDER, write_audit
        from perfkit.report.site import publish_audit

        folder = outputs / FOLDER / label
        write_audit(folder, audited)
        publish_audit(folder)
        echo(folder / "report.html", err=file == "-")
    raise SystemExit(audited.failed or not audited.logs)


def _need_files(values: "Mapping[str, object]") -> None:
    """Refuse the options that were given but are about files. Raises RequestError."""
    problems = [f"{name}: needs a FILE" for name, value in values.items() if value]
    if problems:
        raise RequestError(problems)


def _audit_claim_alone(
    claim: str | None, stated: "Mapping[str, FactValue]", file: str | None
) -> NoReturn:
    """Judge a claim without a log, and exit. Raises RequestError."""
    from perfkit.audit.claim_alone import check_claim_alone
    from perfkit.report.audit_summary import claim_alone_section

    if claim is None:
        problem = "FILE: give a log or a folder of logs, or a claim: --claim '12,810 tokens/s'"
        raise RequestError([problem])
    checked = check_claim_alone(claim, stated)
    options.print_result(checked, file, claim_alone_section(checked))
    raise SystemExit(checked.is_impossible)


def _format(regex: str | None, semantics: str) -> "LogFormat | None":
    """Return the user's format, if any. Raises RequestError."""
    from perfkit.audit.custom_format import user_format

    if semantics and not regex:
        raise RequestError(["--format-options: describes the groups of --format-regex"])
    return user_format(regex, semantics) if regex else None
