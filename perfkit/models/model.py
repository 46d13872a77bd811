"""The facts that each model has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

CLASSES = 1000
"""Labels of images are below it."""
Unit = Literal["images/s", "sequences/s", "tokens/s"]
UNITS: dict[str, Unit] = {"images": "images/s", "shards": "sequences/s", "tokens": "tokens/s"}
"""Of the throughput, by the form of the data."""


ADAM_BETAS = (0.9, 0.999)
"""Kingma and Ba, Adam, 2014."""


class OptimizerDefaults(NamedTuple):
    """`learning_rate`: samples per step of all ranks -> the rate, constant over the training:
    what is measured is throughput, not accuracy. `betas` are Adam's. Gradients whose norm, over
    all parameters, exceeds `clip_norm` are scaled to it; None: never."""

    learning_rate: Callable[[int], float]
    weight_decay: float
    betas: tuple[float, float] = ADAM_BETAS
    clip_norm: float | None = None


def linear_rate(rate: float, batch: int = 256) -> Callable[[int], float]:
    """`rate` for `batch`, linear below. Above, a growing rate needs a warm-up (Goyal et al.,
    2017), without which VGG's loss diverges within a few steps."""
    return lambda global_batch: rate * min(1.0, global_batch / batch)


class Decoder(NamedTuple):
    """What 6 N + 12 L d T, the operations of a token's training step, is made of (Chowdhery et
    al., PaLM, 2022, appendix B). `product_weights` is N: the weights by which each token is
    multiplied. The output layer counts; looking embeddings up, biases and norms do not. L
    `layers` are of `width` d; T is the sequence length."""

    product_weights: int
    layers: int
    width: int


@dataclass(frozen=True)
class Model:
    """Facts, choices that fit, and defaults. Batch sizes are samples per device, image sizes
    pixels, sequence lengths tokens; None: its samples have none. The first entry of `inputs`
    and `optimizer_defaults` is the default.

    `data` is the form of its training data (perfkit.inputs.data_set). `cpu_sequence_length` is
    the default on a CPU, if that is another; `longest_sequence` the number of its positions.

    `multiply_adds`: image size or sequence length -> those of one sample's forward pass, by the
    layers that need no gradient of their input, and by all others. Counted are the matrix
    products alone: convolutions, dense layers, attention. `choices`: of how many the network
    chooses, for each part of its loss.

    Rows whose label is `ignored_label` count neither in the loss nor in the accuracy.
    """

    name: str
    short_name: str
    parameters: int
    sample: Literal["image", "sequence"]
    data: Literal["images", "shards", "tokens"]
    inputs: tuple[str, ...]
    optimizer_defaults: Mapping[str, OptimizerDefaults]
    multiply_adds: Callable[[int], tuple[int, int]]
    choices: tuple[int, ...]
    gpu_batch_size: int
    cpu_batch_size: int
    data_dir: str
    default_image_size: int | None = None
    default_sequence_length: int | None = None
    cpu_sequence_length: int | None = None
    longest_sequence: int | None = None
    decoder: Decoder | None = None
    ignored_label: int | None = None

    @property
    def unit(self) -> Unit:
        return UNITS[self.data]

    @property
    def optimizers(self) -> tuple[str, ...]:
        return tuple(self.optimizer_defaults)
