"""GPT-2 in Paddle; perfkit.models.gpt names the source.

On a GPU or XPU, attention is Paddle's scaled_dot_product_attention; it is written out on a CPU,
where Paddle has no fused kernel and Paddle 2 not even another, and on devices of plugins.
"""

import paddle
from paddle import nn
from paddle.nn import functional

from perfkit.models import gpt as facts


def _dense(inputs: int, outputs: int, deviation: float = facts.DEVIATION) -> nn.Linear:
    return nn.Linear(inputs, outputs, weight_attr=nn.initializer.Normal(std=deviation))


def _embedding(size: int) -> nn.Embedding:
    weight = nn.initializer.Normal(std=facts.DEVIATION)
    return nn.Embedding(size, facts.WIDTH, weight_attr=weight)


def _norm() -> nn.LayerNorm:
    return nn.LayerNorm(facts.WIDTH, facts.EPSILON)


def _has_fused_attention() -> bool:
    return paddle.get_device().startswith(("gpu", "xpu"))


def _attention(
    query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor, mask: paddle.Tensor | None
) -> paddle.Tensor:
    """Causal attention, all of batch x length x heads x width; by the fused kernel without a
    mask."""
    if mask is None:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    query, key, value = (part.transpose([0, 2, 1, 3]) for part in (query, key, value))
    scores = paddle.matmul(query * query.shape[-1] ** -0.5, key, transpose_y=True) + mask
    return paddle.matmul(functional.softmax(scores), value).transpose([0, 2, 1, 3])


class Layer(nn.Layer):
    """Causal self-attention and a dense block of batch x length x width, each normalized before
    and added."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = _norm()
        self.qkv = _dense(facts.WIDTH, 3 * facts.WIDTH)
        self.out_proj = _dense(facts.WIDTH, facts.WIDTH, facts.RESIDUAL_DEVIATION)
        self.dense_norm = _norm()
        self.fc1 = _dense(facts.WIDTH, facts.INNER)
        self.fc2 = _dense(facts.INNER, facts.WIDTH, facts.RESIDUAL_DEVIATION)

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor | None) -> paddle.Tensor:
        query, key, value = (
            part.reshape([0, 0, facts.HEADS, facts.WIDTH // facts.HEADS])
            for part in self.qkv(self.attention_norm(x)).split(3, -1)
        )
        attended = _attention(query, key, value, mask)
        x = x + self.out_proj(attended.reshape([0, 0, facts.WIDTH]))
        y = functional.gelu(self.fc1(self.dense_norm(x)), approximate=True)
        return x + self.fc2(y)


class Gpt(nn.Layer):
    """Ids of batch x length to logits of (batch * length) x vocabulary for the next token."""

    inputs = 1
    attention = "unfused"

    def __init__(self) -> None:
        super().__init__()
        self.token_embeddings = _embedding(facts.VOCABULARY)
        self.position_embeddings = _embedding(facts.POSITIONS)
        self.layers = nn.LayerList([Layer() for _ in range(facts.LAYERS)])
        self.final_norm = _norm()

    def forward(self, ids: paddle.Tensor) -> paddle.Tensor:
        length = ids.shape[1]
        x = self.token_embeddings(ids) + self.position_embeddings(paddle.arange(length))
        mask = None
        if not _has_fused_attention():
            mask = paddle.triu(paddle.full([length, length], float("-inf"), x.dtype), 1)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.final_norm(x).reshape([-1, facts.WIDTH])
        return paddle.matmul(x, self.token_embeddings.weight, transpose_y=True)

    def loss(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        return functional.cross_entropy(logits, labels.flatten())
