"""Reads a JAX trainer's results, work and effective settings."""

from math import prod
from typing import Any

import jax
import numpy as np
from jax import Array

from perfkit.core.frameworks.effective import named_threads
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.xla import factor_dtypes
from perfkit.core.frameworks.trainer import Batch

POOL = "tf_XLAEigen"
"""Name of XLA's worker threads."""


class Inspector(functional.Inspector):
    variables = ("NPROC", "XLA_FLAGS")

    def predict(self, batch: Batch) -> tuple[Array, Any]:
        forward = jax.jit(self.trainer.forward)
        logits, loss, _statistics = forward(*self._state(), batch)
        return loss, logits

    def _state(self) -> tuple[Any, Any, Array | None]:
        return self.trainer.values, self.trainer.statistics, self.trainer.key

    def assign(self, name: str, array: np.ndarray) -> None:
        self.trainer.values[name] = self.trainer.hold(array)

    def disable_dropout(self) -> None:
        self.trainer.key = None

    def multiply_adds(self, batch: Batch) -> int:
        traced = jax.make_jaxpr(self.trainer.forward)(*self._state(), batch)
        return _multiply_adds(traced.jaxpr)

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See inspector.Inspector: factors of the compiled products of forward and backward
        pass. XLA multiplies bfloat16 in float32 where it has no other kernel."""
        values, statistics, key = self._state()
        arguments = values, statistics, self.trainer.gathered, key, batch
        lowered = self.trainer.backward_pass.lower(*arguments)
        return factor_dtypes(lowered.compile().as_text())

    def threads(self) -> dict[str, int]:
        return named_threads(POOL)


def _multiply_adds(jaxpr: Any) -> int:
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
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                count += _multiply_adds(inner)
    return count
