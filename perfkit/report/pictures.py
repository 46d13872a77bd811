"""What the summary's charts show: each picture with the finding that it is there for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from perfkit.models import MODELS
from perfkit.report import charts
from perfkit.report.language import gettext as _
from perfkit.report.language import ngettext
from perfkit.report.published import (
    RUNS,
    SHAPES,
    TABLE_PRECISION,
    Cell,
    Match,
    gpu_count,
    topology,
)
from perfkit.report.series import Series, device_name, devices
from perfkit.report.wording import FRAMEWORK_NAMES, number, percent


@dataclass(frozen=True)
class Picture:
    """A chart, what it is of, and its finding in a sentence."""

    finding: str
    subject: str
    chart: Markup


Numbers = tuple[float, float | None, float | None, tuple[float, ...]]
"""A number, the ends of its interval, and the repeats behind it."""
Line = tuple[str, Any, float, float | None, float | None, tuple[float, ...]]
"""Values of charts.POINTS: line, x, and Numbers."""


def of_series(series: Series) -> list[Picture]:
    """Throughput against batch size and, with several topologies, against those."""
    rows = [row for row in series.rows if row["throughput"] is not None]
    if not rows:
        return []
    numbers = [
        (r["throughput"], r["throughput_low"], r["throughput_high"], r["repeat_throughputs"])
        for r in rows
    ]
    by_batch = [
        (r["topology"], r["batch_size"], *n) for r, n in zip(rows, numbers, strict=True)
    ]
    by_count = [
        (str(r["batch_size"]), devices(r), *n) for r, n in zip(rows, numbers, strict=True)
    ]
    names = {devices(row): row["topology"] for row in rows}
    subject = f"{MODELS[series.model].name}, {series.name}"
    return _two(by_batch, by_count, names, rows[0]["unit"], subject)


def of_fleetx(table: str, cells: list[Cell]) -> list[Picture]:
    """The same two for each precision of a FleetX table, without intervals: none are given."""
    pictures = []
    parts = dict.fromkeys(cell["precision"] for cell in cells if cell["table"] == table)
    for part in parts:
        some = [c for c in cells if (c["table"], c["precision"]) == (table, part)]
        some = [cell for cell in some if cell["throughput"] is not None]
        by_batch = [(topology(c), c["batch_per_gpu"], *_bare(c)) for c in some]
        by_count = [(str(c["batch_per_gpu"]), gpu_count(c), *_bare(c)) for c in some]
        names = {gpu_count(cell): topology(cell) for cell in some}
        subject = f"{some[0]['source']}, {TABLE_PRECISION[part]}"
        pictures += _two(by_batch, by_count, names, some[0]["unit"], subject)
    return pictures


def of_dlperf(cells: list[Cell]) -> list[Picture]:
    """Framework against framework on more and more GPUs, with the runs that are known."""
    means = [c for c in cells if c["table"] == "dlperf-resnet50"]
    runs = [cell for cell in cells if cell["table"] == RUNS]
    lines = []
    for cell in sorted(means, key=lambda c: c["framework"]):
        own = cell["framework"] == "paddle"
        known = [run["throughput"] for run in runs if topology(run) == topology(cell) and own]
        value = cell["throughput"]
        name = FRAMEWORK_NAMES[cell["framework"]]
        lines.append((name, gpu_count(cell), value, None, None, tuple(known)))
    names = {gpu_count(cell): topology(cell) for cell in means}
    points, legend = _points(lines), _("framework")
    return [_scaling(points, names, legend, means[0]["unit"], means[0]["source"])]


def of_frameworks(table: str, cells: list[Cell], matches: list[Match]) -> list[Picture]:
    """Framework against framework for each precision and GPU, measurements among them."""
    pictures = []
    some = [c for c in cells if c["table"] == table and c["throughput"] is not None]
    parts: dict[str, list[Cell]] = {}
    for cell in some:
        part = f"{cell['gpu'].split('-')[0]}, {TABLE_PRECISION[cell['precision']]}"
        parts.setdefault(part, []).append(cell)
    for part, own in parts.items():
        row = SHAPES[table].row
        lines = [_per_gpu(FRAMEWORK_NAMES[c["framework"]], row(c), c, _bare(c)) for c in own]
        finding = _leaders(lines)
        keys = {id(cell) for cell in own}
        for found in matches:
            if id(found.cell) in keys and found.ratio:
                name = _("%(framework)s, measured") % {
                    "framework": FRAMEWORK_NAMES[found.row["framework"]]
                }
                lines.append(_per_gpu(name, row(found.cell), found.cell, _measured(found.row)))
        unit = _("%(unit)s per GPU") % {"unit": own[0]["unit"]}
        chart = charts.dots(_points(lines), unit)
        pictures.append(Picture(finding, f"{own[0]['source']}, {part}", chart))
    return pictures


def of_ratios(matches: list[Match]) -> list[Picture]:
    """Measured / published for each published cell that was measured, by table."""
    pictures = []
    for table in dict.fromkeys(found.cell["table"] for found in matches if found.ratio):
        some = [m for m in matches if m.ratio and m.cell["table"] == table]
        lines = [
            _divided(
                device_name(found.row),
                f"{topology(cell)}, {cell['batch_per_gpu']}, {cell['precision']}",
                _measured(found.row),
                cell["throughput"],
            )
            for found in some
            for cell in [found.cell]
        ]
        ratios = [line[2] for line in lines]
        finding = ngettext(
            "Measured is %(low)s times what was published, in one cell",
            "Measured is %(low)s to %(high)s times what was published, in %(num)d cells",
            len(ratios),
        ) % {"low": number(min(ratios), 3), "high": number(max(ratios), 3), "num": len(ratios)}
        chart = charts.dots(_points(lines), _("measured / published"), reference=1)
        pictures.append(Picture(finding, some[0].cell["source"], chart))
    return pictures


def _two(
    by_batch: list[Any], by_count: list[Any], names: dict[int, str], unit: str, subject: str
) -> list[Picture]:
    points = _points(by_batch)
    chart = charts.throughput_by_batch(points, unit)
    pictures = [Picture(_highest(points, unit), subject, chart)]
    points = _points(by_count)
    if points.groupby("line")["x"].nunique().max() > 1:
        legend = _("batch per device")
        pictures.append(_scaling(points, names, legend, unit, subject))
    return pictures


def _points(lines: Sequence[Line]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=charts.POINTS)


def _bare(cell: Cell) -> Numbers:
    return (cell["throughput"], None, None, ())


def _measured(row: dict[str, Any]) -> Numbers:
    interval = (row["throughput_low"], row["throughput_high"])
    return (row["throughput"], *interval, row["repeat_throughputs"])


def _per_gpu(name: str, row: str, cell: Cell, numbers: Numbers) -> Line:
    return _divided(name, row, numbers, gpu_count(cell))


def _divided(name: str, row: str, numbers: Numbers, divisor: float) -> Line:
    value, low, high, repeats = numbers
    scaled = (low and low / divisor, high and high / divisor)
    return (name, row, value / divisor, *scaled, tuple(v / divisor for v in repeats))


def _highest(points: pd.DataFrame, unit: str) -> str:
    """Where the throughput is highest; with several batch sizes, what they made of it."""
    best = points.loc[points["value"].idxmax()]
    facts = {"value": number(best["value"]), "unit": unit, "batch": best["x"]}
    facts |= {"topology": best["line"], "count": len(points)}
    if len(points) == 1:
        return _("%(value)s %(unit)s at batch %(batch)d on %(topology)s") % facts
    return (
        _("%(value)s %(unit)s at batch %(batch)d on %(topology)s, the highest of %(count)d")
        % facts
    )


def _scaling(
    points: pd.DataFrame, names: dict[int, str], legend: str, unit: str, subject: str
) -> Picture:
    """What more devices gave; the finding is of the line that gained most from the most."""
    lines = [group for _line, group in points.groupby("line", sort=False)]
    ends = [(group.iloc[0], group.loc[group["x"].idxmax()]) for group in lines]
    most = max(last["x"] / first["x"] for first, last in ends)
    first, last = max(
        ((first, last) for first, last in ends if last["x"] / first["x"] == most),
        key=lambda end: end[1]["value"] / end[0]["value"],
    )
    gain = last["value"] / first["value"]
    finding = _(
        "%(last)s gives up to %(gain)s times %(first)s, of %(ideal)s ideally: %(share)s "
        "(%(legend)s: %(line)s)"
    ) % {
        "last": names[last["x"]],
        "first": names[first["x"]],
        "gain": number(gain, 3),
        "ideal": f"{most:g}",
        "share": percent(gain / most),
        "legend": legend,
        "line": first["line"],
    }
    bases = "; ".join(
        f"{base['line']}: {number(base['value'])} {unit} ({names[base['x']]})"
        for base, _last in ends
    )
    told = {"subject": subject, "legend": legend, "bases": bases}
    of = _("%(subject)s. 100 %% is, for %(legend)s %(bases)s") % told
    return Picture(finding, of, charts.efficiency_by_topology(points, names, legend))


def _leaders(lines: list[Any]) -> str:
    """Which framework is highest in how many rows."""
    best: dict[str, tuple[float, str]] = {}
    for name, row, value, *_rest in lines:
        best[row] = max(best.get(row, (0.0, "")), (value, name))
    counts = Counter(name for _value, name in best.values())
    told = ", ".join(f"{name} ({count})" for name, count in counts.most_common())
    return _("Highest, in how many of %(count)d rows: %(told)s") % {
        "count": len(best),
        "told": told,
    }
