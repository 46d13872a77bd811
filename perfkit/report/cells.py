"""HTML of a notebook's cells for a page: headings, text and outputs, without inputs."""

from collections.abc import Iterable, Iterator
from typing import Any

from click import unstyle
from markupsafe import Markup
from nbformat import NotebookNode

from perfkit.report.sanitizing import markdown2html

HIDDEN = {"introduction", "parameters", "injected-parameters"}
HIDDEN |= {"plan", "measure", "read", "publish"}
"""Tags of cells that pages leave out."""
PRE = Markup("<pre>%s</pre>")
HEADINGS = ("#", "##", "###")


def cells_html(cells: list[NotebookNode]) -> Markup:
    """Return the HTML of the cells that pages show, without sections of which all outputs are
    absences. HTML in outputs is taken as it is: that of a user's notebook was sanitized."""
    parts: list[Markup] = []
    for section in _sections(cells):
        if not _lacks_content(section):
            for cell in section:
                parts += _cell(cell)
    return Markup("\n").join(parts)


def _sections(cells: Iterable[NotebookNode]) -> Iterator[list[NotebookNode]]:
    """Yield the shown cells before the first heading of a section, then those of each
    section, its heading first."""
    section: list[NotebookNode] = []
    for cell in cells:
        if HIDDEN & {*cell.metadata.get("tags", [])}:
            continue
        if _is_heading(cell):
            yield section
            section = []
        section.append(cell)
    yield section


def _is_heading(cell: NotebookNode) -> bool:
    """Return whether a cell is the heading of a section alone."""
    source: str = cell.source
    starts = cell.cell_type == "markdown" and source.startswith("## ")
    return starts and "\n" not in source


def _lacks_content(section: Iterable[NotebookNode]) -> bool:
    """Return whether a section has outputs, but each is an absence, and no text of a user."""
    outputs: list[NotebookNode] = []
    for cell in section:
        if cell.cell_type == "markdown" and not _is_heading(cell):
            return False
        outputs += cell.get("outputs", [])
    return bool(outputs) and all(map(_is_absence, outputs))


def _is_absence(output: NotebookNode) -> bool:
    """Return whether an output only says what a measurement lacks; see section.absence."""
    metadata = output.get("metadata", {}).get("perfkit")
    return isinstance(metadata, dict) and metadata.get("absence") is True


def _cell(cell: NotebookNode) -> Iterator[Markup]:
    if cell.cell_type == "markdown":
        yield _text(cell.source)
    elif cell.cell_type == "code":
        for output in cell.outputs:
            if not _is_absence(output):
                yield _output(output)


def _text(source: str) -> Markup:
    """Return a heading with its address, or converted Markdown."""
    marks, _space, text = source.partition(" ")
    if marks not in HEADINGS or "\n" in text:
        return Markup(markdown2html(source))
    level, address = len(marks), text.replace(" ", "-")
    return Markup('<h%d id="%s">%s</h%d>') % (level, address, text, level)


def _output(output: NotebookNode) -> Markup:
    if output.output_type == "stream":
        return PRE % unstyle(output.text)
    if output.output_type == "error":
        return PRE % f"{output.ename}: {unstyle(output.evalue)}"
    data = output.data
    if "image/svg+xml" in data or "image/png" in data:
        return _figure(data, output.metadata.get("perfkit"))
    if data.get("text/html"):
        return Markup(data["text/html"])
    return PRE % unstyle(data.get("text/plain", ""))


def _figure(data: NotebookNode, metadata: Any) -> Markup:
    """Return a figure with its alternative text, folded below its heading if it has one."""
    texts = metadata if isinstance(metadata, dict) else {}
    alt, heading = texts.get("alt", ""), texts.get("folded", "")
    if "image/svg+xml" in data:
        image = Markup(data["image/svg+xml"])
    else:
        image = Markup('<img alt="%s" src="data:image/png;base64,%s">')
        image %= (alt, data["image/png"])
    figure = Markup('<figure role="img" tabindex="0" aria-label="%s">%s</figure>') % (
        alt,
        image,
    )
    if not heading:
        return figure
    return Markup("<details><summary>%s</summary>\n%s</details>") % (heading, figure)
