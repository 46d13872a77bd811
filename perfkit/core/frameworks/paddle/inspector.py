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
from perfkit.core.frameworks.effective import (
    EXCHANGED_AFTERWARDS,
    EXCHANGED_MEANWHILE,
    PrecisionUnknownError,
    dtype_name,
    rounds_to_tf32,
)
from perfkit.core.frameworks.networks import Outline, loss_parts, network_of
from perfkit.core.frameworks.paddle import TUNING_FLAGS, sharding
from perfkit.core.frameworks.trainer import Batch
from perfkit.core.results.schema import Option

PRODUCTS = (
    *("conv2d", "depthwise_conv2d", "matmul", "matmul_v2", "mul", "bmm", "einsum"),
    *("linear_v2", "fused_gemm_epilogue"),
    *("flash_attn", "flash_attn_v3", "memory_efficient_attention"),
)
"""Paddle's matrix-product operators, by their names in dynamic and static graphs. Paddle 3.3's
builds for CUDA compute a dense layer by `linear_v2` (paddle/nn/functional/common.py)."""
TRACE_RUN = "FLAGS_enable_pir_in_executor_trace_run"
"""Paddle 3's flag to run a program's operators in one thread. Its counts of operators are not
protected from simultaneous changes by several threads."""
DTYPES = ("float16", "bfloat16", "float32", "other")
"""Dtypes by which Paddle counts the calls of an operator, in this order."""
FUSED_ATTENTION = re.compile("flash_attn|memory_efficient_attention")
core = paddle.base.core

Kernels = dict[str, Counter[str]]
"""Operator -> number of calls by dtype."""


class Inspector(modules.Inspector):
    no_grad = staticmethod(paddle.no_grad)
    variables = ("OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE", "NVIDIA_TF32_OVERRIDE")

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self.trainer.network.named_parameters():
            if not parameter.stop_gradient:
                yield name, parameter

    def named_gradients(self) -> Iterator[tuple[str, Tensor]]:
        if not self.trainer.config.is_sharded:
            yield from super().named_gradients()
            return
        for name, parameter in self.named_parameters():
            yield name, sharding.gradient_of(parameter)

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
        self._check_complete(counts.total(), kernels, batch)
        return dict(counts)

    def _check_complete(self, products: int, kernels: Kernels, batch: Batch) -> None:
        """Raise PrecisionUnknownError if a forward pass of these kernels had another number of
        matrix products than the network's description has for this batch."""
        config = self.trainer.config
        calls = Outline(network_of(config)).calls
        fused = sum(kernels[name].total() for name in _fused_attention(kernels))
        # Attention is two products, or one fused kernel.
        attention = 2 * calls["attention"] - fused
        expected = calls["convolution"] + calls["dense"] + calls["logits"] + attention
        if calls["head"]:
            rows = math.prod(batch[0].shape)
            expected += len(loss_parts(rows))
        if products != expected:
            counted = ", ".join(f"{name} {kernels[name].total()}" for name in sorted(kernels))
            raise PrecisionUnknownError(
                f"the network has {expected} matrix products and convolutions, but Paddle "
                f"counted {products} among its operators ({counted}), so the precision of the "
                f"training is unknown: perfkit does not know all product operators of this "
                f"build of Paddle; measure with another version of Paddle"
            )

    def attention(self, batch: Batch) -> str | None:
        return ", ".join(_fused_attention(self._kernels(batch))) or super().attention(batch)

    def _kernels(self, batch: Batch) -> Kernels:
        """Return operator -> number of calls by dtype in a separate forward pass. Paddle 2
        counts none in a compiled network, which then runs operator by operator."""
        kernels = self._counted_kernels(batch)
        if kernels:
            return kernels
        with _interpreted():
            return self._counted_kernels(batch)

    def _counted_kernels(self, batch: Batch) -> Kernels:
        core.clear_low_precision_op_list()
        with _flag_set("FLAGS_low_precision_op_list"), _flag_set(TRACE_RUN):
            self.run(batch)
        kernels = {}
        for name, calls in core.get_low_precision_op_list().items():
            counts = calls.split(",") if isinstance(calls, str) else calls
            by_dtype = dict(zip(DTYPES, map(int, counts), strict=True))
            kernels[name.removeprefix("pd_op.")] = Counter(by_dtype)
        return kernels

    def place(self, tensor: Tensor) -> str:
        place = sharding.share_of(tensor).place
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
        settings = {"execution": self._execution()}
        if self.trainer.config.is_sharded:
            settings["sharding"] = sharding.in_words(self.trainer.network)
        if self.trainer.config.recompute == "full":
            settings["recompute"] = "each layer, by fleet.utils.recompute"
        if self.trainer.parallel:
            settings["gradient_exchange"] = self._gradient_exchange()
        if self.device != "gpu":
            return settings
        # Read back, because a strategy may have changed the flags after `tune`.
        for flag, _value in TUNING_FLAGS.values():
            settings[flag] = _flag(flag)
        fused = getattr(self.trainer.optimizer, "_use_multi_tensor", None)
        settings["optimizer"] = (
            "all parameters at once" if fused else "each parameter by itself"
        )
        return settings

    def _execution(self) -> str:
        if self.trainer.config.execution == "dynamic":
            return "operator by operator"
        if self.trainer.network.blocks_are_compiled:
            return "to_static, a program for each block"
        return "to_static, one program"

    def _gradient_exchange(self) -> str:
        """Return when DataParallel exchanges gradients: each bucket as soon as its gradients
        are ready. Those of one program, or of one bucket, are ready at the end."""
        is_dynamic = self.trainer.config.execution == "dynamic"
        ripen_early = is_dynamic or self.trainer.network.blocks_are_compiled
        buckets = len(self.trainer.forward.group_indices)
        if ripen_early and buckets > 1:
            return EXCHANGED_MEANWHILE
        return EXCHANGED_AFTERWARDS

    @property
    def recomputes_logits(self) -> bool:
        """See inspector.Inspector: a program of to_static computes nothing again."""
        return bool(self.trainer.config.execution == "dynamic")

    def strategy_outcomes(self) -> dict[str, Option]:
        return self.trainer.strategy.outcomes


def _fused_attention(kernels: Kernels) -> list[str]:
    return sorted(name for name in kernels if FUSED_ATTENTION.search(name))


@contextmanager
def _flag_set(flag: str) -> Iterator[None]:
    """Set a flag within the block if this build of Paddle has it."""
    try:
        (before,) = paddle.get_flags(flag).values()
    except ValueError:
        yield
        return
    paddle.set_flags({flag: 1})
    try:
        yield
    finally:
        paddle.set_flags({flag: before})


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
