"""Llama 3 with Hugging Face's names (Grattafiori et al., The Llama 3 herd of models, 2024),
without the scaling of the rotation that extends the context after pre-training."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from perfkit.training.models import LLAMA_SIZES, LlamaSize

EPSILON = 1e-5
LOSS_ROWS = 8192
"""Rows whose logits exist at the same time: 4 GiB in float32. Those of 131,072 tokens, 63 GiB,
would fill a GPU. With more rows, logits are computed again in the backward pass."""


class Attention(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.head_width = size.head_width
        kv_width = size.kv_heads * size.head_width
        self.q_proj = nn.Linear(size.width, size.width, bias=False)
        self.k_proj = nn.Linear(size.width, kv_width, bias=False)
        self.v_proj = nn.Linear(size.width, kv_width, bias=False)
        self.o_proj = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        query, key, value = (
            product(x).unflatten(-1, (-1, self.head_width))
            for product in (self.q_proj, self.k_proj, self.v_proj)
        )
        # Rotated before they are transposed, which saves copies in the backward pass.
        query, key = rotated(query, cosines, sines), rotated(key, cosines, sines)
        y = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=True,
        )
        return self.o_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size.width, size.inner, bias=False)
        self.up_proj = nn.Linear(size.width, size.inner, bias=False)
        self.down_proj = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(size.width, EPSILON)
        self.self_attn = Attention(size)
        self.post_attention_layernorm = nn.RMSNorm(size.width, EPSILON)
        self.mlp = MLP(size)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(size.vocabulary, size.width)
        self.layers = nn.ModuleList(DecoderLayer(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, EPSILON)
        cosines, sines = rotation(size)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)
        self.recomputes = False

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        tables = self.cosines[: ids.shape[1]], self.sines[: ids.shape[1]]
        for layer in self.layers:
            if self.recomputes:
                x = checkpoint(layer, x, *tables, use_reentrant=False)
            else:
                x = layer(x, *tables)
        return self.norm(x)


class Head(nn.Linear):
    """The output layer, which computes the loss too, since all logits would fill a GPU."""

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of all rows."""
        rows, labels = x.flatten(0, 1), labels.flatten()
        if len(rows) <= LOSS_ROWS:
            return self.sum_of_losses(rows, labels) / len(rows)
        parts = zip(rows.split(LOSS_ROWS), labels.split(LOSS_ROWS), strict=True)
        sums = [checkpoint(self.sum_of_losses, *part, use_reentrant=False) for part in parts]
        return torch.stack(sums).sum() / len(rows)

    def sum_of_losses(self, rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self(rows), labels, reduction="sum")


class Llama(nn.Module):
    """Called with labels, it returns the loss; otherwise the logits."""

    def __init__(self, size: LlamaSize = LLAMA_SIZES["tiny"]) -> None:
        super().__init__()
        self.model = Model(size)
        self.lm_head = Head(size.width, size.vocabulary, bias=False)
        if size.is_tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # The products that write to the residual stream begin smaller, as in GPT-2.
                is_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = (2 * size.layers) ** -0.5 if is_residual else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.model(ids)
        return self.lm_head(x) if labels is None else self.lm_head.loss(x, labels)


def rotation(size: LlamaSize) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines by which the pairs of values of a head rotate at each
    position (positions x head width / 2). Pair i has values i and i + head width / 2."""
    exponents = torch.arange(0, size.head_width, 2, dtype=torch.float64) / size.head_width
    positions = torch.arange(size.positions, dtype=torch.float64)
    angles = torch.outer(positions, size.theta**-exponents)
    return angles.cos().float(), angles.sin().float()


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate queries or keys (batch x length x heads x head width), in float32."""
    first, second = x.chunk(2, -1)
    cosines, sines = cosines[:, None], sines[:, None]
    pairs = first * cosines - second * sines, second * cosines + first * sines
    return torch.cat(pairs, -1).to(x.dtype)
