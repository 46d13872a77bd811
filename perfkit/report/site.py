"""Writes the page of a measurement, comparison or audit, or all pages of an outputs folder with
their index, results.csv and results.json."""

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import pandas as pd

from perfkit.analysis.comparison.history import movers
from perfkit.analysis.comparison.stored import comparison_folders, read_comparison
from perfkit.audit.audit import audit_folders, read_audit
from perfkit.measuring.format import minute
from perfkit.measuring.paths import outputs_path
from perfkit.measuring.results.frames import records
from perfkit.measuring.results.outputs import contradiction, load
from perfkit.measuring.results.store import (
    NOTEBOOK,
    RESULT,
    Measurement,
    ResultError,
    folders,
    write_atomically,
)
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.measuring.system.environment import usable_cores
from perfkit.report.audit import audit_facts
from perfkit.report.audit import page as audit_page
from perfkit.report.comparison import ComparisonPage, comparison_facts
from perfkit.report.comparison import page as comparison_page
from perfkit.report.elements import link, paragraph
from perfkit.report.fleet import page as fleet_page
from perfkit.report.history import page as history_page
from perfkit.report.index import Index
from perfkit.report.links import Site
from perfkit.report.measurement import checked, outcome, write_measurement
from perfkit.report.pages import Filling, Page, suite_notebook, write_page, write_unreadable
from perfkit.report.published import page as published_page
from perfkit.report.section import Section
from perfkit.report.summarized import Summary, read_all
from perfkit.report.summary import page as summary_page
from perfkit.report.text import names
from perfkit.report.text.language import LANGUAGES, gettext, in_language
from perfkit.timing.failure import portable
from perfkit.timing.rank_process import end_with_parent

FOLDERS: dict[str, Callable[[Path], Iterable[Path]]] = {
    "measurement": folders,
    "comparison": comparison_folders,
    "audit": audit_folders,
}
"""Kind of stored result -> function that lists its folders below an outputs folder."""
PAGES: dict[str, Callable[[Any], Section]] = {
    "summary": summary_page,
    "published": published_page,
    "history": history_page,
    "fleet": fleet_page,
    "comparison": comparison_page,
    "audit": audit_page,
}
"""Name of a notebook -> function that returns its page."""
SUMMARY_PAGES = ("summary", "published", "history")
FLEET = "fleet"
"""The page of a site in which measurements name their nodes."""
FILES = ["comparison.json", "audit.json", NOTEBOOK, "../results.csv", "../results.json"]
"""Files that pages other than a measurement's link to, if they exist."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of text that a spreadsheet would take for a formula."""


@dataclass(frozen=True)
class Written:
    """What came of a result's page: the reason if there is none of its own, and how a
    measurement differs from its raw files."""

    folder: Path
    reason: str = ""
    difference: str = ""


def write_site(outputs: Path, progress: Callable[[int], None]) -> tuple[Path, list[str]]:
    """Write every page under `outputs`; call `progress(1)` after each of the `parts`. Return
    the path of the index, and the reasons why files were left out."""
    results = _results(outputs)
    stored = load(outputs)
    summaries = [outputs / name for name in summary_pages(stored)]
    # Pages link to pages that are written later, such as the summary.
    planned = [folder for _kind, folder in results] + summaries
    site = Site.of(outputs, filter(_takes_page, planned))
    with ProcessPoolExecutor(usable_cores(), initializer=_begin) as pool:
        pages = []
        for page in pool.map(partial(_write_one, site), *zip(*results, strict=True)):
            pages.append(page)
            progress(1)
        frame = _without(stored, pages)
        write_tables(outputs, frame)
        summarized = Summary.of(site, frame)
        reasons = [page.reason for page in pages if page.reason]
        for folder in summaries:
            if not site.has_page(folder.name):
                reasons.append(f"{folder.name}: not a folder that a page can be written to")
        summarized.unreadable.extend(reasons)
        for _page in pool.map(partial(write_summary, summarized), LANGUAGES):
            progress(1)
    index = write_index(site, frame, reasons)
    left_out = dict.fromkeys(
        [*summarized.unreadable, *_comparisons_and_audits(outputs).reasons]
    )
    return index, [*left_out]


def _takes_page(folder: Path) -> bool:
    """Whether a page can be written in a folder. One that takes none may have somebody
    else's."""
    if not os.path.lexists(folder):
        return True
    return folder.is_dir() and os.access(folder, os.W_OK)


def _without(frame: pd.DataFrame, pages: Iterable[Written]) -> pd.DataFrame:
    """Return the frame of `load` without the measurements that differ from their raw files."""
    differing = {page.folder.name: page.difference for page in pages if page.difference}
    agreeing = frame[~frame["folder"].isin([*differing])]
    reasons = [contradiction(name, difference) for name, difference in differing.items()]
    agreeing.attrs["unreadable"] = [*frame.attrs["unreadable"], *reasons]
    return agreeing


def _begin() -> None:
    """Initialize a pool process: it ends with its parent, which alone handles interrupts."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def parts(outputs: Path) -> int:
    """Return the number of parts that write_site writes."""
    return len(_results(outputs)) + len(LANGUAGES)


def _results(outputs: Path) -> list[tuple[str, Path]]:
    """Return kind and folder of every stored result."""
    return [(kind, folder) for kind, listed in FOLDERS.items() for folder in listed(outputs)]


def _write_one(site: Site, kind: str, folder: Path) -> Written:
    """Write the page of the result in `folder`, whatever happens."""
    try:
        return Written(folder, difference=_write_stored(site, kind, folder))
    # A foreign result may fail in unforeseen ways; the other pages must be written.
    except Exception as error:
        problem = shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        reason = f"{folder.name}: its page could not be written ({problem})"
        # A number without a page is in the tables, too, and must not escape its check.
        difference = _difference(folder) if kind == "measurement" else ""
        with suppress(OSError, ValueError):
            # In the place of the page, where somebody else's may be.
            write_unreadable(folder, site, reason)
        return Written(folder, reason, difference)


def _write_stored(site: Site, kind: str, folder: Path) -> str:
    """Write the page of the result in `folder`, or the reason why the result can't be read.
    Return how a measurement differs from its raw files."""
    try:
        if kind == "measurement":
            return _write_checked(site, folder)
        content = ComparisonPage.read(folder, site) if kind == "comparison" else folder
        for language in LANGUAGES:
            _write(kind, content, site, language)
    except ResultError as error:
        write_unreadable(folder, site, error.relative_to(site.outputs))
    return ""


def _write_checked(site: Site, folder: Path) -> str:
    """Write the page of the measurement in `folder`."""
    measurement = checked(Measurement.read(folder), site)
    write_measurement(measurement)
    return measurement.checks.difference


def _difference(folder: Path) -> str:
    """Return how the measurement in `folder` differs from its raw files."""
    try:
        return check_against_raw(Measurement.read(folder))
    except ResultError:
        # `load` leaves it out and gives the reason.
        return ""


def write_summary(summary: Summary, language: str) -> None:
    """Write the pages about all measurements in one language."""
    for kind in summary_pages(summary.measurements):
        if _takes_page(summary.outputs / kind):
            _write(kind, summary, summary.site, language)


def summary_pages(measurements: pd.DataFrame) -> list[str]:
    """Return the names of the pages about all measurements; of a fleet, too, if they name their
    nodes."""
    nodes = measurements["node"].fillna("")
    return [*SUMMARY_PAGES, FLEET] if nodes.ne("").any() else [*SUMMARY_PAGES]


Content = Summary | ComparisonPage | Path
"""What a page shows besides a measurement; a path is an audit's folder."""


def _write(kind: str, content: Content, site: Site, language: str, keep: bool = False) -> None:
    """Write the page of the notebook `kind`; with `keep`, the notebook too."""
    folder = _folder(kind, content)
    folder.mkdir(parents=True, exist_ok=True)
    with in_language(language):
        title, made = _facts(kind, content)
        values = {"folder": portable(str(folder))}
        if isinstance(content, Summary):
            # A copy, since cached properties of the summary may be in another language.
            content = replace(content)
            values = {"outputs_dir": portable(str(site.outputs))}
        section = partial(PAGES[kind], content)
        filling = Filling(section, values | {"lang": language}, title, keep)
        page = Page(site, folder, title, made, place=kind, files=FILES)
        write_page(page, suite_notebook(kind), filling)


def _folder(kind: str, content: Content) -> Path:
    """Return the page's folder."""
    match content:
        case Path():
            return content
        case Summary():
            return content.outputs / kind
        case ComparisonPage():
            return content.folder


def _facts(kind: str, content: Content) -> tuple[str, str]:
    """Return the page's title, and the time and devices of its measurements."""
    match content:
        case ComparisonPage():
            return comparison_facts(content)
        case Path():
            return audit_facts(content)
        case Summary():
            heading = suite_notebook(kind).cells[0].source.removeprefix("# ")
            return gettext(heading), _made(content.measurements)


def _made(measurements: pd.DataFrame) -> str:
    """Return the newest time and up to three devices."""
    places = measurements.filter(["device", "environment.gpus", "environment.cpu"])
    devices = dict.fromkeys(map(names.device_name, records(places)))
    if not devices:
        return ""
    newest = minute(measurements["created"].max())
    return " · ".join([newest, *devices][:4])


def write_index(
    site: Site, frame: pd.DataFrame | None = None, broken: Sequence[str] = ()
) -> Path:
    """Write the index in every language: measurements by model, newest first, and reasons for
    unreadable files, with `broken` in addition. Return the path of the English index."""
    outputs = site.outputs
    frame = load(outputs) if frame is None else frame
    stored = _comparisons_and_audits(outputs)
    index = Index(
        site=site,
        measurements=records(frame.sort_values(["created", "folder"], ascending=False)),
        comparisons=stored.comparisons,
        audits=stored.audits,
        left_out=[*frame.attrs["unreadable"], *stored.reasons, *broken],
        is_summary_old=_is_summary_old(outputs),
        movers=movers(frame),
    )
    for language in LANGUAGES:
        with in_language(language):
            title = gettext("Training throughput: measurements")
            index.write(Page(site, outputs, title, _made(frame), stem="index", place="index"))
    return outputs / "index.html"


def _is_summary_old(outputs: Path) -> bool:
    """Whether a result is newer than the summary's page."""
    summary = outputs / "summary" / "report.html"
    times = [file.stat().st_mtime for file in outputs.glob(f"*/{RESULT}")]
    return summary.exists() and summary.stat().st_mtime < max(times, default=0)


@dataclass(frozen=True)
class Stored:
    """Stored comparisons and audits by folder, and reasons for unreadable ones."""

    comparisons: Mapping[str, Any]
    audits: Mapping[str, Any]
    reasons: list[str]


def _comparisons_and_audits(outputs: Path) -> Stored:
    reasons: list[str] = []
    comparisons = read_all(comparison_folders(outputs), read_comparison, outputs, reasons)
    audits = read_all(audit_folders(outputs), read_audit, outputs, reasons)
    return Stored(comparisons, audits, reasons)


def write_tables(outputs: Path, frame: pd.DataFrame) -> None:
    """Write results.csv and results.json, with all columns of `perfkit.load` and a row per
    measurement. In the CSV, an apostrophe precedes text that looks like a formula."""
    rows = frame.to_json(orient="records", double_precision=15)
    write_atomically(outputs / "results.json", rows)
    tame = frame.map(_tame)
    repeats = frame["repeat_throughputs"]
    tame["repeat_throughputs"] = [" ".join(map(repr, values)) for values in repeats]
    write_atomically(outputs / "results.csv", tame.to_csv(index=False))


def _tame(value: Any) -> Any:
    """Return a value that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def publish(measurement: Measurement) -> Section:
    """Write the measurement's page, results.csv, results.json and the index. Raises
    MeasurementError if the measurement is not complete, so that papermill fails."""
    outputs = measurement.folder.parent
    page = checked(measurement)
    write_measurement(page, notebook=True)
    frame = load(outputs)
    write_tables(outputs, frame)
    write_index(page.site, frame)
    return outcome(page)


def publish_comparison(folder: str | Path) -> Section:
    """Write page and notebook of the comparison in a folder, the pages of its measurements,
    tables and index. Raises ResultError if the folder can't be read."""
    page = ComparisonPage.read(folder)
    for variant in page.comparison.variants:
        with suppress(ResultError):
            write_measurement(Measurement.read(page.site.outputs / variant.id), notebook=True)
    return _publish("comparison", page, page.site)


def publish_audit(folder: str | Path) -> Section:
    """Write page and notebook of the audit in a folder, tables and index. Raises ResultError if
    the folder can't be read."""
    place = outputs_path(folder)
    return _publish("audit", place, Site(place.parent.parent))


def publish_page(kind: str, summary: Summary) -> Section:
    """Write a page about all measurements (summary, published, history, fleet), its notebook,
    tables and index."""
    return _publish(kind, summary, summary.site)


def _publish(kind: str, content: Content, site: Site) -> Section:
    """Write the page, its notebook, tables and index; return a link to the page."""
    frame = load(site.outputs)
    write_tables(site.outputs, frame)
    for language in LANGUAGES:
        _write(kind, content, site, language, keep=language == "en")
    write_index(site, frame)
    folder = _folder(kind, content)
    page = str(folder / "report.html")
    return paragraph(link("report.html", page)).on_page_in(folder)
