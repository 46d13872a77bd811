"""Reads a TensorFlow trainer's results, work and effective settings."""

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from perfkit.core.frameworks.effective import named_threads
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.xla import factor_dtypes, products_in
from perfkit.core.frameworks.trainer import Batch

PRODUCTS = ("Conv2D", "MatMul", "BatchMatMulV2")
"""TensorFlow's matrix-product operators in a forward pass; those of a backward pass start with
the same names."""
POOLS = ("tf_Compute", "tf_XLAEigen")
"""Names of the inter-op threads and of XLA's; the intra-op threads have no name."""


class Inspector(functional.Inspector):
    variables = ("TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS", "XLA_FLAGS")

    def predict(self, batch: Batch) -> tuple[Tensor, Any]:
        logits, loss, _statistics = self.trainer.forward_pass(batch)
        return loss, tf.nest.map_structure(np.asarray, logits)

    def named_gradients(self) -> Iterator[tuple[str, Tensor]]:
        scale = self.trainer.scale_tensor()
        for name, gradient in super().named_gradients():
            yield name, gradient / scale

    def assign(self, name: str, array: np.ndarray) -> None:
        self.trainer.values[name].assign(array.astype(self.trainer.wide))

    def disable_dropout(self) -> None:
        self.trainer.trace(drops=False)

    def multiply_adds(self, batch: Batch) -> int:
        count = 0
        traced = self.trainer.forward_pass.get_concrete_function(batch)
        for node in traced.graph.get_operations():
            if node.type in PRODUCTS:
                a, b = (factor.shape for factor in node.inputs)
                summed = prod(b[:-1]) if node.type == "Conv2D" else a[-1]
                count += node.outputs[0].shape.num_elements() * summed
        return count

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See inspector.Inspector: factors of the products of forward and backward pass, in the
        graph or, since XLA may change them, in the compiled program."""
        backward_pass = self.trainer.backward_pass
        arguments = batch, self.trainer.scale_tensor()
        if self.trainer.config.execution == "static":
            compiled = backward_pass.experimental_get_compiler_ir(*arguments)
            return factor_dtypes(products_in(compiled(stage="optimized_hlo")))
        traced = backward_pass.get_concrete_function(*arguments)
        nodes = traced.graph.get_operations()
        products = [node for node in nodes if node.type.startswith(PRODUCTS)]
        return dict(Counter(node.get_attr("T").name for node in products))

    def threads(self) -> dict[str, int]:
        return named_threads(*POOLS)
