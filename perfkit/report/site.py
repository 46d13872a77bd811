"""Writes pages: of one measurement, comparison or audit, or all of an outputs folder with their
index, results.csv and results.json."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from perfkit.comparison.stored import comparison_folders, read_comparison
from perfkit.config import portable, resolved_path
from perfkit.logs.audit import audit_folders, read_audit
from perfkit.report import audit, comparison, pages
from perfkit.report.measurement import outcome, read_steps, write_measurement
from perfkit.report.section import Section, markup
from perfkit.report.summary import Summary, read_all
from perfkit.results.frames import as_frame, measurements
from perfkit.results.store import (
    NOTEBOOK,
    RESULT,
    Measurement,
    ResultError,
    folders,
    make_folder,
    write_atomically,
)
from perfkit.results.summarize import check_against_raw
from perfkit.system.scratch import end_with_parent
from perfkit.text import format
from perfkit.text.language import LANGUAGES, file_name, gettext, in_language

STORED: dict[str, tuple[Callable[[Path], Iterable[Path]], Callable[[Path], Any]]] = {
    "comparison": (comparison_folders, read_comparison),
    "audit": (audit_folders, read_audit),
}
"""What has a page besides measurements: where below the outputs, and how it is read."""
SUMMARY_PAGES = ("summary", "published", "history")
FILES = ["comparison.json", "audit.json", NOTEBOOK, "../results.csv", "../results.json"]
"""What all these pages link to, where it is."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet takes for a formula."""


def write_site(outputs: Path, progress: Callable[[int], None]) -> tuple[Path, list[str]]:
    """Write every page under `outputs`, and call `progress` with 1 for each of the `parts`.
    Returns the index's path, and why anything was left out, as summary and index say too."""
    jobs = _jobs(outputs)
    # Pages link to others that are written later, all of them to the summary.
    planned = [folder for _kind, folder in jobs] + [outputs / name for name in SUMMARY_PAGES]
    workers = len(os.sched_getaffinity(0))
    broken: list[str] = []
    checked: dict[str, list[str] | None] = {}
    with ProcessPoolExecutor(workers, initializer=_begin, initargs=(planned,)) as pool:
        write_one = partial(_write_one, outputs)
        for reasons, problems in pool.map(write_one, *zip(*jobs, strict=True), chunksize=8):
            broken += reasons
            checked |= problems
            progress(1)
        found = _read(outputs, checked)
        summary = Summary.read(outputs, found.frame)
        summary.unreadable.extend(broken)
        write_tables(outputs, found.frame)
        for _page in pool.map(partial(write_summary, summary), LANGUAGES):
            progress(1)
    left_out = dict.fromkeys([*summary.unreadable, *_stored(outputs)[1]])
    return write_index(outputs, broken, found), [*left_out]


def _begin(planned: list[Path]) -> None:
    """In each process: it ends with the one that writes the site, which an interrupt ends."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pages.PLANNED.update(planned)


def parts(outputs: Path) -> int:
    """How many parts write_site has to write."""
    return len(_jobs(outputs)) + len(LANGUAGES)


def _jobs(outputs: Path) -> list[tuple[str, Path]]:
    places = {"measurement": folders} | {kind: found for kind, (found, _read) in STORED.items()}
    return [(kind, folder) for kind, found in places.items() for folder in found(outputs)]


def _write_one(
    outputs: Path, kind: str, folder: Path
) -> tuple[list[str], dict[str, list[str] | None]]:
    """Write the page of what is stored in `folder`. If that can't be read, the reason is on its
    page, and in the index. Returns any other reason why there is no page, and of a measurement
    by its folder in what it contradicts its raw files."""
    try:
        if kind == "measurement":
            measurement = Measurement.read(folder)
            write_measurement(measurement)
            return [], {folder.name: read_steps(measurement).checks.disagreements}
        for language in LANGUAGES:
            _write(kind, folder, language)
    except ResultError as error:
        pages.write_unreadable(folder, outputs, str(error).replace(f"{outputs}/", ""))
    # A result from elsewhere may be odd in unforeseen ways; the others' pages are written.
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        return [f"{folder.name}: its page could not be written ({reason})"], {}
    return [], {}


class _Found(NamedTuple):
    """The measurements as `perfkit.load` gives them and, without their repeats, one by one."""

    frame: pd.DataFrame
    rows: list[Measurement]


def _read(outputs: Path, checked: Mapping[str, list[str] | None]) -> _Found:
    """All measurements, read once; those in `checked` are not held against their raw files
    again."""
    found: list[Measurement] = []
    unreadable: list[str] = []

    def check(one: Measurement) -> list[str] | None:
        name = one.folder.name
        return checked[name] if name in checked else check_against_raw(one)

    def kept() -> Iterator[Measurement]:
        for one in measurements(outputs, unreadable, check):
            found.append(replace(one, result=one.result.model_copy(update={"repeats": []})))
            yield one

    frame = as_frame(kept())
    frame.attrs["unreadable"] = unreadable
    return _Found(frame, found)


def write_summary(summary: Summary, language: str) -> None:
    """Write the pages of SUMMARY_PAGES in one language."""
    for kind in SUMMARY_PAGES:
        _write(kind, summary, language)


def _write(kind: str, shown: Summary | Path, language: str, keep: bool = False) -> None:
    """Write the page of the notebook `kind` about a summary or what is stored in a folder; to
    `keep`, the notebook too."""
    outputs, folder = _places(kind, shown)
    make_folder(folder)
    with in_language(language):
        title, made = _facts(kind, shown)
        names: dict[str, Any] = {"folder": folder}
        values = {"folder": portable(str(folder))}
        if isinstance(shown, Summary):
            # A copy: what the summary has worked out may be in another language.
            names, values = {"summary": replace(shown)}, {"outputs_dir": portable(str(outputs))}
        page: dict[str, Any] = {"here": kind, "title": title, "made": made, "files": FILES}
        notebook, values = pages.suite_notebook(kind), values | {"lang": language}
        pages.write_notebook(
            folder, notebook, names, values, title, keep=keep, outputs=outputs, **page
        )


def _places(kind: str, shown: Summary | Path) -> tuple[Path, Path]:
    """The folder of outputs, and the page's in it."""
    if isinstance(shown, Summary):
        return shown.outputs, shown.outputs / kind
    return shown.parent.parent, shown


def _facts(kind: str, shown: Any) -> tuple[str, str]:
    """The page's title, and when and on what it was made."""
    if kind in STORED:
        known = {"comparison": comparison.comparison_facts, "audit": audit.audit_facts}
        return known[kind](shown)
    titles = {
        "summary": gettext("Training throughput: summary"),
        "published": gettext("Published tables"),
        "history": gettext("History of throughput"),
    }
    places = shown.measurements.filter(["device", "environment.gpus", "environment.cpu"])
    devices = map(format.device_name, places.to_dict("records"))
    return titles[kind], format.made(shown.measurements["created"], devices)


def write_index(outputs: Path, broken: Sequence[str] = (), found: _Found | None = None) -> Path:
    """Write the index in every language, by model, newest measurement first; returns the path
    of the English index. It names what can't be read, and what is `broken` besides."""
    frame, rows = found or _read(outputs, {})
    rows.sort(key=lambda row: (row.result.created, row.folder.name), reverse=True)
    other, reasons = _stored(outputs)
    summary = outputs / "summary" / "report.html"
    newest = max((file.stat().st_mtime for file in outputs.glob(f"*/{RESULT}")), default=0)
    results = [row.result for row in rows]
    for language in LANGUAGES:
        with in_language(language):
            page = pages.TEMPLATES.get_template("index.html.j2").render(
                title=gettext("Training throughput: measurements"),
                stem="index",
                here="index",
                outputs=outputs,
                folder=outputs,
                made=format.made((r.created for r in results), map(format.device, results)),
                rows=rows,
                unreadable=[*frame.attrs["unreadable"], *reasons, *broken],
                stale=summary.exists() and summary.stat().st_mtime < newest,
                other=other,
            )
        write_atomically(outputs / file_name("index", language), page)
    return outputs / "index.html"


def _stored(outputs: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The interleaved comparisons and the audits, by kind and folder, and why others can't be
    read."""
    reasons: list[str] = []
    found = {
        kind: read_all(places(outputs), read, outputs, reasons)
        for kind, (places, read) in STORED.items()
    }
    return found, reasons


def write_tables(outputs: Path, frame: pd.DataFrame) -> None:
    """Write results.csv and results.json: all of frames.load, a row for each measurement.

    In the CSV a text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    records = frame.to_json(orient="records", indent=1, double_precision=15)
    write_atomically(outputs / "results.json", records)
    tame = frame.map(lambda v: f"'{v}" if isinstance(v, str) and v.startswith(FORMULA) else v)
    tame["repeat_throughputs"] = [" ".join(map(repr, v)) for v in frame["repeat_throughputs"]]
    write_atomically(outputs / "results.csv", tame.to_csv(index=False))


def publish(measurement: Measurement) -> Section:
    """Write the measurement's page, results.csv, results.json and the index; then raise
    MeasurementError if it is not complete, so that papermill ends non-zero too."""
    outputs = measurement.folder.parent
    write_measurement(measurement, notebook=True)
    found = _read(outputs, {})
    write_tables(outputs, found.frame)
    write_index(outputs, found=found)
    return outcome(measurement)


def _publish(kind: str, of: Summary | str | Path) -> Section:
    """Write page and notebook of a summary or of the folder of a comparison or an audit (a
    relative path starts at the checkout), the pages of what it compares, and the index. Raises
    ResultError."""
    shown = of if isinstance(of, Summary) else resolved_path(str(of))
    outputs, folder = _places(kind, shown)
    for variant in read_comparison(folder).variants if kind == "comparison" else ():
        with suppress(ResultError):
            write_measurement(Measurement.read(outputs / variant.id), notebook=True)
    found = _read(outputs, {})
    write_tables(outputs, found.frame)
    for language in LANGUAGES:
        _write(kind, shown, language, keep=language == "en")
    write_index(outputs, found=found)
    page = portable(str(folder / "report.html"))
    link = markup(Markup('<p><a href="report.html">%s</a></p>') % page)
    return replace(link, page_folder=folder)


publish_summary = partial(_publish, "summary")
publish_published = partial(_publish, "published")
publish_history = partial(_publish, "history")
publish_comparison = partial(_publish, "comparison")
publish_audit = partial(_publish, "audit")
