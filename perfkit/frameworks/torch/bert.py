"""BERT-base pre-training in PyTorch; perfkit.models.bert names the source.

First weights are Paddle's: a normal distribution, biases 0. Paddle and PyTorch cut it off at -2
and 2, which is as good as not at all.

Attention is PyTorch's scaled_dot_product_attention, of which each device has its fastest form:
scaled products of queries and keys, mask added, softmax, dropout, as Paddle's written out.
"""

import torch
from torch import nn
from torch.nn import functional

from perfkit.models import bert as facts


def _dense(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.trunc_normal_(layer.weight, std=facts.DEVIATION)
    nn.init.zeros_(layer.bias)
    return layer


def _embedding(size: int) -> nn.Embedding:
    layer = nn.Embedding(size, facts.WIDTH)
    nn.init.trunc_normal_(layer.weight, std=facts.DEVIATION)
    return layer


def _norm() -> nn.LayerNorm:
    return nn.LayerNorm(facts.WIDTH, facts.EPSILON)


class Layer(nn.Module):
    """Self-attention and a dense block of batch x length x width, each added and normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out_proj = (
            _dense(facts.WIDTH, facts.WIDTH) for _ in range(4)
        )
        self.attention_norm = _norm()
        self.fc1 = _dense(facts.WIDTH, facts.INNER)
        self.fc2 = _dense(facts.INNER, facts.WIDTH)
        self.output_norm = _norm()
        self.dropout = nn.Dropout(facts.DROPOUT)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part(x).unflatten(-1, (facts.HEADS, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask.to(query.dtype),
            dropout_p=self.dropout.p if self.training else 0.0,
        )
        attended = attended.transpose(1, 2).flatten(2)
        x = self.attention_norm(x + self.dropout(self.out_proj(attended)))
        y = self.fc2(functional.gelu(self.fc1(x)))
        return self.output_norm(x + self.dropout(y))


class Bert(nn.Module):
    """Ids, segments and mask of batch x length, and the positions of masked words of batch x P,
    to logits of (batch * P) x vocabulary for the words and batch x 2 for the next sentence."""

    inputs = 4
    attention = "unfused"

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = _embedding(facts.VOCABULARY)
        self.position_embeddings = _embedding(facts.POSITIONS)
        self.token_type_embeddings = _embedding(2)
        self.embedding_norm = _norm()
        self.dropout = nn.Dropout(facts.DROPOUT)
        self.layers = nn.ModuleList([Layer() for _ in range(facts.LAYERS)])
        self.pooler = _dense(facts.WIDTH, facts.WIDTH)
        self.seq_relationship = _dense(facts.WIDTH, 2)
        self.transform = _dense(facts.WIDTH, facts.WIDTH)
        self.transform_norm = _norm()
        self.decoder_bias = nn.Parameter(torch.zeros(facts.VOCABULARY))

    def forward(
        self,
        ids: torch.Tensor,
        segments: torch.Tensor,
        mask: torch.Tensor,
        masked_positions: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length = ids.shape
        positions = self.position_embeddings(torch.arange(length, device=ids.device))
        x = self.word_embeddings(ids) + positions + self.token_type_embeddings(segments)
        x = self.dropout(self.embedding_norm(x))
        added = (1 - mask.to(x.dtype)).reshape(batch, 1, 1, length) * facts.MASKED
        for layer in self.layers:
            x = layer(x, added)
        nsp_logits = self.seq_relationship(torch.tanh(self.pooler(x[:, 0])))

        rows = torch.arange(batch, device=ids.device).unsqueeze(1)
        masked = x[rows, masked_positions].flatten(0, 1)
        masked = self.transform_norm(functional.gelu(self.transform(masked)))
        mlm_logits = functional.linear(masked, self.word_embeddings.weight, self.decoder_bias)
        return mlm_logits, nsp_logits

    def loss(
        self,
        logits: tuple[torch.Tensor, torch.Tensor],
        masked_ids: torch.Tensor,
        next_sentence: torch.Tensor,
    ) -> torch.Tensor:
        """Mean over the masked words of the batch plus mean over its pairs of sentences."""
        mlm_logits, nsp_logits = logits
        return functional.cross_entropy(
            mlm_logits, masked_ids.flatten(), ignore_index=facts.PADDING
        ) + functional.cross_entropy(nsp_logits, next_sentence.flatten())
