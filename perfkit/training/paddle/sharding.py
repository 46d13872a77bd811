"""Divides Llama's parameters, and their gradients and optimizer states, among the ranks by
Paddle's `group_sharded_parallel`. It leaves small parameters whole."""

from typing import Any

from paddle import nn
from paddle.distributed.sharding import group_sharded_parallel

LEAST_SHARDED_VALUES = 2**20
"""Parameters with up to so many values stay whole (default of group_sharded_parallel)."""


def shard(model: nn.Layer, optimizer: Any) -> tuple[nn.Layer, Any]:
    """Return the model and the optimizer, which both hold this rank's shares. Before, every
    rank holds the whole model, to which rank 0's weights are copied."""
    model, optimizer, _scaler = group_sharded_parallel(
        model, optimizer, "p_g_os", segment_size=LEAST_SHARDED_VALUES
    )
    return model, optimizer
