"""ResNet-50 v1.5 with torchvision's names (He et al., Deep residual learning for image
recognition, 2015). As in the published suites, the 3x3 convolution of a stage's first block has
the stride ("v1.5")."""

from collections.abc import Sequence

from torch import Tensor, nn

from perfkit.training.models import CLASSES, RESNET_STAGES

EXPANSION = 4
"""Ratio of a block's output channels to its width."""


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + shortcut)


class ResNet(nn.Module):
    """`stages`: width and number of blocks of each stage."""

    def __init__(
        self, stages: Sequence[tuple[int, int]] = RESNET_STAGES, classes: int = CLASSES
    ) -> None:
        super().__init__()
        stem = stages[0][0]
        self.conv1 = nn.Conv2d(3, stem, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = stage(stem, *stages[0], stride=1)
        self.layer2 = stage(EXPANSION * stages[0][0], *stages[1], stride=2)
        self.layer3 = stage(EXPANSION * stages[1][0], *stages[2], stride=2)
        self.layer4 = stage(EXPANSION * stages[2][0], *stages[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(EXPANSION * stages[3][0], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (batch x classes) of images (batch x 3 x height x width)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride)
    others = [Bottleneck(EXPANSION * width, width, 1) for _ in range(blocks - 1)]
    return nn.Sequential(first, *others)
