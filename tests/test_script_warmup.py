"""The end of a script's warm-up, which the driver names ahead of all ranks."""

import pytest
from made import event
from pydantic_core import to_json

from perfkit.core.config import Protocol
from perfkit.core.driver import warmup
from perfkit.core.driver.warmup import Follower, Lead, ScriptWarmup, step_ahead
from perfkit.core.timing.raw_file import rank_file


class Rank:
    """Rank 0 of a script, whose steps take `seconds`, and what the driver reads of it."""

    def __init__(self, folder, protocol, seconds):
        self.path = rank_file(folder, 0)
        self.seconds = seconds
        self.taken = 0
        self.follower = Follower(self.path, protocol)

    def take(self, steps):
        """Write the events of further steps, without the driver's reading them."""
        with self.path.open("ab") as stream:
            for step in range(self.taken + 1, self.taken + steps + 1):
                line = event("step", step=step, seconds=self.seconds, samples=1)
                stream.write(to_json(line) + b"\n")
        self.taken += steps

    def read(self, steps):
        self.take(steps)
        self.follower.read_on()
        return self.follower


@pytest.fixture
def rank(tmp_path):
    return lambda protocol, seconds: Rank(tmp_path, protocol, seconds)


LEAD = Lead(steps=3, seconds=1.0)
AUTO = Protocol.named("steady", warmup_steps="auto", measured_steps=20)


def test_the_named_step_lies_ahead_of_what_rank_0_did_meanwhile(rank, monkeypatch):
    first = rank(AUTO, seconds=0.1)
    end = ScriptWarmup(AUTO, LEAD)

    def is_warmed_up(seconds, *_):
        # The rank goes on while the driver tests.
        first.take(5)
        return len(seconds) >= 40

    monkeypatch.setattr("perfkit.core.steady.is_warmed_up", is_warmed_up)
    assert end.last_step(first.read(30)) is None
    named = end.last_step(first.read(10))
    assert named == first.taken + 3 + 10
    assert end.last_step(first.read(100)) is None


@pytest.mark.parametrize(
    ("seconds", "lead"),
    [(0.001, 1003), (0.3, 7), (60.0, 4)],
)
def test_the_lead_is_a_time_and_a_number_of_steps(seconds, lead):
    assert step_ahead(200, [seconds] * 200, LEAD) == 200 + lead


def test_recent_steps_alone_predict_the_time_of_the_next_ones():
    slow_at_first = [10.0] * 100 + [0.01] * 50
    assert step_ahead(150, slow_at_first, LEAD) == 150 + 3 + 100


def test_steps_without_a_duration_have_a_finite_lead():
    assert step_ahead(1, [0.0], LEAD) > 10**6


def test_fast_steps_that_are_steady_are_named_up_to_the_limit(rank):
    # The limit of 1000 steps is near, but is no reason to call them unsteady.
    first = rank(AUTO, seconds=0.001)
    end = ScriptWarmup(AUTO, LEAD)
    assert end.last_step(first.read(500)) == 1000


def test_a_warm_up_has_at_least_its_fewest_steps(rank):
    protocol = Protocol.named("steady", warmup_steps=300, warmup_limit=400, measured_steps=20)
    first = rank(protocol, seconds=60.0)
    assert ScriptWarmup(protocol, LEAD).last_step(first.read(50)) == 300


def test_the_driver_ends_a_warm_up_that_takes_too_long(rank, monkeypatch):
    protocol = Protocol.named("steady", warmup_steps="auto", warmup_seconds=30)
    first = rank(protocol, seconds=1.0)
    end = ScriptWarmup(protocol, LEAD)
    now = 100.0
    monkeypatch.setattr(warmup.time, "monotonic", lambda: now)
    assert end.last_step(first.read(3)) is None
    now = 129.0
    assert end.last_step(first.read(3)) is None
    now = 130.0
    assert end.last_step(first.read(0)) == 6 + 3 + 1


def test_a_fixed_warm_up_needs_no_word_of_the_driver(rank):
    protocol = Protocol.named("published")
    first = rank(protocol, seconds=1.0)
    assert ScriptWarmup(protocol, LEAD).last_step(first.read(500)) is None


def test_no_step_is_named_once_a_rank_has_ended_its_warm_up(rank):
    first = rank(AUTO, seconds=0.001)
    end = ScriptWarmup(AUTO, LEAD)
    first.take(1000)
    with first.path.open("ab") as stream:
        over = event("warmup", steps=1000, seconds=1.0, ended_by="steps")
        stream.write(to_json(over) + b"\n")
    assert end.last_step(first.read(10)) is None
