"""Attention of the language models.

Paddle 3's fused attention has no kernel for a CPU, Paddle 2's none for a mask: there, and on
the devices of plugins, attention consists of separate operators."""

import paddle
from paddle import Tensor
from paddle.nn import functional


def has_fused_attention() -> bool:
    return paddle.get_device().startswith(("gpu", "xpu"))


def causal_mask(length: int, dtype: str) -> Tensor | None:
    """Return what attention adds to its scores (length x length), minus infinity for later
    tokens; None where it is fused."""
    if has_fused_attention():
        return None
    return paddle.triu(paddle.full([length, length], float("-inf"), dtype), 1)


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """Return batch x length x width for batch x length x heads x head width. Key and value may
    have fewer heads, each shared by as many query heads in a row. Without a mask, attention is
    fused and causal."""
    if mask is None:
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return attended.flatten(2)
    shared_by = query.shape[2] // key.shape[2]
    if shared_by > 1:
        key, value = key.repeat_interleave(shared_by, 2), value.repeat_interleave(shared_by, 2)
    query = query.transpose([0, 2, 1, 3]) * query.shape[-1] ** -0.5
    scores = paddle.matmul(query, key.transpose([0, 2, 3, 1])) + mask
    weights = functional.softmax(scores)
    if dropout:
        weights = functional.dropout(weights, dropout)
    attended = paddle.matmul(weights, value.transpose([0, 2, 1, 3]))
    return attended.transpose([0, 2, 1, 3]).flatten(2)
