"""The layers in Paddle.

BERT's attention consists of separate operators, as in the published runs: Paddle 2's fused
attention has no CPU kernel. GPT-2 uses Paddle's scaled_dot_product_attention on a GPU or XPU,
and separate operators on a CPU, where Paddle 3 has no fused kernel and Paddle 2 no kernel at
all, and on plugin devices.
"""

from collections.abc import Iterable
from typing import Any

import paddle
from paddle import Tensor, nn
from paddle.nn import functional
from paddle.nn.initializer import KaimingNormal, Normal

from perfkit.core.frameworks.modules import Layers


class Network(Layers, nn.Layer):
    container = nn.Layer
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

    def new_dense(self, inputs: int, outputs: int, deviation: float | None) -> nn.Linear:
        # By default, Paddle initializes as Glorot and Bengio do.
        weights = Normal(std=deviation) if deviation else None
        return nn.Linear(inputs, outputs, weight_attr=weights)

    def new_embedding(self, rows: int, width: int, deviation: float) -> nn.Embedding:
        return nn.Embedding(rows, width, weight_attr=Normal(std=deviation))

    def new_vector(self, width: int) -> Tensor:
        return self.create_parameter([width], is_bias=True)

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
        self, parts: Iterable[Tensor], heads: int, mask: Tensor | None, dropout: float
    ) -> Tensor:
        query, key, value = (part.reshape([0, 0, heads, -1]) for part in parts)
        if mask is None:
            attended = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True
            )
        else:
            attended = self._unfused_attention(query, key, value, mask, dropout)
        return attended.reshape([0, 0, -1])

    def _unfused_attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float
    ) -> Tensor:
        """Attention of separate operators; all tensors but the mask are batch x length x heads
        x width of a head."""
        query = query.transpose([0, 2, 1, 3])
        key = key.transpose([0, 2, 1, 3])
        value = value.transpose([0, 2, 1, 3])
        query = query * query.shape[-1] ** -0.5
        scores = paddle.matmul(query, key, transpose_y=True) + mask
        weights = functional.softmax(scores)
        if dropout:
            weights = self.dropout(weights, dropout)
        return paddle.matmul(weights, value).transpose([0, 2, 1, 3])

    def cross_entropy(
        self, logits: Tensor, labels: Tensor, ignored: int | None = None
    ) -> Tensor:
        if labels.shape[-1] != 1:
            labels = labels.flatten()
        index = -100 if ignored is None else ignored
        return functional.cross_entropy(logits, labels, ignore_index=index)
