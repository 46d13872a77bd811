"""VGG-16 (Simonyan and Zisserman, Very deep convolutional networks for large-scale image
recognition, 2014, configuration D): thirteen 3x3 convolutions with bias, no batch norm, and
three dense layers, the first of which has most of the parameters. An average pool to 7x7 before
the dense layers allows any image size; at 224 pixels it changes nothing.
"""

from itertools import pairwise

from perfkit.core.models.model import CLASSES, Model, OptimizerDefaults, linear_rate

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of convolutions of each stage, which ends with a 2x2 max-pool."""
POOLED = 7
"""Height and width of the dense layers' input."""
DENSE = 4096
DROPOUT = 0.5
DEVIATION = 0.01
"""Standard deviation of the dense layers' initial weights."""


def dense_layers() -> list[tuple[int, int]]:
    """Return the input and output widths of the dense layers."""
    return list(pairwise((STAGES[-1][0] * POOLED**2, DENSE, DENSE, CLASSES)))


def multiply_adds(size: int) -> tuple[int, int]:
    """See Model."""
    first = size**2 * 9 * 3 * STAGES[0][0]
    others, inputs = -first, 3
    for width, count in STAGES:
        for _ in range(count):
            others += size**2 * 9 * inputs * width
            inputs = width
        size //= 2
    return first, others + _in_dense_layers()


def _in_dense_layers() -> int:
    return sum(inputs * outputs for inputs, outputs in dense_layers())


def in_fast_convolutions(size: int) -> tuple[int, int]:
    """See Model: all of its convolutions."""
    first, others = multiply_adds(size)
    return first, others - _in_dense_layers()


MODEL = Model(
    name="VGG-16",
    short_name="VGG-16",
    parameters=138_357_544,
    sample="image",
    data="images",
    inputs=("dali", "dataloader", "synthetic"),
    # Simonyan and Zisserman.
    optimizer_defaults={"momentum": OptimizerDefaults(linear_rate(0.01), 5e-4)},
    multiply_adds=multiply_adds,
    choices=(CLASSES,),
    gpu_batch_size=64,
    cpu_batch_size=2,
    data_dir="data/samples",
    default_image_size=224,
    in_fast_convolutions=in_fast_convolutions,
)
