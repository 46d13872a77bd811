"""Presets of distributed options: their published values and their effect in this Paddle."""

import re

import paddle
import pytest

from perfkit.core.config import choices
from perfkit.core.frameworks.paddle.presets import STRATEGIES, precision_of
from perfkit.core.frameworks.paddle.strategy import FLAGS, Strategy
from perfkit.core.request import RequestError
from perfkit.core.request.plan import plan
from perfkit.core.request.resolve import resolve

PRECISIONS = {"none": None, "fleetx-auto": "auto"}
PRECISIONS |= {f"{page}-{p}": p for page in ("fleetx", "fleetx-vgg16") for p in ("fp32", "amp")}
"""Preset -> its precision."""


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.setattr("perfkit.core.frameworks.facts.visible_gpus", list)


def applied(strategy="fleetx-fp32", **changes):
    values = {"model": "resnet50", "device": "cpu", "batch_size": 2, "layout": "NCHW"}
    values |= {"execution": "dynamic", "strategy": strategy, "processes": 1}
    return Strategy(resolve(values | changes))


def outcome_of(strategy, prefix):
    """Return the states and the joined reasons of options with this prefix."""
    outcomes = [item for name, item in strategy.outcomes.items() if name.startswith(prefix)]
    return {item["state"] for item in outcomes}, " ".join(item["how"] for item in outcomes)


def test_published_fp32_and_amp_presets_differ_only_in_amp():
    for page, options in (("fleetx", 12), ("fleetx-vgg16", 6)):
        assert STRATEGIES[f"{page}-amp"] == STRATEGIES[f"{page}-fp32"] | {"amp": True}
        assert len(STRATEGIES[f"{page}-fp32"]) == options
    assert STRATEGIES["fleetx-vgg16-fp32"].items() <= STRATEGIES["fleetx-fp32"].items()
    assert {*choices("strategy")} == {*STRATEGIES} == {*PRECISIONS}


@pytest.mark.parametrize("execution", ["dynamic", "static"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("preset", STRATEGIES)
def test_every_option_has_a_value_state_and_reason(preset, ranks, execution):
    outcomes = applied(preset, processes=ranks, execution=execution).outcomes
    assert {name: outcome["value"] for name, outcome in outcomes.items()} == STRATEGIES[preset]
    for outcome in outcomes.values():
        assert outcome["state"] in ("applied", "ignored", "missing")
        assert len(outcome["how"]) > 10


def test_gradient_buckets_have_the_presets_size_with_several_ranks():
    alone, two = applied(), applied(processes=2)
    assert outcome_of(alone, "fuse_grad") == ({"ignored"}, "one process exchanges no gradients")
    assert outcome_of(two, "fuse_grad_size_in_MB")[0] == {"applied"}
    assert (alone.data_parallel, two.data_parallel) == ({}, {"comm_buffer_size": 16})


def test_available_flags_are_applied_and_others_missing(monkeypatch):
    if not paddle.is_compiled_with_cuda():
        # A CPU build has no cuDNN flags.
        missing = applied()
        for flag in FLAGS:
            assert outcome_of(missing, flag) == (
                {"missing"},
                f"this build of Paddle has no FLAGS_{flag}",
            )
    was_set = {}
    monkeypatch.setattr(paddle, "set_flags", was_set.update)
    found = applied()
    assert was_set == {f"FLAGS_{option}": STRATEGIES["fleetx-fp32"][option] for option in FLAGS}
    for flag in FLAGS:
        states, how = outcome_of(found, flag)
        assert states == {"applied"} and "paddle.set_flags" in how


def test_program_options_apply_only_to_static_graphs_of_paddle_2():
    assert outcome_of(applied(), "build_strategy.")[0] == {"ignored"}
    assert "dynamic" in outcome_of(applied(), "build_strategy.")[1]
    found = applied(execution="static")
    states, how = outcome_of(found, "build_strategy.")
    if re.match(r"[12]\.", paddle.__version__):
        assert states == {"applied"}
        assert found.to_static["build_strategy"].fuse_bn_act_ops
    else:
        assert (states, found.to_static) == ({"ignored"}, {})
        assert how.count("build_cinn_pass") == 3


def test_auto_is_reported_as_ignored():
    found = applied("fleetx-auto", precision="auto")
    states, how = outcome_of(found, "auto")
    assert states == {"ignored"} and "nothing was switched on" in how
    assert (found.data_parallel, found.to_static) == ({}, {})


@pytest.mark.parametrize(("preset", "precision"), PRECISIONS.items())
def test_a_preset_rejects_a_different_precision(preset, precision):
    assert precision_of(preset) == precision
    for asked in ("fp32", "amp", "pure_fp16", "bf16", "auto"):
        # Request a GPU without checking the machine: a CPU has no lower precision.
        request = {"gpus": 1, "input": "synthetic", "strategy": preset, "precision": asked}
        if asked == precision or (precision is None and asked != "auto"):
            assert plan("resnet50", request, ["machine"]).config.precision == asked
            continue
        expected = (
            f"strategy: {preset} is a preset of precision={precision}, "
            f"but precision={asked} was requested"
        )
        if asked == "auto":
            expected = "precision: 'auto' needs strategy=fleetx-auto"
        with pytest.raises(RequestError) as refused:
            plan("resnet50", request, ["machine"])
        assert refused.value.problems == [expected]
