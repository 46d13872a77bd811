"""The operations of the networks' forward pass in TensorFlow."""

import math
from functools import partial
from typing import Any

import tensorflow as tf

from perfkit.frameworks.functional import layers
from perfkit.frameworks.functional.layers import NORM_EPSILON


class Forward(layers.Forward):
    """Without `drops` nothing is dropped."""

    cast = staticmethod(tf.cast)
    concat = staticmethod(tf.concat)
    maximum = staticmethod(tf.maximum)
    mean = staticmethod(tf.reduce_mean)
    relu = staticmethod(tf.nn.relu)
    reshape = staticmethod(tf.reshape)
    rows = staticmethod(tf.gather)
    rows_of_each = staticmethod(partial(tf.gather, axis=1, batch_dims=1))
    rsqrt = staticmethod(tf.math.rsqrt)
    softmax = staticmethod(tf.nn.softmax)
    split = staticmethod(tf.split)
    sum = staticmethod(tf.reduce_sum)
    tanh = staticmethod(tf.tanh)
    transpose = staticmethod(tf.transpose)
    zeros = staticmethod(tf.zeros)

    def __init__(self, *values: Any, drops: bool = True) -> None:
        super().__init__(*values)
        self.drops = drops

    def parameter(self, name: str, fill: layers.Fill, *shape: int) -> tf.Tensor:
        return tf.convert_to_tensor(super().parameter(name, fill, *shape))

    def convolve(self, x: tf.Tensor, kernel: tf.Tensor, size: int, stride: int) -> tf.Tensor:
        padding = "SAME"
        if stride > 1:
            # At stride 2, SAME pads more on one side than on the other.
            x, padding = _padded(x, size // 2, 0), "VALID"
        return tf.nn.conv2d(x, kernel, stride, padding)

    def add_bias(self, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return tf.nn.bias_add(x, tf.cast(bias, x.dtype))

    @staticmethod
    def gelu(x: tf.Tensor, approximate: bool) -> tf.Tensor:
        """As tf.nn.gelu, which rounds its constants to float32 whatever `x` is."""
        if approximate:
            return 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * tf.math.erfc(-math.sqrt(0.5) * x)

    def batch_norm(self, name: str, x: tf.Tensor, channels: int) -> tf.Tensor:
        """By TensorFlow's fused operator, which does not take float64. Its variance is that of
        n - 1 values."""
        if self.wide == "float64":
            return super().batch_norm(name, x, channels)
        weight, bias = self.norm(name, channels)
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=weight, offset=bias, mean=[], variance=[], epsilon=NORM_EPSILON
        )
        values = x.shape.num_elements() / channels
        self.keep_statistics(name, mean, variance * ((values - 1) / values), channels)
        return y

    def product(self, a: tf.Tensor, b: tf.Tensor, *, transposed: bool = False) -> tf.Tensor:
        if len(b.shape) > 2:
            return tf.matmul(a, b, transpose_b=transposed)
        rows = tf.reshape(a, (-1, a.shape[-1]))
        y = tf.matmul(rows, b, transpose_b=transposed)
        return tf.reshape(y, (*a.shape[:-1], y.shape[-1]))

    def cross_entropies(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.reshape(labels, (-1,)), tf.cast(logits, self.wide)
        )

    def dropout(self, x: tf.Tensor, rate: float) -> tf.Tensor:
        return tf.nn.dropout(x, rate) if self.drops else x

    def max_pool(self, x: tf.Tensor, size: int, stride: int, padding: int = 0) -> tf.Tensor:
        return tf.nn.max_pool2d(_padded(x, padding, x.dtype.min), size, stride, "VALID")


def _padded(images: tf.Tensor, width: int, value: float) -> tf.Tensor:
    """With so many more pixels of this value at each side."""
    if not width:
        return images
    return tf.pad(
        images, [[0, 0], [width, width], [width, width], [0, 0]], constant_values=value
    )
