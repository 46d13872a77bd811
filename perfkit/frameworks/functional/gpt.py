"""GPT-2 as a function of a forward pass; perfkit.models.gpt names the source."""

import numpy as np

from perfkit.frameworks.functional.layers import Array, Forward, mean_loss, normal
from perfkit.models import gpt as facts


class Gpt:
    """Ids of batch x length to logits of (batch * length) x vocabulary for the next token."""

    inputs = 1
    attention = "unfused"
    loss = staticmethod(mean_loss)

    def __call__(self, run: Forward, ids: Array) -> Array:
        length = ids.shape[1]
        sizes = facts.WIDTH, facts.DEVIATION
        tokens = run.embedding("token_embeddings", facts.VOCABULARY, *sizes)
        positions = run.embedding("position_embeddings", facts.POSITIONS, *sizes)
        x = run.rows(tokens, ids) + positions[:length]
        mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
        for number in range(facts.LAYERS):
            x = _layer(run, f"layers.{number}", x, mask)
        x = run.cast(run.layer_norm("final_norm", x, facts.WIDTH, facts.EPSILON), run.dtype)
        logits = run.product(x, run.cast(tokens, run.dtype), transposed=True)
        return run.reshape(logits, (-1, facts.VOCABULARY))


def _layer(run: Forward, name: str, x: Array, mask: np.ndarray) -> Array:
    """Causal self-attention and a dense block of batch x length x width, each normalized before
    and added."""
    width, inner = facts.WIDTH, facts.INNER
    usual, residual = normal(facts.DEVIATION), normal(facts.RESIDUAL_DEVIATION)
    y = run.layer_norm(f"{name}.attention_norm", x, width, facts.EPSILON)
    qkv = run.dense(f"{name}.qkv", y, width, 3 * width, usual)
    attended = run.attention(run.split(qkv, 3, -1), facts.HEADS, mask, 0.0)
    x = run.add(x, run.dense(f"{name}.out_proj", attended, width, width, residual))
    y = run.layer_norm(f"{name}.dense_norm", x, width, facts.EPSILON)
    y = run.gelu(run.dense(f"{name}.fc1", y, width, inner, usual), approximate=True)
    return run.add(x, run.dense(f"{name}.fc2", y, inner, width, residual))
