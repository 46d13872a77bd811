"""Blocks, rows and cells of the summary's tables.

A block is a table: its measurements agree in the machine, the protocol and each framework's
versions. A row is one kind of work, a cell a framework in a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from perfkit.analysis.comparison.keys import (
    FOLLOWING,
    HARDWARE,
    OF_COMMANDS,
    WORK,
    rarely_tells,
)
from perfkit.analysis.comparison.stored import InterleavedComparison
from perfkit.analysis.script_arguments import telling_apart
from perfkit.measuring.parameters import ABOUT
from perfkit.measuring.results.frames import records, topology_size
from perfkit.measuring.results.identity import NOT_IDENTITY
from perfkit.training.frameworks import DISPLAY_NAMES

FACTS = [*HARDWARE, "driver", "os", "kernel"]
MACHINE = ["nodes_differ", "statistic", *(f"environment.{name}" for name in FACTS)]
"""Columns in which, besides each framework's versions, the measurements of a block agree."""
SUITE = [f"environment.{fact}" for fact in ("suite", "suite_source", *NOT_IDENTITY)]


Setup = tuple[tuple[str, str], ...]
"""Columns in which a work differs from others of its model, and its short values."""


class Work(NamedTuple):
    """The work of a row. The fields are columns of `placed`."""

    model: str
    model_size: str
    """Empty for a model with a single one."""
    used: str
    """The effective precision."""
    batch_size: int
    topology: str
    input: str
    setup: Setup
    """How the work differs from the model's other rows."""


PROTOCOL = ["protocol", "warmup_steps", "measured_steps", "measured_seconds"]
ROW = ["block", *Work._fields]
"""Columns in which the measurements of a row agree."""
EXECUTION = [name for name in WORK if name in FOLLOWING["framework"]]
"""Parameters of the work that each framework chooses for itself."""
WAYS = [*EXECUTION, "python"]
"""Parameters in which the rows of one framework differ, but not those of several."""
SETUP = [name for name in WORK if name not in {*ROW, *EXECUTION, "framework", "device"}]
SETUP += ["effective.tf32", "input_sha256", "arguments", "script_sha256", "command", "flags"]
SETUP += OF_COMMANDS
LESS_TELLING = ("data_disk", "dali", "h5py", "numpy", "threadpoolctl")
"""Facts that rarely explain a difference between frameworks."""
INPUT = {name for name, about in ABOUT.items() if "input" in about.only}
"""Settings of the input. Their defaults depend on the device, which the block's caption has."""
NAMES = [*DISPLAY_NAMES.values()]
"""Names of the frameworks in the order of columns and lines."""


def with_told(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements with what scripts told as their precision and, for samples per
    step, their batch size."""
    if "told.precision" not in measurements:
        return measurements.copy()
    precision, sizes = measurements["precision"], measurements["batch_size"]
    return measurements.assign(
        precision=precision.where(precision.notna(), measurements["told.precision"]),
        batch_size=sizes.where(sizes.notna(), measurements["told.samples_per_step"]),
    )


def named(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements with `used`, the effective precision, and `name`, the framework's
    name. A script has the precision and, as batch size, the samples per step that it told."""
    told = with_told(measurements)
    used = measurements["effective.precision"]
    return measurements.assign(
        used=used.where(used.notna(), told["precision"]),
        batch_size=told["batch_size"],
        name=measurements["framework"].map(DISPLAY_NAMES),
    )


def work_of(measurement: Mapping[str, Any]) -> Work:
    """Return the work of a measurement, a record of `placed`."""
    return Work(*(measurement[name] for name in Work._fields))


class Block(NamedTuple):
    """The measurements of a block, and on what and how they were made."""

    device: tuple[str, str, str]
    """The type of the device, the column with its name, and the name; empty if unknown."""
    versions: Sequence[str]
    """The frameworks with their versions."""
    protocol: Mapping[str, Any]
    """A measurement, whose protocol all share."""
    other_facts: Sequence[tuple[str, str]]
    """Other columns in which the blocks of a page differ, and their values."""
    measurements: pd.DataFrame

    @property
    def appearance(self) -> tuple[Any, ...]:
        """What a caption shows of it."""
        protocol = tuple(self.protocol[key] for key in PROTOCOL)
        return (self.device, *self.versions, *protocol, *self.other_facts)


def placed(
    measurements: pd.DataFrame,
    comparisons: Iterable[InterleavedComparison] = (),
) -> pd.DataFrame:
    """Return the measurements (perfkit.load) with the `block` and the `row` they belong to.

    The other new columns are `used`, the effective precision; `name`, the framework's name;
    `setup`, how the work differs from the model's other rows; `devices`, the number
    of all nodes' devices; `resources`, the number by which an ideal speed-up grows: devices, or
    nodes if processes share the cores; and `measured`, whether there is a throughput. Of a row
    and framework, the preferred one comes first: beside no other load, in the newest
    comparison, with a throughput, the newest. `passed_over`: whether a newer one was disturbed
    by other load."""
    sizes = measurements["topology"].map(topology_size)
    devices, nodes = sizes.str[0], sizes.str[1]
    frame = named(measurements).assign(
        compared=_newest_comparisons(measurements["id"], comparisons),
        model_size=measurements["model_size"].fillna(""),
        measured=measurements["throughput"].notna(),
        undisturbed=~measurements["disturbed"].astype(bool),
        devices=devices,
        resources=devices.where(measurements["device"] != "cpu", nodes),
    )
    preferred = ["undisturbed", "compared", "measured", "created", "folder"]
    frame = frame.sort_values(preferred, ascending=False, ignore_index=True)
    frame["block"] = _block_numbers(frame)
    frame["setup"] = _setups(frame)
    frame["row"] = numbered(frame, ROW)
    disturbed = frame["created"].where(~frame["undisturbed"], "")
    newest_disturbed = disturbed.groupby([frame["row"], frame["framework"]]).transform("max")
    return frame.assign(
        passed_over=frame["undisturbed"] & (newest_disturbed > frame["created"])
    )


def _newest_comparisons(
    ids: "pd.Series[str]", comparisons: Iterable[InterleavedComparison]
) -> "pd.Series[str]":
    """Return when the newest comparison of each measurement started; "" without one."""
    started: dict[str, str] = {}
    for comparison in sorted(comparisons, key=lambda comparison: comparison.created):
        for variant in comparison.variants:
            started[variant.id] = comparison.created
    return ids.map(lambda measurement_id: started.get(measurement_id, ""))


def _block_numbers(frame: pd.DataFrame) -> "pd.Series[int]":
    """Number the blocks of the measurements, which are sorted. The newest version of each
    framework shares a block with the others' newest."""
    machine = numbered(frame, ["device", *PROTOCOL, *MACHINE])
    frame = frame.assign(machine=machine)
    versions = numbered(frame, ["machine", "framework", *_software(frame)])
    by_framework = versions.groupby([machine, frame["framework"]])
    frame["version"] = by_framework.rank("dense")
    return numbered(frame, ["machine", "version"])


def cells(placed: pd.DataFrame) -> pd.DataFrame:
    """Return the preferred measurement of each row and framework, in the order of tables."""
    frame = placed.drop_duplicates(["row", "framework"])
    frame = frame.assign(order=frame["name"].map(NAMES.index))
    return frame.sort_values([*ROW[:4], "devices", *ROW[4:], "order"])


def varying(cells: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return the cells with a throughput in rows that differ only in `key`, a part of ROW."""
    frame = cells[cells["measured"]]
    alike = [name for name in ROW if name != key]
    counts = frame.groupby(alike)[key].transform("nunique")
    return frame[counts > 1]


def blocks_of(frame: pd.DataFrame) -> list[Block]:
    """Return the blocks of these rows. Facts that rarely explain a difference, such as the
    CPU's features, are in them only if others do not tell the blocks apart."""
    differing = _differing(frame)
    telling = []
    for key in differing:
        name = key.removeprefix("environment.")
        if name not in LESS_TELLING and not rarely_tells(name):
            telling.append(key)
    blocks = _blocks(frame, telling)
    appearances = {block.appearance for block in blocks}
    return blocks if len(appearances) == len(blocks) else _blocks(frame, differing)


def _blocks(frame: pd.DataFrame, differing: list[str]) -> list[Block]:
    return [_block(rows, differing) for _number, rows in frame.groupby("block")]


def _differing(frame: pd.DataFrame) -> list[str]:
    """Return the columns of machine and software in which the blocks differ."""
    keys = [key for key in MACHINE if key in frame and frame[key].nunique(dropna=False) > 1]
    by_framework = frame.groupby("framework")[_software(frame)]
    versions = by_framework.nunique(dropna=False).max()
    return [*keys, *versions.index[versions > 1]]


def _block(rows: pd.DataFrame, differing: list[str]) -> Block:
    (first,) = records(rows.head(1))
    column = "environment.gpus" if first["device"] == "gpu" else "environment.cpu"
    frameworks = dict(zip("environment." + rows["framework"], rows["name"], strict=True))
    versions, facts = [], []
    for key in dict.fromkeys([*frameworks, *differing]):
        values = _joined_values(rows, key)
        if values and key in frameworks:
            versions.append(f"{frameworks[key]} {values}")
        elif values and key != column:
            facts.append((key, values))
    device = (first["device"], column, _joined_values(rows, column))
    return Block(device, versions, first, facts, rows)


def _joined_values(rows: pd.DataFrame, column: str) -> str:
    """Return the values of a column; empty without any."""
    if column not in rows:
        return ""
    return " / ".join(map(str, rows[column].dropna().unique()))


def numbered(frame: pd.DataFrame, keys: Sequence[str]) -> "pd.Series[int]":
    """Number the groups of rows that agree in `keys`, in the order of the rows."""
    present = [key for key in keys if key in frame]
    return frame.groupby(present, dropna=False, sort=False).ngroup()


def _software(frame: pd.DataFrame) -> list[str]:
    facts = {column for column in frame if column.startswith("environment.")}
    return sorted(facts - {*MACHINE, *SUITE})


def _setups(frame: pd.DataFrame) -> list[Setup]:
    """Return how the work of each measurement differs from others of its model."""
    values = _distinguishing(frame)
    short_texts = {}
    for key in values:
        texts = [str(value) for value in values[key].unique() if value is not None]
        short_texts[key] = telling_apart(texts)
    setups = []
    for row in records(values):
        told = {key: value for key, value in row.items() if value is not None}
        setups.append(tuple((key, short_texts[key][str(told[key])]) for key in told))
    return setups


def _distinguishing(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the parameters of the work, only where they differ between the measurements of a
    model."""
    varies = {}
    for key in SETUP:
        if key not in frame:
            continue
        alike = ["model", "device"] if key in INPUT else ["model"]
        varies[key] = frame.groupby(alike)[key].transform("nunique") > 1
    # Frameworks may execute the same work differently, but each in a single way.
    work = [frame[key] for key in ("block", "model", "used", "input")]
    by_framework = frame.groupby([*work, "framework"], dropna=False)[WAYS]
    ways = by_framework.transform("nunique", dropna=False)
    for key in INPUT & varies.keys():
        # A setting that the row's input does not use tells nothing.
        varies[key] &= frame["input"].map(partial(ABOUT[key].is_for, "input"))
    are_shown = pd.DataFrame(varies).join(ways.groupby(work, dropna=False).transform("max") > 1)
    shown = frame[are_shown.columns].astype(object).where(are_shown, None)
    return shown.replace("", None)
