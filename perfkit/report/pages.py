"""The pages that are not of one measurement: summary, live comparison, audit, own figures."""

from dataclasses import replace
from pathlib import Path

from perfkit.audit.stored import FILE as AUDIT_FILE
from perfkit.comparison.live.stored import FILE
from perfkit.config import ROOT
from perfkit.report.audited import Audited
from perfkit.report.bench import Bench
from perfkit.report.in_turn import InTurn
from perfkit.report.page import filled_notebook, write_notebook
from perfkit.report.summary import FOLDER, Summary
from perfkit.results.figures import figures_file
from perfkit.words.language import LANGUAGES, gettext, spoken


def write_summary(summary: Summary, language: str) -> None:
    """Write the summary's page in one language, in English its notebook too."""
    folder = summary.outputs / FOLDER
    folder.mkdir(exist_ok=True)
    with spoken(language):
        parameters = {"outputs_dir": str(from_checkout(summary.outputs)), "lang": language}
        # A fresh one: the names of its series, once made, are in the language of then.
        filled = filled_notebook("summary", parameters, {"summary": replace(summary)})
        heading = gettext("Training throughput: summary")
        write_notebook(folder, filled, heading, "../results.csv", "../results.json")


def write_page_of_figures(bench: Bench) -> None:
    """Write the page of the suite's own figures in every language, and its notebook."""
    folder = figures_file(bench.outputs).parent
    for language in LANGUAGES:
        with spoken(language):
            parameters = {"outputs_dir": str(from_checkout(bench.outputs)), "lang": language}
            filled = filled_notebook("bench", parameters, {"bench": bench})
            write_notebook(folder, filled, gettext("The suite's own figures"), "figures.json")


def write_page_in_turn(compared: InTurn) -> None:
    """Write a live comparison's page in every language, and its notebook."""
    _write_in_its_folder("comparison", compared, "compared", FILE)


def write_page_of_audit(audited: Audited) -> None:
    """Write an audit's page in every language, and its notebook."""
    _write_in_its_folder("audit", audited, "audited", AUDIT_FILE)


def _write_in_its_folder(notebook: str, shown: InTurn | Audited, name: str, file: str) -> None:
    """Fill the notebook with what its cells call `name`, which is stored in `file`."""
    for language in LANGUAGES:
        with spoken(language):
            parameters = {"folder": str(from_checkout(shown.folder)), "lang": language}
            filled = filled_notebook(notebook, parameters, {name: shown})
            write_notebook(shown.folder, filled, shown.title, file, root="../..")


def from_checkout(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
