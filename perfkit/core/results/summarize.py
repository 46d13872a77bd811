"""The numbers of a repeat from the raw events of its ranks, and the check of stored numbers
against these."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from errno import ENOENT
from pathlib import Path
from statistics import fmean
from typing import Any

from perfkit.core.config import Protocol
from perfkit.core.results.repeat import (
    Evaluation,
    FirstStep,
    Peak,
    Rank,
    Repeat,
    StepSeconds,
    TelemetrySummary,
    Warmup,
)
from perfkit.core.results.store import (
    Events,
    Measurement,
    ResultError,
    parse_events,
    raw_digests,
    read_raw_files,
)
from perfkit.core.results.telemetry import Sample, summarize_telemetry
from perfkit.core.results.told import Told
from perfkit.core.statistics import median, summary

STRAGGLING = 1.1
NOT_IN_RAW_FILES = {"nodes", "began", "wall_seconds", "raw_files", "killed_after_end"}
"""Fields of a repeat that don't follow from its raw files."""
EventsByKind = Mapping[str, Events]
"""The events of one rank by their kind, such as `step`; each kind in the order of writing."""


def summarize(
    index: int,
    protocol: Protocol,
    events: Sequence[Events],
    seconds: float,
    telemetry: Sequence[Sample] = (),
    *,
    units: int = 1,
) -> Repeat:
    """Return the numbers of a repeat whose ranks all finished, from the events of each rank and
    of the telemetry file, if there is one. It took `seconds` in total; a sample counts as
    `units` of the throughput."""
    events_of_ranks = [_by_kind(rank_events) for rank_events in events]
    rank0 = events_of_ranks[0]
    warmup = _warmup(rank0, protocol)
    warmup_steps = warmup.steps if warmup else protocol.warmup_steps
    ranks = []
    step_seconds = []
    for number, of_rank in enumerate(events_of_ranks):
        steps = [step for step in of_rank["step"] if step["step"] > warmup_steps]
        step_seconds += [step["seconds"] for step in steps]
        ranks.append(_rank(number, of_rank, steps))
    slowest = max(rank.window_seconds for rank in ranks)
    samples = [rank.samples for rank in ranks]
    losses = [loss["value"] for loss in rank0["loss"]]
    window, end = rank0["window"][-1], rank0["end"][-1]
    pauses = [_pauses_seconds(of_rank, warmup_steps) for of_rank in events_of_ranks]
    return Repeat(
        index=index,
        status="complete",
        warmup=warmup,
        throughput=units * sum(samples) / slowest,
        steps_per_second=protocol.measured_steps / slowest,
        step_seconds=StepSeconds(**summary(step_seconds)),
        data_wait_share=_data_wait_share(ranks),
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        skipped_steps=end.get("skipped_steps"),
        loss_scale=end.get("loss_scale"),
        straggler=_straggler([rank.compute_seconds or 0.0 for rank in ranks]),
        evaluation=_evaluation(rank0),
        peak=_peak(events_of_ranks),
        first_step=_first_step(events_of_ranks, warmup_steps),
        ranks=ranks,
        telemetry=_telemetry(telemetry, window, pauses[0], samples),
        wall_seconds=seconds,
        pauses_seconds=max(pauses) or None,
        rows=_rows(events_of_ranks),
        late_modules=_late_modules(events_of_ranks),
    )


def told_by(events: Events) -> Told | None:
    """Return what a rank has told the timer; None before its first step. Raises ValueError for
    something that can't be told."""
    for event in events:
        if event["event"] == "told":
            fields = {name: value for name, value in event.items() if name != "event"}
            return Told.model_validate(fields)
    return None


def _by_kind(events: Events) -> EventsByKind:
    kinds = defaultdict(list)
    for event in events:
        kinds[event["event"]].append(event)
    return kinds


def _warmup(rank0: EventsByKind, protocol: Protocol) -> Warmup | None:
    """Return the warm-up of a repeat whose protocol does not fix its length."""
    if protocol.warmup_limit is None:
        return None
    event = rank0["warmup"][-1]
    return Warmup(**{name: event[name] for name in Warmup.model_fields})


def _first_step(events_of_ranks: Sequence[EventsByKind], warmup_steps: int) -> FirstStep | None:
    """Return the time to the end of the first step on the rank that took longest; None if a
    rank has not told it."""
    of_ranks = [_first_step_of_rank(events, warmup_steps) for events in events_of_ranks]
    known = [first_step for first_step in of_ranks if first_step]
    if len(known) < len(of_ranks):
        return None
    return max(known, key=lambda first_step: first_step.seconds)


def _first_step_of_rank(events: EventsByKind, warmup_steps: int) -> FirstStep | None:
    """Return the time to the end of a rank's first step; None if it is not known."""
    if not events["step"]:
        return None
    step_seconds = events["step"][0]["seconds"]
    if not events["ready"]:
        return _first_step_of_script(events, warmup_steps, step_seconds)
    parts = dict(events["ready"][-1])
    del parts["event"]
    seconds = step_seconds + sum(parts.values())
    return FirstStep(seconds=seconds, step_seconds=step_seconds, **parts)


def _first_step_of_script(
    events: EventsByKind, warmup_steps: int, step_seconds: float
) -> FirstStep | None:
    """Return the time to the end of a script's first step, which is what the other steps of the
    warm-up leave of the time from its start to its window."""
    window = events["window"][-1]
    starts = [event["began"] for event in events["start"] if "began" in event]
    if not starts or "began" not in window:
        return None
    warmup_seconds = sum(
        step["seconds"] for step in events["step"] if step["step"] <= warmup_steps
    )
    pauses = [event for event in events["pause"] if event["step"] < warmup_steps]
    paused_seconds = sum(pause["seconds"] for pause in pauses)
    until_window = window["began"] - starts[0]
    seconds = until_window - warmup_seconds - paused_seconds + step_seconds
    if seconds < step_seconds:
        return None
    return FirstStep(seconds=seconds, step_seconds=step_seconds)


def _rank(number: int, events: EventsByKind, steps: Events) -> Rank:
    """Return the window of a rank, of which these are the steps."""
    window, end = events["window"][-1], events["end"][-1]
    submitting = [step["submit_seconds"] for step in steps if "submit_seconds" in step]
    waits = [step["data_wait_seconds"] for step in steps if "data_wait_seconds" in step]
    # A script may count the wait in some steps only, of which the sum would be too small.
    knows_wait = len(waits) == len(steps)
    return Rank(
        rank=number,
        samples=window["samples"],
        window_seconds=window["seconds"],
        data_wait_seconds=sum(waits) if knows_wait else None,
        memory_bytes=end.get("memory_bytes"),
        compute_seconds=end.get("compute_seconds"),
        submit_seconds=min(submitting, default=None),
        samples_seen=end.get("samples_seen"),
    )


def _data_wait_share(ranks: Sequence[Rank]) -> float | None:
    """Return the share of all windows spent waiting for input; None if a rank has not told."""
    waits = [rank.data_wait_seconds for rank in ranks if rank.data_wait_seconds is not None]
    if len(waits) < len(ranks):
        return None
    return sum(waits) / sum(rank.window_seconds for rank in ranks)


def _pauses_seconds(events: EventsByKind, warmup_steps: int) -> float:
    """Return the seconds of a rank's pauses in the window. A pause has the number of the step
    before it."""
    pauses = [event for event in events["pause"] if event["step"] >= warmup_steps]
    return float(sum(pause["seconds"] for pause in pauses))


def _rows(events_of_ranks: Sequence[EventsByKind]) -> tuple[int, int] | None:
    """Return the fewest and most rows of a step in the windows of the ranks; None if a rank has
    not told them."""
    rows: list[int] = []
    for events in events_of_ranks:
        of_rank = events["window"][-1].get("rows")
        if of_rank is None:
            return None
        rows += of_rank
    return min(rows), max(rows)


def _late_modules(events_of_ranks: Sequence[EventsByKind]) -> list[str]:
    late: set[str] = set()
    for events in events_of_ranks:
        for event in events["modules"]:
            late |= {*event["late"]}
    return sorted(late)


def _telemetry(
    samples: Sequence[Sample],
    window: Mapping[str, Any],
    pauses_seconds: float,
    trained: Sequence[int],
) -> TelemetrySummary | None:
    """Return the summary of the telemetry from the beginning of rank 0's window to its end,
    which includes pauses. Their energy is not that of the training."""
    # Raw files that predate telemetry have no `began`.
    began = window.get("began", 0.0)
    seconds = window["seconds"] + pauses_seconds
    summary = summarize_telemetry(samples, began, seconds, trained)
    if summary is None or not pauses_seconds:
        return summary
    missing = summary.missing | {"energy_per_sample": "the window has pauses"}
    return summary.model_copy(update={"energy_joules_per_sample": None, "missing": missing})


def _straggler(compute_seconds: list[float]) -> int | None:
    """Return the rank whose time exceeds STRAGGLING times the others' median, if any."""
    slowest = compute_seconds.index(max(compute_seconds))
    others = compute_seconds[:slowest] + compute_seconds[slowest + 1 :]
    if others and compute_seconds[slowest] > STRAGGLING * median(others):
        return slowest
    return None


def _evaluation(rank0: EventsByKind) -> Evaluation | None:
    """Return the loss and the accuracy after the window; None if they could not be computed."""
    if not rank0["evaluation"]:
        return None
    event = rank0["evaluation"][-1]
    if "missing" in event:
        return None
    return Evaluation(loss=event["loss"], accuracy=event["accuracy"])


def _peak(events_of_ranks: Sequence[EventsByKind]) -> Peak | None:
    """Return the peak of all ranks' devices together; None unless every rank has one. Each
    rank measures before and after the training, and the faster one counts."""
    flops, copies = [], []
    peaks_of_ranks = []
    for events in events_of_ranks:
        peaks = [event for event in events["peak"] if "missing" not in event]
        if not peaks:
            return None
        peaks_of_ranks.append(peaks)
        flops.append([peak["matmul_flops_per_second"] for peak in peaks])
        copies.append([peak["copy_bytes_per_second"] for peak in peaks])
    before_and_after = [sum(of_ranks) for of_ranks in zip(*flops, strict=False)]
    disturbance = None
    if len(before_and_after) > 1:
        disturbance = 1 - min(before_and_after) / max(before_and_after)
    return Peak(
        matmul_flops_per_second=sum(max(of_rank) for of_rank in flops),
        copy_bytes_per_second=sum(max(of_rank) for of_rank in copies),
        disturbance=disturbance,
        sustained_matmul_flops_per_second=_sum_of_means(
            peaks_of_ranks, "sustained_matmul_flops_per_second"
        ),
        sustained_copy_bytes_per_second=_sum_of_means(
            peaks_of_ranks, "sustained_copy_bytes_per_second"
        ),
    )


PeaksOfRanks = Sequence[Sequence[Mapping[str, Any]]]
"""The `peak` events of each rank."""


def _sum_of_means(peaks_of_ranks: PeaksOfRanks, name: str) -> float | None:
    """Return the sum of each rank's mean of a value; None if an event lacks it, as older ones
    do."""
    means = []
    for peaks in peaks_of_ranks:
        if any(name not in peak for peak in peaks):
            return None
        means.append(fmean(peak[name] for peak in peaks))
    return sum(means)


def check_against_raw(measurement: Measurement) -> list[str] | None:
    """Return where the result contradicts itself or its raw files: a line if its id does not
    follow from its contents, and one for each complete repeat whose raw files are missing,
    unreadable, changed, or give other numbers. None if the raw files are elsewhere: a
    result.json copied without its folder has none."""
    result = measurement.result
    problems = []
    if not result.id_is_derived:
        problems.append("id: not that of configuration, protocol, environment and data")
    is_copied = measurement.folder.name != result.id
    if is_copied and not measurement.raw_files():
        return problems or None
    for repeat in result.complete_repeats:
        problem = _contradiction(measurement, repeat)
        if problem:
            problems.append(f"repeat {repeat.index}: {problem}")
    return problems


def _contradiction(measurement: Measurement, repeat: Repeat) -> str:
    """Return how a repeat contradicts its raw files; empty if it does not."""
    folder = measurement.folder
    try:
        raw_files = read_raw_files(measurement.raw_folder(repeat.index))
        events = _events_of_ranks(measurement, repeat, raw_files)
        derived = _derive_again(measurement, repeat, raw_files, events)
        told = told_by(events[0])
        digests = raw_digests(raw_files)
    except OSError as error:
        path = Path(error.filename).relative_to(folder)
        return f"{path}: {error.strerror}"
    except ResultError as error:
        return error.relative_to(folder)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return "the raw files are not those of a finished repeat"
    problems = []
    changed = {name for name, _digest in digests.items() ^ repeat.raw_files.items()}
    if changed:
        problems.append(f"{', '.join(sorted(changed))}: changed since (SHA-256)")
    differing = []
    for name in Repeat.model_fields:
        is_derived = name not in NOT_IN_RAW_FILES
        if is_derived and getattr(derived, name) != getattr(repeat, name):
            differing.append(name)
    if told != measurement.result.told:
        differing.append("told")
    if differing:
        problems.append(f"the raw files give another {', '.join(differing)}")
    return "; ".join(problems)


def _events_in(path: Path, raw_files: Mapping[str, bytes]) -> Events:
    """Return the events of one of the raw files. Raises OSError and ResultError."""
    if path.name not in raw_files:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path))
    return parse_events(raw_files[path.name], path)


def _events_of_ranks(
    measurement: Measurement, repeat: Repeat, raw_files: Mapping[str, bytes]
) -> list[Events]:
    """Return the raw events of each rank. Raises OSError and ResultError."""
    events = []
    for rank in repeat.ranks:
        path = measurement.rank_file(repeat.index, rank.rank)
        events.append(_events_in(path, raw_files))
    return events


def _derive_again(
    measurement: Measurement,
    repeat: Repeat,
    raw_files: Mapping[str, bytes],
    events: Sequence[Events],
) -> Repeat:
    """Derive a repeat from its raw files and the events of its ranks. Raises OSError,
    ResultError, and any error that files of an unfinished repeat cause."""
    telemetry_file = measurement.telemetry_file(repeat.index)
    telemetry: Events = []
    if repeat.telemetry or telemetry_file.name in raw_files:
        telemetry = _events_in(telemetry_file, raw_files)
    return summarize(
        repeat.index,
        measurement.result.protocol,
        events,
        repeat.wall_seconds or 0.0,
        telemetry,
        units=measurement.result.work.units_per_sample,
    )
