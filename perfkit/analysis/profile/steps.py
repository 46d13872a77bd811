"""The parts and operators of the steps in a trace. The parts add up to the steps."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

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
from perfkit.measuring.results.base import Positive, Stored
from perfkit.timing.profile import INPUT, STEP

INPUT_PART, EXCHANGE, OTHER, IDLE = "input", "exchange", "other", "idle"
PROGRAM = "program "
"""Beginning of the name of a part that is one of JAX's programs."""
END = "end: "
"""Beginning of the name of JAX's event when an operator has ended on other threads."""
MOST_OPERATORS = 200
MICRO = 1e-6
Owned = Sequence[tuple[float, float, Range]]
"""Times, and the ranges in which they lie, or the kernels that ran."""
Layer = tuple[str, Intervals]
"""A part of the step and its times, which count unless an earlier layer has them."""


class OperatorShare(Stored):
    """The calls of an operator."""

    name: str
    """the framework's name; untrusted text"""
    calls: float
    """in a step"""
    share: float
    """time in these calls, without that of operators that they call, / time of the step"""


class StepProfile(Stored):
    """The profiled steps of a rank. Shares are those of the step, 0 to 1."""

    steps: int
    """number of profiled steps"""
    step_seconds: Positive
    """time of such a step"""
    parts: dict[str, float]
    """part of the step -> its share; together 1: input, forward, backward, exchange that
    nothing hides, optimizer, idle and other; of JAX input, "program NAME" and other"""
    hidden_exchange: float
    """share of the step in which the exchange ran at the same time as other work"""
    operators: list[OperatorShare]
    """those with most time, the longest first"""


class Window(NamedTuple):
    """The number of the steps, their begin and end, microseconds."""

    steps: int
    begin: float
    end: float

    @classmethod
    def of(cls, steps: Intervals) -> Self:
        """Raises ValueError without steps."""
        if not steps:
            raise ValueError(f"the trace has no range {STEP}")
        return cls(len(steps), *_span(steps))

    def has(self, begin: float) -> bool:
        return self.begin <= begin < self.end


def _span(intervals: Intervals) -> tuple[float, float]:
    return min(intervals)[0], max(end for _begin, end in intervals)


def step_profile(trace: Path, framework: str) -> StepProfile:
    """Return the profile of a trace. Raises OSError, and ValueError for one without steps."""
    events = read_events(trace)
    if framework == "jax":
        return _of_programs(events)
    ranges = [*ranges_of(events, framework)]
    steps = [each for each in ranges if each.role == "step"]
    window = Window.of([(each.begin, each.end) for each in steps])
    inside = [each for each in ranges if window.has(each.begin)]
    threads = by_thread(each for each in inside if each.role != "kernel")
    owned = {thread: [*nested(of_thread)] for thread, of_thread in threads.items()}
    kernels = [each for each in inside if each.role == "kernel"]
    if kernels:
        return _of_device(kernels, inside, window)
    return _of_thread(owned[steps[0].thread], inside, window)


def _of_thread(owned: Owned, ranges: Iterable[Range], window: Window) -> StepProfile:
    """Return the times of the thread that takes the steps on a CPU. Operators come first, then
    the exchange on other threads, then Python and waits, which are in a range but in no
    operator."""
    exchange = [(each.begin, each.end) for each in ranges if each.part == EXCHANGE]
    work = [each for each in owned if each[2].operator]
    outside = [each for each in owned if not each[2].operator]
    layers = [*_by_part(work), (EXCHANGE, exchange), *_by_part(outside)]
    return _profile(layers, OTHER, owned, window)


def _of_device(
    kernels: Sequence[Range], ranges: Iterable[Range], window: Window
) -> StepProfile:
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
    return _profile([*layers, (INPUT_PART, waits)], IDLE, owned, window)


def _of_programs(events: Sequence[Event]) -> StepProfile:
    """Return the wall times of JAX's programs, and of their operators: where several run, the
    time is that of the one that began last."""
    window = Window.of([times(event) for event in events if event["name"] == STEP])
    inside = [event for event in events if window.has(event["ts"])]
    waits = [times(event) for event in inside if event["name"] == INPUT]
    layers = [*_programs(inside), (INPUT_PART, waits)]
    operators = by_thread(_operators_of_programs(inside)).values()
    owned = [*chain.from_iterable(map(nested, operators))]
    return _profile(layers, OTHER, owned, window)


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
        layers[f"{PROGRAM}{module}"].append(_span(runs[run]))
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


def _profile(layers: Iterable[Layer], rest: str, owned: Owned, window: Window) -> StepProfile:
    """Return the profile of steps with these layers; what none has is the part `rest`."""
    total = window.end - window.begin
    parts: dict[str, float] = defaultdict(float)
    taken: Intervals = []
    exchange: Intervals = []
    for part, intervals in layers:
        exposed = without(union(intervals), taken)
        parts[part] += length(exposed) / total
        taken = union([*taken, *exposed])
        if part == EXCHANGE:
            exchange += intervals
    parts[rest] += 1 - length(taken) / total
    return StepProfile(
        steps=window.steps,
        step_seconds=total * MICRO / window.steps,
        parts={part: share for part, share in parts.items() if share},
        hidden_exchange=length(union(exchange)) / total - parts[EXCHANGE],
        operators=_operators(owned, window)[:MOST_OPERATORS],
    )


def _operators(owned: Owned, window: Window) -> list[OperatorShare]:
    """Return the operators, that with most time first."""
    shares: dict[str, float] = defaultdict(float)
    called: dict[str, set[Range]] = defaultdict(set)
    for begin, end, owner in owned:
        if owner.operator:
            shares[owner.operator.name] += (end - begin) / (window.end - window.begin)
            called[owner.operator.name].add(owner.operator)
    operators = []
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        calls = len(called[name]) / window.steps
        operators.append(OperatorShare(name=name, calls=calls, share=share))
    return operators
