"""Traces a framework's work with given weights and one batch, to compare frameworks.

All frameworks train on the same batch and start each step from the weights of the first
framework (the reference). Otherwise, in a deep network even a difference in the last bit would
grow from step to step. Optimizer states are each framework's own.

The reference stores weights, gradients and updates in a folder; the other frameworks measure
their distances from them, in float32, the benchmarked precision, and in float64, where rounding
can neither look like a difference nor hide one.
"""

import json
import zipfile
from collections.abc import Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.core.config import Config
from perfkit.core.frameworks.inspector import Inspector
from perfkit.core.frameworks.interface import backend
from perfkit.core.frameworks.trainer import Batch
from perfkit.core.inputs import synthetic
from perfkit.core.results.store import write_atomically
from perfkit.core.timing.recorder import Write
from perfkit.training.models import model_of

PRECISIONS = {"fp32": np.float32, "fp64": np.float64}
"""The order matters: float64 cannot be disabled again."""
STEPS = 5
COPIES = STEPS + 3 * len(PRECISIONS)
"""Number of float32 copies of all parameters that the reference stores: the weights before each
step and, for each precision, the first step's gradients, the first and the last update."""
PARAMETERS = "parameters.json"

Tensors = Iterable[tuple[str, np.ndarray]]


def write_trace(config: Config, folder: Path, write: Write) -> None:
    """Trace the framework of `config`; `folder` is shared by all frameworks."""
    framework = backend(config.framework)
    framework.open_device(config)
    for precision, dtype in PRECISIONS.items():
        if precision == "fp64":
            framework.enable_float64()
        batches = framework.tensors(repeat(fixed_batch(config, dtype)), config)
        inspector = framework.Inspector(framework.Trainer(config))
        trace_steps(inspector, next(batches), precision, folder, write)


def fixed_batch(config: Config, dtype: Any) -> tuple[np.ndarray, ...]:
    """Return the batch of synthetic input with the same images in each layout. The first
    sequence ends after three quarters, which reveals frameworks that compute with padding or
    count unused predictions."""
    data = model_of(config).data
    if data in ("tokens", "tokens32"):
        return next(synthetic.batches(config, 0))
    if data == "shards":
        arrays = tuple(array.copy() for array in next(synthetic.batches(config, 0)))
        *tokens, positions, words, _next_sentence = arrays
        end = config.sample_size * 3 // 4
        for array in tokens:
            array[0, end:] = 0
        words[0, positions[0] >= end] = 0
        positions[0, positions[0] >= end] = 0
        return arrays
    images, labels = next(synthetic.batches(config.model_copy(update={"layout": "NCHW"}), 0))
    if config.layout == "NHWC":
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images, dtype), labels


def trace_steps(
    inspector: Inspector, batch: Batch, precision: str, folder: Path, write: Write
) -> None:
    """Write the events of STEPS steps of its trainer with `batch`: `work` and, unless names or
    shapes of parameters differ from the reference's, the `loss` of each step and, except for
    the reference, the `distances` of the first step's gradients, the first and last update."""

    def compare(name: str, tensors: Tensors) -> None:
        """Store the reference's tensors, or write the distances from them."""
        path = folder / f"{precision}-{name}.npz"
        if not path.exists():
            save(path, tensors)
            return
        with np.load(path) as reference:
            distances = {key: distance(reference[key], array) for key, array in tensors}
        write({"event": "distances", "precision": precision, "of": name, "tensors": distances})

    inspector.disable_dropout()
    weights = inspector.weights()
    shapes = {name: [*array.shape] for name, array in weights.items()}
    count = inspector.multiply_adds(batch)
    write({"event": "work", "parameters": shapes, "multiply_adds": count})
    reference_shapes = folder / PARAMETERS
    if not reference_shapes.exists():
        write_atomically(reference_shapes, json.dumps(shapes))
    elif json.loads(reference_shapes.read_text()) != shapes:
        return
    for step in range(1, STEPS + 1):
        start = folder / f"weights-{step}.npz"
        if not start.exists():
            save(start, weights.items())
        with np.load(start) as before:
            inspector.load_weights(before)
            loss = float(inspector.trainer.backward(batch, sync_gradients=True))
            write({"event": "loss", "precision": precision, "step": step, "loss": loss})
            if step == 1:
                compare("gradients", inspector.gradients().items())
            inspector.trainer.update()
            weights = inspector.weights()
            if step == 1:
                compare("first_update", updates(before, weights))
            if step == STEPS:
                compare("last_update", updates(before, weights))


def updates(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Tensors:
    """Yield the change of each parameter, in float64, so that the subtraction is exact."""
    for name, array in after.items():
        yield name, array.astype(np.float64) - before[name]


def distance(reference: np.ndarray, array: np.ndarray) -> tuple[float, float, float]:
    """Return the Euclidean norms of the difference, the reference and the array."""
    exact_reference, exact = reference.astype(np.float64), array.astype(np.float64)
    difference = exact - exact_reference
    return _norm(difference), _norm(exact_reference), _norm(exact)


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def save(path: Path, tensors: Tensors) -> None:
    """Like np.savez in float32, but one tensor at a time to save memory."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in tensors:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array.astype(np.float32))
