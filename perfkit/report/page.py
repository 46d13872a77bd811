"""A page is a notebook with its show cells filled in-process from what is stored.

It reads `result.json` and the raw files and nothing else: it comes out the same right after
the measurement, after a crash, or on another machine years later; and it is the notebook
itself, so what the notebook shows is what the page shows.
"""

from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup
from nbconvert import TemplateExporter

from perfkit import report
from perfkit.config import ROOT
from perfkit.report.rendering import FOLDER, write_out
from perfkit.results.files import Measurement, write_atomically
from perfkit.words.language import LANGUAGES, current, file_name, gettext, spoken
from perfkit.words.wording import title


def write_page(measurement: Measurement) -> None:
    """Write a measurement's notebook.ipynb and, in every language, its page beside its
    result.json."""
    result = measurement.result
    parameters = result.parameters
    if result.imported:
        parameters = {name: value for name, value in parameters.items() if value is not None}
    names = {"measurement": measurement}
    for language in LANGUAGES:
        with spoken(language):
            filled = filled_notebook(result.config.model, parameters, names)
            write_notebook(measurement.folder, filled, title(result), "result.json")


def write_notebook(
    folder: Path, filled: nbformat.NotebookNode, page_title: str, *files: str, root: str = ".."
) -> None:
    """Write a filled notebook into `folder` as a page in the language that is spoken, which
    links to `files` and to the index at `root`; in English, as notebook.ipynb too."""
    if current() == "en":
        write_atomically(folder / "notebook.ipynb", nbformat.writes(filled))
    body, _resources = _exporter().from_notebook_node(filled)
    page = write_out(
        "notebook.html.j2",
        title=page_title,
        stem="report",
        content=Markup(body),
        files=files,
        root=root,
    )
    write_atomically(folder / file_name("report", current()), page)


def filled_notebook(
    notebook: str, parameters: dict[str, Any], names: dict[str, Any]
) -> nbformat.NotebookNode:
    """notebooks/<notebook>.ipynb with these parameters and its show cells' outputs, headings
    in the language that is spoken. A cell tagged "show" is one expression."""
    source = ROOT / "notebooks" / f"{notebook}.ipynb"
    filled = nbformat.read(source, as_version=4)
    for cell in filled.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            marks, _space, text = cell.source.partition(" ")
            cell.source = f"{marks} {gettext(text)}"
        elif "parameters" in tags:
            cell.source = "\n".join(f"{name} = {v!r}" for name, v in parameters.items())
        elif "show" in tags:
            known = {"report": report, **names}
            section = eval(compile(cell.source, str(source), "eval"), known)
            html = {"text/html": section.html}
            cell.outputs = [nbformat.v4.new_output("display_data", html)]
    return filled


@cache
def _exporter() -> TemplateExporter:
    """Not nbconvert's HTMLExporter: that parses and mends each page anew, which ours don't
    need and which takes half of a page's time."""
    return TemplateExporter(
        template_name="perfkit",
        template_file="index.html.j2",
        file_extension=".html",
        extra_template_basedirs=[str(FOLDER)],
    )
