"""What a notebook cell shows: text, tables and figures that need nothing but a notebook viewer.

JupyterLab, VS Code, GitHub and nbconvert show MIME bundles, and have none of a page's styles.
So a figure brings its own colours, as SVG and as PNG for viewers that show no SVG, and a table
is a pandas Styler.
"""

import base64
import html
import io
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.text import Text
from pandas.io.formats.style import Styler

from perfkit.config import ROOT
from perfkit.messages import Message
from perfkit.report.style import chart_style
from perfkit.text.format import stored_value
from perfkit.text.language import gettext
from perfkit.text.messages import sentence

PNG_DOTS_PER_INCH = 110
SEVERITY_MARKS = {
    "error": ("■", "#cf222e"),
    "caution": ("▲", "#9a6700"),
    None: ("●", "#1a7f37"),
}
"""Severity of warnings -> shape and colour."""
NOTE = 'class="note" style="font-size: 90%; opacity: 0.8"'
RIGHT = "text-align: right; white-space: nowrap"
NUMBER = re.compile(r"([■▲●] )?[+–-]?[\d.,]+|–|$")
"""How the text of a cell begins that is aligned to the right, a mark before it."""


TAG = re.compile("<[^>]*>")


@dataclass(frozen=True)
class Html:
    """Text and tables as HTML, in which foreign text is escaped already."""

    html: str

    def bundle(self, *, png: bool) -> dict[str, str]:
        return {"text/html": self.html} | ({"text/plain": self.plain} if png else {})

    @property
    def plain(self) -> str:
        text = re.sub(r"<style.*?</style>", "", self.html, flags=re.DOTALL)
        text = re.sub(r"</t[dh]>", "  ", re.sub(r"\s+", " ", text))
        text = html.unescape(TAG.sub("", re.sub(r"</(p|tr|li|h\d)>|<br>", "\n", text)))
        return "\n".join(line.strip() for line in text.splitlines() if line.strip())

    @property
    def metadata(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Picture:
    """A figure. `alt` says what it shows; `folded` is the heading below which a page folds it.
    Its texts are translated when it is shown, so that it is drawn once for all languages."""

    figure: Figure
    alt: str
    folded: str = ""

    def bundle(self, *, png: bool) -> dict[str, str]:
        found = {"image/svg+xml": _translated(self._svg)}
        if png:
            found |= {"image/png": self._png, "text/plain": self.plain}
        return found

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
        # Comments repeat texts, which are foreign.
        text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
        text = re.sub(r'<g id="[a-zA-Z0-9]+_\d+"', "<g", text)
        return re.sub(r"\s*\n\s*", " ", text)

    @cached_property
    def _png(self) -> str:
        for text in self.figure.findobj(Text):
            text.set_text(gettext(text.get_text()))
        stream = io.BytesIO()
        with chart_style():
            self.figure.savefig(stream, format="png", dpi=PNG_DOTS_PER_INCH)
        return base64.b64encode(stream.getvalue()).decode()


def _translated(svg: str) -> str:
    def shown(text: re.Match[str]) -> str:
        return f">{html.escape(gettext(html.unescape(text[1])), quote=False)}</text>"

    return re.sub(r">([^<]+)</text>", shown, svg)


@dataclass(frozen=True)
class Section:
    """The outputs of a cell, in order. Displays itself in a notebook. Links start at
    `page_folder`."""

    parts: tuple[Html | Picture, ...] = ()
    page_folder: Path | None = None

    def __add__(self, other: "Section") -> "Section":
        return Section(self.parts + other.parts)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for part in self.parts:
            bundle = part.bundle(png=True)
            if self.page_folder and "text/html" in bundle:
                bundle["text/html"] = _from_here(bundle["text/html"], self.page_folder)
            display(bundle, raw=True, metadata=part.metadata)

    def outputs(self, *, png: bool) -> list[dict[str, Any]]:
        """The parts as outputs of a cell. With `png`, all that a notebook viewer may need."""
        return [
            {
                "output_type": "display_data",
                "data": part.bundle(png=png),
                "metadata": part.metadata,
            }
            for part in self.parts
        ]

    @property
    def html(self) -> str:
        """All of it as one piece of HTML."""
        bundles = [part.bundle(png=False) for part in self.parts]
        return "\n".join(b.get("text/html") or b["image/svg+xml"] for b in bundles)

    def __repr__(self) -> str:
        return "\n".join(part.plain for part in self.parts)


def _from_here(html: str, page_folder: Path) -> str:
    """The page's links from the folder of the notebook that runs. Outside the checkout they
    stay: JupyterLab could not follow them, and they would have this machine's paths in them."""
    here = Path.cwd()
    if not (page_folder.is_relative_to(ROOT) and here.is_relative_to(ROOT)):
        return html
    way = quote(os.path.relpath(page_folder, here))
    return re.sub(r'(?<=<a href=")(?![a-z]+:|#|/)', f"{way}/", html)


def markup(html: str) -> Section:
    """A section of HTML that is safe: foreign text in it is escaped already. Its notes have
    their style with them."""
    text = str(html).strip().replace('class="note"', NOTE)
    return Section((Html(text),)) if text else Section()


def paragraph(*sentences: str, note: bool = False) -> Section:
    """A paragraph of these sentences; empty ones are left out. A note is set smaller."""
    text = Markup(" ").join(sentence for sentence in sentences if sentence)
    style = ' class="note"' if note else ""
    return markup(f"<p{style}>{text}</p>") if text else Section()


def picture(figure: Figure, alt: str, folded: str = "") -> Section:
    return Section((Picture(figure, alt, folded),))


def folded(heading: str, section: Section, anchor: str = "") -> Section:
    """The section below a heading that opens it; figures are folded on pages alone. `anchor`
    is an id that links lead to."""
    html = "\n".join(part.html for part in section.parts if isinstance(part, Html))
    pictures = [replace(p, folded=heading) for p in section.parts if isinstance(p, Picture)]
    opening = f'<details id="{escape(anchor)}">' if anchor else "<details>"
    text = f"{opening}<summary>{escape(heading)}</summary>{html}</details>" if html else ""
    return Section(((Html(text),) if html else ()) + tuple(pictures))


def severity_mark(severity: str | None) -> Markup:
    """A mark whose shape and colour tell the severity of a warning."""
    shape, colour = SEVERITY_MARKS[severity]
    return Markup('<span style="color: %s">%s</span>') % (colour, shape)


def table(
    rows: Iterable[Any], headings: Mapping[str, str] | Iterable[Any], caption: str = ""
) -> Section:
    """A table with a row per item and a column per heading; nothing without a row.

    None is a dash, and columns of empty text are left out. Where `headings` are by field
    (dotted name), the items are stored objects, whose values are formatted by the unit in the
    field's name; nothing for None. Texts are foreign but for those that are Markup; columns of
    numbers are aligned to the right."""
    if isinstance(headings, Mapping):
        rows = [[stored_value(field, _part(row, field)) for field in headings] for row in rows]
        headings = headings.values()
    dashed = ([escape("–" if cell is None else cell) for cell in row] for row in rows)
    every = dict(zip(map(escape, headings), zip(*dashed, strict=True), strict=False))
    columns = {heading: column for heading, column in every.items() if any(column)}
    if not columns:
        return Section()
    right = [
        f"col{k}"
        for k, column in enumerate(columns.values())
        if all(NUMBER.match(TAG.sub("", cell).strip()) for cell in column)
    ]
    styles = [{"selector": "th, td", "props": "text-align: left; vertical-align: top"}]
    for selector, props in (("th", "text-align: right"), ("td", RIGHT)):
        chosen = ", ".join(f"{selector}.{name}" for name in right)
        styles += [{"selector": chosen, "props": props}] if right else []
    # The uuid: the same bytes each time, and apart from the other tables of a page.
    uuid = f"{zlib.crc32(repr(columns).encode()):08x}"
    styler = Styler(pd.DataFrame(columns), uuid=uuid, cell_ids=False).hide(axis="index")
    styler = styler.set_table_styles(styles)
    if caption:
        styler = styler.set_caption(escape(caption))
    label = Markup(' aria-label="%s"') % caption if caption else ""
    html = f'<div class="scroll" tabindex="0" role="region"{label}>{styler.to_html()}</div>'
    return Section((Html(html),))


def _part(item: Any, field: str) -> Any:
    for name in field.split("."):
        item = getattr(item, name, None)
    return sentence(item) if isinstance(item, Message) else item
