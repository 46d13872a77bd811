"""ResNet-50 v1.5 (He et al., Deep residual learning for image recognition, 2015). As in the
published suites, the 3x3 convolution has the stride of a stage's first block ("v1.5")."""

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
