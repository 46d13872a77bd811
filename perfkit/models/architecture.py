"""The numbers that define each network, and the arithmetic of a training step that follows.

Counted are the matrix products alone (convolutions, dense layers, attention): a multiply-add is
two operations. The backward pass has two products for each of the forward pass, one for the
gradient of the weights and one for that of the input (Chowdhery et al., PaLM, 2022, appendix
B); the first convolution needs no gradient of the images. What is recomputed does not count.
"""

from typing import TypeVar

from perfkit.config import Config
from perfkit.models.data import CLASSES, VOCABULARY, predictions

Number = TypeVar("Number", int, float)

RESNET50_BLOCKS = (3, 4, 6, 3)
RESNET50_WIDTHS = (64, 128, 256, 512)
RESNET50_EXPANSION = 4

VGG16_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of convolutions; a 2x2 max-pool ends each stage."""
VGG16_POOLED = 7
VGG16_DENSE = 4096

BERT_POSITIONS = 512
BERT_WIDTH = 768
BERT_HEADS = 12
BERT_LAYERS = 12
BERT_INNER = 3072
BERT_DROPOUT = 0.1
BERT_EPSILON = 1e-12
"""Of the layer norms."""
BERT_DEVIATION = 0.02
"""Of the normal distribution that the first weights are from."""
BERT_MASKED = -1e4
"""Added to the scores of padding; float16 still holds it."""


def training_flops(config: Config) -> int | None:
    """Floating-point operations of forward and backward pass for one sample; None where the
    configuration leaves its size open."""
    if not config.sample_size:
        return None
    return flops_with_backward(config, multiply_adds(config))


def flops_with_backward(config: Config, forward: Number) -> Number:
    """Floating-point operations of forward and backward pass for one sample, of a forward pass
    with so many multiply-adds."""
    return 6 * forward - 2 * _parts(config)[0]


def multiply_adds(config: Config) -> int:
    """Those of one sample's forward pass."""
    return sum(_parts(config))


def _parts(config: Config) -> tuple[int, int]:
    """Multiply-adds of a sample's forward pass: of what needs no gradient of its input, and of
    all else."""
    if config.model == "bert":
        return 0, _bert(config.sample_size)
    return {"resnet50": _resnet50, "vgg16": _vgg16}[config.model](config.sample_size)


def _resnet50(size: int) -> tuple[int, int]:
    """Multiply-adds of an image's forward pass: of the first convolution, and of all else."""
    size = -(-size // 2)
    first = size**2 * 7 * 7 * 3 * RESNET50_WIDTHS[0]
    size = -(-size // 2)
    others, inputs = 0, RESNET50_WIDTHS[0]
    for stage, (width, blocks) in enumerate(zip(RESNET50_WIDTHS, RESNET50_BLOCKS, strict=True)):
        outputs = width * RESNET50_EXPANSION
        for block in range(blocks):
            others += size**2 * inputs * width
            if stage and not block:
                size = -(-size // 2)
            others += size**2 * (9 * width * width + width * outputs)
            others += 0 if block else size**2 * inputs * outputs
            inputs = outputs
    return first, others + inputs * CLASSES


def _vgg16(size: int) -> tuple[int, int]:
    """As of _resnet50."""
    first = size**2 * 9 * 3 * VGG16_STAGES[0][0]
    others, inputs = -first, 3
    for width, count in VGG16_STAGES:
        for _ in range(count):
            others += size**2 * 9 * inputs * width
            inputs = width
        size //= 2
    dense = (inputs * VGG16_POOLED**2 + VGG16_DENSE + CLASSES) * VGG16_DENSE
    return first, others + dense


def _bert(length: int) -> int:
    """Multiply-adds of a sequence's forward pass; unused predictions are computed too."""
    layer = 4 * BERT_WIDTH**2 + 2 * BERT_WIDTH * BERT_INNER + 2 * length * BERT_WIDTH
    pair = BERT_WIDTH**2 + 2 * BERT_WIDTH
    word = BERT_WIDTH**2 + BERT_WIDTH * VOCABULARY
    return BERT_LAYERS * length * layer + pair + predictions(length) * word
