"""The site of an outputs folder: a page for each measurement, live comparison and audit, the
summary, the suite's own figures, the index, and all numbers in one CSV and one JSON file."""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

import pandas as pd

from perfkit.audit.sentences import state_words
from perfkit.audit.stored import FILE as AUDIT_FILE
from perfkit.audit.stored import audit_folders
from perfkit.comparison.live.stored import FILE, comparison_folders, read_comparison
from perfkit.config import ROOT, resolved_path
from perfkit.report.audited import Audited
from perfkit.report.bench import Bench
from perfkit.report.in_turn import InTurn
from perfkit.report.page import filled_notebook, write_notebook, write_page
from perfkit.report.rendering import Section, render, write_out
from perfkit.report.summary import FOLDER, Summary
from perfkit.results.figures import figures_file, read_figures
from perfkit.results.files import Measurement, ResultError, folders, write_atomically
from perfkit.results.frames import load, measurements
from perfkit.words.language import LANGUAGES, file_name, gettext, spoken
from perfkit.words.wording import command, environment_in_short

PAGES_AT_A_TIME = 8
Stored = TypeVar("Stored")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take text for a formula."""
WARNINGS = re.compile(r'<ul class="warnings">(.*?)</ul>', re.DOTALL)
WARNING = re.compile(r"<li><code>(\w+)</code>")


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
        for _page in pool.map(_write_summary, repeat(summary), LANGUAGES):
            progress(1)
    return write_index(outputs, broken), [*summary.unreadable, *_unreadable_elsewhere(outputs)]


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


def _write_summary(summary: Summary, language: str) -> None:
    """Write the summary's page in one language, in English its notebook too."""
    folder = summary.outputs / FOLDER
    folder.mkdir(exist_ok=True)
    with spoken(language):
        parameters = {"outputs_dir": str(_from_checkout(summary.outputs)), "lang": language}
        # A fresh one: the names of its series, once made, are in the language of then.
        filled = filled_notebook("summary", parameters, {"summary": replace(summary)})
        heading = gettext("Training throughput: summary")
        write_notebook(folder, filled, heading, "../results.csv", "../results.json")


def write_page_of_figures(bench: Bench) -> None:
    """Write the page of the suite's own figures in every language, and its notebook."""
    folder = figures_file(bench.outputs).parent
    for language in LANGUAGES:
        with spoken(language):
            parameters = {"outputs_dir": str(_from_checkout(bench.outputs)), "lang": language}
            filled = filled_notebook("bench", parameters, {"bench": bench})
            write_notebook(folder, filled, gettext("The suite's own figures"), "figures.json")


def write_page_in_turn(compared: InTurn) -> None:
    """Write a live comparison's page in every language, and its notebook."""
    for language in LANGUAGES:
        with spoken(language):
            parameters = {"folder": str(_from_checkout(compared.folder)), "lang": language}
            filled = filled_notebook("comparison", parameters, {"compared": compared})
            write_notebook(compared.folder, filled, compared.title, FILE, root="../..")


def write_page_of_audit(audited: Audited) -> None:
    """Write an audit's page in every language, and its notebook."""
    for language in LANGUAGES:
        with spoken(language):
            parameters = {"folder": str(_from_checkout(audited.folder)), "lang": language}
            filled = filled_notebook("audit", parameters, {"audited": audited})
            write_notebook(audited.folder, filled, audited.title, AUDIT_FILE, root="../..")


def write_tables(outputs: Path, frame: pd.DataFrame) -> None:
    """Write results.csv and results.json: all of frames.load, a row for each measurement.

    In the CSV a text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    records = frame.to_json(orient="records", indent=1, double_precision=15)
    write_atomically(outputs / "results.json", records)
    tame = frame.map(lambda v: f"'{v}" if isinstance(v, str) and v.startswith(FORMULA) else v)
    tame["repeat_throughputs"] = [
        " ".join(map(repr, values)) for values in frame["repeat_throughputs"]
    ]
    write_atomically(outputs / "results.csv", tame.to_csv(index=False))


def write_index(outputs: Path, broken: Sequence[str] = ()) -> Path:
    """Write the index in every language, newest measurement first; the English one's path.
    It names what can't be read, and what is `broken` besides."""
    unreadable: list[str] = []
    rows = [_index_row(one) for one in measurements(outputs, unreadable)]
    unreadable += _unreadable_elsewhere(outputs)
    rows.sort(key=lambda row: (row["result"].created, row["folder"]), reverse=True)
    summary = outputs / FOLDER / "report.html"
    newest = max(
        (result.stat().st_mtime for result in outputs.glob("*/result.json")), default=0
    )
    for language in LANGUAGES:
        with spoken(language):
            page = write_out(
                "index.html.j2",
                title=gettext("Training throughput: measurements"),
                stem="index",
                rows=rows,
                unreadable=[*unreadable, *broken],
                summary=summary.exists(),
                stale=summary.exists() and summary.stat().st_mtime < newest,
                compared=_compared(outputs),
                audited=_audited(outputs),
                state_words=state_words,
                figures=(figures_file(outputs).parent / "report.html").exists(),
                examples=(outputs / "examples" / "index.html").exists(),
            )
        write_atomically(outputs / file_name("index", language), page)
    return outputs / "index.html"


def _unreadable_elsewhere(outputs: Path) -> list[str]:
    """Why the suite's own figures, live comparisons and audits can't be read, where they
    can't."""
    reads: list[Callable[[], object]] = [partial(read_figures, outputs)]
    reads += [partial(read_comparison, folder) for folder in comparison_folders(outputs)]
    reads += [partial(Audited.of, folder) for folder in audit_folders(outputs)]
    reasons = []
    for read in reads:
        try:
            read()
        except ResultError as error:
            reasons.append(str(error).replace(f"{outputs}/", ""))
    return reasons


def _compared(outputs: Path) -> list[InTurn]:
    """The live comparisons that have a page, newest first."""
    found = []
    for folder in comparison_folders(outputs):
        with suppress(ResultError):
            if (folder / "report.html").exists():
                found.append(InTurn.of(folder))
    return sorted(found, key=lambda one: one.comparison.created, reverse=True)


def _audited(outputs: Path) -> list[Audited]:
    """The audits that have a page, newest first."""
    found = []
    for folder in audit_folders(outputs):
        with suppress(ResultError):
            if (folder / "report.html").exists():
                found.append(Audited.of(folder))
    return sorted(found, key=lambda one: one.audit.created, reverse=True)


def _index_row(measurement: Measurement) -> dict[str, Any]:
    result, page = measurement.result, measurement.folder / "report.html"
    return {
        "folder": measurement.folder.name,
        "environment": environment_in_short(result),
        "result": result.model_copy(update={"repeats": []}),
        "data_wait_share": result.data_wait_share,
        "has_page": page.exists(),
        "warnings": _warnings_on(page) if page.exists() and result.complete_repeats else None,
        "command": command(result),
    }


def _warnings_on(page: Path) -> list[str]:
    """The names of the warnings that a measurement's page has.

    The index repeats what the pages say: to judge the steps anew takes the raw files of all
    measurements, and would for hundreds take longer than all the rest.
    """
    text = page.read_text(encoding="utf-8", errors="replace")
    return [name for block in WARNINGS.findall(text) for name in WARNING.findall(block)]


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
            f"{done if kept else ''}Logs: {_from_checkout(measurement.folder / 'logs')}"
        )
    return published_at(measurement.folder / "report.html")


def publish_summary(summary: Summary) -> Section:
    """Write the summary, results.csv, results.json and the index."""
    write_tables(summary.outputs, summary.measurements)
    for language in LANGUAGES:
        _write_summary(summary, language)
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
    return render("published_at.html.j2", page=_from_checkout(page))


def _from_checkout(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
