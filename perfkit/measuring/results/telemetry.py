"""Summary of the telemetry in a repeat's window: pure functions on the samples that
`system.telemetry` recorded."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from typing import Any, Self

from perfkit.measuring.results.repeat import TelemetrySummary

SAMPLING_SECONDS = 0.5
"""Interval between two samples."""
MACHINE = ""
"""In place of a device: a counter of the whole machine."""
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

    def increases(self, field: str, wraps: Mapping[str, float]) -> dict[str, float]:
        """Return device -> how much its counter rose in the window, interpolated linearly at
        its beginning and its end, if it was sampled on both sides. `wraps` has the values after
        which counters restart from 0."""
        rises = {}
        for device, series in _by_device(self.around, field).items():
            continuous = _unwrapped(series, wraps.get(device, 0.0))
            first = _interpolated(continuous, self.began)
            last = _interpolated(continuous, self.ended)
            if first is not None and last is not None:
                rises[device] = last - first
        return rises

    def readings(self, field: str) -> dict[str, list[Any]]:
        """Return device -> readings in the window; around it if there are none in it."""
        series = _by_device(self.within or self.around, field)
        return {device: [value for _at, value in series[device]] for device in series}

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
    process_seconds = window.increases("process_seconds", {}).get(MACHINE)
    busy_seconds = window.increases("busy_seconds", {}).get(MACHINE)
    steal_seconds = window.increases("steal_seconds", {}).get(MACHINE)
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
    energy_joules = window.increases("energy_joules", begin["energy_wraps_joules"])
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


def _by_device(samples: Sequence[Sample], field: str) -> dict[str, Series]:
    """Return device -> time and value in each sample that has the field for it."""
    series: dict[str, Series] = {}
    for sample in samples:
        values = sample.get(field, {})
        by_device = values if isinstance(values, dict) else {MACHINE: values}
        for device, value in by_device.items():
            series.setdefault(device, []).append((sample["at"], value))
    return series


def _unwrapped(counter: Series, wrap: float) -> Series:
    """Return a counter that restarts from 0 after `wrap` as a continuous one."""
    passed = 0.0
    continuous = counter[:1]
    for (_, low), (moment, high) in pairwise(counter):
        if high < low:
            passed += wrap
        continuous.append((moment, high + passed))
    return continuous


def _interpolated(counter: Series, moment: float) -> float | None:
    """Return a counter's value at `moment`, interpolated; None outside its samples."""
    for (earlier, low), (later, high) in pairwise(counter):
        if earlier <= moment <= later:
            return float(low + (high - low) * (moment - earlier) / (later - earlier))
    return None


def _throttled(window: SampledWindow) -> dict[str, dict[str, int]]:
    """Return device -> reason -> samples with it. GPUs name the reason; for a CPU, the count
    has risen since the previous sample."""
    throttled = {}
    for device, reasons_of_samples in window.readings("throttled").items():
        counts: Counter[str] = Counter()
        for reasons in reasons_of_samples:
            counts.update(reasons)
        throttled[device] = dict(counts)
    for device, counts_of_cpu in _by_device(window.around, "throttle_count").items():
        rises = sum(later > earlier for (_, earlier), (_, later) in pairwise(counts_of_cpu))
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
    return fsum(joules) / sum(trained[: begin["ranks"]])
