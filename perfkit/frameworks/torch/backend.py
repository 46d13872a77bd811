"""The PyTorch backend: device, model, optimizer, one training step, and what really happened.

Why it is set as it is, docs/backends.md tells with what else was tried.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_info
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from perfkit.config import Config
from perfkit.frameworks.base import CpuDevice, Device
from perfkit.frameworks.precision import effective_precision
from perfkit.frameworks.torch.bert import Bert
from perfkit.frameworks.torch.resnet50 import ResNet50
from perfkit.frameworks.torch.vgg16 import VGG16
from perfkit.models.recipes import MOMENTUM, Recipe, recipe
from perfkit.system.processes import end_with_parent

AUTO_CAST = {"amp": torch.float16, "bf16": torch.bfloat16}
INITIAL_SCALE = 2.0**15
VARIABLES = ("OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE")
TF32_SINCE = 8
"""The first compute capability (Ampere) whose tensor cores know TF32."""
PATIENCE = timedelta(minutes=3)
"""How long ranks wait for each other: one may have to compile what others have in a cache."""

Batch = tuple[torch.Tensor, ...]


class GpuDevice:
    """The GPU that was selected; events lie in its current stream."""

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def record_event(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def is_complete(self, event: Any) -> bool:
        return bool(event.query())

    def seconds_between(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) / 1e3


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
        talking = "nccl" if config.device == "gpu" else "gloo"
        torch.distributed.init_process_group(talking, timeout=PATIENCE)
    return GpuDevice() if config.device == "gpu" else CpuDevice()


def enable_float64() -> None:
    """Have trainers that are made from now on compute in float64."""
    torch.set_default_dtype(torch.float64)


class Trainer:
    """Model, loss and optimizer of one rank."""

    def __init__(self, config: Config) -> None:
        self.accumulate = config.accumulate
        self.kind = "cuda" if config.device == "gpu" else "cpu"
        self.dtype = AUTO_CAST.get(config.precision)
        self.network = build_model(config).to(self.kind)
        self.parameters = sum(p.numel() for p in self.network.parameters())
        chosen = recipe(config)
        self.recipe = chosen.words
        self.optimizer = build_optimizer(chosen, self.network)
        scaled = self.dtype == torch.float16
        self.scaler = torch.amp.GradScaler(self.kind, init_scale=INITIAL_SCALE, enabled=scaled)
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
        """Add a micro-batch's share to the gradients, and its share of the step's loss.

        Ranks synchronize gradients only with `sync_gradients`: in a step's last micro-batch.
        """
        with self.forward.no_sync() if self.parallel and not sync_gradients else nullcontext():
            with record_function("forward"), self._auto_cast():
                scores = self.forward(*batch[: self.network.inputs])
                loss = self.network.loss(scores, *batch[self.network.inputs :])
            loss = loss / self.accumulate if self.accumulate > 1 else loss
            with record_function("backward"):
                self.scaler.scale(loss).backward()
        return loss.detach()

    def update(self) -> None:
        """The optimizer's step on the gradients that have come together, which it uses up."""
        with record_function("optimizer"):
            self.scaler.step(self.optimizer)
            if self.scaler.is_enabled():
                # Nothing waits for the device here: a fused optimizer itself looks whether a
                # gradient overflowed.
                found = self.scaler._found_inf_per_device(self.optimizer)
                self.overflows += sum(found.values())
                self.scaler.update()
            self.zero_grad()

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad()

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        """Loss and accuracy on a batch, from one forward pass as training makes it."""
        targets = batch[self.network.inputs :]
        with torch.no_grad(), self._auto_cast():
            scores = self.network(*batch[: self.network.inputs])
            loss = self.network.loss(scores, *targets)
        return float(loss), float(self.network.accuracy(scores, *targets))

    @property
    def skipped_steps(self) -> int:
        """Updates left out since a gradient overflowed."""
        return int(self.overflows)

    @property
    def loss_scale(self) -> float | None:
        """The factor by which losses are multiplied; None without loss scaling."""
        return self.scaler.get_scale() if self.scaler.is_enabled() else None

    def weights(self) -> dict[str, np.ndarray]:
        """Copies of the trainable parameters, named and laid out as Paddle's."""
        return {name: self._told(name, p) for name, p in self.network.named_parameters()}

    def gradients(self) -> dict[str, np.ndarray]:
        """The gradients that have come together, likewise."""
        scale = self.loss_scale or 1.0
        return {
            name: self._told(name, p.grad / scale)
            for name, p in self.network.named_parameters()
            if p.grad is not None
        }

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Take these in place of the parameters. Raises ValueError, before anything changes,
        if names or shapes are others."""
        expected = {name: array.shape for name, array in self.weights().items()}
        found = {name: array.shape for name, array in weights.items()}
        if wrong := sorted(dict(expected.items() ^ found.items())):
            name = wrong[0]
            raise ValueError(
                f"{name}: expected {expected.get(name)}, found {found.get(name)}"
                + f", and {len(wrong) - 1} more differ" * (len(wrong) > 1)
            )
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                array = weights[name].T if name in self._dense() else weights[name]
                parameter.copy_(torch.from_numpy(array.copy()))

    def _told(self, name: str, tensor: torch.Tensor) -> np.ndarray:
        array = tensor.numpy(force=True)
        return np.array(array.T if name in self._dense() else array, order="C")

    def _dense(self) -> set[str]:
        """The weights that PyTorch has as outputs x inputs."""
        layers = self.network.named_modules()
        return {f"{name}.weight" for name, layer in layers if isinstance(layer, nn.Linear)}

    def disable_dropout(self) -> None:
        """Have no dropout from now on; all else stays as in training."""
        for layer in self.network.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0

    def multiply_adds(self, batch: Batch) -> int:
        """Of the matrix products of one forward pass, as PyTorch's counter sees them called."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.utils.flop_counter import FlopCounterMode

        # It does not know the CPU's fused attention.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self._look(batch)
        return counter.get_total_flops() // 2

    def produced_dtypes(self, batch: Batch) -> dict[str, int]:
        """dtype -> how many layers produce it, seen in one forward pass outside of training."""
        counts: dict[str, int] = {}

        def count(_layer: Any, _inputs: Any, output: torch.Tensor) -> None:
            name = _name(output.dtype)
            counts[name] = counts.get(name, 0) + 1

        leaves = [layer for layer in self.network.modules() if not [*layer.children()]]
        hooks = [layer.register_forward_hook(count) for layer in leaves]
        self._look(batch)
        for hook in hooks:
            hook.remove()
        return counts

    def _look(self, batch: Batch) -> None:
        """A forward pass that changes nothing: gradients are off, batch-norm statistics and
        random numbers untouched."""
        self.network.eval()
        with torch.no_grad(), self._auto_cast():
            self.network(*batch[: self.network.inputs])
        self.network.train()

    def _auto_cast(self) -> Any:
        return torch.autocast(self.kind, self.dtype) if self.dtype else nullcontext()


class Workloads:
    """Pieces of work of known size, for perfkit.worker.peak."""

    def __init__(self, config: Config) -> None:
        self.dtype = AUTO_CAST.get(config.precision, torch.float32)
        self.kind = "cuda" if config.device == "gpu" else "cpu"

    def matmul(self, size: int) -> Any:
        one, other = (
            torch.randn(size, size, device=self.kind).to(self.dtype) for _ in range(2)
        )
        return lambda: torch.mm(one, other)

    def copy(self, size_bytes: int) -> Any:
        source = torch.zeros(size_bytes, dtype=torch.int8, device=self.kind)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source)


def profile(step: Callable[[], None], steps: int) -> dict[str, float | None]:
    """Seconds of a `step` and of its parts, the mean of so many, by PyTorch's own profiler: the
    device's time on a GPU, else the host's. Communication overlaps the backward pass."""
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
    talks = [
        event.time_range
        for event in recorder.events()
        if event.name.startswith(("gloo:", "nccl:")) and event.device_type == where
    ]
    told = {part: spent[part] / steps for part in ("forward", "backward", "optimizer")}
    return {"step": seconds / steps, **told, "communication": _covered(talks) / 1e6 / steps}


def _covered(ranges: list[Any]) -> float:
    """How much time they cover, where several may be under way at once."""
    covered, end = 0.0, float("-inf")
    for one in sorted(ranges, key=lambda one: one.start):
        covered += max(0.0, one.end - max(one.start, end))
        end = max(end, one.end)
    return covered


def build_model(config: Config) -> Any:
    """The network: `inputs` says how many of a batch's tensors it takes; the rest go to its
    `loss` and `accuracy`, after what it returned."""
    if config.model == "bert":
        return Bert()
    return {"resnet50": ResNet50, "vgg16": VGG16}[config.model](str(config.layout))


def build_optimizer(recipe: Recipe, network: Any) -> Any:
    """The optimizer that the recipe asks for."""
    parameters = [*network.parameters()]
    if recipe.optimizer == "momentum":
        return torch.optim.SGD(
            parameters, recipe.rate, MOMENTUM, weight_decay=recipe.weight_decay, fused=True
        )
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, recipe.rate, fused=True)


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
    taken: Any = None
    made: Batch = ()
    for batch in batches:
        # Synthetic input hands out one batch for ever, which is then copied once.
        if batch is not taken:
            taken, made = batch, tuple(map(_as_tensor, batch))
            if config.device == "gpu":
                made = tuple(_on_gpu(tensor) for tensor in made)
        yield made


def _as_tensor(array: Any) -> torch.Tensor:
    return array if isinstance(array, torch.Tensor) else torch.from_dlpack(array)


def _on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """Copied, behind the host's back, from pinned memory, unless it is there."""
    return tensor if tensor.is_cuda else tensor.pin_memory().to("cuda", non_blocking=True)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def effective(trainer: Trainer, batch: Batch) -> dict[str, Any]:
    """What the run really does, as results.Effective has it."""
    dtypes = trainer.produced_dtypes(batch)
    weights = [p for p in trainer.network.parameters() if p.ndim > 1]
    gpu = weights[0].is_cuda
    return {
        "precision": effective_precision(dtypes, (_name(p.dtype) for p in weights)),
        "dtypes": dtypes,
        "tf32": gpu and _tf32(),
        "loss_scaling": trainer.loss_scale,
        "device": "gpu" if gpu else "cpu",
        "threads": {pool["prefix"]: pool["num_threads"] for pool in threadpool_info()},
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "parameters": trainer.parameters,
        "optimizer_settings": trainer.recipe,
        "strategy": {},
    }


def _tf32() -> bool:
    """Whether fp32 products on this GPU are rounded to TF32."""
    able = torch.cuda.get_device_capability()[0] >= TF32_SINCE
    allowed = torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
    return able and allowed and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def memory_bytes(config: Config) -> int | None:
    """The device's peak memory of this rank; None on a CPU, where the process has one."""
    if config.device == "gpu":
        return int(torch.cuda.max_memory_allocated())
    return None
