"""Summary of the telemetry in a repeat's window: pure functions on the samples that
`system.telemetry` recorded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from perfkit.measuring.results.repeat import TelemetrySummary

SAMPLING_SECONDS = 0.5
"""Interval between two samples."""
Sample = dict[str, Any]
"""A `sample` event of a telemetry file, which begins with a `begin` event of the machine."""
Series = list[tuple[float, Any]]
"""Time and value of a metric in each sample that has it."""


@dataclass(frozen=True)
class SampledWindow:
    """The samples of a window, which is given by the monotonic clock's readings. `around` has
    the last sample before and the first one after the window, too."""

    began: float
    ended: float
    within: list[Sample]
    around: list[Sample]

    @classmethod
    def of(cls, events: Sequence[Sample], began: float, ended: float) -> Self:
        samples = [event for event in events if event["event"] == "sample"]
        before = [sample for sample in samples if sample["at"] < began]
        within = [sample for sample in samples if began <= sample["at"] <= ended]
        after = [sample for sample in samples if sample["at"] > ended]
        return cls(began, ended, within, [*before[-1:], *within, *after[:1]])

    def increase(self, counter: Series) -> float | None:
        """Return how much a counter rose in the window, interpolated linearly at its beginning
        and its end; None if it was not sampled on both sides."""
        first = _interpolated(counter, self.began)
        last = _interpolated(counter, self.ended)
        if first is None or last is None:
            return None
        return last - first

    def increase_of(self, field: str) -> float | None:
        """Return how much a counter of the machine rose in the window."""
        counter = []
        for sample in self.around:
            if field in sample:
                counter.append((sample["at"], sample[field]))
        return self.increase(counter)

    def readings(self, field: str) -> dict[str, list[Any]]:
        """Return device -> readings in the window; around it if there are none in it."""
        return _values_by_device(self.within or self.around, field)

    def maxima(self, field: str) -> dict[str, Any]:
        """Return device -> highest reading."""
        return {device: max(values) for device, values in self.readings(field).items()}

    def ranges(self, field: str) -> dict[str, tuple[Any, Any]]:
        """Return device -> lowest and highest reading."""
        readings = self.readings(field)
        return {device: (min(values), max(values)) for device, values in readings.items()}


def summarize_telemetry(
    events: Sequence[Sample], began: float, seconds: float, trained: Sequence[int]
) -> TelemetrySummary | None:
    """Summarize the window of `seconds` that began when the monotonic clock read `began`; None
    unless the measurement's processes were sampled both before and after it.

    `events` are the lines of a telemetry file, `trained` the samples that each rank trained on
    in the window.
    """
    if not events:
        return None
    begin = events[0]
    window = SampledWindow.of(events, began, began + seconds)
    process_seconds = window.increase_of("process_seconds")
    busy_seconds = window.increase_of("busy_seconds")
    steal_seconds = window.increase_of("steal_seconds")
    if process_seconds is None:
        return None
    missing = dict(begin["missing"])
    other_load_cores = None
    if busy_seconds is not None:
        # The two counters differ in method, so without other load the difference may be < 0.
        other_load_cores = max(0.0, busy_seconds - process_seconds) / seconds
    steal_share = None
    if steal_seconds is not None:
        if window.around[-1]["steal_seconds"]:
            steal_share = steal_seconds / seconds / begin["cores"]
        else:
            # A hypervisor that hides steal time looks the same as no steal time.
            missing["steal_time"] = "none was counted since the machine started"
    energy_joules = _energy(window, begin["energy_wraps_joules"])
    return TelemetrySummary(
        samples=len(window.within),
        cores=begin["cores"],
        process_cores=process_seconds / seconds,
        other_load_cores=other_load_cores,
        steal_share=steal_share,
        clock_mhz=window.ranges("clock_mhz"),
        temperature_celsius=window.maxima("temperature_celsius"),
        throttled=_throttled(window),
        energy_joules_per_sample=_per_sample(energy_joules, begin, trained),
        memory_used_bytes=window.maxima("memory_used_bytes"),
        missing=missing,
    )


def _interpolated(counter: Series, moment: float) -> float | None:
    """Return a counter's value at `moment`, interpolated; None outside its samples."""
    for (earlier, low), (later, high) in pairwise(counter):
        if earlier <= moment <= later:
            return float(low + (high - low) * (moment - earlier) / (later - earlier))
    return None


def _by_device(samples: Sequence[Sample], field: str) -> dict[str, Series]:
    """Return device -> time and value in each sample that has the field for it."""
    series: dict[str, Series] = {}
    for sample in samples:
        for device, value in sample.get(field, {}).items():
            series.setdefault(device, []).append((sample["at"], value))
    return series


def _values_by_device(samples: Sequence[Sample], field: str) -> dict[str, list[Any]]:
    values = {}
    for device, series in _by_device(samples, field).items():
        values[device] = [value for _moment, value in series]
    return values


def _energy(window: SampledWindow, wraps: dict[str, float]) -> dict[str, float]:
    """Return device -> energy in the window. `wraps` has the values after which counters
    restart from 0."""
    energy = {}
    for device, counter in _by_device(window.around, "energy_joules").items():
        joules = window.increase(_unwrapped(counter, wraps.get(device)))
        if joules is not None:
            energy[device] = joules
    return energy


def _unwrapped(counter: Series, wrap: float | None) -> Series:
    """Return a counter that restarts from 0 after `wrap` as a continuous one; empty if it fell
    and has no `wrap`: its driver was reloaded."""
    passed = 0.0
    continuous = counter[:1]
    for (_, low), (moment, high) in pairwise(counter):
        if high < low:
            if wrap is None:
                return []
            passed += wrap
        continuous.append((moment, high + passed))
    return continuous


def _throttled(window: SampledWindow) -> dict[str, dict[str, int]]:
    """Return device -> reason -> samples with it. GPUs name the reason; for a CPU, the count
    has risen since the previous sample."""
    throttled = {}
    for device, reasons_of_samples in window.readings("throttled").items():
        counts: Counter[str] = Counter()
        for reasons in reasons_of_samples:
            counts.update(reasons)
        throttled[device] = dict(counts)
    for device, counts_of_cpu in _values_by_device(window.around, "throttle_count").items():
        rises = sum(later > earlier for earlier, later in pairwise(counts_of_cpu))
        throttled[device] = {"thermal": rises} if rises else {}
    return throttled


def _per_sample(
    energy_joules: dict[str, float], begin: Sample, trained: Sequence[int]
) -> float | None:
    """Return the joules per sample of the devices that compute: the ranks' GPUs, or on a CPU
    all packages and memory; None if a GPU has none."""
    joules = [*energy_joules.values()]
    if begin["device"] != "cpu":
        joules = [value for name, value in energy_joules.items() if name.startswith("gpu")]
        if len(joules) < begin["ranks"]:
            return None
    if not joules:
        return None
    return sum(joules) / sum(trained[: begin["ranks"]])
