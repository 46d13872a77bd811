"""Traces a few steps of a built-in model in Paddle, to compare it with other frameworks."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.nn.functional.flash_attention import sdp_kernel

from perfkit.training.effective import dtype_name
from perfkit.training.options import Options
from perfkit.training.paddle.batches import on_device
from perfkit.training.paddle.models import inputs_of, loss_of, new_model
from perfkit.training.paddle.train import new_optimizer, open_device
from perfkit.training.trace import PRECISIONS, Arrays, Write, fixed_batch, raw_file, trace_steps


class TracedTraining:
    """See perfkit.training.trace.Traced."""

    def __init__(self, options: Options, dtype: type) -> None:
        self.options = options
        self.batch = tuple(on_device(array) for array in fixed_batch(options, dtype))
        self.model = new_model(options)
        disable_dropout(self.model)
        self.transposed = set()
        for path, layer in self.model.named_sublayers():
            if isinstance(layer, nn.Linear):
                # PyTorch stores outputs x inputs.
                self.transposed.add(f"{path}.weight")
        self.optimizer = new_optimizer(options, self.model)
        if options.execution == "static":
            paddle.jit.to_static(self.model, full_graph=True)

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the trainable parameters; the statistics of batch norms are none."""
        for name, parameter in self.model.named_parameters():
            if not parameter.stop_gradient:
                yield name, parameter

    def weights(self) -> Arrays:
        return {name: self.copied(name, each) for name, each in self.parameters()}

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, parameter in self.parameters():
            array = weights[name].T if name in self.transposed else weights[name]
            parameter.set_value(array.astype(dtype_name(parameter.dtype)))

    def backward(self) -> float:
        loss = loss_of(self.options, self.model, self.batch)
        loss.backward()
        return float(loss)

    def gradients(self) -> Arrays:
        return {name: self.copied(name, each.grad) for name, each in self.parameters()}

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.clear_grad()

    def copied(self, name: str, tensor: Tensor) -> np.ndarray:
        array = tensor.numpy()
        return np.array(array.T if name in self.transposed else array, order="C")

    def multiply_adds(self) -> int:
        """See Traced: of convolutions, dense layers and calls of paddle.matmul, from their
        actual shapes."""
        counts: list[int] = []

        def count(layer: Any, _inputs: Any, output: Tensor) -> None:
            shape = layer.weight.shape
            summed = shape[:1] if isinstance(layer, nn.Linear) else shape[1:]
            counts.append(math.prod(output.shape) * math.prod(summed))

        hooks = []
        for layer in self.model.sublayers():
            if isinstance(layer, nn.Conv2D | nn.Linear):
                hooks.append(layer.register_forward_post_hook(count))
        self.model.eval()
        # A compiled model would hide layers and calls, and a GPU's fused attention does not
        # call matmul.
        paddle.jit.enable_to_static(False)
        with (
            paddle.no_grad(),
            counted_matmul(counts),
            sdp_kernel(enable_math=True, enable_flash=False, enable_mem_efficient=False),
        ):
            self.model(*inputs_of(self.options, self.batch))
        paddle.jit.enable_to_static(True)
        self.model.train()
        for hook in hooks:
            hook.remove()
        return sum(counts)


def disable_dropout(model: nn.Layer) -> None:
    for layer in model.sublayers():
        if isinstance(getattr(layer, "dropout", None), float):
            layer.dropout = 0.0
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0


@contextmanager
def counted_matmul(counts: list[int]) -> Iterator[None]:
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


def write_trace(options: Options, folder: Path, write: Write) -> None:
    """Trace the training; `folder` is shared by all frameworks."""
    open_device(options)
    for precision, dtype in PRECISIONS.items():
        if precision == "fp64":
            paddle.set_default_dtype("float64")
        trace_steps(TracedTraining(options, dtype), precision, folder, write)


if __name__ == "__main__":
    raw = raw_file()
    write_trace(Options.parse("paddle"), raw.path.parent.parent, raw.write)
