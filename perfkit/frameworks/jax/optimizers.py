"""The optimizers in JAX, by the formulas of Paddle's: a parameter and what is kept for it."""

from collections.abc import Callable
from typing import Any

from jax import Array
from jax import numpy as jnp

from perfkit.models import MOMENTUM, OptimizerSettings

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Of Adam."""

Slots = tuple[Array, ...]
Rule = Callable[[OptimizerSettings, Array, Array, Slots, Any], tuple[Array, Slots]]


def momentum(
    settings: OptimizerSettings, value: Array, gradient: Array, slots: Slots, _steps: Any
) -> tuple[Array, Slots]:
    """A parameter and its velocity after the step."""
    velocity = MOMENTUM * slots[0] + gradient + settings.weight_decay * value
    return value - settings.learning_rate * velocity, (velocity,)


def adamw(
    settings: OptimizerSettings, value: Array, gradient: Array, slots: Slots, steps: Any
) -> tuple[Array, Slots]:
    """A parameter and its two moments after the step, the first being step 1.

    Loshchilov and Hutter, Decoupled weight decay regularization, 2017.
    """
    first = BETAS[0] * slots[0] + (1 - BETAS[0]) * gradient
    second = BETAS[1] * slots[1] + (1 - BETAS[1]) * gradient**2
    corrected, deviation = first / (1 - BETAS[0] ** steps), second / (1 - BETAS[1] ** steps)
    rate, decay = settings.learning_rate, settings.weight_decay if value.ndim > 1 else 0.0
    value = value * (1 - rate * decay)
    value = value - rate * corrected / (jnp.sqrt(deviation) + EPSILON)
    return value, (first, second)


RULES: dict[str, tuple[int, Rule]] = {"momentum": (1, momentum), "adamw": (2, adamw)}
"""How many values are kept for each of a parameter, and the step."""
