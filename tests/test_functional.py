"""Functional layers in JAX and TensorFlow, which must match Paddle's layers."""

import math
import os

import jax
import numpy as np
import paddle
import pytest
from jax import numpy as jnp
from narrow import replace_sizes
from sides import forward, side_of

from perfkit.core.frameworks.devices import CpuDevice
from perfkit.core.frameworks.functional.xla import factor_dtypes


@pytest.fixture(params=["jax", "tensorflow"])
def side(request):
    return side_of(request.param)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(side, rate):
    run, (ones,) = forward(side), side.tensors((np.ones((400, 500), np.float32),))
    kept = np.asarray(run.dropout(ones, rate))
    assert (kept == 0).mean() == pytest.approx(rate, abs=0.01)
    assert kept.mean() == pytest.approx(1, abs=0.01)
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1) / np.float32(1 - rate)}
    assert not np.array_equal(kept, run.dropout(ones, rate))


def test_batch_norm_matches_paddles_output_and_statistics(side):
    images = np.random.default_rng(0).standard_normal((4, 5, 6, 3), np.float32) * 3 + 1
    layer = paddle.nn.BatchNorm2D(3, data_format="NHWC")
    expected = layer(paddle.to_tensor(images)).numpy()
    taken, ones, zeros = side.tensors((images, np.ones(3, "float32"), np.zeros(3, "float32")))
    before = {"norm._mean": zeros, "norm._variance": ones}
    run = forward(side, {"norm.weight": ones, "norm.bias": zeros}, before)
    assert np.allclose(run.batch_norm("norm", taken, 3), expected, atol=1e-5)
    assert np.allclose(run.statistics["norm._mean"], layer._mean.numpy(), atol=1e-6)
    assert np.allclose(run.statistics["norm._variance"], layer._variance.numpy(), atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 7, 14])
def test_average_pooling_matches_paddle(side, size):
    features = np.random.default_rng(0).standard_normal((1, size, size, 2), np.float32)
    pool = paddle.nn.AdaptiveAvgPool2D(7)
    expected = pool(paddle.to_tensor(features.transpose(0, 3, 1, 2))).numpy()
    found = np.asarray(forward(side).average_to(*side.tensors((features,)), 7))
    assert np.allclose(found.transpose(0, 3, 1, 2), expected, atol=1e-6)


@pytest.mark.parametrize(("size", "stride", "padding"), [(3, 2, 1), (2, 2, 0)])
@pytest.mark.parametrize("pixels", [8, 7])
def test_max_pooling_and_its_gradient_match_paddle(side, size, stride, padding, pixels):
    # Small integers give many ties.
    values = np.random.default_rng(0).integers(0, 3, (2, 3, pixels, pixels)).astype(np.float32)
    theirs = paddle.to_tensor(values, stop_gradient=False)
    expected = paddle.nn.functional.max_pool2d(theirs, size, stride, padding)
    weights = np.random.default_rng(1).standard_normal(expected.shape).astype(np.float32)
    (expected * paddle.to_tensor(weights)).sum().backward()
    run = forward(side)
    ours, weights = side.tensors((last(values), last(weights)))
    if side.framework == "jax":
        found, back = jax.vjp(lambda x: run.max_pool(x, size, stride, padding), ours)
        (gradient,) = back(weights)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(ours)
            found = run.max_pool(ours, size, stride, padding)
        gradient = tape.gradient(found, ours, weights)
    assert np.array_equal(found, last(expected.numpy()))
    assert np.allclose(gradient, last(theirs.grad.numpy()), atol=1e-6)


def last(images):
    """Return the images with channels last."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_is_exact_in_float64(side, approximate):
    x = np.linspace(-4, 4, 81)
    exact = [0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x]
    by_tanh = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    with jax.enable_x64():
        y = forward(side).gelu(*side.tensors((x,)), approximate=approximate)
    assert np.asarray(y) == pytest.approx(by_tanh if approximate else exact, abs=1e-14)


def test_products_converted_by_xla_count_as_float32():
    assert factor_dtypes(
        "%a = bf16[2,2]{1,0} parameter(0)\n"
        "%b = f32[2,2]{1,0} convert(%a)\n"
        "%c = bf16[2,2]{1,0} dot(%b, %b), lhs_contracting_dims={1}\n"
        "ROOT %d = f32[2,2]{1,0} convolution(%a, %a), window={size=1}\n"
    ) == {"float32": 1, "bfloat16": 1}


def late(array):
    """Return the same values, still pending behind a long computation."""
    busy = jax.jit(lambda x: (x @ x @ x @ x).sum() * 0)(jnp.ones((2000, 2000)))
    return array + busy


@pytest.mark.slow
def test_a_jax_step_is_complete_when_its_call_returns(monkeypatch):
    """CpuDevice's clock requires this; by default, JAX returns earlier."""
    replace_sizes(monkeypatch.setattr)
    of_jax = side_of("jax")
    trainer = of_jax.trainer("vgg16")
    images, labels = of_jax.batch("vgg16")
    # Compile the sum first.
    late(images).block_until_ready()
    trainer.backward((images, labels))
    trainer.zero_grad()
    pending = late(images)
    assert not pending.is_ready()
    loss = trainer.backward((pending, labels))
    assert loss.is_ready()
    assert all(gradient.is_ready() for gradient in trainer.gathered.values())
    trainer.gathered = {n: late(gradient) for n, gradient in trainer.gathered.items()}
    trainer.update()
    assert all(value.is_ready() for value in jax.tree.leaves((trainer.values, trainer.slots)))
    assert isinstance(of_jax.backend.open_device(of_jax.config()), CpuDevice)
    # TensorFlow's threads have the same name, if another test imported TensorFlow.
    cores = len(os.sched_getaffinity(0))
    threads = of_jax.backend.Inspector(trainer).threads()
    assert threads in ({"tf_XLAEigen": cores}, {"tf_XLAEigen": 2 * cores})


def test_jax_batches_and_peak_workloads_are_ready_on_return():
    of_jax, images = side_of("jax"), np.ones((64, 224, 224, 3), np.float32)
    # An unaligned buffer, whose memory JAX cannot use directly.
    shifted = np.empty(images.nbytes + 64, np.uint8)[1:][: images.nbytes].view(np.float32)
    (taken,) = of_jax.tensors((shifted,))
    assert taken.is_ready()
    assert of_jax.backend.Workloads(of_jax.config()).matmul(1500)().is_ready()
