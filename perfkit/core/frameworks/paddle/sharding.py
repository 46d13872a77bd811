"""Shards a network's parameters, and their gradients and optimizer states, among the ranks by
Paddle's `group_sharded_parallel`. It leaves small parameters whole."""

from typing import Any

from paddle import Tensor, nn
from paddle.distributed.sharding import group_sharded_parallel

LEAST_SHARDED_VALUES = 2**20
"""Parameters with up to so many values stay whole (default of group_sharded_parallel)."""
SHARE = "slice@"
"""Prefix of the name of a parameter's share, by which the optimizer knows it."""


def sharded(network: nn.Layer, optimizer: Any) -> tuple[nn.Layer, Any]:
    """Return the network and the optimizer, which both hold this rank's shares. Before, every
    rank holds the whole network, to which rank 0's weights are copied."""
    network, optimizer, _scaler = group_sharded_parallel(
        network, optimizer, "p_g_os", segment_size=LEAST_SHARDED_VALUES
    )
    return network, optimizer


def whole_name(name: str) -> str:
    """Return the name of the parameter by its own or that of its share."""
    return name.removeprefix(SHARE)


def is_shared_out(parameter: Tensor) -> bool:
    return hasattr(parameter, "fw_storage")


def share_of(parameter: Tensor) -> Tensor:
    """Return this rank's share of a parameter between two steps."""
    return parameter.fw_storage if is_shared_out(parameter) else parameter


def gradient_of(parameter: Tensor) -> Tensor | None:
    """Return the gradient of this rank's share of a parameter; None without a gradient."""
    return parameter.bw_storage if is_shared_out(parameter) else parameter.grad


def in_words(network: nn.Layer) -> str:
    """Return which parameters are sharded."""
    parameters = network.parameters()
    count = sum(is_shared_out(parameter) for parameter in parameters)
    return (
        f"group_sharded_parallel p_g_os: {count} of {len(parameters)} parameters, those with "
        f"over {LEAST_SHARDED_VALUES:,} values"
    )
