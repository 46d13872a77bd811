"""The Paddle backend: device, model, optimizer, one training step, and what really happened."""

import os
from typing import Any

import numpy as np
import paddle
from paddle import nn
from threadpoolctl import threadpool_info

from perfkit.config import Config
from perfkit.loop import CpuDevice, Device
from perfkit.models.resnet50_paddle import ResNet50

MODELS = {"resnet50": ResNet50}
LEARNING_RATE = 0.1
LEARNING_RATE_BATCH = 256
"""Learning rate for a global batch of 256, scaled linearly (Goyal et al., 2017)."""
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
PRECISIONS = {"float32": "fp32"}


class GpuDevice:
    """The GPU that the launcher selected; marks are events in its current stream."""

    def synchronize(self) -> None:
        paddle.device.synchronize()

    def mark(self) -> Any:
        event = paddle.device.Event(enable_timing=True)
        event.record()
        return event

    def passed(self, mark: Any) -> bool:
        return bool(mark.query())

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
    paddle.seed(config.seed)
    np.random.seed(config.seed)
    return GpuDevice() if config.device == "gpu" else CpuDevice()


class Trainer:
    """Model, loss and optimizer of one rank."""

    def __init__(self, config: Config) -> None:
        self.network = MODELS[config.model](config.layout)
        self.parameters = sum(p.size for p in self.network.parameters() if not p.stop_gradient)
        self.forward: Any = self.network
        if config.execution == "static":
            self.forward = paddle.jit.to_static(self.network, full_graph=True)
        if config.ranks > 1:
            self.forward = paddle.DataParallel(self.forward)
        self.loss = nn.CrossEntropyLoss()
        rate = LEARNING_RATE * config.samples * config.ranks / LEARNING_RATE_BATCH
        self.recipe = (
            f"momentum SGD {MOMENTUM}, learning rate {rate:g}, weight decay {WEIGHT_DECAY:g}, "
            "cross entropy"
        )
        self.optimizer = paddle.optimizer.Momentum(
            rate,
            MOMENTUM,
            parameters=self.network.parameters(),
            weight_decay=WEIGHT_DECAY,
        )

    def step(self, batch: tuple[paddle.Tensor, paddle.Tensor]) -> paddle.Tensor:
        images, labels = batch
        loss = self.loss(self.forward(images), labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad()
        return loss

    def produced_dtypes(self, batch: tuple[paddle.Tensor, paddle.Tensor]) -> dict[str, int]:
        """dtype -> how many layers produce it, seen in one forward pass outside of training.

        Gradients are off and batch-norm statistics untouched, so training is not changed.
        """
        counts: dict[str, int] = {}

        def count(_layer: Any, _inputs: Any, output: paddle.Tensor) -> None:
            name = str(output.dtype).removeprefix("paddle.")
            counts[name] = counts.get(name, 0) + 1

        leaves = [layer for layer in self.network.sublayers() if not layer.sublayers()]
        hooks = [layer.register_forward_post_hook(count) for layer in leaves]
        self.network.eval()
        with paddle.no_grad():
            self.network(batch[0])
        self.network.train()
        for hook in hooks:
            hook.remove()
        return counts


def as_tensors(batch: tuple[Any, Any]) -> tuple[paddle.Tensor, paddle.Tensor]:
    """A batch as Paddle tensors, without a copy on the device that has it.

    Takes Paddle's own tensors, the lower-level ones that DALI's Paddle plugin fills, and
    whatever speaks DLPack.
    """
    images, labels = (_as_tensor(array) for array in batch)
    return images, labels


def _as_tensor(array: Any) -> paddle.Tensor:
    if isinstance(array, paddle.Tensor):
        return array
    if isinstance(array, paddle.base.core.DenseTensor):
        return paddle.to_tensor(array, place=array._place())
    return paddle.utils.dlpack.from_dlpack(array)


def effective(trainer: Trainer, batch: tuple[Any, Any]) -> dict[str, Any]:
    """What the run really does, as results.Effective has it."""
    dtypes = trainer.produced_dtypes(batch)
    names = sorted({PRECISIONS.get(name, name) for name in dtypes})
    place = trainer.network.parameters()[0].place
    return {
        "precision": "+".join(names),
        "dtypes": dtypes,
        "device": "gpu" if place.is_gpu_place() else "cpu",
        "threads": {pool["prefix"]: pool["num_threads"] for pool in threadpool_info()},
        "variables": {
            name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE")
        },
        "parameters": trainer.parameters,
        "recipe": trainer.recipe,
    }


def memory_bytes(config: Config) -> int | None:
    """The device's peak memory of this rank; None on a CPU, where the process has one."""
    if config.device == "gpu":
        return int(paddle.device.cuda.max_memory_allocated())
    return None
