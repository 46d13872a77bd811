"""The layers in PyTorch.

Weights are initialized as in Paddle, biases with 0. Attention is scaled_dot_product_attention,
which selects the device's fastest kernel and computes the same as Paddle's separate operators.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfkit.core.frameworks.modules import Layers


class Network(Layers, nn.Module):
    container = nn.Module
    reshape = staticmethod(torch.reshape)
    split = staticmethod(torch.chunk)
    tanh = staticmethod(torch.tanh)

    def __init__(self, network: Any, layout: str | None = None) -> None:
        super().__init__()
        self.create(network)
        self.channels_last = layout == "NHWC"
        if self.channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, *inputs: Tensor) -> Any:
        if self.channels_last:
            # A view: PyTorch indexes NCHW for any order in memory.
            inputs = tuple(images.permute(0, 3, 1, 2) for images in inputs)
        return self.network(self, *inputs)

    def new_convolution(
        self, inputs: int, outputs: int, size: int, stride: int = 1, *, bias: bool = False
    ) -> nn.Conv2d:
        layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=bias)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        return layer

    def new_batch_norm(self, channels: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(channels)

    def new_layer_norm(self, width: int, epsilon: float) -> nn.LayerNorm:
        return nn.LayerNorm(width, epsilon)

    def new_dense(self, inputs: int, outputs: int, deviation: float | None) -> nn.Linear:
        layer = nn.Linear(inputs, outputs)
        if deviation:
            nn.init.normal_(layer.weight, std=deviation)
        else:
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    def new_embedding(self, rows: int, width: int, deviation: float) -> nn.Embedding:
        layer = nn.Embedding(rows, width)
        nn.init.normal_(layer.weight, std=deviation)
        return layer

    def new_vector(self, width: int) -> nn.Parameter:
        return nn.Parameter(torch.zeros(width))

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype)

    def relu(self, x: Tensor) -> Tensor:
        return functional.relu(x, inplace=True)

    def gelu(self, x: Tensor, *, approximate: bool) -> Tensor:
        return functional.gelu(x, approximate="tanh" if approximate else "none")

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        if not self.drops:
            return x
        return functional.dropout(x, rate, self.training)

    def max_pool(self, x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
        return functional.max_pool2d(x, size, stride, padding)

    def average_to(self, x: Tensor, count: int) -> Tensor:
        return functional.adaptive_avg_pool2d(x, count)

    def flatten(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def rows(self, table: Tensor, indices: Tensor) -> Tensor:
        return functional.embedding(indices, table)

    def rows_of_each(self, x: Tensor, positions: Tensor) -> Tensor:
        each = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
        return x[each, positions].flatten(0, 1)

    def logits(self, x: Tensor, table: Tensor, bias: Tensor | None = None) -> Tensor:
        return functional.linear(x.flatten(0, -2), table, bias)

    def causal_mask(self, _x: Tensor) -> None:
        return None

    def attention(
        self, parts: Iterable[Tensor], heads: int, mask: Tensor | None, dropout: float
    ) -> Tensor:
        by_head = [part.unflatten(-1, (heads, -1)) for part in parts]
        query, key, value = (part.transpose(1, 2) for part in by_head)
        is_causal = mask is None
        if mask is not None:
            mask = mask.to(query.dtype)
        if not (self.training and self.drops):
            dropout = 0.0
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_causal
        )
        return attended.transpose(1, 2).flatten(2)

    def cross_entropy(
        self, logits: Tensor, labels: Tensor, ignored: int | None = None
    ) -> Tensor:
        labels = labels.flatten()
        if ignored is None:
            return functional.cross_entropy(logits, labels)
        # PyTorch's mean over no rows would be NaN.
        total = functional.cross_entropy(logits, labels, ignore_index=ignored, reduction="sum")
        return total / (labels != ignored).sum().clamp(min=1)
