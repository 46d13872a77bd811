"""VGG-16 (Simonyan and Zisserman, Very deep convolutional networks for large-scale image
recognition, 2014, configuration D): thirteen 3x3 convolutions with bias, no batch norm, and
three dense layers, the first of which has most of the parameters. An average pool to 7x7 before
the dense layers allows any image size; at 224 pixels it changes nothing.
"""

from itertools import pairwise

from perfkit.training.models import CLASSES

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
