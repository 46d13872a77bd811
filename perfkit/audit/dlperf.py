"""DLPerf's summary of a folder in its layout: `1n8g/r50_b128_fp32_1.log`.

DLPerf's script computes a run's speed by the log's clock between the prints of steps 20 and
120: nodes x devices x batch / (seconds / steps). Its first version takes the mean of a
topology's runs; later versions add the median and use it for the speed-up
(`extract_paddle_logs_time.py`). DLPerf's published speed-ups of means have two bases:
topologies read before one device are divided by the last run on one device. Here the base is
the mean.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import PurePath
from statistics import median
from typing import Any, Literal

from perfkit.audit.audit import AuditedLog, Case
from perfkit.audit.recompute import END, WARMUP

PATH = re.compile(r"(\d+)n(\d+)g/(([^/_]+)_b(\d+)_[^/]*)_(\d+)\.log$")


def cases(logs: Iterable[AuditedLog]) -> list[Case]:
    """Return the runs in DLPerf's layout by model, batch size and topology, without runs whose
    clock does not cover steps 21 to 120."""
    speeds: dict[tuple[str, str, int, int, int], dict[int, float]] = defaultdict(dict)
    for log in logs:
        found = PATH.search(PurePath(log.name).as_posix())
        clock, batch = log.figure("protocol", of=["clock"]), log.fact("batch_size")
        whole = clock and (clock.first, clock.last) == (WARMUP + 1, END)
        if found and clock and whole and clock.per_device and isinstance(batch, int):
            nodes, devices, named, run = (int(found[k]) for k in (1, 2, 5, 6))
            # As in DLPerf, the device count is the folder's and the batch size the file's.
            speed = clock.per_device / batch * named * nodes * devices
            speeds[found[4], found[3], nodes, devices, named][run] = round(speed, 2)
    # DLPerf names only the model, which may be ambiguous.
    kinds = Counter(model for model, _name in {key[:2] for key in speeds})
    return [
        Case(
            model=model if kinds[model] == 1 else name,
            case=f"{nodes}n{devices}g",
            batch_size=batch,
            speeds=runs,
        )
        for (model, name, nodes, devices, batch), runs in sorted(speeds.items())
    ]


def summary(found: list[Case], variant: Literal["mean", "median"]) -> dict[str, Any]:
    """Return the script's result by model and topology; `speedup` may be None."""
    speed = "average_speed" if variant == "mean" else "middle_speed"
    shown: dict[str, Any] = defaultdict(dict)
    for case in found:
        runs = [*case.speeds.values()]
        # The script's order of summation, so that halves are rounded alike.
        row: dict[str, Any] = {"average_speed": round(sum(runs) / len(runs), 2)}
        row |= {"batch_size_per_device": case.batch_size, "speedup": None}
        row |= {} if variant == "mean" else {speed: round(median(runs), 2)}
        shown[case.model][case.case] = row
    for topologies in shown.values():
        base = topologies.get("1n1g", {}).get(speed)
        for row in topologies.values():
            row["speedup"] = round(row[speed] / base, 2) if base else None
    return dict(shown)
