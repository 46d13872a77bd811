"""The published tables in their sources' shapes, with what was measured below each number."""

from typing import Any

from perfkit.report.grid import Entry, Grid, measured_entry, speedup_cells
from perfkit.tables.cells import (
    RUNS,
    SHAPES,
    Cell,
    Shape,
    gpu_count,
    marks,
    part,
    topology,
)
from perfkit.tables.matches import Match
from perfkit.words.language import gettext as _
from perfkit.words.wording import FRAMEWORK_NAMES, number


def grids(table: str, cells: list[Cell], matches: list[Match]) -> list[Grid]:
    """A published table as its source has it: one grid for each GPU and precision."""
    beside: dict[int, list[Match]] = {}
    for found in matches:
        beside.setdefault(id(found.cell), []).append(found)
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell["table"] == table:
            parts.setdefault(part(cell), []).append(cell)
    bases = {_alike(cell): cell for cell in cells if cell["speedup"] and gpu_count(cell) == 1}
    return [_grid(SHAPES[table], name, some, beside, bases) for name, some in parts.items()]


def _alike(cell: Cell) -> tuple[Any, ...]:
    """What a number and the base of its speed-up have in common."""
    keys = ("source", "framework", "precision", "batch_per_gpu", "statistic")
    return tuple(cell[key] for key in keys)


def _grid(
    shape: Shape,
    caption: str,
    cells: list[Cell],
    beside: dict[int, list[Match]],
    bases: dict[tuple[Any, ...], Cell],
) -> Grid:
    columns = list(dict.fromkeys(shape.column(cell) for cell in cells))
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(shape.row(cell), {})[shape.column(cell)] = cell
    headings, lines = [], []
    for column in columns:
        headings += [column, *([_("speed-up"), _("efficiency")] if shape.speedup else [])]
    for label, found in rows.items():
        line: list[list[Entry]] = []
        for column in columns:
            here = found.get(column)
            line.append(_entries(here, beside.get(id(here), [])))
            if shape.speedup:
                line += _speedup(here, bases)
        lines.append((label, line))
    return Grid(caption, _(shape.corner), headings, lines, _origins(cells))


def _origins(cells: list[Cell]) -> list[str]:
    """What the source says of GPU, input and statistic, with the frameworks it holds for."""
    names = {"gpu": "GPU", "input": _("input"), "statistic": _("statistic")}
    told = [cells[0]["unit"]]
    for key, name in names.items():
        values = list(dict.fromkeys(cell[key] for cell in cells))
        words = [
            _(value or "not stated")
            + (f" ({_whose(cells, key, value)})" if len(values) > 1 else "")
            for value in values
        ]
        told.append(f"{name}: {'; '.join(words)}")
    return told


def _whose(cells: list[Cell], key: str, value: str | None) -> str:
    """The frameworks that have this value, if they tell it apart, or else the topologies."""
    own = [cell for cell in cells if cell[key] == value]
    frameworks = {cell["framework"] for cell in cells if cell[key] != value}
    if frameworks & {cell["framework"] for cell in own}:
        names = [topology(cell) for cell in own]
    else:
        names = [FRAMEWORK_NAMES[cell["framework"]] for cell in own]
    return ", ".join(dict.fromkeys(names))


def _speedup(cell: Cell | None, bases: dict[tuple[Any, ...], Cell]) -> list[list[Entry]]:
    """Speed-up and efficiency over one GPU, computed from numbers of the same statistic; where
    the source prints another speed-up, that too."""
    base = bases.get(_alike(cell)) if cell and cell["throughput"] else None
    if not cell or not base:
        return [[Entry(_("not published"), kind="absent")]] * 2
    speedup, efficiency = speedup_cells(
        cell["throughput"], gpu_count(cell), base["throughput"], gpu_count(base)
    )
    computed, printed = speedup[0], cell["speedup"]
    if printed and float(computed.text) != float(printed):
        note = _("printed: %(printed)s") % {"printed": printed}
        speedup = [Entry(computed.text, [note])]
    return [speedup, efficiency]


def _entries(cell: Cell | None, matches: list[Match]) -> list[Entry]:
    """What was published, and below it what was measured."""
    if cell is None or cell["status"] == "not_published":
        published = Entry(_("not published"), kind="absent")
    elif cell["status"] == "dash":
        published = Entry(_("– (a dash)"), marks(cell), kind="absent")
    else:
        published = Entry(cell["printed"], marks(cell), kind="published")
    if cell and cell["table"] == RUNS:
        return [published]
    if not matches:
        return [published, measured_entry(None)]
    return [published, *(_measured(found) for found in matches)]


def _measured(found: Match) -> Entry:
    entry = measured_entry(found.row)
    if found.row["throughput"] is None:
        return entry
    notes = [*entry.notes, *found.differs.values()]
    if found.ratio:
        notes.insert(0, _("%(ratio)s of published") % {"ratio": number(found.ratio, 3)})
    return Entry(entry.text, notes, href=entry.href)
