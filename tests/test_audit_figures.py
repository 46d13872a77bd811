"""Throughputs recomputed from logs, by each statistic that suites use."""

from statistics import harmonic_mean, mean, median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made.logs import FACTS, by_statistic, make_log, windows

from perfkit.audit.recompute import Figures


@pytest.mark.parametrize(
    ("period", "steps_per_second"),
    [("protocol", 100 / 20), ("all", 150 / 49), ("warm", 130 / 32)],
)
def test_samples_over_time_is_known_for_each_period(period, steps_per_second):
    seconds = np.array([9.0, 8.0, *[2.0] * 10, *[4.0] * 3])
    figure = by_statistic(make_log(windows(15, seconds=seconds)))["samples/time", period]
    assert figure.per_device == pytest.approx(256 * steps_per_second)
    assert figure.throughput == pytest.approx(8 * 256 * steps_per_second)


@settings(max_examples=40, deadline=None)
@given(
    rates=st.lists(st.floats(1, 1e5), min_size=1, max_size=40),
    each=st.integers(1, 12),
)
def test_every_statistic_matches_its_definition(rates, each):
    log = make_log(windows(len(rates), each, rate=rates), rate_of="all")
    expected = {
        "samples/time": harmonic_mean(rates),
        "mean of rates": mean(rates),
        "harmonic mean": harmonic_mean(rates),
        "median": median(rates),
        "last print": rates[-1],
        "first print": rates[0],
        "maximum": max(rates),
    }
    figures = by_statistic(log)
    for statistic, value in expected.items():
        figure = figures[statistic, "all"]
        assert figure.throughput == pytest.approx(value, rel=1e-12)
        assert figure.per_device == pytest.approx(value / 8, rel=1e-12)


def test_without_an_epoch_with_all_steps_the_longest_is_used():
    short, again = windows(4, seconds=2.0), windows(6, seconds=2.0, run=1)
    long = windows(7, seconds=4.0, epoch=1)
    figure = by_statistic(make_log(short, long, again))["samples/time", "protocol"]
    assert (figure.first, figure.last, figure.steps) == (21, 70, 50)
    assert figure.per_device == 640.0


def test_a_compilation_in_the_warm_up_is_not_steady():
    seconds = np.full(200, 0.1)
    seconds[[0, 4, 100]] = [60.0, 30.0, 0.5]
    figure = by_statistic(make_log(windows(200, 1, seconds=seconds)))["samples/time", "steady"]
    assert figure.first == 6
    assert figure.per_device == pytest.approx(256 * 195 / (0.1 * 194 + 0.5))


def test_an_unknown_device_count_or_batch_size_is_not_guessed():
    figures = by_statistic(make_log(windows(rate=100.0, seconds=2.0), facts={}))
    assert figures["mean of rates", "all"].throughput is None
    assert figures["mean of rates", "all"].per_device == 100.0
    assert ("clock", "all") not in figures
    of_all = by_statistic(make_log(windows(rate=100.0), facts={}, rate_of="all"))
    assert of_all["mean of rates", "all"].per_device is None


def test_a_figure_has_the_rounding_error_of_the_printed_digits():
    step_seconds = 0.187163
    rows = windows(12, seconds=10 * round(step_seconds, 5))
    figure = by_statistic(make_log(rows))["samples/time", "all"]
    exact = 8 * 256 / step_seconds
    error = abs(figure.throughput - exact)
    assert 0 < error <= figure.rounding * exact < 1e-3 * exact


def test_the_slowest_of_the_ranks_with_most_steps_is_used():
    fast, slow = (windows(12, seconds=2.0 * rank, rank=rank) for rank in (1, 2))
    short = windows(9, seconds=9.0, rank=3)
    log = make_log(short, fast, slow)
    assert {*Figures(log).rows["rank"]} == {2}
    assert by_statistic(log)["samples/time", "all"].per_device == 640.0


@pytest.mark.parametrize(
    ("reader", "share", "rate"), [("in", 0.25, 1280.0), ("apart", 0.2, 1024.0)]
)
def test_data_wait_is_a_share_of_the_time_including_it(reader, share, rate):
    log = make_log(windows(12, seconds=2.0, reader=0.5), reader=reader)
    assert Figures(log).input_share == pytest.approx(share)
    assert by_statistic(log)["samples/time", "all"].per_device == pytest.approx(rate)


def test_tokens_are_counted_by_the_sequence_length():
    facts = FACTS | {"model": "gpt", "batch_size": 4, "sequence_length": 64}
    figures = by_statistic(make_log(windows(12, seconds=5.0), facts=facts))
    figure = figures["samples/time", "protocol"]
    assert figure.per_device == pytest.approx(4 * 64 / 0.5)
    assert figure.throughput == pytest.approx(8 * 4 * 64 / 0.5)


# Seconds of a step.


def step_times(log):
    """Return the step times of a log by period and basis."""
    return {(each.period, each.basis): each for each in Figures(log).step_times}


def test_seconds_of_a_step_are_known_by_the_lines_clock():
    rows = windows(13, at=np.append(0.0, np.cumsum([3.0] * 11 + [30.0])))
    step_time = step_times(make_log(rows, facts={}))["all", "clock"]
    assert (step_time.first, step_time.last, step_time.prints) == (11, 130, 12)
    assert step_time.median_seconds == pytest.approx(0.3)
    assert step_time.mean_seconds == pytest.approx(63 / 120)
