"""ResNet-50 v1.5 with torchvision's names (He et al., Deep residual learning for image
recognition, 2015). As in the published suites, the 3x3 convolution of a stage's first block has
the stride ("v1.5")."""

from collections.abc import Sequence
from functools import partial

from paddle import Tensor, nn
from paddle.nn.initializer import KaimingNormal

from perfkit.training.models import CLASSES, RESNET_STAGES

EXPANSION = 4
"""Ratio of a block's output channels to its width."""


def convolution(inputs: int, outputs: int, size: int, stride: int, layout: str) -> nn.Conv2D:
    return nn.Conv2D(
        inputs,
        outputs,
        size,
        stride,
        padding=size // 2,
        weight_attr=KaimingNormal(),
        bias_attr=False,
        data_format=layout,
    )


class Bottleneck(nn.Layer):
    def __init__(self, inputs: int, width: int, stride: int, layout: str) -> None:
        super().__init__()
        outputs = EXPANSION * width
        batch_norm = partial(nn.BatchNorm2D, data_format=layout)
        self.conv1 = convolution(inputs, width, 1, 1, layout)
        self.bn1 = batch_norm(width)
        self.conv2 = convolution(width, width, 3, stride, layout)
        self.bn2 = batch_norm(width)
        self.conv3 = convolution(width, outputs, 1, 1, layout)
        self.bn3 = batch_norm(outputs)
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                convolution(inputs, outputs, 1, stride, layout), batch_norm(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + shortcut)


class ResNet(nn.Layer):
    """`stages`: width and number of blocks of each stage; `layout`: NCHW or NHWC, of the
    images."""

    def __init__(
        self,
        stages: Sequence[tuple[int, int]] = RESNET_STAGES,
        classes: int = CLASSES,
        layout: str = "NCHW",
    ) -> None:
        super().__init__()
        stem = stages[0][0]
        self.conv1 = convolution(3, stem, 7, 2, layout)
        self.bn1 = nn.BatchNorm2D(stem, data_format=layout)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2D(3, stride=2, padding=1, data_format=layout)
        self.layer1 = stage(stem, *stages[0], 1, layout)
        self.layer2 = stage(EXPANSION * stages[0][0], *stages[1], 2, layout)
        self.layer3 = stage(EXPANSION * stages[1][0], *stages[2], 2, layout)
        self.layer4 = stage(EXPANSION * stages[2][0], *stages[3], 2, layout)
        self.avgpool = nn.AdaptiveAvgPool2D(1, data_format=layout)
        self.fc = nn.Linear(EXPANSION * stages[3][0], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (batch x classes) of images (batch x layout)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def stage(inputs: int, width: int, blocks: int, stride: int, layout: str) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride, layout)
    others = [Bottleneck(EXPANSION * width, width, 1, layout) for _ in range(blocks - 1)]
    return nn.Sequential(first, *others)
