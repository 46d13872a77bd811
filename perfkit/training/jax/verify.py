"""Traces a few steps of a built-in model in JAX, to compare it with other frameworks."""

from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from perfkit.training.jax.batches import on_device
from perfkit.training.jax.models import loss_of
from perfkit.training.jax.optimizer import new_slots
from perfkit.training.jax.parallel import placed
from perfkit.training.jax.programs import backward_program, update_program
from perfkit.training.jax.train import new_statistics, new_weights, open_device
from perfkit.training.options import Options
from perfkit.training.trace import PRECISIONS, Arrays, Write, fixed_batch, raw_file, trace_steps

TABLES = (
    *("word_embeddings", "position_embeddings", "token_type_embeddings"),
    *("wte", "wpe", "embed_tokens", "lm_head"),
)
"""Modules whose weight has a row for each word, position or class, as in PyTorch."""


class TracedTraining:
    """See perfkit.training.trace.Traced."""

    def __init__(self, options: Options, dtype: type) -> None:
        self.options = options
        self.batch = tuple(on_device(array) for array in fixed_batch(options, dtype))
        self.values = new_weights(options)
        self.statistics = new_statistics(options)
        self.slots = new_slots(options.optimizer_settings, self.values)
        self.own_gradients: Any = None
        self.steps = 0
        self.run_backward = backward_program(options)
        self.take_step = update_program(options)

    def weights(self) -> Arrays:
        return in_pytorchs_axes(self.values)

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        for name in self.values:
            self.values[name] = placed(from_pytorchs_axes(name, weights[name]))

    def backward(self) -> float:
        # Without a random key, there is no dropout.
        loss, self.statistics, self.own_gradients, _rng = self.run_backward(
            self.values, self.statistics, None, None, self.batch
        )
        return float(loss)

    def gradients(self) -> Arrays:
        return in_pytorchs_axes(self.own_gradients)

    def update(self) -> None:
        self.steps += 1
        self.values, self.slots, _number = self.take_step(
            self.values, self.own_gradients, self.slots, self.steps
        )

    def multiply_adds(self) -> int:
        forward = jax.make_jaxpr(partial(loss_of, self.options))
        traced = forward(self.values, self.statistics, None, self.batch)
        return multiply_adds_in(traced.jaxpr)


def in_pytorchs_axes(arrays: Mapping[str, Array]) -> Arrays:
    """Return copies with the axes of PyTorch's parameters."""
    copies = {}
    for name, array in arrays.items():
        values = np.asarray(array)
        if values.ndim == 4:
            values = values.transpose(3, 2, 0, 1)
        copies[name] = np.array(values.T if is_dense(name, values) else values, order="C")
    return copies


def from_pytorchs_axes(name: str, array: np.ndarray) -> np.ndarray:
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    return array.T if is_dense(name, array) else array


def is_dense(name: str, array: np.ndarray) -> bool:
    """Return whether this is a dense layer's weight, inputs x outputs in JAX and outputs x
    inputs in PyTorch."""
    module = name.removesuffix(".weight").rpartition(".")[2]
    return array.ndim == 2 and module not in TABLES


def multiply_adds_in(jaxpr: Any) -> int:
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
            kernel_axes = equation.params["dimension_numbers"].rhs_spec
            outputs = kernel.shape[kernel_axes[0]]
            count += equation.outvars[0].aval.size * kernel.size // outputs
        # A loop over slices runs its body `length` times.
        turns = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                count += turns * multiply_adds_in(inner)
    return count


def write_trace(options: Options, folder: Path, write: Write) -> None:
    """Trace the training; `folder` is shared by all frameworks."""
    open_device(options)
    for precision, dtype in PRECISIONS.items():
        if precision == "fp64":
            jax.config.update("jax_enable_x64", True)
        trace_steps(TracedTraining(options, dtype), precision, folder, write)


if __name__ == "__main__":
    raw = raw_file()
    write_trace(Options.parse("jax"), raw.path.parent.parent, raw.write)
