"""Whether frameworks do the same work: found where it is so, and refused where it is not."""

import json
import sys
from functools import cache
from inspect import signature
from math import inf, nan
from types import SimpleNamespace

import paddle
import pytest
from conftest import IN_WORKER
from filelock import FileLock
from made import keep as keep_result
from made import measured

from perfkit import models, verification
from perfkit.cli import main
from perfkit.comparison import compare
from perfkit.models import MODELS
from perfkit.report.measurement import work_equivalence
from perfkit.request import RequestError
from perfkit.request.resolve import resolve
from perfkit.results.schema import Reading
from perfkit.results.store import Measurement
from perfkit.verification import (
    ALLOWED,
    FOLDER,
    NAMES,
    Against,
    Side,
    Trace,
    Verification,
    command,
    judge,
    read_verifications,
    sides,
    verification_of,
)
from perfkit.worker.trace import STEPS, fixed_batch, write_trace

torch = pytest.importorskip("torch")

from perfkit.frameworks.torch import networks  # noqa: E402
from perfkit.frameworks.torch.backend import Trainer  # noqa: E402

TRANSFORMER = {"LAYERS": 1, "WIDTH": 32, "HEADS": 4, "INNER": 64, "VOCABULARY": 1100}
NARROW = {
    "resnet50": {"STEM": 8, "STAGES": ((8, 2), (16, 1), (16, 1), (16, 1))},
    "vgg16": {"STAGES": ((8, 1), (16, 2)), "DENSE": 32},
    "bert": TRANSFORMER,
    "gpt": TRANSFORMER | {"END_OF_TEXT": 1100},
}
"""Networks with all kinds of layers that the real ones have, in seconds."""
SHAPES = ("parameters", None)
UNTRAINED = {SHAPES, ("multiply_adds", None), ("training_flops", None)}
"""The checks that need no training."""


@pytest.fixture(scope="module")
def narrow():
    """Narrow networks in all frameworks."""
    with pytest.MonkeyPatch.context() as patch:
        for model, sizes in NARROW.items():
            for name, value in sizes.items():
                patch.setattr(getattr(models, model), name, value)
        yield


def config(model, framework="paddle", **changes):
    values = {"model": model, "framework": framework, "device": "cpu", "processes": 1}
    values |= {"input": "synthetic", "optimizer": MODELS[model].optimizers[0]}
    values |= {"batch_size": 2, "execution": "static" if framework == "jax" else "dynamic"}
    layout = "NCHW" if framework == "paddle" else "NHWC"
    images = {"image_size": 32, "layout": layout}
    values |= {"sequence_length": 16} if MODELS[model].sample == "sequence" else images
    return resolve(values | changes)


def account(config, folder):
    """What a framework tells in this very process."""
    events = []
    try:
        write_trace(config, folder, lambda event: events.append(json.loads(json.dumps(event))))
    finally:
        paddle.set_default_dtype("float32")
        torch.set_default_dtype(torch.float32)
        if jax := sys.modules.get("jax"):
            jax.config.update("jax_enable_x64", False)
        if tensorflow := sys.modules.get("perfkit.frameworks.tensorflow.backend"):
            tensorflow.Forward.wide = "float32"
    return Trace.of(events)


@pytest.fixture(scope="module")
def bases(narrow, tmp_path_factory):
    """What Paddle tells of a model, and where it left its tensors."""

    @cache
    def base(model):
        folder = tmp_path_factory.mktemp(model)
        return account(config(model), folder), folder

    return base


@pytest.fixture
def against_paddle(bases):
    """The checks of a framework as it is now against Paddle, by name and precision."""

    def checks(model, framework="torch", **changes):
        base, folder = bases(model)
        other = account(config(model, framework, **changes), folder)
        return {(one.name, one.precision): one for one in judge(base, other, config(model))}

    return checks


def amiss(checks):
    return {key for key, check in checks.items() if not check.agreed}


@pytest.mark.parametrize("model", MODELS)
def test_paddle_and_pytorch_do_the_same_work(against_paddle, model):
    checks = against_paddle(model)
    assert len(checks) == 3 + 2 * 5
    assert not amiss(checks)
    # Far from what is allowed, so that it tells differences and not a lucky day.
    assert checks["first_loss", "fp64"].difference < ALLOWED["fp64"]["loss"] / 100
    assert checks[SHAPES].base > 1000


@pytest.mark.usefixtures("processes")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_pytorch_does_the_same_work(against_paddle):
    assert not amiss(against_paddle("vgg16", execution="static", layout="NCHW"))


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
@pytest.mark.parametrize("model", ["resnet50", "bert", "gpt"])
def test_a_framework_of_functions_does_the_same_work(against_paddle, framework, model):
    pytest.importorskip(framework)
    assert not amiss(against_paddle(model, framework))


@pytest.mark.slow
def test_tensorflow_compiled_by_xla_does_the_same_work(against_paddle):
    pytest.importorskip("tensorflow")
    assert not amiss(against_paddle("vgg16", "tensorflow", execution="static"))


# Differences planted in PyTorch's networks.


def early_stride(patch):
    """As He et al. had it, before v1.5: the parameters are the same."""

    class Original(networks.Bottleneck):
        def __init__(self, inputs, width, stride):
            super().__init__(inputs, width, stride)
            self.conv1.stride, self.conv2.stride = (stride, stride), (1, 1)

    patch.setattr(networks, "Bottleneck", Original)


def batch_norm_epsilon(epsilon):
    usual = torch.nn.BatchNorm2d
    return lambda patch: patch.setattr(
        torch.nn, "BatchNorm2d", lambda width: usual(width, eps=epsilon)
    )


def bert_facts(**facts):
    """Facts that the other frameworks don't have."""
    return lambda patch: patch.setattr(
        networks, "bert", SimpleNamespace(**vars(networks.bert) | facts)
    )


def optimizer(name, **changes):
    made = getattr(torch.optim, name)

    def changed(*values, **settings):
        given = signature(made).bind(*values, **settings)
        given.arguments.update(changes)
        return made(*given.args, **given.kwargs)

    return lambda patch: patch.setattr(torch.optim, name, changed)


def loss(reduction):
    """Predictions of masked words that are summed up, or whose mean is over all places."""

    def loss(self, scores, masked_ids, next_sentence):
        cross_entropy = torch.nn.functional.cross_entropy
        ids = masked_ids.flatten()
        words = cross_entropy(scores[0], ids, ignore_index=0, reduction=reduction)
        return words.mean() + cross_entropy(scores[1], next_sentence.flatten())

    return lambda patch: patch.setattr(networks.Bert, "loss", loss)


def dropout(patch):
    patch.setattr(Trainer, "disable_dropout", lambda _self: None)


LOSS32, LOSS, GRADIENTS = ("first_loss", "fp32"), ("first_loss", "fp64"), ("gradients", "fp64")
FIRST, LAST = ("first_update", "fp64"), ("last_update", "fp64")


@pytest.mark.parametrize(
    ("model", "plant", "found", "agreed"),
    [
        ("resnet50", early_stride, {LOSS, *UNTRAINED - {SHAPES}}, {SHAPES}),
        ("resnet50", batch_norm_epsilon(1e-3), {LOSS, GRADIENTS}, {SHAPES}),
        ("resnet50", batch_norm_epsilon(1.2e-5), {LOSS, GRADIENTS}, {SHAPES}),
        ("bert", bert_facts(EPSILON=1e-5), {GRADIENTS}, {SHAPES}),
        ("bert", bert_facts(EPSILON=1e-8), {GRADIENTS}, {SHAPES}),
        ("bert", bert_facts(MASKED=0.0), {LOSS}, {SHAPES}),
        ("bert", optimizer("AdamW", eps=2e-8), {FIRST, LAST}, {GRADIENTS}),
        ("vgg16", optimizer("SGD", momentum=0.89), {LAST}, {LOSS32, LOSS, GRADIENTS, FIRST}),
        ("vgg16", optimizer("SGD", weight_decay=0.0), {FIRST}, {SHAPES}),
        ("bert", loss("sum"), {LOSS32, LOSS, GRADIENTS}, {SHAPES}),
        ("bert", loss("none"), {LOSS32, LOSS, GRADIENTS}, {SHAPES}),
        ("vgg16", dropout, {LOSS32}, {SHAPES}),
    ],
)
def test_other_work_is_found(against_paddle, monkeypatch, model, plant, found, agreed):
    plant(monkeypatch)
    checks = against_paddle(model)
    assert found <= amiss(checks) and not amiss(checks) & agreed
    where = checks["multiply_adds", None].where
    assert ("by the model's architecture" in where) == (plant is early_stride)


def test_a_missing_bias_is_found_by_its_name(against_paddle, monkeypatch):
    class Bare(networks.BertLayer):
        def __init__(self):
            super().__init__()
            self.out_proj = torch.nn.Linear(32, 32, bias=False)

    monkeypatch.setattr(networks, "BertLayer", Bare)
    checks = against_paddle("bert")
    assert amiss(checks) == {SHAPES}
    assert "layers.0.out_proj.bias 32 | none" in checks[SHAPES].where
    # Nothing was trained from weights that don't fit.
    assert {*checks} == UNTRAINED


def test_both_layouts_have_the_same_images():
    one, other = (
        fixed_batch(config("vgg16", layout=its), "float64") for its in ("NCHW", "NHWC")
    )
    assert (one[0].transpose(0, 2, 3, 1) == other[0]).all()
    assert (one[1] == other[1]).all()


# The judgement, on made accounts.

PARAMETERS = {"a.weight": (4, 2), "a.bias": (2,)}
TENSORS = [(precision, name) for precision in ALLOWED for name in [*NAMES][5:]]


def made(tensors=None, more=0, **changes):
    """Of a batch of 2, with so many `more` multiply-adds than it has."""
    near = dict.fromkeys(PARAMETERS, (1e-09, 1.0, 1.0)) | (tensors or {})
    losses = {precision: [7.0] * STEPS for precision in ALLOWED}
    count = 2 * models.multiply_adds(config("resnet50")) + more
    usual = {"parameters": PARAMETERS, "multiply_adds": count, "losses": losses}
    return Trace(**usual | {"distances": dict.fromkeys(TENSORS, near)} | changes)


def checks(base, other):
    found = judge(base, other, config("resnet50"))
    return {(check.name, check.precision): check for check in found}


def test_what_is_alike_is_agreed():
    assert not amiss(checks(made(), made()))


@pytest.mark.parametrize("loss", [nan, inf, -inf])
def test_a_loss_that_is_no_number_is_never_agreed_not_even_on_both_sides(loss):
    odd = made(losses={precision: [7.0, loss, 7.0, 7.0, 7.0] for precision in ALLOWED})
    for base, other in ((odd, made()), (made(), odd), (odd, odd)):
        found = checks(base, other)
        assert amiss(found) == {("losses", "fp32"), ("losses", "fp64")}
        assert found["losses", "fp64"].where == "step 2"
        assert found["losses", "fp64"].difference is None


@pytest.mark.parametrize("norms", [(nan, 1.0, nan), (inf, 1.0, inf), (nan, nan, nan)])
def test_a_tensor_with_what_is_no_number_is_never_agreed(norms):
    found = checks(made(), made({"a.bias": norms}))
    assert amiss(found) == {(name, precision) for precision, name in TENSORS}
    assert found["gradients", "fp32"].where == "a.bias"


def test_steps_that_were_not_trained_and_tensors_not_told_of_are_not_agreed():
    short = made(losses={"fp32": [7.0] * STEPS, "fp64": [7.0]})
    assert "5 and 1 steps" in checks(made(), short)["losses", "fp64"].where
    assert not checks(made(), made(losses={}))["first_loss", "fp32"].agreed
    lacking = made(distances={key: {"a.weight": (0.0, 1.0, 1.0)} for key in TENSORS})
    assert checks(made(), lacking)["gradients", "fp64"].where == "a.bias was not reported"


def test_a_gradient_that_is_zero_but_for_rounding_is_compared_with_the_others_size():
    assert not amiss(checks(made(), made({"a.bias": (3e-16, 2e-16, 2e-16)})))
    found = checks(made(), made({"a.bias": (3e-5, 2e-5, 4e-5)}))
    assert ("gradients", "fp64") in amiss(found)
    assert found["gradients", "fp64"].where == "a.bias"


def test_zeros_everywhere_show_nothing():
    found = checks(made(), made(dict.fromkeys(PARAMETERS, (0.0, 0.0, 0.0))))
    assert ("gradients", "fp64") in amiss(found)
    assert "nothing to compare" in found["gradients", "fp64"].where


def test_other_shapes_and_names_are_named_and_nothing_else_is_claimed():
    shapes = {"a.weight": (2, 4), "b.bias": (2,)}
    found = checks(made(), made(parameters=shapes, losses={}, distances={}))
    assert found[SHAPES].where == "a.bias 2 | none; a.weight 4 x 2 | 2 x 4; b.bias none | 2"
    assert found[SHAPES].difference == 3 and {*found} == UNTRAINED


def test_arithmetic_that_both_do_alike_but_not_as_the_model_has_it_is_not_agreed():
    for base, other in ((made(more=2), made(more=2)), (made(), made(more=1))):
        assert ("multiply_adds", None) in amiss(checks(base, other))


# What is stored, and what it holds for.

PADDLE = Side(framework="paddle", version="3.3.1", execution="dynamic", layout="NCHW")
TORCH = Side(framework="torch", version="2.13.0+cpu", execution="dynamic", layout="NHWC")


def verified(other=None, **changes):
    """A verification of Paddle and PyTorch with what `other` did."""
    found = judge(made(), other or made(), config("resnet50"))
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
        "against": [Against(side=TORCH, checks=found)],
        "environment": {"suite_source": Reading(value="1.0"), "cpu": Reading(value="one")},
    }
    return Verification(**values | changes)


def keep(outputs, one, name=""):
    (outputs / FOLDER).mkdir(parents=True, exist_ok=True)
    path = outputs / FOLDER / (name or one.file_name)
    path.write_text(one.model_dump_json())
    return path


def results(**changes):
    """Measurements of Paddle and PyTorch that the verification above holds for."""
    paddle_one = measured([1.0], execution="dynamic")
    told = {"execution": "dynamic", "layout": "NHWC"} | changes
    torch_one = measured([2.0], framework="torch", **told)
    version = {"torch": Reading(value="2.13.0+cu126")}
    environment = torch_one.environment | version
    return paddle_one, torch_one.model_copy(update={"environment": environment})


def test_a_verification_holds_for_measurements_of_the_same_work_versions_and_code(tmp_path):
    keep(tmp_path, verified())
    one, other = results()
    assert verification_of(tmp_path, one, other)[0] == verified()
    assert verification_of(tmp_path, other, one)[1:] == (TORCH, PADDLE)
    assert verification_of(tmp_path, one, one) is None
    assert verification_of(tmp_path / "elsewhere", one, other) is None
    for change in ({"image_size": 192}, {"execution": "static"}, {"layout": "NCHW"}):
        assert verification_of(tmp_path, one, results(**change)[1]) is None
    for fact in ("suite_source", "torch"):
        environment = other.environment | {fact: Reading(value="2.12.0")}
        changed = other.model_copy(update={"environment": environment})
        assert verification_of(tmp_path, one, changed) is None


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
def test_a_file_that_is_no_verification_is_left_out_by_name(tmp_path, change, why):
    whole = keep(tmp_path, verified())
    (whole.parent / "odd.json").write_text(change(whole.read_text()))
    left_out = []
    assert read_verifications(tmp_path, left_out) == [verified()]
    (reason,) = left_out
    assert "odd.json" in reason and why in reason


def test_a_page_shows_each_check_or_the_command_that_makes_them(tmp_path):
    one, other = results()
    folder = tmp_path / "outputs"
    page = work_equivalence(Measurement(folder / "m", one)).html
    assert "perfkit verify resnet50" in page
    keep(folder, verified())
    for result, partner in ((one, "PyTorch 2.13.0+cpu"), (other, "Paddle 3.3.1")):
        page = work_equivalence(Measurement(folder / "m", result)).html
        assert partner in page and "the same work." in page
        assert page.count("<tr>") == 1 + 3 + 2 * 5
    keep(folder, verified(made(more=2), created="2026-02-01T00:00:00+00:00"))
    (folder / FOLDER / "odd.json").write_text("<script>")
    page = work_equivalence(Measurement(folder / "m", one)).html
    assert "NOT the same work" in page and ">no</td>" in page
    assert "odd.json" in page and "<script>" not in page


def test_the_command_compares_what_was_measured():
    one, other = (result.config for result in results())
    assert command(one, other) == "perfkit verify resnet50 --frameworks paddle,torch"
    compiled = {"execution": "static", "layout": "NCHW", "image_size": 96}
    assert command(other.model_copy(update=compiled), one) == (
        "perfkit verify resnet50 --frameworks torch:static:NCHW,paddle -p image_size 96"
    )
    assert command(one) == "perfkit verify resnet50"
    lamb = {"model": "bert", "optimizer": "lamb", "batch_size": 2, "execution": "dynamic"}
    assert command(resolve(lamb)) == ""


def test_a_comparison_across_frameworks_says_whether_the_work_was_verified(tmp_path):
    both = [
        keep_result(tmp_path / n, one).folder for n, one in zip("ab", results(), strict=True)
    ]

    def compared():
        found = compare(*both, across=["framework", "layout"])
        return found.pairs[0].same_work.state, str(found)

    state, told = compared()
    assert state == "not verified"
    assert "perfkit verify resnet50 --frameworks paddle,torch" in told
    keep(tmp_path, verified())
    state, told = compared()
    assert state == "verified"
    assert "same work: verified in float32 and float64 (2026-01-01" in told
    # The newest counts, whatever its name.
    newer = verified(made(more=2), created="2026-03-01T00:00:00+00:00")
    keep(tmp_path, newer, "0.json")
    assert "same work: not the same" in compared()[1]


# The command.


@pytest.fixture
def in_workers(narrow, plant):
    """Narrow networks in the workers as here, and then `code`."""

    def planted(code=""):
        lines = ["from perfkit import models"]
        for model, sizes in NARROW.items():
            lines += [f"models.{model}.{name} = {value!r}" for name, value in sizes.items()]
        lines += code.splitlines()
        plant(IN_WORKER + "".join(f"    {line}\n" for line in lines))

    return planted


@pytest.fixture
def run(tmp_path, capsys):
    """`perfkit verify resnet50` of Paddle and PyTorch: its status and what it prints."""

    def verify():
        small = ["-p", "image_size", "32", "-p", "outputs_dir", str(tmp_path / "outputs")]
        with pytest.raises(SystemExit) as ended:
            main(["verify", "resnet50", "--frameworks", "paddle,torch", *small])
        return ended.value.code, capsys.readouterr()

    return verify


@pytest.mark.slow
def test_the_command_verifies_real_frameworks_and_stores_what_it_found(
    in_workers, run, tmp_path
):
    in_workers()
    status, printed = run()
    assert status == 0 and "The same work." in printed.out
    assert "PyTorch, dynamic, NHWC …" in printed.err
    (file,) = (tmp_path / "outputs" / FOLDER).iterdir()
    assert str(file) in printed.out
    (found,) = read_verifications(tmp_path / "outputs", [])
    assert found.agreed and found.environment["suite_source"].value


def test_the_command_ends_with_1_where_the_work_differs(run, tmp_path, monkeypatch):
    traces = iter([made(), made(more=2, losses={})])
    monkeypatch.setattr(verification, "perform", lambda *_task: ([],))
    monkeypatch.setattr(Trace, "of", lambda _events: next(traces))
    status, printed = run()
    assert status == 1 and max(map(len, printed.out.splitlines()[:-1])) <= 80
    assert "NOT the same work." in printed.out
    assert "! Multiply-adds, forward pass: " in printed.out
    assert "! Loss, worst step, float64: 5 and 0 steps were trained" in printed.out
    (found,) = read_verifications(tmp_path / "outputs", [])
    assert not found.agreed


@pytest.mark.slow
def test_a_framework_that_fails_is_told_and_leaves_nothing(in_workers, run, tmp_path):
    in_workers(
        "import perfkit.frameworks.torch.networks as network\ndel network.ResNet50.forward"
    )
    status, printed = run()
    assert status == 1 and "worker_error: rank 0: NotImplementedError" in printed.err
    assert [*(tmp_path / "outputs" / FOLDER).iterdir()] == []


def test_too_little_room_is_told_and_only_what_a_killed_verification_left_is_removed(
    run, tmp_path, monkeypatch
):
    folder = tmp_path / "outputs" / FOLDER
    killed, running = folder / ".traces-killed", folder / ".traces-running"
    for one in (killed, running):
        one.mkdir(parents=True)
        (one / "weights-1.npz").write_bytes(b"large")
        (one / ".lock").touch()
    room = SimpleNamespace(free=10**8)
    monkeypatch.setattr(verification.shutil, "disk_usage", lambda _path: room)
    with FileLock(running / ".lock"):
        status, printed = run()
        told = " ".join(printed.err.split())
        assert status == 1 and "disk_full" in told
        assert "has 0.1 GB of room, and what is compared takes 1.1 meanwhile" in told
        assert [*folder.iterdir()] == [running]
    assert run()[0] == 1
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize(
    ("named", "values", "why"),
    [
        ("paddle", {}, "two are needed"),
        ("paddle,paddle:dynamic:NCHW", {}, "is there already"),
        ("paddle,oneflow", {}, "oneflow"),
        ("paddle,torch:sideways", {}, "sideways"),
        ("paddle,torch", {"framework": "torch"}, "set it by --frameworks"),
        ("paddle,torch", {"precision": "bf16"}, "it takes optimizer"),
        ("paddle,torch", {"image_sise": 3}, "image_size"),
        ("paddle,torch", {"optimizer": "lamb"}, "optimizer"),
        ("", {}, "two are needed"),
    ],
)
def test_a_wrong_request_is_refused(named, values, why, tmp_path):
    with pytest.raises(RequestError, match=why):
        sides("resnet50", named, values | {"outputs_dir": str(tmp_path)})


def test_of_what_is_installed_all_are_compared_that_can_be(tmp_path):
    places = {"outputs_dir": str(tmp_path)}
    assert [one.framework for one in sides("bert", None, places)][:2] == ["paddle", "torch"]
    with pytest.raises(RequestError, match="installed for this: paddle"):
        sides("bert", None, places | {"optimizer": "lamb"})
    with pytest.raises(RequestError, match="alexnet"):
        sides("alexnet", None, places)
    one, other = sides("resnet50", "torch:static:NCHW,paddle", places)
    assert (one.execution, one.layout, other.execution) == ("static", "NCHW", "dynamic")
