"""Presets of distributed-training options from published suites.

Options are named by their path below `fleet.DistributedStrategy()`. The worker determines the
outcome of each option in the installed Paddle and stores it (`effective.strategy`).
"""

from typing import Any

Options = dict[str, Any]

_PROGRAM: Options = {
    "execution_strategy.num_threads": 2,
    "execution_strategy.num_iteration_per_drop_scope": 100,
    "build_strategy.enable_inplace": False,
    "build_strategy.fuse_elewise_add_act_ops": True,
    "build_strategy.fuse_bn_act_ops": True,
    "nccl_comm_num": 1,
}
_CUDNN_AND_NCCL: Options = {
    "conv_workspace_size_limit": 4000,
    "cudnn_batchnorm_spatial_persistent": True,
    "fuse_grad_size_in_MB": 16,
    "_fuse_grad_size_in_TFLOPS": 50.0,
    "cudnn_exhaustive_search": True,
    "sync_nccl_allreduce": True,
}

STRATEGIES: dict[str, Options] = {
    "none": {},
    # The FleetX benchmark page of ResNet-50.
    "fleetx-fp32": _CUDNN_AND_NCCL | _PROGRAM,
    "fleetx-amp": _CUDNN_AND_NCCL | _PROGRAM | {"amp": True},
    # The FleetX benchmark page of VGG-16.
    "fleetx-vgg16-fp32": _PROGRAM,
    "fleetx-vgg16-amp": _PROGRAM | {"amp": True},
    # Both FleetX pages.
    "fleetx-auto": {"auto": True},
}


def precision_of(strategy: str) -> str | None:
    """Return a preset's precision; None if the preset does not determine it."""
    options = STRATEGIES[strategy]
    if not options:
        return None
    if "auto" in options:
        return "auto"
    return "amp" if "amp" in options else "fp32"
