"""Optimizers of TensorFlow's fused operators. Keras's have another epsilon of Adam, and decay
SGD's weights apart from the gradients."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow import Tensor, Variable

from perfkit.training.models import MOMENTUM, OptimizerSettings

EPSILON = 1e-8
"""Adam's epsilon."""


class Momentum(tf.Module):
    """SGD with momentum; weight decay is added to the gradients."""

    def __init__(self, parameters: Sequence[Variable], settings: OptimizerSettings) -> None:
        super().__init__()
        self.parameters = parameters
        self.settings = settings
        self.velocities = zeros_like(parameters)

    def apply(self, gradients: Sequence[Tensor]) -> None:
        settings = self.settings
        triples = zip(self.parameters, self.velocities, gradients, strict=True)
        for parameter, velocity, gradient in triples:
            tf.raw_ops.ResourceApplyMomentum(
                var=parameter.handle,
                accum=velocity.handle,
                lr=tf.constant(settings.learning_rate, parameter.dtype),
                grad=gradient + settings.weight_decay * parameter,
                momentum=tf.constant(MOMENTUM, parameter.dtype),
            )


class AdamW(tf.Module):
    """Adam with decoupled weight decay of matrices alone."""

    def __init__(self, parameters: Sequence[Variable], settings: OptimizerSettings) -> None:
        super().__init__()
        self.parameters = parameters
        self.settings = settings
        self.means = zeros_like(parameters)
        self.squares = zeros_like(parameters)
        self.steps = Variable(tf.zeros((), parameters[0].dtype))

    def apply(self, gradients: Sequence[Tensor]) -> None:
        self.steps.assign_add(1)
        dtype = self.steps.dtype
        # tf.cast would round these numbers to float32 first, 1 - 0.999 by 1e-5 of it.
        rate = tf.constant(self.settings.learning_rate, dtype)
        decay = tf.constant(self.settings.weight_decay, dtype)
        beta1, beta2 = (tf.constant(beta, dtype) for beta in self.settings.betas)
        beta1_power, beta2_power = beta1**self.steps, beta2**self.steps
        # TensorFlow's Adam adds epsilon before it corrects the bias of the second moment.
        epsilon = EPSILON * tf.sqrt(1 - beta2_power)
        slots = zip(self.means, self.squares, strict=True)
        triples = zip(self.parameters, slots, gradients, strict=True)
        for parameter, (mean, square), gradient in triples:
            if parameter.shape.rank > 1:
                parameter.assign_sub(rate * decay * parameter)
            tf.raw_ops.ResourceApplyAdam(
                var=parameter.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=rate,
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
                grad=gradient,
            )


def zeros_like(parameters: Sequence[Variable]) -> list[Variable]:
    return [Variable(tf.zeros_like(parameter)) for parameter in parameters]
