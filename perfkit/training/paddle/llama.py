"""Llama 3 with Hugging Face's names (Grattafiori et al., The Llama 3 herd of models, 2024),
without the scaling of the rotation that extends the context after pre-training."""

from functools import partial

import paddle
from paddle import ParamAttr, Tensor, nn
from paddle.distributed.fleet import utils
from paddle.nn import functional
from paddle.nn.initializer import Constant, Normal

from perfkit.training.models import LLAMA_SIZES, LlamaSize
from perfkit.training.paddle.attention import attention, causal_mask

EPSILON = 1e-5
LOSS_ROWS = 8192
"""Rows whose logits exist at the same time: 4 GiB in float32. Those of 131,072 tokens, 63 GiB,
would fill a GPU. With more rows, logits are computed again in the backward pass."""
recompute = partial(utils.recompute, use_reentrant=False, preserve_rng_state=False)
"""Computes activations again in the backward pass. There is no dropout; Paddle 2.6 can't
restore the state of random numbers on a CPU."""


def product(inputs: int, outputs: int, deviation: float = 0.02) -> nn.Linear:
    weights = ParamAttr(initializer=Normal(std=deviation))
    return nn.Linear(inputs, outputs, weights, bias_attr=False)


def residual_deviation(size: LlamaSize) -> float:
    """The products that write to the residual stream begin smaller, as in GPT-2."""
    return 0.02 * (2 * size.layers) ** -0.5


class RMSNorm(nn.Layer):
    """Of separate operators: Paddle 3.3's fused one has no kernel for a CPU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = self.create_parameter([width], default_initializer=Constant(1.0))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.astype(self.weight.dtype)
        mean_square = (wide * wide).mean(-1, keepdim=True)
        return (wide * paddle.rsqrt(mean_square + EPSILON) * self.weight).astype(x.dtype)


class Attention(nn.Layer):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.head_width = size.head_width
        kv_width = size.kv_heads * size.head_width
        self.q_proj = product(size.width, size.width)
        self.k_proj = product(size.width, kv_width)
        self.v_proj = product(size.width, kv_width)
        self.o_proj = product(size.width, size.width, residual_deviation(size))

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = (
            project(x).reshape([0, 0, -1, self.head_width])
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotated(query, cosines, sines), rotated(key, cosines, sines)
        return self.o_proj(attention(query, key, value, mask))


class MLP(nn.Layer):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.gate_proj = product(size.width, size.inner)
        self.up_proj = product(size.width, size.inner)
        self.down_proj = product(size.inner, size.width, residual_deviation(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Layer):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(size.width)
        self.self_attn = Attention(size)
        self.post_attention_layernorm = RMSNorm(size.width)
        self.mlp = MLP(size)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Layer):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(
            size.vocabulary, size.width, weight_attr=ParamAttr(initializer=Normal(std=0.02))
        )
        self.layers = nn.LayerList([DecoderLayer(size) for _ in range(size.layers)])
        self.norm = RMSNorm(size.width)
        cosines, sines = rotation(size)
        self.register_buffer("cosines", cosines, persistable=False)
        self.register_buffer("sines", sines, persistable=False)
        self.recomputes = False

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        length = ids.shape[1]
        others = self.cosines[:length], self.sines[:length], causal_mask(length, x.dtype)
        for layer in self.layers:
            x = recompute(layer, x, *others) if self.recomputes else layer(x, *others)
        return self.norm(x)


class Head(nn.Layer):
    """The output layer, which computes the loss too, since all logits would fill a GPU. The
    weight (vocabulary x width) may be the embedding's."""

    def __init__(self, size: LlamaSize, weight: Tensor | None) -> None:
        super().__init__()
        if weight is None:
            weight = self.create_parameter(
                [size.vocabulary, size.width], default_initializer=Normal(std=0.02)
            )
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return paddle.matmul(x, self.weight, transpose_y=True)

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of all rows."""
        rows, labels = x.flatten(0, 1), labels.flatten()
        count = rows.shape[0]
        if count <= LOSS_ROWS:
            return self.sum_of_losses(rows, labels) / count
        sums = []
        for begin in range(0, count, LOSS_ROWS):
            part = rows[begin : begin + LOSS_ROWS], labels[begin : begin + LOSS_ROWS]
            # Reentrant recomputation would tell data parallelism in each part that the weights'
            # gradients are complete.
            sums.append(recompute(self.sum_of_losses, *part))
        return paddle.stack(sums).sum() / count

    def sum_of_losses(self, rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self(rows), labels, reduction="sum")


class Llama(nn.Layer):
    """Called with labels, it returns the loss; otherwise the logits."""

    def __init__(self, size: LlamaSize = LLAMA_SIZES["tiny"]) -> None:
        super().__init__()
        self.model = Model(size)
        shared = self.model.embed_tokens.weight if size.is_tied else None
        self.lm_head = Head(size, shared)

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.model(ids)
        return self.lm_head(x) if labels is None else self.lm_head.loss(x, labels)


def rotation(size: LlamaSize) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines by which the pairs of values of a head rotate at each
    position (positions x 1 x head width / 2). Pair i has values i and i + head width / 2."""
    exponents = paddle.arange(0, size.head_width, 2, dtype="float64") / size.head_width
    positions = paddle.arange(size.positions, dtype="float64")
    angles = paddle.outer(positions, size.theta**-exponents).unsqueeze(1)
    return angles.cos().astype("float32"), angles.sin().astype("float32")


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate queries or keys (batch x length x heads x head width), in float32."""
    # As wide as the norms' weights: activations may be bfloat16.
    wide = paddle.get_default_dtype()
    first, second = x.astype(wide).chunk(2, -1)
    cosines, sines = cosines.astype(wide), sines.astype(wide)
    pairs = [first * cosines - second * sines, second * cosines + first * sines]
    return paddle.concat(pairs, -1).astype(x.dtype)
