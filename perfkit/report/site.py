"""Writes the page of a measurement, comparison or audit, or all pages of an outputs folder with
their index, results.csv and results.json."""

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import pandas as pd
from markupsafe import Markup

from perfkit.comparison.stored import comparison_folders, read_comparison
from perfkit.config import portable, resolved_path
from perfkit.logs.audit import audit_folders, read_audit
from perfkit.report import audit, comparison, pages
from perfkit.report.measurement import diagnosed, outcome, read_steps, write_measurement
from perfkit.report.section import Section, markup
from perfkit.report.summary import Summary, read_all
from perfkit.results.frames import records
from perfkit.results.outputs import contradiction, load
from perfkit.results.store import (
    NOTEBOOK,
    RESULT,
    Measurement,
    ResultError,
    folders,
    make_folder,
    write_atomically,
)
from perfkit.system.environment import usable_cores
from perfkit.system.scratch import end_with_parent
from perfkit.text import format
from perfkit.text.language import LANGUAGES, file_name, gettext, in_language

STORED: dict[str, tuple[Callable[[Path], Iterable[Path]], Callable[[Path], Any]]] = {
    "comparison": (comparison_folders, read_comparison),
    "audit": (audit_folders, read_audit),
}
"""Stored kinds with a page, besides measurements -> functions that list and read them."""
SUMMARY_PAGES = ("summary", "published", "history")
FILES = ["comparison.json", "audit.json", NOTEBOOK, "../results.csv", "../results.json"]
"""Files that pages other than a measurement's link to, if they exist."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of text that a spreadsheet would take for a formula."""


def write_site(outputs: Path, progress: Callable[[int], None]) -> tuple[Path, list[str]]:
    """Write every page under `outputs`; call `progress(1)` after each of the `parts`. Return
    the path of the index, and the reasons why files were left out."""
    jobs = _jobs(outputs)
    # Pages link to pages that are written later, such as the summary.
    planned = [folder for _kind, folder in jobs] + [outputs / name for name in SUMMARY_PAGES]
    workers = usable_cores()
    broken: list[str] = []
    contradicting: dict[str, list[str]] = {}
    found = (planned, diagnosed(outputs))
    with ProcessPoolExecutor(workers, initializer=_begin, initargs=found) as pool:
        write_one = partial(_write_one, outputs)
        for reasons, problems in pool.map(write_one, *zip(*jobs, strict=True)):
            broken += reasons
            contradicting |= problems
            progress(1)
        frame = _without(load(outputs), contradicting)
        write_tables(outputs, frame)
        summary = Summary.of(outputs, frame)
        summary.unreadable.extend(broken)
        for _page in pool.map(partial(write_summary, summary), LANGUAGES):
            progress(1)
    left_out = dict.fromkeys([*summary.unreadable, *_stored(outputs)[1]])
    return write_index(outputs, broken, frame), [*left_out]


def _without(frame: pd.DataFrame, contradicting: Mapping[str, list[str]]) -> pd.DataFrame:
    """Return the frame of `load` without the measurements in the folders of these names, whose
    raw files have these problems."""
    agreeing = frame[~frame["folder"].isin([*contradicting])]
    reasons = [contradiction(name, problems) for name, problems in contradicting.items()]
    agreeing.attrs["unreadable"] = [*frame.attrs["unreadable"], *reasons]
    return agreeing


def _begin(planned: list[Path], diagnosed: dict[str, list[str]]) -> None:
    """Initialize a pool process: it ends with its parent, which alone handles interrupts."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pages.PLANNED.update(planned)
    pages.DIAGNOSED.update(diagnosed)


def parts(outputs: Path) -> int:
    """Return the number of parts that write_site writes."""
    return len(_jobs(outputs)) + len(LANGUAGES)


def _jobs(outputs: Path) -> list[tuple[str, Path]]:
    places = {"measurement": folders} | {kind: found for kind, (found, _read) in STORED.items()}
    return [(kind, folder) for kind, found in places.items() for folder in found(outputs)]


def _write_one(
    outputs: Path, kind: str, folder: Path
) -> tuple[list[str], dict[str, list[str]]]:
    """Write the page of the result in `folder`; if the result can't be read, the page gives the
    reason. Return other reasons for a missing page, and for a measurement that contradicts its
    raw files, by folder name, how."""
    try:
        if kind == "measurement":
            measurement = Measurement.read(folder)
            write_measurement(measurement)
            problems = read_steps(measurement).checks.disagreements
            return [], {folder.name: problems} if problems else {}
        for language in LANGUAGES:
            _write(kind, folder, language)
    except ResultError as error:
        pages.write_unreadable(folder, outputs, str(error).replace(f"{outputs}/", ""))
    # A foreign result may fail in unforeseen ways; the other pages must be written.
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        return [f"{folder.name}: its page could not be written ({reason})"], {}
    return [], {}


def write_summary(summary: Summary, language: str) -> None:
    """Write the pages of SUMMARY_PAGES in one language."""
    for kind in SUMMARY_PAGES:
        _write(kind, summary, language)


def _write(kind: str, shown: Summary | Path, language: str, keep: bool = False) -> None:
    """Write the page of the notebook `kind` for a summary or a stored folder; with `keep`,
    the notebook too."""
    outputs, folder = _places(kind, shown)
    make_folder(folder)
    with in_language(language):
        title, made = _facts(kind, shown)
        names: dict[str, Any] = {"folder": folder}
        values = {"folder": portable(str(folder))}
        if isinstance(shown, Summary):
            # A copy, since cached properties of the summary may be in another language.
            names, values = {"summary": replace(shown)}, {"outputs_dir": portable(str(outputs))}
        page: dict[str, Any] = {"here": kind, "title": title, "made": made, "files": FILES}
        notebook, values = pages.suite_notebook(kind), values | {"lang": language}
        pages.write_notebook(
            folder, notebook, names, values, title, keep=keep, outputs=outputs, **page
        )


def _places(kind: str, shown: Summary | Path) -> tuple[Path, Path]:
    """Return the folder of outputs, and the page's folder."""
    if isinstance(shown, Summary):
        return shown.outputs, shown.outputs / kind
    return shown.parent.parent, shown


def _facts(kind: str, shown: Any) -> tuple[str, str]:
    """Return the page's title, and the time and devices of its measurements."""
    if kind in STORED:
        known = {"comparison": comparison.comparison_facts, "audit": audit.audit_facts}
        return known[kind](shown)
    heading = pages.suite_notebook(kind).cells[0].source.removeprefix("# ")
    return gettext(heading), _made(shown.measurements)


def _made(measurements: pd.DataFrame) -> str:
    """Return the newest time and up to three devices."""
    places = measurements.filter(["device", "environment.gpus", "environment.cpu"])
    devices = dict.fromkeys(map(format.device_name, records(places)))
    newest = [format.minute(measurements["created"].max())] if devices else []
    return " · ".join([*newest, *devices][:4])


def write_index(
    outputs: Path, broken: Sequence[str] = (), frame: pd.DataFrame | None = None
) -> Path:
    """Write the index in every language: measurements by model, newest first, and reasons for
    unreadable files, with `broken` in addition. Return the path of the English index."""
    frame = load(outputs) if frame is None else frame
    newest_first = frame.sort_values(["created", "folder"], ascending=False)
    other, reasons = _stored(outputs)
    summary = outputs / "summary" / "report.html"
    newest = max((file.stat().st_mtime for file in outputs.glob(f"*/{RESULT}")), default=0)
    rows = records(newest_first)
    for language in LANGUAGES:
        with in_language(language):
            page = pages.TEMPLATES.get_template("index.html.j2").render(
                title=gettext("Training throughput: measurements"),
                stem="index",
                here="index",
                outputs=outputs,
                folder=outputs,
                made=_made(frame),
                rows=rows,
                unreadable=[*frame.attrs["unreadable"], *reasons, *broken],
                stale=summary.exists() and summary.stat().st_mtime < newest,
                other=other,
            )
        write_atomically(outputs / file_name("index", language), page)
    return outputs / "index.html"


def _stored(outputs: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return interleaved comparisons and audits by kind and folder, and reasons for unreadable
    ones."""
    reasons: list[str] = []
    found = {
        kind: read_all(places(outputs), read, outputs, reasons)
        for kind, (places, read) in STORED.items()
    }
    return found, reasons


def write_tables(outputs: Path, frame: pd.DataFrame) -> None:
    """Write results.csv and results.json, with all columns of `perfkit.load` and a row per
    measurement. In the CSV, an apostrophe precedes text that looks like a formula."""
    records = frame.to_json(orient="records", indent=1, double_precision=15)
    write_atomically(outputs / "results.json", records)
    tame = frame.map(lambda v: f"'{v}" if isinstance(v, str) and v.startswith(FORMULA) else v)
    tame["repeat_throughputs"] = [" ".join(map(repr, v)) for v in frame["repeat_throughputs"]]
    write_atomically(outputs / "results.csv", tame.to_csv(index=False))


def publish(measurement: Measurement) -> Section:
    """Write the measurement's page, results.csv, results.json and the index. Raises
    MeasurementError if the measurement is not complete, so that papermill fails."""
    outputs = measurement.folder.parent
    write_measurement(measurement, notebook=True)
    frame = load(outputs)
    write_tables(outputs, frame)
    write_index(outputs, frame=frame)
    return outcome(measurement)


def _publish(kind: str, of: Summary | str | Path) -> Section:
    """Write page and notebook of a summary, or of the folder of a comparison or an audit
    (relative paths start at the checkout), the pages of compared measurements, and the index.
    Raises ResultError if the folder can't be read."""
    shown = of if isinstance(of, Summary) else resolved_path(str(of))
    outputs, folder = _places(kind, shown)
    for variant in read_comparison(folder).variants if kind == "comparison" else ():
        with suppress(ResultError):
            write_measurement(Measurement.read(outputs / variant.id), notebook=True)
    frame = load(outputs)
    write_tables(outputs, frame)
    for language in LANGUAGES:
        _write(kind, shown, language, keep=language == "en")
    write_index(outputs, frame=frame)
    page = portable(str(folder / "report.html"))
    link = markup(Markup('<p><a href="report.html">%s</a></p>') % page)
    return replace(link, page_folder=folder)


publish_summary = partial(_publish, "summary")
publish_published = partial(_publish, "published")
publish_history = partial(_publish, "history")
publish_comparison = partial(_publish, "comparison")
publish_audit = partial(_publish, "audit")
