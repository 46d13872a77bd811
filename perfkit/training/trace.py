"""Traces the work of a framework with given weights and one batch, to compare frameworks.

All frameworks train on the same batch and start each step from the weights of the first
framework (the reference). Otherwise, in a deep network even a difference in the last bit would
grow from step to step. Optimizer states are each framework's own.

The reference stores weights, gradients and updates in a folder, with the names and axes of
torchvision's and Hugging Face's models in PyTorch; the other frameworks measure their distances
from them, in float32, the benchmarked precision, and in float64, where rounding can neither
look like a difference nor hide one.
"""

import json
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from perfkit.inputs import synthetic
from perfkit.timing.raw_file import RawFile
from perfkit.timing.session import current_session
from perfkit.training.models import model_of
from perfkit.training.options import Options

STEPS = 5
PRECISIONS = {"fp32": np.float32, "fp64": np.float64}
"""The order matters: float64 cannot be disabled again."""
PARAMETERS = "parameters.json"

Arrays = dict[str, np.ndarray]
Tensors = Iterable[tuple[str, np.ndarray]]
Write = Callable[[dict[str, Any]], None]


class Traced(Protocol):
    """A model with its optimizer and a batch, without dropout."""

    def weights(self) -> Arrays:
        """Return copies of the trainable parameters."""

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the trainable parameters."""

    def backward(self) -> float:
        """Compute the gradients, and return the loss."""

    def gradients(self) -> Arrays:
        """Return copies of the gradients."""

    def update(self) -> None:
        """Take the optimizer's step, and drop the gradients."""

    def multiply_adds(self) -> int:
        """Count the multiply-adds of the matrix products in one forward pass."""


def raw_file() -> RawFile:
    """Return the raw file of this rank, in which a trace is written."""
    session = current_session()
    if session is None:
        raise SystemExit("run by `perfkit verify`, which compares the traces of frameworks")
    return session.raw


def fixed_batch(options: Options, dtype: Any) -> tuple[np.ndarray, ...]:
    """Return the batch of synthetic input, of images in `dtype` and the layout of the options,
    with the same numbers in each layout. The first sequence ends after three quarters, which
    reveals frameworks that compute with padding or count unused predictions."""
    data = model_of(options).data
    batch = next(synthetic.batches(options, 0))
    if data == "images":
        images, labels = batch
        if options.layout == "NHWC":
            height, width = images.shape[1:3]
            images = images.reshape(-1, 3, height, width).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images, dtype), labels
    if data != "shards":
        return batch
    arrays = tuple(array.copy() for array in batch)
    *tokens, positions, words, _next_sentence = arrays
    end = options.sample_size * 3 // 4
    for array in tokens:
        array[0, end:] = 0
    words[0, positions[0] >= end] = 0
    positions[0, positions[0] >= end] = 0
    return arrays


def trace_steps(traced: Traced, precision: str, folder: Path, write: Write) -> None:
    """Write the events of STEPS steps: `work` and, unless names or shapes of parameters differ
    from the reference's, the `loss` of each step and, except for the reference, the `distances`
    of the first step's gradients, the first and last update."""

    def compare(name: str, tensors: Tensors) -> None:
        """Store the reference's tensors, or write the distances from them."""
        path = folder / f"{precision}-{name}.npz"
        if not path.exists():
            save(path, tensors)
            return
        with np.load(path) as reference:
            distances = {key: distance(reference[key], array) for key, array in tensors}
        write({"event": "distances", "precision": precision, "of": name, "tensors": distances})

    weights = traced.weights()
    shapes = {name: [*array.shape] for name, array in weights.items()}
    write({"event": "work", "parameters": shapes, "multiply_adds": traced.multiply_adds()})
    reference_shapes = folder / PARAMETERS
    if not reference_shapes.exists():
        written = folder / f"{PARAMETERS}.{os.getpid()}"
        written.write_text(json.dumps(shapes))
        written.replace(reference_shapes)
    elif json.loads(reference_shapes.read_text()) != shapes:
        return
    for step in range(1, STEPS + 1):
        start = folder / f"weights-{step}.npz"
        if not start.exists():
            save(start, weights.items())
        with np.load(start) as before:
            traced.load(before)
            loss = traced.backward()
            write({"event": "loss", "precision": precision, "step": step, "loss": loss})
            if step == 1:
                compare("gradients", traced.gradients().items())
            traced.update()
            weights = traced.weights()
            if step == 1:
                compare("first_update", updates(before, weights))
            if step == STEPS:
                compare("last_update", updates(before, weights))


def updates(before: Mapping[str, np.ndarray], after: Arrays) -> Tensors:
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
