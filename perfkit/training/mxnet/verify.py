"""Traces a few steps of ResNet-50 in MXNet, to compare it with other frameworks."""

from collections.abc import Mapping
from math import prod
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd

from perfkit.training.mxnet.batches import as_array
from perfkit.training.mxnet.precision import graph_of, products_in
from perfkit.training.mxnet.train import loss_of, new_model, new_trainer, trainable
from perfkit.training.options import Options
from perfkit.training.trace import PRECISIONS, Arrays, Write, fixed_batch, raw_file, trace_steps

PYTORCHS_NAMES = {"gamma": "weight", "beta": "bias"}
"""Parameter of a batch norm -> its name in PyTorch. All axes are PyTorch's."""


class TracedTraining:
    """See perfkit.training.trace.Traced."""

    def __init__(self, options: Options, dtype: type) -> None:
        self.batch = tuple(as_array(array) for array in fixed_batch(options, dtype))
        self.model = new_model(options)
        self.model.cast(dtype)
        self.trainer = new_trainer(options, self.model)
        self.parameters = {}
        for parameter in trainable(self.model):
            layer, _dot, name = parameter.name.rpartition(".")
            self.parameters[f"{layer}.{PYTORCHS_NAMES.get(name, name)}"] = parameter

    def weights(self) -> Arrays:
        return {name: each.data().asnumpy() for name, each in self.parameters.items()}

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, parameter in self.parameters.items():
            parameter.set_data(mx.nd.array(weights[name], dtype=parameter.dtype))

    def backward(self) -> float:
        with autograd.record():
            loss = loss_of(self.model, self.batch)
        loss.backward()
        return float(loss.asscalar())

    def gradients(self) -> Arrays:
        return {name: each.grad().asnumpy() for name, each in self.parameters.items()}

    def update(self) -> None:
        self.trainer.step(1)

    def multiply_adds(self) -> int:
        images, _labels = self.batch
        graph = graph_of(self.model)
        _inputs, outputs, _statistics = graph.infer_shape(images=images.shape)
        shape_of = dict(zip(graph.list_outputs(), outputs, strict=True))
        count = 0
        for product in products_in(graph):
            _outputs, *summed = shape_of[product.weight]
            count += prod(shape_of[product.output]) * prod(summed)
        return count


def write_trace(options: Options, folder: Path, write: Write) -> None:
    """Trace the training; `folder` is shared by all frameworks."""
    mx.random.seed(options.seed)
    for precision, dtype in PRECISIONS.items():
        trace_steps(TracedTraining(options, dtype), precision, folder, write)


if __name__ == "__main__":
    raw = raw_file()
    write_trace(Options.parse("mxnet"), raw.path.parent.parent, raw.write)
