"""The list of a page's sections, at its beginning."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from perfkit.report.elements import joined, link
from perfkit.report.text.language import gettext as _

HEADING = re.compile(r'<h([23]) id="([^"]+)"[^>]*>(.*?)</h\1>', re.DOTALL)
"""A heading with an address: its level, its address, and its HTML."""
ANCHOR = re.compile(r"</?a\b[^>]*>")
"""The start or end of a link, of which a link can't have another one in it."""
TITLE_END = "</h1>"
FEWEST = 2
"""Sections, or parts of a single one, from which a page lists them."""


@dataclass
class Listed:
    """A section with its address on the page, and the sections in it."""

    address: str
    name: Markup
    parts: list["Listed"] = field(default_factory=list)

    def __html__(self) -> str:
        parts = _items(self.parts) if self.parts else ""
        return Markup("<li>%s%s</li>") % (link(f"#{self.address}", self.name), parts)


def with_contents(html: Markup) -> Markup:
    """Return a page's HTML with the list of its sections below the title."""
    title, end, sections = html.partition(TITLE_END)
    return Markup(title + end) + contents(sections_of(sections)) + Markup(sections)


def sections_of(html: str) -> list[Listed]:
    """Return the sections below headings of the second level that have an address, with those
    of the third level in them."""
    sections: list[Listed] = []
    for level, address, name in HEADING.findall(html):
        section = Listed(Markup(address), Markup(ANCHOR.sub("", name)))
        if level == "2":
            sections.append(section)
        elif sections:
            sections[-1].parts.append(section)
    return sections


def contents(sections: Sequence[Listed]) -> Markup:
    """Return the list of these sections; empty for too few."""
    most = max([len(sections), *(len(section.parts) for section in sections)])
    if most < FEWEST:
        return Markup()
    layout = Markup(
        '\n<nav class="sections" aria-label="%s"><details open><summary>%s</summary>'
        "%s</details></nav>"
    )
    words = _("Contents")
    return layout % (words, words, _items(sections))


def _items(sections: Iterable[Listed]) -> Markup:
    items = [Markup("%s") % section for section in sections]
    return Markup("<ul>%s</ul>") % joined(items, "")
