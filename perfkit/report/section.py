"""Outputs of a notebook cell: text, tables and figures.

JupyterLab, VS Code, GitHub and nbconvert show MIME bundles without a page's style sheet, and
JupyterLab removes `style` elements from untrusted notebooks. So figures have their own colours,
as SVG and as PNG for viewers without SVG, and table cells have inline alignment.
"""

import base64
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from matplotlib.figure import Figure
from matplotlib.text import Text

from perfkit.measuring.paths import ROOT, outputs_path
from perfkit.report.blocks import Block, Folded
from perfkit.report.html import html
from perfkit.report.style import chart_style
from perfkit.report.terminal import terminal_text
from perfkit.report.text.language import gettext

PNG_DOTS_PER_INCH = 110
NARROW_SVG = "application/vnd.perfkit.narrow+svg"
"""Type of a figure for narrow screens, which only the suite's pages show."""
PAGE_LINK = re.compile(r'(?<=<a )(?=href="[^":]*\.html["#])')
"""Where attributes of a link to a page begin."""
TO_BROWSER = "this.href.includes('_xsrf=') && event.stopImmediatePropagation()"
"""Script of a link that JupyterLab leaves to the browser. Its server requires `_xsrf` in the
address, which JupyterLab adds; other viewers keep their own way."""
IN_TAB = f'target="_blank" onclick="{TO_BROWSER}" '
SVG_TEXT = re.compile(r">([^<]+)</text>")
FONT_FAMILY = re.compile(r"font-family: [^;\"<>]+; ")


@dataclass(frozen=True)
class Prose:
    """Blocks of text. Their links are relative to `page_folder`, if there is any."""

    blocks: tuple[Block, ...]
    page_folder: Path | None = None

    @property
    def html(self) -> str:
        return html(self.blocks)

    @property
    def plain(self) -> str:
        """The text as on a terminal."""
        return terminal_text(self.blocks)

    @property
    def metadata(self) -> dict[str, Any]:
        return {}

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


@dataclass(frozen=True)
class Picture:
    """A figure, or a function that draws it, with its alternative text; pages fold it below the
    heading `folded`, if any. Its texts are translated when it is shown, so that it is drawn
    once for all languages."""

    drawn: Figure | Callable[[], Figure]
    alt: str
    folded: str = ""
    drawn_narrow: Callable[[], Figure] | None = None
    """draws the figure for a narrow screen, on which it would be cut"""

    @property
    def figure(self) -> Figure:
        return self.drawn() if callable(self.drawn) else self.drawn

    def bundle(self, *, png: bool) -> dict[str, str]:
        """Return the figure by its MIME types; `png` adds formats for other viewers."""
        bundle = {"image/svg+xml": SVG_TEXT.sub(_translated, self._svg)}
        if self.drawn_narrow:
            bundle[NARROW_SVG] = SVG_TEXT.sub(_translated, self._narrow_svg)
        if png:
            bundle |= {"image/png": self._png, "text/plain": self.plain}
        return bundle

    def display_bundle(self) -> dict[str, str]:
        bundle = self.bundle(png=True)
        bundle.pop(NARROW_SVG, None)
        return bundle

    @property
    def plain(self) -> str:
        return gettext(self.alt)

    @property
    def metadata(self) -> dict[str, Any]:
        return {"perfkit": {"alt": self.plain, "folded": gettext(self.folded)}}

    @cached_property
    def _svg(self) -> str:
        return _svg_of(self.figure)

    @cached_property
    def _narrow_svg(self) -> str:
        assert self.drawn_narrow
        return _svg_of(self.drawn_narrow())

    @cached_property
    def _png(self) -> str:
        stream = io.BytesIO()
        with chart_style():
            figure = self.figure
            for text in figure.findobj(Text):
                text.set_text(gettext(text.get_text()))
            figure.savefig(stream, format="png", dpi=PNG_DOTS_PER_INCH)
        return base64.b64encode(stream.getvalue()).decode()


def _svg_of(figure: Figure) -> str:
    stream = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with chart_style():
        figure.savefig(stream, format="svg", metadata=nothing)
    return _compact(stream.getvalue())


def _translated(text: re.Match[str]) -> str:
    """Return a text of an SVG, found by SVG_TEXT, in the current language."""
    translation = gettext(unescape(text[1]))
    return f">{escape(translation, quote=False)}</text>"


def _compact(svg: str) -> str:
    """Return matplotlib's SVG on one line, without what only makes it longer."""
    text = svg[svg.index("<svg") :]
    # Comments repeat foreign text, unescaped.
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[a-zA-Z0-9]+_\d+"', "<g", text)
    # Coordinates in hundredths of a point; texts, outside of tags, stay as they are.
    text = re.sub("<[^<>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), text)
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

    parts: tuple[Prose | Picture, ...] = ()

    def __add__(self, other: "Section") -> "Section":
        """Return the parts of both; adjacent texts become one output."""
        match self.parts[-1:], other.parts[:1]:
            case (Prose() as last,), (Prose() as first,):
                folder = last.page_folder or first.page_folder
                text = Prose((*last.blocks, *first.blocks), folder)
                return Section((*self.parts[:-1], text, *other.parts[1:]))
        return Section(self.parts + other.parts)

    def on_page_in(self, folder: Path) -> "Section":
        """Return the section with links relative to the folder of its page."""
        return Section(
            tuple(
                replace(part, page_folder=folder) if isinstance(part, Prose) else part
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

    @property
    def text(self) -> str:
        """The text of the section as on a terminal, without its figures."""
        texts = [part.plain for part in self.parts if isinstance(part, Prose)]
        return "\n\n".join(filter(None, texts))

    def __repr__(self) -> str:
        return self.text


def _from_here(content: str, page_folder: Path) -> str:
    """Make links relative to the working directory, which is the running notebook's folder, and
    have JupyterLab open pages in browser tabs. Links to places outside of the checkout and of
    that folder stay: JupyterLab could not follow them, and they would contain paths of this
    machine."""
    here = Path.cwd()
    page = outputs_path(page_folder)
    top = ROOT if here.is_relative_to(ROOT) else here
    if not page.is_relative_to(top):
        return content
    base = quote(os.path.relpath(page, here))
    local = re.sub(r'(?<=<a href=")(?![a-z]+:|#|/)', f"{base}/", content)
    return PAGE_LINK.sub(IN_TAB, local)


def picture(
    figure: Figure | Callable[[], Figure],
    alt: str,
    narrow: Callable[[], Figure] | None = None,
) -> Section:
    """Return a figure with its alternative text, and what draws it for narrow screens."""
    return Section((Picture(figure, alt, drawn_narrow=narrow),))


def folded(heading: str, section: Section, address: str = "") -> Section:
    """Return the section folded below a heading, which may have an address on the page; empty
    without parts. Figures are folded on pages only."""
    parts: list[Prose | Picture] = []
    for part in section.parts:
        if isinstance(part, Picture):
            parts.append(replace(part, folded=heading))
        else:
            parts.append(replace(part, blocks=(Folded(heading, part.blocks, address),)))
    return Section(tuple(parts))
