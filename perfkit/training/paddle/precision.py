"""The precision and the device in which a model effectively trains."""

from collections import Counter
from contextlib import nullcontext
from typing import Any

import paddle
from paddle import Tensor, nn

from perfkit.training.effective import (
    PrecisionUnknownError,
    check,
    check_tf32,
    dtype_name,
    effective_precision,
    rounds_to_tf32,
)
from perfkit.training.options import Options

PRODUCTS = (
    *("conv2d", "depthwise_conv2d", "matmul", "matmul_v2", "mul", "bmm", "einsum"),
    *("linear_v2", "fused_gemm_epilogue"),
    *("flash_attn", "flash_attn_v3", "memory_efficient_attention"),
)
"""Paddle's matrix-product operators. Paddle 3.3's builds for CUDA compute a dense layer by
`linear_v2` (paddle/nn/functional/common.py)."""
DTYPES = ("float16", "bfloat16", "float32", "other")
"""Dtypes by which Paddle counts the calls of an operator, in this order."""
core = paddle.base.core


def checked_precision(
    options: Options, model: nn.Layer, inputs: tuple[Tensor, ...], auto_cast: Any
) -> dict[str, Any]:
    """Return the effective precision, the dtypes of matrix products and convolutions, and
    whether they round to TF32, by a forward pass of `inputs` in evaluation mode, which changes
    neither batch-norm statistics nor random numbers. Outputs of layers would mislead: a dense
    layer computes in float16 but returns float32 once its bias is added. Raises
    ConfigMismatchError if they are not what was asked for, and PrecisionUnknownError."""
    calls = operator_calls(model, inputs, auto_cast)
    dtypes: Counter[str] = Counter()
    for name in PRODUCTS:
        # `+=` would keep dtypes without calls.
        dtypes = dtypes + calls.get(name, Counter())
    layers = [each for each in model.sublayers() if isinstance(each, nn.Conv2D | nn.Linear)]
    if dtypes.total() < len(layers):
        counted = ", ".join(f"{name} {calls[name].total()}" for name in sorted(calls))
        raise PrecisionUnknownError(
            f"the model has {len(layers)} convolutions and dense layers, but Paddle counted "
            f"{dtypes.total()} products among its operators ({counted}), so the precision of "
            "the training is unknown: perfkit does not know all product operators of this "
            "build of Paddle; measure with another version of Paddle"
        )
    parameters = model.parameters()
    weights = {dtype_name(each.dtype) for each in parameters if each.ndim > 1}
    precision = effective_precision(dtypes, weights)
    device = "+".join(sorted({device_type(tensor) for tensor in (*parameters, *inputs)}))
    check(options, device, precision, dtypes)
    # Paddle uses TF32 on GPUs that have it, unless the driver is told otherwise.
    tf32 = device == "gpu" and rounds_to_tf32(paddle.device.cuda.get_device_capability())
    check_tf32(options, tf32)
    return {"precision": precision, "dtypes": dict(dtypes), "tf32": tf32}


def operator_calls(
    model: nn.Layer, inputs: tuple[Tensor, ...], auto_cast: Any
) -> dict[str, Counter[str]]:
    """Return operator -> number of calls by dtype in a forward pass."""
    core.clear_low_precision_op_list()
    flag = "FLAGS_low_precision_op_list"
    (before,) = paddle.get_flags(flag).values()
    paddle.set_flags({flag: 1})
    model.eval()
    with paddle.no_grad(), auto_cast or nullcontext():
        model(*inputs)
    model.train()
    paddle.set_flags({flag: before})
    calls = {}
    for name, counted in core.get_low_precision_op_list().items():
        counts = counted.split(",") if isinstance(counted, str) else counted
        calls[name] = Counter(dict(zip(DTYPES, map(int, counts), strict=True)))
    return calls


def device_type(tensor: Tensor) -> str:
    place = tensor.place
    if place.is_gpu_place():
        return "gpu"
    if place.is_custom_place():
        return str(place.custom_device_type())
    return "xpu" if place.is_xpu_place() else "cpu"
