"""The layers in TensorFlow."""

import math
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from perfkit.core.frameworks.functional import layers
from perfkit.core.frameworks.functional.layers import NORM_EPSILON


class Forward(layers.Forward):
    """Without `drops`, dropout is disabled."""

    cast = staticmethod(tf.cast)
    maximum = staticmethod(tf.maximum)
    mean = staticmethod(tf.reduce_mean)
    relu = staticmethod(tf.nn.relu)
    reshape = staticmethod(tf.reshape)
    rows = staticmethod(tf.gather)
    rows_of_each = staticmethod(partial(tf.gather, axis=1, batch_dims=1))
    rsqrt = staticmethod(tf.math.rsqrt)
    softmax = staticmethod(tf.nn.softmax)
    sum = staticmethod(tf.reduce_sum)
    tanh = staticmethod(tf.tanh)
    transpose = staticmethod(tf.transpose)

    def __init__(self, *values: Any, drops: bool = True) -> None:
        super().__init__(*values)
        self.drops = drops

    def parameter(self, name: str) -> Tensor:
        return tf.convert_to_tensor(self.parameters[name])

    def convolve(self, x: Tensor, kernel: Tensor, size: int, stride: int) -> Tensor:
        if stride == 1:
            return tf.nn.conv2d(x, kernel, stride, "SAME")
        # At stride 2, SAME padding is asymmetric.
        return tf.nn.conv2d(_padded(x, size // 2, 0), kernel, stride, "VALID")

    def add_bias(self, x: Tensor, bias: Tensor) -> Tensor:
        return tf.nn.bias_add(x, tf.cast(bias, x.dtype))

    @staticmethod
    def gelu(x: Tensor, approximate: bool) -> Tensor:
        """Like tf.nn.gelu, which however rounds its constants to float32 for any dtype."""
        assert not approximate, "no network that TensorFlow trains approximates GELU"
        return 0.5 * x * tf.math.erfc(-math.sqrt(0.5) * x)

    def batch_norm(self, name: str, x: Tensor, channels: int) -> Tensor:
        """Batch norm by TensorFlow's fused operator, which does not support float64 and returns
        the variance with Bessel's correction (n - 1)."""
        if self.wide == "float64":
            return super().batch_norm(name, x, channels)
        weight, bias = self.norm(name)
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=weight, offset=bias, mean=[], variance=[], epsilon=NORM_EPSILON
        )
        values = x.shape.num_elements() / channels
        self.keep_statistics(name, mean, variance * ((values - 1) / values))
        return y

    def product(self, a: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
        if len(b.shape) > 2:
            return tf.matmul(a, b, transpose_b=transposed)
        rows = tf.reshape(a, (-1, a.shape[-1]))
        y = tf.matmul(rows, b, transpose_b=transposed)
        return tf.reshape(y, (*a.shape[:-1], y.shape[-1]))

    def cross_entropies(self, logits: Tensor, labels: Tensor) -> Tensor:
        labels = tf.reshape(labels, (-1,))
        logits = tf.cast(logits, self.wide)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        return tf.nn.dropout(x, rate) if self.drops else x

    def max_pool(self, x: Tensor, size: int, stride: int, padding: int) -> Tensor:
        x = _padded(x, padding, x.dtype.min)
        return tf.nn.max_pool2d(x, size, stride, "VALID")


def _padded(images: Tensor, width: int, value: float) -> Tensor:
    """Pad height and width by `width` pixels on each side."""
    if not width:
        return images
    margins = [[0, 0], [width, width], [width, width], [0, 0]]
    return tf.pad(images, margins, constant_values=value)
