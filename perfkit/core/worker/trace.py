"""Traces a framework without a script of its own; see perfkit.training.trace."""

from collections.abc import Mapping
from itertools import repeat
from pathlib import Path

import numpy as np

from perfkit.core.config import Config
from perfkit.core.frameworks.inspector import Inspector
from perfkit.core.frameworks.interface import backend
from perfkit.core.frameworks.networks import Outline, network_of
from perfkit.core.frameworks.trainer import Batch
from perfkit.training.trace import PRECISIONS, Arrays, Write, fixed_batch, trace_steps


class TracedTrainer:
    """See perfkit.training.trace.Traced."""

    def __init__(self, inspector: Inspector, batch: Batch, dense: set[str]) -> None:
        """`dense`: the names of the weights of dense layers."""
        self.inspector = inspector
        self.batch = batch
        self.dense = dense
        inspector.disable_dropout()

    def weights(self) -> Arrays:
        return self._transposed(self.inspector.weights())

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        self.inspector.load_weights(self._transposed(weights))

    def backward(self) -> float:
        return float(self.inspector.trainer.backward(self.batch, sync_gradients=True))

    def gradients(self) -> Arrays:
        return self._transposed(self.inspector.gradients())

    def update(self) -> None:
        self.inspector.trainer.update()

    def multiply_adds(self) -> int:
        return self.inspector.multiply_adds(self.batch)

    def _transposed(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Swap inputs and outputs of dense layers: PyTorch stores outputs x inputs."""
        return {
            name: array.T if name in self.dense else array for name, array in arrays.items()
        }


def write_trace(config: Config, folder: Path, write: Write) -> None:
    """Trace the framework of `config`; `folder` is shared by all frameworks."""
    framework = backend(config.framework)
    framework.open_device(config)
    layers = Outline(network_of(config)).layers
    dense = {f"{name}.weight" for name, layer in layers.items() if layer.kind == "dense"}
    for precision, dtype in PRECISIONS.items():
        if precision == "fp64":
            framework.enable_float64()
        batch = fixed_batch(config, dtype)
        if config.layout == "NHWC":
            images, labels = batch
            batch = np.ascontiguousarray(images.transpose(0, 2, 3, 1)), labels
        batches = framework.tensors(repeat(batch), config)
        inspector = framework.Inspector(framework.Trainer(config))
        traced = TracedTrainer(inspector, next(batches), dense)
        trace_steps(traced, precision, folder, write)
