"""The PyTorch backend: device, model, optimizer and training step.

docs/backends.md explains the settings and the alternatives that were tried.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from perfkit.core.config import Config
from perfkit.core.frameworks import modules
from perfkit.core.frameworks.interface import converted
from perfkit.core.frameworks.networks import network_of
from perfkit.core.frameworks.torch import inspector
from perfkit.core.frameworks.torch.layers import Network
from perfkit.core.frameworks.trainer import INITIAL_LOSS_SCALE
from perfkit.core.timing.devices import CpuDevice, Device, GpuDevice
from perfkit.training.models import MOMENTUM, OptimizerSettings

AUTO_CAST = {"amp": torch.float16, "bf16": torch.bfloat16}
FUSED_ATTENTION = ("flash", "mem_efficient", "cudnn")
"""Kernels of scaled_dot_product_attention other than the unfused `math`."""
EXCHANGE_TIMEOUT = timedelta(minutes=3)
"""Time that ranks wait for each other; one may compile what the others have cached."""

Batch = tuple[Tensor, ...]
Inspector = inspector.Inspector


def open_device(config: Config) -> Device:
    # Dropout differs between ranks; weights do not, because DistributedDataParallel broadcasts
    # rank 0's.
    torch.manual_seed(config.seed + int(os.environ.get("RANK", "0")))
    if config.device == "gpu":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.init()
        torch.backends.cuda.matmul.allow_tf32 = config.tf32
        torch.backends.cudnn.allow_tf32 = config.tf32
        torch.backends.cudnn.benchmark = config.tunes("cudnn_search")
        for kernel in FUSED_ATTENTION:
            enable = getattr(torch.backends.cuda, f"enable_{kernel}_sdp")
            enable(config.tunes("fused_attention"))
    if config.ranks > 1:
        library = "nccl" if config.device == "gpu" else "gloo"
        torch.distributed.init_process_group(library, timeout=EXCHANGE_TIMEOUT)
    return GpuDevice(torch.cuda) if config.device == "gpu" else CpuDevice()


def enable_float64() -> None:
    torch.set_default_dtype(torch.float64)


class Trainer(modules.Trainer):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.kind = "cuda" if config.device == "gpu" else "cpu"
        self.dtype = AUTO_CAST.get(config.precision)
        self.network = self._new_network()
        if config.recompute == "full":
            self.network.recompute_blocks()
        self.optimizer = build_optimizer(
            self.optimizer_settings, self.network, fused=config.tunes("fused_optimizer")
        )
        self.scaler = torch.amp.GradScaler(
            self.kind,
            init_scale=INITIAL_LOSS_SCALE,
            enabled=self.dtype == torch.float16,
        )
        self.overflows = torch.zeros((), device=self.kind)
        self.forward = self.network
        if config.execution == "static":
            self.forward = self._compiled()
        # A sharded network exchanges the gradients of every micro-batch: those of all
        # micro-batches would need the memory that it saves.
        self.parallel = config.ranks > 1 and not config.is_sharded
        if self.parallel:
            # As in Paddle, each rank has its own batch-norm statistics.
            self.forward = DistributedDataParallel(
                self.forward, broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def _new_network(self) -> Network:
        config = self.config
        if not config.is_sharded:
            return Network(network_of(config), config.layout).to(self.kind)
        from perfkit.core.frameworks.torch.sharding import ShardedNetwork

        # Every rank draws the weights that rank 0 would broadcast.
        torch.manual_seed(config.seed)
        return ShardedNetwork(config, self.kind, self.dtype)

    def _compiled(self) -> Any:
        """Return the network as trained, compiled as a whole, or by block if it is sharded."""
        if not self.config.is_sharded:
            return torch.compile(self.network, fullgraph=True, dynamic=False)
        compile_blocks(self.network)
        return self.network

    def update(self) -> None:
        align_gradients(self.network.parameters())
        if clip_norm := self.optimizer_settings.clip_norm:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), clip_norm)
        self.scaler.step(self.optimizer)
        if self.scaler.is_enabled():
            overflows = self.scaler._found_inf_per_device(self.optimizer)
            self.overflows += sum(overflows.values())
            self.scaler.update()
        self.zero_grad()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    @property
    def waits_in_update(self) -> bool:
        # A fused optimizer checks for overflows itself, on the device.
        checks_itself = getattr(self.optimizer, "_step_supports_amp_scaling", False)
        return self.scaler.is_enabled() and not checks_itself

    @property
    def skipped_steps(self) -> int:
        return int(self.overflows)

    @property
    def loss_scale(self) -> float | None:
        return self.scaler.get_scale() if self.scaler.is_enabled() else None

    def auto_cast(self) -> Any:
        return torch.autocast(self.kind, self.dtype) if self.dtype else nullcontext()


class Workloads:
    def __init__(self, config: Config) -> None:
        self.dtype = AUTO_CAST.get(config.precision, torch.float32)
        self.kind = "cuda" if config.device == "gpu" else "cpu"

    def matmul(self, size: int) -> Any:
        a = torch.randn(size, size, device=self.kind).to(self.dtype)
        b = torch.randn(size, size, device=self.kind).to(self.dtype)
        return lambda: torch.mm(a, b)

    def copy(self, size_bytes: int) -> Any:
        source = torch.zeros(size_bytes, dtype=torch.int8, device=self.kind)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source)


def largest_of_ranks(value: int) -> int:
    if not torch.distributed.is_initialized():
        return value
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    shared = torch.tensor(value, device=device)
    torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
    return int(shared)


def compile_blocks(network: Network) -> None:
    """Compile the forward pass of each layer of a sharded network, which can't be compiled as a
    whole, since Python code gathers the weights of a layer before it runs."""
    blocks = network.block_modules.values()
    limits = torch._dynamo.config
    # The names of their parts differ, so that each layer is compiled anew.
    limits.recompile_limit = max(limits.recompile_limit, len(blocks))
    for block in blocks:
        block.compile_forward()


def align_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Copy gradients whose strides differ from their parameter's. For an NCHW network,
    torch.compile may return channels-last gradients of 1x1 kernels, which a fused optimizer may
    reject (pytorch/pytorch#126585)."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is not None and gradient.stride() != parameter.stride():
            parameter.grad = torch.empty_like(parameter).copy_(gradient)


def build_optimizer(
    settings: OptimizerSettings, network: nn.Module, *, fused: bool = True
) -> torch.optim.Optimizer:
    """Create the optimizer: fused, or PyTorch's default implementation (`foreach` on a GPU)."""
    fuse = True if fused else None
    parameters = [*network.parameters()]
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "momentum":
        sgd = torch.optim.SGD(parameters, rate, MOMENTUM, weight_decay=decay, fused=fuse)
        # A fused first step that overflows leaves its momentum buffers uninitialized, and the
        # next step reads them. Zeros give the same first step.
        for parameter in parameters:
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, rate, settings.betas, fused=fuse)


def data_loader(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[Batch]:
    pin = torch.cuda.is_initialized()
    loader = torch.utils.data.DataLoader(
        samples, batch_sampler=indices, num_workers=processes, pin_memory=pin
    )
    return map(tuple, loader)


def tensors(batches: Iterator[Batch], config: Config) -> Iterator[Batch]:
    """See Backend; on a CPU, tensors share the input's memory."""
    convert = _on_gpu if config.device == "gpu" else _as_tensor
    return converted(batches, convert)


def _as_tensor(array: Any) -> Tensor:
    return array if isinstance(array, Tensor) else torch.from_dlpack(array)


def _on_gpu(array: Any) -> Tensor:
    """Copy an array asynchronously from pinned memory unless it is on the GPU."""
    tensor = _as_tensor(array)
    if tensor.is_cuda:
        return tensor
    return tensor.pin_memory().to("cuda", non_blocking=True)
