"""The numbers of a repeat, from the raw events of its ranks."""

import pytest

from perfkit.config import Protocol
from perfkit.repeat import numbers

PROTOCOL = Protocol.named("quick", warmup_steps=1, measured_steps=2, repeats=1)


def rank(window_seconds, alone_seconds=None, samples=8):
    step = {"event": "step", "seconds": window_seconds / 2, "data_wait_seconds": 0.1}
    return [
        {"event": "start"},
        *({**step, "step": n, "samples": samples // 2} for n in (1, 2, 3)),
        *({"event": "loss", "step": n, "value": 4.0 - n} for n in (1, 2, 3)),
        {"event": "window", "samples": samples, "seconds": window_seconds},
        {
            "event": "end",
            "memory_bytes": 1,
            "alone_seconds": alone_seconds,
            "skipped_steps": None,
            "loss_scale": None,
        },
    ]


def test_throughput_is_all_samples_over_the_slowest_ranks_window():
    repeat = numbers(1, PROTOCOL, [rank(2.0), rank(2.5), rank(2.4)], 9.0)
    assert repeat.throughput == 3 * 8 / 2.5
    assert repeat.steps_per_second == 2 / 2.5


def test_one_of_two_ranks_that_is_20_percent_slower_costs_what_arithmetic_says():
    """All ranks wait for it: the throughput is that of its pace for every sample."""
    alike = numbers(1, PROTOCOL, [rank(2.0, 1.0), rank(2.0, 1.0)], 9.0)
    slower = numbers(1, PROTOCOL, [rank(2.4, 1.0), rank(2.4, 1.2)], 9.0)
    assert slower.throughput / alike.throughput == pytest.approx(1 / 1.2)
    assert (alike.straggler, slower.straggler) == (None, 1)


@pytest.mark.parametrize(
    ("alone", "straggler"),
    [([1.0], None), ([1.0, 1.05], None), ([1.2, 1.0], 0), ([1.0, 1.3, 1.0, 1.2], 1)],
)
def test_a_straggler_is_named_only_if_it_takes_a_tenth_longer_than_the_others(alone, straggler):
    events = [rank(2.0, seconds) for seconds in alone]
    assert numbers(1, PROTOCOL, events, 9.0).straggler == straggler


def test_steps_of_the_warm_up_are_not_in_the_numbers():
    events = rank(2.0)
    events[1] |= {"seconds": 100.0, "data_wait_seconds": 100.0}
    repeat = numbers(1, PROTOCOL, [events], 9.0)
    assert repeat.step_seconds.maximum == 1.0
    assert repeat.data_wait_share == pytest.approx(0.2 / 2.0)
    assert (repeat.loss_first, repeat.loss_last) == (3.0, 1.0)
