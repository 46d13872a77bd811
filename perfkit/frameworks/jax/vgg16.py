"""VGG-16 in JAX; perfkit.models.vgg16 names the source."""

import jax
from jax import Array
from jax import numpy as jnp

from perfkit.frameworks.jax.layers import Forward, example_images, image_loss, normal
from perfkit.models import vgg16 as facts


class VGG16:
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to logits of batch x
    classes."""

    inputs = 1
    example = staticmethod(example_images)
    loss = staticmethod(image_loss)

    def __call__(self, run: Forward, images: Array) -> Array:
        x, index = images, 0
        for width, count in facts.STAGES:
            for _ in range(count):
                x = run.convolution(f"features.{index}", x, width, 3)
                x = jax.nn.relu(run.channel_bias(f"features.{index}", x))
                # A ReLU counts as a layer, as does the pool.
                index += 2
            x = run.max_pool(x, 2, 2)
            index += 1
        for axis in "HW":
            x = _averaged(x, run.layout.index(axis))
        # The dense weights mean the same in both layouts.
        x = x.transpose([run.layout.index(axis) for axis in "NCHW"])
        x = x.reshape(x.shape[0], -1)
        *hidden, last = [outputs for _inputs, outputs in facts.dense_layers()]
        for number, outputs in enumerate(hidden):
            # Behind it are a ReLU and dropout.
            x = run.dense(f"classifier.{3 * number}", x, outputs, normal(facts.DEVIATION))
            x = run.dropout(jax.nn.relu(x), facts.DROPOUT)
        return run.dense(f"classifier.{3 * len(hidden)}", x, last, normal(facts.DEVIATION))


def _averaged(x: Array, axis: int) -> Array:
    """facts.POOLED means along an axis, over parts that overlap where it can't be divided
    evenly."""
    size, count = x.shape[axis], facts.POOLED
    parts = [
        jnp.arange(part * size // count, -(-(part + 1) * size // count))
        for part in range(count)
    ]
    return jnp.stack([x.take(part, axis).mean(axis) for part in parts], axis)
