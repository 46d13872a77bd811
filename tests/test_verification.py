"""Whether frameworks do the same work: found where it is so, and refused where it is not."""

import json
import sys
from datetime import UTC, datetime
from functools import cache
from math import inf, nan
from types import SimpleNamespace

import paddle
import pytest
from conftest import IN_WORKER
from filelock import FileLock
from made import measured

from perfkit import models
from perfkit.cli import main
from perfkit.comparison import compare
from perfkit.models import MODELS
from perfkit.report.measurement import work_equivalence
from perfkit.request.errors import RequestError
from perfkit.request.resolve import resolve
from perfkit.results.schema import Reading
from perfkit.results.store import Measurement, write_result
from perfkit.verification import verify
from perfkit.verification.stored import (
    FOLDER,
    Against,
    Side,
    Verification,
    read_verifications,
    verification_of,
    verifications_of,
)
from perfkit.verification.verdict import ALLOWED, TENSORS, Account, judged
from perfkit.verification.words import command, text
from perfkit.worker.trace import STEPS, fixed_batch, write_trace

torch = pytest.importorskip("torch")

from perfkit.frameworks.torch import bert as bert_torch  # noqa: E402
from perfkit.frameworks.torch import resnet50 as resnet50_torch  # noqa: E402

NARROW = {
    "resnet50": {"STEM": 8, "STAGES": ((8, 2), (16, 1), (16, 1), (16, 1))},
    "vgg16": {"STAGES": ((8, 1), (16, 2)), "DENSE": 32},
    "bert": {"LAYERS": 1, "WIDTH": 32, "HEADS": 4, "INNER": 64, "VOCABULARY": 1100},
}
"""Networks with all kinds of layers that the real ones have, in seconds."""


@pytest.fixture(scope="module")
def narrow():
    """Narrow networks in all frameworks."""
    with pytest.MonkeyPatch.context() as patch:
        for model, sizes in NARROW.items():
            for name, value in sizes.items():
                patch.setattr(getattr(models, model), name, value)
        yield


def with_facts(monkeypatch, network, **facts):
    """Give one framework's network facts that the others don't have."""
    changed = SimpleNamespace(**vars(network.facts) | facts)
    monkeypatch.setattr(network, "facts", changed)


def config(model, framework="paddle", **changes):
    values = {"model": model, "framework": framework, "device": "cpu", "processes": 1}
    values |= {"input": "synthetic", "optimizer": MODELS[model].optimizers[0]}
    values |= {"batch_size": 2, "execution": "static" if framework == "jax" else "dynamic"}
    layout = "NCHW" if framework == "paddle" else "NHWC"
    images = {"image_size": 32, "layout": layout}
    values |= {"sequence_length": 16} if model == "bert" else images
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
    return Account.of(events)


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
        return {(one.name, one.precision): one for one in judged(base, other, config(model))}

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
    assert checks["parameters", None].base > 1000


@pytest.mark.usefixtures("processes")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_pytorch_does_the_same_work(against_paddle):
    assert not amiss(against_paddle("vgg16", execution="static", layout="NCHW"))


@pytest.mark.parametrize("model", ["resnet50", "bert"])
def test_jax_does_the_same_work(against_paddle, model):
    pytest.importorskip("jax")
    assert not amiss(against_paddle(model, "jax"))


def test_a_stride_in_another_convolution_is_found_though_the_parameters_are_the_same(
    against_paddle, monkeypatch
):
    class Original(resnet50_torch.Bottleneck):
        """As He et al. had it, before v1.5."""

        def __init__(self, inputs, width, stride):
            super().__init__(inputs, width, stride)
            self.conv1.stride, self.conv2.stride = (stride, stride), (1, 1)

    monkeypatch.setattr(resnet50_torch, "Bottleneck", Original)
    checks = against_paddle("resnet50")
    assert checks["parameters", None].agreed
    assert {("multiply_adds", None), ("training_flops", None)} <= amiss(checks)
    assert ("first_loss", "fp64") in amiss(checks)
    assert "architecture" in checks["multiply_adds", None].where


def test_a_missing_bias_is_found_by_its_name(against_paddle, monkeypatch):
    class Bare(bert_torch.Layer):
        def __init__(self):
            super().__init__()
            self.out_proj = torch.nn.Linear(32, 32, bias=False)

    monkeypatch.setattr(bert_torch, "Layer", Bare)
    checks = against_paddle("bert")
    assert amiss(checks) == {("parameters", None)}
    assert "layers.0.out_proj.bias 32 | none" in checks["parameters", None].where
    # Nothing was trained from weights that don't fit.
    assert set(checks) == {(name, None) for name in ("parameters", "multiply_adds")} | {
        ("training_flops", None)
    }


@pytest.mark.parametrize("epsilon", [1e-3, 1.2e-5])
def test_another_epsilon_of_batch_norm_is_found(against_paddle, monkeypatch, epsilon):
    usual = torch.nn.BatchNorm2d
    monkeypatch.setattr(torch.nn, "BatchNorm2d", lambda width: usual(width, eps=epsilon))
    assert {("first_loss", "fp64"), ("gradients", "fp64")} <= amiss(against_paddle("resnet50"))


@pytest.mark.parametrize("epsilon", [1e-5, 1e-8])
def test_another_epsilon_of_layer_norm_is_found(against_paddle, monkeypatch, epsilon):
    with_facts(monkeypatch, bert_torch, EPSILON=epsilon)
    assert ("gradients", "fp64") in amiss(against_paddle("bert"))


def test_another_epsilon_of_the_optimizer_is_found_in_its_updates(against_paddle, monkeypatch):
    made = torch.optim.AdamW
    monkeypatch.setattr(torch.optim, "AdamW", lambda *a, **k: made(*a, **k, eps=2e-8))
    found = amiss(against_paddle("bert"))
    assert {("first_update", "fp64"), ("last_update", "fp64")} <= found
    assert ("gradients", "fp64") not in found


def test_another_momentum_is_found_in_later_updates_alone(against_paddle, monkeypatch):
    made = torch.optim.SGD
    monkeypatch.setattr(
        torch.optim, "SGD", lambda p, rate, momentum, **k: made(p, rate, 0.89, **k)
    )
    assert amiss(against_paddle("vgg16")) == {("last_update", "fp64")}


def test_another_weight_decay_is_found(against_paddle, monkeypatch):
    made = torch.optim.SGD
    monkeypatch.setattr(
        torch.optim,
        "SGD",
        lambda p, rate, momentum, weight_decay, **k: made(p, rate, momentum, **k),
    )
    assert ("first_update", "fp64") in amiss(against_paddle("vgg16"))


def _sum(self, scores, masked_ids, next_sentence):
    cross_entropy = torch.nn.functional.cross_entropy
    words = cross_entropy(scores[0], masked_ids.flatten(), ignore_index=0, reduction="sum")
    return words + cross_entropy(scores[1], next_sentence.flatten())


def _all_places(self, scores, masked_ids, next_sentence):
    cross_entropy = torch.nn.functional.cross_entropy
    words = cross_entropy(scores[0], masked_ids.flatten(), ignore_index=0, reduction="none")
    return words.mean() + cross_entropy(scores[1], next_sentence.flatten())


@pytest.mark.parametrize("loss", [_sum, _all_places])
def test_another_reduction_of_the_loss_is_found(against_paddle, monkeypatch, loss):
    monkeypatch.setattr(bert_torch.Bert, "loss", loss)
    found = amiss(against_paddle("bert"))
    assert {("first_loss", "fp32"), ("first_loss", "fp64"), ("gradients", "fp64")} <= found


def test_attention_to_padding_is_found(against_paddle, monkeypatch):
    with_facts(monkeypatch, bert_torch, MASKED=0.0)
    assert ("first_loss", "fp64") in amiss(against_paddle("bert"))


def test_dropout_that_stays_on_is_found(against_paddle, monkeypatch):
    from perfkit.frameworks.torch.backend import Trainer

    monkeypatch.setattr(Trainer, "disable_dropout", lambda _self: None)
    assert ("first_loss", "fp32") in amiss(against_paddle("vgg16"))


def test_both_layouts_have_the_same_images():
    one, other = (
        fixed_batch(config("vgg16", layout=its), "float64") for its in ("NCHW", "NHWC")
    )
    assert (one[0].transpose(0, 2, 3, 1) == other[0]).all()
    assert (one[1] == other[1]).all()


# The judgement, on made accounts

PARAMETERS = {"a.weight": (4, 2), "a.bias": (2,)}


def made(**changes):
    count = models.multiply_adds(config("resnet50"))
    near = dict.fromkeys(PARAMETERS, (1e-09, 1.0, 1.0))
    values = {
        "parameters": PARAMETERS,
        "multiply_adds": 2 * count,
        "losses": {precision: [7.0] * STEPS for precision in ALLOWED},
        "distances": {(precision, name): near for precision in ALLOWED for name in TENSORS},
    }
    return Account(**values | changes)


def checks(base, other):
    found = judged(base, other, config("resnet50"))
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
    tensors = {"a.weight": (0.0, 1.0, 1.0), "a.bias": norms}
    distances = made().distances | {(p, "gradients"): tensors for p in ALLOWED}
    found = checks(made(), made(distances=distances))
    assert amiss(found) == {("gradients", "fp32"), ("gradients", "fp64")}
    assert found["gradients", "fp32"].where == "a.bias"


def test_steps_that_were_not_trained_and_tensors_not_told_of_are_not_agreed():
    short = made(losses={"fp32": [7.0] * STEPS, "fp64": [7.0]})
    assert "5 and 1 steps" in checks(made(), short)["losses", "fp64"].where
    assert not checks(made(), made(losses={}))["first_loss", "fp32"].agreed
    lacking = {key: {"a.weight": (0.0, 1.0, 1.0)} for key in made().distances}
    assert checks(made(), made(distances=lacking))["gradients", "fp64"].where == (
        "not told of a.bias"
    )


def test_a_gradient_that_is_zero_but_for_rounding_is_compared_with_the_others_size():
    nothing = {"a.weight": (0.0, 1.0, 1.0), "a.bias": (3e-16, 2e-16, 2e-16)}
    distances = dict.fromkeys(made().distances, nothing)
    assert not amiss(checks(made(), made(distances=distances)))
    small = {"a.weight": (0.0, 1.0, 1.0), "a.bias": (3e-5, 2e-5, 4e-5)}
    found = checks(made(), made(distances=dict.fromkeys(made().distances, small)))
    assert ("gradients", "fp64") in amiss(found)
    assert found["gradients", "fp64"].where == "a.bias"


def test_zeros_everywhere_show_nothing():
    zeros = dict.fromkeys(made().distances, dict.fromkeys(PARAMETERS, (0.0, 0.0, 0.0)))
    found = checks(made(), made(distances=zeros))
    assert ("gradients", "fp64") in amiss(found)
    assert "nothing to compare" in found["gradients", "fp64"].where


def test_other_shapes_and_names_are_named_and_nothing_else_is_claimed():
    shapes = {"a.weight": (2, 4), "b.bias": (2,)}
    found = checks(made(), made(parameters=shapes, losses={}, distances={}))
    assert found["parameters", None].where == (
        "a.bias 2 | none; a.weight 4 x 2 | 2 x 4; b.bias none | 2"
    )
    assert found["parameters", None].difference == 3
    assert set(found) == {(n, None) for n in ("parameters", "multiply_adds", "training_flops")}


def test_arithmetic_that_both_do_alike_but_not_as_the_model_has_it_is_not_agreed():
    odd = made(multiply_adds=made().multiply_adds + 2)
    assert ("multiply_adds", None) in amiss(checks(odd, odd))
    more = made(multiply_adds=made().multiply_adds + 1)
    assert ("multiply_adds", None) in amiss(checks(made(), more))


# What is stored, and what it holds for

PADDLE = Side(framework="paddle", version="3.3.1", execution="dynamic", layout="NCHW")
TORCH = Side(framework="torch", version="2.13.0+cpu", execution="dynamic", layout="NHWC")


def verification(**changes):
    facts = {"suite_source": Reading(value="1.0"), "cpu": Reading(value="one")}
    values = {
        "schema_version": 1,
        "created": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
        "model": "resnet50",
        "optimizer": "momentum",
        "image_size": 224,
        "sequence_length": None,
        "batch_size": 4,
        "seed": 0,
        "steps": STEPS,
        "base": PADDLE,
        "against": [Against(side=TORCH, checks=judged(made(), made(), config("resnet50")))],
        "environment": facts,
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
    keep(tmp_path, verification())
    one, other = results()
    assert verification_of(tmp_path, one, other)[0] == verification()
    assert verification_of(tmp_path, other, one)[1:] == (TORCH, PADDLE)
    assert verification_of(tmp_path, one, one) is None
    assert verifications_of(tmp_path / "elsewhere", one) == []
    for change in ({"image_size": 192}, {"execution": "static"}, {"layout": "NCHW"}):
        assert verification_of(tmp_path, one, results(**change)[1]) is None
    for fact in ("suite_source", "torch"):
        environment = other.environment | {fact: Reading(value="2.12.0")}
        changed = other.model_copy(update={"environment": environment})
        assert verification_of(tmp_path, one, changed) is None


def test_the_newest_verification_counts(tmp_path):
    keep(tmp_path, verification(), "a.json")
    failed = judged(made(), made(multiply_adds=1), config("resnet50"))
    newer = verification(
        created="2026-02-01T00:00:00+00:00", against=[Against(side=TORCH, checks=failed)]
    )
    keep(tmp_path, newer, "0.json")
    found, *sides = verification_of(tmp_path, *results())
    assert found == newer
    assert not found.agree(*sides)


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
    whole = keep(tmp_path, verification())
    (whole.parent / "odd.json").write_text(change(whole.read_text()))
    left_out = []
    assert [*read_verifications(tmp_path, left_out)] == [verification()]
    (reason,) = left_out
    assert "odd.json" in reason
    assert why in reason


def test_a_page_shows_each_check_or_the_command_that_makes_them(tmp_path):
    one, other = results()
    folder = tmp_path / "outputs"
    page = work_equivalence(Measurement(folder / "m", one)).html
    assert "perfkit verify resnet50" in page
    keep(folder, verification())
    for result, partner in ((one, "PyTorch 2.13.0+cpu"), (other, "Paddle 3.3.1")):
        page = work_equivalence(Measurement(folder / "m", result)).html
        assert f"{partner}" in page
        assert "the same work." in page
        assert page.count("<tr>") == 1 + 3 + 2 * 5
    (folder / FOLDER / "odd.json").write_text("<script>")
    page = work_equivalence(Measurement(folder / "m", one)).html
    assert "odd.json" in page
    assert "<script>" not in page


def test_a_page_says_that_the_work_is_not_the_same(tmp_path):
    failed = judged(made(), made(multiply_adds=1), config("resnet50"))
    keep(tmp_path, verification(against=[Against(side=TORCH, checks=failed)]))
    page = work_equivalence(Measurement(tmp_path / "m", results()[0])).html
    assert "NOT the same work" in page
    assert ">no</td>" in page


def test_the_command_compares_what_was_measured():
    one, other = (result.config for result in results())
    assert command(one, other) == "perfkit verify resnet50 --frameworks paddle,torch"
    compiled = other.model_copy(update={"execution": "static", "image_size": 96})
    assert command(compiled.model_copy(update={"layout": "NCHW"}), one) == (
        "perfkit verify resnet50 --frameworks torch:static:NCHW,paddle -p image_size 96"
    )
    assert command(one) == "perfkit verify resnet50"
    lamb = resolve(
        {"model": "bert", "optimizer": "lamb", "batch_size": 2, "execution": "dynamic"}
    )
    assert command(lamb) == ""


def test_a_verification_is_told_in_80_columns(tmp_path):
    failed = judged(made(), made(losses={}), config("resnet50"))
    told = text(verification(against=[Against(side=TORCH, checks=failed)]))
    assert max(map(len, told.splitlines())) <= 80
    assert "NOT the same work." in told
    assert "! Loss, worst step, float64: 5 and 0 steps were trained" in told


# The command


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


def run(tmp_path, *options):
    small = ["-p", "image_size", "32", "-p", "outputs_dir", str(tmp_path / "outputs")]
    with pytest.raises(SystemExit) as ended:
        main(["verify", "resnet50", "--frameworks", "paddle,torch", *small, *options])
    return ended.value.code


@pytest.mark.slow
def test_the_command_verifies_real_frameworks_and_stores_what_it_found(
    in_workers, tmp_path, capsys
):
    in_workers()
    assert run(tmp_path) == 0
    printed = capsys.readouterr()
    assert "The same work." in printed.out
    assert "PyTorch, dynamic, NHWC …" in printed.err
    (file,) = (tmp_path / "outputs" / FOLDER).iterdir()
    assert str(file) in printed.out
    (found,) = read_verifications(tmp_path / "outputs", [])
    assert found.agreed
    assert found.environment["suite_source"].value


ORIGINAL = """
import perfkit.frameworks.torch.resnet50 as network
class Original(network.Bottleneck):
    def __init__(self, inputs, width, stride):
        super().__init__(inputs, width, stride)
        self.conv1.stride, self.conv2.stride = (stride, stride), (1, 1)
network.Bottleneck = Original
"""


@pytest.mark.slow
def test_the_command_ends_with_1_where_the_work_differs(in_workers, tmp_path, capsys):
    in_workers(ORIGINAL)
    assert run(tmp_path) == 1
    printed = capsys.readouterr().out
    assert "NOT the same work." in printed
    assert "! Multiply-adds, forward pass: " in printed
    (found,) = read_verifications(tmp_path / "outputs", [])
    assert not found.agreed


@pytest.mark.slow
def test_a_framework_that_fails_is_told_and_leaves_nothing(in_workers, tmp_path, capsys):
    in_workers(
        "import perfkit.frameworks.torch.resnet50 as network\ndel network.ResNet50.forward"
    )
    assert run(tmp_path) == 1
    assert "worker_error: rank 0: NotImplementedError" in capsys.readouterr().err
    assert [*(tmp_path / "outputs" / FOLDER).iterdir()] == []


def test_what_a_killed_verification_left_is_removed_by_the_next_but_not_what_is_in_use(
    tmp_path, monkeypatch
):
    folder = tmp_path / "outputs" / FOLDER
    killed, running = folder / ".witnesses-killed", folder / ".witnesses-running"
    for one in (killed, running):
        one.mkdir(parents=True)
        (one / "weights-1.npz").write_bytes(b"large")
        (one / ".lock").touch()
    room = SimpleNamespace(free=10**8)
    monkeypatch.setattr(verify.shutil, "disk_usage", lambda _path: room)
    with FileLock(running / ".lock"):
        assert run(tmp_path) == 1
        assert [*folder.iterdir()] == [running]
    assert run(tmp_path) == 1
    assert [*folder.iterdir()] == []


def test_too_little_room_is_told_before_anything_starts(tmp_path, monkeypatch, capsys):
    room = SimpleNamespace(free=10**8)
    monkeypatch.setattr(verify.shutil, "disk_usage", lambda _path: room)
    assert run(tmp_path) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "disk_full" in told
    assert "has 0.1 GB of room, and what is compared takes 1.1 meanwhile" in told


@pytest.mark.parametrize(
    ("named", "values", "why"),
    [
        ("paddle", {}, "two are needed"),
        ("paddle,paddle:dynamic:NCHW", {}, "is there already"),
        ("paddle,tensorflow", {}, "tensorflow"),
        ("paddle,torch:sideways", {}, "sideways"),
        ("paddle,torch", {"framework": "torch"}, "said by --frameworks"),
        ("paddle,torch", {"precision": "bf16"}, "it takes optimizer"),
        ("paddle,torch", {"image_sise": 3}, "image_size"),
        ("paddle,torch", {"optimizer": "lamb"}, "optimizer"),
        ("", {}, "two are needed"),
    ],
)
def test_a_wrong_request_is_refused(named, values, why, tmp_path):
    with pytest.raises(RequestError, match=why):
        verify.sides("resnet50", named, values | {"outputs_dir": str(tmp_path)})


def test_of_what_is_installed_all_are_compared_that_can_be(tmp_path):
    places = {"outputs_dir": str(tmp_path)}
    found = verify.sides("bert", None, places)
    assert [one.framework for one in found][:2] == ["paddle", "torch"]
    with pytest.raises(RequestError, match="installed for this: paddle"):
        verify.sides("bert", None, places | {"optimizer": "lamb"})
    with pytest.raises(RequestError, match="alexnet"):
        verify.sides("alexnet", None, places)
    one, other = verify.sides("resnet50", "torch:static:NCHW,paddle", places)
    assert (one.execution, one.layout, other.execution) == ("static", "NCHW", "dynamic")


# Comparisons


def test_a_comparison_across_frameworks_says_whether_the_work_was_verified(tmp_path):
    for name, result in zip("ab", results(), strict=True):
        (tmp_path / name).mkdir()
        write_result(tmp_path / name, result.model_copy(update={"id": name}))
    across = ["framework", "layout"]

    def compared():
        return compare(tmp_path / "a", tmp_path / "b", across=across)

    (pair,) = compared().pairs
    assert pair.same_work.state == "not verified"
    assert "perfkit verify resnet50 --frameworks paddle,torch" in str(compared())
    keep(tmp_path, verification())
    (pair,) = compared().pairs
    assert pair.same_work.state == "verified"
    assert "same work: verified in float32 and float64 (2026-01-01" in str(compared())
    failed = judged(made(), made(multiply_adds=1), config("resnet50"))
    against = [Against(side=TORCH, checks=failed)]
    keep(tmp_path, verification(against=against, created="2026-03-01T00:00:00+00:00"))
    assert "same work: not the same" in str(compared())
