"""The Paddle backend: device, model, optimizer, one training step, and what really happened."""

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import paddle

from perfkit.config import Config
from perfkit.frameworks import base
from perfkit.frameworks.base import CpuDevice, Device, GpuDevice
from perfkit.frameworks.paddle.bert import Bert
from perfkit.frameworks.paddle.resnet50 import ResNet50
from perfkit.frameworks.paddle.strategy import apply
from perfkit.frameworks.paddle.vgg16 import VGG16
from perfkit.frameworks.precision import dtype_name
from perfkit.models import MOMENTUM, OptimizerSettings
from perfkit.system.processes import end_with_parent

AUTO_CAST = {
    "amp": ("O1", "float16"),
    "pure_fp16": ("O2", "float16"),
    "bf16": ("O1", "bfloat16"),
}
NETWORKS: dict[str, Callable[[Config], paddle.nn.Layer]] = {
    "resnet50": lambda config: ResNet50(str(config.layout)),
    "vgg16": lambda config: VGG16(str(config.layout)),
    "bert": lambda _config: Bert(),
}
DenseTensor = getattr(paddle.base.core, "DenseTensor", None) or paddle.base.core.LoDTensor
"""Paddle 3's name, or Paddle 2's, of the tensors that DALI's plugin fills."""

Batch = tuple[paddle.Tensor, ...]


def open_device(config: Config) -> Device:
    """Select this worker's device and join the other ranks, if there are any."""
    if config.device == "cpu":
        # A GPU build would choose NCCL, and the GPUs with it.
        os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    if config.ranks > 1:
        paddle.distributed.init_parallel_env()
    paddle.set_device(config.device)
    # The ranks' dropout differs; their weights don't: DataParallel hands out rank 0's.
    seed = config.seed + paddle.distributed.get_rank()
    paddle.seed(seed)
    np.random.seed(seed)
    return GpuDevice(paddle.device) if config.device == "gpu" else CpuDevice()


def enable_float64() -> None:
    """Have trainers that are made from now on compute in float64."""
    paddle.set_default_dtype("float64")


class Trainer(base.Trainer):
    """Model, loss and optimizer of one rank."""

    variables = ("OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE", "NVIDIA_TF32_OVERRIDE")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.network = NETWORKS[config.model](config)
        self.parameters = sum(p.size for _, p in self.named_parameters())
        self.optimizer = build_optimizer(self.optimizer_settings, self.network)
        self.level, self.dtype = AUTO_CAST.get(config.precision, ("O0", "float32"))
        if self.level == "O2":
            self.network, self.optimizer = paddle.amp.decorate(
                self.network, self.optimizer, level="O2", dtype=self.dtype, master_weight=True
            )
        self.scaler: Any = None
        if self.dtype == "float16":
            self.scaler = paddle.amp.GradScaler(
                init_loss_scaling=base.INITIAL_LOSS_SCALE, decr_every_n_nan_or_inf=1
            )
        self.skipped = 0
        self.strategy = apply(config)
        self.forward: Any = self.network
        if config.execution == "static":
            self.forward = paddle.jit.to_static(
                self.network, full_graph=True, **self.strategy.to_static
            )
        self.parallel = config.ranks > 1
        if self.parallel:
            self.forward = paddle.DataParallel(self.forward, **self.strategy.data_parallel)

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> paddle.Tensor:
        with self.forward.no_sync() if self.parallel and not sync_gradients else nullcontext():
            with self._auto_cast():
                logits = self.forward(*batch[: self.network.inputs])
                loss = self.network.loss(logits, *batch[self.network.inputs :])
            loss = loss / self.accumulate if self.accumulate > 1 else loss
            (self.scaler.scale(loss) if self.scaler else loss).backward()
        return loss.detach()

    def update(self) -> None:
        if self.scaler:
            # Waits for the device: it reads whether a gradient overflowed.
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.skipped += bool(self.optimizer._get_auxiliary_var("found_inf"))
        else:
            self.optimizer.step()
        self.zero_grad()

    def zero_grad(self) -> None:
        self.optimizer.clear_grad()

    def predict(self, batch: Batch) -> tuple[paddle.Tensor, Any]:
        with paddle.no_grad(), self._auto_cast():
            logits = self.network(*batch[: self.network.inputs])
            return self.network.loss(logits, *batch[self.network.inputs :]), logits

    @property
    def skipped_steps(self) -> int:
        return self.skipped

    @property
    def loss_scale(self) -> float | None:
        if not self.scaler or not self.scaler.is_enable():
            return None
        return float(np.asarray(self.scaler.state_dict()["scale"]).item())

    def _auto_cast(self) -> Any:
        if self.level == "O0":
            return nullcontext()
        return paddle.amp.auto_cast(level=self.level, dtype=self.dtype)

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """By the outputs of the layers in one forward pass outside of training."""
        counts: Counter[str] = Counter()

        def count(_layer: Any, _inputs: Any, output: paddle.Tensor) -> None:
            counts[dtype_name(output.dtype)] += 1

        self._run(batch, count)
        return dict(counts)

    def _run(self, batch: Batch, hook: Callable[[Any, Any, paddle.Tensor], None]) -> None:
        """A forward pass without gradients that leaves batch-norm statistics as they are;
        `hook` is called with each layer that contains none, its inputs and its output."""
        leaves = [layer for layer in self.network.sublayers() if not layer.sublayers()]
        handles = [layer.register_forward_post_hook(hook) for layer in leaves]
        self.network.eval()
        with paddle.no_grad(), self._auto_cast():
            self.network(*batch[: self.network.inputs])
        self.network.train()
        for handle in handles:
            handle.remove()

    def named_parameters(self) -> Iterator[tuple[str, paddle.Tensor]]:
        return ((name, p) for name, p in self.network.named_parameters() if not p.stop_gradient)

    def named_gradients(self) -> Iterator[tuple[str, paddle.Tensor]]:
        return ((name, parameter.grad) for name, parameter in self.named_parameters())

    def assign(self, name: str, array: np.ndarray) -> None:
        parameter = dict(self.named_parameters())[name]
        parameter.set_value(array.astype(dtype_name(parameter.dtype)))

    def array(self, tensor: paddle.Tensor) -> np.ndarray:
        return tensor.numpy()

    def disable_dropout(self) -> None:
        for layer in self.network.sublayers():
            if isinstance(layer, paddle.nn.Dropout):
                layer.p = 0.0

    def multiply_adds(self, batch: Batch) -> int:
        """Those of convolutions, dense layers, and paddle.matmul where a network calls it, by
        the shapes that they really have."""
        counted, product = 0, paddle.matmul

        def count(layer: Any, _inputs: Any, output: paddle.Tensor) -> None:
            nonlocal counted
            if isinstance(layer, paddle.nn.Conv2D):
                counted += math.prod(output.shape) * math.prod(layer.weight.shape[1:])
            elif isinstance(layer, paddle.nn.Linear):
                counted += math.prod(output.shape) * layer.weight.shape[0]

        def matmul(
            x: paddle.Tensor,
            y: paddle.Tensor,
            transpose_x: bool = False,
            transpose_y: bool = False,
        ) -> paddle.Tensor:
            nonlocal counted
            output = product(x, y, transpose_x, transpose_y)
            counted += math.prod(output.shape) * x.shape[-2 if transpose_x else -1]
            return output

        # Of a compiled network neither layers nor calls are seen.
        paddle.jit.enable_to_static(False)
        paddle.matmul = matmul
        try:
            self._run(batch, count)
        finally:
            paddle.matmul = product
            paddle.jit.enable_to_static(True)
        return counted

    @property
    def device(self) -> str:
        _name, parameter = next(self.named_parameters())
        return "gpu" if parameter.place.is_gpu_place() else "cpu"

    def tf32(self) -> bool:
        """Paddle's default where the GPU can."""
        return self.device == "gpu" and base.rounds_to_tf32(
            paddle.device.cuda.get_device_capability()
        )

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


def profile(step: Callable[[], None], steps: int) -> dict[str, float | None]:
    """See Backend. Communication may lie within the backward pass, and overlap it."""
    from paddle import profiler
    from paddle.profiler.profiler_statistic import StatisticData, sum_ranges

    gpu = paddle.device.get_device().startswith("gpu")
    targets = [profiler.ProfilerTarget.CPU, *([profiler.ProfilerTarget.GPU] if gpu else [])]
    # Its usual way to end is to write all events into the working folder.
    recorder = profiler.Profiler(targets=targets, on_trace_ready=lambda _profiler: None)
    recorder.start()
    began = time.perf_counter()
    for _ in range(steps):
        step()
        recorder.step()
    if gpu:
        paddle.device.synchronize()
    seconds = time.perf_counter() - began
    recorder.stop()
    result = recorder.profiler_result
    events = StatisticData(result.get_data(), result.get_extra_info())
    parts = {"forward": "Forward", "backward": "Backward", "optimizer": "Optimization"}
    spent = {"step": seconds * 1e9}
    for part, name in parts.items():
        item = events.event_summary.model_perspective_items.get(name)
        spent[part] = (item.general_gpu_time if gpu else item.cpu_time) if item else 0.0
    means = {part: nanoseconds / 1e9 / steps for part, nanoseconds in spent.items()}
    exchange = sum_ranges(events.distributed_summary.communication_range)
    # It sees nothing of gloo, whose exchange is then within the backward pass.
    unseen = paddle.distributed.get_world_size() > 1 and not exchange
    return {**means, "communication": None if unseen else exchange / 1e9 / steps}


def build_optimizer(
    settings: OptimizerSettings, network: paddle.nn.Layer
) -> paddle.optimizer.Optimizer:
    """The optimizer with these settings."""
    parameters = network.parameters()
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "momentum":
        return paddle.optimizer.Momentum(
            rate, MOMENTUM, parameters=parameters, weight_decay=decay
        )
    if settings.optimizer == "adamw":
        names = {p.name for p in parameters if p.ndim > 1}
        return paddle.optimizer.AdamW(
            rate,
            parameters=parameters,
            weight_decay=decay,
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
    """Batches that so many processes of Paddle's DataLoader make."""
    loader = paddle.io.DataLoader(
        samples,
        batch_sampler=indices,
        num_workers=processes,
        # One that waits to hand a batch over outlives its trainer otherwise.
        worker_init_fn=lambda _worker: end_with_parent(),
    )
    return map(tuple, loader)


def tensors(batches: Iterator[tuple[Any, ...]], _config: Config) -> Iterator[Batch]:
    """Batches as Paddle tensors, on the device that has them."""
    return map(as_tensors, batches)


def as_tensors(batch: tuple[Any, ...]) -> Batch:
    """A batch as Paddle tensors, without a copy on the device that has it.

    Takes Paddle's own tensors, the lower-level ones that DALI's Paddle plugin fills, and
    whatever speaks DLPack.
    """
    return tuple(_as_tensor(array) for array in batch)


def _as_tensor(array: Any) -> paddle.Tensor:
    if isinstance(array, paddle.Tensor):
        return array
    if isinstance(array, DenseTensor):
        return paddle.to_tensor(array, place=array._place())
    # The capsule itself: Paddle 2 does not ask for it.
    return paddle.utils.dlpack.from_dlpack(array.__dlpack__())


def memory_bytes(config: Config) -> int | None:
    if config.device == "gpu":
        return int(paddle.device.cuda.max_memory_allocated())
    return None
