"""Presets of distributed options: what was published, and what this Paddle makes of them."""

import ast
import re

import paddle
import pytest

from perfkit.config import choices
from perfkit.frameworks.paddle.presets import STRATEGIES, code, precision_of
from perfkit.frameworks.paddle.strategy import FLAGS, apply
from perfkit.request.errors import RequestError
from perfkit.request.plan import plan
from perfkit.request.resolve import resolve

PRESETS = tuple(STRATEGIES)
OWNERS = {
    "strategy": "",
    "execution_strategy": "execution_strategy.",
    "build_strategy": "build_strategy.",
}


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.setattr("perfkit.request.plan.visible_gpus", list)


def options_set(source):
    """The options that Python code sets to a literal, and those it sets to another object."""
    literals, objects = {}, {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            target = node.targets[0]
            name = OWNERS[target.value.id] + target.attr
            if isinstance(node.value, ast.Constant):
                literals[name] = node.value.value
            else:
                objects[name] = node.value.id
    return literals, objects


def config(strategy="fleetx-fp32", **changes):
    values = {"model": "resnet50", "device": "cpu", "batch_size": 2, "layout": "NCHW"}
    values |= {"execution": "dynamic", "strategy": strategy, "processes": 1}
    return resolve(values | changes)


def states(outcomes):
    return {option: outcome["state"] for option, outcome in outcomes.items()}


def test_each_published_page_differs_from_its_fp32_table_to_its_amp_table_in_amp_alone():
    for page in ("fleetx", "fleetx-vgg16"):
        assert STRATEGIES[f"{page}-amp"] == STRATEGIES[f"{page}-fp32"] | {"amp": True}
    assert len(STRATEGIES["fleetx-fp32"]) == 12
    assert len(STRATEGIES["fleetx-vgg16-fp32"]) == 6
    assert STRATEGIES["fleetx-vgg16-fp32"].items() <= STRATEGIES["fleetx-fp32"].items()


def test_every_preset_can_be_asked_for_and_no_other():
    asked = choices("strategy")
    assert set(asked) == set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_code_of_a_preset_is_python_that_sets_exactly_its_options(preset):
    source = code(preset)
    compile(source, preset, "exec")
    literals, objects = options_set(source)
    assert literals == STRATEGIES[preset]
    # Options of a part take effect only once the part itself is handed over.
    parts = {option.split(".")[0] for option in STRATEGIES[preset] if "." in option}
    assert objects == {part: part for part in parts}


@pytest.mark.parametrize("preset", ["none", "fleetx-auto"])
def test_the_code_of_a_preset_runs(preset):
    """Only of these: Paddle 3 has no ExecutionStrategy to set the others' options on."""
    names = {}
    exec(code(preset), names)
    for option, value in STRATEGIES[preset].items():
        assert getattr(names["strategy"], option) == value


@pytest.mark.parametrize("execution", ["dynamic", "static"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_option_is_accounted_for_with_its_value_and_a_reason(preset, ranks, execution):
    outcomes = apply(config(preset, processes=ranks, execution=execution)).outcomes
    assert {name: outcome["value"] for name, outcome in outcomes.items()} == STRATEGIES[preset]
    for outcome in outcomes.values():
        assert outcome["state"] in ("applied", "ignored", "missing")
        assert len(outcome["how"]) > 10


def test_the_gradients_buckets_have_the_presets_size_where_there_are_ranks_to_exchange_them():
    alone, two = apply(config()), apply(config(processes=2))
    assert states(alone.outcomes)["fuse_grad_size_in_MB"] == "ignored"
    assert "one process" in alone.outcomes["fuse_grad_size_in_MB"]["how"]
    assert alone.data_parallel == {}
    assert states(two.outcomes)["fuse_grad_size_in_MB"] == "applied"
    assert two.data_parallel == {"comm_buffer_size": 16}


def test_a_cpu_build_has_no_flags_of_cudnn_and_nccl():
    if paddle.is_compiled_with_cuda():
        pytest.skip("this is a GPU build of Paddle")
    outcomes = apply(config()).outcomes
    for option in FLAGS:
        assert outcomes[option]["state"] == "missing"
        assert f"no FLAGS_{option}" in outcomes[option]["how"]


def test_a_flag_that_paddle_has_is_set_and_said_to_be(monkeypatch):
    was_set = {}
    monkeypatch.setattr(paddle, "set_flags", was_set.update)
    outcomes = apply(config()).outcomes
    assert was_set == {f"FLAGS_{option}": STRATEGIES["fleetx-fp32"][option] for option in FLAGS}
    assert {outcomes[option]["state"] for option in FLAGS} == {"applied"}
    assert "paddle.set_flags" in outcomes["cudnn_exhaustive_search"]["how"]


def build_options(outcomes):
    return [outcome for name, outcome in outcomes.items() if name.startswith("build_strategy.")]


def test_a_dynamic_graph_ignores_options_of_programs():
    for outcome in build_options(apply(config()).outcomes):
        assert outcome["state"] == "ignored"
        assert "dynamic" in outcome["how"]


def test_paddle_3_compiles_without_a_build_strategy_and_paddle_2_is_given_it():
    applied = apply(config(execution="static"))
    options = build_options(applied.outcomes)
    assert len(options) == 3
    if re.match(r"[12]\.", paddle.__version__):
        assert {option["state"] for option in options} == {"applied"}
        assert applied.to_static["build_strategy"].fuse_bn_act_ops
    else:
        assert {option["state"] for option in options} == {"ignored"}
        assert all("build_cinn_pass" in option["how"] for option in options)
        assert applied.to_static == {}


def test_auto_switches_nothing_on_and_says_so():
    applied = apply(config("fleetx-auto", precision="auto"))
    assert states(applied.outcomes) == {"auto": "ignored"}
    assert "nothing was switched on" in applied.outcomes["auto"]["how"]
    assert (applied.data_parallel, applied.to_static) == ({}, {})


@pytest.mark.parametrize(
    ("preset", "precision"),
    [
        ("none", None),
        ("fleetx-fp32", "fp32"),
        ("fleetx-amp", "amp"),
        ("fleetx-vgg16-fp32", "fp32"),
        ("fleetx-vgg16-amp", "amp"),
        ("fleetx-auto", "auto"),
    ],
)
def test_a_preset_stands_for_a_precision_and_a_request_for_another_is_refused(
    preset, precision
):
    assert precision_of(preset) == precision
    for asked in ("fp32", "amp", "pure_fp16", "bf16", "auto"):
        # A GPU that can't be seen from here: a CPU has no lower precision.
        request = {"gpus": 1, "input": "synthetic", "strategy": preset, "precision": asked}
        if asked == precision or (precision is None and asked != "auto"):
            assert plan("resnet50", request, ["machine"]).config.precision == asked
            continue
        with pytest.raises(RequestError) as refused:
            plan("resnet50", request, ["machine"])
        (problem,) = refused.value.problems
        if asked == "auto":
            assert problem == "precision: 'auto' needs strategy=fleetx-auto"
        else:
            assert problem == (
                f"strategy: {preset} is a preset of precision={precision}, "
                f"and precision={asked} was asked for"
            )
