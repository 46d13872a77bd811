"""The JAX backend: plain JAX, always compiled. Calls return before their computation is
complete, also on a CPU; perfkit.timing.watched times them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from perfkit.core.config import Config
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.trainer import EPSILON, Values
from perfkit.core.frameworks.interface import converted
from perfkit.core.frameworks.jax import inspector, parallel
from perfkit.core.frameworks.jax.layers import Forward, contract, param_dtype
from perfkit.core.frameworks.jax.parallel import REPLICATED, Ranks
from perfkit.core.frameworks.jax.sharding import Shares, rewrite_layers
from perfkit.timing.devices import Device
from perfkit.timing.watched import WatchedDevice, WatchedGpu
from perfkit.training.models import MOMENTUM

DTYPES = {"bf16": jnp.bfloat16}

Batch = tuple[Array, ...]
Slots = tuple[Array, ...]
"""The optimizer's state tensors of a parameter."""
Inspector = inspector.Inspector
largest_of_ranks = parallel.largest_of_ranks


def open_device(config: Config) -> Device:
    # All must be set before the first computation.
    on_gpu = config.device == "gpu"
    jax.config.update("jax_platforms", "cuda" if on_gpu else "cpu")
    if on_gpu:
        jax.config.update("jax_cuda_visible_devices", str(parallel.own_device(config)))
        precision = "tensorfloat32" if config.tf32 else "highest"
        jax.config.update("jax_default_matmul_precision", precision)
    if config.ranks > 1:
        parallel.join(config)
    return WatchedGpu(jax) if on_gpu else WatchedDevice(jax)


def enable_float64() -> None:
    jax.config.update("jax_enable_x64", True)


class Trainer(functional.Trainer):
    """Model, loss and optimizer as compiled programs; `slots` holds the optimizer's state
    tensors of each parameter. Several `ranks` exchange gradients in `backward_pass`, and
    `own_backward_pass` leaves each with its own, unless they hold `shares` of the
    parameters."""

    def __init__(self, config: Config) -> None:
        self.ranks = Ranks() if config.ranks > 1 else None
        super().__init__(config)
        self.dtype = DTYPES.get(config.precision, param_dtype())
        self.shares: Shares | None = None
        if self.ranks and config.is_sharded:
            self.shares = Shares(self.ranks, self.values, self.dtype)
        rewrite_layers(self.network, config)
        is_half = self.dtype == jnp.bfloat16
        self.fuses_attention = (
            is_half and config.device == "gpu" and config.tunes("fused_attention")
        )
        self.slots = self.new_slots()
        self.steps = 0
        # Dropout differs between ranks.
        self.key: Array | None = self._held_key(config.seed + parallel.this_rank())
        self.backward_pass = self._backward_program(exchange=self.ranks is not None)
        self.own_backward_pass = self.backward_pass
        if self.ranks and not self.shares:
            self.own_backward_pass = self._backward_program(exchange=False)
        self.optimizer_step = self.program(
            self._update,
            (self.specs, self.specs, self.specs, REPLICATED),
            results=(self.specs, self.specs, REPLICATED),
            donated=(0, 2),
        )

    @property
    def specs(self) -> Any:
        """How parameters, gradients and slots are divided among the ranks."""
        return self.shares.specs if self.shares else REPLICATED

    def hold(self, array: np.ndarray) -> Array:
        if self.ranks and self.config.is_sharded:
            return self.ranks.shared_out(array, param_dtype())
        held = jnp.array(array, param_dtype())
        return self.ranks.held(held) if self.ranks else held

    def _held_key(self, seed: int) -> Array:
        key = jax.random.key(seed)
        return self.ranks.held(key) if self.ranks else key

    def program(
        self,
        function: Callable[..., Any],
        specs: tuple[Any, ...],
        results: Any = REPLICATED,
        donated: tuple[int, ...] = (),
    ) -> Any:
        """Compile a function of arguments with these `specs`, and of a batch if it takes one
        more. Each rank has its own copy of arguments and results that are replicated."""
        if self.ranks:
            function = self.ranks.on_each(function, specs, results)
        return jax.jit(function, donate_argnums=donated)

    def _backward_program(self, *, exchange: bool) -> Any:
        return self.program(
            partial(self._backward, exchange=exchange),
            (self.specs, REPLICATED, self.specs, REPLICATED),
            results=(REPLICATED, REPLICATED, self.specs, REPLICATED),
            donated=(1, 2, 3),
        )

    def joined(self, batch: Batch) -> Batch:
        """Return the batch as the programs take it."""
        return self.ranks.joined(batch) if self.ranks else batch

    def forward(
        self,
        values: Values,
        statistics: Values,
        key: Array | None,
        batch: Batch,
        *,
        may_fuse: bool = True,
    ) -> tuple[Any, Array, Values]:
        """Return logits, loss and updated statistics. `may_fuse`: whether fused kernels may be
        used."""
        run = Forward(
            self.dtype,
            self.layout,
            values,
            statistics,
            key=key,
            fuses_attention=may_fuse and self.fuses_attention,
            whole=self.shares.whole if self.shares else None,
        )
        logits, loss = self.network.logits_and_loss(run, batch)
        return logits, loss, run.statistics

    def _backward(
        self,
        values: Values,
        statistics: Values,
        gathered: Values | None,
        key: Array | None,
        batch: Batch,
        *,
        exchange: bool = False,
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
        if self.shares:
            gradients = self.shares.exchanged(gradients)
        elif exchange:
            gradients = parallel.averaged(gradients)
        return loss, updated, gradients, next_key

    def _update(
        self, values: Values, gradients: Values, slots: Values, steps: Any
    ) -> tuple[Values, Values, Array]:
        """Return parameters and slots after step `steps` (from 1), by the formulas of Paddle's
        optimizers, and one updated number, which is never donated."""
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
        return updated, new_slots, updated[name].ravel()[0]

    def _clipped(self, gradients: Values) -> Values:
        clip_norm = self.optimizer_settings.clip_norm
        squares = {name: (gradient**2).sum() for name, gradient in gradients.items()}
        total = self.shares.total(squares) if self.shares else sum(squares.values())
        norm = jnp.sqrt(total)
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
        run = self.backward_pass if sync_gradients else self.own_backward_pass
        loss, self.statistics, self.gathered, self.key = run(
            self.values, self.statistics, self.gathered, self.key, self.joined(batch)
        )
        return parallel.local(loss)

    def update(self) -> Array:
        self.steps += 1
        self.values, self.slots, number = self.optimizer_step(
            self.values, self.gathered, self.slots, self.steps
        )
        self.zero_grad()
        return parallel.local(number)


class Workloads:
    """The result of the last call is kept, so that a device can wait for it. A GPU completes
    calls in their order; on a CPU, where they need not, each product waits for itself."""

    def __init__(self, config: Config) -> None:
        self.waits = config.device == "cpu"
        self.dtype = DTYPES.get(config.precision, param_dtype())

    def matmul(self, size: int) -> Any:
        a_key, b_key = jax.random.split(jax.random.key(0))
        a = jax.random.normal(a_key, (size, size)).astype(self.dtype)
        b = jax.random.normal(b_key, (size, size)).astype(self.dtype)
        product = [b]
        multiply = jax.jit(lambda a, b: contract("ij,jk->ik", a, b))

        def call() -> Array:
            product[0] = multiply(a, b)
            if self.waits:
                product[0].block_until_ready()
            return product[0]

        return call

    def copy(self, size_bytes: int) -> Any:
        source = jnp.zeros(size_bytes, jnp.int8)
        # Each copy reuses the memory of the previous copy, which is donated.
        target = [jnp.ones(size_bytes, jnp.int8)]
        assign = jax.jit(lambda _target, source: source, donate_argnums=0, keep_unused=True)

        def call() -> None:
            target[0] = assign(target[0], source)

        return call


def tensors(batches: Iterator[Batch], _config: Config) -> Iterator[Batch]:
    """See Backend; integers become 32-bit."""
    return converted(batches, _as_tensor)


def _as_tensor(array: Any) -> Array:
    if isinstance(array, Array):
        return array.astype(jnp.int32) if array.dtype == jnp.int64 else array
    view = np.from_dlpack(array)
    dtype = np.int32 if view.dtype == np.int64 else view.dtype
    # NumPy copies at once. JAX would copy after all pending steps, when the input may have
    # overwritten its memory.
    return jnp.asarray(view.astype(dtype))
