"""The numbers of a repeat from the raw events of its ranks, and the check of stored numbers
against these.

Numbers are added by fsum, which is exact: from Python 3.12 on, sum rounds otherwise than
before, and another Python must derive a stored number from its raw files.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any, TypeVar

from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.base import Stored
from perfkit.measuring.results.effective import Told
from perfkit.measuring.results.repeat import (
    FirstStep,
    Peak,
    Rank,
    Repeat,
    StepSeconds,
    TelemetrySummary,
    Warmup,
)
from perfkit.measuring.results.store import (
    Events,
    Measurement,
    parse_events,
    raw_digests,
    read_raw_files,
)
from perfkit.measuring.results.telemetry import Sample, summarize_telemetry
from perfkit.measuring.statistics import median

T = TypeVar("T")
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
    `units` of the throughput. A script counts in these units."""
    events_of_ranks = [_by_kind(rank_events) for rank_events in events]
    rank0 = events_of_ranks[0]
    warmup = _warmup(rank0)
    warmup_steps = warmup.steps if warmup else protocol.warmup_steps
    ranks = []
    step_seconds = []
    measured_steps = 0
    for number, of_rank in enumerate(events_of_ranks):
        steps = [step for step in of_rank["step"] if step["step"] > warmup_steps]
        # A line of a log tells of several steps.
        step_seconds += [step["seconds"] / step.get("steps", 1) for step in steps]
        measured_steps = sum(step.get("steps", 1) for step in steps)
        ranks.append(_rank(number, of_rank, steps, units))
    slowest = max(rank.window_seconds for rank in ranks)
    samples = [rank.samples for rank in ranks]
    losses = [loss["value"] for loss in rank0["loss"]]
    window, end = rank0["window"][-1], rank0["end"][-1] | noted(rank0["note"])
    pauses = [_pauses_seconds(of_rank, warmup_steps) for of_rank in events_of_ranks]
    return Repeat(
        index=index,
        status="complete",
        warmup=warmup,
        throughput=units * sum(samples) / slowest,
        measured_steps=measured_steps,
        steps_per_second=measured_steps / slowest,
        step_seconds=StepSeconds(
            minimum=min(step_seconds), median=median(step_seconds), maximum=max(step_seconds)
        ),
        data_wait_share=_data_wait_share(ranks),
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        skipped_steps=end.get("skipped_steps"),
        straggler=_straggler([rank.compute_seconds or 0.0 for rank in ranks]),
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
            return Told.model_validate(_fields(Told, event))
    return None


def _fields(model: type[Stored], event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an event that are fields of a model."""
    return {name: event[name] for name in model.model_fields if name in event}


def _by_kind(events: Events) -> EventsByKind:
    kinds = defaultdict(list)
    for event in events:
        kinds[event["event"]].append(event)
    return kinds


def _warmup(rank0: EventsByKind) -> Warmup | None:
    """Return the warm-up of a repeat whose protocol does not fix its length."""
    for event in rank0["warmup"]:
        return Warmup(**_fields(Warmup, event))
    return None


def _first_step(events_of_ranks: Sequence[EventsByKind], warmup_steps: int) -> FirstStep | None:
    """Return the time to the end of the first step on the rank that took longest; None if a
    rank's clock contradicts it."""
    of_ranks = _of_each(_first_step_of_rank(events, warmup_steps) for events in events_of_ranks)
    return max(of_ranks, key=lambda first_step: first_step.seconds, default=None)


def _of_each(values: Iterable[T | None]) -> list[T]:
    """Return the values of the ranks; none if one has none."""
    of_ranks = [*values]
    known = [value for value in of_ranks if value is not None]
    return known if len(known) == len(of_ranks) else []


def _first_step_of_rank(events: EventsByKind, warmup_steps: int) -> FirstStep | None:
    """Return the time to the end of a rank's first step, which is what the other steps of the
    warm-up leave of the time from its start to its window; None if its clock contradicts
    that, or if a log does not tell that step alone."""
    first = events["step"][0]
    if first["step"] > 1:
        return None
    step_seconds = first["seconds"]
    start, window = events["start"][-1], events["window"][-1]
    warmup_seconds = fsum(
        step["seconds"] for step in events["step"] if step["step"] <= warmup_steps
    )
    pauses = [event for event in events["pause"] if event["step"] < warmup_steps]
    paused_seconds = fsum(pause["seconds"] for pause in pauses)
    until_window = window["began"] - start["began"]
    seconds = until_window - warmup_seconds - paused_seconds + step_seconds
    if seconds < step_seconds:
        return None
    return FirstStep(seconds=seconds, step_seconds=step_seconds)


def noted(notes: Events) -> dict[str, Any]:
    """Return the values of a rank's notes by name."""
    values: dict[str, Any] = {}
    for note in notes:
        values |= note["values"]
    return values


def _rank(number: int, events: EventsByKind, steps: Events, units: int) -> Rank:
    """Return the window of a rank, of which these are the steps."""
    window, end = events["window"][-1], events["end"][-1] | noted(events["note"])
    units_per_count = units if events["told"] else 1
    waits = [step["data_wait_seconds"] for step in steps if "data_wait_seconds" in step]
    # A script may count the wait in some steps only, of which the sum would be too small.
    knows_wait = len(waits) == len(steps)
    return Rank(
        rank=number,
        samples=window["samples"] // units_per_count,
        window_seconds=window["seconds"],
        data_wait_seconds=fsum(waits) if knows_wait else None,
        memory_bytes=end.get("memory_bytes"),
        compute_seconds=end.get("compute_seconds"),
    )


def _data_wait_share(ranks: Sequence[Rank]) -> float | None:
    """Return the share of all windows spent waiting for input; None if a rank has not told."""
    waits = _of_each(rank.data_wait_seconds for rank in ranks)
    if not waits:
        return None
    return fsum(waits) / fsum(rank.window_seconds for rank in ranks)


def _pauses_seconds(events: EventsByKind, warmup_steps: int) -> float:
    """Return the seconds of a rank's pauses in the window. A pause has the number of the step
    before it."""
    pauses = [event for event in events["pause"] if event["step"] >= warmup_steps]
    return fsum(pause["seconds"] for pause in pauses)


def _rows(events_of_ranks: Sequence[EventsByKind]) -> tuple[int, int] | None:
    """Return the fewest and most rows of a step in the windows of the ranks; None if a rank has
    not told them."""
    rows = _of_each(events["window"][-1].get("rows") for events in events_of_ranks)
    if not rows:
        return None
    return min(fewest for fewest, _ in rows), max(most for _, most in rows)


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
    seconds = window["seconds"] + pauses_seconds
    summary = summarize_telemetry(samples, window["began"], seconds, trained)
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


def _peak(events_of_ranks: Sequence[EventsByKind]) -> Peak | None:
    """Return the peak of all ranks' devices together; None unless every rank has one."""
    peaks = _of_each(_peak_of_rank(events) for events in events_of_ranks)
    if not peaks:
        return None
    return Peak(**{name: fsum(peak[name] for peak in peaks) for name in Peak.model_fields})


def _peak_of_rank(events: EventsByKind) -> dict[str, Any] | None:
    measured = [event for event in events["peak"] if "missing" not in event]
    return measured[-1] if measured else None


def check_against_raw(measurement: Measurement) -> str:
    """Return the first difference between a result and its raw files, in one line; empty if
    there is none, or if the raw files are elsewhere: a result.json copied without its folder
    has none."""
    result = measurement.result
    is_copied = measurement.folder.name != result.id
    if is_copied and not measurement.raw_files():
        return ""
    for repeat in result.complete_repeats:
        difference = _difference(measurement, repeat)
        if difference:
            return f"repeat {repeat.index}: {difference}"
    if result.throughput != result.derived_throughput:
        return "the repeats give another throughput"
    if result.status != result.derived_status:
        return f"the repeats give the status {result.derived_status}"
    return ""


def _difference(measurement: Measurement, repeat: Repeat) -> str:
    """Return the first difference between a repeat and its raw files; empty if there is
    none."""
    try:
        raw_files = read_raw_files(measurement.raw_folder(repeat.index))
    except OSError as error:
        # A failed read, unlike a failed open, does not name the file.
        return f"{Path(error.filename or 'a raw file').name}: {error.strerror}"
    digests = raw_digests(raw_files)
    changed = {name for name, _digest in digests.items() ^ repeat.raw_files.items()}
    if changed:
        return f"{min(changed)}: missing or changed since (SHA-256)"
    try:
        return _other_number(measurement, repeat, raw_files)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return "the raw files are not those of a finished repeat"


def _other_number(
    measurement: Measurement, repeat: Repeat, raw_files: Mapping[str, bytes]
) -> str:
    """Return the first field of a repeat that differs from the one derived from its raw files;
    empty if there is none. Raises any error that files of an unfinished repeat cause."""
    result, events = measurement.result, []
    for rank in repeat.ranks:
        path = measurement.rank_file(repeat.index, rank.rank)
        events.append(parse_events(raw_files[path.name], path))
    telemetry_file = measurement.telemetry_file(repeat.index)
    telemetry = parse_events(raw_files.get(telemetry_file.name, b""), telemetry_file)
    seconds, units = repeat.wall_seconds or 0.0, result.counts.units_per_sample
    derived = summarize(repeat.index, result.protocol, events, seconds, telemetry, units=units)
    for name in Repeat.model_fields:
        is_derived = name not in NOT_IN_RAW_FILES
        if is_derived and getattr(derived, name) != getattr(repeat, name):
            return f"the raw files give another {name}"
    told = told_by(events[0])
    if result.told and (not told or result.told.difference_from(told)):
        return "the raw files give another told"
    return ""
