"""The index of an outputs folder, and all numbers in one CSV and one JSON file."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from perfkit.audit.sentences import state_words
from perfkit.audit.stored import audit_folders
from perfkit.comparison.live.stored import comparison_folders, read_comparison
from perfkit.report.audited import Audited
from perfkit.report.in_turn import InTurn
from perfkit.report.rendering import write_out
from perfkit.report.summary import FOLDER
from perfkit.results.figures import figures_file, read_figures
from perfkit.results.files import Measurement, ResultError, write_atomically
from perfkit.results.frames import measurements
from perfkit.words.language import LANGUAGES, file_name, gettext, spoken
from perfkit.words.wording import command, environment_in_short

Shown = TypeVar("Shown", InTurn, Audited)
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take text for a formula."""
WARNINGS = re.compile(r'<ul class="warnings">(.*?)</ul>', re.DOTALL)
WARNING = re.compile(r"<li><code>(\w+)</code>")


def write_index(outputs: Path, broken: Sequence[str] = ()) -> Path:
    """Write the index in every language, newest measurement first; the English one's path.
    It names what can't be read, and what is `broken` besides."""
    unreadable: list[str] = []
    rows = [_index_row(one) for one in measurements(outputs, unreadable)]
    unreadable += unreadable_elsewhere(outputs)
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
                compared=_with_page(comparison_folders(outputs), InTurn.of),
                audited=_with_page(audit_folders(outputs), Audited.of),
                state_words=state_words,
                figures=(figures_file(outputs).parent / "report.html").exists(),
                examples=(outputs / "examples" / "index.html").exists(),
            )
        write_atomically(outputs / file_name("index", language), page)
    return outputs / "index.html"


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


def unreadable_elsewhere(outputs: Path) -> list[str]:
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


def _with_page(folders: Iterable[Path], read: Callable[[Path], Shown]) -> list[Shown]:
    """Of live comparisons or audits those that have a page, newest first."""
    found = []
    for folder in folders:
        with suppress(ResultError):
            if (folder / "report.html").exists():
                found.append(read(folder))
    return sorted(found, key=lambda one: one.created, reverse=True)


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
