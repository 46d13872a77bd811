"""HTML pages from the headings, text and outputs of notebooks.

The section of the cell tagged `show` in a suite's notebook is made from stored results, without
a kernel: a page is the same right after the measurement, after a crash, and on another machine
years later. A user's notebook may have more cells; their outputs are those of its last run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup
from nbformat import NotebookNode

from perfkit.measuring.request.suite_notebook import suite_notebook_path
from perfkit.measuring.results.store import NOTEBOOK, write_atomically
from perfkit.report.cells import cells_html
from perfkit.report.contents import with_contents
from perfkit.report.html import LEFT, RIGHT
from perfkit.report.links import Site
from perfkit.report.rendering import render_page
from perfkit.report.sanitizing import sanitized
from perfkit.report.section import NARROW_SVG, Section
from perfkit.report.text import language
from perfkit.report.text.language import file_name
from perfkit.report.text.language import gettext as _

SHOWN_TYPES = {"text/html", "text/plain", "image/png"}
"""Types of a user's output that pages show."""
ALIGNED = re.compile(f'(<t[dh]) style="(?:{LEFT}|({RIGHT}))"')
"""A table cell with the inline style that it needs in a notebook, without a style sheet."""
OWN = "perfkit_own"
"""Metadata key that marks a stored notebook as the user's."""
PLACES = ("index", "summary", "published", "history", "fleet", "comparisons", "audits")
"""Entries of the navigation, in order. Comparisons and audits are lists in the index."""
LISTS = ("comparisons", "audits")


@dataclass(frozen=True)
class Page:
    """A page of a site, besides its content."""

    site: Site
    folder: Path
    title: str
    made: str = ""
    """time and devices of its measurements"""
    stem: str = "report"
    """stem of its file's name"""
    place: str = ""
    """one of PLACES, if it is one"""
    files: Sequence[str] = ()
    """files that it links to, if they exist"""
    facts: Mapping[str, str] = field(default_factory=dict)
    """meta elements by name"""

    def write(self, content: Markup) -> None:
        """Write the page with this content in the current language."""
        self.write_as("layout", content=with_contents(content))

    def write_as(self, template: str, **values: Any) -> None:
        """Write the page by a template that extends layout.html.j2, with these values."""
        text = render_page(
            template,
            page=self,
            language=language.current(),
            navigation=self._navigation(),
            translations=self._translations(),
            script_words=_script_words(),
            files=[file for file in self.files if (self.folder / file).exists()],
            **values,
        )
        write_atomically(self.folder / file_name(self.stem), text)

    def _navigation(self) -> list["Entry"]:
        """Return the site's main pages that exist or will."""
        names = (
            *(_("All measurements"), _("Summary"), _("Published tables"), _("History")),
            *(_("Fleet"), _("Comparisons"), _("Audits")),
        )
        depth = len(self.folder.relative_to(self.site.outputs).parts)
        entries = []
        for place, name in zip(PLACES, names, strict=True):
            address = _address(self.site, place)
            if address or place == self.place:
                entries.append(Entry(name, "../" * depth + address, place == self.place))
        return entries

    def _translations(self) -> list["Entry"]:
        """Return this page in each language."""
        return [
            Entry(name, file_name(self.stem, code), code == language.current(), code)
            for code, name in language.LANGUAGES.items()
        ]


@dataclass(frozen=True)
class Entry:
    """An entry of a page's header: a link, or the name alone for the page itself."""

    name: str
    address: str
    is_current: bool
    language: str = ""


def _script_words() -> dict[str, str]:
    """Return the texts that the pages' script adds."""
    return {
        "command": _("Copy command"),
        "copied": _("Copied"),
        "csv": _("Download CSV"),
        "markdown": _("Copy as Markdown"),
        "svg": _("Download SVG"),
    }


def _address(site: Site, place: str) -> str:
    """Return the address of a place in the navigation, relative to the outputs folder; empty
    if there is no such page."""
    if place == "index":
        return file_name("index")
    if place in LISTS:
        return f"{file_name('index')}#{place}" if (site.outputs / place).is_dir() else ""
    return f"{place}/{file_name('report')}" if site.has_page(place) else ""


@cache
def suite_notebook(name: str) -> NotebookNode:
    """Read notebooks/<name>.ipynb of the checkout. Raises RequestError without one."""
    return nbformat.read(suite_notebook_path(name), as_version=4)


def keep_own_notebook(executed: Path, folder: Path) -> None:
    """Store a user's executed notebook as the source of the page in `folder`."""
    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata[OWN] = True
    write_atomically(folder / NOTEBOOK, nbformat.writes(notebook))


def source_notebook(folder: Path, name: str) -> NotebookNode:
    """Return the notebook that is the source of the page in `folder`: the user's notebook
    stored there, or else notebooks/<name>.ipynb."""
    suite = suite_notebook(name)
    try:
        text = (folder / NOTEBOOK).read_text(encoding="utf-8")
        # Parsing the notebook would take longer than the rest of the page.
        if f'"{OWN}"' not in text:
            return suite
        notebook = nbformat.reads(text, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError):
        return suite
    return _harmless(notebook, suite)


def _harmless(notebook: NotebookNode, suite: NotebookNode) -> NotebookNode:
    """Return a user's notebook, which may come from anywhere: only a cell with the source of
    the suite's keeps the tag `show`, and all outputs are sanitized."""
    sources = {cell.source for cell in suite.cells if "show" in _tags(cell)}
    for cell in notebook.cells:
        if cell.source not in sources:
            cell.metadata["tags"] = [tag for tag in _tags(cell) if tag != "show"]
        for output in cell.get("outputs", []):
            if "data" in output:
                output.data = _sanitized_data(output.data)
    return notebook


def _sanitized_data(data: NotebookNode) -> NotebookNode:
    """Return the data of a user's output in the types that pages show, its HTML sanitized."""
    allowed = NotebookNode({name: data[name] for name in data if name in SHOWN_TYPES})
    if "text/html" in allowed:
        allowed["text/html"] = sanitized(allowed["text/html"])
    return allowed


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


@dataclass(frozen=True)
class Filling:
    """What a notebook's cells are filled with for a page: the outputs of the show cell, the
    values of the parameters cell, and the text of the first heading. With `keep`, the notebook
    is stored beside the page, with its figures as PNG."""

    section: Callable[[], Section]
    parameters: Mapping[str, Any]
    heading: str
    keep: bool = False


def write_page(page: Page, notebook: NotebookNode, filling: Filling) -> None:
    """Write the page of a notebook, without inputs, in the current language.

    The cell tagged `show` gets the filling's section; other cells keep their outputs."""
    cells = [_filled(cell, filling) for cell in notebook.cells]
    _replace_heading(cells, filling.heading)
    content = cells_html(cells)
    if filling.keep:
        _store(page.folder, notebook, cells)
    page.write(Markup(ALIGNED.sub(_by_style_sheet, content)))


def _filled(cell: NotebookNode, filling: Filling) -> NotebookNode:
    """Return a copy of a cell with the page's outputs, values or language."""
    copy = NotebookNode(cell)
    if cell.cell_type == "markdown":
        marks, _space, text = cell.source.partition(" ")
        copy.source = f"{marks} {_(text)}"
    elif "parameters" in _tags(cell):
        lines = [f"{name} = {value!r}" for name, value in filling.parameters.items()]
        copy.source = "\n".join(lines)
    elif cell.cell_type == "code" and "show" in _tags(cell):
        outputs = filling.section().outputs(png=filling.keep)
        copy.outputs = [nbformat.from_dict(output) for output in outputs]
    return copy


def _replace_heading(cells: Sequence[NotebookNode], heading: str) -> None:
    """Replace the text of the first heading."""
    for cell in cells:
        if heading and cell.cell_type == "markdown" and cell.source.startswith("# "):
            _first, line_end, rest = cell.source.partition("\n")
            cell.source = f"# {heading}{line_end}{rest}"
            return


def _by_style_sheet(cell: re.Match[str]) -> str:
    """Return the start of a table cell that the page's style sheet aligns."""
    start, is_right = cell.groups()
    return f'{start} class="right"' if is_right else start


def _store(folder: Path, notebook: NotebookNode, cells: Sequence[NotebookNode]) -> None:
    """Store the notebook with these cells."""
    for cell in cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.data:
                # Viewers show no SVG in untrusted notebooks.
                del output.data["image/svg+xml"]
            output.get("data", {}).pop(NARROW_SVG, None)
    stored = NotebookNode(notebook | {"cells": [*cells]})
    write_atomically(folder / NOTEBOOK, nbformat.writes(stored))


def write_unreadable(folder: Path, site: Site, reason: str) -> None:
    """Write the reason why a result can't be read as its page, to which other pages link."""
    for code in language.LANGUAGES:
        with language.in_language(code):
            title = _("This result can't be read")
            content = Markup("<h1>%s</h1>\n<p>%s</p>") % (title, reason)
            Page(site, folder, title).write(content)
