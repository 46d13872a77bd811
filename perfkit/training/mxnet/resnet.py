"""ResNet-50 v1.5 with torchvision's names (He et al., Deep residual learning for image
recognition, 2015); batch norms call theirs gamma and beta. As in the published suites, the 3x3
convolution of a stage's first block has the stride ("v1.5")."""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from perfkit.training.models import CLASSES, RESNET_STAGES

EXPANSION = 4
"""Ratio of a block's output channels to its width."""


def convolution(inputs: int, outputs: int, size: int, stride: int, prefix: str) -> nn.Conv2D:
    return nn.Conv2D(
        outputs,
        size,
        stride,
        padding=size // 2,
        use_bias=False,
        # He et al., Delving deep into rectifiers, 2015.
        weight_initializer=mx.init.MSRAPrelu("in", slope=0),
        in_channels=inputs,
        prefix=prefix,
    )


class Bottleneck(HybridBlock):
    def __init__(self, inputs: int, width: int, stride: int, prefix: str) -> None:
        super().__init__(prefix)
        outputs = EXPANSION * width
        with self.name_scope():
            self.conv1 = convolution(inputs, width, 1, 1, "conv1.")
            self.bn1 = nn.BatchNorm(in_channels=width, prefix="bn1.")
            self.conv2 = convolution(width, width, 3, stride, "conv2.")
            self.bn2 = nn.BatchNorm(in_channels=width, prefix="bn2.")
            self.conv3 = convolution(width, outputs, 1, 1, "conv3.")
            self.bn3 = nn.BatchNorm(in_channels=outputs, prefix="bn3.")
            self.downsample = None
            if stride != 1 or inputs != outputs:
                self.downsample = nn.HybridSequential(prefix="downsample.")
                with self.downsample.name_scope():
                    self.downsample.add(convolution(inputs, outputs, 1, stride, "0."))
                    self.downsample.add(nn.BatchNorm(in_channels=outputs, prefix="1."))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + shortcut)


class ResNet(HybridBlock):
    """`stages`: width and number of blocks of each stage."""

    def __init__(
        self, stages: Sequence[tuple[int, int]] = RESNET_STAGES, classes: int = CLASSES
    ) -> None:
        super().__init__(prefix="")
        stem = stages[0][0]
        features = EXPANSION * stages[3][0]
        with self.name_scope():
            self.conv1 = convolution(3, stem, 7, 2, "conv1.")
            self.bn1 = nn.BatchNorm(in_channels=stem, prefix="bn1.")
            self.maxpool = nn.MaxPool2D(3, strides=2, padding=1)
            self.layer1 = stage(stem, *stages[0], 1, "layer1.")
            self.layer2 = stage(EXPANSION * stages[0][0], *stages[1], 2, "layer2.")
            self.layer3 = stage(EXPANSION * stages[1][0], *stages[2], 2, "layer3.")
            self.layer4 = stage(EXPANSION * stages[2][0], *stages[3], 2, "layer4.")
            self.avgpool = nn.GlobalAvgPool2D()
            # Glorot and Bengio, 2010.
            self.fc = nn.Dense(
                classes, weight_initializer=mx.init.Xavier(), in_units=features, prefix="fc."
            )

    def hybrid_forward(self, F: Any, images: Any) -> Any:
        """Return the logits (batch x classes) of images (batch x 3 x height x width)."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x))


def stage(
    inputs: int, width: int, blocks: int, stride: int, prefix: str
) -> nn.HybridSequential:
    layers = nn.HybridSequential(prefix=prefix)
    with layers.name_scope():
        layers.add(Bottleneck(inputs, width, stride, "0."))
        for number in range(1, blocks):
            layers.add(Bottleneck(EXPANSION * width, width, 1, f"{number}."))
    return layers
