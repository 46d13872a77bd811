"""The parts and operators of the steps in a trace. The parts add up to the steps."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from perfkit.analysis.profile.intervals import Intervals, length, union, without
from perfkit.analysis.profile.trace import (
    Event,
    Range,
    by_thread,
    nested,
    ranges_of,
    read_events,
    times,
)
from perfkit.timing.profile import INPUT, STEP

INPUT_PART, EXCHANGE, OTHER, IDLE = "input", "exchange", "other", "idle"
PROGRAM = "program "
"""Beginning of the name of a part that is one of JAX's programs."""
END = "end: "
"""Beginning of the name of JAX's event when an operator has ended on other threads."""
Owned = Sequence[tuple[float, float, Range]]
"""Times, and the ranges in which they lie, or the kernels that ran."""
Layer = tuple[str, Intervals]
"""A part of the step and its times, which count unless an earlier layer has them."""


@dataclass(frozen=True)
class StepTimes:
    """The times of all traced steps together, microseconds."""

    steps: int
    total: float
    parts: dict[str, float]
    hidden_exchange: float
    """exchange during the work of other parts, which have its time"""
    operators: dict[str, float]
    calls: Counter[str]


def step_times(trace: Path, framework: str) -> StepTimes:
    """Return the times of a trace. Raises OSError, and ValueError for one without steps."""
    events = read_events(trace)
    if framework == "jax":
        return _of_programs(events)
    ranges = [*ranges_of(events, framework)]
    steps = [each for each in ranges if each.role == "step"]
    begin, end = _window([(each.begin, each.end) for each in steps])
    inside = [each for each in ranges if begin <= each.begin < end]
    threads = by_thread(each for each in inside if each.role != "kernel")
    owned = {thread: [*nested(of_thread)] for thread, of_thread in threads.items()}
    kernels = [each for each in inside if each.role == "kernel"]
    if kernels:
        return _of_device(kernels, inside, len(steps), end - begin)
    return _of_thread(owned[steps[0].thread], inside, len(steps), end - begin)


def _window(steps: Intervals) -> tuple[float, float]:
    if not steps:
        raise ValueError(f"the trace has no range {STEP}")
    return min(steps)[0], max(end for _begin, end in steps)


def _of_thread(owned: Owned, ranges: Iterable[Range], steps: int, total: float) -> StepTimes:
    """Return the times of the thread that takes the steps on a CPU. Operators come first, then
    the exchange on other threads, then Python and waits, which are in a range but in no
    operator."""
    exchange = [(each.begin, each.end) for each in ranges if each.part == EXCHANGE]
    work = [each for each in owned if each[2].operator]
    outside = [each for each in owned if not each[2].operator]
    layers = [*_by_part(work), (EXCHANGE, exchange), *_by_part(outside)]
    return _times(layers, OTHER, owned, steps, total)


def _of_device(
    kernels: Sequence[Range], ranges: Iterable[Range], steps: int, total: float
) -> StepTimes:
    """Return the times of a device. A kernel belongs to the range and the operator in which the
    host launched it. Exchange counts where no other kernel runs; without any kernel, the device
    is idle, or waits for the input if the host does."""
    launches = {each.correlation: each for each in ranges if each.role == "launch"}
    for kernel in kernels:
        launch = launches.get(kernel.correlation)
        kernel.operator = kernel
        if launch:
            kernel.part = kernel.part or launch.part
            kernel.operator = launch.operator or kernel
    owned = [(each.begin, each.end, each) for each in kernels]
    layers = sorted(_by_part(owned), key=lambda layer: layer[0] == EXCHANGE)
    waits = [(each.begin, each.end) for each in ranges if each.name == INPUT]
    return _times([*layers, (INPUT_PART, waits)], IDLE, owned, steps, total)


def _of_programs(events: Sequence[Event]) -> StepTimes:
    """Return the wall times of JAX's programs, and of their operators: where several run, the
    time is that of the one that began last."""
    steps = [times(event) for event in events if event["name"] == STEP]
    begin, end = _window(steps)
    inside = [event for event in events if begin <= event["ts"] < end]
    waits = [times(event) for event in inside if event["name"] == INPUT]
    layers = [*_programs(inside), (INPUT_PART, waits)]
    operators = by_thread(_operators_of_programs(inside)).values()
    owned = [*chain.from_iterable(map(nested, operators))]
    return _times(layers, OTHER, owned, len(steps), end - begin)


def _programs(events: Iterable[Event]) -> list[Layer]:
    """Return the times of each program, from its first event to its last."""
    names: dict[object, str] = {}
    runs: dict[object, Intervals] = defaultdict(list)
    for event in events:
        arguments = event.get("args") or {}
        module = arguments.get("hlo_module")
        run = arguments.get("run_id") or (event["ts"] if module else None)
        if run:
            runs[run].append(times(event))
        if module:
            names[run] = module
    layers: dict[str, Intervals] = defaultdict(list)
    for run, module in names.items():
        layers[f"{PROGRAM}{module}"].append(_window(runs[run]))
    return [*layers.items()]


def _operators_of_programs(events: Iterable[Event]) -> list[Range]:
    running: dict[str, Range] = {}
    operators = []
    for event in sorted(events, key=lambda event: event["ts"]):
        name = event["name"]
        begin, end = times(event)
        if "hlo_op" in (event.get("args") or {}):
            running[name] = Range(name, "operator", "", begin, end, thread="")
            operators.append(running[name])
        elif name.startswith(END) and (ended := running.pop(name.removeprefix(END), None)):
            ended.end = max(begin, ended.end)
    return operators


def _by_part(owned: Owned) -> list[Layer]:
    """Return the times of each part."""
    layers: dict[str, Intervals] = defaultdict(list)
    for begin, end, owner in owned:
        layers[owner.part or OTHER].append((begin, end))
    return [*layers.items()]


def _times(
    layers: Iterable[Layer], rest: str, owned: Owned, steps: int, total: float
) -> StepTimes:
    """Return the times of steps with these layers; what none has is the part `rest`."""
    parts: dict[str, float] = defaultdict(float)
    taken: Intervals = []
    exchange: Intervals = []
    for part, intervals in layers:
        exposed = without(union(intervals), taken)
        parts[part] += length(exposed)
        taken = union([*taken, *exposed])
        if part == EXCHANGE:
            exchange += intervals
    parts[rest] += total - length(taken)
    seconds: dict[str, float] = defaultdict(float)
    operators = set()
    for begin, end, owner in owned:
        if owner.operator:
            seconds[owner.operator.name] += end - begin
            operators.add(owner.operator)
    calls = Counter(operator.name for operator in operators)
    hidden = length(union(exchange)) - parts.get(EXCHANGE, 0.0)
    return StepTimes(steps, total, dict(parts), hidden, dict(seconds), calls)
