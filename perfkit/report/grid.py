"""Tables of throughput: rows by columns, and in each cell what was measured or published."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from perfkit.report.language import current, file_name
from perfkit.report.language import gettext as _
from perfkit.report.series import Series, device_name, devices
from perfkit.report.wording import FRAMEWORK_NAMES, number, percent


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


def measured_entry(row: dict[str, Any] | None) -> Entry:
    """A row of frames.load as a table shows it; of None, that it was not run."""
    if row is None:
        return Entry(_("not run"), kind="absent")
    href = f"../{quote(row['folder'])}/{file_name('report', current())}"
    if row["throughput"] is None:
        why = row["failure"]
        text = _("failed: %(code)s") % {"code": why} if why else _("not finished")
        return Entry(text, kind="absent", href=href)
    notes = [interval_words(row)]
    if row["status"] != "complete":
        kept = {"kept": row["n"], "asked": row["repeats"], "why": row["failure"] or ""}
        notes.append(_("partial: %(kept)d of %(asked)d repeats %(why)s") % kept)
    return Entry(number(row["throughput"]), notes, href=href)


def interval_words(row: dict[str, Any]) -> str:
    if row["throughput_low"] is None:
        return _("no interval (n=1)")
    low, high = number(row["throughput_low"]), number(row["throughput_high"])
    return f"{low} – {high} ({percent(row['interval_level'], 4)}, n={row['n']})"


def batch_by_topology(series: Series) -> Grid:
    """One series in the shape of the FleetX tables: batch size by topology."""
    topologies = {row["topology"]: devices(row) for row in series.rows}
    columns = sorted(topologies, key=lambda topology: (topologies[topology], topology))
    batches = sorted({row["batch_size"] for row in series.rows})
    cells = {
        (batch, topology): [
            row
            for row in series.rows
            if (row["batch_size"], row["topology"]) == (batch, topology)
        ]
        for batch in batches
        for topology in columns
    }
    not_run = [measured_entry(None)]
    rows = [
        (str(batch), [[*map(measured_entry, cells[batch, t])] or not_run for t in columns])
        for batch in batches
    ]
    return Grid(series.name, _("batch per device"), columns, rows, origin(series))


def origin(series: Series) -> list[str]:
    """Where a series was measured and how: unit, device, framework's version, protocol."""
    row = series.rows[0]
    version = row.get(f"environment.{row['framework']}") or ""
    steps = f"{row['warmup_steps']} + {row['measured_steps']}, {row['repeats']}x"
    return [
        row["unit"],
        device_name(row),
        f"{FRAMEWORK_NAMES[row['framework']]} {version}",
        f"{row['protocol']} ({steps})",
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
        rows += [
            (
                f"{batch}, {row['topology']}",
                [
                    [measured_entry(row)],
                    *speedup_cells(
                        row["throughput"], devices(row), base["throughput"], devices(base)
                    ),
                ],
            )
            for row in measured
        ]
    columns = [series.rows[0]["unit"], _("speed-up"), _("efficiency")]
    corner = _("batch per device, topology")
    return Grid(series.name, corner, columns, rows, origin(series)) if rows else None


def speedup_cells(
    value: float, count: int, base_value: float, base_count: int
) -> list[list[Entry]]:
    """Two cells: the ratio to the base, and that over the ratio of the numbers of devices."""
    ratio = value / base_value
    return [[Entry(f"{ratio:.2f}")], [Entry(percent(ratio * base_count / count))]]
