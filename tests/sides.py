"""Configurations of any framework, and trainers and batches of those without a script through
one interface."""

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from perfkit.core.frameworks.interface import backend
from perfkit.core.request.resolve import resolve
from perfkit.inputs import synthetic
from perfkit.training.models import model_named

SIDES = ("jax", "tensorflow")
"""Frameworks that train by a backend, not by a script."""


def config(model="resnet50", framework="paddle", **changes):
    """Return the configuration of a small training on the CPU."""
    facts = model_named(model)
    values = {"model": model, "framework": framework, "device": "cpu", "processes": 1}
    values |= {"input": "synthetic", "batch_size": 2, "optimizer": facts.optimizers[0]}
    if facts.sample == "sequence":
        values["sequence_length"] = 16
    else:
        values["image_size"] = 32
    return resolve(values | changes)


def step(trainer, batch):
    """Run one step and return its loss."""
    loss = float(trainer.backward(batch))
    trainer.update()
    return loss


@dataclass(frozen=True)
class Side:
    """A framework with its backend, as one side of a comparison of frameworks."""

    framework: str
    backend: Any

    def config(self, model="resnet50", **changes):
        return config(model, self.framework, **changes)

    def trainer(self, model="resnet50", **changes):
        return self.backend.Trainer(self.config(model, **changes))

    def inspector(self, model="resnet50", **changes):
        return self.backend.Inspector(self.trainer(model, **changes))

    def arrays(self, model="resnet50", *, size=2, dtype="float32", **changes):
        """Return a synthetic batch of `size` samples."""
        config = self.config(model, batch_size=size, **changes)
        arrays = []
        for array in next(synthetic.batches(config, 0)):
            is_float = array.dtype.kind == "f"
            arrays.append(array.astype(dtype) if is_float else array)
        return tuple(arrays)

    def tensors(self, arrays):
        return next(self.backend.tensors(iter([arrays]), self.config()))

    def batch(self, model="resnet50", **changes):
        return self.tensors(self.arrays(model, **changes))


def side_of(framework):
    pytest.importorskip(framework)
    return Side(framework, backend(framework))


def use_float32():
    """Undo float64 of any framework in this process."""
    for name in ("paddle", "torch"):
        if framework := sys.modules.get(name):
            framework.set_default_dtype("float32" if name == "paddle" else framework.float32)
    if jax := sys.modules.get("jax"):
        jax.config.update("jax_enable_x64", False)
    if layers := sys.modules.get("perfkit.core.frameworks.tensorflow.backend"):
        layers.Forward.wide = "float32"


def forward(side, parameters=None, statistics=None):
    """Return a float32 forward pass of JAX or TensorFlow with dropout."""
    module = import_module(f"perfkit.core.frameworks.{side.framework}.backend")
    drops = {"drops": True}
    if side.framework == "jax":
        drops = {"key": import_module("jax").random.key(0)}
    return module.Forward("float32", "NHWC", parameters or {}, statistics or {}, **drops)


def equal(one, other):
    """Whether two dicts of weights or gradients are equal."""
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)
