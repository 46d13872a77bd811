"""GPT-2 (Radford et al., Language models are unsupervised multitask learners, 2019) in its four
published sizes: pre-norm layers with a final norm, GELU in the tanh approximation of the
published code. The logits share the embedding's weights. As in nanoGPT, the vocabulary is
padded to a multiple of 64 and there is no dropout.
"""

from typing import NamedTuple

from perfkit.core.models.model import Decoder, Model, ModelSizes, OptimizerDefaults

VOCABULARY = 50_304
"""Size of the vocabulary: GPT-2's 50,257 tokens, padded."""
END_OF_TEXT = 50_256
"""Id of the token after each document."""
POSITIONS = 1024
EPSILON = 1e-5
"""Epsilon of the layer norms."""
DEVIATION = 0.02
"""Standard deviation of the initial weights."""


class Size(NamedTuple):
    """The dimensions of one size, and the learning rate of its training (Brown et al., Language
    models are few-shot learners, 2020, for about as many parameters). `inner` is the hidden
    width of a layer's dense block."""

    layers: int
    width: int
    heads: int
    inner: int
    learning_rate: float

    @property
    def residual_deviation(self) -> float:
        """Standard deviation in the two dense layers per layer that write to the residual
        stream."""
        return DEVIATION / (2 * self.layers) ** 0.5


SIZES = {
    "124M": Size(12, 768, 12, 3072, 6e-4),
    "355M": Size(24, 1024, 16, 4096, 3e-4),
    "774M": Size(36, 1280, 20, 5120, 2.5e-4),
    "1558M": Size(48, 1600, 25, 6400, 2e-4),
}
"""Published size -> its dimensions."""
DEFAULT_SIZE = "124M"


def product_weights(size: Size) -> int:
    """Return N of Decoder."""
    layer = 4 * size.width**2 + 2 * size.width * size.inner
    return size.layers * layer + size.width * VOCABULARY


def parameters(size: Size) -> int:
    """Return the number of trainable parameters."""
    biases = 3 * size.width + size.width + size.inner + size.width
    norms = 2 * 2 * size.width
    positions = POSITIONS * size.width
    final_norm = 2 * size.width
    return product_weights(size) + size.layers * (biases + norms) + positions + final_norm


def model(size_name: str | None = None) -> Model:
    """Return the facts of a size; without one, of the default size under the name of them
    all."""
    size = SIZES[size_name or DEFAULT_SIZE]
    short_name = f"GPT-2 {size_name}" if size_name else "GPT-2"
    adamw = OptimizerDefaults(
        lambda _batch: size.learning_rate, 0.1, betas=(0.9, 0.95), clip_norm=1.0
    )
    decoder = Decoder(product_weights(size), size.layers, size.width)
    return Model(
        name=f"{short_name} pre-training",
        short_name=short_name,
        parameters=parameters(size),
        sample="sequence",
        data="tokens",
        inputs=("dataloader", "synthetic"),
        optimizer_defaults={"adamw": adamw},
        multiply_adds=decoder.multiply_adds,
        choices=(VOCABULARY,),
        gpu_batch_size=16,
        cpu_batch_size=1,
        data_dir="data/tokens",
        sizes=ModelSizes(tuple(SIZES), on_cpu=DEFAULT_SIZE, on_gpu=DEFAULT_SIZE),
        default_sequence_length=POSITIONS,
        cpu_sequence_length=128,
        longest_sequence=POSITIONS,
        decoder=decoder,
    )
