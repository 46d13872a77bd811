"""ResNet-50 v1.5 with torchvision's names (He et al., Deep residual learning for image
recognition, 2015). As in the published suites, the 3x3 convolution of a stage's first block has
the stride ("v1.5")."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow import Tensor

from perfkit.training.models import CLASSES, RESNET_STAGES
from perfkit.training.tensorflow.layers import BatchNorm, Conv2D, Linear, max_pool

EXPANSION = 4
"""Ratio of a block's output channels to its width."""


class Bottleneck(tf.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.conv1 = Conv2D(inputs, width, 1)
        self.bn1 = BatchNorm(width)
        self.conv2 = Conv2D(width, width, 3, stride)
        self.bn2 = BatchNorm(width)
        self.conv3 = Conv2D(width, outputs, 1)
        self.bn3 = BatchNorm(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = [Conv2D(inputs, outputs, 1, stride), BatchNorm(outputs)]

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        shortcut = x
        if self.downsample:
            convolution, norm = self.downsample
            shortcut = norm(convolution(x), training)
        y = tf.nn.relu(self.bn1(self.conv1(x), training))
        y = tf.nn.relu(self.bn2(self.conv2(y), training))
        y = self.bn3(self.conv3(y), training)
        return tf.nn.relu(y + shortcut)


class ResNet(tf.Module):
    """`stages`: width and number of blocks of each stage."""

    def __init__(
        self, stages: Sequence[tuple[int, int]] = RESNET_STAGES, classes: int = CLASSES
    ) -> None:
        super().__init__()
        stem = stages[0][0]
        self.conv1 = Conv2D(3, stem, 7, 2)
        self.bn1 = BatchNorm(stem)
        self.layer1 = stage(stem, *stages[0], stride=1)
        self.layer2 = stage(EXPANSION * stages[0][0], *stages[1], stride=2)
        self.layer3 = stage(EXPANSION * stages[1][0], *stages[2], stride=2)
        self.layer4 = stage(EXPANSION * stages[2][0], *stages[3], stride=2)
        self.fc = Linear(EXPANSION * stages[3][0], classes)

    def __call__(self, images: Tensor, training: bool = False) -> Tensor:
        """Return the logits (batch x classes) of images (batch x height x width x 3)."""
        x = tf.nn.relu(self.bn1(self.conv1(images), training))
        x = max_pool(x, 3, 2)
        for block in (*self.layer1, *self.layer2, *self.layer3, *self.layer4):
            x = block(x, training)
        x = tf.reduce_mean(tf.cast(x, self.fc.variable_dtype), (1, 2))
        return tf.cast(self.fc(x), x.dtype)


def stage(inputs: int, width: int, blocks: int, stride: int) -> list[Bottleneck]:
    first = Bottleneck(inputs, width, stride)
    others = [Bottleneck(EXPANSION * width, width, 1) for _ in range(blocks - 1)]
    return [first, *others]
