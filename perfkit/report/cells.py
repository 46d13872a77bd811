"""HTML of a notebook's cells for a page: headings, text and outputs, without inputs."""

from collections.abc import Iterable, Iterator
from typing import Any

from click import unstyle
from markupsafe import Markup
from nbformat import NotebookNode

from perfkit.report.sanitizing import markdown2html
from perfkit.report.section import NARROW_SVG

HIDDEN = {"introduction", "parameters", "injected-parameters"}
HIDDEN |= {"plan", "measure", "read", "publish"}
"""Tags of cells that pages leave out."""
PRE = Markup("<pre>%s</pre>")
HEADINGS = ("#", "##", "###")


def cells_html(cells: Iterable[NotebookNode]) -> Markup:
    """Return the HTML of the cells that pages show. HTML in outputs is taken as it is: that of
    a user's notebook was sanitized."""
    parts: list[Markup] = []
    for cell in cells:
        if not HIDDEN & {*cell.metadata.get("tags", [])}:
            parts += _cell(cell)
    return Markup("\n").join(parts)


def _cell(cell: NotebookNode) -> Iterator[Markup]:
    if cell.cell_type == "markdown":
        yield _text(cell.source)
    elif cell.cell_type == "code":
        yield from map(_output, cell.outputs)


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
    layout = Markup('<figure role="img" tabindex="0" aria-label="%s">%s</figure>')
    figure = layout % (alt, image)
    if NARROW_SVG in data:
        narrow = Markup('<figure class="narrow" role="img" aria-label="%s">%s</figure>')
        figure += narrow % (alt, Markup(data[NARROW_SVG]))
    if not heading:
        return figure
    return Markup("<details><summary>%s</summary>\n%s</details>") % (heading, figure)
