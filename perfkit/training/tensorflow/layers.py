"""The layers of the models, with the names of PyTorch's parameters. Keras's layers differ in
names and epsilons, and pad asymmetrically at stride 2.

As Keras's, they go by the dtype policy at their creation: parameters have its variable dtype,
convolutions and products compute in its compute dtype, norms in that of the parameters.
"""

import math

import tensorflow as tf
from tensorflow import Tensor, Variable

EPSILON = 1e-5
"""Epsilon of batch norm."""
STATISTICS_RATE = 0.1
"""Weight of a batch in batch norm's running statistics."""


class Layer(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        policy = tf.keras.mixed_precision.global_policy()
        self.compute_dtype = policy.compute_dtype
        self.variable_dtype = policy.variable_dtype

    def factor(self, x: Tensor) -> Tensor:
        """Return `x` as a factor of a product."""
        return tf.cast(x, self.compute_dtype)


class Conv2D(Layer):
    """A convolution without bias; its weight is height x width x inputs x outputs."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__()
        # He et al., Delving deep into rectifiers, 2015.
        deviation = math.sqrt(2 / (size * size * inputs))
        shape = size, size, inputs, outputs
        self.weight = Variable(tf.random.normal(shape, 0.0, deviation, self.variable_dtype))
        self.stride = stride
        self.margin = size // 2

    def __call__(self, x: Tensor) -> Tensor:
        x, weight = self.factor(x), self.factor(self.weight)
        if self.stride == 1:
            return tf.nn.conv2d(x, weight, self.stride, "SAME")
        # At stride 2, SAME pads asymmetrically. Margins given to conv2d itself take a CPU twice
        # the time.
        x = tf.pad(x, margins(self.margin))
        return tf.nn.conv2d(x, weight, self.stride, "VALID")


class BatchNorm(Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = Variable(tf.ones(width, self.variable_dtype))
        self.bias = Variable(tf.zeros(width, self.variable_dtype))
        self.running_mean = Variable(tf.zeros(width, self.variable_dtype), trainable=False)
        self.running_var = Variable(tf.ones(width, self.variable_dtype), trainable=False)

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        if x.dtype == tf.float64:
            return self.in_float64(x)
        normalized = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=self.weight,
            offset=self.bias,
            mean=self.running_mean,
            variance=self.running_var,
            epsilon=EPSILON,
            exponential_avg_factor=STATISTICS_RATE,
            is_training=training,
        )
        if training:
            self.running_mean.assign(normalized.batch_mean)
            self.running_var.assign(normalized.batch_variance)
        return normalized.y

    def in_float64(self, x: Tensor) -> Tensor:
        """Normalize by the batch, without statistics: the fused operator has no float64."""
        mean, variance = tf.nn.moments(x, (0, 1, 2))
        return tf.nn.batch_normalization(x, mean, variance, self.bias, self.weight, EPSILON)


class Linear(Layer):
    """A dense layer of the last axis; its weight is inputs x outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        # Glorot and Bengio, Understanding the difficulty of training deep networks, 2010.
        limit = math.sqrt(6 / (inputs + outputs))
        initial = tf.random.uniform((inputs, outputs), -limit, limit, self.variable_dtype)
        self.weight = Variable(initial)
        self.bias = Variable(tf.zeros(outputs, self.variable_dtype))

    def __call__(self, x: Tensor) -> Tensor:
        y = tf.tensordot(self.factor(x), self.factor(self.weight), 1)
        return tf.nn.bias_add(y, self.factor(self.bias))


class Embedding(Layer):
    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.weight = Variable(tf.random.normal((size, width), dtype=self.variable_dtype))

    def __call__(self, ids: Tensor) -> Tensor:
        return tf.gather(self.weight, ids)


class LayerNorm(Layer):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = Variable(tf.ones(width, self.variable_dtype))
        self.bias = Variable(tf.zeros(width, self.variable_dtype))
        self.epsilon = epsilon

    def __call__(self, x: Tensor) -> Tensor:
        x = tf.cast(x, self.variable_dtype)
        x = x - tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(x * x, -1, keepdims=True)
        return x * tf.math.rsqrt(variance + self.epsilon) * self.weight + self.bias


class Dropout(Layer):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        return tf.nn.dropout(x, self.rate) if training else x


def gelu(x: Tensor) -> Tensor:
    """Return tf.nn.gelu(x), which rounds its constants to float32 in any dtype."""
    return 0.5 * x * tf.math.erfc(-math.sqrt(0.5) * x)


def max_pool(x: Tensor, size: int, stride: int) -> Tensor:
    """Pool images with a margin. XLA knows no margins of pools."""
    x = tf.pad(x, margins(size // 2), constant_values=x.dtype.min)
    return tf.nn.max_pool2d(x, size, stride, "VALID")


def margins(pixels: int) -> list[list[int]]:
    """Return the margins of a batch of images on each side: some of height and width."""
    return [[0, 0], [pixels, pixels], [pixels, pixels], [0, 0]]
