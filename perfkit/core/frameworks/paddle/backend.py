"""The Paddle backend: device, model, optimizer and training step."""

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from perfkit.core.config import Config
from perfkit.core.frameworks import modules
from perfkit.core.frameworks.interface import converted
from perfkit.core.frameworks.networks import network_of
from perfkit.core.frameworks.paddle import TUNING_FLAGS, inspector, sharding
from perfkit.core.frameworks.paddle.compiled import compile_blocks, compile_whole
from perfkit.core.frameworks.paddle.layers import Network
from perfkit.core.frameworks.paddle.strategy import Strategy
from perfkit.core.frameworks.trainer import INITIAL_LOSS_SCALE
from perfkit.core.timing.devices import CpuDevice, Device
from perfkit.core.timing.frameworks import paddle_accelerator
from perfkit.training.models import MOMENTUM, OptimizerSettings

AUTO_CAST = {
    "amp": ("O1", "float16"),
    "pure_fp16": ("O2", "float16"),
    "bf16": ("O1", "bfloat16"),
}
core = paddle.base.core
DenseTensor = getattr(core, "DenseTensor", None) or core.LoDTensor
"""Tensor class that DALI's plugin fills: Paddle 3's name, or Paddle 2's."""

Batch = tuple[Tensor, ...]
Inspector = inspector.Inspector


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
    return paddle_accelerator(paddle, config.device)


def enable_float64() -> None:
    paddle.set_default_dtype("float64")


def tune(config: Config) -> None:
    """Set the TUNING_FLAGS on a GPU, except unknown flags of this build and settings in
    `disable_tuning`."""
    for setting, (flag, value) in TUNING_FLAGS.items():
        if config.device == "gpu" and config.tunes(setting):
            with suppress(ValueError):
                paddle.set_flags({flag: value})


class Trainer(modules.Trainer):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        tune(config)
        self.network = Network(network_of(config), config.layout)
        if config.recompute == "full":
            self.network.recompute_blocks()
        fused = config.device == "gpu" and config.tunes("fused_optimizer")
        self.optimizer = build_optimizer(self.optimizer_settings, self.network, fused=fused)
        self.level, self.dtype = AUTO_CAST.get(config.precision, ("O0", "float32"))
        if self.level == "O2":
            self.network, self.optimizer = paddle.amp.decorate(
                self.network, self.optimizer, level="O2", dtype=self.dtype, master_weight=True
            )
        self.scaler = paddle.amp.GradScaler(
            enable=self.dtype == "float16",
            init_loss_scaling=INITIAL_LOSS_SCALE,
            decr_every_n_nan_or_inf=1,
        )
        self.skipped = 0
        self.strategy = Strategy(config)
        # A sharded network exchanges the gradients of every micro-batch.
        self.parallel = config.ranks > 1 and not config.is_sharded
        if config.execution == "static":
            compile_network = compile_blocks if self.parallel else compile_whole
            compile_network(self.network, **self.strategy.to_static)
        self.forward = self.network
        if self.parallel:
            self.forward = paddle.DataParallel(self.network, **self.strategy.data_parallel)
        if config.is_sharded:
            self.forward, self.optimizer = sharding.sharded(self.network, self.optimizer)

    def update(self) -> None:
        self.scaler.step(self.optimizer)
        if self.scaler.is_enable():
            self.scaler.update()
            self.skipped += bool(self.optimizer._get_auxiliary_var("found_inf"))
        self.zero_grad()

    def zero_grad(self) -> None:
        self.optimizer.clear_grad()

    @property
    def waits_in_update(self) -> bool:
        return bool(self.scaler.is_enable())

    @property
    def skipped_steps(self) -> int:
        return self.skipped

    @property
    def loss_scale(self) -> float | None:
        if not self.scaler.is_enable():
            return None
        scale = self.scaler.state_dict()["scale"]
        return float(np.asarray(scale).item())

    def auto_cast(self) -> Any:
        if self.level == "O0":
            return nullcontext()
        return paddle.amp.auto_cast(level=self.level, dtype=self.dtype)


class Workloads:
    def __init__(self, config: Config) -> None:
        _level, self.dtype = AUTO_CAST.get(config.precision, ("O0", "float32"))

    def matmul(self, size: int) -> Any:
        a = paddle.randn([size, size]).astype(self.dtype)
        b = paddle.randn([size, size]).astype(self.dtype)
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
        matrices = {p.name for p in parameters if p.ndim > 1}
        clip = None
        if settings.clip_norm:
            clip = paddle.nn.ClipGradByGlobalNorm(settings.clip_norm)
        return paddle.optimizer.AdamW(
            rate,
            *settings.betas,
            parameters=parameters,
            weight_decay=decay,
            grad_clip=clip,
            apply_decay_param_fun=lambda name: sharding.whole_name(name) in matrices,
        )
    return paddle.optimizer.Lamb(
        rate,
        lamb_weight_decay=decay,
        parameters=parameters,
        exclude_from_weight_decay_fn=lambda parameter: parameter.ndim == 1,
    )


def data_loader(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[Batch]:
    loader = paddle.io.DataLoader(samples, batch_sampler=indices, num_workers=processes)
    return map(tuple, loader)


def tensors(batches: Iterator[Batch], config: Config) -> Iterator[Batch]:
    """See Backend; on a CPU, tensors share the input's memory."""
    return converted(batches, _on_device if config.accelerated else as_tensor)


def _on_device(array: Any) -> Tensor:
    """Copy an array to the device unless it is there: every operator would copy it and wait."""
    tensor = as_tensor(array)
    if not tensor.place.is_cpu_place():
        return tensor
    return tensor._copy_to(paddle.framework._current_expected_place_(), False)


def as_tensor(array: Any) -> Tensor:
    """Return an array as a Paddle tensor on the same device, without a copy. Accepts Paddle
    tensors, the DenseTensors that DALI's Paddle plugin fills, and DLPack objects."""
    if isinstance(array, Tensor):
        return array
    if isinstance(array, DenseTensor):
        return paddle.to_tensor(array, place=array._place())
    # Paddle 2 accepts only a capsule, not a DLPack object.
    return paddle.utils.dlpack.from_dlpack(array.__dlpack__())
