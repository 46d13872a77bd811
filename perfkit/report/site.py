"""Writes pages: that of one measurement, comparison or audit, or all of an outputs folder."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

from markupsafe import Markup

from perfkit.comparison.live.stored import read_comparison
from perfkit.config import portable, resolved_path
from perfkit.report import audit, comparison, pages
from perfkit.report.index import STORED, stored_besides, write_index, write_tables
from perfkit.report.measurement import write_measurement
from perfkit.report.outcome import outcome
from perfkit.report.section import Section, paragraph
from perfkit.report.summary import Summary
from perfkit.results.frames import load
from perfkit.results.store import NOTEBOOK, Measurement, ResultError, folders
from perfkit.text import format
from perfkit.text.language import LANGUAGES, gettext, in_language


def _made(summary: Summary) -> str:
    places = summary.measurements.filter(["device", "environment.gpus", "environment.cpu"])
    devices = map(format.device_name, places.to_dict("records"))
    return format.made(summary.measurements["created"], devices)


FACTS: dict[str, Callable[[Any], tuple[str, str]]] = {
    "comparison": comparison.comparison_facts,
    "audit": audit.audit_facts,
    "summary": lambda s: (gettext("Training throughput: summary"), _made(s)),
    "published": lambda s: (gettext("Published tables"), _made(s)),
    "history": lambda s: (gettext("History of throughput"), _made(s)),
}
"""What gives a page's title, and when and on what it was made, by the name of its notebook."""
SUMMARY_PAGES = ("summary", "published", "history")
FILES = ["comparison.json", "audit.json", NOTEBOOK, "../results.csv", "../results.json"]
"""What such a page links to, where it is."""


def write_site(outputs: Path, progress: Callable[[int], None]) -> tuple[Path, list[str]]:
    """Write every page under `outputs`, and call `progress` with 1 for each of the `parts`.
    Returns the index's path, and why anything was left out, as summary and index say too."""
    broken: list[str] = []
    jobs = _jobs(outputs)
    # Pages link to others that are written later, all of them to the summary.
    planned = [folder for _kind, folder in jobs] + [outputs / name for name in SUMMARY_PAGES]
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, initializer=_plan, initargs=(planned,)) as pool:
        write_one = partial(_write_one, outputs)
        for reasons in pool.map(write_one, *zip(*jobs, strict=True), chunksize=8):
            broken += reasons
            progress(1)
        summary = Summary.read(outputs)
        summary.unreadable.extend(broken)
        write_tables(outputs, summary.measurements)
        for _page in pool.map(partial(write_summary, summary), LANGUAGES):
            progress(1)
    left_out = dict.fromkeys([*summary.unreadable, *stored_besides(outputs)[1]])
    return write_index(outputs, broken), [*left_out]


def _plan(folders: list[Path]) -> None:
    pages.PLANNED.update(folders)


def parts(outputs: Path) -> int:
    """How many parts write_site has to write."""
    return len(_jobs(outputs)) + len(LANGUAGES)


def _jobs(outputs: Path) -> list[tuple[str, Path]]:
    found = {"measurement": folders} | {
        kind: places for kind, (places, _read) in STORED.items()
    }
    return [(kind, folder) for kind, places in found.items() for folder in places(outputs)]


def _write_one(outputs: Path, kind: str, folder: Path) -> list[str]:
    """Write the page of what is stored in `folder`. If that can't be read, the reason is on its
    page, and in the index; any other reason why there is no page is returned."""
    try:
        if kind == "measurement":
            write_measurement(Measurement.read(folder))
        for language in LANGUAGES if kind in STORED else ():
            _write(kind, folder, language, folder)
    except ResultError as error:
        pages.write_unreadable(folder, outputs, str(error).replace(f"{outputs}/", ""))
    # A result from elsewhere may be odd in unforeseen ways; the others' pages are written.
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        return [f"{folder.name}: its page could not be written ({reason})"]
    return []


def write_summary(summary: Summary, language: str) -> None:
    """Write the pages of SUMMARY_PAGES in one language."""
    for kind in SUMMARY_PAGES:
        _write(kind, summary.outputs / kind, language, summary)


def _write(
    kind: str, folder: Path, language: str, shown: Summary | Path, png: bool = False
) -> None:
    """Write the page of the notebook `kind` about `shown` into `folder`; with PNGs, the
    notebook itself."""
    folder.mkdir(exist_ok=True)
    with in_language(language):
        names: dict[str, Any] = {"folder": folder}
        outputs, values = folder.parent.parent, {"folder": portable(str(folder))}
        if isinstance(shown, Summary):
            # A copy: what the summary has worked out may be in another language.
            names, outputs = {"summary": replace(shown)}, shown.outputs
            values = {"outputs_dir": portable(str(outputs))}
        title, made = FACTS[kind](shown)
        notebook = pages.suite_notebook(kind)
        values |= {"lang": language}
        filled = pages.evaluated(notebook, names, values, png=png, heading=title)
        page: dict[str, Any] = {"here": kind, "title": title, "made": made}
        pages.write_page(folder, filled, outputs=outputs, files=FILES, keep=png, **page)


def publish(measurement: Measurement) -> Section:
    """Write the measurement's page, results.csv, results.json and the index; then raise
    MeasurementError if it is not complete, so that papermill ends non-zero too."""
    outputs = measurement.folder.parent
    write_measurement(measurement, notebook=True)
    write_tables(outputs, load(outputs))
    write_index(outputs)
    return outcome(measurement)


def _publish(kind: str, shown: Summary | str | Path) -> Section:
    """Write page and notebook of `shown`, a summary or the folder of a comparison or an audit
    (a relative path starts at the checkout), the pages of what it compares, and the index.
    Raises ResultError."""
    if isinstance(shown, Summary):
        outputs, folder = shown.outputs, shown.outputs / kind
    else:
        shown = folder = resolved_path(str(shown))
        outputs = folder.parent.parent
    for variant in read_comparison(folder).sides if kind == "comparison" else ():
        with suppress(ResultError):
            write_measurement(Measurement.read(outputs / variant.id), notebook=True)
    write_tables(outputs, load(outputs))
    for language in LANGUAGES:
        _write(kind, folder, language, shown, png=language == "en")
    write_index(outputs)
    link = Markup('<a href="report.html">%s</a>') % portable(str(folder / "report.html"))
    return replace(paragraph(link), page_folder=folder)


publish_summary = partial(_publish, "summary")
publish_published = partial(_publish, "published")
publish_history = partial(_publish, "history")
publish_comparison = partial(_publish, "comparison")
publish_audit = partial(_publish, "audit")
