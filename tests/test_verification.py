"""Verification that frameworks do the same work."""

import json
from functools import cache
from importlib.util import find_spec
from inspect import signature
from math import inf, nan
from types import SimpleNamespace
from typing import get_args

import pytest
from conftest import IN_WORKER
from filelock import FileLock
from made import keep as keep_result
from made import measured
from sides import SIDES, config, use_float32

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
from perfkit.core import models
from perfkit.core.models import MODELS
from perfkit.core.request import RequestError
from perfkit.core.request.resolve import resolve
from perfkit.core.results.identity import Reading
from perfkit.core.results.store import Measurement
from perfkit.core.worker.trace import STEPS, fixed_batch, write_trace
from perfkit.report.comparison_text import comparison_text
from perfkit.report.verification import work_equivalence

pytest.importorskip("paddle")
torch = pytest.importorskip("torch")

from perfkit.core.frameworks.torch.inspector import Inspector  # noqa: E402
from perfkit.core.frameworks.torch.layers import Network  # noqa: E402

TRANSFORMER = {"LAYERS": 1, "WIDTH": 32, "HEADS": 4, "INNER": 64, "VOCABULARY": 1100}
NARROW = {
    "resnet50": {"STEM": 8, "STAGES": ((8, 2), (16, 1), (16, 1), (16, 1))},
    "vgg16": {"STAGES": ((8, 1), (16, 2)), "DENSE": 32},
    "bert": TRANSFORMER,
    "gpt": TRANSFORMER | {"END_OF_TEXT": 1100},
}
"""Small networks with every layer type of the real ones."""
SHAPES = ("parameters", None)
UNTRAINED = {SHAPES, ("multiply_adds", None), ("training_flops", None)}
"""The checks that need no training."""


@pytest.fixture(scope="module")
def narrow():
    with pytest.MonkeyPatch.context() as patch:
        for model, sizes in NARROW.items():
            for name, value in sizes.items():
                patch.setattr(getattr(models, model), name, value)
        yield


def run_trace(config, folder):
    """Run a framework in this process and return its trace."""
    events = []
    try:
        write_trace(config, folder, lambda event: events.append(json.loads(json.dumps(event))))
    finally:
        use_float32()
    return Trace.of(events)


@pytest.fixture(scope="module")
def bases(narrow, tmp_path_factory):
    """Return a function that gives Paddle's trace of a model and the folder of its tensors."""

    @cache
    def base(model):
        folder = tmp_path_factory.mktemp(model)
        return run_trace(config(model), folder), folder

    return base


@pytest.fixture
def against_paddle(bases):
    """Return a function that gives a framework's checks by name and precision."""

    def checks(model, framework="torch", **changes):
        base, folder = bases(model)
        other = run_trace(config(model, framework, **changes), folder)
        return by_name(judge(base, other, config(model)))

    return checks


def by_name(quantities):
    return {(quantity.name, quantity.precision): quantity for quantity in quantities}


def disagreed(checks):
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
    assert not disagreed(against_paddle("vgg16", execution="static", layout="NCHW"))


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
@pytest.mark.parametrize("model", ["resnet50", "bert", "gpt"])
@pytest.mark.slow
def test_jax_and_tensorflow_do_the_same_work(against_paddle, framework, model):
    pytest.importorskip(framework)
    assert not disagreed(against_paddle(model, framework))


@pytest.mark.slow
def test_tensorflow_compiled_by_xla_does_the_same_work(against_paddle):
    pytest.importorskip("tensorflow")
    assert not disagreed(against_paddle("vgg16", "tensorflow", execution="static"))


# Planted differences in PyTorch's networks.


def after_creation(change):
    """Call `change` with PyTorch's layers by name after their creation."""
    create = Network.create

    def created(self, network):
        create(self, network)
        change(self.modules_by_name)

    return lambda patch: patch.setattr(Network, "create", created)


def stride_first(layers):
    for name, layer in layers.items():
        if name.endswith(".conv2"):
            first = layers[name.replace("conv2", "conv1")]
            first.stride, layer.stride = layer.stride, first.stride


early_stride = after_creation(stride_first)
"""Places the stride as He et al. did, before v1.5: same parameters."""


def batch_norm_epsilon(epsilon):
    usual = torch.nn.BatchNorm2d
    return lambda patch: patch.setattr(
        torch.nn, "BatchNorm2d", lambda width: usual(width, eps=epsilon)
    )


def layer_norm_epsilon(epsilon):
    usual = torch.nn.LayerNorm
    return lambda patch: patch.setattr(
        torch.nn, "LayerNorm", lambda width, _usual: usual(width, epsilon)
    )


def unmasked(patch):
    attention = Network.attention
    patch.setattr(
        Network,
        "attention",
        lambda self, x, heads, mask, p: attention(self, x, heads, 0 * mask, p),
    )


def optimizer(name, **changes):
    original = getattr(torch.optim, name)

    def changed(*values, **settings):
        given = signature(original).bind(*values, **settings)
        given.arguments.update(changes)
        return original(*given.args, **given.kwargs)

    return lambda patch: patch.setattr(torch.optim, name, changed)


def loss(reduction):
    """Use the summed MLM loss, or its mean over all places."""

    def loss(self, scores, masked_ids, next_sentence):
        cross_entropy = torch.nn.functional.cross_entropy
        ids = masked_ids.flatten()
        words = cross_entropy(scores[0], ids, ignore_index=0, reduction=reduction)
        return words.mean() + cross_entropy(scores[1], next_sentence.flatten())

    return lambda patch: patch.setattr(Network, "loss", loss)


def dropout(patch):
    patch.setattr(Inspector, "disable_dropout", lambda _self: None)


LOSS32, LOSS, GRADIENTS = ("first_loss", "fp32"), ("first_loss", "fp64"), ("gradients", "fp64")
FIRST, LAST = ("first_update", "fp64"), ("last_update", "fp64")


@pytest.mark.parametrize(
    ("model", "plant", "found", "agreed"),
    [
        ("resnet50", early_stride, {LOSS, *UNTRAINED - {SHAPES}}, {SHAPES}),
        ("resnet50", batch_norm_epsilon(1e-3), {LOSS, GRADIENTS}, {SHAPES}),
        ("resnet50", batch_norm_epsilon(1.2e-5), {LOSS, GRADIENTS}, {SHAPES}),
        ("bert", layer_norm_epsilon(1e-5), {GRADIENTS}, {SHAPES}),
        ("bert", layer_norm_epsilon(1e-8), {GRADIENTS}, {SHAPES}),
        ("bert", unmasked, {LOSS}, {SHAPES}),
        ("bert", optimizer("AdamW", eps=2e-8), {FIRST, LAST}, {GRADIENTS}),
        ("vgg16", optimizer("SGD", momentum=0.89), {LAST}, {LOSS32, LOSS, GRADIENTS, FIRST}),
        ("vgg16", optimizer("SGD", weight_decay=0.0), {FIRST}, {SHAPES}),
        ("bert", loss("sum"), {LOSS32, LOSS, GRADIENTS}, {SHAPES}),
        ("bert", loss("none"), {LOSS32, LOSS, GRADIENTS}, {SHAPES}),
        ("vgg16", dropout, {LOSS32}, {SHAPES}),
    ],
)
def test_planted_differences_are_found(
    against_paddle, monkeypatch, model, plant, found, agreed
):
    plant(monkeypatch)
    checks = against_paddle(model)
    assert found <= disagreed(checks) and not disagreed(checks) & agreed
    where = checks["multiply_adds", None].where
    assert ("by the model's architecture" in where) == (plant is early_stride)


def test_a_missing_bias_is_found_by_its_name(against_paddle, monkeypatch):
    def without_bias(layers):
        layers["layers.0.out_proj"].bias = None

    after_creation(without_bias)(monkeypatch)
    checks = against_paddle("bert")
    assert disagreed(checks) == {SHAPES}
    assert "layers.0.out_proj.bias 32 | none" in checks[SHAPES].where
    # Weights of different shapes are not trained.
    assert {*checks} == UNTRAINED


def test_both_layouts_hold_the_same_images():
    configs = [config("vgg16", layout=layout) for layout in ("NCHW", "NHWC")]
    first, last = (fixed_batch(config, "float64") for config in configs)
    assert (first[0].transpose(0, 2, 3, 1) == last[0]).all()
    assert (first[1] == last[1]).all()


# Checks on artificial traces.

PARAMETERS = {"a.weight": (4, 2), "a.bias": (2,)}
TENSORS = [(precision, name) for precision in TOLERANCES for name in get_args(TensorQuantity)]


def trace(tensors=None, more=0, **changes):
    """Return a trace of a batch of 2, with `more` multiply-adds than the model has."""
    norms_by_tensor = dict.fromkeys(PARAMETERS, TensorNorms(1e-09, 1.0, 1.0))
    for name, norms in (tensors or {}).items():
        norms_by_tensor[name] = TensorNorms(*norms)
    values = {
        "parameters": PARAMETERS,
        "multiply_adds": 2 * models.multiply_adds(config("resnet50")) + more,
        "losses": {precision: [7.0] * STEPS for precision in TOLERANCES},
        "distances": dict.fromkeys(TENSORS, norms_by_tensor),
    }
    return Trace(**values | changes)


def checks(base, other):
    """Return the compared quantities by name and precision."""
    return by_name(judge(base, other, config("resnet50")))


def test_identical_traces_agree():
    assert not disagreed(checks(trace(), trace()))


@pytest.mark.parametrize("loss", [nan, -inf])
def test_nonfinite_losses_never_agree(loss):
    losses = [7.0, loss, 7.0, 7.0, 7.0]
    odd = trace(losses={"fp32": losses, "fp64": losses})
    for base, other in ((odd, trace()), (trace(), odd), (odd, odd)):
        compared = checks(base, other)
        assert disagreed(compared) == {("losses", "fp32"), ("losses", "fp64")}
        assert compared["losses", "fp64"].where == "step 2"
        assert compared["losses", "fp64"].difference is None


@pytest.mark.parametrize("norms", [(nan, 1.0, nan), (inf, 1.0, inf), (nan, nan, nan)])
def test_nonfinite_tensors_never_agree(norms):
    compared = checks(trace(), trace({"a.bias": norms}))
    assert disagreed(compared) == {(name, precision) for precision, name in TENSORS}
    assert compared["gradients", "fp32"].where == "a.bias"


def test_missing_steps_and_tensors_do_not_agree():
    short = checks(trace(), trace(losses={"fp32": [7.0] * STEPS, "fp64": [7.0]}))
    assert "5 and 1 steps" in short["losses", "fp64"].where
    without_losses = checks(trace(), trace(losses={}))
    assert not without_losses["first_loss", "fp32"].agreed
    only_weight = {"a.weight": TensorNorms(0.0, 1.0, 1.0)}
    lacking = trace(distances=dict.fromkeys(TENSORS, only_weight))
    assert checks(trace(), lacking)["gradients", "fp64"].where == "a.bias was not reported"


def test_near_zero_gradients_are_compared_relative_to_the_largest():
    assert not disagreed(checks(trace(), trace({"a.bias": (3e-16, 2e-16, 2e-16)})))
    compared = checks(trace(), trace({"a.bias": (3e-5, 2e-5, 4e-5)}))
    assert ("gradients", "fp64") in disagreed(compared)
    assert compared["gradients", "fp64"].where == "a.bias"


def test_all_zero_gradients_do_not_agree():
    compared = checks(trace(), trace(dict.fromkeys(PARAMETERS, (0.0, 0.0, 0.0))))
    assert ("gradients", "fp64") in disagreed(compared)
    assert "nothing to compare" in compared["gradients", "fp64"].where


def test_different_shapes_are_listed_without_further_checks():
    shapes = {"a.weight": (2, 4), "b.bias": (2,)}
    compared = checks(trace(), trace(parameters=shapes, losses={}, distances={}))
    assert compared[SHAPES].where == "a.bias 2 | none; a.weight 4 x 2 | 2 x 4; b.bias none | 2"
    assert compared[SHAPES].difference == 3 and {*compared} == UNTRAINED


def test_multiply_adds_must_match_the_model():
    for base, other in ((trace(more=2), trace(more=2)), (trace(), trace(more=1))):
        assert ("multiply_adds", None) in disagreed(checks(base, other))


# Stored verifications and the measurements they apply to.

PADDLE = FrameworkSetup(framework="paddle", version="3.3.1", execution="dynamic", layout="NCHW")
TORCH = FrameworkSetup(
    framework="torch", version="2.13.0+cpu", execution="dynamic", layout="NHWC"
)


def verified(other=None, **changes):
    """Return a verification of Paddle and PyTorch with the trace `other` for PyTorch."""
    quantities = judge(trace(), other or trace(), config("resnet50"))
    values = {
        "schema_version": 1,
        "created": "2026-01-01T00:00:00+00:00",
        "model": "resnet50",
        "optimizer": "momentum",
        "image_size": 224,
        "sequence_length": None,
        "batch_size": 4,
        "seed": 0,
        "steps": STEPS,
        "base": PADDLE,
        "against": [SetupComparison(side=TORCH, checks=quantities)],
        "environment": {"suite_source": Reading(value="1.0"), "cpu": Reading(value="one")},
    }
    return Verification(**values | changes)


def keep(outputs, verification, name=""):
    (outputs / FOLDER).mkdir(parents=True, exist_ok=True)
    path = outputs / FOLDER / (name or verification.file_name)
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
    assert verification_of(tmp_path, in_paddle, in_torch) == (verified(), PADDLE, TORCH)
    assert verification_of(tmp_path, in_torch, in_paddle) == (verified(), TORCH, PADDLE)
    assert verification_of(tmp_path, in_paddle, in_paddle) is None
    assert verification_of(tmp_path / "elsewhere", in_paddle, in_torch) is None
    for change in ({"image_size": 192}, {"execution": "static"}, {"layout": "NCHW"}):
        _in_paddle, changed = results(**change)
        assert verification_of(tmp_path, in_paddle, changed) is None
    for fact in ("suite_source", "torch"):
        changed = with_fact(in_torch, fact, "2.12.0")
        assert verification_of(tmp_path, in_paddle, changed) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text[:-9], "not JSON"),
        (lambda text: text.replace('"schema_version":1', '"schema_version":7'), "newer"),
        (lambda text: text.replace('"paddle"', '"<b>"'), "base.framework"),
        (lambda text: text.replace('"allowed":0.15', '"allowed":"x"'), "allowed"),
        (lambda _text: "{}", "schema_version is None"),
    ],
)
def test_an_invalid_verification_file_is_skipped_and_named(tmp_path, change, why):
    whole = keep(tmp_path, verified())
    (whole.parent / "odd.json").write_text(change(whole.read_text()))
    left_out = []
    assert read_verifications(tmp_path, left_out) == [verified()]
    (reason,) = left_out
    assert "odd.json" in reason and why in reason


def test_the_page_shows_each_check_or_the_command_to_run(tmp_path):
    in_paddle, in_torch = results()
    folder = tmp_path / "outputs"
    page = work_equivalence(Measurement(folder / "m", in_paddle)).html
    assert "perfkit verify resnet50" in page
    keep(folder, verified())
    for result, partner in ((in_paddle, "PyTorch 2.13.0+cpu"), (in_torch, "Paddle 3.3.1")):
        page = work_equivalence(Measurement(folder / "m", result)).html
        assert partner in page and "the same work." in page
        assert page.count("<tr>") == 1 + 3 + 2 * 5
    keep(folder, verified(trace(more=2), created="2026-02-01T00:00:00+00:00"))
    (folder / FOLDER / "odd.json").write_text("<script>")
    page = work_equivalence(Measurement(folder / "m", in_paddle)).html
    assert "NOT the same work" in page and ">no</td>" in page
    assert "odd.json" in page and "<script>" not in page


VERIFY = "perfkit verify resnet50 --frameworks"
COMPILED = {"execution": "static", "layout": "NCHW", "image_size": 96}


def test_the_verify_command_names_what_differs_from_the_defaults():
    in_paddle, in_torch = (result.config for result in results())
    assert verify_command(in_paddle) == "perfkit verify resnet50"
    assert verify_command(in_paddle, in_torch) == f"{VERIFY} paddle,torch"
    compiled = in_torch.model_copy(update=COMPILED)
    command = f"{VERIFY} torch:static:NCHW,paddle -p image_size 96"
    assert verify_command(compiled, in_paddle) == command
    elsewhere = in_torch.model_copy(update={"python": ".venv-old/bin/python"})
    command = f"{VERIFY} paddle,torch:.venv-old/bin/python"
    assert verify_command(in_paddle, elsewhere) == command


def test_there_is_no_verify_command_if_no_other_framework_does_this_work():
    lamb = {"model": "bert", "optimizer": "lamb", "batch_size": 2, "execution": "dynamic"}
    assert verify_command(resolve(lamb)) == ""


def test_a_framework_comparison_states_whether_the_work_was_verified(tmp_path):
    both = [keep_result(tmp_path / n, r).folder for n, r in zip("ab", results(), strict=True)]

    def compared():
        found = compare(*both, across=["framework", "layout"])
        return found.pairs[0].same_work.state, comparison_text(found)

    state, text = compared()
    assert state == "not verified"
    assert "perfkit verify resnet50 --frameworks paddle,torch" in text
    keep(tmp_path, verified())
    state, text = compared()
    assert state == "verified"
    assert "same work: verified in float32 and float64 (2026-01-01" in text
    # The newest verification counts, regardless of its file name.
    newer = verified(trace(more=2), created="2026-03-01T00:00:00+00:00")
    keep(tmp_path, newer, "0.json")
    assert "same work: not the same" in compared()[1]


# The command.


@pytest.fixture
def in_workers(narrow, plant):
    """Return a function that plants narrow networks and `code` into the workers."""

    def planted(code=""):
        lines = ["from perfkit.core import models"]
        for model, sizes in NARROW.items():
            lines += [f"models.{model}.{name} = {value!r}" for name, value in sizes.items()]
        lines += code.splitlines()
        plant(IN_WORKER + "".join(f"    {line}\n" for line in lines))

    return planted


@pytest.fixture
def run(tmp_path, capsys):
    """Return a function that runs `perfkit verify resnet50`: exit status and output."""

    def verify():
        small = ["-p", "image_size", "32", "-p", "outputs_dir", str(tmp_path / "outputs")]
        with pytest.raises(SystemExit) as ended:
            main(["verify", "resnet50", "--frameworks", "paddle,torch", *small])
        return ended.value.code, capsys.readouterr()

    return verify


@pytest.mark.slow
def test_verify_runs_real_frameworks_and_stores_the_result(in_workers, run, tmp_path):
    in_workers()
    status, printed = run()
    assert status == 0 and ": the same work." in printed.out
    assert "PyTorch, dynamic, NHWC …" in printed.err
    (file,) = (tmp_path / "outputs" / FOLDER).iterdir()
    assert str(file) in printed.out
    (found,) = read_verifications(tmp_path / "outputs", [])
    assert found.agreed and found.environment["suite_source"].value


def test_verify_exits_with_1_for_different_work(run, tmp_path, monkeypatch):
    traces = iter([trace(), trace(more=2, losses={})])
    monkeypatch.setattr(verification_run, "perform", lambda *_task: ([],))
    monkeypatch.setattr(Trace, "of", lambda _events: next(traces))
    status, printed = run()
    assert status == 1 and max(map(len, printed.out.splitlines()[:-1])) <= 80
    assert "dynamic, NHWC: NOT the same work." in printed.out
    assert "! Multiply-adds, forward pass: " in printed.out
    assert "! Loss, worst step, float64: 5 and 0 steps were trained" in printed.out
    (found,) = read_verifications(tmp_path / "outputs", [])
    assert not found.agreed


@pytest.mark.slow
def test_a_failed_framework_is_reported_and_leaves_no_files(in_workers, run, tmp_path):
    in_workers("from perfkit.core.frameworks.torch.layers import Network\ndel Network.forward")
    status, printed = run()
    assert status == 1 and "worker_error: rank 0: NotImplementedError" in printed.err
    assert [*(tmp_path / "outputs" / FOLDER).iterdir()] == []


def test_a_full_disk_is_reported_and_only_stale_traces_are_removed(run, tmp_path, monkeypatch):
    folder = tmp_path / "outputs" / FOLDER
    killed, running = folder / ".traces-killed", folder / ".traces-running"
    for leftover in (killed, running):
        leftover.mkdir(parents=True)
        (leftover / "weights-1.npz").write_bytes(b"large")
        (leftover / ".lock").touch()
    room = SimpleNamespace(free=10**8)
    monkeypatch.setattr(verification_run.shutil, "disk_usage", lambda _path: room)
    with FileLock(running / ".lock"):
        status, printed = run()
        text = " ".join(printed.err.split())
        assert status == 1 and "disk_full" in text
        assert "has 0.1 GB free, and the verification temporarily needs 1.1 GB" in text
        assert [*folder.iterdir()] == [running]
    assert run()[0] == 1
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize(
    ("named", "values", "why"),
    [
        ("paddle", {}, "two are needed"),
        ("paddle,paddle:dynamic:NCHW", {}, "is given twice"),
        ("paddle,oneflow", {}, "oneflow"),
        ("paddle,torch:sideways", {}, "sideways"),
        ("paddle,torch", {"framework": "torch"}, "set it by --frameworks"),
        ("paddle,torch", {"precision": "bf16"}, "it takes optimizer"),
        ("paddle,torch", {"image_sise": 3}, "image_size"),
        ("paddle,torch", {"optimizer": "lamb"}, "optimizer"),
        ("", {}, "two are needed"),
    ],
)
def test_a_wrong_verification_request_is_rejected(named, values, why, tmp_path):
    with pytest.raises(RequestError, match=why):
        verified_configs("resnet50", named, values | {"outputs_dir": str(tmp_path)})


def test_all_installed_suitable_frameworks_are_compared(tmp_path):
    places = {"outputs_dir": str(tmp_path)}
    installed = [name for name in SIDES if find_spec(name)]
    assert [c.framework for c in verified_configs("bert", None, places)] == installed
    with pytest.raises(RequestError, match="installed for this work: paddle"):
        verified_configs("bert", None, places | {"optimizer": "lamb"})
    with pytest.raises(RequestError, match="alexnet"):
        verified_configs("alexnet", None, places)
    first, second = verified_configs("resnet50", "torch:static:NCHW,paddle", places)
    assert (first.execution, first.layout, second.execution) == ("static", "NCHW", "dynamic")
