"""The PyTorch backend: device, model, optimizer, one training step, and what really happened.

docs/backends.md has the reasons of its settings, and what else was tried.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from perfkit.config import Config
from perfkit.frameworks import base
from perfkit.frameworks.base import CpuDevice, Device, GpuDevice
from perfkit.frameworks.precision import dtype_name
from perfkit.frameworks.torch.bert import Bert
from perfkit.frameworks.torch.resnet50 import ResNet50
from perfkit.frameworks.torch.vgg16 import VGG16
from perfkit.models import MOMENTUM, OptimizerSettings
from perfkit.system.processes import end_with_parent

AUTO_CAST = {"amp": torch.float16, "bf16": torch.bfloat16}
NETWORKS: dict[str, Callable[[Config], nn.Module]] = {
    "resnet50": lambda config: ResNet50(str(config.layout)),
    "vgg16": lambda config: VGG16(str(config.layout)),
    "bert": lambda _config: Bert(),
}
EXCHANGE_TIMEOUT = timedelta(minutes=3)
"""How long ranks wait for each other: one may have to compile what others have in a cache."""

Batch = tuple[torch.Tensor, ...]


def open_device(config: Config) -> Device:
    """Select this rank's device and join the other ranks, if there are any."""
    rank = int(os.environ.get("RANK", "0"))
    # The ranks' dropout differs; their weights don't: DistributedDataParallel hands out rank
    # 0's.
    torch.manual_seed(config.seed + rank)
    if config.device == "gpu":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.init()
        torch.backends.cuda.matmul.allow_tf32 = config.tf32
        torch.backends.cudnn.allow_tf32 = config.tf32
        torch.backends.cudnn.benchmark = True
    if config.ranks > 1:
        library = "nccl" if config.device == "gpu" else "gloo"
        torch.distributed.init_process_group(library, timeout=EXCHANGE_TIMEOUT)
    return GpuDevice(torch.cuda) if config.device == "gpu" else CpuDevice()


def enable_float64() -> None:
    """Have trainers that are made from now on compute in float64."""
    torch.set_default_dtype(torch.float64)


class Trainer(base.Trainer):
    """Model, loss and optimizer of one rank."""

    variables = ("OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.kind = "cuda" if config.device == "gpu" else "cpu"
        self.dtype = AUTO_CAST.get(config.precision)
        self.network: Any = NETWORKS[config.model](config).to(self.kind)
        self.parameters = sum(p.numel() for p in self.network.parameters())
        self.optimizer = build_optimizer(self.optimizer_settings, self.network)
        self.scaler = torch.amp.GradScaler(
            self.kind,
            init_scale=base.INITIAL_LOSS_SCALE,
            enabled=self.dtype == torch.float16,
        )
        self.overflows = torch.zeros((), device=self.kind)
        self.forward: Any = self.network
        if config.execution == "static":
            self.forward = torch.compile(self.network, fullgraph=True, dynamic=False)
        self.parallel = config.ranks > 1
        if self.parallel:
            # As in Paddle, each rank has its own statistics of batch norm.
            self.forward = DistributedDataParallel(
                self.forward, broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> torch.Tensor:
        with self.forward.no_sync() if self.parallel and not sync_gradients else nullcontext():
            with record_function("forward"), self._auto_cast():
                logits = self.forward(*batch[: self.network.inputs])
                loss = self.network.loss(logits, *batch[self.network.inputs :])
            loss = loss / self.accumulate if self.accumulate > 1 else loss
            with record_function("backward"):
                self.scaler.scale(loss).backward()
        return loss.detach()

    def update(self) -> None:
        with record_function("optimizer"):
            self.scaler.step(self.optimizer)
            if self.scaler.is_enabled():
                # Does not wait for the device: a fused optimizer itself checks whether a
                # gradient overflowed.
                found = self.scaler._found_inf_per_device(self.optimizer)
                self.overflows += sum(found.values())
                self.scaler.update()
            self.zero_grad()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def predict(self, batch: Batch) -> tuple[torch.Tensor, Any]:
        with torch.no_grad(), self._auto_cast():
            logits = self.network(*batch[: self.network.inputs])
            return self.network.loss(logits, *batch[self.network.inputs :]), logits

    @property
    def skipped_steps(self) -> int:
        return int(self.overflows)

    @property
    def loss_scale(self) -> float | None:
        return self.scaler.get_scale() if self.scaler.is_enabled() else None

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self.network.named_parameters()

    def named_gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        scale = self.loss_scale or 1.0
        for name, parameter in self.named_parameters():
            if parameter.grad is not None:
                yield name, parameter.grad / scale

    def assign(self, name: str, array: np.ndarray) -> None:
        with torch.no_grad():
            self.network.get_parameter(name).copy_(torch.from_numpy(array.copy()))

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        return tensor.numpy(force=True)

    def to_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """PyTorch has the weights of dense layers as outputs x inputs."""
        layer = self.network.get_submodule(name.rpartition(".")[0])
        return array.T if isinstance(layer, nn.Linear) else array

    from_canonical = to_canonical

    def disable_dropout(self) -> None:
        for layer in self.network.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0

    def multiply_adds(self, batch: Batch) -> int:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode

        # It does not know the CPU's fused attention.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self._run(batch)
        return counter.get_total_flops() // 2

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """By the outputs of the layers in one forward pass outside of training."""
        counts: Counter[str] = Counter()

        def count(_layer: Any, _inputs: Any, output: torch.Tensor) -> None:
            counts[dtype_name(output.dtype)] += 1

        leaves = [layer for layer in self.network.modules() if not [*layer.children()]]
        hooks = [layer.register_forward_hook(count) for layer in leaves]
        self._run(batch)
        for hook in hooks:
            hook.remove()
        return dict(counts)

    def _run(self, batch: Batch) -> None:
        """A forward pass that changes nothing: gradients are off, batch-norm statistics and
        random numbers untouched."""
        self.network.eval()
        with torch.no_grad(), self._auto_cast():
            self.network(*batch[: self.network.inputs])
        self.network.train()

    def _auto_cast(self) -> Any:
        return torch.autocast(self.kind, self.dtype) if self.dtype else nullcontext()

    @property
    def device(self) -> str:
        return "gpu" if next(self.network.parameters()).is_cuda else "cpu"

    def tf32(self) -> bool:
        allowed = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
        return self.device == "gpu" and base.rounds_to_tf32(
            torch.cuda.get_device_capability(), allowed=allowed
        )


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


def profile(step: Callable[[], None], steps: int) -> dict[str, float | None]:
    """See Backend. Communication overlaps the backward pass."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity

    gpu = torch.cuda.is_initialized()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    # The backward pass in this very thread: the profiler ascribes kernels to a part by thread.
    with (
        torch.autograd.set_multithreading_enabled(False),
        torch.profiler.profile(activities=activities) as recorder,
    ):
        began = time.perf_counter()
        for _ in range(steps):
            step()
        if gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    spent: dict[str, float] = defaultdict(float)
    for event in recorder.key_averages():
        spent[event.key] += (event.device_time_total if gpu else event.cpu_time_total) / 1e6
    where = DeviceType.CUDA if gpu else DeviceType.CPU
    exchanges = [
        event.time_range
        for event in recorder.events()
        if event.name.startswith(("gloo:", "nccl:")) and event.device_type == where
    ]
    parts = {part: spent[part] / steps for part in ("forward", "backward", "optimizer")}
    communication = _covered(exchanges) / 1e6 / steps
    return {"step": seconds / steps, **parts, "communication": communication}


def _covered(ranges: list[Any]) -> float:
    """How much time they cover, where several may be under way at once."""
    covered, end = 0.0, float("-inf")
    for span in sorted(ranges, key=lambda span: span.start):
        covered += max(0.0, span.end - max(span.start, end))
        end = max(end, span.end)
    return covered


def build_optimizer(settings: OptimizerSettings, network: nn.Module) -> torch.optim.Optimizer:
    """A fused optimizer with these settings."""
    parameters = [*network.parameters()]
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "momentum":
        return torch.optim.SGD(parameters, rate, MOMENTUM, weight_decay=decay, fused=True)
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, rate, fused=True)


def data_loader(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[tuple[Any, ...]]:
    """Batches that so many processes of PyTorch's DataLoader make."""
    loader = torch.utils.data.DataLoader(
        samples,
        batch_sampler=indices,
        num_workers=processes,
        pin_memory=torch.cuda.is_initialized(),
        # One that waits to hand a batch over outlives its trainer otherwise.
        worker_init_fn=lambda _worker: end_with_parent(),
    )
    return map(tuple, loader)


def tensors(batches: Iterator[tuple[Any, ...]], config: Config) -> Iterator[Batch]:
    """Batches as PyTorch tensors on the device: on a CPU the very memory that the input has."""
    source: Any = None
    converted: Batch = ()
    for batch in batches:
        # Synthetic input hands out one batch for ever, which is then copied once.
        if batch is not source:
            source, converted = batch, tuple(map(_as_tensor, batch))
            if config.device == "gpu":
                converted = tuple(map(_on_gpu, converted))
        yield converted


def _as_tensor(array: Any) -> torch.Tensor:
    return array if isinstance(array, torch.Tensor) else torch.from_dlpack(array)


def _on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """Copied, behind the host's back, from pinned memory, unless it is there."""
    return tensor if tensor.is_cuda else tensor.pin_memory().to("cuda", non_blocking=True)


def memory_bytes(config: Config) -> int | None:
    if config.device == "gpu":
        return int(torch.cuda.max_memory_allocated())
    return None
