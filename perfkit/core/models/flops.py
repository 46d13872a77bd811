"""The FLOPs of a language model's training step per token, from its size.

    6 N            forward and backward pass of N weights: 2 N and 4 N
    12 L d T       attention of L layers of width d over T tokens, each token to all others
    6 L d T        the same, causally: each token only to those before it

The formulas are those of Chowdhery et al., PaLM, 2022, appendix B, which counts attention in
full, as do nanoGPT and torchtitan; newer Megatron-LM and llm.c count it causally. d is heads
times head size, for most models the hidden size. Recomputed activations do not count: with them
the share is the hardware's (HFU), not the model's (MFU). Suites differ in N: PaLM counts the
weights of matrix products, others all parameters or those without embeddings.
"""

from typing import NamedTuple

FORWARD_PER_WEIGHT = 2
"""FLOPs of the forward pass for a weight and a token: one multiply-add."""
TRAINING_PER_WEIGHT = 3 * FORWARD_PER_WEIGHT
"""The backward pass has two products for each of the forward pass."""
ATTENTION_FULL = 12
"""FLOPs of training for a layer, a unit of width and two tokens: Q K and A V, forward and
backward."""
ATTENTION_CAUSAL = 6


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
    parameters. Attention counts only if layers, hidden size and sequence length are all given;
    the formula tells. `causal`: count the half of attention that a causal mask leaves."""
    weights = TRAINING_PER_WEIGHT * parameters
    if not layers or not hidden_size or not sequence_length:
        return TokenFlops(weights, "6 N")
    factor = ATTENTION_CAUSAL if causal else ATTENTION_FULL
    attention = factor * layers * hidden_size * sequence_length
    return TokenFlops(weights + attention, f"6 N + {factor} L d T")
