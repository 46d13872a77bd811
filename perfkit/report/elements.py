"""Sections of one paragraph, list or table; marks, links and other inline text.

Text is escaped unless it is Markup.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from perfkit.analysis.verdicts import Verdict
from perfkit.report.blocks import (
    Block,
    Bullets,
    Column,
    Heading,
    Inline,
    Look,
    Paragraph,
    Table,
    Template,
    Verbatim,
)
from perfkit.report.section import Prose, Section
from perfkit.report.text.language import gettext as _

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


def _section(block: Block) -> Section:
    return Section((Prose((block,)),))


def paragraph(*texts: Inline, look: Look = "") -> Section:
    """Return a paragraph of these texts; empty without text."""
    text = joined(texts)
    return _section(Paragraph(text, look)) if text else Section()


def note(*texts: Inline) -> Section:
    """Return a paragraph in small print of these texts; empty without text."""
    return paragraph(*texts, look="note")


def title(text: Inline) -> Section:
    """Return what a page is about, where it has another heading."""
    return paragraph(text, look="title")


def heading(text: Inline, address: str, level: int = 3) -> Section:
    """Return the heading of a part of a section, with its address on the page."""
    return _section(Heading(escape(text), address, level))


def part(name: str, section: Section) -> Section:
    """Return a section below a heading that the page's contents list; empty without parts."""
    if not section.parts:
        return section
    return heading(name, name.replace(" ", "-"), level=2) + section


def command(text: str) -> Section:
    """Return a command to copy."""
    return _section(Verbatim(text, is_command=True))


def template(html: Markup, text: str) -> Section:
    """Return HTML that is more than the other blocks, and its text for terminals."""
    return _section(Template(html, text))


def hint(sentence: str, command: str) -> Section:
    """Return a sentence and the command that it announces."""
    return paragraph(sentence, code(command))


def more(count: int, place: str = "") -> Section:
    """Return a note that so many rows are elsewhere; empty if there are none."""
    if count <= 0:
        return Section()
    place = place or _("in the index and in results.csv")
    return note(_("%(count)d more: %(place)s.") % {"count": count, "place": place})


def joined(texts: Iterable[Inline], between: str = " ") -> Markup:
    """Return the texts that are not empty, with `between` them."""
    return Markup(between).join(text for text in texts if text)


def bullets(items: Iterable[Inline], language: str = "") -> Section:
    """Return a list of these items, empty without any; `language` is that of foreign text."""
    listed = [*items]
    return _section(Bullets(listed, language)) if listed else Section()


def code(text: str) -> Markup:
    return Markup("<code>%s</code>") % text


def span(text: Inline, style: str = "") -> Markup:
    """Return text as an element, which may have a class of the style sheet."""
    if not style:
        return Markup("<span>%s</span>") % text
    return Markup('<span class="%s">%s</span>') % (style, text)


def output(text: str) -> Section:
    """Return the output of another program; empty without any."""
    return _section(Verbatim(text)) if text else Section()


def strong(text: Inline) -> Markup:
    return Markup("<strong>%s</strong>") % text


def alarm(text: str) -> Markup:
    """Return text in the colour of errors."""
    return Markup('<strong style="color: %s">%s</strong>') % (RED, text)


def grey(text: Inline) -> Markup:
    """Return text in the colour of what can't be told."""
    return Markup('<span style="color: %s">%s</span>') % (SEVERITY_MARKS["undecided"][1], text)


def foreign(text: str) -> Markup:
    """Return text of other programs, which is not translated."""
    return Markup('<span lang="en">%s</span>') % text


def link(address: str, text: Inline) -> Inline:
    """Return a link to an address; the text alone if the address is empty."""
    return Markup('<a href="%s">%s</a>') % (address, text) if address else text


def file_link(path: str) -> Inline:
    """Return a link to a file, whose path is relative to the page."""
    return link(quote(path), path)


def severity_mark(severity: str | None) -> Markup:
    """Return a mark whose shape and colour show the severity of a warning."""
    shape, colour = SEVERITY_MARKS[severity]
    return Markup('<span style="color: %s">%s</span>') % (colour, shape)


def verdict_mark(verdict: Verdict) -> Markup:
    """Return a mark: red for slower, grey for can't tell, otherwise green."""
    return severity_mark(VERDICT_SEVERITIES[verdict])


def table(
    rows: Iterable[Sequence[Any]],
    headings: Iterable[Inline],
    caption: Inline = "",
    *,
    as_cards: bool = False,
) -> Section:
    """Return a table with a cell for each heading in each row; empty without rows.

    None is shown as a dash; columns of empty text are left out. With `as_cards`, narrow pages
    and terminals show each row as a card, so that no number is beyond their edge."""
    cells = [[None if value is None else escape(value) for value in row] for row in rows]
    columns = []
    for heading, column in zip(headings, zip(*cells, strict=True), strict=False):
        if any(cell is None or cell for cell in column):
            columns.append(Column(heading, column))
    return _section(Table(columns, caption, as_cards)) if columns else Section()
