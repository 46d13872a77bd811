"""Which measurements may stand in one table, and what keeps the others apart.

A series is what agrees in everything but batch size and topology: hardware, driver, versions,
precision that was really used, input, statistic and all other parameters. Within a series a
batch size and a topology name one measurement; nothing is ever averaged over several.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.environment import NOT_IDENTITY
from perfkit.frames import MEASURED
from perfkit.report.wording import FRAMEWORK_NAMES, fact_name

WITHIN = {"batch_size", "topology", "nodes", "gpus", "processes", "launcher", "hosts"}
"""In these the measurements of one series may differ."""
NO_KEYS = {"id", "folder", "status", "failure", "created", "model", "timeout", "port"}
NO_KEYS |= {"outputs_dir", *MEASURED, *(f"environment.{fact}" for fact in NOT_IDENTITY)}
ALWAYS = ["framework", "effective.precision", "input"]
FIRST = [*ALWAYS, "device", "execution", "strategy", "label"]
FIRST += ["environment.gpus", "environment.cpu", "environment.driver"]
"""A series is named by ALWAYS, then by what tells it from the model's others: these first."""

SAY_THEMSELVES = {"device", "effective.precision", "input", "execution"}


@dataclass(frozen=True)
class Series:
    """Measurements of one model that may be compared along batch size and topology.

    `name` tells it from the other series of the model in few words, `differs` has every key in
    which these series are not all alike, with this one's value. `rows` are rows of
    frames.load, ordered by batch size, nodes, devices and id.
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

    One that failed before its workers showed what they do is taken to do what was asked.
    """
    plain = measurements.astype(object).where(measurements.notna(), None)
    rows = plain.to_dict("records")
    for row in rows:
        row["effective.precision"] = row["effective.precision"] or row["precision"]
        if row["effective.tf32"] is None:
            row["effective.tf32"] = row["tf32"]
    return sorted(rows, key=place)


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Where a measurement stands within its series."""
    return (row["batch_size"], devices(row), row["nodes"], row["id"], row["folder"])


def device_name(row: dict[str, Any]) -> str:
    """The GPU or, of a measurement on the CPU, that; without what follows in its name."""
    fact = "gpus" if row["device"] == "gpu" else "cpu"
    return spelt(row.get(f"environment.{fact}") or row["device"].upper()).split(",")[0]


def devices(row: dict[str, Any]) -> int:
    """Devices of all nodes."""
    return int(row["nodes"]) * int(row["topology"].split("x")[1])


def _named(
    model: str, keys: list[str], groups: dict[tuple[Any, ...], list[dict[str, Any]]]
) -> list[Series]:
    values = sorted(groups, key=lambda group: [spelt(value) for value in group])
    differing = [i for i in range(len(keys)) if len({group[i] for group in values}) > 1]
    telling = [keys.index(key) for key in ALWAYS]
    for i in (i for i in differing if i not in telling):
        if _kinds(values, [*telling, i]) > _kinds(values, telling):
            telling.append(i)
    return [
        Series(
            model=model,
            name=", ".join(in_words(keys[i], group[i]) for i in telling),
            differs={keys[i]: group[i] for i in differing},
            rows=groups[group],
        )
        for group in values
    ]


def _kinds(groups: Iterable[tuple[Any, ...]], positions: list[int]) -> int:
    return len({tuple(group[i] for i in positions) for group in groups})


def in_words(key: str, value: Any) -> str:
    """A key's value as a short piece of a name."""
    if key == "framework":
        return FRAMEWORK_NAMES[value]
    text = spelt(value)
    if key in ("environment.gpus", "environment.cpu"):
        return text.split(",")[0]
    return text if key in SAY_THEMSELVES else f"{key_name(key)} {text}"


def key_name(key: str) -> str:
    """A fact's name in words, a parameter's as one types it."""
    kind, _dot, name = key.rpartition(".")
    return fact_name(name) if kind == "environment" else key.replace(".", " ")


def spelt(value: Any) -> str:
    """A value as text on one line, cut to 60 characters."""
    text = " ".join(("–" if value is None else str(value)).split())
    return text if len(text) <= 60 else f"{text[:59]}…"
