"""Traces a few steps of a built-in model in TensorFlow, to compare it with other frameworks."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import Tensor, Variable

from perfkit.training.options import Options
from perfkit.training.tensorflow.batches import as_tensor
from perfkit.training.tensorflow.layers import Conv2D, Dropout, Embedding, Linear
from perfkit.training.tensorflow.models import inputs_of, loss_of, new_model
from perfkit.training.tensorflow.precision import PRODUCTS
from perfkit.training.tensorflow.train import new_optimizer, open_device
from perfkit.training.trace import PRECISIONS, Arrays, Write, fixed_batch, raw_file, trace_steps

PYTORCHS_AXES = {Conv2D: (3, 2, 0, 1), Linear: (1, 0), Embedding: (0, 1)}
"""Layer -> the axes of its weight in PyTorch's order."""


class Parameter(NamedTuple):
    """A trainable variable, and its axes in PyTorch's order."""

    variable: Variable
    axes: tuple[int, ...]

    def in_pytorch(self, tensor: Tensor) -> np.ndarray:
        """Return a copy of the values of the variable, or its gradient, with PyTorch's axes."""
        return np.array(tensor.numpy().transpose(self.axes), order="C")

    def assign(self, array: np.ndarray) -> None:
        """Set the values to those of an array with PyTorch's axes."""
        own = array.transpose(np.argsort(self.axes))
        self.variable.assign(own.astype(self.variable.dtype.as_numpy_dtype))


def named_parameters(module: Any, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
    """Yield the parameters of a model by their names in PyTorch."""
    for name, child in tf.train.TrackableView.children(module).items():
        if not isinstance(child, Variable):
            yield from named_parameters(child, f"{prefix}{name}.")
        elif child.trainable:
            axes = (0,) if child.shape.rank == 1 else PYTORCHS_AXES[type(module)]
            yield f"{prefix}{name}", Parameter(child, axes)


def load(model: tf.Module, weights: Mapping[str, np.ndarray]) -> None:
    """Give a model the weights of PyTorch's, by name."""
    parameters = dict(named_parameters(model))
    assert parameters.keys() == weights.keys()
    for name, parameter in parameters.items():
        parameter.assign(weights[name])


class TracedTraining:
    """See perfkit.training.trace.Traced."""

    def __init__(self, options: Options, dtype: type) -> None:
        self.options = options
        self.batch = tuple(as_tensor(array) for array in fixed_batch(options, dtype))
        self.model = new_model(options)
        disable_dropout(self.model)
        self.parameters = dict(named_parameters(self.model))
        variables = [each.variable for each in self.parameters.values()]
        optimizer = new_optimizer(options, variables)

        def compute() -> tuple[Tensor, list[Tensor]]:
            with tf.GradientTape() as tape:
                loss = loss_of(options, self.model, self.batch)
            return loss, tape.gradient(loss, variables)

        is_compiled = options.execution == "static"
        self.compute = tf.function(compute, jit_compile=is_compiled)
        self.apply = tf.function(optimizer.apply, jit_compile=is_compiled)
        self.computed: Sequence[Tensor] = ()

    def weights(self) -> Arrays:
        named = self.parameters.items()
        return {name: each.in_pytorch(each.variable) for name, each in named}

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        load(self.model, weights)

    def backward(self) -> float:
        loss, gradients = self.compute()
        self.computed = [tf.convert_to_tensor(each) for each in gradients]
        return float(loss)

    def gradients(self) -> Arrays:
        pairs = zip(self.parameters.items(), self.computed, strict=True)
        return {name: each.in_pytorch(gradient) for (name, each), gradient in pairs}

    def update(self) -> None:
        self.apply(self.computed)

    def multiply_adds(self) -> int:
        forward = tf.function(self.model)
        traced = forward.get_concrete_function(*inputs_of(self.options, self.batch))
        count = 0
        for product in traced.graph.get_operations():
            if product.type in PRODUCTS:
                a, b = (factor.shape for factor in product.inputs)
                summed = prod(b[:-1]) if product.type == "Conv2D" else a[-1]
                count += product.outputs[0].shape.num_elements() * summed
        return count


def disable_dropout(model: tf.Module) -> None:
    for layer in model.submodules:
        if isinstance(layer, Dropout):
            layer.rate = 0.0


def write_trace(options: Options, folder: Path, write: Write) -> None:
    """Trace the training; `folder` is shared by all frameworks."""
    open_device(options)
    for precision, dtype in PRECISIONS.items():
        if precision == "fp64":
            tf.keras.mixed_precision.set_global_policy("float64")
        trace_steps(TracedTraining(options, dtype), precision, folder, write)


if __name__ == "__main__":
    raw = raw_file()
    write_trace(Options.parse("tensorflow"), raw.path.parent.parent, raw.write)
