"""ResNet-50 v1.5 (He et al., Deep residual learning for image recognition, 2015). As in the
published suites, the 3x3 convolution has the stride of a stage's first block ("v1.5")."""

from itertools import chain
from math import ceil

from perfkit.core.models.model import CLASSES, Model, OptimizerDefaults, linear_rate

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width (channels of the 3x3 convolutions) and number of blocks of each stage."""
STEM = 64
"""Channels of the first convolution, 7x7."""
EXPANSION = 4
"""Ratio of a block's output channels to its width."""


def stages() -> list[list[tuple[int, int, int]]]:
    """Return input channels, width and stride of each block of each stage."""
    sizes = []
    inputs, stride = STEM, 1
    for width, count in STAGES:
        outputs = width * EXPANSION
        others = [(outputs, width, 1)] * (count - 1)
        sizes.append([(inputs, width, stride), *others])
        inputs, stride = outputs, 2
    return sizes


def features() -> int:
    """Return the input width of the final dense layer."""
    return STAGES[-1][0] * EXPANSION


def multiply_adds(size: int) -> tuple[int, int]:
    """See Model."""
    size = ceil(size / 2)
    first = size**2 * 7 * 7 * 3 * STEM
    size = ceil(size / 2)
    others = features() * CLASSES
    for inputs, width, stride in chain(*stages()):
        outputs = width * EXPANSION
        others += size**2 * inputs * width
        size = ceil(size / stride)
        others += size**2 * (9 * width * width + width * outputs)
        has_projection = inputs != outputs or stride != 1
        if has_projection:
            others += size**2 * inputs * outputs
    return first, others


def in_fast_convolutions(size: int) -> tuple[int, int]:
    """See Model: the first convolution, a 7x7 one, is not among them."""
    size = ceil(ceil(size / 2) / 2)
    count = 0
    for _inputs, width, stride in chain(*stages()):
        size = ceil(size / stride)
        if stride == 1:
            count += size**2 * 9 * width * width
    return 0, count


MODEL = Model(
    name="ResNet-50 v1.5",
    short_name="ResNet-50",
    parameters=25_557_032,
    sample="image",
    data="images",
    inputs=("dali", "dataloader", "synthetic"),
    # He et al.
    optimizer_defaults={"momentum": OptimizerDefaults(linear_rate(0.1), 1e-4)},
    multiply_adds=multiply_adds,
    choices=(CLASSES,),
    gpu_batch_size=128,
    cpu_batch_size=4,
    data_dir="data/samples",
    default_image_size=224,
    in_fast_convolutions=in_fast_convolutions,
)
