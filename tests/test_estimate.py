"""Time left, estimated from finished measurements."""

import pytest
from made import measured, write_all

from perfkit.request.plan import Plan
from perfkit.results.store import Measurement
from perfkit.sweep.engine import JobStatus
from perfkit.sweep.jobs import Job
from perfkit.sweep.progress import (
    NOTEBOOK_SECONDS,
    duration,
    predicted,
    repeats_left,
    seconds_left,
)


@pytest.mark.parametrize(
    ("work", "samples", "seconds"),
    [
        (30.0, [(10.0, 7.0), (20.0, 9.0)], 11.0),
        (10.0, [(10.0, 7.0), (10.0, 9.0)], 8.0),
        (40.0, [(10.0, 9.0), (20.0, 7.0)], 8.0),
    ],
)
def test_times_are_predicted_by_a_rising_line_or_the_mean(work, samples, seconds):
    assert predicted(work, samples) == pytest.approx(seconds)


def status(result, outputs=None):
    """Return the status of a waiting job or, given `outputs`, of a measured job."""
    job = Job("", "", result.config.model, {}, Plan(result.config, result.protocol))
    if outputs is None:
        return JobStatus(job, "waiting", None)
    (folder,) = write_all(outputs, result).iterdir()
    return JobStatus(job, "done", Measurement.read(folder))


def test_time_left_is_that_of_missing_repeats_and_notebooks(tmp_path):
    done = status(measured([40.0, 50.0, 60.0], protocol="quick"), tmp_path)
    jobs = [done, status(measured([4.0], protocol="quick", seed=1))]
    assert [repeats_left(job) for job in jobs] == [0, 1]
    # Every repeat of `measured` with a shorter window takes 9.5 s.
    assert seconds_left(jobs, jobs) == pytest.approx(NOTEBOOK_SECONDS + 9.5)
    bert = status(measured([4.0], model="bert", input="synthetic", layout=None))
    assert seconds_left([bert], [done, bert]) is None


def test_a_budget_bounds_the_time_left_of_auto_repeats(tmp_path):
    auto = {"repeats": 100, "interval_target": 0.02, "budget": 60}
    result = measured([100.0] * 7)
    ended = result.model_copy(update={"protocol": result.protocol.model_copy(update=auto)})
    jobs = [status(ended, tmp_path), status(ended)]
    assert [repeats_left(job) for job in jobs] == [0, 100]
    assert seconds_left(jobs, jobs) == pytest.approx(NOTEBOOK_SECONDS + 60)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (99.4, "99 s"), (150, "2 min"), (5940, "99 min"), (12_000, "3 h 20 min")],
)
def test_durations_are_readable(seconds, words):
    assert duration(seconds) == words
