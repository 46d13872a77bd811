"""Paragraphs, lists, links and tables of a section, as HTML with inline style.

Text is escaped unless it is Markup.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from perfkit.analysis.verdicts import Verdict
from perfkit.report.section import Html, Section
from perfkit.report.text.language import gettext as _

Text = str | Markup
SEVERITY_MARKS = {
    "error": ("■", "#cf222e"),
    "caution": ("▲", "#9a6700"),
    "notice": ("◆", "#0969da"),
    None: ("●", "#1a7f37"),
    "undecided": ("○", "#59636e"),
}
"""Severity of warnings -> shape and colour; undecided: too little was measured to tell."""
VERDICT_SEVERITIES: dict[Verdict, str | None] = {
    "faster": None,
    "slower": "error",
    "no difference": None,
    "undecided": "undecided",
}
"""Verdict -> severity of its mark."""
RED = SEVERITY_MARKS["error"][1]
NOTE = 'class="note" style="font-size: 90%; opacity: 0.8"'
LEFT, RIGHT = "text-align: left", "text-align: right; white-space: nowrap"
DASH = "–"
NUMBER = re.compile(r"([■▲◆●○<≤≥] )?[+–-]?[\d.,]+|–|$")
"""Start of a cell's text, after an optional mark, that aligns the cell to the right."""
TAG = re.compile("<[^>]*>")


def markup(html: str) -> Section:
    """Return a section of safe HTML, in which foreign text is already escaped; empty without
    text. Notes get an inline style."""
    text = str(html).strip().replace('class="note"', NOTE)
    return Section((Html(str(text)),)) if text else Section()


def paragraph(*texts: Text) -> Section:
    """Return a paragraph of these texts; empty without text."""
    text = joined(texts)
    return markup(Markup("<p>%s</p>") % text if text else "")


def note(*texts: Text) -> Section:
    """Return a paragraph in small print of these texts; empty without text."""
    text = joined(texts)
    return markup(Markup('<p class="note">%s</p>') % text if text else "")


def hint(sentence: str, command: str) -> Section:
    """Return a sentence and the command that it announces."""
    return paragraph(sentence, code(command))


def more(count: int, place: str = "") -> Section:
    """Return a note that so many rows are elsewhere; empty if there are none."""
    if count <= 0:
        return Section()
    place = place or _("in the index and in results.csv")
    return note(_("%(count)d more: %(place)s.") % {"count": count, "place": place})


def joined(texts: Iterable[Text], between: str = " ") -> Markup:
    """Return the texts that are not empty, with `between` them."""
    return Markup(between).join(text for text in texts if text)


def bullets(items: Iterable[Text], language: str = "") -> Section:
    """Return a list of these items; `language` is that of foreign text."""
    lines = Markup("\n").join(Markup("<li>%s</li>") % item for item in items)
    start = Markup('<ul lang="%s">') % language if language else Markup("<ul>")
    return markup(start + lines + Markup("</ul>"))


def code(text: str) -> Markup:
    return Markup("<code>%s</code>") % text


def span(text: Text, style: str = "") -> Markup:
    """Return text as an element, which may have a class of the style sheet."""
    if not style:
        return Markup("<span>%s</span>") % text
    return Markup('<span class="%s">%s</span>') % (style, text)


def output(text: str) -> Section:
    """Return the output of another program; empty without any."""
    return markup(Markup('<pre lang="en">%s</pre>') % text if text else "")


def strong(text: Text) -> Markup:
    return Markup("<strong>%s</strong>") % text


def alarm(text: str) -> Markup:
    """Return text in the colour of errors."""
    return Markup('<strong style="color: %s">%s</strong>') % (RED, text)


def foreign(text: str) -> Markup:
    """Return text of other programs, which is not translated."""
    return Markup('<span lang="en">%s</span>') % text


def link(address: str, text: Text) -> Text:
    """Return a link to an address; the text alone if the address is empty."""
    return Markup('<a href="%s">%s</a>') % (address, text) if address else text


def file_link(path: str) -> Text:
    """Return a link to a file, whose path is relative to the page."""
    return link(quote(path), path)


def severity_mark(severity: str | None) -> Markup:
    """Return a mark whose shape and colour show the severity of a warning."""
    shape, colour = SEVERITY_MARKS[severity]
    return Markup('<span style="color: %s">%s</span>') % (colour, shape)


def verdict_mark(verdict: Verdict) -> Markup:
    """Return a mark: red for slower, grey for can't tell, otherwise green."""
    return severity_mark(VERDICT_SEVERITIES[verdict])


class NumberHeading(str):
    """The heading of a column of numbers, which are aligned to the right also beside words in
    the place of a number, such as "failed"."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading and a cell for each row, None without a value."""

    heading: Text
    cells: Sequence[Markup | None]

    @cached_property
    def style(self) -> str:
        """The inline style of its cells: columns of numbers are aligned to the right."""
        texts = [Markup(TAG.sub("", cell or "")).unescape().strip() for cell in self.cells]
        is_of_numbers = isinstance(self.heading, NumberHeading)
        return RIGHT if is_of_numbers or all(map(NUMBER.match, texts)) else LEFT

    @cached_property
    def label(self) -> str:
        """The heading without elements."""
        return Markup(escape(self.heading)).striptags()


def table(
    rows: Iterable[Sequence[Any]],
    headings: Iterable[Text],
    caption: Text = "",
    *,
    as_cards: bool = False,
) -> Section:
    """Return a table with a cell for each heading in each row; empty without rows.

    None is shown as a dash; columns of empty text are left out. With `as_cards`, narrow pages
    show each row as a card, so that no number is beyond their edge."""
    cells = [[None if value is None else escape(value) for value in row] for row in rows]
    columns = []
    for heading, column in zip(headings, zip(*cells, strict=True), strict=False):
        if any(cell is None or cell for cell in column):
            columns.append(Column(heading, column))
    if not columns:
        return Section()
    title = label = ""
    if caption:
        title = Markup('<caption style="%s">%s</caption>') % (LEFT, caption)
        label = Markup(' aria-label="%s"') % Markup(caption).striptags()
    start = '<table class="cards" role="table">' if as_cards else "<table>"
    html = f"{start}{title}\n{_lines(columns, as_cards=as_cards)}</table>"
    region = f'<div class="scroll" tabindex="0" role="region"{label}>{html}</div>'
    return Section((Html(region),))


def _lines(columns: Sequence[Column], *, as_cards: bool) -> str:
    """Return the head and the body of a table; the roles of cards say that they are rows."""
    group = ' role="rowgroup"' if as_cards else ""
    row = ' role="row"' if as_cards else ""
    head = "".join(_heading(column, as_cards=as_cards) for column in columns)
    lines = []
    for cells in zip(*(column.cells for column in columns), strict=True):
        parts = []
        for column, cell in zip(columns, cells, strict=True):
            parts.append(_cell(column, cell, as_cards=as_cards))
        lines.append(f"<tr{row}>{''.join(parts)}</tr>")
    body = "\n".join(lines)
    first = f"<thead{group}><tr{row}>{head}</tr></thead>"
    return f"{first}\n<tbody{group}>\n{body}\n</tbody>"


def _heading(column: Column, *, as_cards: bool) -> str:
    role = ' role="columnheader"' if as_cards else ""
    return f'<th style="{column.style}"{role}>{escape(column.heading)}</th>'


def _cell(column: Column, cell: Markup | None, *, as_cards: bool) -> str:
    """Return a cell; on cards, one with a value has its heading as label."""
    label = Markup()
    if as_cards:
        label = Markup(' role="cell"')
        if cell and cell.strip():
            label += Markup(' data-label="%s"') % column.label
    return f'<td style="{column.style}"{label}>{DASH if cell is None else cell}</td>'
