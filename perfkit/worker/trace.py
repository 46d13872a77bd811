"""Traces a framework's work with given weights and one batch, for a comparison with others.

All frameworks train on the same batch and begin each step with the same weights, those of the
first framework (the reference): so a difference does not grow from step to step, as in a deep
network even that of the last bit would. Optimizer states are each framework's own.

The reference leaves weights, gradients and updates in a folder; the others measure distances
from them, in float32, which is what is benchmarked, and in float64, in which rounding can
neither be mistaken for a difference nor hide one.
"""

import json
import zipfile
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.config import Config
from perfkit.frameworks.base import Batch, Trainer, backend
from perfkit.inputs import synthetic
from perfkit.models import MODELS
from perfkit.results.store import write_atomically
from perfkit.worker.loop import Write

PRECISIONS = {"fp32": np.float32, "fp64": np.float64}
"""In this order: float64, once enabled, stays enabled."""
STEPS = 5
COPIES = STEPS + 3 * len(PRECISIONS)
"""Float32 copies of all parameters that the reference leaves: the weights that each step begins
with and, by precision, the first step's gradients, the first and last update."""
PARAMETERS = "parameters.json"

Tensors = Iterable[tuple[str, np.ndarray]]


def write_trace(config: Config, folder: Path, write: Write) -> None:
    """Trace the framework of `config`; `folder` is shared with the reference."""
    framework = backend(config.framework)
    framework.open_device(config)
    for precision, dtype in PRECISIONS.items():
        if precision == "fp64":
            framework.enable_float64()
        batches = framework.tensors(repeat(fixed_batch(config, dtype)), config)
        trace_steps(framework.Trainer(config), next(batches), precision, folder, write)


def fixed_batch(config: Config, dtype: Any) -> tuple[np.ndarray, ...]:
    """The batch of synthetic input, the same images in each layout. The first sequence ends
    after three quarters: that shows who computes with padding, or counts predictions beyond
    the end."""
    data = MODELS[config.model].data
    if data == "tokens":
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
    trainer: Trainer, batch: Batch, precision: str, folder: Path, write: Write
) -> None:
    """Write the events of STEPS steps of `trainer` with `batch`, unless names or shapes of its
    parameters differ from the reference's.

    Events: `work`, the `loss` of each step and, unless it is the reference, the `distances` of
    the first step's gradients and of the first and the last update.
    """

    def compare(name: str, tensors: Tensors) -> None:
        """Keep the tensors as the reference's, or write their distances from those."""
        path = folder / f"{precision}-{name}.npz"
        if not path.exists():
            save(path, tensors)
            return
        with np.load(path) as reference:
            distances = {key: distance(reference[key], array) for key, array in tensors}
        write({"event": "distances", "precision": precision, "of": name, "tensors": distances})

    trainer.disable_dropout()
    weights = trainer.weights()
    shapes = {name: [*array.shape] for name, array in weights.items()}
    counted = trainer.multiply_adds(batch)
    write({"event": "work", "parameters": shapes, "multiply_adds": counted})
    known = folder / PARAMETERS
    if not known.exists():
        write_atomically(known, json.dumps(shapes))
    elif json.loads(known.read_text()) != shapes:
        return
    for step in range(1, STEPS + 1):
        start = folder / f"weights-{step}.npz"
        if not start.exists():
            save(start, weights.items())
        with np.load(start) as before:
            trainer.load_weights(before)
            loss = float(trainer.backward(batch, sync_gradients=True))
            write({"event": "loss", "precision": precision, "step": step, "loss": loss})
            if step == 1:
                compare("gradients", trainer.gradients().items())
            trainer.update()
            weights = trainer.weights()
            if step in (1, STEPS):
                # float64, so that the subtraction rounds nothing away; a tensor at a time.
                updates = ((k, a.astype(np.float64) - before[k]) for k, a in weights.items())
                compare("first_update" if step == 1 else "last_update", updates)


def distance(reference: np.ndarray, own: np.ndarray) -> tuple[float, ...]:
    """Euclidean norms of the difference, of the reference, of this framework's tensor."""
    own, reference = own.astype(np.float64), reference.astype(np.float64)
    return tuple(float(np.linalg.norm(array)) for array in (own - reference, reference, own))


def save(path: Path, tensors: Tensors) -> None:
    """As np.savez in float32, a tensor at a time: all copies at once would fill the memory."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in tensors:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array.astype(np.float32))
