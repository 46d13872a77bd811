"""Several audited logs side by side in a terminal."""

from collections.abc import Mapping, Sequence

from perfkit.audit.audit import Audit
from perfkit.core.format import amount
from perfkit.report.audited_logs import (
    base_names,
    log_table,
    table_notes,
    verdict_texts,
    without_middle,
)
from perfkit.report.text.terminal import WIDTH, fitted

GAP = "  "
"""Between two columns."""
FEWEST_OF_NAME = 18
"""Characters of a log's name beside its figures, at least; with less room it stands above."""
MOST_TRAININGS = 8
"""Trainings of a single file that are shown, at most, unless everything is asked for."""


def logs_lines(audit: Audit, names: Mapping[str, str], *, everything: bool) -> list[str]:
    """Return the verdict on two logs, and the table of all."""
    titles = base_names(audit.logs, names)
    lines = []
    for text in verdict_texts(audit, titles):
        lines += fitted(text)
    if lines:
        lines.append("")
    logs = audit.logs
    of_one_file = len({log.sha256 for log in logs}) == 1
    if of_one_file and not everything:
        logs = logs[:MOST_TRAININGS]
    table = log_table(audit, logs)
    cells = [table.headings, *table.rows]
    texts = _aligned(cells)
    # Numbers of a log may have any length.
    while len(texts[0]) > WIDTH:
        cells = [row[:-1] for row in cells]
        texts = _aligned(cells)
    room = WIDTH - len(texts[0]) - len(GAP)
    titles_of_rows = [titles[log.name] for log in logs]
    needed = min(FEWEST_OF_NAME, max(map(len, titles_of_rows)))
    if room >= needed:
        lines += _beside(["log", *titles_of_rows], texts, room)
    else:
        lines += _above(titles_of_rows, texts)
    if len(logs) < len(audit.logs):
        others = amount(len(audit.logs) - len(logs), "more training")
        lines.append(f"and {others} (--all shows them)")
    for note in table_notes(audit):
        lines += fitted(note)
    return lines


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of right-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        aligned = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append(GAP.join(aligned))
    return lines


def _beside(titles: Sequence[str], texts: Sequence[str], room: int) -> list[str]:
    """Return lines of a title, shortened to the room that the others leave, and a text."""
    short_titles = [without_middle(title, room) for title in titles]
    width = max(map(len, short_titles))
    lines = []
    for title, text in zip(short_titles, texts, strict=True):
        lines.append(f"{title.ljust(width)}{GAP}{text}".rstrip())
    return lines


def _above(titles: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return the headings, then two lines for each log: its title and its text."""
    lines = [texts[0].rjust(WIDTH)]
    for title, text in zip(titles, texts[1:], strict=True):
        lines += [without_middle(title, WIDTH), text.rjust(WIDTH).rstrip()]
    return lines
