"""The precision and the device in which a model effectively trains."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from perfkit.training.effective import (
    check,
    check_tf32,
    dtype_name,
    effective_precision,
    rounds_to_tf32,
)
from perfkit.training.options import Options


def checked_precision(
    options: Options, model: nn.Module, inputs: tuple[Tensor, ...], auto_cast: Any
) -> dict[str, Any]:
    """Return the effective precision, the dtypes in which the layers compute, and whether they
    round to TF32, by a forward pass of `inputs` in evaluation mode, which changes neither
    batch-norm statistics nor random numbers. Raises ConfigMismatchError if they are not what
    was asked for."""
    dtypes: Counter[str] = Counter()

    def count(_layer: Any, _inputs: Any, output: Tensor) -> None:
        dtypes[dtype_name(output.dtype)] += 1

    leaves = [layer for layer in model.modules() if not [*layer.children()]]
    hooks = [layer.register_forward_hook(count) for layer in leaves]
    model.eval()
    with torch.no_grad(), auto_cast:
        model(*inputs)
    model.train()
    for hook in hooks:
        hook.remove()

    parameters = [*model.parameters()]
    weights = {dtype_name(each.dtype) for each in parameters if each.ndim > 1}
    precision = effective_precision(dtypes, weights)
    kinds = {each.device.type for each in (*parameters, *inputs)}
    device = "+".join(sorted("gpu" if kind == "cuda" else kind for kind in kinds))
    check(options, device, precision, dtypes)
    tf32 = False
    if device == "gpu":
        allowed = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
        tf32 = rounds_to_tf32(torch.cuda.get_device_capability(), allowed=allowed)
    check_tf32(options, tf32)
    return {"precision": precision, "dtypes": dict(dtypes), "tf32": tf32}
