"""The numbers of a repeat, derived from the raw events of its ranks."""

from collections.abc import Sequence
from typing import Any

from perfkit.config import Protocol
from perfkit.results.conditions import summarize
from perfkit.results.files import Events, Measurement, ResultError, read_events
from perfkit.results.schema import Ceiling, Conditions, Evaluation, Rank, Repeat, StepSeconds
from perfkit.results.windows import numbers_of_windows
from perfkit.statistics import median, summary

STRAGGLING = 1.1
SAME_WINDOW = 0.02
"""By how much of it a window may differ from its steps' sum."""
ELSEWHERE = ("nodes", "began", "wall_seconds")
"""Of a repeat, what its raw files do not tell."""


def numbers(
    index: int,
    protocol: Protocol,
    events: list[Events],
    seconds: float,
    looks: Sequence[dict[str, Any]] = (),
) -> Repeat:
    """The numbers of a repeat whose ranks all came to their end; `looks` is what its
    conditions file has, if there is one."""
    ranks, steps = [], []
    for rank, rank_events in enumerate(events):
        by_kind: dict[str, Any] = {event["event"]: event for event in rank_events}
        in_window = [
            event
            for event in rank_events
            if event["event"] == "step" and event["step"] > protocol.warmup_steps
        ]
        steps += [event["seconds"] for event in in_window]
        ranks.append(
            Rank(
                rank=rank,
                samples=by_kind["window"]["samples"],
                window_seconds=by_kind["window"]["seconds"],
                data_wait_seconds=sum(event["data_wait_seconds"] for event in in_window),
                memory_bytes=by_kind["end"]["memory_bytes"],
                alone_seconds=by_kind["end"].get("alone_seconds"),
                samples_seen=by_kind["end"].get("samples_seen"),
            )
        )
    losses = [event["value"] for event in events[0] if event["event"] == "loss"]
    slowest = max(rank.window_seconds for rank in ranks)
    last = events[0][-1]
    evaluated = [
        Evaluation(loss=event["loss"], accuracy=event["accuracy"])
        for event in events[0]
        if event["event"] == "evaluation" and "missing" not in event
    ]
    window = next(event for event in events[0] if event["event"] == "window")
    return Repeat(
        index=index,
        status="complete",
        throughput=sum(rank.samples for rank in ranks) / slowest,
        steps_per_second=protocol.measured_steps / slowest,
        step_seconds=StepSeconds(**summary(steps)),
        data_wait_share=sum(r.data_wait_seconds for r in ranks)
        / sum(r.window_seconds for r in ranks),
        loss_first=losses[0],
        loss_last=losses[-1],
        skipped_steps=last["skipped_steps"],
        loss_scale=last["loss_scale"],
        straggler=_straggler([rank.alone_seconds or 0.0 for rank in ranks]),
        evaluation=evaluated[0] if evaluated else None,
        ceiling=_ceiling(events),
        ranks=ranks,
        conditions=_conditions(looks, window, [rank.samples for rank in ranks]),
        wall_seconds=seconds,
    )


def _ceiling(events: list[Events]) -> Ceiling | None:
    """The ceilings of all ranks' devices together; None unless all of them have one."""
    found = [e for rank in events for e in rank if e["event"] == "ceiling"]
    if len(found) < len(events) or any("missing" in event for event in found):
        return None
    return Ceiling(
        matmul_flops_per_second=sum(event["matmul_flops_per_second"] for event in found),
        copy_bytes_per_second=sum(event["copy_bytes_per_second"] for event in found),
    )


def _conditions(
    looks: Sequence[dict[str, Any]], window: dict[str, Any], samples: list[int]
) -> Conditions | None:
    # Older raw files don't tell when the window began, and have no conditions beside them.
    began = window.get("began")
    return None if began is None else summarize(looks, began, window["seconds"], samples)


def _straggler(alone: list[float]) -> int | None:
    """The rank that takes STRAGGLING times as long alone as the others' median, if one does."""
    slowest = alone.index(max(alone))
    others = alone[:slowest] + alone[slowest + 1 :]
    return slowest if others and alone[slowest] > STRAGGLING * median(others) else None


def window_disagrees(window_seconds: float, step_seconds: list[float]) -> bool:
    """Whether the steps of one rank's window do not add up to it, to SAME_WINDOW.

    On a GPU the window is the host's time and the steps are the device's: where they differ,
    the device was not synchronized at the window's ends, or one of the clocks is wrong.
    """
    return not abs(sum(step_seconds) - window_seconds) <= SAME_WINDOW * window_seconds


def disagreements(measurement: Measurement) -> list[str]:
    """In what the complete repeats of a measurement are not what their raw files give: a line
    for each repeat whose files are missing, can't be read, or give other numbers."""
    told = []
    for repeat in measurement.result.complete_repeats:
        if wrong := _disagreement(measurement, repeat):
            told.append(f"repeat {repeat.index}: {wrong}")
    return told


def _disagreement(measurement: Measurement, repeat: Repeat) -> str | None:
    result = measurement.result
    if not (repeat.ranks or result.imported):
        return "its ranks are not named"
    paths = [measurement.raw_file(repeat.index, rank.rank) for rank in repeat.ranks]
    conditions = measurement.conditions_file(repeat.index)
    if result.imported:
        paths = [measurement.windows_file(repeat.index)]
    elif repeat.conditions or conditions.exists():
        paths.append(conditions)
    events = []
    for path in paths:
        try:
            events.append(read_events(path))
        except OSError as error:
            return f"{path.relative_to(measurement.folder)}: {error.strerror}"
        except ResultError as error:
            return str(error).removeprefix(f"{measurement.folder}/")
    seconds = repeat.wall_seconds or 0.0
    of_ranks, looks = events[: len(repeat.ranks)], events[len(repeat.ranks) :]
    try:
        if result.imported:
            told = (result.config, result.protocol, result.imported)
            derived = numbers_of_windows(repeat.index, *told, *events)
        else:
            derived = numbers(repeat.index, result.protocol, of_ranks, seconds, *looks)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return "the raw files are not those of a finished repeat"
    given, stored = derived.model_dump(), repeat.model_dump()
    differ = [name for name in given if name not in ELSEWHERE and given[name] != stored[name]]
    return f"the raw files give another {', '.join(differ)}" if differ else None
