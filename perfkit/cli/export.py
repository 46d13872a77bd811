"""`perfkit export`: measurements as other tools write theirs."""

from pathlib import Path

import click

from perfkit.cli.options import from_here
from perfkit.cli.telling import complain, refuse
from perfkit.config import resolved_path, typed_path
from perfkit.request.errors import RequestError


@click.command(
    epilog="\b\nExit status: 0 done, 1 something was left out, 2 the request was wrong."
)
@click.argument(
    "measurements", default="outputs", metavar="[MEASUREMENT|FOLDER]", callback=from_here
)
@click.option(
    "--as",
    "form",
    required=True,
    type=click.Choice(["dllogger", "mlperf", "optimum", "otava"]),
    help="The format.",
)
@click.option("--to", metavar="FOLDER", help="Where the files go; - for the output.")
def export(measurements: Path, form: str, to: str | None) -> None:
    """Write measurements as other tools write theirs, so that those can read them.

    MEASUREMENT is the folder of one, FOLDER one with many. A file for each complete repeat, of
    the raw steps: DLLogger's lines, MLPerf's :::MLLOG lines, or optimum-benchmark's JSON. They
    lie beside each measurement, in `exported`, or in --to.

    As otava: a CSV for each series of FOLDER (`perfkit history`) and the otava.yaml that names
    them, in FOLDER/history/otava or in --to, for Apache Otava, which looks for changes too:
    OTAVA_CONFIG=otava.yaml otava analyze TEST, where these files are.
    """
    if form == "otava":
        _export_series(measurements, to)
        return
    from perfkit.logs.export import ExportError, export, printed
    from perfkit.results.store import Measurement, ResultError, Store, folders

    single = Store(measurements).result_file.is_file()
    found = [measurements] if single else list(folders(measurements))
    if not found:
        refuse(RequestError([f"{measurements}: neither a measurement nor a folder of some"]))
    failed = False
    for folder in found:
        try:
            measurement = Measurement.read(folder)
            if to == "-":
                click.echo(printed(measurement, form), nl=False)
                continue
            for file in export(
                measurement, form, resolved_path(typed_path(to)) if to else None
            ):
                click.echo(file)
        except (ExportError, ResultError) as error:
            complain(f"left out: {error}")
            failed = True
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            refuse(RequestError([f"--to: {error.filename}: {error.strerror}"]))
    raise SystemExit(1 if failed else 0)


def _export_series(outputs: Path, to: str | None) -> None:
    from perfkit.comparison.history import history
    from perfkit.logs.otava import otava_files
    from perfkit.results.frames import load
    from perfkit.results.store import ResultError, write_atomically

    if to == "-":
        refuse(RequestError(["--to: otava has several files; name a folder"]))
    folder = resolved_path(typed_path(to)) if to else outputs / "history" / "otava"
    try:
        found = history(load(outputs))
        folder.mkdir(parents=True, exist_ok=True)
    except ResultError as error:
        refuse(RequestError([str(error)]))
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        refuse(RequestError([f"--to: {error.filename}: {error.strerror}"]))
    for name, text in otava_files(found).items():
        write_atomically(folder / name, text)
        click.echo(folder / name)
