"""Time left, judged by what has been measured."""

import pytest
from made import measured, write_all

from perfkit.request.plan import Plan
from perfkit.results.store import Measurement
from perfkit.sweep.board import duration
from perfkit.sweep.estimate import NOTEBOOK_SECONDS, predicted, repeats_left, seconds_left
from perfkit.sweep.jobs import Job


def test_more_work_takes_longer_on_the_line_through_what_was_measured():
    assert predicted(30.0, [(10.0, 7.0), (20.0, 9.0)]) == pytest.approx(11.0)


def test_alike_work_takes_its_mean():
    assert predicted(10.0, [(10.0, 7.0), (10.0, 9.0)]) == pytest.approx(8.0)


def test_where_less_work_took_longer_nothing_is_read_into_it():
    assert predicted(40.0, [(10.0, 9.0), (20.0, 7.0)]) == pytest.approx(8.0)


def job(name, result):
    plan = Plan(result.config, result.protocol)
    return Job(name, name, result.config.model, {}, plan)


def test_what_is_left_is_the_missing_repeats_at_their_pace_and_the_notebooks(tmp_path):
    done = measured([4.0, 5.0, 6.0], protocol="quick")
    other = measured([4.0], protocol="quick", seed=1)
    outputs = write_all(tmp_path, done)
    (folder,) = outputs.iterdir()
    found = {"done": Measurement.read(folder)}
    jobs = [job("done", done), job("open", other)]
    assert [repeats_left(one, found) for one in jobs] == [0, 1]
    # 9.5 s is what every repeat of a made result takes.
    assert seconds_left(jobs, found) == pytest.approx(NOTEBOOK_SECONDS + 9.5)


def test_of_repeats_that_end_by_themselves_none_is_left_and_a_budget_bounds_the_rest(tmp_path):
    auto = {"repeats": 100, "interval_target": 0.02, "budget": 60}
    result = measured([100.0] * 7)
    ended = result.model_copy(update={"protocol": result.protocol.model_copy(update=auto)})
    (folder,) = write_all(tmp_path, ended).iterdir()
    found = {"ended": Measurement.read(folder)}
    jobs = [job("ended", ended), job("open", ended)]
    assert [repeats_left(one, found) for one in jobs] == [0, 100]
    assert seconds_left(jobs, found) == pytest.approx(NOTEBOOK_SECONDS + 60)


def test_nothing_is_known_of_a_model_that_was_never_measured(tmp_path):
    (folder,) = write_all(tmp_path, measured([4.0])).iterdir()
    found = {"a": Measurement.read(folder)}
    bert = job("b", measured([4.0], model="bert", input="synthetic", layout=None))
    assert seconds_left([bert], found) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (99.4, "99 s"), (150, "2 min"), (5940, "99 min"), (12_000, "3 h 20 min")],
)
def test_a_duration_is_said_as_a_person_would(seconds, words):
    assert duration(seconds) == words
