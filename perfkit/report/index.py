"""The index of an outputs folder, and all numbers in one CSV and one JSON file."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from perfkit.comparison.live.stored import comparison_folders, read_comparison
from perfkit.logs.audit import State, audit_folders, read_audit
from perfkit.logs.wording import label
from perfkit.report.pages import TEMPLATES, page_warnings, site_links
from perfkit.results.frames import measurements
from perfkit.results.store import RESULT, Measurement, ResultError, Store, write_atomically
from perfkit.text import format
from perfkit.text.language import LANGUAGES, file_name, gettext, in_language

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet takes for a formula."""
STORED: dict[str, tuple[Callable[[Path], Iterable[Path]], Callable[[Path], Any]]] = {
    "comparison": (comparison_folders, read_comparison),
    "audit": (audit_folders, read_audit),
}
"""What has a page besides measurements: where below the outputs, and how it is read."""


def write_index(outputs: Path, broken: Sequence[str] = ()) -> Path:
    """Write the index in every language, by model, newest measurement first; returns the path
    of the English index. It names what can't be read, and what is `broken` besides."""
    unreadable: list[str] = []
    rows = [_row(measurement) for measurement in measurements(outputs, unreadable)]
    rows.sort(key=lambda row: (row["result"].created, row["folder"]), reverse=True)
    other, reasons = stored_besides(outputs)
    summary = outputs / "summary" / "report.html"
    newest = max((file.stat().st_mtime for file in outputs.glob(f"*/{RESULT}")), default=0)
    results = [row["result"] for row in rows]
    for language in LANGUAGES:
        with in_language(language):
            page = TEMPLATES.get_template("index.html.j2").render(
                title=gettext("Training throughput: measurements"),
                stem="index",
                links=site_links(outputs, outputs, "index"),
                made=format.made((r.created for r in results), map(format.device, results)),
                rows=rows,
                unreadable=[*unreadable, *reasons, *broken],
                stale=summary.exists() and summary.stat().st_mtime < newest,
                other=other,
                states={state: label("state", state) for state in get_args(State)},
                has=lambda path: (outputs / path).exists(),
            )
        write_atomically(outputs / file_name("index", language), page)
    return outputs / "index.html"


def _row(measurement: Measurement) -> dict[str, Any]:
    result, page = measurement.result, measurement.page_file
    return {
        "folder": measurement.folder.name,
        "result": result.model_copy(update={"repeats": []}),
        "has_page": page.exists(),
        "warnings": page_warnings(page) if result.complete_repeats else None,
        "command": format.command(result),
    }


def stored_besides(outputs: Path) -> tuple[dict[str, list[tuple[str, Any]]], list[str]]:
    """The interleaved comparisons and the audits that have a page, each with the name of its
    folder; and why others can't be read."""
    found: dict[str, list[tuple[str, Any]]] = {kind: [] for kind in STORED}
    reasons = []
    for kind, (folders, read) in STORED.items():
        for folder in folders(outputs):
            try:
                stored = read(folder)
            except ResultError as error:
                reasons.append(str(error).replace(f"{outputs}/", ""))
            else:
                if Store(folder).page_file.exists():
                    found[kind].append((folder.name, stored))
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
