"""DLPerf's summary of a folder in its layout: `1n8g/r50_b128_fp32_1.log`.

DLPerf's script computes a run's speed by the log's clock between the prints of steps 20 and
120: nodes x devices x batch / (seconds / steps). Its first version takes the mean of a
topology's runs; later versions add the median and use it for the speed-up
(`extract_paddle_logs_time.py`). DLPerf's published speed-ups of means have two bases:
topologies read before one device are divided by the last run on one device. Here the base is
the mean.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePath
from statistics import median
from typing import Any, Literal, NamedTuple

from perfkit.audit.audit import AuditedLog, Case
from perfkit.audit.steps import END, WARMUP

PATH = re.compile(
    r"(?P<nodes>\d+)n(?P<devices>\d+)g/"
    r"(?P<name>(?P<model>[^/_]+)_b(?P<batch_size>\d+)_[^/]*)_(?P<run>\d+)\.log$"
)


class Runs(NamedTuple):
    """What runs have in common: `name` is the file's without the number of the run."""

    model: str
    name: str
    nodes: int
    devices: int
    batch_size: int


def cases(logs: Iterable[AuditedLog]) -> list[Case]:
    """Return the runs in DLPerf's layout by model, batch size and topology, without runs whose
    clock does not cover steps 21 to 120."""
    speeds: dict[Runs, dict[int, float]] = defaultdict(dict)
    for log in logs:
        match = PATH.search(PurePath(log.name).as_posix())
        speed_per_sample = _speed_per_sample(log)
        if not match or not speed_per_sample:
            continue
        runs = Runs(
            model=match["model"],
            name=match["name"],
            nodes=int(match["nodes"]),
            devices=int(match["devices"]),
            batch_size=int(match["batch_size"]),
        )
        # As in DLPerf, the device count is the folder's and the batch size the file's.
        samples = runs.batch_size * runs.nodes * runs.devices
        speeds[runs][int(match["run"])] = round(speed_per_sample * samples, 2)
    names = defaultdict(set)
    for runs in speeds:
        names[runs.model].add(runs.name)
    in_layout = []
    for runs, speeds_of_runs in sorted(speeds.items()):
        # DLPerf names only the model, which may be ambiguous.
        is_unique = len(names[runs.model]) == 1
        case = Case(
            model=runs.model if is_unique else runs.name,
            case=f"{runs.nodes}n{runs.devices}g",
            batch_size=runs.batch_size,
            speeds=speeds_of_runs,
        )
        in_layout.append(case)
    return in_layout


def _speed_per_sample(log: AuditedLog) -> float | None:
    """Return the steps per second by the clock over steps 21 to 120; None if unknown."""
    clock, batch_size = log.figure("protocol", of=["clock"]), log.fact("batch_size")
    if not clock or (clock.first, clock.last) != (WARMUP + 1, END):
        return None
    if not clock.per_device or not isinstance(batch_size, int):
        return None
    return clock.per_device / batch_size


Summary = dict[str, dict[str, dict[str, Any]]]
"""Model -> topology -> values by the names that the script gives them."""


def summary(cases: Iterable[Case], variant: Literal["mean", "median"]) -> Summary:
    """Return the script's result by model and topology; `speedup` may be None."""
    speed = "average_speed" if variant == "mean" else "middle_speed"
    models: Summary = defaultdict(dict)
    for case in cases:
        speeds = [*case.speeds.values()]
        values: dict[str, Any] = {
            # The script's order of summation, so that halves are rounded alike.
            "average_speed": round(sum(speeds) / len(speeds), 2),
            "batch_size_per_device": case.batch_size,
            "speedup": None,
        }
        if variant == "median":
            values["middle_speed"] = round(median(speeds), 2)
        models[case.model][case.case] = values
    for topologies in models.values():
        base = topologies.get("1n1g", {}).get(speed)
        for values in topologies.values():
            if base:
                values["speedup"] = round(values[speed] / base, 2)
    return dict(models)
