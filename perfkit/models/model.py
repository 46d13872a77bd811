"""The facts that each model has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

CLASSES = 1000
"""Labels of images are below it."""


class OptimizerDefaults(NamedTuple):
    """`learning_rate`: samples per step of all ranks -> the rate, constant over the training:
    what is measured is throughput, not accuracy."""

    learning_rate: Callable[[int], float]
    weight_decay: float


def linear_rate(rate: float, batch: int = 256) -> Callable[[int], float]:
    """`rate` for `batch`, linear below. Above, a growing rate needs a warm-up (Goyal et al.,
    2017), without which VGG's loss diverges within a few steps."""
    return lambda global_batch: rate * min(1.0, global_batch / batch)


@dataclass(frozen=True)
class Model:
    """Facts, choices that fit, and defaults. Batch sizes are samples per device, image sizes
    pixels, sequence lengths tokens; None: its samples have none. The first entry of `inputs`
    and `optimizer_defaults` is the default.

    `multiply_adds`: image size or sequence length -> those of one sample's forward pass, by the
    layers that need no gradient of their input, and by all others. Counted are the matrix
    products alone: convolutions, dense layers, attention.

    Rows whose label is `ignored_label` count neither in the loss nor in the accuracy.
    """

    name: str
    short_name: str
    parameters: int
    sample: Literal["image", "sequence"]
    inputs: tuple[str, ...]
    optimizer_defaults: Mapping[str, OptimizerDefaults]
    multiply_adds: Callable[[int], tuple[int, int]]
    gpu_batch_size: int
    cpu_batch_size: int
    data_dir: str
    default_image_size: int | None = None
    default_sequence_length: int | None = None
    ignored_label: int | None = None

    @property
    def unit(self) -> Literal["images/s", "sequences/s"]:
        return "images/s" if self.sample == "image" else "sequences/s"

    @property
    def optimizers(self) -> tuple[str, ...]:
        return tuple(self.optimizer_defaults)
