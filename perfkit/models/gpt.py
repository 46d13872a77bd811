"""GPT-2 124M: Radford et al., Language models are unsupervised multitask learners, 2019: 12
layers of width 768 with 12 heads, normalization before each block and after the last, GELU by
its tanh approximation, as the published code has it. The logits reuse the embedding's weights.

As nanoGPT trains it: vocabulary padded to a multiple of 64, no dropout.
"""

from perfkit.models.model import Decoder, Model, OptimizerDefaults

VOCABULARY = 50_304
"""Ids of tokens are below it: the 50,257 of GPT-2, padded."""
END_OF_TEXT = 50_256
"""The id behind each document."""
POSITIONS = 1024
WIDTH = 768
HEADS = 12
LAYERS = 12
INNER = 4 * WIDTH
"""Width of the dense block of each layer."""
EPSILON = 1e-5
"""Of the layer norms."""
DEVIATION = 0.02
"""Of the normal distribution that the first weights are from."""
RESIDUAL_DEVIATION = DEVIATION / (2 * LAYERS) ** 0.5
"""The same of the dense layers whose output is added to the residual stream, two a layer."""


def product_weights() -> int:
    """The N of Decoder."""
    return LAYERS * (4 * WIDTH**2 + 2 * WIDTH * INNER) + WIDTH * VOCABULARY


def multiply_adds(length: int) -> tuple[int, int]:
    """See Model. All of attention's length x length scores count, the masked half too."""
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
