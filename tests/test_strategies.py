"""Presets of distributed options: their published values and their effect in this Paddle."""

import re

import paddle
import pytest

from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import plan
from perfkit.training.options import Options
from perfkit.training.paddle.presets import STRATEGIES, precision_of
from perfkit.training.paddle.strategy import FLAGS, Strategy

PRECISIONS = {
    "none": None,
    "fleetx-auto": "auto",
    "fleetx-fp32": "fp32",
    "fleetx-amp": "amp",
    "fleetx-vgg16-fp32": "fp32",
    "fleetx-vgg16-amp": "amp",
}
"""Preset -> its precision."""


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", list)


def applied(strategy="fleetx-fp32", **changes):
    given = {"model": "resnet50", "device": "cpu", "strategy": strategy} | changes
    return Strategy(Options(framework="paddle", **given))


def states_of(strategy, prefix):
    """Return the states of the options with this prefix."""
    outcomes = strategy.outcomes.items()
    return {option["state"] for name, option in outcomes if name.startswith(prefix)}


def reasons_of(strategy, prefix):
    """Return the joined reasons of the options with this prefix."""
    outcomes = strategy.outcomes.items()
    return " ".join(option["how"] for name, option in outcomes if name.startswith(prefix))


@pytest.mark.parametrize(("page", "options"), [("fleetx", 12), ("fleetx-vgg16", 6)])
def test_published_fp32_and_amp_presets_differ_only_in_amp(page, options):
    fp32 = STRATEGIES[f"{page}-fp32"]
    assert len(fp32) == options
    assert STRATEGIES[f"{page}-amp"] == fp32 | {"amp": True}


@pytest.mark.parametrize("preset", STRATEGIES)
def test_every_option_has_a_value_state_and_reason(preset):
    outcomes = applied(preset, ranks=2, execution="static").outcomes
    assert {name: option["value"] for name, option in outcomes.items()} == STRATEGIES[preset]
    for option in outcomes.values():
        assert option["state"] in ("applied", "ignored", "missing")
        assert len(option["how"]) > 10


def test_gradient_buckets_are_ignored_with_one_rank():
    strategy = applied()
    assert states_of(strategy, "fuse_grad") == {"ignored"}
    assert reasons_of(strategy, "fuse_grad") == "one process exchanges no gradients"
    assert strategy.data_parallel == {}


def test_gradient_buckets_have_the_presets_size_with_several_ranks():
    strategy = applied(ranks=2)
    assert states_of(strategy, "fuse_grad_size_in_MB") == {"applied"}
    assert strategy.data_parallel == {"comm_buffer_size": 16}


def test_flags_of_this_build_are_applied(monkeypatch):
    was_set = {}
    monkeypatch.setattr(paddle, "set_flags", was_set.update)
    strategy = applied()
    preset = STRATEGIES["fleetx-fp32"]
    assert was_set == {f"FLAGS_{flag}": preset[flag] for flag in FLAGS}
    for flag in FLAGS:
        assert states_of(strategy, flag) == {"applied"}


def test_flags_that_a_build_lacks_are_missing():
    if paddle.is_compiled_with_cuda():
        pytest.skip("only a CPU build has no cuDNN flags")
    strategy = applied()
    for flag in FLAGS:
        assert states_of(strategy, flag) == {"missing"}
        assert reasons_of(strategy, flag) == f"this build of Paddle has no FLAGS_{flag}"


def test_program_options_are_ignored_in_a_dynamic_graph():
    strategy = applied(execution="dynamic")
    assert states_of(strategy, "build_strategy.") == {"ignored"}
    assert "dynamic" in reasons_of(strategy, "build_strategy.")


def test_program_options_apply_only_to_static_graphs_of_paddle_2():
    strategy = applied(execution="static")
    states = states_of(strategy, "build_strategy.")
    if re.match(r"[12]\.", paddle.__version__):
        assert states == {"applied"}
        assert strategy.to_static["build_strategy"].fuse_bn_act_ops
    else:
        assert states == {"ignored"}
        assert strategy.to_static == {}
        assert reasons_of(strategy, "build_strategy.").count("build_cinn_pass") == 3


def test_auto_is_reported_as_ignored():
    strategy = applied("fleetx-auto", precision="auto")
    assert states_of(strategy, "auto") == {"ignored"}
    assert "nothing was switched on" in reasons_of(strategy, "auto")
    assert strategy.data_parallel == strategy.to_static == {}


def planned(preset, precision):
    """Plan for a GPU without checking the machine: a CPU has no lower precision."""
    request = {"gpus": 1, "input": "synthetic", "strategy": preset, "precision": precision}
    return plan("resnet50", request, ["machine"]).config


@pytest.mark.parametrize(("preset", "precision"), PRECISIONS.items())
def test_a_preset_has_a_precision(preset, precision):
    assert precision_of(preset) == precision
    if precision:
        assert planned(preset, precision).work.precision == precision


def test_a_preset_rejects_a_different_precision():
    with pytest.raises(RequestError) as refused:
        planned("fleetx-fp32", "amp")
    assert refused.value.problems == [
        "strategy: fleetx-fp32 is a preset of precision=fp32, but precision=amp was requested"
    ]


def test_only_the_automatic_strategy_accepts_precision_auto():
    with pytest.raises(RequestError) as refused:
        planned("fleetx-fp32", "auto")
    assert refused.value.problems == ["precision: 'auto' needs strategy=fleetx-auto"]
