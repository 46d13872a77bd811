"""As MLPerf's mllog writes: a `:::MLLOG` line for each event.

Of a training that was no submission: its sizes, where it begins and ends, and the throughput of
each step in `tracked_stats`.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from perfkit.exporters.training import Training

Event = tuple[datetime, str, str, Any, dict[str, Any]]
START, STOP, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"


def text(training: Training) -> str:
    return "".join(_line(*event) for event in _events(training))


def _events(training: Training) -> Iterator[Event]:
    """When, event type, key, value, metadata."""
    config, protocol = training.result.config, training.result.protocol
    sizes = {
        "global_batch_size": training.step_samples,
        "gradient_accumulation_steps": config.accumulate,
        "max_sequence_length": config.sequence_length,
        "seed": config.seed,
    }
    for key, value in sizes.items():
        if value is not None:
            yield training.begin, POINT, key, value, {}
    end = training.begin
    yield end, START, "run_start", None, {}
    for step in training.steps:
        if step.number == protocol.warmup_steps + 1:
            yield end, START, "block_start", None, {"step": step.number}
        end, stats = step.at, {"throughput": training.step_samples / step.seconds}
        if step.loss is not None:
            stats["loss"] = step.loss
        yield end, POINT, "tracked_stats", stats, {"step": step.number}
    yield end, STOP, "block_stop", None, {"step": protocol.steps}
    yield end, STOP, "run_stop", None, {"status": "success"}


def _line(at: datetime, event_type: str, key: str, value: Any, metadata: dict[str, Any]) -> str:
    content = {
        "namespace": "",
        "time_ms": round(at.timestamp() * 1000),
        "event_type": event_type,
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    return f":::MLLOG {json.dumps(content)}\n"
