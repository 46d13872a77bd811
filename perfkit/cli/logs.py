"""`perfkit audit` and `import`."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit.cli import options
from perfkit.config import LABEL, portable
from perfkit.request import RequestError

if TYPE_CHECKING:
    from perfkit.logs.formats import LogFormat

FORMAT_REGEX = click.option(
    "--format-regex",
    "regex",
    metavar="REGEX",
    help="Regex of a printed line in another log format, such as '<step> .* <rate> img/s'; "
    "docs/reference/formats.md lists the groups.",
)
FORMAT_OPTIONS = click.option(
    "--format-options",
    "semantics",
    default="",
    show_default=False,
    metavar="NAME=VALUE…",
    help="Meaning of the groups, such as 'rate_of=all covers=window unit=images/s'.",
)


@options.command(failure="claim not reproduced, or no readable file")
@click.argument(
    "paths", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path)
)
@click.option(
    "--published",
    "tables",
    multiple=True,
    metavar="TABLE",
    help="Compare with a published table, such as paddle-resnet50-report; repeatable.",
)
@click.option("--claim", metavar="NUMBER", help="Compare one log with NUMBER, to its digits.")
@options.percent("--tolerance", 0, "Allowed difference from a claim; 0: equal digits.")
@FORMAT_REGEX
@FORMAT_OPTIONS
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
    label: str | None,
    outputs: Path,
    file: str | None,
) -> None:
    """Recompute throughputs from training logs of other suites.

    FILE is a log or a folder of logs, plain or compressed by gzip or xz, in a format of
    docs/reference/formats.md. Computes every statistic that suites use, over the protocol's
    steps 21 to 120, all steps and the steady steps. Samples / time is the throughput; other
    statistics may have been published. A claim is reproduced if a statistic has its digits.
    Findings name file and line. A folder in DLPerf's layout gives DLPerf's summary too.

    \b
      perfkit audit train.log --claim 10984.436
      perfkit audit logs/ --published paddle-resnet50-report --label paddle
    """
    from perfkit.driver.progress import Bar
    from perfkit.logs.auditing import audit as audited
    from perfkit.logs.auditing import files_of
    from perfkit.logs.wording import audit_text
    from perfkit.text.terminal import printable

    if label is not None and not re.fullmatch(LABEL, label or " "):
        raise RequestError([f"--label {label}: use at most 40 letters, digits, _ and -"])
    given, words = _format(regex, semantics), ["perfkit", *context.find_root().obj]
    sizes = {path: path.stat().st_size for path in files_of(paths)}
    with Bar("Logs", sum(sizes.values())) as bar:
        found = audited(
            [*sizes],
            tables=tables,
            claim=claim,
            tolerance=tolerance,
            label=label or "",
            command=printable(portable(shlex.join(words))),
            given=given,
            progress=lambda path: bar.advance(sizes[path]),
        )
    options.print_result(found, file, audit_text(found))
    if label:
        # Imported only now: writing pages takes more memory than reading a large log.
        from perfkit.logs.audit import FOLDER, write_audit
        from perfkit.report.site import publish_audit

        folder = outputs / FOLDER / label
        write_audit(folder, found)
        publish_audit(folder)
        click.echo(folder / "report.html", err=file == "-")
    raise SystemExit(found.failed or not found.logs)


def _format(regex: str | None, semantics: str) -> "LogFormat | None":
    """Return the user's format, if any. Raises RequestError."""
    from perfkit.logs.formats import user_format

    if semantics and not regex:
        raise RequestError(["--format-options: describes the groups of --format-regex"])
    return user_format(regex, semantics) if regex else None


@options.command("import")
@click.argument(
    "logs",
    nargs=-1,
    required=True,
    metavar="LOG…",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@options.parameters_option(lambda _name, value: value)
@FORMAT_REGEX
@FORMAT_OPTIONS
@options.OUTPUTS
def import_(
    logs: tuple[Path, ...],
    values: options.Values,
    regex: str | None,
    semantics: str,
    outputs: Path,
) -> None:
    """Import LOGs of another suite as a measurement.

    Several logs of one configuration become its repeats. -p sets what the logs do not state:
    parameters of `perfkit run`, and facts such as environment.gpus "Tesla V100-SXM2-32GB". The
    throughput covers steps 21 to 120, or the nearest steps that the logs' prints allow;
    -p warmup_steps and -p measured_steps choose other steps.
    """
    from perfkit.logs.importing import import_logs
    from perfkit.logs.wording import sentence
    from perfkit.report.measurement import number_words
    from perfkit.report.site import publish
    from perfkit.results.store import ResultError

    try:
        measurement = import_logs(logs, values, outputs, _format(regex, semantics))
    except ResultError as error:
        raise RequestError([str(error)]) from None
    publish(measurement)
    result, protocol = measurement.result, measurement.result.protocol
    assert result.imported
    for name, by in result.imported.facts.items():
        value = getattr(result.config, name, None)
        if by.params.get("value", value) != value:
            click.echo(f"{name}: {value}, {sentence(by)}", err=True)
    steps = f"steps {protocol.warmup_steps + 1} to {protocol.steps}"
    click.echo(f"{number_words(result)}; {steps}", err=True)
    click.echo(measurement.page_file)
