"""ResNet-50 v1.5 in JAX: what resnet50_paddle.py does, by the same names."""

from collections.abc import Iterator

import jax
from jax import Array

from perfkit.frameworks.jax.layers import (
    First,
    Firsts,
    Forward,
    image_accuracy,
    image_loss,
    norm,
    wide_type,
)
from perfkit.models.architecture import RESNET50_BLOCKS as BLOCKS
from perfkit.models.architecture import RESNET50_EXPANSION as EXPANSION
from perfkit.models.architecture import RESNET50_WIDTHS as WIDTHS
from perfkit.models.data import CLASSES


def _blocks() -> Iterator[tuple[str, int, int, int]]:
    """Name, inputs, width and stride of each bottleneck."""
    number, inputs = 0, WIDTHS[0]
    for stage, (width, count) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
        for block in range(count):
            yield f"blocks.{number}", inputs, width, 2 if stage and not block else 1
            number, inputs = number + 1, width * EXPANSION


def _projects(inputs: int, width: int, stride: int) -> bool:
    return inputs != width * EXPANSION or stride != 1


def _conv_norm(name: str, inputs: int, outputs: int, size: int) -> Firsts:
    kernel = First.kernel(inputs, outputs, size)
    return {f"{name}.0.weight": kernel, **norm(f"{name}.1", outputs)}


class ResNet50:
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to batch x classes."""

    inputs = 1
    loss = staticmethod(image_loss)
    accuracy = staticmethod(image_accuracy)

    def parameters(self) -> Firsts:
        made = _conv_norm("stem", 3, WIDTHS[0], 7)
        outputs = 0
        for name, inputs, width, stride in _blocks():
            outputs = width * EXPANSION
            made |= _conv_norm(f"{name}.reduce", inputs, width, 1)
            made |= _conv_norm(f"{name}.spatial", width, width, 3)
            made |= _conv_norm(f"{name}.expand", width, outputs, 1)
            if _projects(inputs, width, stride):
                made |= _conv_norm(f"{name}.shortcut", inputs, outputs, 1)
        # Glorot and Bengio, 2010: what Paddle's dense layers begin with.
        limit = (6 / (outputs + CLASSES)) ** 0.5
        made["classify.weight"] = First.uniform(limit, outputs, CLASSES)
        made["classify.bias"] = First.constant(0.0, CLASSES)
        return made

    def statistics(self) -> Firsts:
        """What the batch norms keep: running means and variances."""
        made = {}
        for name, first in self.parameters().items():
            if name.endswith(".1.weight"):
                kept = name.removesuffix(".weight")
                made[f"{kept}._mean"] = First.constant(0.0, *first.shape)
                made[f"{kept}._variance"] = First.constant(1.0, *first.shape)
        return made

    def forward(self, run: Forward, images: Array) -> Array:
        x = jax.nn.relu(_convolved(run, "stem", images, 2))
        x = run.max_pool(x, 3, 2, padding=1)
        for name, inputs, width, stride in _blocks():
            shortcut = x
            if _projects(inputs, width, stride):
                shortcut = _convolved(run, f"{name}.shortcut", x, stride)
            x = jax.nn.relu(_convolved(run, f"{name}.reduce", x))
            x = jax.nn.relu(_convolved(run, f"{name}.spatial", x, stride))
            x = jax.nn.relu(_convolved(run, f"{name}.expand", x) + shortcut)
        pooled = x.mean((run.layout.index("H"), run.layout.index("W")), wide_type())
        return run.dense("classify", pooled)


def _convolved(run: Forward, name: str, x: Array, stride: int = 1) -> Array:
    return run.batch_norm(f"{name}.1", run.convolution(f"{name}.0", x, stride))
