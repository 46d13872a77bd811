"""As NVIDIA's DLLogger writes its file: a `DLLL` line for each step.

Names and units are those of its training scripts; `train.step_time` is all of a step, the wait
for input included.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from perfkit.exporters.training import Training
from perfkit.models import MODELS

OF_THIS_MACHINE = ("hosts", "port", "timeout", "outputs_dir")
"""Parameters that say nothing of the training; hosts are not for others."""


def text(training: Training) -> str:
    """The parameters, each step by its epoch (0) and number, and the repeat's throughput."""
    result, begin = training.result, training.begin
    unit = MODELS[result.config.model].unit
    parameters = {"measurement": result.id, "repeat": training.repeat.index}
    parameters |= {"model": result.config.model, "devices": result.config.devices}
    parameters |= {k: v for k, v in result.parameters.items() if k not in OF_THIS_MACHINE}
    units = {"train.step_time": "s", "train.data_time": "s", "train.total_ips": unit}
    units["train_throughput"] = unit
    lines = [
        _line(begin, begin, "METADATA", metric=name, metadata={"unit": its})
        for name, its in units.items()
    ]
    lines.append(_line(begin, begin, "LOG", step="PARAMETER", data=parameters))
    for step in training.steps:
        data = {
            "train.step_time": step.seconds,
            "train.data_time": step.wait_seconds,
            "train.total_ips": training.step_samples / step.seconds,
        }
        data |= {} if step.loss is None else {"train.loss": step.loss}
        lines.append(_line(begin, step.at, "LOG", step=[0, step.number], data=data))
    total = {"train_throughput": training.throughput}
    lines.append(_line(begin, training.steps[-1].at, "LOG", step=[], data=total))
    return "".join(lines)


def _line(begin: datetime, at: datetime, kind: str, **content: Any) -> str:
    told: Mapping[str, Any] = {
        "timestamp": str(at.timestamp()),
        "datetime": at.replace(tzinfo=None).isoformat(" ", "microseconds"),
        "elapsedtime": str((at - begin).total_seconds()),
        "type": kind,
    }
    return f"DLLL {json.dumps({**told, **content})}\n"
