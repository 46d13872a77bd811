"""BERT-base pre-training, masked words and next sentence: Devlin et al., BERT: pre-training of
deep bidirectional transformers, 2018: 12 layers of width 768 with 12 heads, normalization after
each addition, GELU. The words' logits reuse the embedding's weights.
"""

from perfkit.models.model import Model, OptimizerDefaults

VOCABULARY = 30_522
"""Ids of tokens are below it: the size of BERT's English lower-case vocabulary."""
PADDING = 0
"""The id that fills unused places of a sequence; no word to be guessed has it."""
FIRST_WORD = 999
"""Ids below it are special tokens or unused in that vocabulary."""

POSITIONS = 512
WIDTH = 768
HEADS = 12
LAYERS = 12
INNER = 3072
"""Width of the dense block of each layer."""
DROPOUT = 0.1
EPSILON = 1e-12
"""Of the layer norms."""
DEVIATION = 0.02
"""Of the normal distribution that the first weights are from."""
MASKED = -1e4
"""Added to the scores of padding; float16 still holds it."""


def predictions(sequence_length: int) -> int:
    """Most masked tokens of a sequence: the public trainings' 20 at 128 tokens, 80 at 512."""
    return min(sequence_length, 20) if sequence_length <= 128 else 80


def multiply_adds(length: int) -> tuple[int, int]:
    """See Model; unused predictions are computed too."""
    layer = 4 * WIDTH**2 + 2 * WIDTH * INNER + 2 * length * WIDTH
    next_sentence = WIDTH**2 + 2 * WIDTH
    prediction = WIDTH**2 + WIDTH * VOCABULARY
    return 0, LAYERS * length * layer + next_sentence + predictions(length) * prediction


MODEL = Model(
    name="BERT-base pre-training",
    short_name="BERT-base",
    parameters=110_106_428,
    sample="sequence",
    data="shards",
    inputs=("dataloader", "synthetic"),
    optimizer_defaults={
        # Devlin et al.
        "adamw": OptimizerDefaults(lambda _batch: 1e-4, 0.01),
        # You et al., 2020: the rate grows with the root of the batch, from 1 / 1600 at 512.
        "lamb": OptimizerDefaults(lambda batch: (batch / 512) ** 0.5 / 1600, 0.01),
    },
    multiply_adds=multiply_adds,
    choices=(VOCABULARY, 2),
    gpu_batch_size=32,
    cpu_batch_size=2,
    data_dir="data/sequences",
    default_sequence_length=128,
    longest_sequence=POSITIONS,
    ignored_label=PADDING,
)
