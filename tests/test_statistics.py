"""The interval for the median, against textbook levels and by simulation-free facts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.statistics import median_interval, summary

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
def test_the_interval_is_the_narrowest_that_reaches_the_level_or_else_the_range(n, k, level):
    interval = median_interval([float(i) for i in range(1, n + 1)])
    assert (interval.low, interval.high) == (k, n + 1 - k)
    assert interval.level == pytest.approx(level, abs=5e-5)


def test_one_value_has_no_interval():
    assert median_interval([4.2]) is None


@given(VALUES, st.randoms())
def test_the_order_of_values_changes_nothing(values, random):
    shuffled = random.sample(values, len(values))
    assert median_interval(shuffled) == median_interval(values)
    assert summary(shuffled) == summary(values)


@given(VALUES)
def test_a_summary_is_in_order(values):
    ordered = list(summary(values).values())
    assert ordered == sorted(ordered)


def test_a_summary_of_one_value_is_that_value():
    assert set(summary([3.0]).values()) == {3.0}
