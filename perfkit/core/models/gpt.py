"""GPT-2 124M (Radford et al., Language models are unsupervised multitask learners, 2019): 12
layers of width 768 with 12 heads, pre-norm with a final norm, GELU in the tanh approximation of
the published code. The logits share the embedding's weights. As in nanoGPT, the vocabulary is
padded to a multiple of 64 and there is no dropout.
"""

from perfkit.core.models.model import Decoder, Model, OptimizerDefaults

VOCABULARY = 50_304
"""Size of the vocabulary: GPT-2's 50,257 tokens, padded."""
END_OF_TEXT = 50_256
"""Id of the token after each document."""
POSITIONS = 1024
WIDTH = 768
HEADS = 12
LAYERS = 12
INNER = 4 * WIDTH
"""Hidden width of a layer's dense block."""
EPSILON = 1e-5
"""Epsilon of the layer norms."""
DEVIATION = 0.02
"""Standard deviation of the initial weights."""
RESIDUAL_DEVIATION = DEVIATION / (2 * LAYERS) ** 0.5
"""Standard deviation in the two dense layers per layer that write to the residual stream."""


def product_weights() -> int:
    """Return N of Decoder."""
    return LAYERS * (4 * WIDTH**2 + 2 * WIDTH * INNER) + WIDTH * VOCABULARY


def multiply_adds(length: int) -> tuple[int, int]:
    """See Model. All length x length attention scores count, including the masked half."""
    return 0, length * (product_weights() + LAYERS * 2 * length * WIDTH)


MODEL = Model(
    name="GPT-2 124M pre-training",
    short_name="GPT-2 124M",
    parameters=124_475_904,
    sample="sequence",
    data="tokens",
    inputs=("dataloader", "synthetic"),
    # Brown et al., Language models are few-shot learners, 2020, for 125 M parameters.
    optimizer_defaults={
        "adamw": OptimizerDefaults(lambda _batch: 6e-4, 0.1, betas=(0.9, 0.95), clip_norm=1.0)
    },
    multiply_adds=multiply_adds,
    choices=(VOCABULARY,),
    gpu_batch_size=16,
    cpu_batch_size=1,
    data_dir="data/tokens",
    default_sequence_length=POSITIONS,
    cpu_sequence_length=128,
    longest_sequence=POSITIONS,
    decoder=Decoder(product_weights(), LAYERS, WIDTH),
)
