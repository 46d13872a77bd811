"""Outputs of a notebook cell: text, tables and figures.

JupyterLab, VS Code, GitHub and nbconvert show MIME bundles without a page's style sheet, and
JupyterLab removes `style` elements from untrusted notebooks. So figures have their own colours,
as SVG and as PNG for viewers without SVG, and table cells have inline alignment.
"""

import base64
import html
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.text import Text

from perfkit.core.paths import ROOT, resolved_path
from perfkit.core.statements import Statement
from perfkit.report.style import chart_style
from perfkit.report.text.language import gettext
from perfkit.report.text.names import stored_value
from perfkit.report.text.statements import sentence

PNG_DOTS_PER_INCH = 110
SEVERITY_MARKS = {
    "error": ("■", "#cf222e"),
    "caution": ("▲", "#9a6700"),
    None: ("●", "#1a7f37"),
}
"""Severity of warnings -> shape and colour."""
NOTE = 'class="note" style="font-size: 90%; opacity: 0.8"'
LEFT, RIGHT = "text-align: left", "text-align: right; white-space: nowrap"
NUMBER = re.compile(r"([■▲●] )?[+–-]?[\d.,]+|–|$")
"""Start of a cell's text, after an optional mark, that aligns the cell to the right."""
TAG = re.compile("<[^>]*>")


@dataclass(frozen=True)
class Html:
    """Text and tables as HTML in which foreign text is already escaped. Its links are relative
    to `page_folder`, if it has any."""

    html: str
    page_folder: Path | None = None
    metadata: ClassVar[dict[str, Any]] = {}

    def bundle(self, *, png: bool) -> dict[str, str]:
        return {"text/html": self.html} | ({"text/plain": self.plain} if png else {})

    def display_bundle(self) -> dict[str, str]:
        """Return the bundle with links from the running notebook's folder."""
        bundle = self.bundle(png=True)
        if self.page_folder:
            bundle["text/html"] = _from_here(self.html, self.page_folder)
        return bundle

    @property
    def plain(self) -> str:
        text = re.sub(r"</t[dh]>", "  ", re.sub(r"\s+", " ", self.html))
        text = html.unescape(TAG.sub("", re.sub(r"</(p|tr|li|h\d)>|<br>", "\n", text)))
        return "\n".join(line.strip() for line in text.splitlines() if line.strip())


@dataclass(frozen=True)
class Picture:
    """A figure, or a function that draws it, with its alternative text; pages fold it below the
    heading `folded`, if any. Its texts are translated when it is shown, so that it is drawn
    once for all languages."""

    drawn: Figure | Callable[[], Figure]
    alt: str
    folded: str = ""

    @property
    def figure(self) -> Figure:
        return self.drawn() if callable(self.drawn) else self.drawn

    def bundle(self, *, png: bool) -> dict[str, str]:
        def translated(text: re.Match[str]) -> str:
            return f">{html.escape(gettext(html.unescape(text[1])), quote=False)}</text>"

        found = {"image/svg+xml": re.sub(r">([^<]+)</text>", translated, self._svg)}
        if png:
            found |= {"image/png": self._png, "text/plain": self.plain}
        return found

    def display_bundle(self) -> dict[str, str]:
        return self.bundle(png=True)

    @property
    def plain(self) -> str:
        return gettext(self.alt)

    @property
    def metadata(self) -> dict[str, Any]:
        return {"perfkit": {"alt": self.plain, "folded": gettext(self.folded)}}

    @cached_property
    def _svg(self) -> str:
        stream = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with chart_style():
            self.figure.savefig(stream, format="svg", metadata=nothing)
        text = stream.getvalue()
        # Comments repeat foreign text, unescaped.
        text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
        text = re.sub(r'<g id="[a-zA-Z0-9]+_\d+"', "<g", text)
        # Coordinates in hundredths of a point; texts, outside of tags, stay as they are.
        text = re.sub(r"(\.\d\d)\d+(?=[^<>]*>)", r"\1", text)
        return "".join(f"{line} " for line in map(str.strip, text.split("\n")) if line)

    @cached_property
    def _png(self) -> str:
        stream = io.BytesIO()
        with chart_style():
            figure = self.figure
            for text in figure.findobj(Text):
                text.set_text(gettext(text.get_text()))
            figure.savefig(stream, format="png", dpi=PNG_DOTS_PER_INCH)
        return base64.b64encode(stream.getvalue()).decode()


@dataclass(frozen=True)
class Section:
    """Outputs of a cell, in order; displays itself in a notebook."""

    parts: tuple[Html | Picture, ...] = ()

    def __add__(self, other: "Section") -> "Section":
        return Section(self.parts + other.parts)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for part in self.parts:
            display(part.display_bundle(), raw=True, metadata=part.metadata)

    def outputs(self, *, png: bool) -> list[dict[str, Any]]:
        """Return the parts as outputs of a cell; `png` adds formats for other viewers."""
        kind = {"output_type": "display_data"}
        return [kind | {"data": p.bundle(png=png), "metadata": p.metadata} for p in self.parts]

    @property
    def html(self) -> str:
        """HTML of all parts."""
        return "\n".join(next(iter(part.bundle(png=False).values())) for part in self.parts)

    def __repr__(self) -> str:
        return "\n".join(part.plain for part in self.parts)


def _from_here(html: str, page_folder: Path) -> str:
    """Make links relative to the working directory, which is the running notebook's folder.
    Links outside the checkout stay: JupyterLab could not follow them, and they would contain
    paths of this machine."""
    here = Path.cwd()
    page = resolved_path(str(page_folder))
    if not (page.is_relative_to(ROOT) and here.is_relative_to(ROOT)):
        return html
    base = quote(os.path.relpath(page, here))
    return re.sub(r'(?<=<a href=")(?![a-z]+:|#|/)', f"{base}/", html)


def markup(html: str, page_folder: Path | None = None) -> Section:
    """Return a section of safe HTML, in which foreign text is already escaped, with links
    relative to `page_folder`. Notes get an inline style."""
    text = str(html).strip().replace('class="note"', NOTE)
    return Section((Html(text, page_folder),)) if text else Section()


def picture(figure: Figure | Callable[[], Figure], alt: str) -> Section:
    return Section((Picture(figure, alt),))


def folded(heading: str, section: Section) -> Section:
    """Return the section folded below a heading. Figures are folded on pages only."""
    texts = [part for part in section.parts if isinstance(part, Html)]
    pictures = [replace(p, folded=heading) for p in section.parts if isinstance(p, Picture)]
    if not texts:
        return Section(tuple(pictures))
    html = "\n".join(part.html for part in texts)
    text = f"<details><summary>{escape(heading)}</summary>{html}</details>"
    return Section((Html(text, texts[0].page_folder), *pictures))


def severity_mark(severity: str | None) -> Markup:
    """Return a mark whose shape and colour show the severity of a warning."""
    shape, colour = SEVERITY_MARKS[severity]
    return Markup('<span style="color: %s">%s</span>') % (colour, shape)


def table(
    rows: Iterable[Any], headings: Mapping[str, str] | Iterable[Any], caption: str = ""
) -> Section:
    """Return a table with a row per item and a column per heading; empty without rows.

    None is shown as a dash; columns of empty text are left out. If `headings` is a mapping by
    field (dotted name), the items are stored objects: their values are formatted by the unit in
    the field's name, and None is empty text. Text is escaped unless it is Markup. Columns of
    numbers are aligned to the right."""
    if isinstance(headings, Mapping):
        rows = [[_formatted(row, field) for field in headings] for row in rows]
        headings = headings.values()
    dashed = ([escape("–" if cell is None else cell) for cell in row] for row in rows)
    every = dict(zip(map(escape, headings), zip(*dashed, strict=True), strict=False))
    columns = {heading: column for heading, column in every.items() if any(column)}
    if not columns:
        return Section()
    styles = [
        RIGHT if all(NUMBER.match(TAG.sub("", cell).strip()) for cell in column) else LEFT
        for column in columns.values()
    ]

    def row_of(tag: str, cells: Iterable[str]) -> str:
        aligned = zip(styles, cells, strict=True)
        parts = (f'<{tag} style="{style}">{cell}</{tag}>' for style, cell in aligned)
        return f"<tr>{''.join(parts)}</tr>"

    body = "\n".join(row_of("td", cells) for cells in zip(*columns.values(), strict=True))
    head = f"<thead>{row_of('th', columns)}</thead>"
    title = Markup(f'<caption style="{LEFT}">%s</caption>') % caption if caption else ""
    label = Markup(' aria-label="%s"') % Markup(caption).striptags() if caption else ""
    html = f"<table>{title}\n{head}\n<tbody>\n{body}\n</tbody></table>"
    region = f'<div class="scroll" tabindex="0" role="region"{label}>{html}</div>'
    return Section((Html(region),))


def _formatted(item: Any, field: str) -> str:
    for name in field.split("."):
        item = getattr(item, name, None)
    if isinstance(item, Statement):
        item = sentence(item)
    return stored_value(field, item)
