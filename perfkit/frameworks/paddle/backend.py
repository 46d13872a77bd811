"""The Paddle backend: device, model, optimizer, one training step, and what really happened."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import paddle
from threadpoolctl import threadpool_info

from perfkit.config import Config
from perfkit.frameworks.base import CpuDevice, Device
from perfkit.frameworks.paddle.bert import Bert
from perfkit.frameworks.paddle.resnet50 import ResNet50
from perfkit.frameworks.paddle.strategy import apply
from perfkit.frameworks.paddle.vgg16 import VGG16
from perfkit.frameworks.precision import effective_precision
from perfkit.models.recipes import MOMENTUM, Recipe, recipe
from perfkit.system.processes import end_with_parent

AUTO_CAST = {
    "amp": ("O1", "float16"),
    "pure_fp16": ("O2", "float16"),
    "bf16": ("O1", "bfloat16"),
}
LOSS_SCALING = {"init_loss_scaling": 2.0**15, "decr_every_n_nan_or_inf": 1}
VARIABLES = ("OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE", "NVIDIA_TF32_OVERRIDE")
TF32_SINCE = 8
"""The first compute capability (Ampere) whose tensor cores know TF32."""
DenseTensor = getattr(paddle.base.core, "DenseTensor", None) or paddle.base.core.LoDTensor
"""Paddle 3's name, or Paddle 2's, of the tensors that DALI's plugin fills."""

Batch = tuple[paddle.Tensor, ...]


class GpuDevice:
    """The GPU that the launcher selected; events lie in its current stream."""

    def synchronize(self) -> None:
        paddle.device.synchronize()

    def record_event(self) -> Any:
        event = paddle.device.Event(enable_timing=True)
        event.record()
        return event

    def is_complete(self, event: Any) -> bool:
        return bool(event.query())

    def seconds_between(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) / 1e3


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
    return GpuDevice() if config.device == "gpu" else CpuDevice()


def enable_float64() -> None:
    """Have trainers that are made from now on compute in float64."""
    paddle.set_default_dtype("float64")


class Trainer:
    """Model, loss and optimizer of one rank."""

    def __init__(self, config: Config) -> None:
        self.accumulate = config.accumulate
        self.network = build_model(config)
        self.parameters = sum(p.size for p in self.network.parameters() if not p.stop_gradient)
        chosen = recipe(config)
        self.recipe = chosen.words
        self.optimizer = build_optimizer(chosen, self.network)
        self.level, self.dtype = AUTO_CAST.get(config.precision, ("O0", "float32"))
        if self.level == "O2":
            self.network, self.optimizer = paddle.amp.decorate(
                self.network, self.optimizer, level="O2", dtype=self.dtype, master_weight=True
            )
        scaled = self.dtype == "float16"
        self.scaler: Any = paddle.amp.GradScaler(**LOSS_SCALING) if scaled else None
        self.skipped_steps = 0
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
        """Add a micro-batch's share to the gradients, and its share of the step's loss.

        Ranks synchronize gradients only with `sync_gradients`: in a step's last micro-batch.
        """
        with self.forward.no_sync() if self.parallel and not sync_gradients else nullcontext():
            with self._auto_cast():
                scores = self.forward(*batch[: self.network.inputs])
                loss = self.network.loss(scores, *batch[self.network.inputs :])
            loss = loss / self.accumulate if self.accumulate > 1 else loss
            (self.scaler.scale(loss) if self.scaler else loss).backward()
        return loss.detach()

    def update(self) -> None:
        """The optimizer's step on the gradients that have come together, which it uses up."""
        if self.scaler:
            # This waits for the device: it reads whether a gradient overflowed.
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.skipped_steps += bool(self.optimizer._get_auxiliary_var("found_inf"))
        else:
            self.optimizer.step()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self.optimizer.clear_grad()

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        """Loss and accuracy on a batch, from one forward pass as training makes it."""
        targets = batch[self.network.inputs :]
        with paddle.no_grad(), self._auto_cast():
            scores = self.network(*batch[: self.network.inputs])
            loss = self.network.loss(scores, *targets)
        return float(loss), float(self.network.accuracy(scores, *targets))

    @property
    def loss_scale(self) -> float | None:
        """The factor by which losses are multiplied; None without loss scaling."""
        if not self.scaler or not self.scaler.is_enable():
            return None
        return float(np.asarray(self.scaler.state_dict()["scale"]).item())

    def _auto_cast(self) -> Any:
        if self.level == "O0":
            return nullcontext()
        return paddle.amp.auto_cast(level=self.level, dtype=self.dtype)

    def produced_dtypes(self, batch: Batch) -> dict[str, int]:
        """dtype -> how many layers produce it, seen in one forward pass outside of training.

        Gradients are off and batch-norm statistics untouched, so training is not changed.
        """
        counts: dict[str, int] = {}

        def count(_layer: Any, _inputs: Any, output: paddle.Tensor) -> None:
            name = _name(output.dtype)
            counts[name] = counts.get(name, 0) + 1

        self._look(batch, count)
        return counts

    def _look(self, batch: Batch, look: Callable[[Any, Any, paddle.Tensor], None]) -> None:
        """Have `look` called with each layer that has none in it, its inputs and its output, in
        one forward pass without gradients that leaves batch-norm statistics as they are."""
        leaves = [layer for layer in self.network.sublayers() if not layer.sublayers()]
        hooks = [layer.register_forward_post_hook(look) for layer in leaves]
        self.network.eval()
        with paddle.no_grad(), self._auto_cast():
            self.network(*batch[: self.network.inputs])
        self.network.train()
        for hook in hooks:
            hook.remove()

    # What follows is for perfkit.worker.trace, which says what work is done.

    def weights(self) -> dict[str, np.ndarray]:
        return {name: p.numpy() for name, p in self._trainable()}

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, parameter in self._trainable():
            parameter.set_value(weights[name].astype(_name(parameter.dtype)))

    def gradients(self) -> dict[str, np.ndarray]:
        return {name: p.grad.numpy() for name, p in self._trainable()}

    def _trainable(self) -> Iterator[tuple[str, Any]]:
        return ((name, p) for name, p in self.network.named_parameters() if not p.stop_gradient)

    def disable_dropout(self) -> None:
        """Have dropout keep everything from now on; all else stays as in training."""
        for layer in self.network.sublayers():
            if isinstance(layer, paddle.nn.Dropout):
                layer.p = 0.0

    def multiply_adds(self, batch: Batch) -> int:
        """Those of the matrix products in one forward pass of this batch: convolutions, dense
        layers, and paddle.matmul where a network calls it, by the shapes that they really have.
        """
        counted, product = 0, paddle.matmul

        def layer(one: Any, _inputs: Any, output: paddle.Tensor) -> None:
            nonlocal counted
            if isinstance(one, paddle.nn.Conv2D):
                counted += math.prod(output.shape) * math.prod(one.weight.shape[1:])
            elif isinstance(one, paddle.nn.Linear):
                counted += math.prod(output.shape) * one.weight.shape[0]

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
            self._look(batch, layer)
        finally:
            paddle.matmul = product
            paddle.jit.enable_to_static(True)
        return counted


class Workloads:
    """Pieces of work of known size, for perfkit.worker.peak."""

    def __init__(self, config: Config) -> None:
        _level, self.dtype = AUTO_CAST.get(config.precision, ("O0", "float32"))

    def matmul(self, size: int) -> Any:
        one, other = (paddle.randn([size, size]).astype(self.dtype) for _ in range(2))
        return lambda: paddle.matmul(one, other)

    def copy(self, size_bytes: int) -> Any:
        source = paddle.zeros([size_bytes], "int8")
        target = paddle.empty_like(source)
        return lambda: paddle.assign(source, target)


def profile(step: Callable[[], None], steps: int) -> dict[str, float | None]:
    """Seconds of a `step` and of its parts, the mean of so many, by Paddle's own profiler: the
    device's time on a GPU, else the host's. Communication may lie within the backward pass, and
    overlap it; None where the profiler does not tell it."""
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
    seen = StatisticData(result.get_data(), result.get_extra_info())
    parts = {"forward": "Forward", "backward": "Backward", "optimizer": "Optimization"}
    found = {"step": seconds * 1e9}
    for part, name in parts.items():
        item = seen.event_summary.model_perspective_items.get(name)
        found[part] = (item.general_gpu_time if gpu else item.cpu_time) if item else 0.0
    told = {part: nanoseconds / 1e9 / steps for part, nanoseconds in found.items()}
    talked = sum_ranges(seen.distributed_summary.communication_range)
    # It sees nothing of gloo, whose exchange is then within the backward pass.
    quiet = paddle.distributed.get_world_size() > 1 and not talked
    return {**told, "communication": None if quiet else talked / 1e9 / steps}


def build_model(config: Config) -> Any:
    """The network: `inputs` says how many of a batch's tensors it takes; the rest go to its
    `loss` and `accuracy`, after what it returned."""
    if config.model == "bert":
        return Bert()
    return {"resnet50": ResNet50, "vgg16": VGG16}[config.model](str(config.layout))


def build_optimizer(recipe: Recipe, network: Any) -> Any:
    """The optimizer that the recipe asks for."""
    parameters = network.parameters()
    if recipe.optimizer == "momentum":
        return paddle.optimizer.Momentum(
            recipe.rate, MOMENTUM, parameters=parameters, weight_decay=recipe.weight_decay
        )
    if recipe.optimizer == "adamw":
        names = {p.name for p in parameters if p.ndim > 1}
        return paddle.optimizer.AdamW(
            recipe.rate,
            parameters=parameters,
            weight_decay=recipe.weight_decay,
            apply_decay_param_fun=names.__contains__,
        )
    return paddle.optimizer.Lamb(
        recipe.rate,
        lamb_weight_decay=recipe.weight_decay,
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


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("paddle.")


def effective(trainer: Trainer, batch: Batch) -> dict[str, Any]:
    """What the run really does, as results.Effective has it."""
    dtypes = trainer.produced_dtypes(batch)
    weights = [p for p in trainer.network.parameters() if p.ndim > 1]
    gpu = weights[0].place.is_gpu_place()
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
        "strategy": trainer.strategy.outcomes,
    }


def _tf32() -> bool:
    """Whether fp32 products on this GPU are rounded to TF32: Paddle's default where it can."""
    able = paddle.device.cuda.get_device_capability()[0] >= TF32_SINCE
    return able and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def memory_bytes(config: Config) -> int | None:
    """The device's peak memory of this rank; None on a CPU, where the process has one."""
    if config.device == "gpu":
        return int(paddle.device.cuda.max_memory_allocated())
    return None
