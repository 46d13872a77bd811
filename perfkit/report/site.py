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

from perfkit.analysis.comparison.stored import comparison_folders, read_comparison
from perfkit.audit.audit import audit_folders, read_audit
from perfkit.core.paths import portable, resolved_path
from perfkit.core.results.frames import records
from perfkit.core.results.outputs import contradiction, load
from perfkit.core.results.store import (
    NOTEBOOK,
    RESULT,
    Measurement,
    ResultError,
    folders,
    make_folder,
    write_atomically,
)
from perfkit.core.results.summarize import check_against_raw
from perfkit.core.system.environment import usable_cores
from perfkit.core.system.scratch import end_with_parent
from perfkit.report import pages
from perfkit.report.audit import audit_facts
from perfkit.report.comparison import ComparisonPage, comparison_facts
from perfkit.report.measurement import checked, outcome, write_measurement
from perfkit.report.section import Section, markup
from perfkit.report.summary import Summary, read_all
from perfkit.report.text import names
from perfkit.report.text.language import LANGUAGES, file_name, gettext, in_language

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
    site = pages.Site.read(outputs, planned)
    broken: list[str] = []
    contradicting: dict[str, list[str]] = {}
    with ProcessPoolExecutor(usable_cores(), initializer=_begin) as pool:
        write_one = partial(_write_one, site)
        for reasons, problems in pool.map(write_one, *zip(*jobs, strict=True)):
            broken += reasons
            contradicting |= problems
            progress(1)
        frame = _without(load(outputs), contradicting)
        write_tables(outputs, frame)
        summary = Summary.of(site, frame)
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


def _begin() -> None:
    """Initialize a pool process: it ends with its parent, which alone handles interrupts."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def parts(outputs: Path) -> int:
    """Return the number of parts that write_site writes."""
    return len(_jobs(outputs)) + len(LANGUAGES)


def _jobs(outputs: Path) -> list[tuple[str, Path]]:
    places = {"measurement": folders} | {kind: found for kind, (found, _read) in STORED.items()}
    return [(kind, folder) for kind, found in places.items() for folder in found(outputs)]


def _write_one(
    site: pages.Site, kind: str, folder: Path
) -> tuple[list[str], dict[str, list[str]]]:
    """Write the page of the result in `folder`. Return reasons for a missing page, and for a
    measurement that contradicts its raw files, by folder name, how."""
    try:
        return [], _write_stored(site, kind, folder)
    # A foreign result may fail in unforeseen ways; the other pages must be written.
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        # A number without a page is in the tables, too, and must not escape its check.
        problems = _contradictions(folder) if kind == "measurement" else {}
        return [f"{folder.name}: its page could not be written ({reason})"], problems


def _write_stored(site: pages.Site, kind: str, folder: Path) -> dict[str, list[str]]:
    """Write the page of the result in `folder`; if the result can't be read, the page gives the
    reason. Return how a measurement contradicts its raw files, by folder name."""
    try:
        if kind == "measurement":
            measurement = checked(Measurement.read(folder), site)
            write_measurement(measurement)
            problems = measurement.checks.disagreements
            return {folder.name: problems} if problems else {}
        page = ComparisonPage.read(folder, site) if kind == "comparison" else folder
        for language in LANGUAGES:
            _write(kind, page, site, language)
    except ResultError as error:
        pages.write_unreadable(folder, site, error.relative_to(site.outputs))
    return {}


def _contradictions(folder: Path) -> dict[str, list[str]]:
    """Return how the measurement in `folder` contradicts its raw files, by folder name."""
    try:
        problems = check_against_raw(Measurement.read(folder))
    except ResultError:
        # `load` leaves it out and gives the reason.
        return {}
    return {folder.name: problems} if problems else {}


def write_summary(summary: Summary, language: str) -> None:
    """Write the pages of SUMMARY_PAGES in one language."""
    for kind in SUMMARY_PAGES:
        _write(kind, summary, summary.site, language)


Content = Summary | ComparisonPage | Path
"""What a page shows besides a measurement; a path is an audit's folder."""


def _write(
    kind: str, content: Content, site: pages.Site, language: str, keep: bool = False
) -> None:
    """Write the page of the notebook `kind`; with `keep`, the notebook too."""
    folder = _folder(kind, content)
    make_folder(folder)
    with in_language(language):
        title, made = _facts(kind, content)
        names: dict[str, Any] = {"folder": content}
        values = {"folder": portable(str(folder))}
        if isinstance(content, Summary):
            # A copy, since cached properties of the summary may be in another language.
            names = {"summary": replace(content)}
            values = {"outputs_dir": portable(str(site.outputs))}
        page: dict[str, Any] = {"here": kind, "title": title, "made": made, "files": FILES}
        notebook, values = pages.suite_notebook(kind), values | {"lang": language}
        pages.write_notebook(
            folder, notebook, names, values, title, keep=keep, site=site, **page
        )


def _folder(kind: str, content: Content) -> Path:
    """Return the page's folder."""
    if isinstance(content, Path):
        return content
    return content.outputs / kind if isinstance(content, Summary) else content.folder


def _facts(kind: str, content: Content) -> tuple[str, str]:
    """Return the page's title, and the time and devices of its measurements."""
    if isinstance(content, ComparisonPage):
        return comparison_facts(content)
    if isinstance(content, Path):
        return audit_facts(content)
    heading = pages.suite_notebook(kind).cells[0].source.removeprefix("# ")
    return gettext(heading), _made(content.measurements)


def _made(measurements: pd.DataFrame) -> str:
    """Return the newest time and up to three devices."""
    places = measurements.filter(["device", "environment.gpus", "environment.cpu"])
    devices = dict.fromkeys(map(names.device_name, records(places)))
    newest = [names.minute(measurements["created"].max())] if devices else []
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
                site=pages.Site(outputs),
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
    outputs, page = measurement.folder.parent, checked(measurement)
    write_measurement(page, notebook=True)
    frame = load(outputs)
    write_tables(outputs, frame)
    write_index(outputs, frame=frame)
    return outcome(page)


def publish_comparison(folder: str | Path) -> Section:
    """Write page and notebook of the comparison in a folder (a relative path starts at the
    checkout), the pages of its measurements, tables and index. Raises ResultError if the
    folder can't be read."""
    page = ComparisonPage.read(folder)
    for variant in page.comparison.variants:
        with suppress(ResultError):
            write_measurement(Measurement.read(page.site.outputs / variant.id), notebook=True)
    return _publish("comparison", page, page.site)


def publish_audit(folder: str | Path) -> Section:
    """Write page and notebook of the audit in a folder (a relative path starts at the
    checkout), tables and index. Raises ResultError if the folder can't be read."""
    place = resolved_path(str(folder))
    return _publish("audit", place, pages.Site(place.parent.parent))


def publish_summary(summary: Summary) -> Section:
    """Write page and notebook of the summary, tables and index."""
    return _publish("summary", summary, summary.site)


def publish_published(summary: Summary) -> Section:
    """Write page and notebook of the published tables, tables and index."""
    return _publish("published", summary, summary.site)


def publish_history(summary: Summary) -> Section:
    """Write page and notebook of the history, tables and index."""
    return _publish("history", summary, summary.site)


def _publish(kind: str, content: Content, site: pages.Site) -> Section:
    """Write the page, its notebook, tables and index; return a link to the page."""
    frame = load(site.outputs)
    write_tables(site.outputs, frame)
    for language in LANGUAGES:
        _write(kind, content, site, language, keep=language == "en")
    write_index(site.outputs, frame=frame)
    folder = _folder(kind, content)
    page = portable(str(folder / "report.html"))
    return markup(Markup('<p><a href="report.html">%s</a></p>') % page, folder)
