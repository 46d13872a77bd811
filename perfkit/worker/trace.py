"""What a framework does with given weights and one batch, told so that others can be compared.

All witnesses train on the same batch, and begin each step with the same weights: those that
the first one has come to. So a difference does not grow from step to step, as in a deep network
even that of a last bit would. What the optimizer has gathered, each keeps for itself.

The first leaves weights, gradients and updates in a folder; the others tell how far theirs are
from these. They do so twice: in float32, as they are measured, and in float64, in which
rounding can neither be taken for a difference nor hide one.
"""

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perfkit.config import Config
from perfkit.frameworks.base import Batch, Trainer, backend
from perfkit.inputs import synthetic
from perfkit.models import MODELS
from perfkit.results.files import write_atomically

PRECISIONS = {"fp32": np.float32, "fp64": np.float64}
"""In this order: doubles, once in use, are in use for what comes."""
STEPS = 5
KEPT = STEPS + 3 * len(PRECISIONS)
"""How many float32 copies of all parameters the first witness leaves: the weights that each
step begins with and, by precision, the first step's gradients, the first and last update."""
PARAMETERS = "parameters.json"

Write = Callable[[dict[str, Any]], None]


class Distance(NamedTuple):
    """From a tensor of the first witness to this one's: Euclidean norms of the difference, of
    the first's, of this one's."""

    apart: float
    first: float
    own: float


def witness(config: Config, folder: Path, write: Write) -> None:
    """Tell of this framework; `folder` is that of all witnesses."""
    training = backend(config.framework)
    training.open_device(config)
    for precision, dtype in PRECISIONS.items():
        if precision == "fp64":
            training.enable_float64()
        batches = training.tensors(repeat(one_batch(config, dtype)), config)
        testify(training.Trainer(config), next(batches), precision, folder, write)


def one_batch(config: Config, dtype: Any) -> tuple[np.ndarray, ...]:
    """The batch of synthetic input, the same images in each layout. The first
    sequence is made to end after three quarters: else nothing would tell who computes with
    padding, or counts predictions that are none."""
    if MODELS[config.model].sample == "sequence":
        assert config.sequence_length
        arrays = tuple(array.copy() for array in next(synthetic.batches(config, 0)))
        *tokens, positions, words, _next_sentence = arrays
        end = config.sequence_length * 3 // 4
        for array in tokens:
            array[0, end:] = 0
        words[0, positions[0] >= end] = 0
        positions[0, positions[0] >= end] = 0
        return arrays
    images, labels = next(synthetic.batches(config.model_copy(update={"layout": "NCHW"}), 0))
    if config.layout == "NHWC":
        images = images.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images, dtype), labels


def testify(trainer: Trainer, batch: Batch, precision: str, folder: Path, write: Write) -> None:
    """Write down what `trainer` does with `batch` in STEPS steps, unless it has parameters of
    other names or shapes than the first witness.

    Events: `work`, the `loss` of each step and, unless it is the first, the `distances` of the
    first step's gradients and of the first and the last update.
    """
    trainer.disable_dropout()
    weights: Mapping[str, np.ndarray] = trainer.weights()
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
            _keep(start, weights.items())
        with np.load(start) as given:
            trainer.load_weights(given)
            loss = float(trainer.backward(batch, sync_gradients=True))
            write({"event": "loss", "precision": precision, "step": step, "loss": loss})
            if step == 1:
                _tell(folder, precision, "gradients", trainer.gradients().items(), write)
            trainer.update()
            weights = trainer.weights()
            if name := {1: "first_update", STEPS: "last_update"}.get(step):
                _tell(folder, precision, name, _minus(weights, given), write)


def _tell(
    folder: Path,
    precision: str,
    what: str,
    tensors: Iterable[tuple[str, np.ndarray]],
    write: Write,
) -> None:
    """Keep these for the others or, if the first has kept its own, tell how far they are."""
    kept = folder / f"{precision}-{what}.npz"
    if kept.exists():
        found = dict(_distances(kept, tensors))
        write({"event": "distances", "precision": precision, "of": what, "tensors": found})
    else:
        _keep(kept, tensors)


def _minus(
    weights: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    for name, array in weights.items():
        yield name, array.astype(np.float64) - before[name]


def _distances(
    kept: Path, tensors: Iterable[tuple[str, np.ndarray]]
) -> Iterator[tuple[str, Distance]]:
    with np.load(kept) as firsts:
        for name, array in tensors:
            own, first = array.astype(np.float64), firsts[name].astype(np.float64)
            yield name, Distance(*(float(np.linalg.norm(x)) for x in (own - first, first, own)))


def _keep(path: Path, tensors: Iterable[tuple[str, np.ndarray]]) -> None:
    """As np.savez in float32, a tensor at a time: all copies at once would fill the memory."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in tensors:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array.astype(np.float32))
