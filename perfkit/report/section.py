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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import escape
from matplotlib.figure import Figure
from matplotlib.text import Text

from perfkit.measuring.paths import ROOT, outputs_path
from perfkit.report.style import chart_style
from perfkit.report.text.language import gettext

PNG_DOTS_PER_INCH = 110
TAG = re.compile("<[^>]*>")
PAGE_LINK = re.compile(r'(?<=<a )(?=href="[^":]*\.html["#])')
"""Where attributes of a link to a page begin."""
TO_BROWSER = "this.href.includes('_xsrf=') && event.stopImmediatePropagation()"
"""Script of a link that JupyterLab leaves to the browser. Its server requires `_xsrf` in the
address, which JupyterLab adds; other viewers keep their own way."""
IN_TAB = f'target="_blank" onclick="{TO_BROWSER}" '
SVG_TEXT = re.compile(r">([^<]+)</text>")
FONT_FAMILY = re.compile(r"font-family: [^;\"<>]+; ")


@dataclass(frozen=True)
class Html:
    """Text and tables as HTML in which foreign text is already escaped. Its links are relative
    to `page_folder`, if it has any. Pages leave it out if it `is_absence`: if it only says what
    a measurement lacks."""

    html: str
    page_folder: Path | None = None
    is_absence: bool = False

    @property
    def metadata(self) -> dict[str, Any]:
        return {"perfkit": {"absence": True}} if self.is_absence else {}

    def bundle(self, *, png: bool) -> dict[str, str]:
        """Return the text by its MIME types; `png` adds formats for other viewers."""
        bundle = {"text/html": self.html}
        if png:
            bundle["text/plain"] = self.plain
        return bundle

    def display_bundle(self) -> dict[str, str]:
        """Return the bundle with links from the running notebook's folder."""
        bundle = self.bundle(png=True)
        if self.page_folder:
            bundle["text/html"] = _from_here(self.html, self.page_folder)
        return bundle

    @property
    def plain(self) -> str:
        """The text without elements: a line for each paragraph, row or item."""
        one_line = re.sub(r"\s+", " ", self.html)
        spaced = re.sub(r"</t[dh]>", "  ", one_line)
        broken = re.sub(r"</(p|tr|li|h\d)>|<br>", "\n", spaced)
        text = html.unescape(TAG.sub("", broken))
        lines = [line.strip() for line in text.splitlines()]
        return "\n".join(filter(None, lines))


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
        """Return the figure by its MIME types; `png` adds formats for other viewers."""
        bundle = {"image/svg+xml": SVG_TEXT.sub(_translated, self._svg)}
        if png:
            bundle |= {"image/png": self._png, "text/plain": self.plain}
        return bundle

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
        return _compact(stream.getvalue())

    @cached_property
    def _png(self) -> str:
        stream = io.BytesIO()
        with chart_style():
            figure = self.figure
            for text in figure.findobj(Text):
                text.set_text(gettext(text.get_text()))
            figure.savefig(stream, format="png", dpi=PNG_DOTS_PER_INCH)
        return base64.b64encode(stream.getvalue()).decode()


def _translated(text: re.Match[str]) -> str:
    """Return a text of an SVG, found by SVG_TEXT, in the current language."""
    translation = gettext(html.unescape(text[1]))
    return f">{html.escape(translation, quote=False)}</text>"


def _compact(svg: str) -> str:
    """Return matplotlib's SVG on one line, without what only makes it longer."""
    text = svg[svg.index("<svg") :]
    # Comments repeat foreign text, unescaped.
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[a-zA-Z0-9]+_\d+"', "<g", text)
    # Coordinates in hundredths of a point; texts, outside of tags, stay as they are.
    text = re.sub(r"(\.\d\d)\d+(?=[^<>]*>)", r"\1", text)
    lines = [line.strip() for line in text.split("\n")]
    return _with_one_font("".join(f"{line} " for line in lines if line))


def _with_one_font(svg: str) -> str:
    """Return an SVG that names the font of its texts once, if they have the same."""
    families = {*FONT_FAMILY.findall(svg)}
    if len(families) != 1:
        return svg
    (family,) = families
    return FONT_FAMILY.sub("", svg).replace("<svg ", f'<svg style="{family}" ', 1)


@dataclass(frozen=True)
class Section:
    """Outputs of a cell, in order; displays itself in a notebook."""

    parts: tuple[Html | Picture, ...] = ()

    def __add__(self, other: "Section") -> "Section":
        """Return the parts of both; adjacent texts become one output."""
        match self.parts[-1:], other.parts[:1]:
            case (Html() as last,), (Html() as first,):
                html = f"{last.html}\n{first.html}"
                folder = last.page_folder or first.page_folder
                text = Html(html, folder, last.is_absence and first.is_absence)
                return Section((*self.parts[:-1], text, *other.parts[1:]))
        return Section(self.parts + other.parts)

    def on_page_in(self, folder: Path) -> "Section":
        """Return the section with links relative to the folder of its page."""
        return Section(
            tuple(
                replace(part, page_folder=folder) if isinstance(part, Html) else part
                for part in self.parts
            )
        )

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for part in self.parts:
            display(part.display_bundle(), raw=True, metadata=part.metadata)

    def outputs(self, *, png: bool) -> list[dict[str, Any]]:
        """Return the parts as outputs of a cell; `png` adds formats for other viewers."""
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
        """HTML of all texts, and SVG of all figures."""
        bundles = [part.bundle(png=False) for part in self.parts]
        return "\n".join(text for bundle in bundles for text in bundle.values())

    def __repr__(self) -> str:
        return "\n".join(part.plain for part in self.parts)


def _from_here(html: str, page_folder: Path) -> str:
    """Make links relative to the working directory, which is the running notebook's folder, and
    have JupyterLab open pages in browser tabs. Links to places outside of the checkout and of
    that folder stay: JupyterLab could not follow them, and they would contain paths of this
    machine."""
    here = Path.cwd()
    page = outputs_path(page_folder)
    top = ROOT if here.is_relative_to(ROOT) else here
    if not page.is_relative_to(top):
        return html
    base = quote(os.path.relpath(page, here))
    local = re.sub(r'(?<=<a href=")(?![a-z]+:|#|/)', f"{base}/", html)
    return PAGE_LINK.sub(IN_TAB, local)


def picture(figure: Figure | Callable[[], Figure], alt: str) -> Section:
    return Section((Picture(figure, alt),))


def absence(section: Section) -> Section:
    """Return a section that only says what a measurement lacks, or explains it: notebooks show
    it, pages leave it out, with its heading if nothing else is below that."""
    parts = [
        replace(part, is_absence=True) if isinstance(part, Html) else part
        for part in section.parts
    ]
    return Section(tuple(parts))


def folded(heading: str, section: Section) -> Section:
    """Return the section folded below a heading. Figures are folded on pages only."""
    parts: list[Html | Picture] = []
    for part in section.parts:
        if isinstance(part, Picture):
            parts.append(replace(part, folded=heading))
        else:
            html = f"<details><summary>{escape(heading)}</summary>{part.html}</details>"
            parts.append(Html(html, part.page_folder))
    return Section(tuple(parts))
