"""BERT-base pre-training on masked words and next sentences (Devlin et al., BERT: pre-training
of deep bidirectional transformers, 2018): 12 layers of width 768 with 12 heads, post-norm,
GELU. The logits of masked words share the embedding's weights.
"""

from perfkit.core.models.model import Model, OptimizerDefaults

VOCABULARY = 30_522
"""Size of BERT's English lower-case vocabulary."""
PADDING = 0
"""Id of padding, which is never a masked word."""
FIRST_WORD = 999
"""First id of a word; lower ids are special or unused tokens of that vocabulary."""

POSITIONS = 512
WIDTH = 768
HEADS = 12
LAYERS = 12
INNER = 3072
"""Hidden width of a layer's dense block."""
DROPOUT = 0.1
EPSILON = 1e-12
"""Epsilon of the layer norms."""
DEVIATION = 0.02
"""Standard deviation of the normal initial weights. Not truncated: Paddle 2 truncates at two
standard deviations, Paddle 3 and PyTorch at -2 and 2."""
MASKED = -1e4
"""Added to the attention scores of padding; representable in float16."""


def predictions(sequence_length: int) -> int:
    """Return the maximum of masked tokens: as in public trainings, 20 of 128, 80 of 512."""
    return min(sequence_length, 20) if sequence_length <= 128 else 80


def multiply_adds(length: int) -> tuple[int, int]:
    """See Model; includes unused predictions, which are computed too."""
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
        # You et al., 2020: square-root scaling of the rate, 1 / 1600 for a batch of 512.
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
