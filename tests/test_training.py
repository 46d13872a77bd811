"""The training scripts of the built-in models in Paddle, PyTorch, JAX and TensorFlow, on narrow
models."""

import os
import subprocess
import sys
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
from narrow import WORDS, replace_sizes
from trained import measured_here, train_here

paddle = pytest.importorskip("paddle")
torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
# ruff: noqa: E402 - the frameworks are optional; the imports below need them
from torch.utils._python_dispatch import TorchDispatchMode

from perfkit.inputs import synthetic
from perfkit.measuring.paths import ROOT
from perfkit.timing.failure import ConfigMismatchError
from perfkit.training import models
from perfkit.training.effective import (
    PrecisionUnknownError,
    effective_precision,
    skipped_steps,
)
from perfkit.training.jax import bert as jax_bert
from perfkit.training.jax import layers as jax_layers
from perfkit.training.jax import llama as jax_llama
from perfkit.training.jax import models as jax_models
from perfkit.training.jax import train as jax_train
from perfkit.training.jax.verify import in_pytorchs_axes
from perfkit.training.models import MODELS
from perfkit.training.options import Options
from perfkit.training.paddle import attention as paddle_attention
from perfkit.training.paddle import llama as paddle_llama
from perfkit.training.paddle import precision as paddle_precision
from perfkit.training.paddle import train as paddle_train
from perfkit.training.torch import llama as torch_llama
from perfkit.training.torch import models as torch_models
from perfkit.training.torch import train as torch_train
from perfkit.training.torch.train import align_gradients

needs_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="needs TensorFlow: make .venv/test"
)
pytestmark = [
    # PyTorch's compiler uses deprecated parts of PyTorch.
    pytest.mark.filterwarnings("ignore:::torch.*"),
    pytest.mark.usefixtures("compiled_once"),
]
BOTH = ("paddle", "torch")
JAX = pytest.param("jax", marks=pytest.mark.slow)
TENSORFLOW = pytest.param("tensorflow", marks=[needs_tensorflow, pytest.mark.slow])
OF_JAX = ("resnet50", "bert", "gpt", "llama")
OF_TENSORFLOW = ("resnet50", "bert")
RATE = {"resnet50": 32, "vgg16": 96}
"""Batch size that sets the learning rate for training two samples, by default 2."""
SCRIPTS = {"paddle": paddle_train, "torch": torch_train}


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)
    # The models are small; threads waiting for each other only cost time.
    torch.set_num_threads(1)


def words(model, **changes):
    """Return the arguments of a small training."""
    length = {"image_size": 32} if MODELS[model].sample == "image" else {"sequence_length": 16}
    given = {"model": model, "device": "cpu", "batch_size": 2} | length | changes
    arguments = []
    for name, value in given.items():
        arguments += [f"--{name.replace('_', '-')}", value]
    return arguments


def trained(framework, model, job=None, **changes):
    return train_here(framework, *words(model, **changes), **(job or {}))


def options(framework, model, **changes):
    return Options.parse(framework, [*map(str, words(model, **changes))])


def new_model(framework, given):
    return import_module(f"perfkit.training.{framework}.models").new_model(given)


both = pytest.mark.parametrize("framework", BOTH)
all_frameworks = pytest.mark.parametrize("framework", [*BOTH, JAX, TENSORFLOW])
JAXS = [*product(["jax"], OF_JAX)]
TENSORFLOWS = [
    pytest.param("tensorflow", model, marks=needs_tensorflow) for model in OF_TENSORFLOW
]
COMPILED = [
    *[pytest.param("jax", model, marks=pytest.mark.slow) for model in OF_JAX],
    *[pytest.param(*one.values, marks=[*one.marks, pytest.mark.slow]) for one in TENSORFLOWS],
]
each = pytest.mark.parametrize(("framework", "model"), [*product(BOTH, MODELS), *COMPILED])


# The script.


@pytest.mark.usefixtures("processes")
def test_a_script_trains_by_itself_and_prints_its_throughput(tmp_path):
    command = [sys.executable, "-m", "perfkit.training.torch.train"]
    command += ["--model", "resnet50", "--batch-size", "2", "--device", "cpu"]
    command += ["--image-size", "32", "--steps", "5"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "images/s of this process in the last 3 of 5 steps" in done.stderr


@each
def test_a_script_tells_what_it_trains_and_its_loss_falls(framework, model, monkeypatch):
    given = options(framework, model, batch_size=RATE.get(model, 2))
    monkeypatch.setattr(Options, "optimizer_settings", given.optimizer_settings)
    if model == "vgg16":
        # Half of a narrow layer cannot learn two images in a few steps.
        without_dropout(framework, monkeypatch)
    steps = 60 if model == "vgg16" else 20
    run = trained(framework, model, {"measured_steps": steps})

    facts = given.facts
    assert run.told["unit"] + "/s" == facts.unit
    per_sample = 16 if facts.unit == "tokens/s" else 1
    assert run.told["samples_per_step"] == 2 * per_sample
    assert run.window["samples"] == steps * 2 * per_sample
    assert run.told["precision"] == run.notes["precision"] == "fp32"
    assert run.notes["loss_scaling"] is None
    assert not run.notes["tf32"]
    assert run.notes["optimizer_settings"].startswith(("momentum SGD", "AdamW"))
    assert run.memory_bytes > 1e6

    losses = run.losses
    assert len(losses) == steps + 1
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.9 * losses[0]


def without_dropout(framework, monkeypatch):
    if framework == "jax":
        return
    module = sys.modules[framework].nn.functional
    monkeypatch.setattr(module, "dropout", lambda x, *_rest, **_named: x)


@all_frameworks
def test_a_seed_gives_the_same_losses(framework):
    first = trained(framework, "bert", seed=1)
    assert trained(framework, "bert", seed=1).losses == first.losses
    assert trained(framework, "bert", seed=2).losses[0] != first.losses[0]


# Precision.


@pytest.mark.parametrize(
    ("produced", "weights", "name"),
    [
        ("float32", "float32", "fp32"),
        ("float16 float32", "float32", "amp"),
        ("float16 float32", "float16 float32", "pure_fp16"),
        ("bfloat16 float32", "bfloat16", "bf16"),
        ("float64 float32", "float32", "float32+float64"),
        ("", "float32", "unknown"),
    ],
)
def test_precision_is_named_by_the_dtypes_of_outputs_and_weights(produced, weights, name):
    assert effective_precision(produced.split(), iter(weights.split())) == name


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("resnet50", "amp"),
        ("vgg16", "bf16"),
        ("bert", "amp"),
        ("gpt", "bf16"),
        ("llama", "amp"),
    ],
)
def test_pytorch_computes_in_the_lower_precision_on_a_cpu(model, precision):
    run = trained("torch", model, precision=precision)
    dtype = {"amp": "float16", "bf16": "bfloat16"}[precision]
    assert run.notes["precision"] == run.told["precision"] == precision
    assert {*run.notes["dtypes"]} - {"float32"} == {dtype}
    assert run.notes["loss_scaling"] == (2.0**15 if precision == "amp" else None)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "llama"])
def test_jax_computes_in_the_lower_precision_on_a_cpu(model):
    run = trained("jax", model, precision="bf16")
    assert run.notes["precision"] == run.told["precision"] == "bf16"
    assert {*run.notes["dtypes"]} - {"float32"} == {"bfloat16"}
    assert run.notes["loss_scaling"] is None


def test_pytorch_that_ignores_the_precision_is_refused_before_the_first_step(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_given, **_named: nullcontext())
    with pytest.raises(
        ConfigMismatchError, match="precision=bf16 was requested, but the"
    ) as error:
        trained("torch", "gpt", precision="bf16")
    assert "has precision=fp32" in str(error.value)
    assert error.value.failure_code == "config_mismatch"


@needs_tensorflow
@pytest.mark.parametrize(("model", "precision"), [("resnet50", "amp"), ("bert", "bf16")])
def test_tensorflow_computes_in_the_lower_precision_on_a_cpu(model, precision):
    run = trained("tensorflow", model, precision=precision)
    assert run.notes["precision"] == run.told["precision"] == precision
    assert {*run.notes["dtypes"]} == {{"amp": "float16", "bf16": "bfloat16"}[precision]}
    assert run.notes["loss_scaling"] == (2.0**15 if precision == "amp" else None)


@pytest.mark.parametrize("precision", ["amp", "bf16"])
def test_paddle_that_ignores_the_precision_on_a_cpu_is_refused(precision):
    if paddle.is_compiled_with_cuda():
        pytest.skip("a GPU build of Paddle trains on the GPU here")
    with pytest.raises(ConfigMismatchError, match=f"precision={precision} was requested"):
        trained("paddle", "resnet50", precision=precision)


@pytest.mark.parametrize("model", ["resnet50", "bert"])
def test_the_precision_of_paddle_is_unknown_unless_all_layers_products_are_counted(
    model, monkeypatch
):
    known = tuple(name for name in paddle_precision.PRODUCTS if "conv" in name)
    if MODELS[model].sample == "image":
        known = ("matmul", "linear_v2")
    monkeypatch.setattr(paddle_precision, "PRODUCTS", known)
    with pytest.raises(PrecisionUnknownError, match="dense layers, but Paddle counted"):
        trained("paddle", model)


# Settings.


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"memory_format": "channels_last", "execution": "eager", "optimizer": "fused"}),
        ({"layout": "NCHW"}, {"memory_format": "contiguous"}),
        ({"disable_tuning": "all"}, {"optimizer": "PyTorch's default"}),
    ],
)
def test_pytorchs_settings_are_noted(changes, expected):
    assert trained("torch", "resnet50", **changes).notes["settings"].items() >= expected.items()


@pytest.mark.parametrize("model", ["resnet50", "vgg16"])
def test_nhwc_keeps_channels_last_in_every_layer(model, monkeypatch):
    channels_last = []

    def watched(given):
        created = torch_models.new_model(given)
        for layer in created.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.register_forward_hook(record)
        return created

    def record(_layer, _inputs, output):
        channels_last.append(output.is_contiguous(memory_format=torch.channels_last))

    monkeypatch.setattr(torch_train, "new_model", watched)
    trained("torch", model, image_size=64)
    assert len(channels_last) > 20
    assert all(channels_last)


@pytest.mark.parametrize(("disabled", "on"), [("", True), ("all", False)])
def test_gpu_settings_are_applied_unless_disabled(monkeypatch, disabled, on):
    """CUDA's own call is left out; PyTorch's own switches are used."""
    monkeypatch.setattr(torch.cuda, "set_device", lambda *_: None)
    cuda = torch.backends.cuda
    switches = [cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_cudnn_sdp]
    benchmark = torch.backends.cudnn.benchmark
    try:
        torch_train.open_device(options("torch", "gpt", device="gpu", disable_tuning=disabled))
        assert torch.backends.cudnn.benchmark == on
        assert cuda.flash_sdp_enabled() == on
        assert cuda.mem_efficient_sdp_enabled() == on
        assert cuda.cudnn_sdp_enabled() == on
        assert cuda.math_sdp_enabled()
    finally:
        torch.backends.cudnn.benchmark = benchmark
        for switch in switches:
            switch(True)


# Optimizers.


@pytest.mark.parametrize(("framework", "optimizer"), [("paddle", "lamb"), ("torch", "adamw")])
def test_biases_and_norms_have_no_weight_decay(framework, optimizer):
    """That the other frameworks' AdamW takes PyTorch's steps is in test_verification.py."""
    given = options(framework, "bert", optimizer=optimizer)
    model = new_model(framework, given)
    stepper = SCRIPTS[framework].new_optimizer(given, model)
    before = {}
    for name, parameter in model.named_parameters():
        before[name] = parameter.detach().numpy().copy()
        # With zero gradients only weight decay changes a parameter.
        zeros = sys.modules[framework].zeros_like(parameter)
        parameter.grad = zeros
    stepper.step()
    for name, parameter in model.named_parameters():
        is_unchanged = np.array_equal(before[name], parameter.detach().numpy())
        assert is_unchanged == (parameter.ndim == 1), name


def test_a_fused_first_step_that_overflows_finds_momentum():
    """On an overflow a fused kernel writes nothing, not even the first step's buffers."""
    given = options("torch", "vgg16")
    model = torch_models.new_model(given)
    state = torch_train.new_optimizer(given, model).state
    for parameter in model.parameters():
        assert not state[parameter]["momentum_buffer"].any()


def test_overflows_skip_steps_and_halve_the_loss_scale(monkeypatch):
    monkeypatch.setattr(torch_train, "INITIAL_LOSS_SCALE", 2.0**40)
    run = trained("torch", "gpt", {"measured_steps": 40}, precision="amp")
    skipped = run.notes["skipped_steps"]
    assert skipped > 0
    assert run.notes["loss_scale"] == 2.0 ** (40 - skipped)
    # The weights have not changed.
    assert len({*run.losses[: skipped + 1]}) == 1
    assert run.losses[-1] < run.losses[0]


@pytest.mark.slow
@needs_tensorflow
def test_overflows_skip_steps_of_tensorflow_and_halve_its_loss_scale(monkeypatch):
    from perfkit.training.tensorflow import train

    monkeypatch.setattr(train, "INITIAL_LOSS_SCALE", 2.0**40)
    monkeypatch.setattr(models, "BERT_SIZE", models.BERT_SIZE._replace(dropout=0.0))
    run = trained("tensorflow", "bert", {"measured_steps": 40}, precision="amp")
    skipped = run.notes["skipped_steps"]
    assert skipped > 0
    assert run.notes["loss_scale"] == 2.0 ** (40 - skipped)
    # The weights have not changed.
    assert len({*run.losses[: skipped + 1]}) == 1
    assert run.losses[-1] < run.losses[0]


def test_skipped_steps_are_unknown_once_the_loss_scale_may_have_grown():
    assert skipped_steps(2.0**15, 2.0**13, steps=1999, interval=2000) == 2
    assert skipped_steps(2.0**15, 2.0**15, steps=1999, interval=2000) == 0
    assert skipped_steps(2.0**15, 2.0**15, steps=2000, interval=2000) is None


@pytest.mark.parametrize(
    ("framework", "changes", "expected"),
    [
        ("torch", {"model_size": "8b"}, "model_size=8b: gpt has 124M, 355M, 774M, 1558M"),
        ("jax", {"precision": "amp"}, "(choose from 'fp32', 'bf16')"),
    ],
)
def test_a_script_refuses_what_its_model_or_framework_lacks(
    capsys, framework, changes, expected
):
    with pytest.raises(SystemExit):
        options(framework, "gpt", **changes)
    message = capsys.readouterr().err
    # Python 3.12 writes the choices without quotes.
    assert expected.replace("'", "") in message.replace("'", "")


@pytest.mark.parametrize(
    ("model", "framework"),
    [
        ("llama", "paddle"),
        ("llama", "torch"),
        pytest.param("bert", "jax", marks=pytest.mark.slow),
        pytest.param("bert", "tensorflow", marks=[needs_tensorflow, pytest.mark.slow]),
    ],
)
def test_accumulated_micro_batches_equal_one_step_on_the_whole_batch(
    monkeypatch, framework, model
):
    """Excludes ResNet-50, whose batch norm sees each micro-batch alone."""
    monkeypatch.setattr(models, "BERT_SIZE", models.BERT_SIZE._replace(dropout=0.0))
    whole = next(synthetic.batches(options(framework, model, batch_size=4), 0))

    def parts(given, _rank):
        # The first batch only shows the precision.
        yield tuple(array[: given.batch_size] for array in whole)
        while True:
            for begin in range(0, 4, given.batch_size):
                yield tuple(array[begin : begin + given.batch_size] for array in whole)

    monkeypatch.setattr(synthetic, "batches", parts)
    at_once = trained(framework, model, batch_size=4)
    in_halves = trained(framework, model, batch_size=2, accumulate=2)
    assert in_halves.losses == pytest.approx(at_once.losses, rel=1e-4)
    assert in_halves.losses[-1] < in_halves.losses[0] - 1e-3


def test_channels_last_gradients_of_nchw_models_are_aligned():
    """torch.compile returns them for kernels of one pixel."""
    model = torch_models.new_model(options("torch", "resnet50"))
    expected = {}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
        expected[parameter] = parameter.grad.clone()
        if parameter.shape[2:] == (1, 1):
            channels = parameter.shape[1]
            strides = (channels, 1, channels, channels)
            parameter.grad = parameter.grad.as_strided(parameter.shape, strides)
            assert parameter.grad.stride() != parameter.stride()
    align_gradients(model)
    for parameter, gradient in expected.items():
        assert parameter.grad.stride() == parameter.stride()
        assert torch.equal(parameter.grad, gradient)


# Execution.


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("framework", "model"),
    [
        ("paddle", "resnet50"),
        ("paddle", "bert"),
        ("paddle", "llama"),
        ("torch", "gpt"),
        pytest.param("tensorflow", "bert", marks=needs_tensorflow),
    ],
)
def test_static_execution_takes_the_same_steps_as_dynamic(framework, model, monkeypatch):
    """PyTorch's VGG-16 is compared in float64 in test_verification.py; batch norm of two images
    makes the rounding of compiled kernels grow from step to step."""
    monkeypatch.setattr(models, "BERT_SIZE", models.BERT_SIZE._replace(dropout=0.0))
    if framework != "tensorflow":
        without_dropout(framework, monkeypatch)
    dynamic = trained(framework, model, execution="dynamic")
    static = trained(framework, model, execution="static")
    assert static.losses == pytest.approx(dynamic.losses, rel=1e-4)
    assert static.notes["settings"]["execution"] != dynamic.notes["settings"]["execution"]


READING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")
"""PyTorch's operators whose result a host must read; on a GPU, each waits for the device."""


class HostReads(TorchDispatchMode):
    """Collects the operators called within a block that make the host wait for a device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, _types, args=(), kwargs=None):
        name = operator.name().partition("::")[2].partition(".")[0]
        if name in READING:
            self.names.append(name)
        return operator(*args, **(kwargs or {}))


def reads_of_steps(count, model, **changes):
    with HostReads() as reads:
        trained("torch", model, {"measured_steps": count}, **changes)
    return len(reads.names)


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("resnet50", "amp"),
        ("vgg16", "fp32"),
        ("bert", "amp"),
        ("gpt", "bf16"),
        ("llama", "amp"),
    ],
)
def test_a_step_of_pytorch_reads_nothing_back_but_the_timers_loss(model, precision):
    """On a GPU, the timer reads the losses after the window."""
    few = reads_of_steps(2, model, precision=precision)
    assert reads_of_steps(5, model, precision=precision) - few == 3


@pytest.mark.parametrize("model", ["vgg16", "bert"])
def test_dropout_has_the_same_places_and_rates_in_all_frameworks(model, monkeypatch):
    rates = {framework: [] for framework in BOTH}

    def counting(drop, of_framework):
        def dropped(x, p, *rest, **named):
            of_framework.append((float(p), int(np.prod(x.shape))))
            return drop(x, p, *rest, **named)

        return dropped

    attend = torch.nn.functional.scaled_dot_product_attention

    def attending(query, key, value, *, dropout_p=0.0, **named):
        weights = int(np.prod(query.shape[:-1])) * key.shape[-2]
        rates["torch"].append((dropout_p, weights))
        return attend(query, key, value, dropout_p=dropout_p, **named)

    for framework in BOTH:
        functional = sys.modules[framework].nn.functional
        counted = counting(functional.dropout, rates[framework])
        monkeypatch.setattr(functional, "dropout", counted)
        if framework == "paddle":
            common = sys.modules["paddle.nn.layer.common"].F
            monkeypatch.setattr(common, "dropout", counted)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attending)
    for framework in BOTH:
        given = options(framework, model)
        batches = import_module(f"perfkit.training.{framework}.batches")
        place = (given, torch.device("cpu")) if framework == "torch" else (given,)
        batch = next(batches.new_batches(*place))
        work = import_module(f"perfkit.training.{framework}.models")
        work.loss_of(given, work.new_model(given), batch)
    assert sorted(rates["torch"]) == sorted(rates["paddle"])
    assert len(rates["torch"]) == (2 if model == "vgg16" else 1 + 3 * 2)
    if model == "bert":
        assert sorted(rates["torch"]) == sorted(rates_of_jaxs_bert(monkeypatch))


def rates_of_jaxs_bert(monkeypatch):
    rates = []

    def dropped(x, rate, _rng):
        rates.append((rate, x.size))
        return x

    for module in (jax_bert, jax_layers):
        monkeypatch.setattr(module, "dropout", dropped)
    given = options("jax", "bert")
    batch = next(import_module("perfkit.training.jax.batches").new_batches(given))
    weights = jax_train.new_weights(given)
    jax.eval_shape(lambda: jax_models.loss_of(given, weights, {}, jax.random.key(0), batch))
    return rates


@needs_tensorflow
def test_dropout_of_tensorflow_has_the_places_and_rates_of_the_others(monkeypatch):
    import tensorflow as tf

    rates = []
    drop = tf.nn.dropout

    def dropped(x, rate):
        rates.append((rate, x.shape.num_elements()))
        return drop(x, rate)

    monkeypatch.setattr(tf.nn, "dropout", dropped)
    trained("tensorflow", "bert")
    activations, attention = (0.1, 2 * 16 * 192), (0.1, 2 * 4 * 16 * 16)
    # Embeddings; weights of the attention and two outputs of each layer.
    expected = [activations, *[attention, activations, activations] * 2]
    # Traced once.
    assert rates == expected


def initial_weights(framework, model):
    """Return the initial weights of Paddle, JAX or TensorFlow by name; those of the latter two
    have PyTorch's axes."""
    given = options(framework, model)
    if framework == "jax":
        return in_pytorchs_axes(jax_train.new_weights(given))
    created = new_model(framework, given)
    if framework == "tensorflow":
        from perfkit.training.tensorflow.verify import named_parameters

        named = named_parameters(created)
        return {name: each.in_pytorch(each.variable) for name, each in named}
    return {name: parameter.numpy() for name, parameter in created.named_parameters()}


@pytest.mark.parametrize(
    ("framework", "model"), [*product(["paddle"], MODELS), *JAXS, *TENSORFLOWS]
)
def test_initial_weights_have_the_names_and_the_spread_of_pytorchs(framework, model):
    ours = initial_weights(framework, model)
    for name, theirs in new_model("torch", options("torch", model)).named_parameters():
        expected, values = theirs.detach().numpy(), ours.pop(name)
        assert values.size == expected.size, name
        if expected.ndim == 1 and "fc" not in name:
            assert np.array_equal(values, expected), name
        elif expected.ndim > 1 and name != "fc.weight":
            # Six standard errors.
            tolerance = 6 / expected.size**0.5
            assert values.std() == pytest.approx(expected.std(), rel=tolerance), name
            assert abs(values.mean()) < tolerance * expected.std(), name
    # Paddle's statistics are parameters.
    assert all("_mean" in name or "_variance" in name for name in ours)


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="no such kernel on a CPU")
def test_paddles_fused_attention_matches_the_explicit_one(monkeypatch):
    """On a CPU this compares Paddle's CPU kernel; GPUs use the fused one."""
    given = options("paddle", "gpt", sequence_length=64)
    model = new_model("paddle", given)
    ids = paddle.to_tensor(np.random.default_rng(0).integers(0, WORDS, (2, 64)))
    written_out = model(ids)
    monkeypatch.setattr(paddle_attention, "has_fused_attention", lambda: True)
    assert np.allclose(model(ids), written_out, rtol=1e-4, atol=1e-5)


# Llama.


@both
def test_recomputed_layers_run_again_in_the_backward_pass_and_change_no_loss(
    framework, monkeypatch
):
    module = {"paddle": paddle_llama, "torch": torch_llama}[framework]
    calls = []
    forward = module.MLP.forward

    def counted(self, x):
        calls.append(1)
        return forward(self, x)

    monkeypatch.setattr(module.MLP, "forward", counted)
    kept = trained(framework, "llama", seed=3)
    calls_kept = len(calls)
    recomputed = trained(framework, "llama", recompute="full", seed=3)
    assert len(calls) - calls_kept == calls_kept + 3 * 2
    assert recomputed.losses == pytest.approx(kept.losses, rel=1e-5)
    assert "layer" in recomputed.notes["settings"]["recompute"]


@pytest.mark.parametrize(("framework", "size"), [("paddle", "tiny"), ("torch", "8b")])
def test_a_loss_in_parts_equals_the_loss_of_all_rows_at_once(framework, size, monkeypatch):
    """Two sequences of 24 tokens have three parts of up to 20 rows."""
    module = {"paddle": paddle_llama, "torch": torch_llama}[framework]
    changes = {"model_size": size, "sequence_length": 24}
    whole = trained(framework, "llama", **changes)
    monkeypatch.setattr(module, "LOSS_ROWS", 20)
    rows = []
    sum_of_losses = module.Head.sum_of_losses

    def counted(self, part, labels):
        rows.append(part.shape[0])
        return sum_of_losses(self, part, labels)

    monkeypatch.setattr(module.Head, "sum_of_losses", counted)
    parts = trained(framework, "llama", **changes)
    assert parts.losses == pytest.approx(whole.losses, rel=1e-5)
    # Forward pass, then again in the backward pass.
    assert rows[:3] == [20, 20, 8]
    assert sorted(rows[3:6]) == [8, 20, 20]


@pytest.mark.slow
def test_jaxs_loss_in_parts_equals_the_loss_of_all_rows_at_once(monkeypatch):
    changes = {"sequence_length": 24}
    whole = trained("jax", "llama", **changes)
    monkeypatch.setattr(jax_llama, "LOSS_ROWS", 20)
    parts = trained("jax", "llama", **changes)
    assert parts.losses == pytest.approx(whole.losses, rel=1e-5)


def test_pytorch_makes_no_matrix_of_all_pairs_of_tokens():
    shapes = set()

    class Shapes(TorchDispatchMode):
        def __torch_dispatch__(self, operator, _types, args=(), kwargs=None):
            result = operator(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, torch.Tensor):
                    shapes.add(tuple(tensor.shape))
            return result

    with Shapes():
        trained("torch", "llama", sequence_length=300)
    assert (2, 300, 192) in shapes
    assert not [shape for shape in shapes if shape[-2:] == (300, 300)]


# Input.


def test_the_input_alone_is_read_at_full_speed(monkeypatch):
    monkeypatch.setattr("perfkit.timing.measuring_timer.FEWEST_SECONDS", 0.0)
    monkeypatch.setattr(sys, "argv", ["train.py", *map(str, words("resnet50"))])
    with pytest.raises(SystemExit), measured_here("torch", task="read_input") as run:
        torch_train.main()
    assert len(run.of_kind("input")[0]["intervals"]) == 12
    assert run.of_kind("step") == []
