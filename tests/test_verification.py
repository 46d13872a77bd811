"""Verification that frameworks do the same work."""

import json
import pickle
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from math import nan
from textwrap import dedent, indent
from typing import get_args

import pytest
from conftest import IN_WORKER, as_options
from filelock import FileLock
from made.results import keep as keep_result
from made.results import measured
from sides import config

from perfkit.analysis.comparison import compare
from perfkit.analysis.verification import run as verification_run
from perfkit.analysis.verification.command import verify_command
from perfkit.analysis.verification.judge import TOLERANCES, TensorNorms, Trace, judge
from perfkit.analysis.verification.matching import verification_of
from perfkit.analysis.verification.stored import (
    FOLDER,
    FrameworkSetup,
    SetupComparison,
    TensorQuantity,
    Verification,
    read_verifications,
)
from perfkit.cli import main
from perfkit.cli.frameworks_option import verified_configs
from perfkit.measuring.driver.repeat import TaskError
from perfkit.measuring.request import RequestError
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.store import Measurement
from perfkit.report.comparison import selected_comparison
from perfkit.report.verification import work_equivalence
from perfkit.training import models
from perfkit.training.models import MODELS
from perfkit.training.options import Options
from perfkit.training.trace import STEPS

pytest.importorskip("paddle")
torch = pytest.importorskip("torch")

# ruff: noqa: E402 - PyTorch is optional; the imports below need it
from perfkit.training.torch import models as torch_models
from perfkit.training.torch import verify as torch_verify
from perfkit.training.torch.bert import SelfAttention

NARROW = {
    "RESNET_STAGES": ((8, 2), (16, 1), (16, 1), (16, 1)),
    "VGG_STAGES": ((8, 1), (16, 2)),
    "VGG_DENSE": 32,
    "BERT_SIZE": models.BertSize(1, 32, 4, 1100),
    "GPT_SIZES": {"124M": models.GptSize(1, 32, 4, 1100)},
    "LLAMA_SIZES": {
        "tiny": models.LlamaSize(1, 32, 4, 2, 64, is_tied=True, vocabulary=1100),
        "8b": models.LlamaSize(1, 32, 4, 2, 64, is_tied=False, vocabulary=1100),
    },
    "END_OF_TEXT": 1100,
}
"""Small networks with every layer type of the real ones."""
SHAPES = ("parameters", None)
UNTRAINED = {SHAPES, ("multiply_adds", None), ("training_flops", None)}
"""The checks that need no training."""


@pytest.fixture(scope="module")
def narrow():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in NARROW.items():
            patch.setattr(models, name, value)
        yield


def use_float32():
    """Undo float64 of any framework in this process."""
    for name in ("paddle", "torch"):
        if framework := sys.modules.get(name):
            framework.set_default_dtype("float32" if name == "paddle" else framework.float32)
    if jax := sys.modules.get("jax"):
        jax.config.update("jax_enable_x64", False)


def run_trace(config, folder):
    """Run a framework in this process and return its trace."""
    events = []

    def write(event):
        line = json.dumps(event)
        events.append(json.loads(line))

    try:
        words = config.work.training_arguments(config)
        script = import_module(f"perfkit.training.{config.framework}.verify")
        script.write_trace(Options.parse(config.framework, words), folder, write)
    finally:
        use_float32()
    return Trace.of(events)


@pytest.fixture(scope="module")
def bases(narrow, tmp_path_factory):
    """Return a function that gives Paddle's trace of a model and the folder of its tensors."""

    @cache
    def base(model):
        folder = tmp_path_factory.mktemp(model)
        trace = run_trace(config(model), folder)
        return trace, folder

    return base


@pytest.fixture
def against_paddle(bases):
    """Return a function that gives a framework's checks by name and precision."""

    def checks(model, framework="torch", **changes):
        base, folder = bases(model)
        other = run_trace(config(model, framework, **changes), folder)
        return by_name(judge(base, other, config(model).work))

    return checks


def by_name(quantities):
    checks = {}
    for quantity in quantities:
        checks[quantity.name, quantity.precision] = quantity
    return checks


def disagreed(checks):
    """Return name and precision of the checks that do not agree."""
    return {key for key, quantity in checks.items() if not quantity.agreed}


@pytest.mark.parametrize("model", MODELS)
def test_paddle_and_pytorch_do_the_same_work(against_paddle, model):
    checks = against_paddle(model)
    assert len(checks) == 3 + 2 * 5
    assert not disagreed(checks)
    # Far below the limit, so that agreement is no coincidence.
    assert checks["first_loss", "fp64"].difference < TOLERANCES["fp64"].loss / 100
    assert checks[SHAPES].base > 1000


@pytest.mark.usefixtures("processes")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_compiled_pytorch_does_the_same_work(against_paddle):
    checks = against_paddle("vgg16", execution="static", layout="NCHW")
    assert not disagreed(checks)


@pytest.mark.parametrize(
    ("framework", "model", "changes"),
    [
        ("jax", "resnet50", {"layout": "NCHW"}),
        ("jax", "bert", {}),
        ("jax", "gpt", {}),
        ("jax", "llama", {}),
        ("tensorflow", "resnet50", {"execution": "static"}),
        ("tensorflow", "bert", {}),
    ],
)
@pytest.mark.slow
def test_jax_and_tensorflow_do_the_same_work(against_paddle, framework, model, changes):
    pytest.importorskip(framework)
    checks = against_paddle(model, framework, **changes)
    assert not disagreed(checks)


# Planted differences in PyTorch's networks.


def after_creation(change):
    """Call `change` with a new model of PyTorch."""
    create = torch_models.new_model

    def created(options):
        model = create(options)
        change(model)
        return model

    return lambda patch: patch.setattr(torch_verify, "new_model", created)


def stride_first(model):
    layers = dict(model.named_modules())
    for name, layer in layers.items():
        if name.endswith(".conv2"):
            first = layers[name.replace("conv2", "conv1")]
            first.stride, layer.stride = layer.stride, first.stride


early_stride = after_creation(stride_first)
"""Places the stride as He et al. did, before v1.5: same parameters."""


def batch_norm_epsilon(epsilon):
    usual = torch.nn.BatchNorm2d

    def changed(width):
        return usual(width, eps=epsilon)

    return lambda patch: patch.setattr(torch.nn, "BatchNorm2d", changed)


def layer_norm_epsilon(epsilon):
    usual = torch.nn.LayerNorm

    def changed(width, _epsilon):
        return usual(width, epsilon)

    return lambda patch: patch.setattr(torch.nn, "LayerNorm", changed)


def unmasked(patch):
    attend = SelfAttention.forward
    patch.setattr(SelfAttention, "forward", lambda self, x, mask: attend(self, x, 0 * mask))


def optimizer(name, **changes):
    original = getattr(torch.optim, name)

    def changed(*values, **settings):
        call = signature(original).bind(*values, **settings)
        call.arguments.update(changes)
        return original(*call.args, **call.kwargs)

    return lambda patch: patch.setattr(torch.optim, name, changed)


def summed_loss(patch):
    mean = torch_models.masked_loss

    def summed(logits, labels):
        return mean(logits, labels) * (labels != 0).sum()

    patch.setattr(torch_models, "masked_loss", summed)


def dropout(patch):
    patch.setattr(torch_verify, "disable_dropout", lambda _model: None)


LOSS32 = ("first_loss", "fp32")
LOSS = ("first_loss", "fp64")
GRADIENTS = ("gradients", "fp64")
FIRST = ("first_update", "fp64")
LAST = ("last_update", "fp64")


@pytest.mark.parametrize(
    ("model", "plant", "different", "agreed"),
    [
        ("resnet50", early_stride, {LOSS, *UNTRAINED - {SHAPES}}, {SHAPES}),
        ("resnet50", batch_norm_epsilon(1.2e-5), {LOSS, GRADIENTS}, {SHAPES}),
        ("bert", layer_norm_epsilon(1e-8), {GRADIENTS}, {SHAPES}),
        ("bert", unmasked, {LOSS}, {SHAPES}),
        ("bert", optimizer("AdamW", eps=2e-8), {FIRST, LAST}, {GRADIENTS}),
        ("vgg16", optimizer("SGD", momentum=0.89), {LAST}, {LOSS32, LOSS, GRADIENTS, FIRST}),
        ("bert", summed_loss, {LOSS32, LOSS, GRADIENTS}, {SHAPES}),
        ("vgg16", dropout, {LOSS32}, {SHAPES}),
    ],
)
def test_planted_differences_are_found(
    against_paddle, monkeypatch, model, plant, different, agreed
):
    plant(monkeypatch)
    checks = against_paddle(model)
    assert different <= disagreed(checks)
    assert not disagreed(checks) & agreed
    where = checks["multiply_adds", None].where
    names_the_architecture = "by the model's architecture" in where
    assert names_the_architecture == (plant is early_stride)


def test_a_missing_bias_is_found_by_its_name(against_paddle, monkeypatch):
    def without_bias(model):
        model.bert.encoder.layer[0].attention.output.dense.bias = None

    after_creation(without_bias)(monkeypatch)
    checks = against_paddle("bert")
    assert disagreed(checks) == {SHAPES}
    assert "layer.0.attention.output.dense.bias 32 | none" in checks[SHAPES].where
    # Weights of different shapes are not trained.
    assert {*checks} == UNTRAINED


# Checks on artificial traces.

PARAMETERS = {"a.weight": (4, 2), "a.bias": (2,)}
TENSORS = [(precision, name) for precision in TOLERANCES for name in get_args(TensorQuantity)]


def trace(tensors=None, more=0, **changes):
    """Return a trace of a batch of 2, with `more` multiply-adds than the model has."""
    norms_by_tensor = dict.fromkeys(PARAMETERS, TensorNorms(1e-09, 1.0, 1.0))
    if tensors:
        for name, norms in tensors.items():
            norms_by_tensor[name] = TensorNorms(*norms)
    of_one_image = models.multiply_adds(config("resnet50").work)
    losses = [7.0] * STEPS
    values = {
        "parameters": PARAMETERS,
        "multiply_adds": 2 * of_one_image + more,
        "losses": dict.fromkeys(TOLERANCES, losses),
        "distances": dict.fromkeys(TENSORS, norms_by_tensor),
    }
    return Trace(**values | changes)


def checks(base, other):
    """Return the compared quantities by name and precision."""
    quantities = judge(base, other, config("resnet50").work)
    return by_name(quantities)


def test_nonfinite_losses_never_agree():
    losses = [7.0, nan, 7.0, 7.0, 7.0]
    odd = trace(losses={"fp32": losses, "fp64": losses})
    for base, other in ((odd, trace()), (trace(), odd), (odd, odd)):
        compared = checks(base, other)
        assert disagreed(compared) == {("losses", "fp32"), ("losses", "fp64")}
        assert compared["losses", "fp64"].where == "step 2"


def test_nonfinite_tensors_never_agree():
    compared = checks(trace(), trace({"a.bias": (nan, 1.0, nan)}))
    assert disagreed(compared) == {(name, precision) for precision, name in TENSORS}
    assert compared["gradients", "fp32"].where == "a.bias"


def test_missing_tensors_do_not_agree():
    only_weight = {"a.weight": TensorNorms(0.0, 1.0, 1.0)}
    lacking = trace(distances=dict.fromkeys(TENSORS, only_weight))
    compared = checks(trace(), lacking)
    assert compared[GRADIENTS].where == "a.bias was not reported"


def test_near_zero_gradients_are_compared_relative_to_the_largest():
    near_zero = trace({"a.bias": (3e-16, 2e-16, 2e-16)})
    compared = checks(trace(), near_zero)
    assert not disagreed(compared)
    larger = trace({"a.bias": (3e-5, 2e-5, 4e-5)})
    compared = checks(trace(), larger)
    assert GRADIENTS in disagreed(compared)
    assert compared[GRADIENTS].where == "a.bias"


def test_all_zero_gradients_do_not_agree():
    all_zero = trace(dict.fromkeys(PARAMETERS, (0.0, 0.0, 0.0)))
    compared = checks(trace(), all_zero)
    assert GRADIENTS in disagreed(compared)
    assert "nothing to compare" in compared[GRADIENTS].where


def test_multiply_adds_must_match_the_model():
    compared = checks(trace(more=2), trace(more=2))
    assert ("multiply_adds", None) in disagreed(compared)


# Stored verifications and the measurements they apply to.

PADDLE = FrameworkSetup(framework="paddle", version="3.3.1", execution="dynamic", layout="NCHW")
TORCH = FrameworkSetup(
    framework="torch", version="2.13.0+cpu", execution="dynamic", layout="NHWC"
)


def verified(other=None, created="2026-01-01T00:00:00+00:00"):
    """Return a verification of Paddle and PyTorch with the trace `other` for PyTorch."""
    quantities = judge(trace(), other or trace(), config("resnet50").work)
    in_torch = SetupComparison(side=TORCH, checks=quantities)
    source = Reading(value="1.0")
    cpu = Reading(value="one")
    return Verification(
        schema_version=1,
        created=created,
        model="resnet50",
        model_size=None,
        optimizer="momentum",
        image_size=224,
        sequence_length=None,
        batch_size=4,
        seed=0,
        steps=STEPS,
        base=PADDLE,
        against=[in_torch],
        environment={"suite_source": source, "cpu": cpu},
    )


def keep(outputs, verification, name=""):
    folder = outputs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or verification.file_name)
    path.write_text(verification.model_dump_json())
    return path


def results(**changes):
    """Return Paddle and PyTorch measurements that the verification above applies to."""
    in_paddle = measured([1.0], execution="dynamic")
    parameters = {"execution": "dynamic", "layout": "NHWC"} | changes
    in_torch = measured([2.0], framework="torch", **parameters)
    return in_paddle, with_fact(in_torch, "torch", "2.13.0+cu126")


def with_fact(result, name, value):
    """Return a result with another fact of its environment."""
    environment = result.environment | {name: Reading(value=value)}
    return result.model_copy(update={"environment": environment})


def test_a_verification_applies_only_to_the_same_work_versions_and_code(tmp_path):
    keep(tmp_path, verified())
    in_paddle, in_torch = results()
    _in_paddle, larger = results(image_size=192)
    _in_paddle, compiled = results(execution="static")
    newer = with_fact(in_torch, "torch", "2.12.0")
    changed = with_fact(in_torch, "suite_source", "2.12.0")
    for other in (larger, compiled, newer, changed):
        assert verification_of(tmp_path, in_paddle, other) is None


def page_section(outputs, result):
    """Return the section on verification of the page of a measurement in `outputs`."""
    measurement = Measurement(outputs / "m", result)
    return work_equivalence(measurement).html


def test_the_page_shows_each_check_of_the_same_work(tmp_path):
    keep(tmp_path, verified())
    in_paddle, in_torch = results()
    for result, partner in ((in_paddle, "PyTorch 2.13.0+cpu"), (in_torch, "Paddle 3.3.1")):
        page = page_section(tmp_path, result)
        assert partner in page
        assert "the same work." in page
        assert page.count("<tr ") == 1 + 3 + 2 * 5


def test_the_page_shows_different_work_and_names_an_unreadable_file(tmp_path):
    keep(tmp_path, verified())
    different = keep(tmp_path, verified(trace(more=2), created="2026-02-01T00:00:00+00:00"))
    different.with_name("odd.json").write_text("<script>")
    in_paddle, _in_torch = results()
    page = page_section(tmp_path, in_paddle)
    assert "NOT the same work" in page
    assert ">no</td>" in page
    assert "odd.json" in page
    assert "<script>" not in page


VERIFY = "perfkit verify resnet50 --frameworks"
COMPILED = {"execution": "static", "layout": "NCHW", "image_size": 96}


def test_the_verify_command_names_what_differs_from_the_defaults():
    in_paddle, in_torch = (result.config for result in results())
    assert verify_command(in_paddle, in_torch) == f"{VERIFY} paddle,torch"
    compiled = in_torch.changed(**COMPILED)
    command = verify_command(compiled, in_paddle)
    assert command == f"{VERIFY} torch:static:NCHW,paddle -p image_size 96"
    elsewhere = in_torch.model_copy(update={"python": ".venv-old/bin/python"})
    command = verify_command(in_paddle, elsewhere)
    assert command == f"{VERIFY} paddle,torch:.venv-old/bin/python"


def test_a_framework_comparison_states_whether_the_work_was_verified(tmp_path):
    in_paddle, in_torch = results()
    paddle_folder = keep_result(tmp_path / "a", in_paddle).folder
    torch_folder = keep_result(tmp_path / "b", in_torch).folder

    def compared():
        comparison = compare(paddle_folder, torch_folder, across=["framework", "layout"])
        (pair,) = comparison.pairs
        return pair.same_work.state, repr(selected_comparison(comparison))

    state, text = compared()
    assert state == "not verified"
    assert "perfkit verify resnet50 --frameworks paddle,torch" in text
    keep(tmp_path, verified())
    state, text = compared()
    assert state == "verified"
    assert "Same work: verified (2026-01-01" in text
    # The newest verification counts, regardless of its file name.
    newer = verified(trace(more=2), created="2026-03-01T00:00:00+00:00")
    keep(tmp_path, newer, "0.json")
    _state, text = compared()
    assert "They do different work" in text


# The command.


@pytest.fixture
def in_workers(narrow, plant):
    """Return a function that plants narrow networks and `code` into the workers."""

    def planted(code=""):
        lines = ["import pickle", "from perfkit.training import models"]
        lines.append(f"vars(models).update(pickle.loads({pickle.dumps(NARROW)!r}))")
        lines += code.splitlines()
        plant(IN_WORKER + indent("\n".join(lines) + "\n", "    "))

    return planted


@pytest.fixture
def run(tmp_path, capsys):
    """Return a function that runs `perfkit verify resnet50`: exit status and output."""

    def verify():
        options = as_options({"image_size": 32, "outputs_dir": tmp_path / "outputs"})
        with pytest.raises(SystemExit) as ended:
            main(["verify", "resnet50", "--frameworks", "paddle,torch", *options])
        return ended.value.code, capsys.readouterr()

    return verify


@pytest.mark.slow
def test_verify_runs_real_frameworks_and_stores_the_result(in_workers, run, tmp_path):
    in_workers()
    status, printed = run()
    assert status == 0
    assert ": the same work." in printed.out
    assert "PyTorch, dynamic, NHWC …" in printed.err
    outputs = tmp_path / "outputs"
    (file,) = (outputs / FOLDER).iterdir()
    assert str(file) in printed.out
    (verification,) = read_verifications(outputs, [])
    assert verification.agreed
    assert verification.environment["suite_source"].value


def test_verify_exits_with_1_for_different_work(run, tmp_path, monkeypatch):
    traces = iter([trace(), trace(more=2, losses={})])
    monkeypatch.setattr(verification_run, "perform", lambda *_task: ([],))
    monkeypatch.setattr(Trace, "of", lambda _events: next(traces))
    status, printed = run()
    assert status == 1
    assert "dynamic, NHWC: NOT the same work." in printed.out
    _before, _name, adds = printed.out.partition("\nMultiply-adds, forward pass\n")
    assert "\n  Agrees: no\n" in adds.partition("\nFLOPs")[0]
    assert "  Agrees: no\n  Largest difference: 5 and 0 steps were trained\n" in printed.out
    (verification,) = read_verifications(tmp_path / "outputs", [])
    assert not verification.agreed


@pytest.mark.slow
def test_a_failed_framework_is_reported_and_leaves_no_files(in_workers, run, tmp_path):
    code = """
        from perfkit.training.torch.resnet import ResNet

        def broken(*_inputs):
            raise NotImplementedError

        ResNet.forward = broken
        """
    in_workers(dedent(code))
    status, printed = run()
    assert status == 1
    assert "worker_error: rank 0: " in printed.err
    assert "NotImplementedError" in printed.err
    folder = tmp_path / "outputs" / FOLDER
    assert [*folder.iterdir()] == []


def test_only_stale_traces_are_removed(run, tmp_path, monkeypatch):
    def fail(*_task):
        raise TaskError("a framework failed")

    folder = tmp_path / "outputs" / FOLDER
    killed = folder / ".traces-killed"
    running = folder / ".traces-running"
    for leftover in (killed, running):
        leftover.mkdir(parents=True)
        (leftover / "weights-1.npz").write_bytes(b"large")
        (leftover / ".lock").touch()
    monkeypatch.setattr(verification_run, "perform", fail)
    with FileLock(running / ".lock"):
        status, printed = run()
        assert status == 1
        assert "a framework failed" in printed.err
        assert [*folder.iterdir()] == [running]
    status, _printed = run()
    assert status == 1
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize(
    ("named", "values", "why"),
    [
        ("paddle,paddle:dynamic:NCHW", {}, "is given twice"),
        ("paddle,torch", {"precision": "bf16"}, "it takes model_size, optimizer"),
    ],
)
def test_a_wrong_verification_request_is_rejected(named, values, why, tmp_path):
    parameters = values | {"outputs_dir": str(tmp_path)}
    with pytest.raises(RequestError, match=why):
        verified_configs("resnet50", named, parameters)


def test_all_installed_suitable_frameworks_are_compared(tmp_path):
    parameters = {"outputs_dir": str(tmp_path)}
    names = ("paddle", "torch", "jax", "tensorflow")
    installed = [name for name in names if find_spec(name)]
    configs = verified_configs("bert", None, parameters)
    assert [config.framework for config in configs] == installed
    with_lamb = parameters | {"optimizer": "lamb"}
    with pytest.raises(RequestError, match="installed for this work: paddle"):
        verified_configs("bert", None, with_lamb)


def test_frameworks_are_named_with_execution_and_layout(tmp_path):
    frameworks = "torch:static:NCHW,paddle"
    first, second = verified_configs("resnet50", frameworks, {"outputs_dir": str(tmp_path)})
    assert first.work.execution == "static"
    assert first.work.layout == "NCHW"
    assert second.work.execution == "dynamic"
