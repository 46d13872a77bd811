"""The TensorFlow backend: tf.function on a CPU, in one process; `execution=static` compiles it
with XLA.

Several processes are not supported: tf.distribute exchanges gradients inside the graph of a
step, not between `backward` and `update`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from itertools import chain
from math import prod
from threading import Lock
from typing import Any

import numpy as np
import tensorflow as tf

from perfkit.core.config import Config
from perfkit.core.frameworks import base
from perfkit.core.frameworks.base import CpuDevice, Device
from perfkit.core.frameworks.functional import layers
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.layers import NORM_EPSILON
from perfkit.core.frameworks.functional.trainer import EPSILON, Values
from perfkit.core.models import MOMENTUM


class Forward(layers.Forward):
    """Without `drops`, dropout is disabled."""

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

    def __init__(self, *values: Any, drops: bool = True) -> None:
        super().__init__(*values)
        self.drops = drops

    def parameter(self, name: str) -> tf.Tensor:
        return tf.convert_to_tensor(self.parameters[name])

    def convolve(self, x: tf.Tensor, kernel: tf.Tensor, size: int, stride: int) -> tf.Tensor:
        padding = "SAME"
        if stride > 1:
            # At stride 2, SAME padding is asymmetric.
            x, padding = _padded(x, size // 2, 0), "VALID"
        return tf.nn.conv2d(x, kernel, stride, padding)

    def add_bias(self, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return tf.nn.bias_add(x, tf.cast(bias, x.dtype))

    @staticmethod
    def gelu(x: tf.Tensor, approximate: bool) -> tf.Tensor:
        """Like tf.nn.gelu, which however rounds its constants to float32 for any dtype."""
        if approximate:
            return 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * tf.math.erfc(-math.sqrt(0.5) * x)

    def batch_norm(self, name: str, x: tf.Tensor, channels: int) -> tf.Tensor:
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
    """Pad height and width by `width` pixels on each side."""
    if not width:
        return images
    return tf.pad(
        images, [[0, 0], [width, width], [width, width], [0, 0]], constant_values=value
    )


DTYPES = {"amp": tf.float16, "bf16": tf.bfloat16}
PRODUCTS = ("Conv2D", "MatMul", "BatchMatMulV2")
"""TensorFlow's matrix-product operators in a forward pass; those of a backward pass start with
the same names."""
POOLS = ("tf_Compute", "tf_XLAEigen")
"""Names of the inter-op threads and of XLA's; the intra-op threads have no name."""
COPIED_ROWS = 256

Batch = tuple[tf.Tensor, ...]
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

    variables = ("TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS", "XLA_FLAGS")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.wide = Forward.wide
        self.dtype = DTYPES.get(config.precision, self.wide)
        self.slots = self.new_slots()
        self.steps = self.skipped = 0
        self.scale = base.INITIAL_LOSS_SCALE if self.dtype == tf.float16 else None
        self.trace(drops=True)

    @staticmethod
    def hold(array: np.ndarray) -> tf.Variable:
        return tf.Variable(array, dtype=Forward.wide)

    def trace(self, *, drops: bool) -> None:
        """Recreate the functions; each is traced at its first call."""
        self.drops = drops
        jit = self.config.execution == "static"
        self.forward_pass = tf.function(self._forward, jit_compile=jit)
        self.backward_pass = tf.function(self._backward, jit_compile=jit)
        self.addition = tf.function(
            lambda a, b: {name: a[name] + b[name] for name in a}, jit_compile=jit
        )
        self.optimizer_step = tf.function(self._update, jit_compile=jit)

    def _forward(self, batch: Batch) -> tuple[Any, tf.Tensor, Values]:
        """Return logits, loss and updated statistics."""
        values = self.values, self.statistics
        run = Forward(self.dtype, self.layout, *values, drops=self.drops)
        logits = self.network(run, *batch[: self.network.inputs])
        loss = self.network.loss(run, logits, *batch[self.network.inputs :])
        return logits, loss, run.statistics

    def _backward(self, batch: Batch, scale: tf.Tensor) -> tuple[tf.Tensor, Values]:
        with tf.GradientTape() as tape:
            _logits, loss, statistics = self._forward(batch)
            loss = loss / self.accumulate
            scaled = loss * scale
        # The gradient of an embedding lookup is sparse.
        gradients = {
            name: tf.convert_to_tensor(gradient)
            for name, gradient in tape.gradient(scaled, self.values).items()
        }
        for name, value in statistics.items():
            self.statistics[name].assign(value)
        return loss, gradients

    def _update(self, gradients: Values, steps: tf.Tensor, scale: tf.Tensor) -> None:
        """Apply TensorFlow's fused operators. TensorFlow's Adam adds EPSILON before correcting
        the bias of the second moment, Paddle's after it."""
        settings = self.optimizer_settings
        if self.scale:
            gradients = {name: gradient / scale for name, gradient in gradients.items()}
        if settings.clip_norm:
            clipped, _ = tf.clip_by_global_norm([*gradients.values()], settings.clip_norm)
            gradients = dict(zip(gradients, clipped, strict=True))
        rate, decay = tf.cast(settings.learning_rate, self.wide), settings.weight_decay
        beta1, beta2 = (tf.cast(beta, self.wide) for beta in settings.betas)
        for name, value in self.values.items():
            slots = [slot.handle for slot in self.slots[name]]
            if settings.optimizer == "momentum":
                tf.raw_ops.ResourceApplyMomentum(
                    var=value.handle,
                    accum=slots[0],
                    lr=rate,
                    grad=gradients[name] + decay * value,
                    momentum=tf.cast(MOMENTUM, self.wide),
                )
                continue
            if len(value.shape) > 1:
                value.assign_sub(rate * decay * value)
            tf.raw_ops.ResourceApplyAdam(
                var=value.handle,
                m=slots[0],
                v=slots[1],
                beta1_power=beta1**steps,
                beta2_power=beta2**steps,
                lr=rate,
                beta1=beta1,
                beta2=beta2,
                epsilon=EPSILON * tf.sqrt(1 - beta2**steps),
                grad=gradients[name],
            )

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> tf.Tensor:
        loss, gradients = self.backward_pass(batch, self._scale())
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
            self.optimizer_step(self.gathered, steps, self._scale())
        self.zero_grad()

    def _overflowed(self) -> bool:
        gradients = (self.gathered or {}).values()
        return not all(bool(tf.reduce_all(tf.math.is_finite(g))) for g in gradients)

    def _scale(self) -> tf.Tensor:
        return tf.constant(self.scale or 1.0, self.wide)

    def predict(self, batch: Batch) -> tuple[tf.Tensor, Any]:
        logits, loss, _statistics = self.forward_pass(batch)
        return loss, tf.nest.map_structure(np.asarray, logits)

    @property
    def loss_scale(self) -> float | None:
        return self.scale

    @property
    def skipped_steps(self) -> int:
        return self.skipped

    def named_gradients(self) -> Iterator[tuple[str, tf.Tensor]]:
        scale = self._scale()
        return ((name, gradient / scale) for name, gradient in super().named_gradients())

    def assign(self, name: str, array: np.ndarray) -> None:
        self.values[name].assign(array.astype(self.wide))

    def disable_dropout(self) -> None:
        self.trace(drops=False)

    def multiply_adds(self, batch: Batch) -> int:
        count = 0
        for node in self.forward_pass.get_concrete_function(batch).graph.get_operations():
            if node.type in PRODUCTS:
                a, b = (factor.shape for factor in node.inputs)
                summed = prod(b[:-1]) if node.type == "Conv2D" else a[-1]
                count += node.outputs[0].shape.num_elements() * summed
        return count

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See base.Trainer: factors of the products of forward and backward pass, in the graph
        or, since XLA may change them, in the compiled program."""
        arguments = batch, self._scale()
        if self.config.execution == "static":
            ir = self.backward_pass.experimental_get_compiler_ir(*arguments)
            return functional.factor_dtypes(ir(stage="optimized_hlo"))
        nodes = self.backward_pass.get_concrete_function(*arguments).graph.get_operations()
        products = (node for node in nodes if node.type.startswith(PRODUCTS))
        return dict(Counter(node.get_attr("T").name for node in products))

    def threads(self) -> dict[str, int]:
        return base.named_threads(*POOLS)


class Workloads:
    def __init__(self, config: Config) -> None:
        self.dtype = DTYPES.get(config.precision, Forward.wide)

    def matmul(self, size: int) -> Any:
        a, b = (tf.cast(tf.random.normal((size, size)), self.dtype) for _ in range(2))
        return lambda: tf.matmul(a, b)

    def copy(self, size_bytes: int) -> Any:
        # A variable assigned as a whole would share the source's memory.
        rows = tf.range(COPIED_ROWS)
        source = tf.zeros((COPIED_ROWS, size_bytes // COPIED_ROWS), tf.int8)
        target = tf.Variable(tf.ones_like(source))
        return lambda: target.scatter_update(tf.IndexedSlices(source, rows))


def tensors(batches: Iterator[tuple[Any, ...]], _config: Config) -> Iterator[Batch]:
    """See Backend; copies arrays that are not yet TensorFlow's."""
    return base.converted(batches, _as_tensor)


def _as_tensor(array: Any) -> tf.Tensor:
    return array if tf.is_tensor(array) else tf.constant(np.from_dlpack(array))


def data_loader(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[Batch]:
    """See Backend: tf.data with `processes` threads, each with its own copy of the data set's
    cache."""
    first = next(indices)
    dtypes = [array.dtype for array in samples[first[0]]]
    readers = [(copy(samples), Lock()) for _ in range(processes)]
    requested: dict[int, Sequence[Any]] = {}

    def numbers() -> Iterator[int]:
        for number, rows in enumerate(chain([first], indices)):
            requested[number] = rows
            yield number

    def read(number: np.ndarray) -> list[np.ndarray]:
        reader, lock = readers[int(number) % processes]
        with lock:
            rows = [reader[row] for row in requested.pop(int(number))]
        return [np.stack(arrays) for arrays in zip(*rows, strict=True)]

    numbered = tf.data.Dataset.from_generator(
        numbers, output_signature=tf.TensorSpec((), "int64")
    )
    return iter(
        numbered.map(
            lambda number: tf.numpy_function(read, [number], dtypes),
            num_parallel_calls=processes,
            deterministic=True,
        ).prefetch(2)
    )
