"""Blocks of a section as HTML, with inline style for viewers without a page's style sheet."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from perfkit.report.blocks import (
    DASH,
    Block,
    Bullets,
    Column,
    Folded,
    Heading,
    Paragraph,
    Table,
    Template,
    Verbatim,
    plain_text,
)

NOTE = 'class="note" style="font-size: 90%; opacity: 0.8"'
LEFT, RIGHT = "text-align: left", "text-align: right; white-space: nowrap"
PARAGRAPHS = {
    "": Markup("<p>%s</p>"),
    "note": Markup("<p %s>%%s</p>") % Markup(NOTE.replace("%", "%%")),
    "title": Markup('<p class="title"><strong>%s</strong></p>'),
}
"""Look of a paragraph -> its element."""


def html(blocks: Iterable[Block]) -> str:
    """Return the HTML of these blocks."""
    return "\n".join(map(_html, blocks))


def _html(block: Block) -> str:  # noqa: PLR0911
    match block:
        case Paragraph(text, look):
            return PARAGRAPHS[look] % text
        case Heading(text, address, level):
            return Markup('<h%d id="%s">%s</h%d>') % (level, address, text, level)
        case Bullets(items, language):
            start = Markup('<ul lang="%s">') % language if language else Markup("<ul>")
            lines = Markup("\n").join(Markup("<li>%s</li>") % item for item in items)
            return start + lines + Markup("</ul>")
        case Verbatim(text, is_command=True):
            return Markup('<pre class="command">%s</pre>') % text
        case Verbatim(text):
            return Markup('<pre lang="en">%s</pre>') % text
        case Table():
            return _table(block)
        case Template(text):
            return text
        case Folded(heading, blocks, address):
            identifier = Markup(' id="%s"') % address if address else ""
            summary = escape(heading)
            return f"<details{identifier}><summary>{summary}</summary>{html(blocks)}</details>"


def _table(table: Table) -> str:
    title = label = ""
    if table.caption:
        title = Markup('<caption style="%s">%s</caption>') % (LEFT, table.caption)
        label = Markup(' aria-label="%s"') % plain_text(table.caption)
    start = '<table class="cards" role="table">' if table.as_cards else "<table>"
    lines = _lines(table.columns, as_cards=table.as_cards)
    element = f"{start}{title}\n{lines}</table>"
    return f'<div class="scroll" tabindex="0" role="region"{label}>{element}</div>'


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


def _style(column: Column) -> str:
    return RIGHT if column.is_of_numbers else LEFT


def _heading(column: Column, *, as_cards: bool) -> str:
    role = ' role="columnheader"' if as_cards else ""
    return f'<th style="{_style(column)}"{role}>{escape(column.heading)}</th>'


def _cell(column: Column, cell: Markup | None, *, as_cards: bool) -> str:
    """Return a cell; on cards, one with a value has its heading as label."""
    label = Markup()
    if as_cards:
        label = Markup(' role="cell"')
        if cell and cell.strip():
            label += Markup(' data-label="%s"') % column.label
    return f'<td style="{_style(column)}"{label}>{DASH if cell is None else cell}</td>'
