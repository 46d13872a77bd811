"""Llama 3 (Grattafiori et al., The Llama 3 herd of models, 2024) as published for 8B (3.1) and
1B (3.2), and a tiny size with the same vocabulary for CPUs.

A decoder with RMSNorm before attention and before the dense block, rotary positions (Su et al.,
RoFormer, 2021) without the scaling that extends the context after pre-training, attention in
which several query heads share a key and a value head (Ainslie et al., GQA, 2023), and a gated
dense block (Shazeer, GLU variants improve Transformer, 2020). No layer has a bias. There is no
dropout. The smaller sizes' output layer shares the embedding's weights.
"""

from typing import NamedTuple

import numpy as np

VOCABULARY = 128_256
"""Size of the vocabulary: 128,000 tokens of text and 256 special ones."""
LONGEST = 32_768
"""Longest sequence that is supported, tokens."""
EPSILON = 1e-5
"""Epsilon of the norms."""
THETA = 500_000.0
"""Base of the rotation's wavelengths."""
DEVIATION = 0.02
"""Standard deviation of the initial weights."""


class Size(NamedTuple):
    """The dimensions of one size. `heads` are the query heads, `inner` is the hidden width of a
    layer's dense block, `is_tied` tells whether the output layer shares the embedding's
    weights."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    is_tied: bool

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        return self.kv_heads * self.head_width

    @property
    def residual_deviation(self) -> float:
        """Standard deviation in the two dense layers per layer that write to the residual
        stream, as in GPT-2."""
        return DEVIATION / (2 * self.layers) ** 0.5


SIZES = {
    "tiny": Size(4, 256, 4, 2, 896, is_tied=True),
    "1b": Size(16, 2048, 32, 8, 8192, is_tied=True),
    "8b": Size(32, 4096, 32, 8, 14_336, is_tied=False),
}
NAMES = {"tiny": "Llama 3 tiny", "1b": "Llama 3.2 1B", "8b": "Llama 3.1 8B"}
CPU_SIZE, GPU_SIZE = "tiny", "1b"
"""Default sizes."""


def rotation_tables(head_width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosines and sines by which a head's pairs of values rotate at each position:
    float32, LONGEST x head_width / 2. Pair i has values i and i + head_width / 2."""
    exponents = np.arange(0, head_width, 2) / head_width
    angles = np.outer(np.arange(LONGEST), THETA**-exponents)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
