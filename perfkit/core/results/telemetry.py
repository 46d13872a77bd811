"""Summary of the telemetry in a repeat's window: pure functions on the samples that
`system.telemetry` recorded."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from perfkit.core.results.repeat import TelemetrySummary

SAMPLING_SECONDS = 0.5
"""Interval between two samples."""
Sample = dict[str, Any]
"""A `sample` event of a telemetry file."""
Series = list[tuple[float, Any]]
"""Time and value of a metric in each sample that has it."""


def summarize_telemetry(
    events: Sequence[Sample], began: float, seconds: float, trained: Sequence[int]
) -> TelemetrySummary | None:
    """Summarize the window of `seconds` that began when the monotonic clock read `began`; None
    unless the measurement's processes were sampled both before and after it.

    `events` are the lines of a telemetry file, `trained` the samples that each rank trained on
    in the window. Counters are interpolated linearly at the beginning and the end of the
    window.
    """
    if not events:
        return None
    begin, ended = events[0], began + seconds
    samples = [event for event in events if event["event"] == "sample"]
    within = [sample for sample in samples if began <= sample["at"] <= ended]
    before = [sample for sample in samples if sample["at"] < began][-1:]
    after = [sample for sample in samples if sample["at"] > ended][:1]
    around = [*before, *within, *after]
    seen = within or around

    def increase(series: Series) -> float | None:
        first, last = _at(began, series), _at(ended, series)
        return None if first is None or last is None else last - first

    own, busy, steal = (
        increase([(sample["at"], sample[field]) for sample in around if field in sample])
        for field in ("process_seconds", "busy_seconds", "steal_seconds")
    )
    if own is None:
        return None
    missing = dict(begin["missing"])
    if steal is not None and not around[-1]["steal_seconds"]:
        # A hypervisor that hides steal time looks the same as no steal time.
        steal, missing["steal_time"] = None, "none was counted since the machine started"
    wraps = begin["energy_wraps_joules"]
    energy = {
        device: joules
        for device, series in _by_device("energy_joules", around).items()
        if (joules := increase(_unwrapped(series, wraps.get(device)))) is not None
    }
    clocks, temperatures = _values("clock_mhz", seen), _values("temperature_celsius", seen)
    return TelemetrySummary(
        samples=len(within),
        cores=begin["cores"],
        process_cores=own / seconds,
        # The two counters differ in method, so without other load the difference may be < 0.
        other_load_cores=None if busy is None else max(0.0, busy - own) / seconds,
        steal_share=None if steal is None else steal / seconds / begin["cores"],
        clock_mhz={device: (min(values), max(values)) for device, values in clocks.items()},
        temperature_celsius={device: max(values) for device, values in temperatures.items()},
        throttled=_throttled(around, seen),
        energy_joules=energy,
        energy_joules_per_sample=_per_sample(energy, begin, trained),
        memory_used_bytes={
            device: max(values) for device, values in _values("memory_used_bytes", seen).items()
        },
        missing=missing,
    )


def _at(moment: float, series: Series) -> float | None:
    """Return a counter's value at `moment`, interpolated; None outside its samples."""
    for (earlier, low), (later, high) in pairwise(series):
        if earlier <= moment <= later:
            return float(low + (high - low) * (moment - earlier) / (later - earlier))
    return None


def _by_device(field: str, samples: list[Sample]) -> dict[str, Series]:
    found: dict[str, Series] = {}
    for sample in samples:
        for device, value in sample.get(field, {}).items():
            found.setdefault(device, []).append((sample["at"], value))
    return found


def _values(field: str, samples: list[Sample]) -> dict[str, list[Any]]:
    return {d: [value for _, value in s] for d, s in _by_device(field, samples).items()}


def _unwrapped(series: Series, wrap: float | None) -> Series:
    """Return a counter that restarts from 0 after `wrap` as a continuous one; empty if it fell
    and has no `wrap`: its driver was reloaded."""
    passed, unwrapped = 0.0, series[:1]
    for (_, low), (moment, high) in pairwise(series):
        if high < low and wrap is None:
            return []
        passed += wrap or 0.0 if high < low else 0.0
        unwrapped.append((moment, high + passed))
    return unwrapped


def _throttled(around: list[Sample], seen: list[Sample]) -> dict[str, dict[str, int]]:
    """Return device -> reason -> samples with it. GPUs name the reason; for a CPU, the count
    has risen since the previous sample."""
    throttled = {
        device: dict(Counter(reason for reasons in values for reason in reasons))
        for device, values in _values("throttled", seen).items()
    }
    for device, counts in _values("throttle_count", around).items():
        rises = sum(later > earlier for earlier, later in pairwise(counts))
        throttled[device] = {"thermal": rises} if rises else {}
    return throttled


def _per_sample(
    energy: dict[str, float], begin: Sample, trained: Sequence[int]
) -> float | None:
    """Return the joules per sample of the devices that compute: the ranks' GPUs, or on a CPU
    all packages and memory; None if a GPU has none."""
    if begin["device"] != "cpu":
        energy = {name: joules for name, joules in energy.items() if name.startswith("gpu")}
        if len(energy) < begin["ranks"]:
            return None
    return sum(energy.values()) / sum(trained[: begin["ranks"]]) if energy else None
