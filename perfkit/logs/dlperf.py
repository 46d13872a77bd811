"""DLPerf's summary of a folder in its layout: `1n8g/r50_b128_fp32_1.log`.

Its script takes the speed of a run from its clock, nodes x devices x batch / (seconds / steps),
between the prints of steps 20 and 120; of the runs of a topology its first version takes the
mean, later ones also the median, whose speed-up they give (`extract_paddle_logs_time.py`). The
speed-ups that it published with the mean have two bases: where it came to a topology before one
device, the last run on that, whose mean it had not taken yet. Here all have the mean.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import PurePath
from pprint import pformat
from statistics import median
from typing import Any, Literal

from perfkit.logs.audit import AuditedLog, Case
from perfkit.logs.recompute import END, WARMUP

PATH = re.compile(r"(\d+)n(\d+)g/([^/_]+)_b(\d+)_([^/]*)_(\d+)\.log$")
BASE = "1n1g"


def cases(logs: Iterable[AuditedLog]) -> list[Case]:
    """The runs in DLPerf's layout, by model, batch and topology; those whose prints' clock does
    not tell of steps 21 to 120 are left out."""
    speeds: dict[tuple[str, int, str, int, int], dict[int, float]] = defaultdict(dict)
    for log in logs:
        found = PATH.search(PurePath(log.name).as_posix())
        clock, batch = log.figure("clock", "protocol"), log.fact("batch_size")
        whole = clock and (clock.first, clock.last) == (WARMUP + 1, END)
        if found and clock and whole and clock.per_device and isinstance(batch, int):
            nodes, devices, named, run = (int(found[k]) for k in (1, 2, 4, 6))
            # The folder's name says how many devices, and the file's which batch.
            speed = clock.per_device / batch * named * nodes * devices
            speeds[found[3], named, found[5], nodes, devices][run] = round(speed, 2)
    # DLPerf's words are the model's alone, as long as that tells its runs apart.
    kinds = Counter(model for model, *_ in {key[:3] for key in speeds})
    return [
        Case(
            model=model if kinds[model] == 1 else f"{model}_b{batch}_{precision}",
            case=f"{nodes}n{devices}g",
            batch_size=batch,
            speeds=runs,
        )
        for (model, batch, precision, nodes, devices), runs in sorted(speeds.items())
    ]


def summary(found: list[Case], variant: Literal["mean", "median"]) -> dict[str, Any]:
    """What the script prints, by model and topology; `speedup` is None without one device."""
    speed = "average_speed" if variant == "mean" else "middle_speed"
    shown: dict[str, Any] = {}
    for one in found:
        runs = [*one.speeds.values()]
        # As the script sums, so that halves are rounded alike.
        known: dict[str, Any] = {"average_speed": round(sum(runs) / len(runs), 2)}
        known |= {"batch_size_per_device": one.batch_size, "speedup": None}
        known |= {} if variant == "mean" else {speed: round(median(runs), 2)}
        shown.setdefault(one.model, {})[one.case] = known
    for some in shown.values():
        if base := some.get(BASE, {}).get(speed):
            for known in some.values():
                known["speedup"] = round(known[speed] / base, 2)
    return shown


def text(found: list[Case], variant: Literal["mean", "median"]) -> str:
    """The summary as the script prints it."""
    return pformat(summary(found, variant))
