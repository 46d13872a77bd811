"""VGG-16 in JAX: what vgg16_paddle.py does, by the same names."""

from collections.abc import Iterator

import jax
from jax import Array
from jax import numpy as jnp

from perfkit.frameworks.jax.layers import First, Firsts, Forward, image_accuracy, image_loss
from perfkit.models.architecture import VGG16_DENSE as DENSE
from perfkit.models.architecture import VGG16_POOLED as POOLED
from perfkit.models.architecture import VGG16_STAGES as STAGES
from perfkit.models.data import CLASSES


def _convolutions() -> Iterator[tuple[str, int, int, bool]]:
    """Name, inputs and outputs of each convolution, and whether a max-pool follows."""
    place, inputs = 0, 3
    for width, count in STAGES:
        for number in range(1, count + 1):
            yield f"features.{place}", inputs, width, number == count
            # Behind it are a ReLU and, at the end of a stage, the pool.
            place, inputs = place + (2 if number < count else 3), width


def _dense() -> Iterator[tuple[str, int, int]]:
    features = STAGES[-1][0] * POOLED**2
    yield "classify.0", features, DENSE
    yield "classify.3", DENSE, DENSE
    yield "classify.6", DENSE, CLASSES


class VGG16:
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to batch x classes."""

    inputs = 1
    loss = staticmethod(image_loss)
    accuracy = staticmethod(image_accuracy)

    def parameters(self) -> Firsts:
        made = {}
        for name, inputs, outputs, _pooled in _convolutions():
            made[f"{name}.weight"] = First.kernel(inputs, outputs, 3)
            made[f"{name}.bias"] = First.constant(0.0, outputs)
        for name, inputs, outputs in _dense():
            made[f"{name}.weight"] = First.normal(0.01, inputs, outputs)
            made[f"{name}.bias"] = First.constant(0.0, outputs)
        return made

    def statistics(self) -> Firsts:
        return {}

    def forward(self, run: Forward, images: Array) -> Array:
        x = images
        for name, _inputs, _outputs, pooled in _convolutions():
            x = run.convolution(name, x)
            x = jax.nn.relu(x + run.along(run.parameters[f"{name}.bias"]).astype(x.dtype))
            x = run.max_pool(x, 2, 2) if pooled else x
        for axis in "HW":
            x = _averaged(x, run.layout.index(axis))
        # The dense weights mean the same in both layouts.
        x = x.transpose([run.layout.index(axis) for axis in "NCHW"])
        x = x.reshape(x.shape[0], -1)
        for name, _inputs, _outputs in list(_dense())[:-1]:
            x = run.dropout(jax.nn.relu(run.dense(name, x)), 0.5)
        return run.dense("classify.6", x)


def _averaged(x: Array, axis: int) -> Array:
    """POOLED means along an axis, over parts that overlap where it can't be divided evenly."""
    size = x.shape[axis]
    parts = [
        jnp.arange(part * size // POOLED, -(-(part + 1) * size // POOLED))
        for part in range(POOLED)
    ]
    return jnp.stack([x.take(part, axis).mean(axis) for part in parts], axis)
