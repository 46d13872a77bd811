"""A sweep's progress: a line for each finished job, the time left, untrusted text."""

import io

import pytest
from made.results import measured, write_all

from perfkit.measuring.request.plan import Plan
from perfkit.measuring.results.store import Measurement
from perfkit.sweep.jobs import SweepJob
from perfkit.sweep.progress import (
    NOTEBOOK_SECONDS,
    SweepProgress,
    duration,
    headline,
    repeats_left,
    seconds_left,
)
from perfkit.sweep.status import JobStatus

RESULT = measured([40.0, 50.0, 60.0], protocol="quick")
REPEAT_SECONDS = 9.5
"""Time of each repeat of `measured` with a shorter window."""


def status(name, state, measurement=None, reason="", result=RESULT):
    config = result.config.model_copy(update={"label": name})
    plan = Plan(config, result.protocol)
    job = SweepJob(f"batch_size {name}", "resnet50", {"batch_size": name}, plan)
    return JobStatus(job, state, measurement, reason)


def stored(outputs, result):
    (folder,) = write_all(outputs, result).iterdir()
    return Measurement.read(folder)


@pytest.fixture
def measurement(tmp_path):
    return stored(tmp_path, RESULT)


class Stream(io.StringIO):
    def __init__(self, *, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


def shown(statuses, monkeypatch, *, terminal):
    """Return what the progress display writes."""
    written = Stream(terminal=terminal)
    monkeypatch.setattr("sys.stderr", written)
    with SweepProgress("quick", in_turn=True) as progress:
        for current in statuses:
            progress.show(current)
    return written.getvalue()


def test_the_headline_shows_counts_running_jobs_and_the_time_left(measurement):
    statuses = [
        status("1", "done", measurement),
        status("2", "running"),
        status("3", "waiting"),
    ]
    left = duration(2 * (3 * REPEAT_SECONDS + NOTEBOOK_SECONDS))
    assert headline("quick", statuses, in_turn=True) == (
        f"quick: 1 done, 1 running of 3; about {left} left; batch_size 2 (3 repeats left)"
    )
    assert headline("quick", statuses[2:], in_turn=True) == "quick: 0 done of 1"
    assert headline("quick", statuses[:1], in_turn=True).endswith("; writing the report")


@pytest.mark.parametrize("terminal", [False, True])
def test_each_finished_job_prints_one_line(measurement, monkeypatch, terminal):
    kept = status("2", "kept", measurement)
    second = status("4", "waiting")
    done = status("8", "done", measurement)
    hostile = "[bold red]x[/] [link=http://evil.example]here[/link]"
    failed = status("4", "failed", reason=hostile)
    states = [[kept, second], [kept, failed], [kept, failed, done]]
    text = shown(states, monkeypatch, terminal=terminal)
    number = "50.00 (40.00 – 60.00) images/s"
    lines = [
        f"1/2 kept    batch_size 2: {number}",
        f"2/2 failed  batch_size 4: {hostile}",
        f"3/3 done    batch_size 8: {number}",
    ]
    if terminal:
        for line in lines:
            assert text.count(line) == 1
        assert "quick: 1 kept of 2" in text
        assert "quick: 1 done, 1 kept, 1 failed of 3" in text
    else:
        assert text.splitlines() == lines


def test_the_time_left_is_that_of_missing_repeats_and_bounded_by_a_budget(tmp_path):
    auto = {"repeats": 100, "interval_target": 0.02, "budget": 60}
    result = measured([100.0] * 7)
    protocol = result.protocol.model_copy(update=auto)
    ended = result.model_copy(update={"protocol": protocol})
    done = status("1", "done", stored(tmp_path, ended))
    waiting = status("2", "waiting", result=ended)
    assert repeats_left(done) == 0
    assert repeats_left(waiting) == 100
    seconds = seconds_left([waiting], [done, waiting])
    assert seconds == pytest.approx(NOTEBOOK_SECONDS + 60)


def test_the_time_left_is_unknown_without_a_repeat_of_the_model(measurement):
    done = status("1", "done", measurement)
    bert = measured([4.0], model="bert", input="synthetic", layout=None)
    waiting = status("2", "waiting", result=bert)
    assert seconds_left([waiting], [done, waiting]) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(99.4, "99 s"), (150, "2 min"), (12_000, "3 h 20 min")],
)
def test_durations_are_readable(seconds, words):
    assert duration(seconds) == words
