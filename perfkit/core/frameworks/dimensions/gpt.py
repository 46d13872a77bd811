"""GPT-2 (Radford et al., Language models are unsupervised multitask learners, 2019) in its four
published sizes: pre-norm layers with a final norm, GELU in the tanh approximation of the
published code. The logits share the embedding's weights. As in nanoGPT, the vocabulary is
padded to a multiple of 64 and there is no dropout.
"""

from typing import NamedTuple

VOCABULARY = 50_304
"""Size of the vocabulary: GPT-2's 50,257 tokens, padded."""
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
