"""GPT-2 with Hugging Face's names (Radford et al., Language models are unsupervised multitask
learners, 2019). As in nanoGPT, the vocabulary is padded to a multiple of 64 and there is no
dropout."""

import paddle
from paddle import ParamAttr, Tensor, nn
from paddle.nn import functional
from paddle.nn.initializer import Normal

from perfkit.training.models import GPT_SIZES, GptSize
from perfkit.training.paddle.attention import attention, causal_mask


def normal(deviation: float = 0.02) -> ParamAttr:
    return ParamAttr(initializer=Normal(std=deviation))


def residual(size: GptSize) -> ParamAttr:
    """The products that write to the residual stream begin smaller."""
    return normal(0.02 * (2 * size.layers) ** -0.5)


class Attention(nn.Layer):
    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.c_attn = nn.Linear(size.width, 3 * size.width, normal())
        self.c_proj = nn.Linear(size.width, size.width, residual(size))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        by_head = self.c_attn(x).reshape([0, 0, 3 * self.heads, -1])
        query, key, value = by_head.chunk(3, axis=2)
        return self.c_proj(attention(query, key, value, mask))


class MLP(nn.Layer):
    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.c_fc = nn.Linear(size.width, 4 * size.width, normal())
        self.c_proj = nn.Linear(4 * size.width, size.width, residual(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate=True))


class Block(nn.Layer):
    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(size.width)
        self.attn = Attention(size)
        self.ln_2 = nn.LayerNorm(size.width)
        self.mlp = MLP(size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), mask)
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Layer):
    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.wte = nn.Embedding(size.vocabulary, size.width, weight_attr=normal())
        self.wpe = nn.Embedding(size.positions, size.width, weight_attr=normal())
        self.h = nn.LayerList([Block(size) for _ in range(size.layers)])
        self.ln_f = nn.LayerNorm(size.width)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        x = self.wte(ids) + self.wpe.weight[:length]
        mask = causal_mask(length, x.dtype)
        for block in self.h:
            x = block(x, mask)
        return self.ln_f(x)


class GPT(nn.Layer):
    def __init__(self, size: GptSize = GPT_SIZES["124M"]) -> None:
        super().__init__()
        self.transformer = Transformer(size)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits (batch x length x vocabulary) of token ids (batch x length)."""
        x = self.transformer(ids)
        return paddle.matmul(x, self.transformer.wte.weight, transpose_y=True)
