"""The site of an outputs folder: a page for each measurement, live comparison and audit, the
summary, the suite's own figures, the index, and all numbers in one CSV and one JSON file."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import repeat
from pathlib import Path
from textwrap import shorten
from typing import TypeVar

from perfkit.audit.stored import audit_folders
from perfkit.comparison.live.stored import comparison_folders
from perfkit.config import resolved_path
from perfkit.report.audited import Audited
from perfkit.report.bench import Bench
from perfkit.report.in_turn import InTurn
from perfkit.report.index import unreadable_elsewhere, write_index, write_tables
from perfkit.report.page import write_page
from perfkit.report.pages import (
    from_checkout,
    write_page_in_turn,
    write_page_of_audit,
    write_page_of_figures,
    write_summary,
)
from perfkit.report.rendering import Section, render, write_out
from perfkit.report.summary import FOLDER, Summary
from perfkit.results.figures import figures_file
from perfkit.results.files import Measurement, ResultError, folders, write_atomically
from perfkit.results.frames import load
from perfkit.words.language import LANGUAGES, file_name, gettext, spoken

PAGES_AT_A_TIME = 8
Stored = TypeVar("Stored")


class MeasurementError(RuntimeError):
    """A measurement is not complete; the message says why and what to type next."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


def write_site(outputs: Path, progress: Callable[[int], None]) -> tuple[Path, list[str]]:
    """Write every page under `outputs`, then summary and index; the index's path, and what was
    left out because it can't be read or shown.

    `progress` is told 1 for each of the `parts` that is done. Summary and index name what was
    left out.
    """
    broken = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for trouble in pool.map(_write_page_of, folders(outputs), chunksize=PAGES_AT_A_TIME):
            broken += trouble
            progress(1)
        for folder in comparison_folders(outputs):
            read = partial(InTurn.of, folder)
            broken += _write_from(folder, read, write_page_in_turn, root="../..")
            progress(1)
        for folder in audit_folders(outputs):
            broken += _write_from(
                folder, partial(Audited.of, folder), write_page_of_audit, root="../.."
            )
            progress(1)
        if figures_file(outputs).exists():
            broken += _write_page_of_figures(outputs)
            progress(1)
        summary = Summary.of(outputs)
        summary.unreadable.extend(broken)
        write_tables(outputs, summary.measurements)
        for _page in pool.map(write_summary, repeat(summary), LANGUAGES):
            progress(1)
    return write_index(outputs, broken), [*summary.unreadable, *unreadable_elsewhere(outputs)]


def parts(outputs: Path) -> int:
    """How many parts write_site has to write."""
    pages = [*folders(outputs), *comparison_folders(outputs), *audit_folders(outputs)]
    return len(pages) + len(LANGUAGES) + figures_file(outputs).exists()


def _write_page_of(folder: Path) -> list[str]:
    """Write a measurement's page; what kept it from that."""
    return _write_from(folder, lambda: Measurement.read(folder), write_page)


def _write_page_of_figures(outputs: Path) -> list[str]:
    """Write the page of the suite's own figures; what kept it from that."""
    folder = figures_file(outputs).parent
    return _write_from(folder, lambda: Bench.of(outputs), write_page_of_figures)


def _write_from(
    folder: Path,
    read: Callable[[], Stored],
    write: Callable[[Stored], None],
    root: str = "..",
) -> list[str]:
    """Write the page of what is read from `folder`. One that can't be read stands on its page,
    and is named by the index; what else kept the page from being written comes back."""
    try:
        stored = read()
    except ResultError as error:
        _write_unreadable(folder, str(error).replace(f"{folder.parent}/", ""), root)
        return []
    try:
        write(stored)
    # A result from elsewhere may be odd in ways nobody thought of; the others' pages are
    # written all the same.
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        return [f"{folder.name}: its page could not be written ({reason})"]
    return []


def _write_unreadable(folder: Path, reason: str, root: str) -> None:
    """Put the reason in the place of a page that a result had while it could be read."""
    for language in LANGUAGES:
        page = folder / file_name("report", language)
        if page.exists():
            with spoken(language):
                title = gettext("This result can't be read")
                text = write_out(
                    "unreadable.html.j2", title=title, stem="report", reason=reason, root=root
                )
            write_atomically(page, text)


def publish(measurement: Measurement) -> Section:
    """Write the measurement's page, results.csv, results.json and the index; then raise
    MeasurementError if it is not complete, so that papermill ends non-zero too."""
    outputs = measurement.folder.parent
    write_page(measurement)
    write_tables(outputs, load(outputs))
    write_index(outputs)
    result = measurement.result
    if result.status != "complete":
        told = result.failure
        reason = f"{told.code}: {told.message}" if told else "it is not finished"
        kept = len(result.complete_repeats)
        done = (
            f"{kept} of {result.protocol.repeats} repeats are kept; the same command goes on "
            "from there. "
        )
        raise MeasurementError(
            f"{result.id} {result.status}: {reason}\n"
            f"{done if kept else ''}Logs: {from_checkout(measurement.folder / 'logs')}"
        )
    return published_at(measurement.folder / "report.html")


def publish_summary(summary: Summary) -> Section:
    """Write the summary, results.csv, results.json and the index."""
    write_tables(summary.outputs, summary.measurements)
    for language in LANGUAGES:
        write_summary(summary, language)
    write_index(summary.outputs)
    return published_at(summary.outputs / FOLDER / "report.html")


def publish_figures(bench: Bench) -> Section:
    """Write the page of the suite's own figures and the index."""
    write_page_of_figures(bench)
    write_index(bench.outputs)
    return published_at(figures_file(bench.outputs).with_name("report.html"))


def publish_comparison(folder: str | Path) -> Section:
    """Write the page of a live comparison, those of its sides, results.csv, results.json and
    the index; a relative path starts at the checkout. Raises ResultError."""
    compared = InTurn.of(resolved_path(str(folder)))
    for side in compared.comparison.sides:
        with suppress(ResultError):
            write_page(Measurement.read(compared.outputs / side.id))
    write_page_in_turn(compared)
    write_tables(compared.outputs, load(compared.outputs))
    write_index(compared.outputs)
    return published_at(compared.folder / "report.html")


def publish_audit(folder: str | Path) -> Section:
    """Write the page of an audit and the index; a relative path starts at the checkout. Raises
    ResultError."""
    audited = Audited.of(folder)
    write_page_of_audit(audited)
    write_index(audited.folder.parent.parent)
    return published_at(audited.folder / "report.html")


def published_at(page: Path) -> Section:
    return render("published_at.html.j2", page=from_checkout(page))
