"""Automatic warm-up: planted step-time profiles, and ranks that the driver tells its end.

Short runs, with a fixed seed, of the claims in benchmarks/simulations.py.
"""

import numpy as np
import pytest
import simulations
from conftest import IN_WORKER
from made.results import event, rank_events, warnings_of

import perfkit
from perfkit.inputs.samples import make_images
from perfkit.measuring.driver.warmup import WarmupTest
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.summarize import summarize
from perfkit.measuring.steady import is_warmed_up
from perfkit.measuring.system.environment import usable_cores

RUNS = 20


@pytest.mark.parametrize("form", simulations.WARMUPS)
@pytest.mark.parametrize("noise", simulations.NOISE)
def test_planted_warm_ups_end_at_the_steady_level(form, noise):
    right, wrong, longer = simulations.ended_warm_ups(form, RUNS, noise)
    assert right >= 0.95
    assert wrong <= 0.05
    assert longer <= 300


def test_steadily_falling_steps_are_never_warmed_up():
    random = np.random.default_rng(20261122)
    test = WarmupTest(Protocol.named("steady"), None)
    course = 2 - np.arange(1000) / 1000
    seconds = course * (1 + random.normal(0, 0.01, 1000))
    for steps in range(5, 1001, 5):
        assert not test.ends_with(seconds[:steps].tolist())


def test_too_few_steps_are_never_warmed_up():
    assert not is_warmed_up([1.0] * 29, 5)
    assert is_warmed_up([1.0] * 30, 5)
    assert not is_warmed_up([1.0] * 99, 100)


def test_the_first_pass_over_the_data_is_warm_up_within_the_limit():
    protocol = Protocol.named("steady", warmup_limit=400)
    assert not WarmupTest(protocol, 300).ends_with([1.0] * 299)
    assert WarmupTest(protocol, 300).ends_with([1.0] * 300)
    assert WarmupTest(protocol, 401).ends_with([1.0] * 100)


def test_auto_warm_up_has_limits_and_a_fixed_warm_up_is_not_tested():
    auto = Protocol.named("published", warmup_steps="auto")
    assert auto.warmup_steps == 1
    assert auto.warmup_limit == 1000
    assert auto.warmup_seconds == 600
    longer = Protocol.named("steady", warmup_steps=20, warmup_limit=50)
    assert longer.warmup_steps == 20
    assert longer.warmup_limit == 50
    fixed = WarmupTest(Protocol.named("published"), None)
    assert not fixed.ends_with([1.0] * 500)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"warmup_seconds": 5}, "warmup_seconds: needs warmup_limit or warmup_steps=auto"),
        ({"warmup_limit": 10}, "warmup_limit: 10 is less than warmup_steps=20"),
    ],
)
def test_contradictory_warm_up_limits_are_rejected(given, problem):
    with pytest.raises(perfkit.RequestError, match=problem):
        perfkit.plan("resnet50", {"protocol": "published", **given})


@pytest.mark.slow
def test_paddle_ranks_agree_on_the_limit_without_tests_in_the_window(measure, monkeypatch):
    tested = []

    def is_warmed_up(seconds, *_):
        tested.append(len(seconds))
        return False

    monkeypatch.setattr("perfkit.measuring.steady.is_warmed_up", is_warmed_up)
    monkeypatch.setattr("perfkit.measuring.driver.warmup.load_test", lambda: None)
    steps = {"warmup_steps": "auto", "warmup_limit": 7, "measured_steps": 20}
    result = measure(input="synthetic", processes=2, **steps).result
    (repeat,) = result.complete_repeats
    assert repeat.warmup.steps == 7
    assert repeat.warmup.ended_by == "steps"
    assert max(tested, default=0) <= 7
    samples = sum(rank.samples for rank in repeat.ranks)
    slowest = max(rank.window_seconds for rank in repeat.ranks)
    assert repeat.throughput == samples / slowest
    threads = max(1, usable_cores() // 2)
    assert result.effective.variables["OMP_NUM_THREADS"] == str(threads)
    codes = {warning.code for warning in warnings_of(result)}
    assert "warm_up_limited" in codes


COLD = """
    import time
    from perfkit.inputs.images import Images
    real, warm = Images.__getitem__, set()

    def read(self, index):
        time.sleep(0 if index in warm else 0.25)
        warm.add(index)
        return real(self, index)

    Images.__getitem__ = read
"""
"""The first reading of each file is slow, as from a cold page cache."""


@pytest.mark.slow
def test_the_warm_up_outlasts_a_cold_first_pass_over_the_data(measure, plant, tmp_path):
    plant(IN_WORKER + COLD)
    # The 60 cold steps are as steady as the later ones, but slower.
    assert len([*make_images(tmp_path / "data", 60)]) == 60
    measurement = measure(
        framework="torch",
        input="dataloader",
        data_dir=str(tmp_path / "data"),
        dataloader_workers=1,
        batch_size=1,
        image_size=64,
        warmup_steps="auto",
        warmup_limit=120,
        measured_steps=5,
        timeout=290,
    )
    result = measurement.result
    assert result.status == "complete", result.failure
    steps = perfkit.load_steps(measurement.folder)
    is_cold = steps["step"] <= 60
    cold_wait = steps[is_cold]["data_wait_seconds"].mean()
    warm_wait = steps[~is_cold]["data_wait_seconds"].mean()
    assert cold_wait > 2 * warm_wait
    assert result.repeats[0].warmup.steps > 60


def warmed_up_events(warmup, count):
    end = event("warmup", steps=warmup, seconds=2.0 * warmup, ended_by="steady")
    seconds = [2.0] * warmup + [1.0] * count
    return [end, *rank_events(seconds, measured_steps=count)]


def test_the_window_begins_after_the_repeats_own_warm_up():
    protocol = Protocol.named("steady", measured_steps=4)
    repeat = summarize(1, protocol, [warmed_up_events(6, 4)], 20.0)
    assert repeat.step_seconds.maximum == 1.0
    assert repeat.warmup.steps == 6
