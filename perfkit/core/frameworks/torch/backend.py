"""The PyTorch backend: device, model, optimizer, training step and effective settings.

docs/backends.md explains the settings and the alternatives that were tried.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from perfkit.core.config import Config
from perfkit.core.frameworks import base, modules
from perfkit.core.frameworks.base import CpuDevice, Device, GpuDevice, dtype_name
from perfkit.core.frameworks.networks import NETWORKS
from perfkit.core.frameworks.torch.layers import Network
from perfkit.core.models import MOMENTUM, OptimizerSettings

AUTO_CAST = {"amp": torch.float16, "bf16": torch.bfloat16}
FUSED_ATTENTION = ("flash", "mem_efficient", "cudnn")
"""Kernels of scaled_dot_product_attention other than the unfused `math`."""
EXCHANGE_TIMEOUT = timedelta(minutes=3)
"""Time that ranks wait for each other; one may compile what the others have cached."""

Batch = tuple[torch.Tensor, ...]


def open_device(config: Config) -> Device:
    rank = int(os.environ.get("RANK", "0"))
    # Dropout differs between ranks; weights do not, because DistributedDataParallel broadcasts
    # rank 0's.
    torch.manual_seed(config.seed + rank)
    if config.device == "gpu":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.init()
        torch.backends.cuda.matmul.allow_tf32 = config.tf32
        torch.backends.cudnn.allow_tf32 = config.tf32
        torch.backends.cudnn.benchmark = config.tunes("cudnn_search")
        for fused in FUSED_ATTENTION:
            getattr(torch.backends.cuda, f"enable_{fused}_sdp")(config.tunes("fused_attention"))
    if config.ranks > 1:
        library = "nccl" if config.device == "gpu" else "gloo"
        torch.distributed.init_process_group(library, timeout=EXCHANGE_TIMEOUT)
    return GpuDevice(torch.cuda) if config.device == "gpu" else CpuDevice()


def enable_float64() -> None:
    torch.set_default_dtype(torch.float64)


class Trainer(modules.Trainer):
    no_grad = staticmethod(torch.no_grad)
    variables = ("OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.kind = "cuda" if config.device == "gpu" else "cpu"
        self.dtype = AUTO_CAST.get(config.precision)
        self.network = Network(NETWORKS[config.model](), config.layout).to(self.kind)
        self.optimizer = build_optimizer(
            self.optimizer_settings, self.network, fused=config.tunes("fused_optimizer")
        )
        self.scaler = torch.amp.GradScaler(
            self.kind,
            init_scale=base.INITIAL_LOSS_SCALE,
            enabled=self.dtype == torch.float16,
        )
        self.overflows = torch.zeros((), device=self.kind)
        self.forward = self.network
        if config.execution == "static":
            self.forward = torch.compile(self.network, fullgraph=True, dynamic=False)
        self.parallel = config.ranks > 1
        if self.parallel:
            # As in Paddle, each rank has its own batch-norm statistics.
            self.forward = DistributedDataParallel(
                self.forward, broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def update(self) -> None:
        align_gradients(self.network.parameters())
        if clip_norm := self.optimizer_settings.clip_norm:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), clip_norm)
        self.scaler.step(self.optimizer)
        if self.scaler.is_enabled():
            # Does not wait for the device: a fused optimizer checks for overflows itself.
            self.overflows += sum(self.scaler._found_inf_per_device(self.optimizer).values())
            self.scaler.update()
        self.zero_grad()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    @property
    def skipped_steps(self) -> int:
        return int(self.overflows)

    @property
    def loss_scale(self) -> float | None:
        return self.scaler.get_scale() if self.scaler.is_enabled() else None

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self.network.named_parameters()

    def assign(self, name: str, array: np.ndarray) -> None:
        with torch.no_grad():
            self.network.get_parameter(name).copy_(torch.from_numpy(array.copy()))

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        return tensor.numpy(force=True)

    def to_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """Transpose weights of dense layers, which PyTorch stores as outputs x inputs."""
        layer = self.network.get_submodule(name.rpartition(".")[0])
        return array.T if isinstance(layer, nn.Linear) else array

    from_canonical = to_canonical

    def multiply_adds(self, batch: Batch) -> int:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode

        # The counter does not support the CPU's fused attention.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self.run(batch)
        return counter.get_total_flops() // 2

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See base.Trainer: output dtypes of the layers in a separate forward pass."""
        counts: Counter[str] = Counter()

        def count(_layer: Any, _inputs: Any, output: torch.Tensor) -> None:
            counts[dtype_name(output.dtype)] += 1

        leaves = [layer for layer in self.network.modules() if not [*layer.children()]]
        hooks = [layer.register_forward_hook(count) for layer in leaves]
        self.run(batch)
        for hook in hooks:
            hook.remove()
        return dict(counts)

    def attention(self, batch: Batch) -> str | None:
        """See base.Trainer: the operators called by scaled_dot_product_attention in a separate
        forward pass; none are seen if it decomposes into matrix products."""
        seen: set[str] = set()

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(
                self, operator: Any, _types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                name = str(operator.name())
                seen.update([name.partition("::")[2]] if "attention" in name else ())
                return operator(*args, **(kwargs or {}))

        with Watch():
            self.run(batch)
        return ", ".join(sorted(seen)) or super().attention(batch)

    def auto_cast(self) -> Any:
        return torch.autocast(self.kind, self.dtype) if self.dtype else nullcontext()

    def place(self, tensor: torch.Tensor) -> str:
        return "gpu" if tensor.is_cuda else "cpu"

    def tf32(self) -> bool:
        allowed = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
        return self.device == "gpu" and base.rounds_to_tf32(
            torch.cuda.get_device_capability(), allowed=allowed
        )

    def settings(self) -> dict[str, str]:
        first = next(p for p in self.network.parameters() if p.ndim > 1)
        last = first.ndim == 4 and first.is_contiguous(memory_format=torch.channels_last)
        fused = self.optimizer.defaults["fused"]
        compiled = "torch.compile" if self.config.execution == "static" else "eager"
        settings = {
            "optimizer": "fused" if fused else "PyTorch's default",
            "memory_format": "channels_last" if last else "contiguous",
            "execution": compiled + ", then DistributedDataParallel" * self.parallel,
        }
        if self.device == "gpu":
            settings["cudnn.benchmark"] = str(torch.backends.cudnn.benchmark)
        return settings


class Workloads:
    def __init__(self, config: Config) -> None:
        self.dtype = AUTO_CAST.get(config.precision, torch.float32)
        self.kind = "cuda" if config.device == "gpu" else "cpu"

    def matmul(self, size: int) -> Any:
        a, b = (torch.randn(size, size, device=self.kind).to(self.dtype) for _ in range(2))
        return lambda: torch.mm(a, b)

    def copy(self, size_bytes: int) -> Any:
        source = torch.zeros(size_bytes, dtype=torch.int8, device=self.kind)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source)


def largest_of_ranks(value: int) -> int:
    if not torch.distributed.is_initialized():
        return value
    shared = torch.tensor(value, device="cuda" if torch.cuda.is_initialized() else "cpu")
    torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
    return int(shared)


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
    parameters, fuse = [*network.parameters()], True if fused else None
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "momentum":
        sgd = torch.optim.SGD(parameters, rate, MOMENTUM, weight_decay=decay, fused=fuse)
        # A fused first step that overflows leaves its momentum buffers uninitialized, and the
        # next step reads them. Zeros give the same first step.
        for parameter in parameters:
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, rate, settings.betas, fused=fuse)


def data_loader(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[tuple[Any, ...]]:
    pin = torch.cuda.is_initialized()
    loader = torch.utils.data.DataLoader(
        samples, batch_sampler=indices, num_workers=processes, pin_memory=pin
    )
    return map(tuple, loader)


def tensors(batches: Iterator[tuple[Any, ...]], config: Config) -> Iterator[Batch]:
    """See Backend; on a CPU, tensors share the input's memory."""
    convert = _on_gpu if config.device == "gpu" else _as_tensor
    return base.converted(batches, convert)


def _as_tensor(array: Any) -> torch.Tensor:
    return array if isinstance(array, torch.Tensor) else torch.from_dlpack(array)


def _on_gpu(array: Any) -> torch.Tensor:
    """Copy an array asynchronously from pinned memory unless it is on the GPU."""
    tensor = _as_tensor(array)
    return tensor if tensor.is_cuda else tensor.pin_memory().to("cuda", non_blocking=True)
