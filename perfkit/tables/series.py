"""Which measurements may stand in one table, and what keeps the others apart.

A series is what agrees in everything but batch size and topology: hardware, driver, versions,
precision that was really used, input, statistic and all other parameters. Within a series a
batch size and a topology name one measurement; nothing is ever averaged over several.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.results.frames import MEASURED
from perfkit.results.schema import NOT_IDENTITY
from perfkit.words.language import gettext as _
from perfkit.words.wording import FRAMEWORK_NAMES, fact_name

WITHIN = {"batch_size", "topology", "nodes", "gpus", "processes", "launcher", "hosts"}
"""In these the measurements of one series may differ."""
NO_KEYS = {"id", "folder", "status", "failure", "created", "model", "timeout", "port"}
NO_KEYS |= {"outputs_dir", *MEASURED, *(f"environment.{fact}" for fact in NOT_IDENTITY)}
ALWAYS = ["framework", "effective.precision", "input", "imported"]
FIRST = [*ALWAYS, "device", "execution", "strategy", "label"]
FIRST += ["environment.gpus", "environment.cpu", "environment.driver"]
"""A series is named by ALWAYS, then by what tells it from the model's others: these first."""

SAY_THEMSELVES = {"device", "effective.precision", "input", "execution"}


@dataclass(frozen=True)
class Series:
    """Measurements of one model that may be compared along batch size and topology.

    `name` tells it from the other series of the model in few words, `differs` has every key in
    which these series are not all alike, with this one's value. `rows` are rows of
    frames.load, ordered by batch size, devices, nodes and id.
    """

    model: str
    name: str
    differs: dict[str, Any]
    rows: list[dict[str, Any]]


def series_of(measurements: pd.DataFrame) -> list[Series]:
    """The series of frames.load's `measurements`, whatever order those are in."""
    rows = _rows(measurements)
    keys = [*FIRST, *sorted({*measurements} - WITHIN - NO_KEYS - {*FIRST})]
    found = []
    for model in sorted({row["model"] for row in rows}):
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in rows:
            if row["model"] == model:
                groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
        found += _named(model, keys, groups)
    return found


def _rows(measurements: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as dictionaries in an order that only they themselves decide.

    One that failed before its workers showed what they do is taken to do what was asked, on
    the input that all others read from that folder.
    """
    plain = measurements.astype(object).where(measurements.notna(), None)
    rows = plain.to_dict("records")
    inputs: dict[tuple[Any, ...], set[str]] = {}
    for row in rows:
        inputs.setdefault(_input(row), set()).update({row["input_sha256"]} - {None})
    for row in rows:
        row["effective.precision"] = row["effective.precision"] or row["precision"]
        if row["effective.tf32"] is None:
            row["effective.tf32"] = row["tf32"]
        if row["throughput"] is None and len(inputs[_input(row)]) == 1:
            (row["input_sha256"],) = inputs[_input(row)]
    return sorted(rows, key=place)


def _input(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["model"], row["input"], row["data_dir"])


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Where a measurement stands within its series."""
    return (row["batch_size"], *size(row["topology"]), row["id"], row["folder"])


def size(topology: str) -> tuple[int, int]:
    """Devices of all nodes, and nodes, of a topology `NxG`."""
    nodes, devices = map(int, topology.split("x"))
    return (nodes * devices, nodes)


def resources(row: dict[str, Any]) -> int:
    """What grows with a topology: GPUs of all nodes; on the CPU nodes, since the processes of
    a node share its cores."""
    devices, nodes = size(row["topology"])
    return devices if row["device"] == "gpu" else nodes


def device_name(row: dict[str, Any]) -> str:
    """The GPU or, of a measurement on the CPU, that; without what follows in its name."""
    fact, unknown = ("gpus", _("unknown GPU")) if row["device"] == "gpu" else ("cpu", "CPU")
    return spelt(row.get(f"environment.{fact}") or unknown).split(",")[0]


def _named(
    model: str, keys: list[str], groups: dict[tuple[Any, ...], list[dict[str, Any]]]
) -> list[Series]:
    values = sorted(groups, key=lambda group: [spelt(value) for value in group])
    differing = [i for i in range(len(keys)) if len({group[i] for group in values}) > 1]
    telling = [keys.index(key) for key in ALWAYS]
    for i in (i for i in differing if i not in telling):
        if _kinds(values, [*telling, i]) > _kinds(values, telling):
            telling.append(i)
    names = [
        ", ".join(in_words(keys[i], group[i]) for i in telling if group[i] not in (None, ""))
        for group in values
    ]
    return [
        Series(
            model=model,
            name=name if names.count(name) == 1 else f"{name} ({number})",
            differs={keys[i]: group[i] for i in differing},
            rows=groups[group],
        )
        for number, (name, group) in enumerate(zip(names, values, strict=True), 1)
    ]


def _kinds(groups: Iterable[tuple[Any, ...]], positions: list[int]) -> int:
    return len({tuple(group[i] for i in positions) for group in groups})


def in_words(key: str, value: Any) -> str:
    """A key's value as a short piece of a name."""
    if key == "framework":
        return FRAMEWORK_NAMES[value]
    if key == "imported":
        return _("imported from %(format)s") % {"format": value}
    if key == "environment.gpus":
        names = [name.split(",")[0] for name in str(value).split("; ")]
        if len(names) == 1:
            return cut(names[0])
        return ", ".join(f"{names.count(name)} × {cut(name)}" for name in dict.fromkeys(names))
    if key == "environment.cpu":
        return cut(str(value).split(",")[0])
    text = cut(spelt(value))
    return text if key in SAY_THEMSELVES else f"{key_name(key)} {text}"


def key_name(key: str) -> str:
    """A fact's name in words, a parameter's as one types it."""
    kind, _dot, name = key.rpartition(".")
    return fact_name(name) if kind == "environment" else key.replace(".", " ")


def spelt(value: Any) -> str:
    """A value as text on one line."""
    return "–" if value in (None, "") else " ".join(str(value).split())


def cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
