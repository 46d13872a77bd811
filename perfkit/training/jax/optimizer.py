"""Momentum SGD and AdamW as functions, by the formulas of PyTorch's."""

from collections.abc import Callable
from typing import Any

from jax import Array
from jax import numpy as jnp

from perfkit.training.models import MOMENTUM, OptimizerSettings

EPSILON = 1e-8
Arrays = dict[str, Any]
"""Weights or gradients by name, or the slots of each weight."""
Slots = tuple[Array, ...]
"""What an optimizer keeps of a weight's gradients: its velocity, or Adam's two moments."""
Total = Callable[[Arrays], Any]
"""Returns the sum of one number for each weight."""


def new_slots(settings: OptimizerSettings, weights: Arrays) -> Arrays:
    """Return the slots before the first step, which are 0."""
    count = 1 if settings.optimizer == "momentum" else 2
    slots = {}
    for name, weight in weights.items():
        slots[name] = tuple(jnp.zeros_like(weight) for _ in range(count))
    return slots


def sum_of(numbers: Arrays) -> Any:
    return sum(numbers.values())


def update(
    settings: OptimizerSettings,
    weights: Arrays,
    gradients: Arrays,
    slots: Arrays,
    step: Any,
    total: Total = sum_of,
) -> tuple[Arrays, Arrays]:
    """Return weights and slots after step `step`, from 1."""
    if settings.clip_norm:
        gradients = clipped(gradients, settings.clip_norm, total)
    updated: Arrays = {}
    kept: Arrays = {}
    for name, weight in weights.items():
        given = settings, weight, gradients[name], slots[name]
        if settings.optimizer == "momentum":
            updated[name], kept[name] = by_momentum(*given)
        else:
            updated[name], kept[name] = by_adamw(*given, step)
    return updated, kept


def clipped(gradients: Arrays, clip_norm: float, total: Total) -> Arrays:
    squares = {name: (gradient**2).sum() for name, gradient in gradients.items()}
    norm = jnp.sqrt(total(squares))
    scale = clip_norm / jnp.maximum(norm, clip_norm)
    return {name: gradient * scale for name, gradient in gradients.items()}


def by_momentum(
    settings: OptimizerSettings, weight: Array, gradient: Array, slots: Slots
) -> tuple[Array, Slots]:
    (velocity,) = slots
    velocity = MOMENTUM * velocity + gradient + settings.weight_decay * weight
    return weight - settings.learning_rate * velocity, (velocity,)


def by_adamw(
    settings: OptimizerSettings, weight: Array, gradient: Array, slots: Slots, step: Any
) -> tuple[Array, Slots]:
    """Without weight decay of biases and norms (Loshchilov and Hutter, Decoupled weight decay
    regularization, 2017)."""
    first, second = slots
    rate = settings.learning_rate
    beta1, beta2 = settings.betas
    first = beta1 * first + (1 - beta1) * gradient
    second = beta2 * second + (1 - beta2) * gradient**2
    mean = first / (1 - beta1**step)
    variance = second / (1 - beta2**step)
    decay = settings.weight_decay if weight.ndim > 1 else 0.0
    change = rate * mean / (jnp.sqrt(variance) + EPSILON)
    return weight * (1 - rate * decay) - change, (first, second)
