"""GPT-2 in PyTorch; perfkit.models.gpt names the source.

Attention is PyTorch's scaled_dot_product_attention, of which each device has its fastest form.
"""

import torch
from torch import nn
from torch.nn import functional

from perfkit.models import gpt as facts


def _dense(inputs: int, outputs: int, deviation: float = facts.DEVIATION) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=deviation)
    nn.init.zeros_(layer.bias)
    return layer


def _embedding(size: int) -> nn.Embedding:
    layer = nn.Embedding(size, facts.WIDTH)
    nn.init.normal_(layer.weight, std=facts.DEVIATION)
    return layer


def _norm() -> nn.LayerNorm:
    return nn.LayerNorm(facts.WIDTH, facts.EPSILON)


class Layer(nn.Module):
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (facts.HEADS, -1)).transpose(1, 2)
            for part in self.qkv(self.attention_norm(x)).split(facts.WIDTH, -1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out_proj(attended.transpose(1, 2).flatten(2))
        y = functional.gelu(self.fc1(self.dense_norm(x)), approximate="tanh")
        return x + self.fc2(y)


class Gpt(nn.Module):
    """Ids of batch x length to logits of (batch * length) x vocabulary for the next token."""

    inputs = 1
    attention = "unfused"

    def __init__(self) -> None:
        super().__init__()
        self.token_embeddings = _embedding(facts.VOCABULARY)
        self.position_embeddings = _embedding(facts.POSITIONS)
        self.layers = nn.ModuleList([Layer() for _ in range(facts.LAYERS)])
        self.final_norm = _norm()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.token_embeddings(ids) + self.position_embeddings(positions)
        for layer in self.layers:
            x = layer(x)
        x = self.final_norm(x).flatten(0, 1)
        return functional.linear(x, self.token_embeddings.weight)

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, labels.flatten())
