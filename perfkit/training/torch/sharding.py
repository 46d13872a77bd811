"""Divides Llama among the ranks, layer by layer: each rank holds its share of every parameter,
and of its gradient and optimizer state (FSDP2)."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from perfkit.training.options import Options
from perfkit.training.torch.llama import Llama


def shard(
    model: Llama, options: Options, device: torch.device, dtype: torch.dtype | None
) -> None:
    """Share out the parameters, which every rank has drawn alike.

    Those of a layer are gathered in `dtype` for its forward pass and, with `sharding=full`, for
    its backward pass again. Shares and the sums of gradients are float32. Embedding, final norm
    and head belong to the root, since the head may share the embedding's weight.
    """
    mesh = init_device_mesh(device.type, (options.ranks,))
    gathers_again = options.sharding == "full"
    # Autocast computes the products in `dtype` and the loss in float32, as without sharding.
    # The rotation's tables, which are inputs of the layers, stay in float32.
    policy = MixedPrecisionPolicy(cast_forward_inputs=False)
    if dtype:
        policy = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
    for module in (*model.model.layers, model):
        fully_shard(module, mesh=mesh, reshard_after_forward=gathers_again, mp_policy=policy)
