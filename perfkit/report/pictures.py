"""What the summary's charts show: each picture with the finding that it is there for."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from perfkit.models import MODELS
from perfkit.report import charts
from perfkit.tables.cells import (
    NO_BASE,
    RUNS,
    SHAPES,
    Cell,
    gpu_count,
    marks,
    part,
    row_batch,
    topology,
)
from perfkit.tables.matches import PUBLISHED_MODEL, Match
from perfkit.tables.series import Series, device_name, resources, size
from perfkit.words.language import gettext as _
from perfkit.words.wording import FRAMEWORK_NAMES, number, percent

TIE = 0.01
PUBLISHED_NAME = {name: MODELS[model].name for model, name in PUBLISHED_MODEL.items()}


@dataclass(frozen=True)
class Picture:
    """A chart, what it is of and how to read it, and its finding in a sentence."""

    finding: str
    subject: str
    key: str
    chart: Markup


Numbers = tuple[float, float | None, float | None, tuple[float, ...]]
"""A number, the ends of its interval, and the repeats behind it."""
Line = tuple[str, Any, float, float | None, float | None, tuple[float, ...]]
"""Values of charts.POINTS: line, x, and Numbers."""

Placed = tuple[str, int, Numbers]
"""Topology, batch size, and the numbers there."""


def of_series(series: Series) -> list[Picture]:
    """Throughput against batch size and, with several topologies, against those."""
    rows = [row for row in series.rows if row["throughput"] is not None]
    if not rows:
        return []
    key = _("Large marks: medians, with their intervals. Small dots: every repeat.")
    subject = f"{MODELS[series.model].name}, {series.name}"
    placed = [(row["topology"], row["batch_size"], _measured(row)) for row in rows]
    # Between topologies with other numbers of processes on the same cores nothing is ideal.
    comparable = len({size(r["topology"])[0] / resources(r) for r in rows}) == 1
    return _two(placed, placed if comparable else [], rows[0]["unit"], subject, key)


def of_fleetx(table: str, cells: list[Cell]) -> list[Picture]:
    """The same two for each part of a FleetX table."""
    pictures = []
    for name, some in _parts(table, cells).items():
        placed = [(topology(cell), cell["batch_per_gpu"], _bare(cell)) for cell in some]
        bases = [one for one, cell in zip(placed, some, strict=True) if cell["note"] != NO_BASE]
        subject = f"{some[0]['source']}, {name}"
        pictures += _two(placed, bases, some[0]["unit"], subject, _as_published())
    return pictures


def of_dlperf(cells: list[Cell]) -> list[Picture]:
    """Framework against framework on more and more GPUs, with the runs that are known."""
    means = [cell for cell in cells if cell["table"] == "dlperf-resnet50"]
    runs: dict[tuple[str, str], list[float]] = {}
    for run in (cell for cell in cells if cell["table"] == RUNS):
        runs.setdefault((run["framework"], topology(run)), []).append(run["throughput"])
    lines = []
    for cell in sorted(means, key=lambda cell: (cell["framework"], gpu_count(cell))):
        known = tuple(runs.get((cell["framework"], topology(cell)), ()))
        line = (FRAMEWORK_NAMES[cell["framework"]], topology(cell), cell["throughput"])
        lines.append((*line, None, None, known))
    key = _("Large marks: as published, without intervals. Small dots: single runs.")
    return [_scaling(lines, _("framework"), means[0]["unit"], means[0]["source"], key)]


def of_frameworks(table: str, cells: list[Cell], matches: list[Match]) -> list[Picture]:
    """Framework against framework for each part of a table; among them what was measured on
    the same GPU in the same precision."""
    pictures = []
    row = SHAPES[table].row
    for name, some in _parts(table, cells).items():
        lines = [_per_gpu(_marked(cell), row(cell), cell, _bare(cell)) for cell in some]
        finding = _leaders(some, row)
        keys = {id(cell) for cell in some}
        own = [m for m in matches if m.ratio and m.is_like and id(m.cell) in keys]
        for found in own:
            told = {"framework": FRAMEWORK_NAMES[found.row["framework"]]}
            measured = _("%(framework)s, measured") % told
            lines.append(_per_gpu(measured, row(found.cell), found.cell, _measured(found.row)))
        key = _as_published()
        if own:
            key += " " + _("Measured: medians, with their intervals and every repeat.")
        unit = _("%(unit)s per GPU") % {"unit": some[0]["unit"]}
        chart = charts.dots(_points(lines), unit)
        model = PUBLISHED_NAME[some[0]["model"]]
        subject = f"{some[0]['source']}, {model}, {name}"
        pictures.append(Picture(finding, subject, key, chart))
    return pictures


def of_ratios(matches: list[Match]) -> list[Picture]:
    """Measured / published, by table, where both are of the same GPU and precision."""
    pictures = []
    comparable = [found for found in matches if found.ratio and found.is_like]
    for table in dict.fromkeys(found.cell["table"] for found in comparable):
        some = [found for found in comparable if found.cell["table"] == table]
        lines = [
            _divided(
                device_name(found.row),
                _place(found.cell),
                _measured(found.row),
                found.cell["throughput"],
            )
            for found in some
        ]
        ratios = [line[2] for line in lines]
        told = {"low": number(min(ratios), 3), "high": number(max(ratios), 3)}
        told["count"] = str(len({id(found.cell) for found in some}))
        if len(ratios) == 1:
            finding = _("Measured is %(low)s times what was published, in one cell") % told
        else:
            finding = (
                _("Measured is %(low)s to %(high)s times what was published; cells: %(count)s")
                % told
            )
        key = _(
            "Marks: medians, with their intervals and every repeat. Dashed: as published. In "
            "what else the two differ stands in the table."
        )
        chart = charts.dots(_points(lines), _("measured / published"), reference=1)
        pictures.append(Picture(finding, some[0].cell["source"], key, chart))
    return pictures


def _as_published() -> str:
    return _("Marks: as published, without intervals.")


def _parts(table: str, cells: list[Cell]) -> dict[str, list[Cell]]:
    """The numbers of a table by the part that they stand in."""
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell["table"] == table and cell["throughput"] is not None:
            parts.setdefault(part(cell), []).append(cell)
    return parts


def _marked(cell: Cell) -> str:
    """The framework with what its source marks at the cell."""
    return ", ".join([FRAMEWORK_NAMES[cell["framework"]], *marks(cell)])


def _place(cell: Cell) -> str:
    """Where a published cell stands: topology, batch per GPU, precision, GPU, and its note."""
    note = cell["note"]
    place = [topology(cell), str(cell["batch_per_gpu"]), cell["precision"]]
    return ", ".join([*place, cell["gpu"].split("-")[0], *([_(note)] if note else [])])


def _two(
    placed: list[Placed], scaling: list[Placed], unit: str, subject: str, key: str
) -> list[Picture]:
    """Numbers against batch size and, those that may be compared so, against topology."""
    by_batch = _points([(where, batch, *numbers) for where, batch, numbers in placed])
    chart = charts.throughput_by_batch(by_batch, unit)
    pictures = [Picture(_highest(by_batch, unit), subject, key, chart)]
    by_topology = [
        (str(batch), where, *numbers)
        for where, batch, numbers in sorted(scaling, key=lambda one: (one[1], size(one[0])))
    ]
    if by_topology and _points(by_topology).groupby("line")["x"].nunique().max() > 1:
        pictures.append(_scaling(by_topology, _("batch per device"), unit, subject, key))
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


def _scaling(lines: Sequence[Line], legend: str, unit: str, subject: str, key: str) -> Picture:
    """What more devices gave; the finding is of the line that gained most from the most."""
    points = _points(lines)
    groups = [group for _line, group in points.groupby("line", sort=False)]
    ends = [(group.iloc[0], group.iloc[-1]) for group in groups]
    most = max(_times(first, last) for first, last in ends)
    first, last = max(
        ((first, last) for first, last in ends if _times(first, last) == most),
        key=lambda end: end[1]["value"] / end[0]["value"],
    )
    gain = last["value"] / first["value"]
    finding = _(
        "%(last)s gives up to %(gain)s times %(first)s, of %(ideal)s ideally: %(share)s "
        "(%(legend)s: %(line)s)"
    ) % {
        "last": last["x"],
        "first": first["x"],
        "gain": number(gain, 3),
        "ideal": f"{most:g}",
        "share": percent(gain / most),
        "legend": legend,
        "line": first["line"],
    }
    bases = "; ".join(
        f"{base['line']}: {number(base['value'])} {unit} ({base['x']})" for base, _last in ends
    )
    told = {"subject": subject, "legend": legend, "bases": bases}
    of = _("%(subject)s. 100 %% is, for %(legend)s %(bases)s") % told
    key += " " + _("Dashed: the ideal, in proportion to the devices.")
    return Picture(finding, of, key, charts.efficiency_by_topology(points, legend))


def _times(first: "pd.Series[Any]", last: "pd.Series[Any]") -> float:
    """How many times the devices of `first` those of `last` are."""
    return size(last["x"])[0] / size(first["x"])[0]


def _leaders(cells: Iterable[Cell], row: Callable[[Cell], str]) -> str:
    """Which framework is highest in how many rows: among those with a number at the row's own
    batch size, two at least, of which the next is over TIE lower."""
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell["batch_per_gpu"] == row_batch(cell):
            rows.setdefault(row(cell), []).append(cell)
    counts: Counter[str] = Counter()
    for some in rows.values():
        ordered = sorted(some, key=lambda cell: -cell["throughput"])
        if len(ordered) > 1 and ordered[0]["throughput"] > ordered[1]["throughput"] * (1 + TIE):
            counts[FRAMEWORK_NAMES[ordered[0]["framework"]]] += 1
    told = ", ".join(f"{name} ({count})" for name, count in counts.most_common())
    return _("Highest by over 1 %% at the same batch size, in how many rows: %(told)s") % {
        "told": told or _("none")
    }
