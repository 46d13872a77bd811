"""Reads a Paddle trainer's weights, work and effective settings."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.nn.functional.flash_attention import sdp_kernel

from perfkit.core.frameworks import modules
from perfkit.core.frameworks.effective import dtype_name, rounds_to_tf32
from perfkit.core.frameworks.paddle import TUNING_FLAGS
from perfkit.core.frameworks.trainer import Batch
from perfkit.core.results.schema import Option

PRODUCTS = (
    *("conv2d", "depthwise_conv2d", "matmul", "matmul_v2", "mul", "bmm", "einsum"),
    *("fused_gemm_epilogue", "flash_attn", "memory_efficient_attention"),
)
"""Paddle's matrix-product operators, by their names in dynamic and static graphs."""
DTYPES = ("float16", "bfloat16", "float32", "other")
"""Dtypes by which Paddle counts the calls of an operator, in this order."""
FUSED_ATTENTION = re.compile("flash_attn|memory_efficient_attention")
core = paddle.base.core


class Inspector(modules.Inspector):
    no_grad = staticmethod(paddle.no_grad)
    variables = ("OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE", "NVIDIA_TF32_OVERRIDE")

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self.trainer.network.named_parameters():
            if not parameter.stop_gradient:
                yield name, parameter

    def assign(self, name: str, array: np.ndarray) -> None:
        parameter = dict(self.named_parameters())[name]
        parameter.set_value(array.astype(dtype_name(parameter.dtype)))

    def array(self, tensor: Tensor) -> np.ndarray:
        return tensor.numpy()

    def multiply_adds(self, batch: Batch) -> int:
        """See inspector.Inspector: convolutions, dense layers and calls of paddle.matmul,
        counted from their actual shapes."""
        counts: list[int] = []

        def count(layer: Any, _inputs: Any, output: Tensor) -> None:
            shape = layer.weight.shape
            is_dense = isinstance(layer, paddle.nn.Linear)
            summed = shape[:1] if is_dense else shape[1:]
            counts.append(math.prod(output.shape) * math.prod(summed))

        hooks = []
        for layer in self.trainer.network.sublayers():
            if isinstance(layer, paddle.nn.Conv2D | paddle.nn.Linear):
                hooks.append(layer.register_forward_post_hook(count))
        try:
            # A compiled network would hide layers and calls, and a GPU's fused attention does
            # not call matmul.
            with (
                _interpreted(),
                _counted_matmul(counts),
                sdp_kernel(enable_math=True, enable_flash=False, enable_mem_efficient=False),
            ):
                self.run(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return sum(counts)

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See inspector.Inspector: kernels of matrix products and convolutions in a separate
        forward pass. Layer outputs would mislead: a dense layer computes in float16 but returns
        float32 once its bias is added."""
        kernels = self._kernels(batch)
        counts: Counter[str] = Counter()
        for name in PRODUCTS:
            # `+=` would keep dtypes without calls.
            counts = counts + kernels.get(name, Counter())
        return dict(counts)

    def attention(self, batch: Batch) -> str | None:
        fused = sorted(name for name in self._kernels(batch) if FUSED_ATTENTION.search(name))
        return ", ".join(fused) or super().attention(batch)

    def _kernels(self, batch: Batch) -> dict[str, Counter[str]]:
        """Return operator -> number of calls by dtype in a separate forward pass. Paddle 2
        counts none in a compiled network, which then runs operator by operator."""
        kernels = self._counted_kernels(batch)
        if kernels:
            return kernels
        with _interpreted():
            return self._counted_kernels(batch)

    def _counted_kernels(self, batch: Batch) -> dict[str, Counter[str]]:
        core.clear_low_precision_op_list()
        paddle.set_flags({"FLAGS_low_precision_op_list": 1})
        try:
            self.run(batch)
        finally:
            paddle.set_flags({"FLAGS_low_precision_op_list": 0})
        kernels = {}
        for name, calls in core.get_low_precision_op_list().items():
            counts = calls.split(",") if isinstance(calls, str) else calls
            by_dtype = dict(zip(DTYPES, map(int, counts), strict=True))
            kernels[name.removeprefix("pd_op.")] = Counter(by_dtype)
        return kernels

    def place(self, tensor: Tensor) -> str:
        place = tensor.place
        if place.is_gpu_place():
            return "gpu"
        if place.is_custom_place():
            return str(place.custom_device_type())
        return "xpu" if place.is_xpu_place() else "cpu"

    def tf32(self) -> bool:
        """See inspector.Inspector; Paddle enables TF32 by default on GPUs that support it."""
        if self.device != "gpu":
            return False
        return rounds_to_tf32(paddle.device.cuda.get_device_capability())

    def settings(self) -> dict[str, str]:
        """Read the flags back: a strategy may have changed them after `tune`."""
        if self.device != "gpu":
            return {}
        settings = {flag: _flag(flag) for flag, _value in TUNING_FLAGS.values()}
        fused = getattr(self.trainer.optimizer, "_use_multi_tensor", None)
        settings["optimizer"] = (
            "all parameters at once" if fused else "each parameter by itself"
        )
        return settings

    def strategy_outcomes(self) -> dict[str, Option]:
        return self.trainer.strategy.outcomes


@contextmanager
def _interpreted() -> Iterator[None]:
    """Run compiled networks operator by operator within the block."""
    paddle.jit.enable_to_static(False)
    try:
        yield
    finally:
        paddle.jit.enable_to_static(True)


@contextmanager
def _counted_matmul(counts: list[int]) -> Iterator[None]:
    """Append the multiply-adds of each call of paddle.matmul within the block."""
    matmul = paddle.matmul

    def counted(x: Tensor, y: Tensor, **options: bool) -> Tensor:
        output = matmul(x, y, **options)
        counts.append(math.prod(output.shape) * x.shape[-1])
        return output

    paddle.matmul = counted
    try:
        yield
    finally:
        paddle.matmul = matmul


def _flag(flag: str) -> str:
    try:
        return str(paddle.get_flags(flag)[flag])
    except ValueError:
        return "not in this build of Paddle"
