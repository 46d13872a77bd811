"""The end of an automatic warm-up, which the driver names ahead of all ranks."""

import json

import pytest
from made.results import event, script_config
from pydantic_core import to_json

from perfkit.measuring.driver import warmup
from perfkit.measuring.driver.warmup import Follower, WarmupEnd
from perfkit.measuring.protocol import Protocol
from perfkit.timing.devices import CpuDevice
from perfkit.timing.job import Job
from perfkit.timing.raw_file import rank_file, steady_file
from perfkit.timing.recorder import StepRecorder
from perfkit.timing.warmup import LOOK_SECONDS, MOST_AHEAD, Warmup


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


AUTO = Protocol.named("steady", warmup_steps="auto", measured_steps=20)


LONG = Protocol.named("steady", warmup_steps=1, warmup_limit=10**6, measured_steps=20)


def end_of(protocol, processes=2, **changes):
    """Return what ends the warm-up of ranks, by default on the CPU of one node."""
    values = {"device": "cpu", "gpus": 0, "processes": processes, "nodes": 1}
    return WarmupEnd(script_config(**values | changes), protocol)


def test_the_named_step_lies_ahead_of_what_rank_0_did_meanwhile(rank, monkeypatch):
    first = rank(AUTO, seconds=0.1)
    end = end_of(AUTO)

    def is_warmed_up(seconds, *_):
        # The rank goes on while the driver tests.
        first.take(5)
        return len(seconds) >= 40

    monkeypatch.setattr("perfkit.measuring.steady.is_warmed_up", is_warmed_up)
    assert end.start(first.read(30)) is None
    named = end.start(first.read(10))
    assert named.last_step == first.taken + 3 + 10
    assert end.start(first.read(100)) is None


@pytest.mark.parametrize(
    ("seconds", "lead"),
    [(0.001, 1003), (0.3, 7), (60.0, 4)],
)
def test_the_lead_is_a_time_and_a_number_of_steps(rank, seconds, lead):
    first = rank(LONG, seconds)
    assert end_of(LONG).start(first.read(200)).last_step == 200 + lead


@pytest.mark.parametrize(
    ("place", "lead"),
    [
        ({"framework": "jax"}, MOST_AHEAD + 3 + 1),
        ({"framework": "torch"}, 3 + 1),
        ({"framework": "torch", "device": "gpu", "gpus": 8}, MOST_AHEAD + 3 + 1),
        ({"framework": "torch", "device": "gpu", "gpus": 8, "nodes": 2}, MOST_AHEAD + 3 + 5),
    ],
)
def test_the_lead_exceeds_the_steps_that_a_rank_may_submit(rank, place, lead):
    first = rank(LONG, seconds=1.0)
    assert end_of(LONG, **place).start(first.read(200)).last_step == 200 + lead


class QueuedDevice(CpuDevice):
    """Completes work only when it is waited for, and then all that was submitted before."""

    complete = 0
    submitted = 0

    def record_event(self, _result=None):
        self.submitted += 1
        return self.submitted

    def is_complete(self, event):
        return event <= self.complete

    def wait_for(self, event):
        self.complete = max(self.complete, event)


class SingleRank:
    """The warm-up of a single rank, by a clock of its own."""

    def __init__(self, folder, device=None, **limits):
        job = {"task": "train", "framework": "torch", "cores": [], "static_modules": []}
        job |= {"device": "gpu", "ranks": 1, "rank_variable": "", "warmup_steps": 1}
        job |= {"raw_folder": str(folder), "measured_steps": 5, "warmup_limit": 1000}
        job |= {"warmup_seconds": None, "measured_seconds": 0}
        self.now, self.events = 0.0, []
        self.device = device or CpuDevice(lambda: self.now)
        self.recorder = StepRecorder(self.device, lambda: self.now, self.write, 1, False)
        job = Job(**job | limits)
        self.warmup = Warmup(job, self.recorder, began=0.0, clock=lambda: self.now)

    def write(self, lines):
        self.events.extend(map(json.loads, lines))

    def is_over(self, step):
        self.now += 2 * LOOK_SECONDS
        return self.warmup.window_after(step) is not None


def test_a_rank_submits_few_steps_ahead_of_its_device_until_its_warm_up_ends(tmp_path):
    rank = SingleRank(tmp_path, device=QueuedDevice())
    for step in range(1, 101):
        rank.recorder.stop(step, None, None, None)
        assert not rank.is_over(step)
        assert len(rank.recorder.pending) <= MOST_AHEAD
    assert rank.events[-1]["step"] == 100 - MOST_AHEAD


def test_a_single_rank_ends_its_warm_up_as_soon_as_the_driver_calls_it_steady(tmp_path):
    rank = SingleRank(tmp_path)
    assert not any(map(rank.is_over, range(1, 8)))
    steady_file(tmp_path).write_text("5 5")
    assert rank.is_over(8)
    (end,) = rank.events
    assert (end["steps"], end["ended_by"]) == (8, "steady")


def test_a_warm_up_ends_at_its_limits_without_the_driver(tmp_path):
    rank = SingleRank(tmp_path, warmup_limit=7, warmup_seconds=30)
    assert not any(map(rank.is_over, range(1, 7)))
    assert rank.is_over(7)
    assert rank.events[0]["ended_by"] == "steps"
    rank = SingleRank(tmp_path, warmup_seconds=30)
    rank.now = 31.0
    assert rank.is_over(1)
    assert rank.events[0]["ended_by"] == "seconds"


def test_recent_steps_alone_predict_the_time_of_the_next_ones(rank):
    first = rank(LONG, seconds=10.0)
    first.take(100)
    first.seconds = 0.01
    first.take(50)
    end = end_of(LONG)
    end.test.ends_with = lambda _seconds: True
    assert end.start(first.read(0)).last_step == 150 + 3 + 100


def test_fast_steps_that_are_steady_are_named_up_to_the_limit(rank):
    # The limit of 1000 steps is near, but is no reason to call them unsteady.
    first = rank(AUTO, seconds=0.001)
    end = end_of(AUTO)
    assert end.start(first.read(500)).last_step == 1000


def test_a_warm_up_has_at_least_its_fewest_steps(rank):
    protocol = Protocol.named("steady", warmup_steps=300, warmup_limit=400, measured_steps=20)
    first = rank(protocol, seconds=60.0)
    assert end_of(protocol).start(first.read(50)).last_step == 300


def test_the_driver_ends_a_warm_up_that_takes_too_long(rank, monkeypatch):
    protocol = Protocol.named("steady", warmup_steps="auto", warmup_seconds=30)
    first = rank(protocol, seconds=1.0)
    end = end_of(protocol)
    now = 100.0
    monkeypatch.setattr(warmup.time, "monotonic", lambda: now)
    assert end.start(first.read(3)) is None
    now = 129.0
    assert end.start(first.read(3)) is None
    now = 130.0
    assert end.start(first.read(0)).last_step == 6 + 3 + 1


def test_a_fixed_warm_up_needs_no_word_of_the_driver(rank):
    protocol = Protocol.named("published")
    first = rank(protocol, seconds=1.0)
    assert end_of(protocol).start(first.read(500)) is None


def test_no_step_is_named_once_a_rank_has_ended_its_warm_up(rank):
    first = rank(AUTO, seconds=0.001)
    end = end_of(AUTO)
    first.take(1000)
    with first.path.open("ab") as stream:
        over = event("warmup", steps=1000, seconds=1.0, window_steps=20, ended_by="steps")
        stream.write(to_json(over) + b"\n")
    assert end.start(first.read(10)) is None


# Windows of seconds.


def test_a_single_rank_chooses_a_window_of_seconds_by_its_last_steps(tmp_path):
    rank = SingleRank(tmp_path, measured_seconds=6, warmup_limit=None)
    window, step = None, 0
    while window is None:
        step += 1
        if step > 1:
            rank.now += 0.5 if step < 4 else 0.01
            rank.recorder.stop(step, None, None, None)
        window = rank.warmup.window_after(step)
    assert rank.now == pytest.approx(2.0, abs=0.011)
    assert window == 600
    (end,) = [each for each in rank.events if each["event"] == "warmup"]
    assert (end["ended_by"], end["window_steps"]) == ("length", 600)


def test_slow_steps_have_the_protocols_numbers(tmp_path):
    rank = SingleRank(tmp_path, measured_seconds=3, warmup_limit=None)
    assert rank.warmup.window_after(1) is None
    rank.now += 12.0
    rank.recorder.stop(2, None, None, None)
    assert rank.warmup.window_after(2) == 5


def test_several_ranks_are_told_the_steps_of_a_window_of_seconds(rank, monkeypatch):
    protocol = Protocol.named("quick")
    first, end = rank(protocol, seconds=0.01), end_of(protocol)
    now = 100.0
    monkeypatch.setattr(warmup.time, "monotonic", lambda: now)
    assert end.start(first.read(50)) is None
    now = 101.1
    assert end.start(first.read(60)) == (110 + 3 + 100, 300)
