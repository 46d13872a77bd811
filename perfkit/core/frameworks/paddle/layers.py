"""The layers in Paddle.

BERT's attention consists of separate operators, as in the published runs: Paddle 2's fused
attention has no CPU kernel. GPT-2 uses Paddle's scaled_dot_product_attention on a GPU or XPU,
and separate operators on a CPU, where Paddle 3 has no fused kernel and Paddle 2 no kernel at
all, and on plugin devices. So does Llama, whose fused attention also has grouped heads. Its
RMSNorm consists of separate operators: Paddle 3.3's fused one has no CPU kernel.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.distributed.fleet.utils import recompute
from paddle.nn import functional
from paddle.nn.initializer import Constant, KaimingNormal, Normal

from perfkit.core.frameworks.modules import Layers
from perfkit.core.frameworks.networks import loss_parts


class BlockLayer(nn.Layer):
    """A block of a network: the container of its layers, whose forward pass runs it."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute

    # Not converted, as Network.forward.
    @paddle.jit.not_to_static
    def forward(self, state: Any) -> Any:
        # to_static does not support *state.
        return self.compute(*state)

    def recompute(self) -> None:
        """Have the backward pass compute the activations within the block again."""
        self.compute = partial(recompute, self.compute, use_reentrant=False)


class RmsNorm(nn.Layer):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = self.create_parameter([width], default_initializer=Constant(1.0))

    @paddle.jit.not_to_static
    def forward(self, x: Tensor) -> Tensor:
        wide = x.astype(self.weight.dtype)
        mean_square = (wide * wide).mean(-1, keepdim=True)
        normed = wide * paddle.rsqrt(mean_square + self.epsilon)
        return (normed * self.weight).astype(x.dtype)


class Head(nn.Layer):
    """The output layer of a language model, whose rows' logits exist in parts."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    @paddle.jit.not_to_static
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the mean cross entropy of all rows; without labels, their most likely
        classes."""
        rows = x.reshape([-1, x.shape[-1]])
        count = rows.shape[0]
        parts = loss_parts(count)
        if labels is None:
            return paddle.concat([self.logits(rows[part]).argmax(-1) for part in parts])
        labels = labels.flatten()
        if len(parts) == 1:
            return self.sum_of_losses(rows, labels) / count
        sums = []
        for part in parts:
            # Reentrant recomputation would tell data parallelism in each part that the weights'
            # gradients are complete.
            share = (rows[part], labels[part])
            sums.append(recompute(self.sum_of_losses, *share, use_reentrant=False))
        return paddle.stack(sums).sum() / count

    def logits(self, rows: Tensor) -> Tensor:
        return paddle.matmul(rows, self.weight, transpose_y=True)

    def sum_of_losses(self, rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.logits(rows), labels, reduction="sum")


class Network(Layers, nn.Layer):
    container = nn.Layer
    new_block = BlockLayer
    new_tied_head = Head
    blocks_are_compiled = False
    """Whether each block is a program (see compiled.py)."""
    cast = staticmethod(paddle.cast)
    gelu = staticmethod(functional.gelu)
    relu = staticmethod(functional.relu)
    reshape = staticmethod(paddle.reshape)
    split = staticmethod(paddle.split)
    tanh = staticmethod(paddle.tanh)

    def __init__(self, network: Any, layout: str | None = None) -> None:
        super().__init__()
        self.layout = layout or "NCHW"
        self.create(network)

    # Not converted for static graphs: nothing here depends on a tensor's values.
    @paddle.jit.not_to_static
    def forward(
        self,
        first: Tensor,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Any:
        # to_static does not support *inputs.
        tensors = (first, segments, mask, positions)
        return self.network(self, *tensors[: self.inputs])

    def new_convolution(
        self, inputs: int, outputs: int, size: int, stride: int = 1, *, bias: bool = False
    ) -> nn.Conv2D:
        # None is a bias of 0.
        bias_attr = None if bias else False
        attributes = {"weight_attr": KaimingNormal(), "bias_attr": bias_attr}
        return nn.Conv2D(
            inputs, outputs, size, stride, size // 2, data_format=self.layout, **attributes
        )

    def new_batch_norm(self, channels: int) -> nn.BatchNorm2D:
        return nn.BatchNorm2D(channels, data_format=self.layout)

    def new_layer_norm(self, width: int, epsilon: float) -> nn.LayerNorm:
        return nn.LayerNorm(width, epsilon)

    def new_rms_norm(self, width: int, epsilon: float) -> RmsNorm:
        return RmsNorm(width, epsilon)

    def new_dense(
        self, inputs: int, outputs: int, deviation: float | None, *, bias: bool = True
    ) -> nn.Linear:
        # By default, Paddle initializes as Glorot and Bengio do.
        weights = Normal(std=deviation) if deviation else None
        bias_attr = None if bias else False
        return nn.Linear(inputs, outputs, weight_attr=weights, bias_attr=bias_attr)

    def new_head(self, classes: int, width: int, deviation: float) -> Head:
        shape = [classes, width]
        return Head(self.create_parameter(shape, default_initializer=Normal(std=deviation)))

    def add_constant(self, name: str, array: np.ndarray) -> None:
        self.register_buffer(name, paddle.to_tensor(array), persistable=False)

    def new_embedding(self, rows: int, width: int, deviation: float) -> nn.Embedding:
        return nn.Embedding(rows, width, weight_attr=Normal(std=deviation))

    def new_vector(self, width: int) -> Tensor:
        return self.create_parameter([width], is_bias=True)

    def swiglu(self, gate: Tensor, x: Tensor) -> Tensor:
        return functional.silu(gate) * x

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        if not self.drops:
            return x
        return functional.dropout(x, rate, training=self.training)

    def max_pool(self, x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
        return functional.max_pool2d(x, size, stride, padding, data_format=self.layout)

    def average_to(self, x: Tensor, count: int) -> Tensor:
        return functional.adaptive_avg_pool2d(x, count, data_format=self.layout)

    def flatten(self, x: Tensor) -> Tensor:
        if self.layout == "NHWC":
            # Dense weights expect channels first in both layouts.
            x = x.transpose([0, 3, 1, 2])
        return x.flatten(1)

    def rows(self, table: Tensor, indices: Tensor) -> Tensor:
        return functional.embedding(indices, table)

    def rows_of_each(self, x: Tensor, positions: Tensor) -> Tensor:
        batch, length, width = x.shape
        rows = positions + paddle.arange(batch).unsqueeze(1) * length
        return paddle.gather(x.reshape([-1, width]), rows.flatten())

    def logits(self, x: Tensor, table: Tensor, bias: Tensor | None = None) -> Tensor:
        rows = x if x.ndim == 2 else x.reshape([-1, x.shape[-1]])
        y = paddle.matmul(rows, table, transpose_y=True)
        return y if bias is None else y + bias

    def causal_mask(self, x: Tensor) -> Tensor | None:
        if self.has_fused_attention():
            return None
        length = x.shape[1]
        return paddle.triu(paddle.full([length, length], float("-inf"), x.dtype), 1)

    @staticmethod
    def has_fused_attention() -> bool:
        return paddle.get_device().startswith(("gpu", "xpu"))

    def attention(
        self,
        parts: Iterable[Tensor],
        heads: int,
        mask: Tensor | None,
        dropout: float,
        kv_heads: int | None = None,
    ) -> Tensor:
        query, key, value = parts
        query = query.reshape([0, 0, heads, -1])
        key = key.reshape([0, 0, kv_heads or heads, -1])
        value = value.reshape([0, 0, kv_heads or heads, -1])
        if mask is None:
            attended = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True
            )
        else:
            attended = self._unfused_attention(query, key, value, mask, dropout)
        return attended.reshape([0, 0, -1])

    def rotate(self, x: Tensor, heads: int, cosines: Tensor, sines: Tensor) -> Tensor:
        batch, length, width = x.shape
        # As wide as the norms' weights: activations may be bfloat16 or float64.
        dtype = paddle.get_default_dtype()
        by_head = x.reshape([batch, length, heads, -1]).astype(dtype)
        first, second = by_head.chunk(2, -1)
        cosines = cosines.unsqueeze(1).astype(dtype)
        sines = sines.unsqueeze(1).astype(dtype)
        rotated = [first * cosines - second * sines, second * cosines + first * sines]
        return paddle.concat(rotated, -1).reshape([batch, length, width]).astype(x.dtype)

    def _unfused_attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float
    ) -> Tensor:
        """Attention of separate operators; all tensors but the mask are batch x length x heads
        x width of a head. As many query heads in a row share each key and value head."""
        query = query.transpose([0, 2, 1, 3])
        key = key.transpose([0, 2, 1, 3])
        value = value.transpose([0, 2, 1, 3])
        query = query * query.shape[-1] ** -0.5
        if query.shape[1] == key.shape[1]:
            scores = paddle.matmul(query, key, transpose_y=True)
            weights = self._weights(scores, mask, dropout)
            return paddle.matmul(weights, value).transpose([0, 2, 1, 3])
        # The rows of all query heads that share a key head form one matrix.
        batch, heads, length, width = query.shape
        grouped = query.reshape([batch, key.shape[1], -1, width])
        scores = paddle.matmul(grouped, key, transpose_y=True)
        weights = self._weights(scores.reshape([batch, heads, length, length]), mask, dropout)
        weights = weights.reshape([batch, key.shape[1], -1, length])
        attended = paddle.matmul(weights, value).reshape([batch, heads, length, width])
        return attended.transpose([0, 2, 1, 3])

    def _weights(self, scores: Tensor, mask: Tensor, dropout: float) -> Tensor:
        weights = functional.softmax(scores + mask)
        return self.dropout(weights, dropout) if dropout else weights

    def cross_entropy(
        self, logits: Tensor, labels: Tensor, ignored: int | None = None
    ) -> Tensor:
        if labels.shape[-1] != 1:
            labels = labels.flatten()
        index = -100 if ignored is None else ignored
        return functional.cross_entropy(logits, labels, ignore_index=index)
