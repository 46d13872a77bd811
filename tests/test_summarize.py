"""A repeat's numbers, derived from the raw events of its ranks."""

import re
from hashlib import sha256
from html import unescape

import pytest
from made.results import change, event, measured, rank_events, with_raw_files

from perfkit.analysis.warnings import window_disagrees
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.store import Measurement, read_events
from perfkit.measuring.results.summarize import check_against_raw, summarize
from perfkit.report.checked import checked
from perfkit.report.steps import raw_files
from perfkit.report.tiles import headline

PROTOCOL = Protocol.named("quick", warmup_steps=1, measured_steps=2, repeats=1)


def rank(window_seconds, compute_seconds=None):
    """Return the events of a rank with one step of warm-up and two in the window."""
    seconds = [window_seconds / 2] * 3
    return rank_events(seconds, samples=4, compute_seconds=compute_seconds)


def summary(*ranks):
    return summarize(1, PROTOCOL, ranks, 9.0)


def test_throughput_is_all_samples_by_the_slowest_window():
    repeat = summary(rank(2.0), rank(2.5), rank(2.4))
    assert repeat.throughput == 3 * 8 / 2.5
    assert repeat.steps_per_second == 2 / 2.5


def test_tokens_that_a_rank_has_told_count_once():
    events = [*rank(2.0), event("told")]
    repeat = summarize(1, PROTOCOL, [events], 9.0, units=4)
    # 8 tokens are 2 sequences.
    assert repeat.ranks[0].samples == 2
    assert repeat.throughput == 8 / 2.0


@pytest.mark.parametrize(
    ("alone", "straggler"),
    [([1.0], None), ([1.0, 1.05], None), ([1.2, 1.0], 0), ([1.0, 1.3, 1.0, 1.2], 1)],
)
def test_a_straggler_takes_over_10_percent_longer_than_the_others(alone, straggler):
    ranks = [rank(2.0, seconds) for seconds in alone]
    assert summary(*ranks).straggler == straggler


def test_warm_up_steps_are_excluded():
    events = rank(2.0)
    events[1] |= {"seconds": 100.0, "data_wait_seconds": 100.0}
    repeat = summary(events)
    assert repeat.step_seconds.maximum == 1.0
    assert repeat.data_wait_share == pytest.approx(0.2 / 2.0)
    assert repeat.loss_first == 9.0
    assert repeat.loss_last == 7.0


def test_the_first_step_ends_before_the_rest_of_its_warm_up():
    start, *events = script_rank(2.0, event("pause", step=1, seconds=4.0))
    (window,) = (each for each in events if each["event"] == "window")
    # The warm-up's only step takes 1 s. The pause after it lies in the window.
    window["began"] = 130.0
    first_step = summary([start | {"began": 100.0}, *events]).first_step
    assert first_step.seconds == 130.0 - 100.0
    assert first_step.step_seconds == 1.0
    protocol = Protocol.named("quick", warmup_steps=2, measured_steps=1, repeats=1)
    longer = summarize(1, protocol, [[start | {"began": 100.0}, *events]], 9.0)
    # Now step 2 and the pause before it belong to the warm-up.
    assert longer.first_step.seconds == 130.0 - 100.0 - 1.0 - 4.0


def test_a_clock_that_goes_backwards_gives_no_time_to_the_first_step():
    start, *events = script_rank(2.0)
    (window,) = (each for each in events if each["event"] == "window")
    window["began"] = 99.0
    assert summary([start | {"began": 100.0}, *events]).first_step is None


def script_rank(window_seconds, *further, waits=False):
    """Return the events of a script's rank, which has told no loss and, unless `waits`, no wait
    for input."""
    events = [event for event in rank(window_seconds) if event["event"] != "loss"]
    for step in events:
        if step["event"] == "step" and not waits:
            del step["data_wait_seconds"]
    *events, window, _end = events
    return [*events, *further, window, event("end", memory_bytes=5)]


def test_an_unknown_wait_for_input_is_not_zero():
    unknown = summary(script_rank(2.0))
    assert unknown.data_wait_share is None
    assert unknown.ranks[0].data_wait_seconds is None
    assert unknown.loss_first is unknown.loss_last is None
    assert unknown.skipped_steps is None
    on_one_rank = summary(script_rank(2.0, waits=True), script_rank(2.0))
    assert on_one_rank.data_wait_share is None
    on_both = summary(script_rank(2.0, waits=True), script_rank(2.0, waits=True))
    assert on_both.data_wait_share == pytest.approx(0.2 / 2.0)


def test_a_wait_that_only_some_steps_tell_is_unknown():
    events = script_rank(2.0, waits=True)
    del events[2]["data_wait_seconds"]
    assert summary(events).ranks[0].data_wait_seconds is None


def test_the_longest_pauses_of_a_window_are_stored_and_not_those_of_the_warm_up():
    in_warmup = event("pause", step=0, seconds=50.0)
    pauses = [event("pause", step=1, seconds=0.5), event("pause", step=2, seconds=0.25)]
    shorter = event("pause", step=1, seconds=0.5)
    first = script_rank(2.0, in_warmup, shorter)
    repeat = summary(first, script_rank(2.0, in_warmup, *pauses))
    assert repeat.pauses_seconds == 0.75
    assert repeat.throughput == 2 * 8 / 2.0
    assert summary(script_rank(2.0, in_warmup)).pauses_seconds is None


def test_modules_that_any_rank_imported_late_are_named():
    first = script_rank(2.0, event("modules", late=["local", "tasks.a"]))
    second = script_rank(2.0, event("modules", late=["tasks.b", "local"]))
    assert summary(first, second).late_modules == ["local", "tasks.a", "tasks.b"]
    assert summary(rank(2.0)).late_modules == []


@pytest.fixture
def measurement(tmp_path):
    """A measurement of two repeats on two ranks, with raw files."""
    steps = {"protocol": "quick", "warmup_steps": 1, "measured_steps": 2}
    result = measured([4.0, 4.0], processes=2, **steps)
    ranks = [rank(2.0), rank(2.5)]
    return with_raw_files(tmp_path / "m", result, [ranks, ranks])


def raw_section(measurement):
    return re.sub(r"<[^>]+>", "", unescape(raw_files(checked(measurement)).html))


def test_the_page_confirms_numbers_that_match_the_raw_files(measurement):
    assert check_against_raw(measurement) == ""
    expected = "of the 2 repeats were recomputed from their raw files"
    assert expected in raw_section(measurement)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # Step 1 is the warm-up.
        ('"step": 2, "seconds": 1.25', '"step": 2, "seconds": 1.0', "another step_seconds"),
        ('"samples": 8, "seconds"', '"samples": 9, "seconds"', "give another throughput"),
        ('{"event": "window"', '{"event": "window', "not those of a finished repeat"),
        ('"seconds": 2.5', '"seconds": 0', "not those of a finished repeat"),
    ],
)
def test_a_number_that_its_raw_files_do_not_give_is_named(measurement, old, new, expected):
    path = measurement.rank_file(1, 1)
    before = sha256(path.read_bytes()).hexdigest()
    change(path, old, new)
    # A forger changes the digest, too.
    change(measurement.result_file, before, sha256(path.read_bytes()).hexdigest())
    difference = check_against_raw(Measurement.read(measurement.folder))
    assert difference.startswith("repeat 1: the raw files ") and difference.endswith(expected)
    shown = headline(checked(Measurement.read(measurement.folder))).html
    assert difference in unescape(shown)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"status": "complete",\n "failure"', '"status": "partial",\n "failure"', "complete"),
        ('"n": 2', '"n": 3', "the repeats give another throughput"),
    ],
)
def test_a_result_that_its_repeats_do_not_give_is_named(measurement, old, new, expected):
    change(measurement.result_file, old, new)
    assert expected in check_against_raw(Measurement.read(measurement.folder))


def test_a_raw_file_truncated_at_any_byte_is_detected(measurement):
    path = measurement.rank_file(1, 1)
    whole = path.read_bytes()
    events = read_events(path)
    changed = "repeat 1: rank1.jsonl: missing or changed since (SHA-256)"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert read_events(path) == events[: whole.count(b"\n", 0, length)]
        assert check_against_raw(measurement) == changed
    path.write_bytes(whole + b'{"event": "mo')
    assert check_against_raw(measurement) == changed
    path.write_bytes(whole)
    assert check_against_raw(measurement) == ""


@pytest.mark.parametrize(
    ("window", "steps", "disagrees"),
    [
        (2.0, [1.0, 1.0], False),
        (2.03, [1.0, 1.0], False),
        (2.05, [1.0, 1.0], True),
        (1.95, [1.0, 1.0], True),
        (2.0, [], True),
        (2.0, [1.0, float("nan")], True),
    ],
)
def test_a_window_matches_its_steps_within_2_percent(window, steps, disagrees):
    assert window_disagrees(window, steps) is disagrees


@pytest.fixture
def sampled(tmp_path):
    """A measurement of one repeat on one rank, with one telemetry sample per second."""
    events = rank(2.0)
    window = next(e for e in events if e["event"] == "window")
    window["began"] = 10.5
    machine = {"device": "cpu", "ranks": 1, "cores": 2}
    telemetry = [event("begin", **machine, missing={}, energy_wraps_joules={})]
    for second in range(9, 15):
        counters = {
            "process_seconds": 1.5 * second,
            "busy_seconds": 1.75 * second,
            "steal_seconds": 1.0,
        }
        telemetry.append(event("sample", at=float(second), **counters))
    result = measured([4.0], protocol="quick", warmup_steps=1, measured_steps=2)
    return with_raw_files(tmp_path / "m", result, [[events]], telemetry)


def test_telemetry_is_checked_against_its_file(sampled):
    (repeat,) = sampled.result.repeats
    assert repeat.telemetry.process_cores == 1.5
    assert repeat.telemetry.other_load_cores == 0.25
    assert check_against_raw(sampled) == ""
    # Change the third sample in the window.
    change(sampled.telemetry_file(1), '"busy_seconds": 21.0', '"busy_seconds": 21.5')
    changed = "repeat 1: telemetry.jsonl: missing or changed since (SHA-256)"
    assert check_against_raw(sampled) == changed
    sampled.telemetry_file(1).unlink()
    assert check_against_raw(sampled) == changed


def test_the_energy_of_a_window_with_pauses_is_not_that_of_its_samples():
    events = rank(2.0)
    (window,) = [event for event in events if event["event"] == "window"]
    window["began"] = 10.0
    pause = event("pause", step=1, seconds=1.0)
    telemetry = [event("begin", device="cpu", ranks=1, cores=1, missing={})]
    telemetry[0]["energy_wraps_joules"] = {}
    for second in range(9, 16):
        counters = {
            "process_seconds": 1.0 * second,
            "energy_joules": {"package-0": 8.0 * second},
        }
        telemetry.append(event("sample", at=float(second), **counters))
    without = summarize(1, PROTOCOL, [events], 9.0, telemetry).telemetry
    assert without.energy_joules_per_sample == 16.0 / 8
    paused = summarize(1, PROTOCOL, [[*events, pause]], 9.0, telemetry).telemetry
    assert (without.samples, paused.samples) == (3, 4)
    assert paused.energy_joules_per_sample is None
    assert paused.missing == {"energy_per_sample": "the window has pauses"}
