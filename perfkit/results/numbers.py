"""The numbers of a repeat, derived from the raw events of its ranks."""

from collections.abc import Sequence
from typing import Any

from perfkit.config import Protocol
from perfkit.results.schema import Evaluation, Peak, Rank, Repeat, StepSeconds, TelemetrySummary
from perfkit.results.store import Events, Measurement, ResultError, read_events
from perfkit.results.telemetry import Sample, summarize
from perfkit.results.windows import numbers_of_windows
from perfkit.statistics import median, summary

STRAGGLING = 1.1
ELSEWHERE = ("nodes", "began", "wall_seconds")
"""Of a repeat, what its raw files do not tell."""


def numbers(
    index: int,
    protocol: Protocol,
    events: list[Events],
    seconds: float,
    telemetry: Sequence[Sample] = (),
) -> Repeat:
    """The numbers of a repeat whose ranks all came to their end; `telemetry` is what its
    conditions file has, if there is one."""
    steps = [
        [e for e in one if e["event"] == "step" and e["step"] > protocol.warmup_steps]
        for one in events
    ]
    ranks = [_rank(rank, one, steps[rank]) for rank, one in enumerate(events)]
    slowest = max(rank.window_seconds for rank in ranks)
    losses = [event["value"] for event in events[0] if event["event"] == "loss"]
    window = next(event for event in events[0] if event["event"] == "window")
    end = events[0][-1]
    return Repeat(
        index=index,
        status="complete",
        throughput=sum(rank.samples for rank in ranks) / slowest,
        steps_per_second=protocol.measured_steps / slowest,
        step_seconds=StepSeconds(**summary([e["seconds"] for one in steps for e in one])),
        data_wait_share=sum(r.data_wait_seconds for r in ranks)
        / sum(r.window_seconds for r in ranks),
        loss_first=losses[0],
        loss_last=losses[-1],
        skipped_steps=end["skipped_steps"],
        loss_scale=end["loss_scale"],
        straggler=_straggler([rank.compute_seconds or 0.0 for rank in ranks]),
        evaluation=_evaluation(events[0]),
        peak=_peak(events),
        ranks=ranks,
        telemetry=_telemetry(telemetry, window, [rank.samples for rank in ranks]),
        wall_seconds=seconds,
    )


def _rank(rank: int, events: Events, steps: Events) -> Rank:
    """One rank's part, of its events and those of them that are `steps` of the window."""
    by_kind = {event["event"]: event for event in events}
    window, end = by_kind["window"], by_kind["end"]
    return Rank(
        rank=rank,
        samples=window["samples"],
        window_seconds=window["seconds"],
        data_wait_seconds=sum(step["data_wait_seconds"] for step in steps),
        memory_bytes=end["memory_bytes"],
        compute_seconds=end.get("compute_seconds"),
        samples_seen=end.get("samples_seen"),
    )


def _evaluation(events: Events) -> Evaluation | None:
    found = [e for e in events if e["event"] == "evaluation" and "missing" not in e]
    return Evaluation(loss=found[0]["loss"], accuracy=found[0]["accuracy"]) if found else None


def _peak(events: list[Events]) -> Peak | None:
    """The peaks of all ranks' devices together; None unless all of them have one."""
    found = [e for rank in events for e in rank if e["event"] == "peak"]
    if len(found) < len(events) or any("missing" in event for event in found):
        return None
    return Peak(
        matmul_flops_per_second=sum(event["matmul_flops_per_second"] for event in found),
        copy_bytes_per_second=sum(event["copy_bytes_per_second"] for event in found),
    )


def _telemetry(
    telemetry: Sequence[Sample], window: dict[str, Any], samples: list[int]
) -> TelemetrySummary | None:
    # Older raw files don't tell when the window began, and have no conditions beside them.
    began = window.get("began")
    return None if began is None else summarize(telemetry, began, window["seconds"], samples)


def _straggler(alone: list[float]) -> int | None:
    """The rank that takes STRAGGLING times as long alone as the others' median, if one does."""
    slowest = alone.index(max(alone))
    others = alone[:slowest] + alone[slowest + 1 :]
    return slowest if others and alone[slowest] > STRAGGLING * median(others) else None


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
    paths = [measurement.rank_file(repeat.index, rank.rank) for rank in repeat.ranks]
    conditions = measurement.telemetry_file(repeat.index)
    if result.imported:
        paths = [measurement.windows_file(repeat.index)]
    elif repeat.telemetry or conditions.exists():
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
    of_ranks, telemetry = events[: len(repeat.ranks)], events[len(repeat.ranks) :]
    try:
        if result.imported:
            told = (result.config, result.protocol, result.imported)
            derived = numbers_of_windows(repeat.index, *told, *events)
        else:
            derived = numbers(repeat.index, result.protocol, of_ranks, seconds, *telemetry)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return "the raw files are not those of a finished repeat"
    given, stored = derived.model_dump(), repeat.model_dump()
    differ = [name for name in given if name not in ELSEWHERE and given[name] != stored[name]]
    return f"the raw files give another {', '.join(differ)}" if differ else None
