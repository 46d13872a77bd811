"""The list of a page's sections, at its beginning."""

import re

from markupsafe import Markup

from perfkit.report.elements import joined, link
from perfkit.report.text.language import gettext as _

HEADING = re.compile(r'<h([23]) id="([^"]+)"[^>]*>(.*?)</h\1>', re.DOTALL)
"""A heading with an address: its level, its address, and its HTML."""
ANCHOR = re.compile(r"</?a\b[^>]*>")
"""The start or end of a link, of which a link can't have another one in it."""
TITLE_END = "</h1>"
FEWEST = 2
"""Sections from which a page lists them."""


def with_contents(html: Markup) -> Markup:
    """Return a page's HTML with the list of its sections below the title."""
    title, end, sections = html.partition(TITLE_END)
    return Markup(title + end) + contents(sections) + Markup(sections)


def contents(html: str) -> Markup:
    """Return the list of the sections below headings of the second and third level that have an
    address; empty for too few."""
    items = []
    for level, address, name in HEADING.findall(html):
        page_link = link(f"#{address}", Markup(ANCHOR.sub("", name)))
        items.append(Markup('<li class="level%s">%s</li>') % (level, page_link))
    if len(items) < FEWEST:
        return Markup()
    layout = Markup(
        '\n<nav class="sections" aria-label="%s"><details open><summary>%s</summary>'
        "<ul>%s</ul></details></nav>"
    )
    words = _("Contents")
    return layout % (words, words, joined(items, ""))
