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
from made import measured, stored

from perfkit import report
from perfkit.analysis.warning_types import OtherLoad, StealTime, Throttled
from perfkit.analysis.warnings import warnings_of
from perfkit.core.results.repeat import TelemetrySummary
from perfkit.core.results.store import read_events
from perfkit.core.results.summarize import check_against_raw
from perfkit.core.results.telemetry import summarize_telemetry
from perfkit.report.text import language

BEGIN = {"event": "begin", "device": "cpu", "ranks": 1, "cores": 4, "missing": {}}
BEGIN["energy_wraps_joules"] = {"package-0": 1000.0}


def summary(*, began=1.5, seconds=3.0, samples=(30,), begin=None, **of):
    """Summarize a window, by default 1.5 s to 4.5 s, with samples at 0, 1, …, 6 s. `of` maps
    each reading to a function of the sample's time."""
    of = {"process_seconds": lambda at: 2.0 * at} | of
    lines = [
        {"event": "sample", "at": float(at)} | {name: value(at) for name, value in of.items()}
        for at in range(7)
    ]
    return summarize_telemetry([BEGIN | (begin or {}), *lines], began, seconds, samples)


def test_load_is_the_counters_increase_over_the_window():
    seen = summary(
        process_seconds=lambda at: 100 + 2.5 * at,
        busy_seconds=lambda at: 5000 + 3.0 * at,
        steal_seconds=lambda at: 7 + 0.2 * at,
    )
    assert seen.samples == 3
    assert seen.process_cores == pytest.approx(2.5)
    assert seen.other_load_cores == pytest.approx(0.5)
    assert seen.steal_share == pytest.approx(0.2 / 4)


def test_load_outside_the_window_is_excluded():
    seen = summary(began=2, seconds=2, busy_seconds=lambda at: [0, 4, 8, 11, 14, 18, 22][at])
    assert seen.other_load_cores == pytest.approx(3 - 2)
    # Samples exactly at the ends suffice.
    seen = summary(
        began=0, seconds=6, busy_seconds=lambda at: 3.0 * at, steal_seconds=lambda at: 1.0 * at
    )
    assert (seen.samples, seen.other_load_cores, seen.steal_share) == (7, 1.0, 0.25)


def test_a_window_between_two_samples_uses_both():
    seen = summary(
        began=2.2,
        seconds=0.1,
        busy_seconds=lambda at: 3.0 * at,
        clock_mhz=lambda at: {"cpu": 1000.0 + at},
    )
    assert (seen.samples, seen.clock_mhz) == (0, {"cpu": (1002.0, 1003.0)})
    assert seen.other_load_cores == pytest.approx(1.0)


def test_without_samples_of_ranks_around_the_window_there_is_no_telemetry():
    for began, seconds in ((-0.5, 2), (5, 2), (7, 1), (-3, 20)):
        assert summary(began=began, seconds=seconds) is None
    lines = [{"event": "sample", "at": float(at), "busy_seconds": 1.0} for at in range(7)]
    assert summarize_telemetry([BEGIN, *lines], 1.5, 3.0, [30]) is None
    assert summarize_telemetry([], 1.5, 3.0, [30]) is None


def test_missing_readings_are_absent_rather_than_zero():
    seen = summary(begin={"missing": {"cpu_energy": "no RAPL"}})
    assert seen.other_load_cores is seen.steal_share is seen.energy_joules_per_sample is None
    assert seen.clock_mhz == seen.temperature_celsius == seen.throttled == {}
    assert seen.missing == {"cpu_energy": "no RAPL"}


def test_steal_time_that_was_never_counted_is_missing():
    """Load is never negative when counters differ by a tick."""
    seen = summary(busy_seconds=lambda at: 1.99 * at, steal_seconds=lambda _at: 0.0)
    assert (seen.other_load_cores, seen.steal_share) == (0.0, None)
    assert seen.missing == {"steal_time": "none was counted since the machine started"}


def test_energy_handles_counter_wraparound():
    seen = summary(
        energy_joules=lambda at: {"package-0": (900 + 50 * at) % 1000, "dram-0": 10.0 * at}
    )
    assert seen.energy_joules == pytest.approx({"package-0": 150.0, "dram-0": 30.0})
    assert seen.energy_joules_per_sample == pytest.approx(180 / 30)
    # A counter that falls without a known range is ignored.
    seen = summary(energy_joules=lambda at: {"dram-0": 100.0 - at})
    assert (seen.energy_joules, seen.energy_joules_per_sample) == ({}, None)


def test_gpu_energy_covers_the_gpus_of_local_ranks():
    def energy(at):
        return {"package-0": 500.0 * at % 1000, "gpu0": 300.0 * at, "gpu1": 310.0 * at}

    begin = {"device": "gpu", "ranks": 2}
    seen = summary(begin=begin, samples=[30, 30, 30, 30], energy_joules=energy)
    assert seen.energy_joules_per_sample == pytest.approx(3 * 610 / 60)
    assert {*seen.energy_joules} == {"package-0", "gpu0", "gpu1"}
    seen = summary(begin=begin | {"ranks": 3}, samples=[30] * 3, energy_joules=energy)
    assert seen.energy_joules_per_sample is None


def test_gpu_readings_come_from_samples_in_the_window():
    busy = range(2, 5)
    seen = summary(
        clock_mhz=lambda at: {"gpu0": 1400.0 + at if at in busy else 210.0},
        temperature_celsius=lambda at: {"gpu0": 60.0 + at if at in busy else 90.0},
        throttled=lambda at: {
            "gpu0": {2: [], 3: ["power_cap"], 4: ["power_cap", "hardware_thermal"]}.get(
                at, ["sync_boost"]
            ),
            "gpu1": [],
        },
        memory_used_bytes=lambda at: {"gpu0": at * 2**30},
    )
    assert seen.clock_mhz == {"gpu0": (1402.0, 1404.0)}
    assert seen.temperature_celsius == {"gpu0": 64.0}
    assert seen.memory_used_bytes == {"gpu0": 4 * 2**30}
    assert seen.throttled == {"gpu0": {"power_cap": 2, "hardware_thermal": 1}, "gpu1": {}}


def test_a_rising_count_means_cpu_throttling():
    counts = [5, 5, 5, 9, 9, 12, 40]
    seen = summary(throttle_count=lambda at: {"cpu": counts[at]})
    assert seen.throttled == {"cpu": {"thermal": 2}}
    assert summary(throttle_count=lambda _at: {"cpu": 5}).throttled == {"cpu": {}}


def seen_in(result, *seen):
    pairs = zip(result.repeats, seen, strict=True)
    repeats = [repeat.model_copy(update={"telemetry": summary}) for repeat, summary in pairs]
    return result.model_copy(update={"repeats": repeats})


def with_telemetry(*seen):
    return seen_in(measured([4.0] * len(seen), protocol="quick"), *seen)


def quiet(**changes):
    values = {"samples": 40, "cores": 4, "process_cores": 3.9, "other_load_cores": 0.4}
    values |= {"steal_share": 0.02, "throttled": {"gpu0": {"power_cap": 40}}, "missing": {}}
    values |= {key: {} for key in ("clock_mhz", "temperature_celsius", "energy_joules")}
    return TelemetrySummary(**values | {"energy_joules_per_sample": None} | changes)


def test_disturbed_repeats_are_listed_with_value_and_limit():
    """Readings at the limits or missing are no disturbance."""
    hot = {"gpu0": {"power_cap": 40, "hardware_thermal": 3}}
    unknown = quiet(other_load_cores=None, steal_share=None, throttled={})
    disturbed = quiet(other_load_cores=0.41), quiet(), quiet(steal_share=0.03, throttled=hot)
    found = warnings_of(with_telemetry(*disturbed, unknown, None), ())
    assert [w for w in found if w.code in ("other_load", "steal_time", "throttled")] == [
        OtherLoad(repeats=[1], cores=0.41, core_limit=0.4),
        StealTime(repeats=[3], share=0.03, share_limit=0.02),
        Throttled(repeats=[3], reasons=["gpu0: hardware_thermal"]),
    ]


def test_a_measurement_has_the_maximum_other_load_and_median_energy():
    result = with_telemetry(
        quiet(other_load_cores=0.1, energy_joules_per_sample=5.0),
        quiet(other_load_cores=0.3, energy_joules_per_sample=7.0),
        quiet(other_load_cores=None, energy_joules_per_sample=6.0),
        None,
    )
    assert (result.other_load_cores, result.energy_joules_per_sample) == (0.3, 6.0)
    silent = with_telemetry(None)
    assert silent.other_load_cores is silent.energy_joules_per_sample is None


def shown(folder, *seen):
    """Return the telemetry section's text for two repeats with this telemetry."""
    measurement = stored(folder)
    measurement = type(measurement)(folder, seen_in(measurement.result, *seen))
    html = report.telemetry(measurement).html
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_the_page_shows_readings_and_reasons_for_missing_ones(tmp_path):
    missing = {"cpu_energy": "<b>no RAPL</b>", "steal_time": "none was counted"}
    seen = quiet(steal_share=None, clock_mhz={"cpu": (2400.4, 3100.0)}, missing=missing)
    text = shown(tmp_path / "m", seen, None)
    assert "1 40 3.900 0.4000 cpu 2400 – 3100 gpu0 power_cap 40 " in text
    assert "Clock (MHz)" in text and "Steal time" not in text and "(J)" not in text
    assert "CPU energy ( <b>no RAPL</b> ); steal time ( none was counted )" in text


def test_the_page_states_the_scope_of_energy_also_in_chinese(tmp_path):
    seen = quiet(energy_joules_per_sample=12.3456, throttled={"cpu": {}})
    text = shown(tmp_path / "en", seen, seen)
    assert "12.35" in text and "whole processor packages" in text
    with language.in_language("zh"):
        assert "每样本能耗（J）" in shown(tmp_path / "zh", seen, seen)


def test_the_page_of_a_measurement_without_telemetry_says_so(tmp_path):
    assert shown(tmp_path / "m", None, None).startswith("No sample was taken")


BUSY = [sys.executable, "-c", "while True: pass"]
WITH_BUSY_CHILD = IN_WORKER + f"    import subprocess\n    subprocess.Popen({BUSY})\n"
"""A rank with a busy child process, like an input worker, that is not waited for."""


@pytest.mark.slow
def test_only_processes_outside_the_measurement_are_other_load(measure, plant):
    """Compare with independent counts: the kernel's for ended children and the busy process."""
    plant(WITH_BUSY_CHILD)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with subprocess.Popen(BUSY) as busy:
        try:
            measurement = measure(input="dataloader", batch_size=2, measured_steps=8)
            used = psutil.Process(busy.pid).cpu_times()
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        finally:
            busy.kill()
    (repeat,) = measurement.result.repeats
    seen = repeat.telemetry
    own = sum(getattr(after, t) - getattr(before, t) for t in ("ru_utime", "ru_stime"))
    events = read_events(measurement.telemetry_file(1))
    *_, last = (event["process_seconds"] for event in events if "process_seconds" in event)
    assert 0.8 * own < last < own + 0.1
    # During training the busy process gets less CPU time than on average.
    assert seen.other_load_cores > 0.25 * (used.user + used.system) / wall
    assert check_against_raw(measurement) == []
