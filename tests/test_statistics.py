"""Median intervals against textbook levels, properties and simulations."""

import pytest
import simulations
from hypothesis import given
from hypothesis import strategies as st
from runner import share_interval

from perfkit.measuring.statistics import (
    median_interval,
    outliers,
    relative_width,
)

VALUES = st.lists(st.floats(0.1, 1e6), min_size=2, max_size=30)


@pytest.mark.parametrize(
    ("n", "k", "level"),
    [
        (2, 1, 0.5),
        (5, 1, 0.9375),
        (6, 1, 0.96875),
        (7, 1, 0.984375),
        (9, 2, 0.9609),
        (10, 2, 0.9785),
    ],
)
def test_the_interval_is_the_narrowest_at_the_level_or_the_range(n, k, level):
    values = [float(i) for i in range(1, n + 1)]
    interval = median_interval(values)
    assert (interval.low, interval.high) == (k, n + 1 - k)
    assert interval.level == pytest.approx(level, abs=5e-5)


@given(VALUES, st.randoms())
def test_results_do_not_depend_on_the_order_of_values(values, random):
    shuffled = random.sample(values, len(values))
    assert median_interval(shuffled) == median_interval(values)


def test_one_value_has_no_interval():
    assert median_interval([4.2]) is None


def test_outliers_follow_the_modified_z_score():
    values = [10.0, 10.1, 9.9, 10.2, 9.8, 10.05, 15.0]
    assert outliers(values) == [6]
    # 0.6745 * 0.3 / 0.05 is over 3.5, 0.6745 * 0.25 / 0.05 is not.
    assert outliers([1.0, 1.05, 0.95, 1.0, 1.05, 0.95, 1.3, 1.25]) == [6]
    assert outliers([1.0, 1.0, 1.0, 2.0]) == []


def test_relative_width_needs_an_interval_at_the_level():
    values = [98.0, 99.0, 100.0, 101.0, 102.0]
    assert relative_width(values, 0.9) == pytest.approx(0.04)
    assert relative_width(values, 0.95) is None
    assert relative_width([1.0]) is None


@pytest.mark.parametrize("noise", simulations.NOISE)
@pytest.mark.parametrize("n", simulations.REPEATS)
def test_the_interval_covers_the_median_at_its_level(noise, n):
    covered, printed = simulations.median_coverage(noise, n, simulations=10_000)
    assert covered == pytest.approx(printed, abs=0.01)


@pytest.mark.parametrize("noise", simulations.NOISE)
def test_stopping_by_interval_width_keeps_the_level(noise):
    covered, _level, repeats = simulations.stopped(noise, 0.01, simulations=500)
    # 500 simulations have an error of about 2 points.
    assert covered >= 0.93
    assert repeats < 100


def test_the_interval_of_a_share_is_exact():
    # For 0 hits: 1 - (alpha / 2) ** (1 / n); mirrored for n hits.
    none = share_interval(0, 10)
    assert none.low == 0
    assert none.high == pytest.approx(1 - 0.025**0.1)
    assert none.level == 0.95
    all_of_them = share_interval(10, 10)
    assert all_of_them.low == pytest.approx(0.025**0.1)
    assert all_of_them.high == 1
