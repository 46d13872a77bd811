"""The interface of a model: its facts and defaults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

CLASSES = 1000
"""Number of image labels, as in ImageNet."""
Unit = Literal["images/s", "sequences/s", "tokens/s"]
UNITS: dict[str, Unit] = {
    "images": "images/s",
    "shards": "sequences/s",
    "tokens": "tokens/s",
    "tokens32": "tokens/s",
}
"""Unit of the throughput by data format."""

ADAM_BETAS = (0.9, 0.999)
"""Kingma and Ba, Adam, 2014."""


class OptimizerDefaults(NamedTuple):
    """`learning_rate`: samples per step of all ranks -> learning rate, constant over the
    training since throughput is measured, not accuracy. `betas` are Adam's. Gradients are
    clipped to the global norm `clip_norm`, unless it is None."""

    learning_rate: Callable[[int], float]
    weight_decay: float
    betas: tuple[float, float] = ADAM_BETAS
    clip_norm: float | None = None


def linear_rate(rate: float, batch: int = 256) -> Callable[[int], float]:
    """Scale `rate` linearly with the global batch up to `batch`, constant above: a larger rate
    needs a warm-up (Goyal et al., 2017), without which VGG's loss diverges in a few steps."""
    return lambda global_batch: rate * min(1.0, global_batch / batch)


class Decoder(NamedTuple):
    """Terms of 6 N + 12 L d T, the FLOPs of a token's training step (Chowdhery et al., PaLM,
    2022, appendix B): N is `product_weights`, the weights in matrix products, including the
    output layer but not embedding lookups, biases and norms; L is `layers`, d is `width`, T is
    the sequence length."""

    product_weights: int
    layers: int
    width: int

    def multiply_adds(self, length: int) -> tuple[int, int]:
        """See Model. All length x length attention scores count, including the masked half."""
        attention = self.layers * 2 * length * self.width
        return 0, length * (self.product_weights + attention)


class ModelSizes(NamedTuple):
    """The names of a model's sizes (the parameter `model_size`), and the defaults on a CPU and
    on an accelerator."""

    names: tuple[str, ...]
    on_cpu: str
    on_gpu: str


@dataclass(frozen=True)
class Model:
    """Facts, supported values and defaults of a model. Batch sizes are samples per device,
    image sizes pixels, sequence lengths tokens; None: not applicable. The first entry of
    `inputs` and `optimizer_defaults` is the default.

    `sizes` are the sizes in which the model exists; all other facts are those of one of them.
    `data` is the format of the training data (perfkit.core.inputs.data_set).
    `cpu_sequence_length` is the default on a CPU if different; `longest_sequence` is the number
    of positions.

    `multiply_adds`: image size or sequence length -> multiply-adds of one sample's forward pass
    in layers that need no gradient of their input, and in all other layers; only matrix
    products count: convolutions, dense layers, attention. `in_fast_convolutions`: the same of
    3x3 convolutions with stride 1 alone, which fast algorithms compute with fewer
    multiplications; None without such. `choices`: number of classes for each part of the loss.
    Rows with `ignored_label` count neither in the loss nor in the accuracy.
    """

    name: str
    short_name: str
    parameters: int
    sample: Literal["image", "sequence"]
    data: Literal["images", "shards", "tokens", "tokens32"]
    inputs: tuple[str, ...]
    optimizer_defaults: Mapping[str, OptimizerDefaults]
    multiply_adds: Callable[[int], tuple[int, int]]
    choices: tuple[int, ...]
    gpu_batch_size: int
    cpu_batch_size: int
    data_dir: str
    sizes: ModelSizes | None = None
    default_image_size: int | None = None
    default_sequence_length: int | None = None
    cpu_sequence_length: int | None = None
    longest_sequence: int | None = None
    decoder: Decoder | None = None
    ignored_label: int | None = None
    in_fast_convolutions: Callable[[int], tuple[int, int]] | None = None

    @property
    def unit(self) -> Unit:
        return UNITS[self.data]

    @property
    def optimizers(self) -> tuple[str, ...]:
        return tuple(self.optimizer_defaults)
