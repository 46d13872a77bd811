"""Which measurements stand side by side: in a block of a table, in a row, in a cell."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from perfkit.comparison.keys import FOLLOWING, HARDWARE, WORK
from perfkit.comparison.live.stored import LiveComparison
from perfkit.models import MODELS
from perfkit.results.frames import records, topology_size
from perfkit.results.schema import NOT_IDENTITY
from perfkit.text.format import FRAMEWORK_NAMES, column_value
from perfkit.text.language import gettext as _

FACTS = [*HARDWARE, "driver", "driver_cuda", "os", "kernel"]
MACHINE = ["imported", "nodes_differ", "statistic", *(f"environment.{name}" for name in FACTS)]
"""In these, and in the versions of each framework, the measurements of a block agree."""
SUITE = [f"environment.{fact}" for fact in ("suite", "suite_source", *NOT_IDENTITY)]
ROW = ["block", "model", "used", "batch_size", "topology", "input", "setup"]
"""In these the measurements of a row agree."""
WAY = [name for name in WORK if name in FOLLOWING["framework"]]
"""How the work is done, which is each framework's own choice."""
SETUP = [name for name in WORK if name not in {*ROW, *WAY, "framework", "device"}]
SETUP += ["effective.tf32", "input_sha256"]
NAMES = [*dict.fromkeys(FRAMEWORK_NAMES.values())]
"""The frameworks in the order of columns and lines."""


def placed(
    measurements: pd.DataFrame, comparisons: Iterable[LiveComparison] = ()
) -> pd.DataFrame:
    """The measurements (perfkit.load) with the `block` and the `row` that they belong to.

    A row is one kind of work: its `used` precision is the effective one, its `setup` names what
    else tells it from the model's other rows. `devices` are those of all nodes; `resources` is
    what a speed-up may be in proportion to: devices, or nodes where processes share the cores.
    `name` is the framework's, `count` the number of measurements of a row and framework; of
    these, the first is preferred: in the newest comparison, with a throughput, the newest."""
    pairs = sorted((c.created, side.id) for c in comparisons for side in c.sides)
    compared = {one: created for created, one in pairs}
    used, sizes = measurements["effective.precision"], measurements["topology"]
    devices, nodes = (sizes.map(topology_size).str[k] for k in (0, 1))
    frame = measurements.assign(
        used=used.where(used.notna(), measurements["precision"]),
        compared=[compared.get(one, "") for one in measurements["id"]],
        measured=measurements["throughput"].notna(),
        devices=devices,
        resources=devices.where(measurements["device"] == "gpu", nodes),
        name=measurements["framework"].map(FRAMEWORK_NAMES),
    )
    preferred = ["compared", "measured", "created", "folder"]
    frame = frame.sort_values(preferred, ascending=False, ignore_index=True)
    protocol = ["protocol", "warmup_steps", "measured_steps"]
    frame["machine"] = numbered(frame, ["device", *protocol, *MACHINE])
    # The newest version of each framework stands beside the newest of the others.
    versions = numbered(frame, ["machine", "framework", *_software(frame)])
    frame["version"] = versions.groupby([frame["machine"], frame["framework"]]).rank("dense")
    frame["block"] = numbered(frame, ["machine", "version"])
    frame["setup"] = _setups(frame)
    frame["row"] = numbered(frame, ROW)
    return frame.assign(count=frame.groupby(["row", "framework"])["row"].transform("size"))


def cells(placed: pd.DataFrame) -> pd.DataFrame:
    """The measurement that is preferred of each row and framework, in the order of tables."""
    frame = placed.drop_duplicates(["row", "framework"])
    frame = frame.assign(order=frame["name"].map(NAMES.index))
    return frame.sort_values([*ROW[:4], "devices", *ROW[4:], "order"])


def varying(cells: pd.DataFrame, key: str) -> pd.DataFrame:
    """The cells with a throughput in rows that differ in nothing but `key`, a part of ROW."""
    frame = cells[cells["measured"]]
    alike = [name for name in ROW if name != key]
    return frame[frame.groupby(alike)[key].transform("nunique") > 1]


def captioned(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each block with its caption: hardware, versions, protocol, and all facts in
    which the blocks of the frame differ."""
    versions = frame.groupby("framework")[_software(frame)].nunique(dropna=False).max()
    differ = [key for key in MACHINE if key in frame and frame[key].nunique(dropna=False) > 1]
    differ += [*versions.index[versions > 1]]
    for _block, some in frame.groupby("block"):
        row = records(some.head(1))[0]
        device = "environment.gpus" if row["device"] == "gpu" else "environment.cpu"
        names = dict(zip("environment." + some["framework"], some["name"], strict=True))
        words = []
        for key in dict.fromkeys([device, *names, "imported", *differ]):
            values = " / ".join(map(str, some[key].dropna().unique())) if key in some else ""
            named = f"{names[key]} {values}" if key in names else ""
            words += [named or column_value(key, values)] if values else []
        words.append(_("%(protocol)s (%(warmup_steps)d + %(measured_steps)d steps)") % row)
        yield " · ".join(words), some


def title(row: Mapping[str, Any], keys: Iterable[str], between: str = " · ") -> str:
    """What a row of the tables is, in a line: its values of these keys."""
    named = {
        "model": MODELS[row["model"]].short_name,
        "batch_size": _("batch %(size)s") % {"size": row["batch_size"]},
    }
    return between.join(filter(None, (named.get(key, row[key]) for key in keys)))


def numbered(frame: pd.DataFrame, keys: Sequence[str]) -> "pd.Series[int]":
    """A number for what agrees in `keys`, in the order of the rows."""
    there = [key for key in keys if key in frame]
    return frame.groupby(there, dropna=False, sort=False).ngroup()


def _software(frame: pd.DataFrame) -> list[str]:
    return sorted({key for key in frame if key.startswith("environment.")} - {*MACHINE, *SUITE})


def _setups(frame: pd.DataFrame) -> list[str]:
    """What tells the work of each measurement from that of others of its model, in words."""
    shown = frame.groupby("model")[SETUP].transform("nunique") > 1
    # Frameworks may differ in their ways of one work, but each needs a single one.
    work = [frame[key] for key in ("block", "model", "used", "input")]
    ways = frame.groupby([*work, "framework"])[WAY].transform("nunique", dropna=False)
    shown = shown.join(ways.groupby(work).transform("max") > 1)
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
