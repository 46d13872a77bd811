"""The layers in PyTorch.

Weights are initialized as in Paddle, biases with 0. Attention is scaled_dot_product_attention,
which selects the device's fastest kernel and computes the same as Paddle's separate operators.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from perfkit.core.frameworks.modules import Layers
from perfkit.core.frameworks.networks import loss_parts


class BlockModule(nn.Module):
    """A block of a network: the container of its layers, whose forward pass runs it."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, state: Any) -> Any:
        return self.compute(*state)

    def recompute(self) -> None:
        """Have the backward pass compute the activations within the block again."""
        self.compute = partial(checkpoint, self.compute, use_reentrant=False)

    def compile_forward(self) -> None:
        """Compile the forward pass of the block."""
        self.compute = torch.compile(self.compute, fullgraph=True, dynamic=False)


class Head(nn.Module):
    """The output layer of a language model, whose rows' logits exist in parts."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the mean cross entropy of all rows; without labels, their most likely
        classes."""
        rows = x.flatten(0, -2)
        parts = loss_parts(len(rows))
        if labels is None:
            return torch.cat([self.logits(rows[part]).argmax(-1) for part in parts])
        labels = labels.flatten()
        if len(parts) == 1:
            return self.sum_of_losses(rows, labels) / len(rows)
        sums = []
        for part in parts:
            share = rows[part], labels[part]
            sums.append(checkpoint(self.sum_of_losses, *share, use_reentrant=False))
        return torch.stack(sums).sum() / len(rows)

    def logits(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.weight)

    def sum_of_losses(self, rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.logits(rows), labels, reduction="sum")


class Network(Layers, nn.Module):
    container = nn.Module
    new_block = BlockModule
    new_tied_head = Head
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

    def new_rms_norm(self, width: int, epsilon: float) -> nn.RMSNorm:
        return nn.RMSNorm(width, epsilon)

    def new_dense(
        self, inputs: int, outputs: int, deviation: float | None, *, bias: bool = True
    ) -> nn.Linear:
        layer = nn.Linear(inputs, outputs, bias=bias)
        if deviation:
            nn.init.normal_(layer.weight, std=deviation)
        else:
            nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        return layer

    def new_head(self, classes: int, width: int, deviation: float) -> Head:
        weight = nn.Parameter(torch.empty(classes, width))
        nn.init.normal_(weight, std=deviation)
        return Head(weight)

    def add_constant(self, name: str, array: np.ndarray) -> None:
        self.register_buffer(name, torch.from_numpy(array), persistent=False)

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

    def swiglu(self, gate: Tensor, x: Tensor) -> Tensor:
        return functional.silu(gate) * x

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
        self,
        parts: Iterable[Tensor],
        heads: int,
        mask: Tensor | None,
        dropout: float,
        kv_heads: int | None = None,
    ) -> Tensor:
        query, key, value = parts
        query = _by_head(query, heads)
        key, value = _by_head(key, kv_heads or heads), _by_head(value, kv_heads or heads)
        is_causal = mask is None
        if mask is not None:
            mask = mask.to(query.dtype)
        if not (self.training and self.drops):
            dropout = 0.0
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=is_causal,
            enable_gqa=kv_heads is not None,
        )
        return attended.transpose(1, 2).flatten(2)

    def rotate(self, x: Tensor, heads: int, cosines: Tensor, sines: Tensor) -> Tensor:
        first, second = x.unflatten(-1, (heads, -1)).chunk(2, -1)
        # As wide as the tables or wider: activations may be bfloat16 or float64.
        cosines, sines = cosines[:, None], sines[:, None]
        rotated = [first * cosines - second * sines, second * cosines + first * sines]
        return torch.cat(rotated, -1).flatten(-2).to(x.dtype)

    def cross_entropy(
        self, logits: Tensor, labels: Tensor, ignored: int | None = None
    ) -> Tensor:
        labels = labels.flatten()
        if ignored is None:
            return functional.cross_entropy(logits, labels)
        # PyTorch's mean over no rows would be NaN.
        total = functional.cross_entropy(logits, labels, ignore_index=ignored, reduction="sum")
        return total / (labels != ignored).sum().clamp(min=1)


def _by_head(x: Tensor, heads: int) -> Tensor:
    """Divide the width of activations among heads: batch x heads x length x width of one
    head."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
