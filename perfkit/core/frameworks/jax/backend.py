"""The JAX backend: plain JAX on a CPU, in one process.

JAX returns before a computation is complete, also on a CPU, so CpuDevice's clock would only
measure the dispatch. All timed functions here therefore wait for their own results. Disabling
`jax_cpu_enable_async_dispatch` is not enough: a call with an array that is still being copied,
as a batch may be, returns immediately nevertheless.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from perfkit.core.config import Config
from perfkit.core.frameworks.devices import CpuDevice, Device
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.trainer import EPSILON, Values
from perfkit.core.frameworks.interface import converted
from perfkit.core.frameworks.jax import inspector
from perfkit.core.frameworks.jax.layers import Forward, contract, param_dtype
from perfkit.core.models import MOMENTUM

# Must be set before the first computation.
jax.config.update("jax_platforms", "cpu")

DTYPES = {"bf16": jnp.bfloat16}

Batch = tuple[Array, ...]
Slots = tuple[Array, ...]
"""The optimizer's state tensors of a parameter."""
Inspector = inspector.Inspector
largest_of_ranks = functional.largest_of_ranks


def open_device(_config: Config) -> Device:
    return CpuDevice()


def enable_float64() -> None:
    jax.config.update("jax_enable_x64", True)


class Trainer(functional.Trainer):
    """Model, loss and optimizer as two compiled programs; `slots` holds the optimizer's state
    tensors of each parameter."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.dtype = DTYPES.get(config.precision, param_dtype())
        self.slots = self.new_slots()
        self.steps = 0
        self.key: Array | None = jax.random.key(config.seed)
        self.backward_pass = jax.jit(self._backward, donate_argnums=(1, 2, 3))
        self.optimizer_step = jax.jit(self._update, donate_argnums=(0, 2))

    @staticmethod
    def hold(array: np.ndarray) -> Array:
        return jnp.array(array, param_dtype())

    def forward(
        self, values: Values, statistics: Values, key: Array | None, batch: Batch
    ) -> tuple[Any, Array, Values]:
        """Return logits, loss and updated statistics."""
        run = Forward(self.dtype, self.layout, values, statistics, key=key)
        logits, loss = self.network.logits_and_loss(run, batch)
        return logits, loss, run.statistics

    def _backward(
        self,
        values: Values,
        statistics: Values,
        gathered: Values | None,
        key: Array | None,
        batch: Batch,
    ) -> tuple[Array, Values, Values, Array | None]:
        next_key = dropout_key = None
        if key is not None:
            next_key, dropout_key = jax.random.split(key)

        def scaled_loss(values: Values) -> tuple[Array, Values]:
            _logits, loss, updated = self.forward(values, statistics, dropout_key, batch)
            return loss / self.accumulate, updated

        with_gradients = jax.value_and_grad(scaled_loss, has_aux=True)
        (loss, updated), gradients = with_gradients(values)
        if gathered is not None:
            gradients = jax.tree.map(jnp.add, gathered, gradients)
        return loss, updated, gradients, next_key

    def _update(
        self, values: Values, gradients: Values, slots: Values, steps: Any
    ) -> tuple[Values, Values]:
        """Return parameters and slots after step `steps` (from 1), by the formulas of Paddle's
        optimizers."""
        if self.optimizer_settings.clip_norm:
            gradients = self._clipped(gradients)
        is_momentum = self.optimizer_settings.optimizer == "momentum"
        updated: Values = {}
        new_slots: Values = {}
        for name, value in values.items():
            if is_momentum:
                after = self._by_momentum(value, gradients[name], slots[name])
            else:
                after = self._by_adamw(value, gradients[name], slots[name], steps)
            updated[name], new_slots[name] = after
        return updated, new_slots

    def _clipped(self, gradients: Values) -> Values:
        clip_norm = self.optimizer_settings.clip_norm
        norm = jnp.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        scale = clip_norm / jnp.maximum(norm, clip_norm)
        return {name: gradient * scale for name, gradient in gradients.items()}

    def _by_momentum(self, value: Array, gradient: Array, slots: Slots) -> tuple[Array, Slots]:
        """Return a parameter and its velocity after a step."""
        (velocity,) = slots
        settings = self.optimizer_settings
        velocity = MOMENTUM * velocity + gradient + settings.weight_decay * value
        return value - settings.learning_rate * velocity, (velocity,)

    def _by_adamw(
        self, value: Array, gradient: Array, slots: Slots, steps: Any
    ) -> tuple[Array, Slots]:
        """Return a parameter and its two moments after a step (Loshchilov and Hutter, 2017)."""
        first, second = slots
        settings = self.optimizer_settings
        rate = settings.learning_rate
        beta1, beta2 = settings.betas
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        mean = first / (1 - beta1**steps)
        variance = second / (1 - beta2**steps)
        decay = settings.weight_decay if value.ndim > 1 else 0.0
        decayed = value * (1 - rate * decay)
        change = rate * mean / (jnp.sqrt(variance) + EPSILON)
        return decayed - change, (first, second)

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> Array:
        loss, self.statistics, self.gathered, self.key = jax.block_until_ready(
            self.backward_pass(self.values, self.statistics, self.gathered, self.key, batch)
        )
        return loss

    def update(self) -> None:
        self.steps += 1
        self.values, self.slots = jax.block_until_ready(
            self.optimizer_step(self.values, self.gathered, self.slots, self.steps)
        )
        self.zero_grad()


class Workloads:
    def __init__(self, config: Config) -> None:
        self.dtype = DTYPES.get(config.precision, param_dtype())

    def matmul(self, size: int) -> Any:
        a_key, b_key = jax.random.split(jax.random.key(0))
        a = jax.random.normal(a_key, (size, size)).astype(self.dtype)
        b = jax.random.normal(b_key, (size, size)).astype(self.dtype)
        multiply = jax.jit(lambda a, b: contract("ij,jk->ik", a, b))
        return lambda: multiply(a, b).block_until_ready()

    def copy(self, size_bytes: int) -> Any:
        source = jnp.zeros(size_bytes, jnp.int8)
        # Each copy reuses the memory of the previous copy, which is donated.
        target = [jnp.ones(size_bytes, jnp.int8)]
        assign = jax.jit(lambda _target, source: source, donate_argnums=0, keep_unused=True)

        def call() -> None:
            target[0] = assign(target[0], source).block_until_ready()

        return call


def tensors(batches: Iterator[Batch], _config: Config) -> Iterator[Batch]:
    """See Backend. JAX shares memory that is aligned to 64 bytes and copies other memory;
    integers become 32-bit."""
    return converted(batches, _as_tensor)


def _as_tensor(array: Any) -> Array:
    view = np.from_dlpack(array)
    if view.dtype == np.int64:
        view = view.astype(np.int32)
    return jnp.asarray(view).block_until_ready()
