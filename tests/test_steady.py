"""Steady state and drift of planted step-time profiles.

Short runs, with a fixed seed, of the claims in benchmarks/simulations.py.
"""

import numpy as np
import pandas as pd
import pytest
import simulations

from perfkit.measuring.results.frames import RawStep
from perfkit.measuring.steady import (
    FEWEST_STEPS,
    MOST_BLOCKS,
    profile_repeats,
    steadiness,
)

RUNS = 200


@pytest.fixture
def random():
    return np.random.default_rng(20261122)


def flat(random, sigma, count=simulations.STEPS):
    return 1 + random.normal(0, sigma, count)


@pytest.mark.parametrize("form", ["step", "ramp"])
def test_a_planted_warm_up_is_found_within_five_steps(form):
    assert simulations.found_warm_up(form, RUNS) >= 0.95


def test_a_planted_drift_is_found_with_its_sign_after_a_warm_up():
    assert simulations.found_drift(RUNS) >= 0.95


@pytest.mark.parametrize("noise", simulations.NOISE)
@pytest.mark.parametrize("count", [FEWEST_STEPS, 120, 1000])
def test_flat_noise_is_rarely_called_unsteady(noise, count):
    assert simulations.called_unsteady(RUNS, noise, count=count) <= 0.05


def test_autocorrelated_noise_is_rarely_called_unsteady():
    assert simulations.called_unsteady(RUNS, "resembling by 0.5") <= 0.1


def test_the_first_slow_step_is_warm_up_and_a_later_one_a_spike(random):
    steps = flat(random, 0.01)
    steps[0] = 9.0
    steps[70] = 1.5
    state = steadiness(steps)
    assert state.begin == 1
    assert state.spikes == [70]
    assert state.drift is None


def test_a_level_change_near_the_end_never_settles(random):
    steps = flat(random, 0.01)
    steps[100:] += 0.2
    assert not steadiness(steps).settled


def test_too_few_or_too_extreme_steps_have_no_steady_state():
    assert steadiness([1.0] * (FEWEST_STEPS - 1)) is None
    assert steadiness([1.0] * FEWEST_STEPS) == (0, True, None, [])
    assert steadiness([1e-308] * FEWEST_STEPS + [1e300]) is None


def test_very_many_steps_are_analyzed_in_blocks(random):
    steps = flat(random, 0.01, 20 * MOST_BLOCKS)
    steps[:2000] += 0.3
    assert steadiness(steps).begin == pytest.approx(2000, abs=5 * 20)


def frame(*repeats, warmup):
    """Return steps in the form of frames.load_steps, from each repeat's seconds per rank."""
    rows = []
    for repeat, ranks in enumerate(repeats, 1):
        for rank, times in enumerate(ranks):
            for step, seconds in enumerate(times, 1):
                rows.append((repeat, rank, step, seconds, 0.0, 4, 7.0, 1, step > warmup))
    return pd.DataFrame(rows, columns=[*RawStep._fields, "measured"])


def test_fixed_and_steady_throughput_equal_hand_arithmetic():
    times = [3.0] * 30 + [1.0] * 90
    (profile,) = profile_repeats(frame([times], warmup=20))
    # 100 steps of 4 samples: 10 steps of 3 s, 90 of 1 s.
    assert profile.fixed == pytest.approx(400 / 120)
    assert profile.steady == pytest.approx(4.0)
    assert profile.disagreement == pytest.approx(0.2)


def test_the_slowest_rank_determines_the_throughput():
    (profile,) = profile_repeats(frame([[1.0] * 40, [2.0] * 40], warmup=10))
    assert profile.fixed == pytest.approx(8 / 2)


def test_a_repeat_with_missing_steps_has_no_profile():
    assert profile_repeats(frame([[1.0] * 40, [2.0] * 39], warmup=10)) == []
    assert profile_repeats(frame([[1.0] * 5], warmup=10)) == []
