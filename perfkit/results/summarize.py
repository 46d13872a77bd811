"""The numbers of a repeat from the raw events of its ranks, and the check that they follow."""

from collections.abc import Sequence
from pathlib import Path

from perfkit.config import Protocol
from perfkit.results.schema import Evaluation, Peak, Rank, Repeat, StepSeconds
from perfkit.results.store import Events, Measurement, ResultError, read_events
from perfkit.results.telemetry import Sample, summarize_telemetry
from perfkit.results.windows import summarize_windows
from perfkit.statistics import median, summary

STRAGGLING = 1.1
NOT_IN_RAW_FILES = {"nodes", "began", "wall_seconds"}
"""Fields of a repeat that its raw files don't have."""


def summarize(
    index: int,
    protocol: Protocol,
    events: Sequence[Events],
    seconds: float,
    telemetry: Sequence[Sample] = (),
) -> Repeat:
    """The numbers of a repeat whose ranks all finished, from the events of each rank and of its
    telemetry file, which may be empty; it took `seconds` in all."""
    named = [{event["event"]: event for event in rank} for rank in events]
    steps = [
        [e for e in rank if e["event"] == "step" and e["step"] > protocol.warmup_steps]
        for rank in events
    ]
    ranks = [
        Rank(
            rank=rank,
            samples=last["window"]["samples"],
            window_seconds=last["window"]["seconds"],
            data_wait_seconds=sum(step["data_wait_seconds"] for step in steps[rank]),
            memory_bytes=last["end"]["memory_bytes"],
            compute_seconds=last["end"].get("compute_seconds"),
            samples_seen=last["end"].get("samples_seen"),
        )
        for rank, last in enumerate(named)
    ]
    slowest = max(rank.window_seconds for rank in ranks)
    losses = [event["value"] for event in events[0] if event["event"] == "loss"]
    samples = [rank.samples for rank in ranks]
    waits = sum(rank.data_wait_seconds for rank in ranks)
    first = named[0]
    window, evaluation = first["window"], first.get("evaluation", {"missing": ""})
    # Raw files from before there was telemetry have no `began`.
    began = window.get("began", 0.0)
    return Repeat(
        index=index,
        status="complete",
        throughput=sum(samples) / slowest,
        steps_per_second=protocol.measured_steps / slowest,
        step_seconds=StepSeconds(**summary([e["seconds"] for rank in steps for e in rank])),
        data_wait_share=waits / sum(rank.window_seconds for rank in ranks),
        loss_first=losses[0],
        loss_last=losses[-1],
        skipped_steps=first["end"]["skipped_steps"],
        loss_scale=first["end"]["loss_scale"],
        straggler=_straggler([rank.compute_seconds or 0.0 for rank in ranks]),
        evaluation=None
        if "missing" in evaluation
        else Evaluation(loss=evaluation["loss"], accuracy=evaluation["accuracy"]),
        peak=_peak([last.get("peak", {"missing": ""}) for last in named]),
        ranks=ranks,
        telemetry=summarize_telemetry(telemetry, began, window["seconds"], samples),
        wall_seconds=seconds,
    )


def _straggler(compute_seconds: list[float]) -> int | None:
    """The rank that computes STRAGGLING times as long as the others' median, if one does."""
    slowest = compute_seconds.index(max(compute_seconds))
    others = compute_seconds[:slowest] + compute_seconds[slowest + 1 :]
    straggles = others and compute_seconds[slowest] > STRAGGLING * median(others)
    return slowest if straggles else None


def _peak(events: Events) -> Peak | None:
    """The peaks of all ranks' devices together; None unless all of them have one."""
    if any("missing" in event for event in events):
        return None
    return Peak(
        matmul_flops_per_second=sum(event["matmul_flops_per_second"] for event in events),
        copy_bytes_per_second=sum(event["copy_bytes_per_second"] for event in events),
    )


def check_against_raw(measurement: Measurement) -> list[str]:
    """A line for each complete repeat whose raw files are missing, can't be read, or give other
    numbers than the result has."""
    problems = []
    for repeat in measurement.result.complete_repeats:
        try:
            derived = _derive_again(measurement, repeat).model_dump(exclude=NOT_IN_RAW_FILES)
        except OSError as error:
            path = Path(error.filename).relative_to(measurement.folder)
            problem = f"{path}: {error.strerror}"
        except ResultError as error:
            problem = str(error).removeprefix(f"{measurement.folder}/")
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            problem = "the raw files are not those of a finished repeat"
        else:
            stored = repeat.model_dump()
            differ = [name for name, value in derived.items() if value != stored[name]]
            problem = f"the raw files give another {', '.join(differ)}" if differ else ""
        if problem:
            problems.append(f"repeat {repeat.index}: {problem}")
    return problems


def _derive_again(measurement: Measurement, repeat: Repeat) -> Repeat:
    """The repeat as its raw files give it. Raises OSError, ResultError, and whatever comes of
    files that are not those of a finished repeat."""
    result, index = measurement.result, repeat.index
    if result.imported:
        windows = read_events(measurement.windows_file(index))
        return summarize_windows(
            index, result.config, result.protocol, result.imported, windows
        )
    if not repeat.ranks:
        raise ResultError("its ranks are not named")
    events = [read_events(measurement.rank_file(index, rank.rank)) for rank in repeat.ranks]
    path = measurement.telemetry_file(index)
    telemetry = read_events(path) if repeat.telemetry or path.exists() else []
    return summarize(index, result.protocol, events, repeat.wall_seconds or 0.0, telemetry)
