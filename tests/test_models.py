"""What the models promise besides the outputs of the published ones (test_equal_models.py):
their FLOPs, initial weights, losses and batches."""

from importlib import import_module

import numpy as np
import pytest
from narrow import replace_sizes
from sides import config
from trained import train_here

paddle = pytest.importorskip("paddle")
torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
# ruff: noqa: E402 - the frameworks are optional; the imports below need them
from perfkit.inputs import synthetic
from perfkit.training import models as training_models
from perfkit.training.jax import optimizer as jax_optimizer
from perfkit.training.jax.train import new_weights
from perfkit.training.models import model_named, multiply_adds, training_flops
from perfkit.training.options import Options
from perfkit.training.paddle import batches as paddle_batches
from perfkit.training.torch import batches as torch_batches
from perfkit.training.torch import models as torch_models
from perfkit.training.torch.verify import TracedTraining

RESIDUAL = ("c_proj.weight", "o_proj.weight", "down_proj.weight")
"""Weights of the products that write to the residual stream."""
SMALL_GPT = ("--model", "gpt", "--device", "cpu", "--batch-size", 2, "--sequence-length", 16)
both = pytest.mark.parametrize("framework", ["paddle", "torch"])


@pytest.fixture
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)
    # The models are small; threads waiting for each other only cost time.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    paddle.seed(0)


def options(framework, model, **changes):
    given = {"device": "cpu", "batch_size": 2, "sequence_length": 16} | changes
    return Options(framework=framework, model=model, **given)


def models_of(framework):
    pytest.importorskip(framework)
    return import_module(f"perfkit.training.{framework}.models")


def tensors(framework, *arrays):
    names = {"paddle": "to_tensor", "torch": "tensor", "tensorflow": "constant"}
    if framework == "jax":
        return tuple(map(jax.numpy.asarray, arrays))
    module = import_module(framework)
    return tuple(map(getattr(module, names[framework]), arrays))


def as_array(tensor):
    return np.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)


# Work.


@pytest.mark.parametrize(("model", "billions"), [("resnet50", 4.09), ("vgg16", 15.47)])
def test_multiply_adds_match_those_of_the_reference_implementations(model, billions):
    usual = config(model, image_size=224).work
    forward = multiply_adds(usual)
    assert forward / 1e9 == pytest.approx(billions, rel=0.01)
    # The first convolution computes no gradient of its input.
    assert 5.9 * forward < training_flops(usual) < 6 * forward


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("resnet50", {"image_size": 75}),
        ("vgg16", {"image_size": 75}),
        ("bert", {"sequence_length": 48}),
        ("gpt", {"sequence_length": 48}),
        ("llama", {"sequence_length": 48}),
    ],
)
def test_multiply_adds_match_the_networks_layers_at_an_odd_size(model, size):
    given = options("torch", model, **size)
    traced = TracedTraining(given, torch.device("cpu"), np.float32)
    assert traced.multiply_adds() == 2 * multiply_adds(given)


def test_the_flops_of_a_token_are_those_of_the_published_formula():
    short = config("gpt", sequence_length=64).work
    weights = model_named("gpt").decoder.product_weights
    assert weights == 12 * 12 * 768**2 + 768 * 50_304
    assert training_flops(short) == 6 * weights + 12 * 12 * 768 * 64


def test_the_learning_rate_of_images_grows_with_the_batch_up_to_256():
    rates = {}
    for batch_size in (128, 256, 512):
        given = options("torch", "resnet50", batch_size=batch_size)
        rates[batch_size] = given.optimizer_settings.learning_rate
    assert rates[128] == rates[256] / 2
    assert rates[512] == rates[256]


# Initial weights.


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_a_decoder_begins_with_gpt2s_deviations(model):
    """Those of the other frameworks are compared with PyTorch's or Paddle's."""
    for name, parameter in torch_models.new_model(options("torch", model)).named_parameters():
        values = parameter.detach().numpy()
        if name.endswith("bias"):
            assert (values == 0).all(), name
        elif values.ndim == 1:
            assert (values == 1).all(), name
        else:
            is_residual = name.endswith(RESIDUAL)
            deviation = 0.02 / (2 * 2) ** 0.5 if is_residual else 0.02
            # Six standard errors.
            tolerance = 6 / values.size**0.5
            assert values.std() == pytest.approx(deviation, rel=tolerance), name
            assert abs(values.mean()) < tolerance * deviation, name


# Loss and gradients.


def test_berts_loss_is_the_mean_of_the_masked_words_plus_that_of_the_sentences():
    """That the other frameworks' loss is PyTorch's is in test_verification.py."""
    # With zero logits all n choices are equally likely: a cross entropy of log n.
    logits = tensors("torch", np.zeros((2, 3, 50), np.float32), np.zeros((2, 2), np.float32))
    words, sentences = np.array([[1, 2, 3], [4, 5, 0]]), np.array([[0], [1]])
    batch = tensors("torch", *[np.zeros((2, 3), np.int64)] * 4, words, sentences)
    given = options("torch", "bert")
    loss = torch_models.loss_of(given, lambda *_inputs, **_named: logits, batch)
    assert float(loss) == pytest.approx(np.log(50) + np.log(2))


class Bert:
    """A BERT without dropout in any framework."""

    def __init__(self, framework):
        self.framework = framework
        self.models, self.options = models_of(framework), options(framework, "bert")
        if framework == "jax":
            self.model = new_weights(self.options), {}, None
        else:
            self.model = self.models.new_model(self.options)

    def loss(self, *batch):
        batch = tensors(self.framework, *batch)
        if self.framework == "jax":
            loss, _statistics = self.models.loss_of(self.options, *self.model, batch)
            return float(loss)
        return float(as_array(self.models.loss_of(self.options, self.model, batch)))


@pytest.mark.parametrize("framework", ["paddle", "torch", "tensorflow", "jax"])
@pytest.mark.usefixtures("narrow")
def test_padding_does_not_count_in_the_loss(framework, monkeypatch):
    without_dropout = training_models.BERT_SIZE._replace(dropout=0.0)
    monkeypatch.setattr(training_models, "BERT_SIZE", without_dropout)
    bert = Bert(framework)
    *tokens, positions, labels, next_sentence = next(synthetic.batches(bert.options, 0))
    loss = bert.loss(*tokens, positions, labels, next_sentence)
    margins = ((0, 0), (0, 2))
    positions, labels = np.pad(positions, margins), np.pad(labels, margins)
    assert bert.loss(*tokens, positions, labels, next_sentence) == pytest.approx(loss, rel=1e-5)


@both
@pytest.mark.usefixtures("narrow")
def test_gpts_gradients_are_clipped(framework, monkeypatch):
    """Without clipping, AdamW would take another step after a gradient that is 100 times as
    long as the one before."""
    script = import_module(f"perfkit.training.{framework}.train")
    loss_of = script.loss_of

    def loss_after(*lengths):
        factors = iter([*lengths, 1.0])
        monkeypatch.setattr(script, "loss_of", lambda *given: loss_of(*given) * next(factors))
        return train_here(framework, *SMALL_GPT).losses[-1]

    assert loss_after(100.0, 10_000.0) == pytest.approx(loss_after(100.0, 100.0), rel=1e-6)


def test_jaxs_clipped_gradients_have_the_norm_of_the_limit():
    gradients = {"a": jax.numpy.full(3, 4.0), "b": jax.numpy.full((2, 2), -3.0)}
    for scale in (1.0, 100.0):
        given = {name: scale * gradient for name, gradient in gradients.items()}
        clipped = jax_optimizer.clipped(given, 1.0, jax_optimizer.sum_of)
        norm = sum(float((each**2).sum()) for each in clipped.values()) ** 0.5
        assert norm == pytest.approx(1.0)
        assert clipped["a"][0] / clipped["b"][0, 0] == pytest.approx(4 / -3)
    small = {"a": jax.numpy.full(3, 1e-3)}
    unchanged = jax_optimizer.clipped(small, 1.0, jax_optimizer.sum_of)
    assert np.array_equal(unchanged["a"], small["a"])


# Batches.


@both
def test_dalis_arrays_become_tensors_without_a_copy(framework, monkeypatch):
    dali = pytest.importorskip("nvidia.dali.tensors")
    images = np.random.default_rng(0).standard_normal((2, 8, 8, 3), np.float32)
    labels = np.asarray([[3], [999]], np.int64)
    arrays = dali.TensorCPU(images, "NHWC"), dali.TensorCPU(labels)
    monkeypatch.setattr(synthetic, "batches", lambda *_given: iter([arrays]))
    given = options(framework, "resnet50", layout="NHWC")
    if framework == "torch":
        image_tensor, label_tensor = next(torch_batches.new_batches(given, torch.device("cpu")))
        # PyTorch's axes, in the memory of the input.
        image_tensor = image_tensor.permute(0, 2, 3, 1)
    else:
        image_tensor, label_tensor = next(paddle_batches.new_batches(given))
    assert np.array_equal(np.asarray(image_tensor), images)
    assert np.array_equal(np.asarray(label_tensor), labels)
    assert image_tensor.data_ptr() == images.ctypes.data
