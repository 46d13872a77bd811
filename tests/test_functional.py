"""Functional layers in JAX and TensorFlow, which must match Paddle's layers."""

import math

import jax
import numpy as np
import paddle
import pytest
from sides import forward, side_of

from perfkit.core.frameworks.functional.xla import Product, factor_dtypes, products_in
from perfkit.training.effective import PrecisionUnknownError


@pytest.fixture(params=["jax", "tensorflow"])
def side(request):
    return side_of(request.param)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(side, rate):
    run = forward(side)
    (ones,) = side.tensors((np.ones((400, 500), np.float32),))
    dropped = np.asarray(run.dropout(ones, rate))
    assert (dropped == 0).mean() == pytest.approx(rate, abs=0.01)
    assert dropped.mean() == pytest.approx(1, abs=0.01)
    scaled = np.float32(1) / np.float32(1 - rate)
    assert {*np.unique(dropped)} == {np.float32(0), scaled}
    assert not np.array_equal(dropped, run.dropout(ones, rate))


def test_batch_norm_matches_paddles_output_and_statistics(side):
    random = np.random.default_rng(0)
    images = random.standard_normal((4, 5, 6, 3), np.float32) * 3 + 1
    layer = paddle.nn.BatchNorm2D(3, data_format="NHWC")
    expected = layer(paddle.to_tensor(images)).numpy()
    arrays = images, np.ones(3, "float32"), np.zeros(3, "float32")
    x, ones, zeros = side.tensors(arrays)
    parameters = {"norm.weight": ones, "norm.bias": zeros}
    statistics = {"norm._mean": zeros, "norm._variance": ones}
    run = forward(side, parameters, statistics)
    assert np.allclose(run.batch_norm("norm", x, 3), expected, atol=1e-5)
    assert np.allclose(run.statistics["norm._mean"], layer._mean.numpy(), atol=1e-6)
    assert np.allclose(run.statistics["norm._variance"], layer._variance.numpy(), atol=1e-5)


@pytest.mark.parametrize("pixels", [8, 7])
def test_max_pooling_and_its_gradient_match_paddle(side, pixels):
    random = np.random.default_rng(0)
    # Small integers give many ties.
    values = random.integers(0, 3, (2, 3, pixels, pixels)).astype(np.float32)
    theirs = paddle.to_tensor(values, stop_gradient=False)
    expected = paddle.nn.functional.max_pool2d(theirs, 3, 2, 1)
    weights = random.standard_normal(expected.shape).astype(np.float32)
    (expected * paddle.to_tensor(weights)).sum().backward()
    run = forward(side)
    ours, weights = side.tensors((last(values), last(weights)))
    pooled, gradient = with_gradient(side, lambda x: run.max_pool(x, 3, 2, 1), ours, weights)
    assert np.array_equal(pooled, last(expected.numpy()))
    assert np.allclose(gradient, last(theirs.grad.numpy()), atol=1e-6)


def with_gradient(side, function, x, weights):
    """Return function(x) and the gradient of its sum with these weights."""
    if side.framework == "jax":
        y, back = jax.vjp(function, x)
        (gradient,) = back(weights)
        return y, gradient
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x, weights)


def last(images):
    """Return the images with channels last."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def test_gelu_is_exact_in_float64(side):
    values = np.linspace(-4, 4, 81)
    errors = [math.erf(value / math.sqrt(2)) for value in values]
    expected = 0.5 * values * (1 + np.asarray(errors))
    with jax.enable_x64():
        (x,) = side.tensors((values,))
        y = forward(side).gelu(x, approximate=False)
    assert np.asarray(y) == pytest.approx(expected, abs=1e-14)


def test_products_converted_by_xla_count_as_float32():
    hlo = (
        "%a = bf16[2,2]{1,0} parameter(0)\n"
        "%b = f32[2,2]{1,0} convert(%a)\n"
        "%c = bf16[2,2]{1,0} dot(%b, %b), lhs_contracting_dims={1}\n"
        "ROOT %d = f32[2,2]{1,0} convolution(%a, %a), window={size=1}\n"
    )
    assert factor_dtypes(products_in(hlo)) == {"float32": 1, "bfloat16": 1}


@pytest.mark.parametrize(
    ("line", "is_highest"),
    [
        ("f32[2,2]{1,0} dot(%a, %a), operand_precision={highest,highest}", True),
        ("f32[2,2]{1,0} dot(%a, %a), operand_precision={high,high}", False),
        ("f32[2,2]{1,0} dot(%a, %a), lhs_contracting_dims={1}", False),
        (
            "(f32[2,2]{1,0}, s8[4]{0}) custom-call(%a, %a), "
            'custom_call_target="__cublas$gemm", '
            'backend_config={"precision_config":{"operand_precision":["HIGHEST","HIGHEST"]}}',
            True,
        ),
        (
            "(f32[2,2]{1,0}, u8[0]{0}) custom-call(%a, %a), window={size=1x1}, "
            'custom_call_target="__cudnn$convForward"',
            False,
        ),
    ],
)
def test_products_of_gpu_libraries_and_their_precision_are_read(line, is_highest):
    hlo = (
        "%a = f32[2,2]{1,0} parameter(0)\n"
        f"%b = {line}\n"
        '%c = f32[2]{0} custom-call(%a), custom_call_target="__cudnn$norm"\n'
    )
    assert products_in(hlo) == (Product("float32", is_highest),)


def test_a_product_of_a_factor_without_a_known_dtype_is_refused():
    hlo = (
        "%pair = (f32[2,2]{1,0}, s8[4]{0}) parameter(0)\n"
        "ROOT %b = f32[2,2]{1,0} dot(%pair, %pair), lhs_contracting_dims={1}\n"
    )
    with pytest.raises(PrecisionUnknownError, match="no dtype of %pair, the first factor"):
        products_in(hlo)
