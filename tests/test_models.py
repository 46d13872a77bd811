"""Paddle's networks against the published models, and behaviour specific to Paddle."""

import numpy as np
import paddle
import pytest
from narrow import WORDS, replace_sizes
from perfkit.core.frameworks.paddle.backend import DenseTensor, as_tensor
from perfkit.core.frameworks.paddle.layers import Network
from sides import PADDLE_2, config, side_of, step, use_float32

from perfkit.core.frameworks.networks import NETWORKS, network_of
from perfkit.training.models import (
    model_named,
    multiply_adds,
    training_flops,
    units_per_sample,
)

SIDE = side_of("paddle")
batch = SIDE.batch


@pytest.fixture
def narrow(monkeypatch):
    replace_sizes(monkeypatch.setattr)


@pytest.fixture
def network(narrow):
    paddle.seed(0)
    network = Network(NETWORKS["bert"]())
    network.eval()
    with paddle.no_grad():
        yield network


def tokens(count, length):
    """Return ids, segments and a mask of ones, each of shape (count, length)."""
    random = np.random.default_rng(0)
    shape = (count, length)
    ids = random.integers(0, WORDS, shape, np.int64)
    segments = random.integers(0, 2, shape, np.int64)
    mask = np.ones(shape, np.int64)
    return as_tensor(ids), as_tensor(segments), as_tensor(mask)


def places(*rows):
    return paddle.to_tensor(rows, dtype="int64")


@pytest.mark.parametrize("framework", ["paddle", "torch"])
@pytest.mark.parametrize(
    ("model", "size", "count"),
    [
        ("resnet50", None, 25_557_032),
        ("vgg16", None, 138_357_544),
        ("bert", None, 110_106_428),
        ("gpt", "124M", 124_475_904),
        ("gpt", "1558M", 1_557_686_400),
        ("llama", "1b", 1_235_814_400),
        ("llama", "8b", 8_030_261_248),
    ],
)
def test_parameter_counts_match_the_published_models(framework, model, size, count):
    network = network_of(config(model, model_size=size))
    # Create shapes only: initializing this many weights takes seconds.
    if framework == "paddle":
        with paddle.LazyGuard():
            sizes = [p.size for p in Network(network).parameters() if p.trainable]
    else:
        torch = pytest.importorskip("torch")
        with torch.device("meta"):
            created = side_of("torch").backend.Network(network)
        sizes = [p.numel() for p in created.parameters()]
    assert sum(sizes) == model_named(model, size).parameters == count


@pytest.mark.parametrize(("model", "billions"), [("resnet50", 4.09), ("vgg16", 15.47)])
def test_multiply_adds_match_those_of_the_reference_implementations(model, billions):
    usual = config(model, image_size=224)
    forward = multiply_adds(usual)
    assert forward / 1e9 == pytest.approx(billions, rel=0.01)
    # The first convolution computes no gradient of its input.
    assert 5.9 * forward < training_flops(usual) < 6 * forward


def test_the_flops_of_a_token_are_those_of_the_published_formula():
    short = config("gpt", sequence_length=64)
    weights = model_named("gpt").decoder.product_weights
    assert weights == 12 * 12 * 768**2 + 768 * 50_304
    assert training_flops(short) == 6 * weights + 12 * 12 * 768 * 64


def test_units_are_tokens_for_gpt_and_samples_for_resnet():
    assert units_per_sample(config("gpt", sequence_length=64)) == 64
    assert units_per_sample(config("resnet50")) == 1


@pytest.mark.parametrize("model", ["resnet50", "vgg16"])
def test_multiply_adds_match_the_networks_layers_at_an_odd_size(narrow, model):
    counted = SIDE.inspector(model, image_size=75).multiply_adds(batch(model, image_size=75))
    assert counted == 2 * multiply_adds(config(model, image_size=75))


def test_padding_does_not_change_outputs_of_real_tokens(network):
    ids, segments, ones = tokens(2, 24)
    is_real = paddle.arange(24) < 16
    mask = is_real.astype("int64").expand([2, 24])
    real = places(range(16), range(16))
    alone = network(ids[:, :16], segments[:, :16], mask[:, :16], real)
    padded = network(ids, segments, mask, real)
    unmasked = network(ids, segments, ones, real)
    for expected, with_mask, without in zip(alone, padded, unmasked, strict=True):
        assert np.allclose(expected, with_mask, atol=1e-5)
        assert not np.allclose(expected, without, atol=1e-4)


def test_masked_tokens_are_scored_within_their_own_sequence(network):
    inputs = tokens(2, 16)
    masked = [[3, 0, 15], [1, 1, 7]]
    together, _pairs = network(*inputs, places(*masked))
    assert together.shape == [6, WORDS]
    scores_of = together.numpy().reshape(2, 3, WORDS)
    for row in (0, 1):
        alone = [part[row : row + 1] for part in inputs]
        everywhere, _pairs = network(*alone, places(range(16)))
        assert np.allclose(scores_of[row], everywhere.numpy()[masked[row]], atol=1e-5)


def test_output_projection_shares_the_word_embeddings(network):
    inputs = tokens(1, 16)
    unused = WORDS - 1
    ids, _segments, _mask = inputs
    assert unused not in ids.numpy()
    network.word_embeddings.weight[unused] = 0.0
    network.decoder_bias[unused] = 0.25
    scores, _pairs = network(*inputs, places([1, 2]))
    assert scores[:, unused].tolist() == [0.25, 0.25]
    assert 0.25 not in scores[:, :unused].numpy()


def test_bert_loss_is_the_mean_mlm_loss_plus_the_mean_nsp_loss(network):
    # With zero scores all n choices are equally likely: a cross entropy of log n.
    scores = paddle.zeros([6, 50]), paddle.zeros([2, 2])
    loss = network.loss(scores, places([1, 2, 3], [4, 5, 0]), places([0], [1]))
    assert float(loss) == pytest.approx(np.log(50) + np.log(2))


def test_bert_accepts_sequences_of_512_tokens(network):
    *inputs, _words, _pairs = batch("bert", size=1, sequence_length=512)
    words, pairs = network(*inputs)
    assert words.shape == [80, WORDS]
    assert pairs.shape == [1, 2]
    assert np.isfinite(words.numpy()).all()


def test_gpt_attention_is_causal(narrow):
    network = Network(NETWORKS["gpt"]())
    ids = np.arange(16, dtype=np.int64)[None]
    others = ids.copy()
    others[:, 9:] += 1
    scores = network(as_tensor(ids)).numpy()
    other_scores = network(as_tensor(others)).numpy()
    is_same = np.isclose(scores, other_scores, rtol=1e-4, atol=1e-5).all(1)
    assert is_same.tolist() == [True] * 9 + [False] * 7


@pytest.mark.skipif(PADDLE_2, reason="Paddle 2 has no such kernel on a CPU")
def test_fused_attention_matches_the_explicit_one(narrow, monkeypatch):
    """On a CPU this compares Paddle's CPU kernel; GPUs use the fused one."""
    network = Network(NETWORKS["gpt"]())
    ids, _labels = batch("gpt", sequence_length=64)
    written_out = network(ids)
    monkeypatch.setattr(Network, "has_fused_attention", staticmethod(lambda: True))
    assert np.allclose(network(ids), written_out, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_gpt_initialization_matches_gpt2():
    for name, value in SIDE.inspector("gpt").weights().items():
        if name.endswith("norm.weight"):
            assert (value == 1).all(), name
        elif value.ndim == 1:
            assert (value == 0).all(), name
        else:
            is_residual = name.endswith(("out_proj.weight", "fc2.weight"))
            deviation = 0.02 / 24**0.5 if is_residual else 0.02
            assert value.std() == pytest.approx(deviation, rel=0.02), name
            assert abs(value.mean()) < 1e-4, name


def test_lamb_reduces_the_loss_of_bert(narrow):
    paddle.seed(0)
    # The learning rate scales with the batch: use that of a larger batch than is trained.
    trainer = SIDE.trainer("bert", optimizer="lamb", batch_size=1024)
    same_batch = batch("bert")
    losses = [step(trainer, same_batch) for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_biases_and_norms_have_no_weight_decay(narrow, optimizer):
    inspector = SIDE.inspector("bert", optimizer=optimizer)
    trainer = inspector.trainer
    before = inspector.weights()
    for parameter in trainer.network.parameters():
        # With zero gradients only weight decay changes a parameter.
        parameter.grad = paddle.zeros_like(parameter)
    trainer.update()
    for name, array in inspector.weights().items():
        is_bias_or_norm = array.ndim == 1
        assert np.array_equal(before[name], array) == is_bias_or_norm, name


def updated_by_gradients_of_size(*sizes):
    """Return GPT's weights after a step with random gradients of each size."""
    paddle.seed(0)
    inspector = SIDE.inspector("gpt")
    trainer = inspector.trainer
    random = np.random.default_rng(0)
    for size in sizes:
        for parameter in trainer.network.parameters():
            gradient = size * random.standard_normal(parameter.shape)
            parameter.grad = paddle.to_tensor(gradient)
        trainer.update()
    return inspector.weights()


def test_gpt_gradients_are_clipped_at_norm_1(narrow):
    SIDE.backend.enable_float64()
    try:
        weights = updated_by_gradients_of_size(10, 10)
        others = updated_by_gradients_of_size(10, 10_000)
    finally:
        use_float32()
    for name, value in weights.items():
        assert np.allclose(value, others[name], rtol=1e-6, atol=1e-9), name


def test_tensors_of_dalis_paddle_plugin_are_accepted():
    for array in (np.ones((2, 3, 4, 4), np.float32), np.ones((2, 1), np.int64)):
        tensor = DenseTensor()
        tensor.set(array, paddle.CPUPlace())
        assert np.array_equal(as_tensor(tensor), array)
