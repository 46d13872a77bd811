"""Shards a network by layer: each rank holds its share of every parameter, and of its gradient
and optimizer state (FSDP2: torch.distributed.fsdp.fully_shard). Imported only where a network
is sharded, because loading FSDP2 takes time."""

from dataclasses import replace

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from perfkit.core.config import Config
from perfkit.core.frameworks.effective import dtype_name
from perfkit.core.frameworks.networks import network_of
from perfkit.core.frameworks.torch.layers import Network


class ShardedNetwork(Network):
    """A network of which every rank holds a share. Weights are gathered in `dtype`, unless it
    is None; shares and the sums of gradients are float32.

    A layer is sharded as soon as its weights have been drawn, so that a rank holds all weights
    of one layer at most, and those outside the layers. Every rank draws the same weights, as if
    the network were not sharded.
    """

    def __init__(self, config: Config, kind: str, dtype: torch.dtype | None) -> None:
        self.mesh = init_device_mesh(kind, (config.ranks,))
        # Autocast computes the products in `dtype` and the loss in float32, as without
        # sharding; the tables of rotations, which are inputs of layers, stay in float32.
        self.policy = MixedPrecisionPolicy(cast_forward_inputs=False)
        if dtype:
            self.policy = replace(self.policy, param_dtype=dtype, reduce_dtype=torch.float32)
        self.gathers_again = config.sharding == "full"
        super().__init__(network_of(config), config.layout)
        self._shard(self)

    def complete_block(self, block: nn.Module) -> None:
        self._shard(block)

    def _shard(self, module: nn.Module) -> None:
        """Share out the parameters of a module that are not shared out yet. They are gathered
        for its forward pass, and for its backward pass again, unless they are kept for it."""
        fully_shard(
            module,
            mesh=self.mesh,
            reshard_after_forward=self.gathers_again,
            mp_policy=self.policy,
        )

    def sharding_in_words(self) -> str:
        """Return how the weights are gathered and the gradients reduced."""
        again = ", again for the backward pass" if self.gathers_again else ""
        gathered = dtype_name(self.policy.param_dtype or torch.float32)
        reduced = dtype_name(self.policy.reduce_dtype or torch.float32)
        words = (
            f"fully_shard of each layer: weights gathered in {gathered}{again}, gradients "
            f"reduced in {reduced}"
        )
        if gathered != reduced:
            words += f"; activations between layers in {gathered}"
        return words
