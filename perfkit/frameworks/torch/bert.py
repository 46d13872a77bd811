"""BERT-base pre-training in PyTorch, the network of bert_paddle.py, which names the source.

Attributes and initial distributions are Paddle's: a normal one of deviation 0.02, biases 0.
Paddle and PyTorch cut it off at -2 and 2, which is as good as not at all.

Attention is PyTorch's scaled_dot_product_attention, of which each device has its fastest form:
scaled products of queries and keys, mask added, softmax, dropout, as Paddle's written out.
"""

import torch
from torch import nn
from torch.nn import functional

from perfkit.models.architecture import BERT_DEVIATION as DEVIATION
from perfkit.models.architecture import BERT_DROPOUT as DROPOUT
from perfkit.models.architecture import BERT_EPSILON as EPSILON
from perfkit.models.architecture import BERT_HEADS as HEADS
from perfkit.models.architecture import BERT_INNER as INNER
from perfkit.models.architecture import BERT_LAYERS as LAYERS
from perfkit.models.architecture import BERT_MASKED as MASKED
from perfkit.models.architecture import BERT_POSITIONS as POSITIONS
from perfkit.models.architecture import BERT_WIDTH as WIDTH
from perfkit.models.data import PADDING, VOCABULARY


def _linear(inputs: int, outputs: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.trunc_normal_(made.weight, std=DEVIATION)
    nn.init.zeros_(made.bias)
    return made


def _embedding(size: int) -> nn.Embedding:
    made = nn.Embedding(size, WIDTH)
    nn.init.trunc_normal_(made.weight, std=DEVIATION)
    return made


class Layer(nn.Module):
    """Self-attention and a dense block of batch x length x width, each added and normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.query = _linear(WIDTH, WIDTH)
        self.key = _linear(WIDTH, WIDTH)
        self.value = _linear(WIDTH, WIDTH)
        self.join = _linear(WIDTH, WIDTH)
        self.norm_attention = nn.LayerNorm(WIDTH, EPSILON)
        self.widen = _linear(WIDTH, INNER)
        self.narrow = _linear(INNER, WIDTH)
        self.norm_dense = nn.LayerNorm(WIDTH, EPSILON)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part(x).unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)
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
        x = self.norm_attention(x + self.dropout(self.join(attended)))
        y = self.narrow(functional.gelu(self.widen(x)))
        return self.norm_dense(x + self.dropout(y))


class Bert(nn.Module):
    """Ids, segments and mask of batch x length, and the positions of masked words of batch x P,
    to the words' scores of (batch * P) x vocabulary and the pairs' scores of batch x 2."""

    inputs = 4

    def __init__(self) -> None:
        super().__init__()
        self.word = _embedding(VOCABULARY)
        self.position = _embedding(POSITIONS)
        self.segment = _embedding(2)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.pool = _linear(WIDTH, WIDTH)
        self.next_sentence = _linear(WIDTH, 2)
        self.transform = _linear(WIDTH, WIDTH)
        self.norm_transform = nn.LayerNorm(WIDTH, EPSILON)
        self.word_bias = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(
        self,
        ids: torch.Tensor,
        segments: torch.Tensor,
        mask: torch.Tensor,
        masked_positions: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length = ids.shape
        order = torch.arange(length, device=ids.device)
        x = self.word(ids) + self.position(order) + self.segment(segments)
        x = self.dropout(self.norm(x))
        added = (1 - mask.to(x.dtype)).reshape(batch, 1, 1, length) * MASKED
        for layer in self.layers:
            x = layer(x, added)
        pairs = self.next_sentence(torch.tanh(self.pool(x[:, 0])))

        rows = torch.arange(batch, device=ids.device).unsqueeze(1)
        words = x[rows, masked_positions].flatten(0, 1)
        words = self.norm_transform(functional.gelu(self.transform(words)))
        return functional.linear(words, self.word.weight, self.word_bias), pairs

    def loss(
        self,
        scores: tuple[torch.Tensor, torch.Tensor],
        masked_ids: torch.Tensor,
        next_sentence: torch.Tensor,
    ) -> torch.Tensor:
        """Mean over the masked words of the batch plus mean over its pairs."""
        words, pairs = scores
        return functional.cross_entropy(
            words, masked_ids.flatten(), ignore_index=PADDING
        ) + functional.cross_entropy(pairs, next_sentence.flatten())

    def accuracy(
        self,
        scores: tuple[torch.Tensor, torch.Tensor],
        masked_ids: torch.Tensor,
        _next_sentence: torch.Tensor,
    ) -> torch.Tensor:
        """The share of masked words that have the highest score."""
        words, wanted = scores[0], masked_ids.flatten()
        used = (wanted != PADDING).float()
        return ((words.argmax(-1) == wanted).float() * used).sum() / used.sum()
