"""The numbers of a repeat from the raw events of its ranks, and the check of stored numbers
against these."""

import os
from collections.abc import Mapping, Sequence
from errno import ENOENT
from pathlib import Path

from perfkit.core.config import Protocol
from perfkit.core.models import units_per_sample
from perfkit.core.results.repeat import Evaluation, Peak, Rank, Repeat, StepSeconds, Warmup
from perfkit.core.results.store import (
    Events,
    Measurement,
    ResultError,
    parse_events,
    raw_digests,
    read_raw_files,
)
from perfkit.core.results.telemetry import Sample, summarize_telemetry
from perfkit.core.statistics import median, summary

STRAGGLING = 1.1
NOT_IN_RAW_FILES = {"nodes", "began", "wall_seconds", "raw_files"}
"""Fields of a repeat that don't follow from its raw files."""


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
    named = [{event["event"]: event for event in rank} for rank in events]
    warmup = None
    if protocol.warmup_limit is not None:
        event = named[0]["warmup"]
        warmup = Warmup.model_validate({name: event[name] for name in Warmup.model_fields})
    first_step = (warmup.steps if warmup else protocol.warmup_steps) + 1
    steps = [
        [e for e in rank if e["event"] == "step" and e["step"] >= first_step] for rank in events
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
    # Raw files that predate telemetry have no `began`.
    began = window.get("began", 0.0)
    return Repeat(
        index=index,
        status="complete",
        warmup=warmup,
        throughput=units * sum(samples) / slowest,
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
        peak=_peak([[e for e in rank if e["event"] == "peak"] for rank in events]),
        ranks=ranks,
        telemetry=summarize_telemetry(telemetry, began, window["seconds"], samples),
        wall_seconds=seconds,
    )


def _straggler(compute_seconds: list[float]) -> int | None:
    """Return the rank whose time exceeds STRAGGLING times the others' median, if any."""
    slowest = compute_seconds.index(max(compute_seconds))
    others = compute_seconds[:slowest] + compute_seconds[slowest + 1 :]
    straggles = others and compute_seconds[slowest] > STRAGGLING * median(others)
    return slowest if straggles else None


def _peak(events: Sequence[Events]) -> Peak | None:
    """Return the peak of all ranks' devices together from each rank's events; None unless every
    rank has one."""
    times = [[e for e in rank if "missing" not in e] for rank in events]
    if not all(times):
        return None
    name = "matmul_flops_per_second"
    sums = [sum(e[name] for e in ranks) for ranks in zip(*times, strict=False)]
    return Peak(
        matmul_flops_per_second=sum(max(e[name] for e in rank) for rank in times),
        copy_bytes_per_second=sum(max(e["copy_bytes_per_second"] for e in r) for r in times),
        disturbance=1 - min(sums) / max(sums) if len(sums) > 1 else None,
    )


def check_against_raw(measurement: Measurement) -> list[str] | None:
    """Return where the result contradicts itself or its raw files: a line if its id does not
    follow from its contents, and one for each complete repeat whose raw files are missing,
    unreadable, changed, or give other numbers. None if the raw files are elsewhere: a
    result.json copied without its folder has none."""
    result, problems = measurement.result, []
    if not result.id_is_derived:
        problems.append("id: not that of configuration, protocol, environment and data")
    copied = measurement.folder.name != result.id
    if copied and not measurement.raw_files():
        return problems or None
    for repeat in result.complete_repeats:
        try:
            raw_files = read_raw_files(measurement.raw_folder(repeat.index))
            derived = _derive_again(measurement, repeat, raw_files)
            found = raw_digests(raw_files)
        except OSError as error:
            path = Path(error.filename).relative_to(measurement.folder)
            problem = f"{path}: {error.strerror}"
        except ResultError as error:
            problem = error.relative_to(measurement.folder)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            problem = "the raw files are not those of a finished repeat"
        else:
            names = (name for name in Repeat.model_fields if name not in NOT_IN_RAW_FILES)
            differ = [n for n in names if getattr(derived, n) != getattr(repeat, n)]
            files = found.items() ^ repeat.raw_files.items()
            changed = sorted({name for name, _digest in files})
            parts = [f"{', '.join(changed)}: changed since (SHA-256)"] if changed else []
            parts += [f"the raw files give another {', '.join(differ)}"] if differ else []
            problem = "; ".join(parts)
        if problem:
            problems.append(f"repeat {repeat.index}: {problem}")
    return problems


def _derive_again(
    measurement: Measurement, repeat: Repeat, raw_files: Mapping[str, bytes]
) -> Repeat:
    """Derive a repeat from its raw files. Raises OSError, ResultError, and any error that files
    of an unfinished repeat cause."""
    result, index = measurement.result, repeat.index

    def events_in(path: Path) -> Events:
        if path.name not in raw_files:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path))
        return parse_events(raw_files[path.name], path)

    events = [events_in(measurement.rank_file(index, rank.rank)) for rank in repeat.ranks]
    path = measurement.telemetry_file(index)
    telemetry = events_in(path) if repeat.telemetry or path.name in raw_files else []
    seconds, units = repeat.wall_seconds or 0.0, units_per_sample(result.config)
    return summarize(index, result.protocol, events, seconds, telemetry, units=units)
