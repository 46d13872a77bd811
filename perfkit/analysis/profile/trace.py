"""A trace of a framework's profiler, in Chrome's format, as ranges of time."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perfkit.timing.profile import INPUT, STEP

Role = Literal["step", "range", "operator", "launch", "kernel"]
Event = dict[str, Any]

ROLES: dict[str, dict[str, Role]] = {
    "torch": {
        "user_annotation": "range",
        "cpu_op": "operator",
        "cuda_runtime": "launch",
        "cuda_driver": "launch",
        "kernel": "kernel",
        "gpu_memcpy": "kernel",
        "gpu_memset": "kernel",
    },
    "paddle": {
        "PythonUserDefined": "range",
        "Forward": "range",
        "Backward": "range",
        "Optimization": "range",
        "Communication": "range",
        "Operator": "operator",
        "CudaRuntime": "launch",
        "Kernel": "kernel",
        "Memcpy": "kernel",
        "Memset": "kernel",
    },
}
"""Framework -> category of an event -> what the event is; others are ignored. Paddle's other
categories repeat the times of its operators."""
PARTS = {
    INPUT: "input",
    "Memcpy HtoD": "input",
    "MEMCPY_HtoD": "input",
    "autograd::engine::evaluate_function": "backward",
    "Optimizer.": "optimizer",
    "gloo:": "exchange",
    "nccl": "exchange",
}
"""Beginning of a name -> part of the step."""
PARTS_OF_CATEGORIES = {
    "Forward": "forward",
    "Backward": "backward",
    "Optimization": "optimizer",
    "Communication": "exchange",
}


@dataclass(eq=False, slots=True)
class Range:
    """A time on a thread of the host or a stream of the device, microseconds. `part` is that of
    the step, empty if only what surrounds it tells it; `operator` is the innermost one in which
    it lies, or itself."""

    name: str
    role: Role
    part: str
    begin: float
    end: float
    thread: str
    correlation: Any = None
    operator: "Range | None" = None


def read_events(trace: Path) -> list[Event]:
    """Return the events of a trace that take time. Raises OSError and ValueError."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def ranges_of(events: Iterable[Event], framework: str) -> Iterator[Range]:
    """Yield the ranges of PyTorch's or Paddle's events."""
    for event in events:
        category = event.get("cat", "")
        role = ROLES[framework].get(category)
        name = event["name"]
        if framework == "paddle":
            # Its names end with their duration.
            name, _bracket, _duration = name.partition("[")
        if name == STEP:
            role = "step"
        if role is None:
            continue
        begin, end = times(event)
        arguments = event.get("args", {})
        correlation = arguments.get("correlation", arguments.get("correlation id"))
        part = PARTS_OF_CATEGORIES.get(category, part_named(name))
        # Paddle has two rows for a thread, "4962(Python)" and "4962(C++)".
        thread = str(event["tid"]).partition("(")[0]
        yield Range(name, role, part, begin, end, thread, correlation)


def times(event: Event) -> tuple[float, float]:
    """Return begin and end of an event, microseconds. Paddle's time stamps are whole ones; the
    exact times are texts such as "21.362 us"."""
    arguments = event.get("args") or {}
    if "start_time" in arguments:
        begin, end = arguments["start_time"], arguments["end_time"]
        return float(begin.removesuffix(" us")), float(end.removesuffix(" us"))
    return event["ts"], event["ts"] + event["dur"]


def part_named(name: str) -> str:
    """Return the part of the step that a name tells; empty if it tells none."""
    return next((part for start, part in PARTS.items() if name.startswith(start)), "")


def by_thread(ranges: Iterable[Range]) -> dict[str, list[Range]]:
    """Return the ranges of each thread, outer ones before those within."""
    threads = defaultdict(list)
    for each in sorted(ranges, key=lambda each: (each.begin, -each.end)):
        threads[each.thread].append(each)
    return threads


def nested(ranges: Iterable[Range]) -> Iterator[tuple[float, float, Range]]:
    """Yield the times of a thread, each with the innermost range in which it lies, and have
    ranges inherit part and operator. A range that outlasts the surrounding one is cut."""
    stack: list[Range] = []
    now = 0.0
    for each in ranges:
        while stack and stack[-1].end <= each.begin:
            yield now, stack[-1].end, stack[-1]
            now = stack.pop().end
        if stack:
            yield now, each.begin, stack[-1]
            _inherit(each, stack[-1])
        elif each.role == "operator":
            each.operator = each
        now = each.begin
        stack.append(each)
    while stack:
        yield now, stack[-1].end, stack[-1]
        now = stack.pop().end


def _inherit(inner: Range, outer: Range) -> None:
    inner.end = min(inner.end, outer.end)
    inner.operator = inner if inner.role == "operator" else outer.operator
    is_work = inner.role in ("operator", "launch")
    inner.part = inner.part or outer.part or ("forward" if is_work else "")
