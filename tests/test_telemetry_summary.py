"""Telemetry summaries of a window from fake counters, and a real run beside a busy process."""

import re
import resource
import subprocess
import sys
import time
from html import unescape

import psutil
import pytest
from conftest import IN_WORKER
from made.results import event, measured, stored, warnings_of

from perfkit.analysis.warnings import OtherLoad, StealTime, Throttled
from perfkit.measuring.results.repeat import TelemetrySummary
from perfkit.measuring.results.store import Measurement, read_events
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.measuring.results.telemetry import summarize_telemetry
from perfkit.report import steps

BEGIN = {
    "event": "begin",
    "device": "cpu",
    "ranks": 1,
    "cores": 4,
    "missing": {},
    "energy_wraps_joules": {"package-0": 1000.0},
}


def summary(*, began=1.5, seconds=3.0, samples=(30,), begin=None, **readings):
    """Summarize a window, by default 1.5 s to 4.5 s, with samples at 0, 1, …, 6 s. `readings`
    maps each reading to a function of the sample's time."""
    readings = {"process_seconds": lambda at: 2.0 * at} | readings
    events = [BEGIN | (begin or {})]
    for at in range(7):
        values = {name: value_at(at) for name, value_at in readings.items()}
        sample = event("sample", at=float(at), **values)
        events.append(sample)
    return summarize_telemetry(events, began, seconds, samples)


def test_load_is_the_counters_increase_over_the_window():
    telemetry = summary(
        process_seconds=lambda at: 100 + 2.5 * at,
        busy_seconds=lambda at: 5000 + 3.0 * at,
        steal_seconds=lambda at: 7 + 0.2 * at,
    )
    assert telemetry.samples == 3
    assert telemetry.process_cores == pytest.approx(2.5)
    assert telemetry.other_load_cores == pytest.approx(0.5)
    assert telemetry.steal_share == pytest.approx(0.2 / 4)


def test_a_window_between_two_samples_uses_both():
    telemetry = summary(
        began=2.2,
        seconds=0.1,
        busy_seconds=lambda at: 3.0 * at,
        clock_mhz=lambda at: {"cpu": 1000.0 + at},
    )
    assert telemetry.samples == 0
    assert telemetry.clock_mhz == {"cpu": (1002.0, 1003.0)}
    assert telemetry.other_load_cores == pytest.approx(1.0)


def test_without_samples_around_the_window_there_is_no_telemetry():
    assert summary(began=-0.5, seconds=2) is None
    assert summary(began=5, seconds=2) is None


def test_missing_readings_are_absent_rather_than_zero():
    telemetry = summary(begin={"missing": {"cpu_energy": "no RAPL"}})
    assert telemetry.other_load_cores is None
    assert telemetry.steal_share is None
    assert telemetry.energy_joules_per_sample is None
    assert telemetry.clock_mhz == {}
    assert telemetry.missing == {"cpu_energy": "no RAPL"}


def test_energy_handles_counter_wraparound():
    def energy(at):
        return {"package-0": (900 + 50 * at) % 1000, "dram-0": 10.0 * at}

    telemetry = summary(energy_joules=energy)
    assert telemetry.energy_joules_per_sample == pytest.approx(180 / 30)


def test_gpu_energy_covers_the_gpus_of_local_ranks():
    def energy(at):
        return {"package-0": 500.0 * at % 1000, "gpu0": 300.0 * at, "gpu1": 310.0 * at}

    two_ranks = {"device": "gpu", "ranks": 2}
    telemetry = summary(begin=two_ranks, samples=[30] * 4, energy_joules=energy)
    assert telemetry.energy_joules_per_sample == pytest.approx(3 * 610 / 60)
    three_ranks = {"device": "gpu", "ranks": 3}
    telemetry = summary(begin=three_ranks, samples=[30] * 3, energy_joules=energy)
    assert telemetry.energy_joules_per_sample is None


def test_gpu_readings_come_from_samples_in_the_window():
    clocks = [210.0, 210.0, 1402.0, 1403.0, 1404.0, 210.0, 210.0]
    temperatures = [90.0, 90.0, 62.0, 63.0, 64.0, 90.0, 90.0]
    reasons = [["sync_boost"]] * 7
    reasons[2:5] = [], ["power_cap"], ["power_cap", "hardware_thermal"]
    telemetry = summary(
        clock_mhz=lambda at: {"gpu0": clocks[at]},
        temperature_celsius=lambda at: {"gpu0": temperatures[at]},
        throttled=lambda at: {"gpu0": reasons[at], "gpu1": []},
        memory_used_bytes=lambda at: {"gpu0": at * 2**30},
    )
    assert telemetry.clock_mhz == {"gpu0": (1402.0, 1404.0)}
    assert telemetry.temperature_celsius == {"gpu0": 64.0}
    assert telemetry.memory_used_bytes == {"gpu0": 4 * 2**30}
    assert telemetry.throttled["gpu0"] == {"power_cap": 2, "hardware_thermal": 1}
    assert telemetry.throttled["gpu1"] == {}


def test_a_rising_count_means_cpu_throttling():
    counts = [5, 5, 5, 9, 9, 12, 40]
    telemetry = summary(throttle_count=lambda at: {"cpu": counts[at]})
    assert telemetry.throttled == {"cpu": {"thermal": 2}}


def with_summaries(result, *summaries):
    """Return the result with these telemetry summaries of its repeats."""
    repeats = []
    for repeat, telemetry in zip(result.repeats, summaries, strict=True):
        repeats.append(repeat.model_copy(update={"telemetry": telemetry}))
    return result.model_copy(update={"repeats": repeats})


def with_telemetry(*summaries):
    result = measured([4.0] * len(summaries), protocol="quick")
    return with_summaries(result, *summaries)


AT_LIMITS = TelemetrySummary(
    samples=40,
    cores=4,
    process_cores=3.9,
    other_load_cores=0.4,
    steal_share=0.02,
    clock_mhz={},
    temperature_celsius={},
    throttled={"gpu0": {"power_cap": 40}},
    energy_joules_per_sample=None,
    memory_used_bytes={},
    missing={},
)
"""A telemetry summary whose readings are at their limits."""


def quiet(**changes):
    """Return the summary with readings at their limits, with fields changed."""
    return TelemetrySummary(**AT_LIMITS.model_dump() | changes)


def test_disturbed_repeats_are_listed_with_value_and_limit():
    """Readings at the limits or missing are no disturbance."""
    hot = {"gpu0": {"power_cap": 40, "hardware_thermal": 3}}
    unknown = quiet(other_load_cores=None, steal_share=None, throttled={})
    loaded = quiet(other_load_cores=0.41)
    stolen_from = quiet(steal_share=0.03, throttled=hot)
    result = with_telemetry(loaded, AT_LIMITS, stolen_from, unknown, None)
    other_load = OtherLoad(repeats=[1], cores=0.41, core_limit=0.4)
    steal_time = StealTime(repeats=[3], share=0.03, share_limit=0.02)
    throttled = Throttled(repeats=[3], reasons=["gpu0: hardware_thermal"])
    disturbances = []
    for warning in warnings_of(result):
        if isinstance(warning, OtherLoad | StealTime | Throttled):
            disturbances.append(warning)
    assert disturbances == [other_load, steal_time, throttled]


def test_a_measurement_has_the_maximum_other_load_and_median_energy():
    result = with_telemetry(
        quiet(other_load_cores=0.1, energy_joules_per_sample=5.0),
        quiet(other_load_cores=0.3, energy_joules_per_sample=7.0),
        quiet(other_load_cores=None, energy_joules_per_sample=6.0),
        None,
    )
    assert result.other_load_cores == 0.3
    assert result.energy_joules_per_sample == 6.0


def section_text(folder, *summaries):
    """Return the telemetry section's text for two repeats with these summaries."""
    result = with_summaries(stored(folder).result, *summaries)
    html = steps.telemetry(Measurement(folder, result)).html
    text = unescape(re.sub(r"<[^>]+>", " ", html))
    return " ".join(text.split())


def test_the_page_shows_readings_and_leaves_out_missing_ones(tmp_path):
    clock_mhz = {"cpu": (2400.4, 3100.0)}
    summary = quiet(steal_share=None, clock_mhz=clock_mhz)
    text = section_text(tmp_path / "m", summary, None)
    assert "1 40 3.900 0.4000 cpu 2,400 – 3,100 gpu0 power_cap 40 " in text
    assert "Clock (MHz)" in text
    assert "Steal time" not in text
    assert "(J)" not in text


def test_the_page_states_the_scope_of_energy(tmp_path):
    summary = quiet(energy_joules_per_sample=12.3456, throttled={"cpu": {}})
    text = section_text(tmp_path / "m", summary, summary)
    assert "12.35" in text
    assert "whole processor packages" in text


BUSY = [sys.executable, "-c", "while True: pass"]
WITH_BUSY_CHILD = IN_WORKER + f"    import subprocess\n    subprocess.Popen({BUSY})\n"
"""A rank with a busy child process, like an input worker, that is not waited for."""


def children_seconds():
    """Return the CPU time of this process's ended children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
def test_only_processes_outside_the_measurement_are_other_load(measure, plant):
    """Compare with independent counts: the kernel's for ended children and the busy process."""
    plant(WITH_BUSY_CHILD)
    began = time.monotonic()
    used_before = children_seconds()
    with subprocess.Popen(BUSY) as busy:
        try:
            measurement = measure(input="dataloader", batch_size=2, measured_steps=8)
            busy_times = psutil.Process(busy.pid).cpu_times()
            used = children_seconds() - used_before
            wall = time.monotonic() - began
        finally:
            busy.kill()
    counts = []
    for line in read_events(measurement.telemetry_file(1)):
        if "process_seconds" in line:
            counts.append(line["process_seconds"])
    assert 0.8 * used < counts[-1] < used + 0.1
    (repeat,) = measurement.result.repeats
    busy_cores = (busy_times.user + busy_times.system) / wall
    # During training the busy process gets less CPU time than on average.
    assert repeat.telemetry.other_load_cores > 0.25 * busy_cores
    assert check_against_raw(measurement) == ""
