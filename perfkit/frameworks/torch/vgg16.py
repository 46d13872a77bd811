"""VGG-16 in PyTorch, the network of vgg16_paddle.py, which names the source.

Attributes and initial distributions are Paddle's: He et al. for convolutions, a normal one of
deviation 0.01 for dense layers, biases 0.
"""

import torch
from torch import nn
from torch.nn import functional

from perfkit.models.architecture import VGG16_DENSE as DENSE
from perfkit.models.architecture import VGG16_POOLED as POOLED
from perfkit.models.architecture import VGG16_STAGES as STAGES
from perfkit.models.data import CLASSES


class VGG16(nn.Module):
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to batch x classes.

    Before the dense layers, features are averaged to 7x7: at 224 pixels they have that size
    already, so nothing changes there, and other sizes can be trained too.
    """

    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.channels_last = layout == "NHWC"
        layers: list[nn.Module] = []
        channels = 3
        for width, count in STAGES:
            for _ in range(count):
                layers += [_convolution(channels, width), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.average = nn.AdaptiveAvgPool2d(POOLED)
        self.classify = nn.Sequential(
            _dense(channels * POOLED * POOLED, DENSE),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            _dense(DENSE, DENSE),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            _dense(DENSE, CLASSES),
        )
        if self.channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.channels_last:
            # A view: PyTorch always indexes NCHW, whatever the order in memory.
            images = images.permute(0, 3, 1, 2)
        x = self.average(self.features(images))
        return self.classify(x.flatten(1))

    def loss(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(scores, labels.flatten())

    def accuracy(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The share of images whose label has the highest score."""
        return (scores.argmax(-1) == labels.flatten()).float().mean()


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    made = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.kaiming_normal_(made.weight, nonlinearity="relu")
    nn.init.zeros_(made.bias)
    return made


def _dense(inputs: int, outputs: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=0.01)
    nn.init.zeros_(made.bias)
    return made
