"""ResNet-50 v1.5 in PyTorch, the network of resnet50_paddle.py, which names the sources.

Attributes and initial distributions are Paddle's: He et al. for convolutions, Glorot's uniform
for the dense layer, biases 0.
"""

import torch
from torch import nn
from torch.nn import functional

from perfkit.models.architecture import RESNET50_BLOCKS as BLOCKS
from perfkit.models.architecture import RESNET50_EXPANSION as EXPANSION
from perfkit.models.architecture import RESNET50_WIDTHS as WIDTHS
from perfkit.models.data import CLASSES


class ConvNorm(nn.Sequential):
    """Convolution without bias, then batch norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        convolution = nn.Conv2d(
            inputs, outputs, kernel, stride, padding=kernel // 2, bias=False
        )
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        super().__init__(convolution, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """1x1, 3x3 (strided), 1x1, and a projected or plain shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.reduce = ConvNorm(inputs, width, 1, 1)
        self.spatial = ConvNorm(width, width, 3, stride)
        self.expand = ConvNorm(width, outputs, 1, 1)
        self.project = inputs != outputs or stride != 1
        if self.project:
            self.shortcut = ConvNorm(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = self.shortcut(x) if self.project else x
        y = functional.relu(self.reduce(x), inplace=True)
        y = functional.relu(self.spatial(y), inplace=True)
        return functional.relu(self.expand(y) + shortcut, inplace=True)


class ResNet50(nn.Module):
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to batch x classes."""

    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.channels_last = layout == "NHWC"
        self.stem = ConvNorm(3, WIDTHS[0], 7, 2)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        blocks = []
        inputs = WIDTHS[0]
        for stage, (width, count) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
            for block in range(count):
                stride = 2 if stage and not block else 1
                blocks.append(Bottleneck(inputs, width, stride))
                inputs = width * EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(inputs, CLASSES)
        nn.init.xavier_uniform_(self.classify.weight)
        nn.init.zeros_(self.classify.bias)
        if self.channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.channels_last:
            # A view: PyTorch always indexes NCHW, whatever the order in memory.
            x = x.permute(0, 3, 1, 2)
        x = self.pool(functional.relu(self.stem(x), inplace=True))
        x = self.average(self.blocks(x))
        return self.classify(x.flatten(1))

    def loss(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(scores, labels.flatten())

    def accuracy(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The share of images whose label has the highest score."""
        return (scores.argmax(-1) == labels.flatten()).float().mean()
