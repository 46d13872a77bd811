"""Tables of throughput: rows by columns, and in each cell what was measured or published."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from perfkit.tables.series import Series, device_name, in_words, resources, size
from perfkit.words.language import current, file_name
from perfkit.words.language import gettext as _
from perfkit.words.wording import FRAMEWORK_NAMES, interval_words, number, percent


@dataclass(frozen=True)
class Entry:
    """What a cell says, `notes` below it in small print; `kind` is how it is shown:
    `number`, `published`, or `absent` for words in place of a number."""

    text: str
    notes: list[str] = field(default_factory=list)
    kind: str = "number"
    href: str | None = None


@dataclass(frozen=True)
class Grid:
    """A table. `rows` are (label, cells); a cell is a list of entries, never an empty one."""

    caption: str
    corner: str
    columns: list[str]
    rows: list[tuple[str, list[list[Entry]]]]
    notes: list[str] = field(default_factory=list)


def measured_entry(row: dict[str, Any] | None, *apart: str) -> Entry:
    """A row of frames.load as a table shows it, with what sets it `apart` from others in its
    cell; of None, that it was not run."""
    if row is None:
        return Entry(_("not run"), kind="absent")
    href = f"../{quote(row['folder'])}/{file_name('report', current())}"
    if row["throughput"] is None:
        why = row["failure"]
        text = _("failed: %(code)s") % {"code": why} if why else _("not finished")
        return Entry(text, [*apart], kind="absent", href=href)
    interval = (row["throughput_low"], row["throughput_high"], row["interval_level"])
    notes = [interval_words(*interval, row["n"]), *apart]
    if row["status"] != "complete":
        kept = {"kept": row["n"], "asked": row["repeats"], "why": row["failure"] or ""}
        notes.append(_("partial: %(kept)d of %(asked)d repeats %(why)s") % kept)
    return Entry(number(row["throughput"]), notes, href=href)


def apart(rows: list[dict[str, Any]]) -> list[list[str]]:
    """What sets apart measurements of one place in a series; nothing for a single one."""
    if len(rows) < 2:
        return [[] for _row in rows]
    keys = [key for key in ("launcher", "hosts") if len({row[key] for row in rows}) > 1]
    return [[f"{key} {row[key]}" for key in keys] or [row["folder"]] for row in rows]


def batch_by_topology(series: Series) -> Grid:
    """One series in the shape of the FleetX tables: batch size by topology."""
    columns = sorted({row["topology"] for row in series.rows}, key=size)
    cells: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in series.rows:
        cells.setdefault((row["batch_size"], row["topology"]), []).append(row)
    rows = []
    for batch in sorted({row["batch_size"] for row in series.rows}):
        line = []
        for topology in columns:
            found = cells.get((batch, topology), [])
            entries = [
                measured_entry(row, *words)
                for row, words in zip(found, apart(found), strict=True)
            ]
            line.append(entries or [measured_entry(None)])
        rows.append((str(batch), line))
    return Grid(series.name, _("batch per device"), columns, rows, origin(series))


def origin(series: Series) -> list[str]:
    """Where a series was measured and how: unit, device, framework's version, protocol."""
    row = series.rows[0]
    version = row.get(f"environment.{row['framework']}") or ""
    steps = f"{row['warmup_steps']} + {row['measured_steps']}, {row['repeats']}x"
    imported = [in_words("imported", row["imported"])] if row["imported"] else []
    return [
        row["unit"],
        device_name(row),
        f"{FRAMEWORK_NAMES[row['framework']]} {version}".rstrip(),
        f"{row['protocol']} ({steps})",
        *imported,
    ]


def speedup_by_topology(series: Series) -> Grid | None:
    """One series in the shape of DLPerf's table: what more devices give, over the fewest that
    were measured at the same batch size. None where nothing was measured on two topologies."""
    rows = []
    for batch in sorted({row["batch_size"] for row in series.rows}):
        measured = [r for r in series.rows if r["batch_size"] == batch and r["throughput"]]
        if len({row["topology"] for row in measured}) < 2:
            continue
        base = measured[0]
        for row in measured:
            same = [other for other in measured if other["topology"] == row["topology"]]
            words = apart(same)[same.index(row)]
            speedup, efficiency = speedup_cells(
                row["throughput"], resources(row), base["throughput"], resources(base)
            )
            if row is base:
                speedup = [Entry(speedup[0].text, [_("the base")])]
            elif resources(row) == resources(base):
                efficiency = [Entry(_("the same cores"), kind="absent")]
            elif _is_above_linear(row, base):
                efficiency = [Entry(efficiency[0].text, [_("warning: above linear")])]
            line = [[measured_entry(row, *words)], speedup, efficiency]
            rows.append((f"{batch}, {row['topology']}", line))
    columns = [series.rows[0]["unit"], _("speed-up"), _("efficiency")]
    corner = _("batch per device, topology")
    return Grid(series.name, corner, columns, rows, origin(series)) if rows else None


def _is_above_linear(row: dict[str, Any], base: dict[str, Any]) -> bool:
    """Whether more devices gave more than their share, beyond what both intervals allow."""
    if row["throughput_low"] is None or base["throughput_high"] is None:
        return False
    least = row["throughput_low"] / base["throughput_high"]
    return bool(least > resources(row) / resources(base))


def speedup_cells(
    value: float, count: int, base_value: float, base_count: int
) -> list[list[Entry]]:
    """Two cells: the ratio to the base, and that over the ratio of the numbers of devices."""
    ratio = value / base_value
    return [[Entry(f"{ratio:.2f}")], [Entry(percent(ratio * base_count / count))]]
