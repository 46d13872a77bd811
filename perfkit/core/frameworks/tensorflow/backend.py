"""The TensorFlow backend: tf.function on a CPU, in one process; `execution=static` compiles it
with XLA.

Several processes are not supported: tf.distribute exchanges gradients inside the graph of a
step, not between `backward` and `update`.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import Tensor, Variable

from perfkit.core.config import Config
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.trainer import EPSILON, Values
from perfkit.core.frameworks.interface import converted
from perfkit.core.frameworks.tensorflow import inspector
from perfkit.core.frameworks.tensorflow.layers import Forward
from perfkit.core.frameworks.trainer import INITIAL_LOSS_SCALE
from perfkit.timing.devices import CpuDevice, Device
from perfkit.training.models import MOMENTUM

DTYPES = {"amp": tf.float16, "bf16": tf.bfloat16}
COPIED_ROWS = 256

Batch = tuple[Tensor, ...]
Inspector = inspector.Inspector
largest_of_ranks = functional.largest_of_ranks


def open_device(config: Config) -> Device:
    tf.config.set_visible_devices([], "GPU")
    tf.random.set_seed(config.seed)
    return CpuDevice()


def enable_float64() -> None:
    Forward.wide = "float64"


class Trainer(functional.Trainer):
    """Model, loss and optimizer as two tf.functions; `slots` holds the optimizer's state per
    parameter."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.wide = Forward.wide
        self.dtype = DTYPES.get(config.precision, self.wide)
        self.slots = self.new_slots()
        self.steps = self.skipped = 0
        self.scale = INITIAL_LOSS_SCALE if self.dtype == tf.float16 else None
        self.trace(drops=True)

    @staticmethod
    def hold(array: np.ndarray) -> Variable:
        return Variable(array, dtype=Forward.wide)

    def trace(self, *, drops: bool) -> None:
        """Recreate the functions; each is traced at its first call."""
        self.drops = drops
        jit = self.config.execution == "static"
        self.forward_pass = tf.function(self._forward, jit_compile=jit)
        self.backward_pass = tf.function(self._backward, jit_compile=jit)
        self.addition = tf.function(_sums, jit_compile=jit)
        self.optimizer_step = tf.function(self._update, jit_compile=jit)

    def _forward(self, batch: Batch) -> tuple[Any, Tensor, Values]:
        """Return logits, loss and updated statistics."""
        values = self.values, self.statistics
        run = Forward(self.dtype, self.layout, *values, drops=self.drops)
        logits, loss = self.network.logits_and_loss(run, batch)
        return logits, loss, run.statistics

    def _backward(self, batch: Batch, scale: Tensor) -> tuple[Tensor, Values]:
        with tf.GradientTape() as tape:
            _logits, loss, statistics = self._forward(batch)
            loss = loss / self.accumulate
            scaled = loss * scale
        gradients = {}
        for name, gradient in tape.gradient(scaled, self.values).items():
            # The gradient of an embedding lookup is sparse.
            gradients[name] = tf.convert_to_tensor(gradient)
        for name, value in statistics.items():
            self.statistics[name].assign(value)
        return loss, gradients

    def _update(self, gradients: Values, steps: Tensor, scale: Tensor) -> None:
        """Apply TensorFlow's fused operators."""
        if self.scale:
            gradients = {name: gradient / scale for name, gradient in gradients.items()}
        if self.optimizer_settings.optimizer == "momentum":
            self._apply_momentum(gradients)
        else:
            self._apply_adamw(gradients, steps)

    def _apply_momentum(self, gradients: Values) -> None:
        decay = self.optimizer_settings.weight_decay
        rate = tf.constant(self.optimizer_settings.learning_rate, self.wide)
        momentum = tf.constant(MOMENTUM, self.wide)
        for name, value in self.values.items():
            (velocity,) = self.slots[name]
            tf.raw_ops.ResourceApplyMomentum(
                var=value.handle,
                accum=velocity.handle,
                lr=rate,
                grad=gradients[name] + decay * value,
                momentum=momentum,
            )

    def _apply_adamw(self, gradients: Values, steps: Tensor) -> None:
        """TensorFlow's Adam adds EPSILON before correcting the bias of the second moment,
        Paddle's after it. Factors are constants, because tf.cast rounds a number of Python to
        float32 first, and 1 - 0.999 is then wrong by 1e-5."""
        decay = self.optimizer_settings.weight_decay
        rate = tf.constant(self.optimizer_settings.learning_rate, self.wide)
        beta1, beta2 = (tf.constant(beta, self.wide) for beta in self.optimizer_settings.betas)
        beta1_power, beta2_power = beta1**steps, beta2**steps
        epsilon = EPSILON * tf.sqrt(1 - beta2_power)
        for name, value in self.values.items():
            first, second = self.slots[name]
            if len(value.shape) > 1:
                value.assign_sub(rate * decay * value)
            tf.raw_ops.ResourceApplyAdam(
                var=value.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=rate,
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
                grad=gradients[name],
            )

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> Tensor:
        loss, gradients = self.backward_pass(batch, self.scale_tensor())
        if self.gathered is not None:
            # A separate function: tracing `_backward` twice would draw each dropout twice.
            gradients = self.addition(self.gathered, gradients)
        self.gathered = gradients
        return loss

    def update(self) -> None:
        if self.scale and self._overflowed():
            self.skipped += 1
            self.scale /= 2
        else:
            self.steps += 1
            steps = tf.constant(self.steps, self.wide)
            self.optimizer_step(self.gathered, steps, self.scale_tensor())
        self.zero_grad()

    def _overflowed(self) -> bool:
        for gradient in (self.gathered or {}).values():
            if not tf.reduce_all(tf.math.is_finite(gradient)):
                return True
        return False

    def scale_tensor(self) -> Tensor:
        """Return the loss scale; 1 without loss scaling."""
        return tf.constant(self.scale or 1.0, self.wide)

    @property
    def loss_scale(self) -> float | None:
        return self.scale

    @property
    def skipped_steps(self) -> int:
        return self.skipped


def _sums(a: Values, b: Values) -> Values:
    return {name: a[name] + b[name] for name in a}


class Workloads:
    def __init__(self, config: Config) -> None:
        self.dtype = DTYPES.get(config.precision, Forward.wide)

    def matmul(self, size: int) -> Any:
        a = tf.cast(tf.random.normal((size, size)), self.dtype)
        b = tf.cast(tf.random.normal((size, size)), self.dtype)
        return lambda: tf.matmul(a, b)

    def copy(self, size_bytes: int) -> Any:
        # A variable assigned as a whole would share the source's memory.
        rows = tf.range(COPIED_ROWS)
        source = tf.zeros((COPIED_ROWS, size_bytes // COPIED_ROWS), tf.int8)
        target = Variable(tf.ones_like(source))
        return lambda: target.scatter_update(tf.IndexedSlices(source, rows))


def tensors(batches: Iterator[Batch], _config: Config) -> Iterator[Batch]:
    """See Backend; copies arrays that are not yet TensorFlow's."""
    return converted(batches, _as_tensor)


def _as_tensor(array: Any) -> Tensor:
    return array if tf.is_tensor(array) else tf.constant(np.from_dlpack(array))


def data_loader(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[Batch]:
    """See Backend: tf.data with `processes` threads, each with its own copy of the data set's
    cache."""
    first = next(indices)
    dtypes = [array.dtype for array in samples[first[0]]]
    reader = Reader(samples, chain([first], indices), processes)
    numbers = tf.data.Dataset.from_generator(
        reader.numbers, output_signature=tf.TensorSpec((), "int64")
    )
    batches = numbers.map(
        lambda number: tf.numpy_function(reader.batch, [number], dtypes),
        num_parallel_calls=processes,
        deterministic=True,
    )
    return iter(batches.prefetch(2))


class Reader:
    """Reads the batches of these `indices` by number, in any of several threads."""

    def __init__(self, samples: Any, indices: Iterable[Sequence[Any]], threads: int) -> None:
        self.indices = indices
        self.requested: dict[int, Sequence[Any]] = {}
        self.copies = [(copy(samples), Lock()) for _ in range(threads)]

    def numbers(self) -> Iterator[int]:
        """Yield the number of each batch, from 0."""
        for number, rows in enumerate(self.indices):
            self.requested[number] = rows
            yield number

    def batch(self, number: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of a batch whose number was yielded before."""
        rows = self.requested.pop(int(number))
        samples, lock = self.copies[int(number) % len(self.copies)]
        with lock:
            read = [samples[row] for row in rows]
        return [np.stack(arrays) for arrays in zip(*read, strict=True)]
