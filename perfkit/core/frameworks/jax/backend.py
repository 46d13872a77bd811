"""The JAX backend: plain JAX on a CPU, in one process.

JAX returns before a computation is complete, also on a CPU, so CpuDevice's clock would only
measure the dispatch. All timed functions here therefore wait for their own results. Disabling
`jax_cpu_enable_async_dispatch` is not enough: a call with an array that is still being copied,
as a batch may be, returns immediately nevertheless.
"""

from collections.abc import Iterator
from functools import partial, reduce
from itertools import product as product_of
from math import prod
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from perfkit.core.config import Config
from perfkit.core.frameworks import base
from perfkit.core.frameworks.base import CpuDevice, Device
from perfkit.core.frameworks.functional import layers
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.trainer import EPSILON, Values
from perfkit.core.models import MOMENTUM


def param_dtype() -> Any:
    """Return the dtype of parameters, norms, losses and accumulation in products: float32, or
    float64 if enabled in JAX."""
    return jnp.result_type(float)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def contract(equation: str, a: Array, b: Array) -> Array:
    """Return the einsum of two factors of the same dtype, accumulated in float32. Its gradients
    are computed likewise; JAX's own rule would multiply them in float32 for any dtype."""
    product = jnp.einsum(equation, a, b, preferred_element_type=param_dtype())
    return product.astype(a.dtype)


def _contract_forward(equation: str, a: Array, b: Array) -> tuple[Array, Any]:
    return contract(equation, a, b), (a, b)


def _contract_backward(equation: str, factors: Any, gradient: Array) -> tuple[Array, Array]:
    a, b = factors
    axes, result = equation.split("->")
    a_axes, b_axes = axes.split(",")
    return (
        contract(f"{result},{b_axes}->{a_axes}", gradient, b),
        contract(f"{a_axes},{result}->{b_axes}", a, gradient),
    )


contract.defvjp(_contract_forward, _contract_backward)


class Forward(layers.Forward):
    """Without a `key`, dropout is disabled.

    Attention is composed of `contract`: JAX has no fused kernel on a CPU, and the gradients of
    its own products are float32 for any dtype of the factors.
    """

    concat = staticmethod(jnp.concatenate)
    gelu = staticmethod(jax.nn.gelu)
    maximum = staticmethod(jnp.maximum)
    mean = staticmethod(jnp.mean)
    relu = staticmethod(jax.nn.relu)
    reshape = staticmethod(jnp.reshape)
    rsqrt = staticmethod(lax.rsqrt)
    softmax = staticmethod(jax.nn.softmax)
    split = staticmethod(jnp.split)
    sum = staticmethod(jnp.sum)
    tanh = staticmethod(jnp.tanh)
    transpose = staticmethod(jnp.transpose)

    # Follows JAX's jax_enable_x64.
    wide = property(lambda _self: param_dtype())

    def __init__(self, *values: Any, key: Array | None = None) -> None:
        super().__init__(*values)
        self.key = key

    @staticmethod
    def cast(x: Any, dtype: Any) -> Array:
        return jnp.asarray(x).astype(dtype)

    def convolve(self, x: Array, kernel: Array, size: int, stride: int) -> Array:
        if size == 1 and self.layout == "NHWC":
            # XLA's matrix product on a CPU is faster than its convolution.
            return contract("nhwi,io->nhwo", x[:, ::stride, ::stride], kernel[0, 0])
        return lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            [(size // 2, size // 2)] * 2,
            dimension_numbers=(self.layout, "HWIO", self.layout),
        )

    def product(self, a: Array, b: Array, *, transposed: bool = False) -> Array:
        # Rows are not merged to one matrix: XLA would compute the weights' gradient in float32.
        batch = "abcd"[: a.ndim - 2]
        shared = batch if b.ndim > 2 else ""
        return contract(f"{batch}xi,{shared}{'yi' if transposed else 'iy'}->{batch}xy", a, b)

    def rows(self, table: Array, indices: Array) -> Array:
        return table[indices]

    def rows_of_each(self, x: Array, positions: Array) -> Array:
        return jnp.take_along_axis(x, positions[:, :, None], 1)

    def cross_entropies(self, logits: Array, labels: Array) -> Array:
        logits = logits.astype(self.wide)
        labelled = jnp.take_along_axis(logits, labels.reshape(-1, 1), 1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - labelled

    def dropout(self, x: Array, rate: float) -> Array:
        if self.key is None:
            return x
        self.key, key = jax.random.split(self.key)
        return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)

    def max_pool(self, x: Array, size: int, stride: int, padding: int = 0) -> Array:
        # The CPU gradient of lax.reduce_window is many times slower.
        margins = [(padding, padding) if axis in self.spatial else (0, 0) for axis in range(4)]
        x = jnp.pad(x, margins, constant_values=-jnp.inf)

        def parts() -> Iterator[Array]:
            for offsets in product_of(range(size), repeat=2):
                window = [slice(None)] * 4
                for axis, begin in zip(self.spatial, offsets, strict=True):
                    window[axis] = slice(begin, begin + x.shape[axis] - size + 1, stride)
                yield x[tuple(window)]

        return reduce(lambda largest, part: jnp.where(part > largest, part, largest), parts())


# Must be set before the first computation.
jax.config.update("jax_platforms", "cpu")

DTYPES = {"bf16": jnp.bfloat16}
POOL = "tf_XLAEigen"
"""Name of XLA's worker threads."""

Batch = tuple[Array, ...]
largest_of_ranks = functional.largest_of_ranks


def open_device(_config: Config) -> Device:
    return CpuDevice()


def enable_float64() -> None:
    jax.config.update("jax_enable_x64", True)


class Trainer(functional.Trainer):
    """Model, loss and optimizer as two compiled programs; `slots` holds the optimizer's state
    tensors of each parameter."""

    variables = ("NPROC", "XLA_FLAGS")

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

    def _forward(
        self, values: Values, statistics: Values, key: Array | None, batch: Batch
    ) -> tuple[Any, Array, Values]:
        """Return logits, loss and updated statistics."""
        run = Forward(self.dtype, self.layout, values, statistics, key=key)
        logits = self.network(run, *batch[: self.network.inputs])
        loss = self.network.loss(run, logits, *batch[self.network.inputs :])
        return logits, loss, run.statistics

    def _backward(
        self,
        values: Values,
        statistics: Values,
        gathered: Values | None,
        key: Array | None,
        batch: Batch,
    ) -> tuple[Array, Values, Values, Array | None]:
        next_key, dropout_key = (None, None) if key is None else jax.random.split(key)

        def scaled_loss(values: Values) -> tuple[Array, Values]:
            _logits, loss, updated = self._forward(values, statistics, dropout_key, batch)
            return loss / self.accumulate, updated

        (loss, updated), gradients = jax.value_and_grad(scaled_loss, has_aux=True)(values)
        if gathered is not None:
            gradients = jax.tree.map(jnp.add, gathered, gradients)
        return loss, updated, gradients, next_key

    def _update(
        self, values: Values, gradients: Values, slots: Values, steps: Any
    ) -> tuple[Values, Values]:
        """Return parameters and slots after step `steps` (from 1), by the formulas of Paddle's
        optimizers; AdamW: Loshchilov and Hutter, 2017."""
        settings = self.optimizer_settings
        rate, (beta1, beta2) = settings.learning_rate, settings.betas
        if settings.clip_norm:
            norm = jnp.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
            scale = settings.clip_norm / jnp.maximum(norm, settings.clip_norm)
            gradients = {name: gradient * scale for name, gradient in gradients.items()}
        updated: Values = {}
        new_slots: Values = {}
        for name, value in values.items():
            gradient = gradients[name]
            if settings.optimizer == "momentum":
                velocity = MOMENTUM * slots[name][0] + gradient + settings.weight_decay * value
                updated[name], new_slots[name] = value - rate * velocity, (velocity,)
                continue
            first = beta1 * slots[name][0] + (1 - beta1) * gradient
            second = beta2 * slots[name][1] + (1 - beta2) * gradient**2
            mean, variance = first / (1 - beta1**steps), second / (1 - beta2**steps)
            decayed = value * (1 - rate * (settings.weight_decay if value.ndim > 1 else 0.0))
            updated[name] = decayed - rate * mean / (jnp.sqrt(variance) + EPSILON)
            new_slots[name] = first, second
        return updated, new_slots

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

    def predict(self, batch: Batch) -> tuple[Array, Any]:
        forward = jax.jit(self._forward)
        logits, loss, _ = forward(self.values, self.statistics, self.key, batch)
        return loss, logits

    def assign(self, name: str, array: np.ndarray) -> None:
        self.values[name] = self.hold(array)

    def disable_dropout(self) -> None:
        self.key = None

    def multiply_adds(self, batch: Batch) -> int:
        traced = jax.make_jaxpr(self._forward)(self.values, self.statistics, self.key, batch)
        return multiply_adds(traced.jaxpr)

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See base.Trainer: factors of the compiled products of forward and backward pass. XLA
        multiplies bfloat16 in float32 where it has no other kernel."""
        compiled = self.backward_pass.lower(
            self.values, self.statistics, self.gathered, self.key, batch
        ).compile()
        return functional.factor_dtypes(compiled.as_text())

    def threads(self) -> dict[str, int]:
        return base.named_threads(POOL)


def multiply_adds(jaxpr: Any) -> int:
    """Count the multiply-adds of products and convolutions in a jaxpr and its sub-jaxprs."""
    count = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            factor = equation.invars[0].aval.shape
            summed = prod(factor[axis] for axis in contracted)
            count += equation.outvars[0].aval.size * summed
        elif equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval
            outputs = kernel.shape[equation.params["dimension_numbers"].rhs_spec[0]]
            count += equation.outvars[0].aval.size * kernel.size // outputs
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            count += multiply_adds(inner) if hasattr(inner, "eqns") else 0
    return count


class Workloads:
    def __init__(self, config: Config) -> None:
        self.dtype = DTYPES.get(config.precision, param_dtype())

    def matmul(self, size: int) -> Any:
        a, b = (
            jax.random.normal(key, (size, size)).astype(self.dtype)
            for key in jax.random.split(jax.random.key(0))
        )
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


def tensors(batches: Iterator[tuple[Any, ...]], _config: Config) -> Iterator[Batch]:
    """See Backend. JAX shares memory that is aligned to 64 bytes and copies other memory;
    integers become 32-bit."""
    return base.converted(batches, _as_tensor)


def _as_tensor(array: Any) -> Array:
    view = np.from_dlpack(array)
    view = view.astype(np.int32) if view.dtype == np.int64 else view
    return jnp.asarray(view).block_until_ready()
