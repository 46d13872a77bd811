"""The Paddle backend: device, model, optimizer, training step and effective settings."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
from paddle.nn.functional.flash_attention import sdp_kernel

from perfkit.core.config import Config
from perfkit.core.frameworks import base, modules
from perfkit.core.frameworks.base import (
    CpuDevice,
    Device,
    GpuDevice,
    HostTimedDevice,
    dtype_name,
)
from perfkit.core.frameworks.networks import NETWORKS
from perfkit.core.frameworks.paddle import TUNING_FLAGS
from perfkit.core.frameworks.paddle.layers import Network
from perfkit.core.frameworks.paddle.strategy import Strategy
from perfkit.core.models import MOMENTUM, OptimizerSettings

AUTO_CAST = {
    "amp": ("O1", "float16"),
    "pure_fp16": ("O2", "float16"),
    "bf16": ("O1", "bfloat16"),
}
PRODUCTS = (
    *("conv2d", "depthwise_conv2d", "matmul", "matmul_v2", "mul", "bmm", "einsum"),
    *("fused_gemm_epilogue", "flash_attn", "memory_efficient_attention"),
)
"""Paddle's matrix-product operators, by their names in dynamic and static graphs."""
DTYPES = ("float16", "bfloat16", "float32", "other")
"""Dtypes by which Paddle counts the calls of an operator, in this order."""
FUSED_ATTENTION = re.compile("flash_attn|memory_efficient_attention")
core = paddle.base.core
DenseTensor = getattr(core, "DenseTensor", None) or core.LoDTensor
"""Tensor class that DALI's plugin fills: Paddle 3's name, or Paddle 2's."""

Batch = tuple[paddle.Tensor, ...]


def open_device(config: Config) -> Device:
    if config.device == "cpu":
        # A GPU build would select NCCL and the GPUs.
        os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    if config.ranks > 1:
        paddle.distributed.init_parallel_env()
    paddle.set_device(config.device)
    # Dropout differs between ranks; weights do not, because DataParallel broadcasts rank 0's.
    seed = config.seed + paddle.distributed.get_rank()
    paddle.seed(seed)
    np.random.seed(seed)
    if not config.accelerated:
        return CpuDevice()
    allocated = "Allocated", paddle.framework._current_expected_place_().get_device_id()
    library = SimpleNamespace(
        Event=paddle.device.Event,
        synchronize=paddle.device.synchronize,
        # Available under these names in all versions since 3.0.
        reset_peak_memory_stats=partial(core.device_memory_stat_reset_peak_value, *allocated),
        max_memory_allocated=partial(core.device_memory_stat_peak_value, *allocated),
    )
    # In Paddle 3.3, events of custom devices do not measure time.
    timed = config.device == "gpu" or hasattr(paddle.device.Event().event_base, "elapsed_time")
    return (GpuDevice if timed else HostTimedDevice)(library)


def enable_float64() -> None:
    paddle.set_default_dtype("float64")


def tune(config: Config) -> None:
    """Set the TUNING_FLAGS on a GPU, except unknown flags of this build and settings in
    `disable_tuning`."""
    for setting, (flag, value) in TUNING_FLAGS.items():
        if config.device == "gpu" and config.tunes(setting):
            with suppress(ValueError):
                paddle.set_flags({flag: value})


def _flag(flag: str) -> str:
    try:
        return str(paddle.get_flags(flag)[flag])
    except ValueError:
        return "not in this build of Paddle"


class Trainer(modules.Trainer):
    no_grad = staticmethod(paddle.no_grad)
    variables = ("OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE", "NVIDIA_TF32_OVERRIDE")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        tune(config)
        self.network = Network(NETWORKS[config.model](), config.layout)
        fused = config.device == "gpu" and config.tunes("fused_optimizer")
        self.optimizer = build_optimizer(self.optimizer_settings, self.network, fused=fused)
        self.level, self.dtype = AUTO_CAST.get(config.precision, ("O0", "float32"))
        if self.level == "O2":
            self.network, self.optimizer = paddle.amp.decorate(
                self.network, self.optimizer, level="O2", dtype=self.dtype, master_weight=True
            )
        self.scaler = paddle.amp.GradScaler(
            enable=self.dtype == "float16",
            init_loss_scaling=base.INITIAL_LOSS_SCALE,
            decr_every_n_nan_or_inf=1,
        )
        self.skipped = 0
        self.strategy = Strategy(config)
        self.forward = self.network
        if config.execution == "static":
            self.forward = paddle.jit.to_static(
                self.network, full_graph=True, **self.strategy.to_static
            )
        self.parallel = config.ranks > 1
        if self.parallel:
            self.forward = paddle.DataParallel(self.forward, **self.strategy.data_parallel)

    def update(self) -> None:
        # With loss scaling, waits for the device to read whether a gradient overflowed.
        self.scaler.step(self.optimizer)
        if self.scaler.is_enable():
            self.scaler.update()
            self.skipped += bool(self.optimizer._get_auxiliary_var("found_inf"))
        self.zero_grad()

    def zero_grad(self) -> None:
        self.optimizer.clear_grad()

    @property
    def skipped_steps(self) -> int:
        return self.skipped

    @property
    def loss_scale(self) -> float | None:
        if not self.scaler.is_enable():
            return None
        return float(np.asarray(self.scaler.state_dict()["scale"]).item())

    def auto_cast(self) -> Any:
        if self.level == "O0":
            return nullcontext()
        return paddle.amp.auto_cast(level=self.level, dtype=self.dtype)

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See base.Trainer: kernels of matrix products and convolutions in a separate forward
        pass. Layer outputs would mislead: a dense layer computes in float16 but returns float32
        once its bias is added."""
        kernels = self._kernels(batch)
        return dict(sum((kernels.get(name, Counter()) for name in PRODUCTS), Counter()))

    def attention(self, batch: Batch) -> str | None:
        fused = sorted(name for name in self._kernels(batch) if FUSED_ATTENTION.search(name))
        return ", ".join(fused) or super().attention(batch)

    def _kernels(self, batch: Batch) -> dict[str, Counter[str]]:
        """Return operator -> number of calls by dtype in a separate forward pass. Paddle 2
        counts none in a compiled network, which then runs operator by operator."""
        if counted := self._counted_kernels(batch):
            return counted
        paddle.jit.enable_to_static(False)
        try:
            return self._counted_kernels(batch)
        finally:
            paddle.jit.enable_to_static(True)

    def _counted_kernels(self, batch: Batch) -> dict[str, Counter[str]]:
        core.clear_low_precision_op_list()
        paddle.set_flags({"FLAGS_low_precision_op_list": 1})
        try:
            self.run(batch)
        finally:
            paddle.set_flags({"FLAGS_low_precision_op_list": 0})
        kernels = {}
        for name, calls in core.get_low_precision_op_list().items():
            counts = map(int, calls.split(",") if isinstance(calls, str) else calls)
            by_dtype = Counter(dict(zip(DTYPES, counts, strict=True)))
            kernels[name.removeprefix("pd_op.")] = by_dtype
        return kernels

    def named_parameters(self) -> Iterator[tuple[str, paddle.Tensor]]:
        return ((name, p) for name, p in self.network.named_parameters() if not p.stop_gradient)

    def assign(self, name: str, array: np.ndarray) -> None:
        parameter = dict(self.named_parameters())[name]
        parameter.set_value(array.astype(dtype_name(parameter.dtype)))

    def array(self, tensor: paddle.Tensor) -> np.ndarray:
        return tensor.numpy()

    def multiply_adds(self, batch: Batch) -> int:
        """See base.Trainer: convolutions, dense layers and calls of paddle.matmul, counted from
        their actual shapes."""
        counts, product = [], paddle.matmul

        def count(layer: Any, _inputs: Any, output: paddle.Tensor) -> None:
            is_dense = isinstance(layer, paddle.nn.Linear)
            summed = layer.weight.shape[:1] if is_dense else layer.weight.shape[1:]
            counts.append(math.prod(output.shape) * math.prod(summed))

        def matmul(x: paddle.Tensor, y: paddle.Tensor, **options: bool) -> paddle.Tensor:
            output = product(x, y, **options)
            counts.append(math.prod(output.shape) * x.shape[-1])
            return output

        kinds = paddle.nn.Conv2D, paddle.nn.Linear
        layers = (layer for layer in self.network.sublayers() if isinstance(layer, kinds))
        hooks = [layer.register_forward_post_hook(count) for layer in layers]
        # A compiled network would hide layers and calls.
        paddle.jit.enable_to_static(False)
        paddle.matmul = matmul
        try:
            # A GPU's fused attention does not call matmul.
            with sdp_kernel(enable_math=True, enable_flash=False, enable_mem_efficient=False):
                self.run(batch)
        finally:
            paddle.matmul = product
            paddle.jit.enable_to_static(True)
            for hook in hooks:
                hook.remove()
        return sum(counts)

    def place(self, tensor: paddle.Tensor) -> str:
        place = tensor.place
        if place.is_gpu_place():
            return "gpu"
        if place.is_custom_place():
            return str(place.custom_device_type())
        return "xpu" if place.is_xpu_place() else "cpu"

    def tf32(self) -> bool:
        """See base.Trainer; Paddle enables TF32 by default on GPUs that support it."""
        return self.device == "gpu" and base.rounds_to_tf32(
            paddle.device.cuda.get_device_capability()
        )

    def settings(self) -> dict[str, str]:
        """Read the flags back: a strategy may have changed them after `tune`."""
        if self.device != "gpu":
            return {}
        fused = getattr(self.optimizer, "_use_multi_tensor", None)
        return {flag: _flag(flag) for flag, _ in TUNING_FLAGS.values()} | {
            "optimizer": "all parameters at once" if fused else "each parameter by itself"
        }

    def strategy_outcomes(self) -> dict[str, Any]:
        return self.strategy.outcomes


class Workloads:
    def __init__(self, config: Config) -> None:
        _level, self.dtype = AUTO_CAST.get(config.precision, ("O0", "float32"))

    def matmul(self, size: int) -> Any:
        a, b = (paddle.randn([size, size]).astype(self.dtype) for _ in range(2))
        return lambda: paddle.matmul(a, b)

    def copy(self, size_bytes: int) -> Any:
        source = paddle.zeros([size_bytes], "int8")
        target = paddle.empty_like(source)
        return lambda: paddle.assign(source, target)


def largest_of_ranks(value: int) -> int:
    if paddle.distributed.get_world_size() == 1:
        return value
    shared = paddle.to_tensor([value])
    paddle.distributed.all_reduce(shared, paddle.distributed.ReduceOp.MAX)
    return int(shared.item())


def build_optimizer(
    settings: OptimizerSettings, network: paddle.nn.Layer, *, fused: bool = False
) -> paddle.optimizer.Optimizer:
    """Create the optimizer. `fused`: one kernel for all parameters (momentum only)."""
    parameters = network.parameters()
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "momentum":
        return paddle.optimizer.Momentum(
            rate, MOMENTUM, parameters=parameters, weight_decay=decay, use_multi_tensor=fused
        )
    if settings.optimizer == "adamw":
        names = {p.name for p in parameters if p.ndim > 1}
        clip_norm = settings.clip_norm
        return paddle.optimizer.AdamW(
            rate,
            *settings.betas,
            parameters=parameters,
            weight_decay=decay,
            grad_clip=clip_norm and paddle.nn.ClipGradByGlobalNorm(clip_norm),
            apply_decay_param_fun=names.__contains__,
        )
    return paddle.optimizer.Lamb(
        rate,
        lamb_weight_decay=decay,
        parameters=parameters,
        exclude_from_weight_decay_fn=lambda parameter: parameter.ndim == 1,
    )


def data_loader(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[tuple[Any, ...]]:
    loader = paddle.io.DataLoader(samples, batch_sampler=indices, num_workers=processes)
    return map(tuple, loader)


def tensors(batches: Iterator[tuple[Any, ...]], config: Config) -> Iterator[Batch]:
    """See Backend; on a CPU, tensors share the input's memory."""
    return base.converted(batches, _on_device if config.accelerated else as_tensor)


def _on_device(array: Any) -> paddle.Tensor:
    """Copy an array to the device unless it is there: every operator would copy it and wait."""
    tensor = as_tensor(array)
    if not tensor.place.is_cpu_place():
        return tensor
    return tensor._copy_to(paddle.framework._current_expected_place_(), False)


def as_tensor(array: Any) -> paddle.Tensor:
    """Return an array as a Paddle tensor on the same device, without a copy. Accepts Paddle
    tensors, the DenseTensors that DALI's Paddle plugin fills, and DLPack objects."""
    if isinstance(array, paddle.Tensor):
        return array
    if isinstance(array, DenseTensor):
        return paddle.to_tensor(array, place=array._place())
    # Paddle 2 accepts only a capsule, not a DLPack object.
    return paddle.utils.dlpack.from_dlpack(array.__dlpack__())
