"""FLOPs of a language model by its number of parameters: scripts and logs tell little more."""

from typing import NamedTuple


class TokenFlops(NamedTuple):
    """FLOPs of training per token, and the formula that they come from."""

    flops: float
    formula: str


def flops_per_token(
    parameters: float,
    layers: int | None = None,
    hidden_size: int | None = None,
    sequence_length: int | None = None,
    *,
    causal: bool = False,
) -> TokenFlops:
    """Return the FLOPs of forward and backward pass per token of a model with this many
    parameters (Chowdhery et al., PaLM, 2022, appendix B).

    6 N is forward and backward pass of N weights: 2 N and 4 N. Attention of L layers of width d
    over T tokens adds 12 L d T, each token to all others, as nanoGPT and torchtitan count it;
    `causal` counts 6 L d T, each token to those before it, as newer Megatron-LM and llm.c do.
    It counts only if layers, hidden size and sequence length are all given; the formula tells.
    d is heads times head size, for most models the hidden size. Recomputed activations do not
    count: with them the share is the hardware's (HFU), not the model's (MFU). Suites differ in
    N: PaLM counts the weights of matrix products, others all parameters or those without
    embeddings.
    """
    weights = 6 * parameters
    if not layers or not hidden_size or not sequence_length:
        return TokenFlops(weights, "6 N")
    factor = 6 if causal else 12
    attention = factor * layers * hidden_size * sequence_length
    return TokenFlops(weights + attention, f"6 N + {factor} L d T")
