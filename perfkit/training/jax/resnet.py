"""ResNet-50 v1.5 with torchvision's names (He et al., Deep residual learning for image
recognition, 2015). As in the published suites, the 3x3 convolution of a stage's first block has
the stride ("v1.5"). Kernels are height x width x inputs x outputs."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import prod

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.nn import relu

from perfkit.training.jax.layers import (
    Shapes,
    Weights,
    contract,
    dense,
    dense_shapes,
    initial_values,
    norm_shapes,
    wide,
)
from perfkit.training.models import CLASSES, RESNET_STAGES

EXPANSION = 4
"""Ratio of a block's output channels to its width."""
EPSILON = 1e-5
MOMENTUM = 0.9
"""Weight of the old value in the running statistics of a batch norm."""
Stages = Sequence[tuple[int, int]]
"""Width and number of blocks of each stage."""
Statistics = dict[str, Array]
"""Running means and variances of the batch norms by name."""


def resnet(
    weights: Weights,
    statistics: Statistics,
    images: Array,
    stages: Stages = RESNET_STAGES,
    layout: str = "NHWC",
) -> tuple[Array, Statistics]:
    """Return the logits (batch x classes) of images in `layout`, computed in their dtype, and
    the statistics after this batch."""
    statistics = dict(statistics)
    x = convolution(weights, "conv1", images, 2, layout=layout)
    x = relu(batch_norm(weights, statistics, "bn1", x, layout=layout))
    x = max_pool(x, 3, 2, 1, layout)
    for number, (_width, blocks) in enumerate(stages, 1):
        for block in range(blocks):
            stride = 2 if number > 1 and block == 0 else 1
            x = bottleneck(weights, statistics, f"layer{number}.{block}", x, stride, layout)
    pooled = wide(x).mean((layout.index("H"), layout.index("W")))
    return dense(weights, "fc", pooled.astype(images.dtype)), statistics


def bottleneck(
    weights: Weights, statistics: Statistics, name: str, x: Array, stride: int, layout: str
) -> Array:
    convolve = partial(convolution, weights, layout=layout)
    norm = partial(batch_norm, weights, statistics, layout=layout)
    y = relu(norm(f"{name}.bn1", convolve(f"{name}.conv1", x)))
    y = relu(norm(f"{name}.bn2", convolve(f"{name}.conv2", y, stride)))
    y = norm(f"{name}.bn3", convolve(f"{name}.conv3", y))
    if f"{name}.downsample.0.weight" in weights:
        x = norm(f"{name}.downsample.1", convolve(f"{name}.downsample.0", x, stride))
    return relu(y + x)


def convolution(
    weights: Weights, name: str, x: Array, stride: int = 1, *, layout: str
) -> Array:
    """Convolve with padding that preserves the image size at stride 1."""
    kernel = weights[f"{name}.weight"].astype(x.dtype)
    size = kernel.shape[0]
    if size == 1 and layout == "NHWC":
        # XLA's matrix product on a CPU is faster than its convolution.
        return contract("nhwi,io->nhwo", x[:, ::stride, ::stride], kernel[0, 0])
    padding = [(size // 2, size // 2)] * 2
    axes = (layout, "HWIO", layout)
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=axes
    )


def batch_norm(
    weights: Weights, statistics: Statistics, name: str, x: Array, *, layout: str
) -> Array:
    """Normalize by the mean and variance of the batch, and update the running ones."""
    axes = tuple(layout.index(axis) for axis in "NHW")

    def along(channels: Array) -> Array:
        return channels[:, None, None] if layout == "NCHW" else channels

    y = wide(x)
    mean = y.mean(axes)
    variance = ((y - along(mean)) ** 2).mean(axes)
    for part, value in (("running_mean", mean), ("running_var", variance)):
        before = MOMENTUM * statistics[f"{name}.{part}"]
        statistics[f"{name}.{part}"] = before + (1 - MOMENTUM) * value
    scale = weights[f"{name}.weight"] * lax.rsqrt(variance + EPSILON)
    offset = weights[f"{name}.bias"] - mean * scale
    return (y * along(scale) + along(offset)).astype(x.dtype)


def max_pool(x: Array, size: int, stride: int, padding: int, layout: str) -> Array:
    """Compare the values at each place of a window in turn: on a CPU, the gradient of
    lax.reduce_window is many times slower. The first of equal values gets the gradient."""
    spatial = layout.index("H"), layout.index("W")
    margins = [(padding, padding) if axis in spatial else (0, 0) for axis in range(4)]
    x = jnp.pad(x, margins, constant_values=-jnp.inf)
    largest = None
    for begins in product(range(size), repeat=2):
        places = [slice(None)] * 4
        for axis, begin in zip(spatial, begins, strict=True):
            end = begin + x.shape[axis] - size + 1
            places[axis] = slice(begin, end, stride)
        values = x[tuple(places)]
        largest = values if largest is None else jnp.where(values > largest, values, largest)
    assert largest is not None
    return largest


def shapes(stages: Stages = RESNET_STAGES, classes: int = CLASSES) -> Shapes:
    inputs = stages[0][0]
    found: Shapes = {"conv1.weight": (7, 7, 3, inputs), **norm_shapes("bn1", inputs)}
    for number, (width, blocks) in enumerate(stages, 1):
        for block in range(blocks):
            found |= bottleneck_shapes(f"layer{number}.{block}", inputs, width, block == 0)
            inputs = EXPANSION * width
    return found | dense_shapes("fc", inputs, classes)


def bottleneck_shapes(name: str, inputs: int, width: int, is_first: bool) -> Shapes:
    outputs = EXPANSION * width
    found: Shapes = {
        f"{name}.conv1.weight": (1, 1, inputs, width),
        **norm_shapes(f"{name}.bn1", width),
        f"{name}.conv2.weight": (3, 3, width, width),
        **norm_shapes(f"{name}.bn2", width),
        f"{name}.conv3.weight": (1, 1, width, outputs),
        **norm_shapes(f"{name}.bn3", outputs),
    }
    if is_first:
        found[f"{name}.downsample.0.weight"] = (1, 1, inputs, outputs)
        found |= norm_shapes(f"{name}.downsample.1", outputs)
    return found


def initial_weights(
    stages: Stages, random: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield kernels as in He et al., Delving deep into rectifiers, 2015, and the dense layer's
    weight as in Glorot and Bengio, 2010."""
    for name, shape in shapes(stages).items():
        if name == "fc.weight":
            limit = np.float32((6 / sum(shape)) ** 0.5)
            yield name, (random.random(shape, np.float32) * 2 - 1) * limit
        else:
            deviation = (2 / prod(shape[:-1])) ** 0.5
            yield name, initial_values(name, shape, deviation, random)


def initial_statistics(stages: Stages = RESNET_STAGES) -> dict[str, np.ndarray]:
    statistics = {}
    for name, shape in shapes(stages).items():
        norm, _dot, part = name.rpartition(".")
        if part == "bias" and norm != "fc":
            statistics[f"{norm}.running_mean"] = np.zeros(shape, np.float32)
            statistics[f"{norm}.running_var"] = np.ones(shape, np.float32)
    return statistics
