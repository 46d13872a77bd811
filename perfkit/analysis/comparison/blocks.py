"""Blocks, rows and cells of summary tables; the fastest framework of a row by interleaved
comparisons; scaling."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from perfkit.analysis.comparison.keys import FOLLOWING, HARDWARE, WORK
from perfkit.analysis.comparison.stored import InterleavedComparison
from perfkit.analysis.published import published
from perfkit.analysis.published.cells import NO_BASE, RUNS, cells_of
from perfkit.analysis.published.matches import place, place_of
from perfkit.core.config import ABOUT
from perfkit.core.frameworks import DISPLAY_NAMES
from perfkit.core.models import model_named
from perfkit.core.results.frames import records, topology_size
from perfkit.core.results.identity import NOT_IDENTITY
from perfkit.core.statistics import Estimate, median_estimate, ratio_interval
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import column_value

FACTS = [*HARDWARE, "driver", "driver_cuda", "os", "kernel"]
MACHINE = ["nodes_differ", "statistic", *(f"environment.{name}" for name in FACTS)]
"""Columns in which, besides each framework's versions, the measurements of a block agree."""
SUITE = [f"environment.{fact}" for fact in ("suite", "suite_source", *NOT_IDENTITY)]
ROW = ["block", "model", "used", "batch_size", "topology", "input", "setup"]
"""Columns in which the measurements of a row agree."""
EXECUTION = [name for name in WORK if name in FOLLOWING["framework"]]
"""Parameters of the work that each framework chooses for itself."""
SETUP = [name for name in WORK if name not in {*ROW, *EXECUTION, "framework", "device"}]
SETUP += ["effective.tf32", "input_sha256"]
INPUT = {name for name, about in ABOUT.items() if "input" in about.only}
"""Settings of the input. Their defaults depend on the device, which the block's caption has."""
NAMES = [*DISPLAY_NAMES.values()]
"""Names of the frameworks in the order of columns and lines."""


def named(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements with `used`, the effective precision, and `name`, the framework's
    name."""
    used = measurements["effective.precision"]
    return measurements.assign(
        used=used.where(used.notna(), measurements["precision"]),
        name=measurements["framework"].map(DISPLAY_NAMES),
    )


def placed(
    measurements: pd.DataFrame, comparisons: Iterable[InterleavedComparison] = ()
) -> pd.DataFrame:
    """Return the measurements (perfkit.load) with the `block` and the `row` they belong to.

    A row is one kind of work: `used` is the effective precision, `setup` describes other
    differences from the model's other rows. `devices` counts all nodes' devices; `resources`
    are what an ideal speed-up is proportional to: devices, or nodes if processes share the
    cores. `name` is the framework's name, `count` the number of measurements of a row and
    framework. The preferred one comes first: in the newest comparison, with a throughput, the
    newest."""
    pairs = sorted((c.created, variant.id) for c in comparisons for variant in c.variants)
    compared = {name: created for created, name in pairs}
    sizes = measurements["topology"].map(topology_size)
    devices, nodes = (sizes.str[k] for k in (0, 1))
    frame = named(measurements).assign(
        compared=[compared.get(name, "") for name in measurements["id"]],
        measured=measurements["throughput"].notna(),
        devices=devices,
        resources=devices.where(measurements["device"] != "cpu", nodes),
    )
    preferred = ["compared", "measured", "created", "folder"]
    frame = frame.sort_values(preferred, ascending=False, ignore_index=True)
    protocol = ["protocol", "warmup_steps", "measured_steps"]
    frame["machine"] = numbered(frame, ["device", *protocol, *MACHINE])
    # The newest version of each framework shares a block with the others' newest.
    versions = numbered(frame, ["machine", "framework", *_software(frame)])
    frame["version"] = versions.groupby([frame["machine"], frame["framework"]]).rank("dense")
    frame["block"] = numbered(frame, ["machine", "version"])
    frame["setup"] = _setups(frame)
    frame["row"] = numbered(frame, ROW)
    return frame.assign(count=frame.groupby(["row", "framework"])["row"].transform("size"))


def cells(placed: pd.DataFrame) -> pd.DataFrame:
    """Return the preferred measurement of each row and framework, in the order of tables."""
    frame = placed.drop_duplicates(["row", "framework"])
    frame = frame.assign(order=frame["name"].map(NAMES.index))
    return frame.sort_values([*ROW[:4], "devices", *ROW[4:], "order"])


def varying(cells: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return the cells with a throughput in rows that differ only in `key`, a part of ROW."""
    frame = cells[cells["measured"]]
    alike = [name for name in ROW if name != key]
    return frame[frame.groupby(alike)[key].transform("nunique") > 1]


def captioned(frame: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each block's caption (hardware, the frameworks' versions and the protocol), its
    other facts in which the blocks of the frame differ, and its rows."""
    versions = frame.groupby("framework")[_software(frame)].nunique(dropna=False).max()
    differ = [key for key in MACHINE if key in frame and frame[key].nunique(dropna=False) > 1]
    differ += [*versions.index[versions > 1]]
    for _block, rows in frame.groupby("block"):
        row = records(rows.head(1))[0]
        device = "environment.gpus" if row["device"] == "gpu" else "environment.cpu"
        names = dict(zip("environment." + rows["framework"], rows["name"], strict=True))
        words = {}
        for key in dict.fromkeys([device, *names, *differ]):
            values = " / ".join(map(str, rows[key].dropna().unique())) if key in rows else ""
            if values:
                named = f"{names[key]} {values}" if key in names else ""
                words[key] = named or column_value(key, values)
        caption = [words.pop(key) for key in (device, *names) if key in words]
        if row["device"] not in ("cpu", "gpu"):
            caption.insert(0, row["device"].upper())
        caption.append(_("%(protocol)s (%(warmup_steps)d + %(measured_steps)d steps)") % row)
        yield " · ".join(caption), " · ".join(words.values()), rows


def title(row: Mapping[str, Any], keys: Iterable[str], between: str = " · ") -> str:
    """Return a row's values of these keys in one line."""
    named = {
        "model": model_named(row["model"]).short_name,
        "batch_size": _("batch %(size)s") % {"size": row["batch_size"]},
    }
    return between.join(filter(None, (named.get(key, row[key]) for key in keys)))


def numbered(frame: pd.DataFrame, keys: Sequence[str]) -> "pd.Series[int]":
    """Number the groups of rows that agree in `keys`, in the order of the rows."""
    present = [key for key in keys if key in frame]
    return frame.groupby(present, dropna=False, sort=False).ngroup()


def _software(frame: pd.DataFrame) -> list[str]:
    return sorted({key for key in frame if key.startswith("environment.")} - {*MACHINE, *SUITE})


def _setups(frame: pd.DataFrame) -> list[str]:
    """Return in words how the work of each measurement differs from others of its model."""
    groups = {key: ["model", "device"] if key in INPUT else ["model"] for key in SETUP}
    varied = [frame.groupby(by)[key].transform("nunique") for key, by in groups.items()]
    shown = pd.concat(varied, axis=1) > 1
    # Frameworks may execute the same work differently, but each in a single way.
    work = [frame[key] for key in ("block", "model", "used", "input")]
    counts = frame.groupby([*work, "framework"])[EXECUTION].transform("nunique", dropna=False)
    shown = shown.join(counts.groupby(work).transform("max") > 1)
    values = frame[shown.columns].astype(object).where(shown, None)
    sizes = {"image_size": "%(count)s px", "sequence_length": _("%(count)d tokens")}
    return [
        " · ".join(
            sizes[key] % {"count": value} if key in sizes else column_value(key, value)
            for key, value in row.items()
            if value is not None
        )
        for row in records(values)
    ]


@dataclass(frozen=True)
class Ranking:
    """The frameworks, by name, that a comparison has in one row.

    `ratios` are the others' throughputs over the `base`'s, highest first. A framework is ahead
    of another if the interval of their ratio lies above 1 at the requested level. `fastest` are
    the highest and all that it is not ahead of; `slower` are those that all of the fastest are
    ahead of. `leader` is the only fastest framework, None if there are several or if another
    measurement of the row is higher."""

    base: str
    ratios: dict[str, Estimate]
    fastest: list[str]
    slower: list[str]
    leader: str | None


def rankings(
    cells: pd.DataFrame, newest: Iterable[InterleavedComparison]
) -> dict[int, Ranking]:
    """Return the ranking of each row of the `cells` by the first comparison that has several of
    its frameworks. The base is Paddle or, without it, the first variant."""
    highest = cells.sort_values("throughput", na_position="first").groupby("row")["name"].last()
    places = cells.drop_duplicates("id").set_index("id")[["row", "name"]]
    found: dict[int, Ranking] = {}
    for comparison in newest:
        base, pairs = comparison.base.id, comparison.pairs
        repeats = {base: {turn.repeat: turn.a for pair in pairs for turn in pair.turns}}
        repeats |= {pair.b.name: {turn.repeat: turn.b for turn in pair.turns} for pair in pairs}
        turns = pd.DataFrame(repeats)
        for row, variants in places.reindex(turns.columns).dropna().groupby("row"):
            throughputs = turns[variants.index].set_axis([*variants["name"]], axis="columns")
            ranking = _ranking(throughputs, comparison.level, highest[row])
            if ranking.ratios:
                found.setdefault(int(row), ranking)
    return found


def _ranking(throughputs: pd.DataFrame, level: float, highest: str) -> Ranking:
    """Rank frameworks by throughput: one column per framework, one row per repeat. `ratios` is
    empty if no framework has a repeat in common with the base."""
    ratios = {}
    for a, b in permutations(throughputs, 2):
        quotients = (throughputs[a] / throughputs[b]).dropna().tolist()
        ratios[a, b] = median_estimate(quotients or [nan], level)
    ahead = {pair for pair, ratio in ratios.items() if ratio.low > 1 and ratio.level >= level}
    base = "Paddle" if "Paddle" in throughputs else throughputs.columns[0]
    to_base = {a: ratio for (a, b), ratio in ratios.items() if b == base and ratio.value > 0}
    by_height = dict(sorted(to_base.items(), key=lambda pair: -pair[1].value))
    names = [name for name, ratio in by_height.items() if ratio.value > 1]
    names = [*names, str(base), *(name for name in by_height if name not in names)]
    top, others = names[0], names[1:]
    fastest = [top, *(name for name in others if (top, name) not in ahead)]
    slower = [name for name in others if ahead.issuperset((fast, name) for fast in fastest)]
    leader = top if fastest == [top] == [highest] else None
    return Ranking(base, by_height, fastest, slower, leader)


PANEL = [key for key in ROW if key != "topology"]
"""Columns in which the lines of a panel agree."""


def over_first(points: pd.DataFrame, line: list[str], *more: str) -> pd.DataFrame:
    """Add the columns of each line's first point as `base_…`: throughput, devices, topology and
    `more`; and the ratios to it: `gain`, of the throughput; `times`, of the devices, which is
    the ideal gain; `efficiency`, gain / times."""
    columns = ["throughput", "devices", "topology", *more]
    first = points.groupby(line)[columns].transform("first")
    points = points.join(first.add_prefix("base_"))
    gain = points["throughput"] / points["base_throughput"]
    times = points["devices"] / points["base_devices"]
    return points.assign(gain=gain, times=times, efficiency=gain / times)


def speedups(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the `cells` measured on several topologies, and the published numbers of the same
    work, which have a `source`.

    `speedup`, `speedup_low`, `speedup_high` and `repeat_speedups` are relative to the first
    point of the line, with the fewest devices, which lies on the ideal; the fewest devices of
    the panel have 1. `shares_cores`: processes of the panel share cores, so that there is no
    ideal speed-up."""
    measured = varying(cells, "topology").assign(source="")
    if measured.empty:
        return measured
    points = pd.DataFrame([*records(measured), *_published(measured)], columns=measured.columns)
    points = points.sort_values([*PANEL, "order", "source", "devices", "topology"])
    points = over_first(points, [*PANEL, "name", "source"], "resources", "repeat_throughputs")
    panels = points.assign(share=points["resources"] / points["devices"]).groupby(PANEL)
    times = points["base_resources"] / panels["resources"].transform("min")
    pairs = points[["repeat_throughputs", "base_repeat_throughputs"]].itertuples(index=False)
    ends = pd.DataFrame([_interval(*pair) for pair in pairs], points.index, ["low", "high"])
    scale = times / points["base_throughput"]
    return points.assign(
        speedup=points["throughput"] * scale,
        speedup_low=ends["low"] * times,
        speedup_high=ends["high"] * times,
        repeat_speedups=points["repeat_throughputs"].map(np.array) * scale,
        shares_cores=panels["share"].transform("nunique") > 1,
    )


def _interval(values: tuple[float, ...], base: tuple[float, ...]) -> tuple[float, float]:
    """Return the interval of `values` / `base`; NaN for published numbers, single repeats and
    the base itself."""
    if values is base or min(len(values), len(base)) < 2:
        return (nan, nan)
    return ratio_interval(values, base)[1:3]


def _published(measured: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the published numbers of the measured work, on all topologies, as rows of it."""
    comparable = []
    for cell in cells_of(published().dropna(subset="throughput")):
        if cell.table != RUNS and cell.note != NO_BASE:
            comparable.append((cell, place_of(cell)))
    for row in records(measured.drop_duplicates([*PANEL, "framework"])):
        work = place(row | {"precision": row["used"]})
        for cell, cell_place in comparable:
            if cell_place == work._replace(topology=cell.topology):
                yield row | {
                    "topology": cell.topology,
                    "throughput": cell.throughput,
                    "devices": cell.gpus,
                    "resources": cell.gpus,
                    "source": f"{cell.table} {cell.gpu} {cell.note or ''}",
                    "repeat_throughputs": (),
                }
