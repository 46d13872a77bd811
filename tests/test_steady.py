"""Where steps become steady, whether they drift: planted courses of known shape.

benchmarks/simulations.py has the same claims at full length; here a short form, fixed seed.
"""

import numpy as np
import pandas as pd
import pytest
import simulations

from perfkit.analysis.steady import FEWEST_STEPS, MOST_BLOCKS, profile_repeats, steadiness
from perfkit.results.frames import STEP_COLUMNS

RUNS = 200


@pytest.fixture
def random():
    return np.random.default_rng(20261122)


def flat(random, sigma, count=simulations.STEPS):
    return 1 + random.normal(0, sigma, count)


@pytest.mark.parametrize("form", ["step", "ramp"])
def test_a_planted_warm_up_is_found_within_five_steps(form):
    assert simulations.found_warm_up(form, RUNS) >= 0.95


def test_a_planted_drift_is_flagged_with_its_sign_behind_a_warm_up_too():
    assert simulations.found_drift(RUNS) >= 0.95


@pytest.mark.parametrize("noise", simulations.NOISE)
@pytest.mark.parametrize("count", [FEWEST_STEPS, 120, 1000])
def test_flat_noise_is_rarely_called_anything_else(noise, count):
    assert simulations.called_unsteady(RUNS, noise, count=count) <= 0.05


def test_steps_that_resemble_those_before_are_not_often_taken_for_a_course():
    assert simulations.called_unsteady(RUNS, "resembling by 0.5") <= 0.1


def test_the_first_slow_step_is_warm_up_and_a_later_one_a_spike(random):
    steps = flat(random, 0.01)
    steps[0] = 9.0
    steps[70] = 1.5
    seen = steadiness(steps)
    assert (seen.begin, seen.spikes, seen.drift) == (1, [70], None)


def test_steps_whose_level_changes_near_the_end_never_settle(random):
    steps = flat(random, 0.01)
    steps[100:] += 0.2
    assert not steadiness(steps).settled


def test_of_few_steps_nothing_is_said():
    assert steadiness([1.0] * (FEWEST_STEPS - 1)) is None
    assert steadiness([1.0] * FEWEST_STEPS) == (0, True, None, [])


def test_of_times_too_far_apart_for_floats_nothing_is_said():
    assert steadiness([1e-308] * FEWEST_STEPS + [1e300]) is None


def test_of_very_many_steps_blocks_are_looked_at(random):
    steps = flat(random, 0.01, 20 * MOST_BLOCKS)
    steps[:2000] += 0.3
    assert steadiness(steps).begin == pytest.approx(2000, abs=5 * 20)


def frame(*repeats, warmup):
    """Steps as frames.load_steps gives them; of each repeat the seconds of every rank."""
    rows = [
        (index, rank, step, seconds, 0.0, 4, 7.0, step > warmup)
        for index, ranks in enumerate(repeats, 1)
        for rank, times in enumerate(ranks)
        for step, seconds in enumerate(times, 1)
    ]
    return pd.DataFrame(rows, columns=STEP_COLUMNS)


def test_the_fixed_window_equals_hand_arithmetic_and_steady_steps_are_told_beside_it():
    times = [3.0] * 30 + [1.0] * 90
    (course,) = profile_repeats(frame([times], warmup=20))
    # 100 steps of 4 samples: 10 steps of 3 s, 90 of 1 s.
    assert course.fixed == pytest.approx(400 / 120)
    assert course.steady == pytest.approx(4.0)
    assert course.disagreement == pytest.approx(0.2)


def test_of_several_ranks_the_slowest_counts():
    (course,) = profile_repeats(frame([[1.0] * 40, [2.0] * 40], warmup=10))
    assert course.fixed == pytest.approx(8 / 2)


def test_a_repeat_that_lacks_steps_of_a_rank_has_no_course():
    assert profile_repeats(frame([[1.0] * 40, [2.0] * 39], warmup=10)) == []
    assert profile_repeats(frame([[1.0] * 5], warmup=10)) == []
