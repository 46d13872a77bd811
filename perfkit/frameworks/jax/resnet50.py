"""ResNet-50 in JAX; perfkit.models.resnet50 names the source."""

import jax
from jax import Array

from perfkit.frameworks.jax.layers import (
    Forward,
    example_images,
    image_loss,
    param_dtype,
    uniform,
)
from perfkit.models import resnet50 as facts
from perfkit.models.model import CLASSES


class ResNet50:
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to logits of batch x
    classes."""

    inputs = 1
    example = staticmethod(example_images)
    loss = staticmethod(image_loss)

    def __call__(self, run: Forward, images: Array) -> Array:
        x = run.convolution("conv1", images, facts.STEM, 7, 2)
        x = run.max_pool(jax.nn.relu(run.batch_norm("bn1", x)), 3, 2, padding=1)
        for stage, blocks in enumerate(facts.stages(), 1):
            for block, (_inputs, width, stride) in enumerate(blocks):
                x = _bottleneck(run, f"layer{stage}.{block}", x, width, stride)
        x = x.mean((run.layout.index("H"), run.layout.index("W")), param_dtype())
        # Glorot and Bengio, 2010: the first values of Paddle's dense layers.
        limit = (6 / (x.shape[-1] + CLASSES)) ** 0.5
        return run.dense("fc", x, CLASSES, uniform(limit))


def _bottleneck(run: Forward, name: str, x: Array, width: int, stride: int) -> Array:
    """1x1, 3x3 (strided), 1x1, and a projected or plain shortcut."""
    outputs = width * facts.EXPANSION
    y = run.convolution(f"{name}.conv1", x, width, 1)
    y = jax.nn.relu(run.batch_norm(f"{name}.bn1", y))
    y = run.convolution(f"{name}.conv2", y, width, 3, stride)
    y = jax.nn.relu(run.batch_norm(f"{name}.bn2", y))
    y = run.batch_norm(f"{name}.bn3", run.convolution(f"{name}.conv3", y, outputs, 1))
    if stride != 1 or x.shape[run.layout.index("C")] != outputs:
        x = run.convolution(f"{name}.downsample.0", x, outputs, 1, stride)
        x = run.batch_norm(f"{name}.downsample.1", x)
    return jax.nn.relu(y + x)
