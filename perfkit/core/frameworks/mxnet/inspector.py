"""Reads an MXNet trainer's results, work and effective settings."""

import json
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.trainer import Batch
from perfkit.training.effective import dtype_name

OPERATORS = ("Convolution", "FullyConnected")
"""MXNet's matrix-product operators."""


class Product(NamedTuple):
    """A matrix-product operator of a graph, by the names of its output and its weight."""

    output: str
    weight: str


class Inspector(functional.Inspector):
    variables = ("OMP_NUM_THREADS", "MXNET_SUBGRAPH_BACKEND", "MXNET_CPU_WORKER_NTHREADS")

    def predict(self, batch: Batch) -> tuple[Any, Any]:
        with mx.autograd.train_mode():
            logits, loss = self.trainer.forward(batch)
        return loss.asscalar(), logits

    def assign(self, name: str, array: np.ndarray) -> None:
        self.trainer.values[name][:] = array

    def array(self, tensor: NDArray) -> np.ndarray:
        return tensor.asnumpy()

    def to_canonical(self, _name: str, array: np.ndarray) -> np.ndarray:
        return self.trainer.from_canonical(array)

    def disable_dropout(self) -> None:
        """See inspector.Inspector: no network that MXNet trains has dropout."""

    def _products(self) -> Iterator[Product]:
        nodes = json.loads(self.trainer.logits.tojson())["nodes"]
        for node in nodes:
            if node["op"] in OPERATORS:
                _input, (weight, *_version), *_bias = node["inputs"]
                yield Product(f"{node['name']}_output", nodes[weight]["name"])

    def multiply_adds(self, batch: Batch) -> int:
        graph = self.trainer.logits.get_internals()
        _inputs, outputs, _statistics = graph.infer_shape(images=batch[0].shape)
        shapes = dict(zip(graph.list_outputs(), outputs, strict=True))
        count = 0
        for product in self._products():
            _outputs, *summed = shapes[product.weight]
            count += prod(shapes[product.output]) * prod(summed)
        return count

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See inspector.Inspector: inferred output dtypes of convolutions and dense layers."""
        graph = self.trainer.logits.get_internals()
        _inputs, outputs, _statistics = graph.infer_type(images=batch[0].dtype)
        dtypes = dict(zip(graph.list_outputs(), outputs, strict=True))
        return dict(Counter(dtype_name(dtypes[p.output]) for p in self._products()))
