"""VGG-16 in PyTorch; perfkit.models.vgg16 names the source.

First weights are Paddle's: He et al. for convolutions, a normal distribution for dense layers,
biases 0.
"""

import torch
from torch import nn
from torch.nn import functional

from perfkit.models import vgg16 as facts


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer


def _dense(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=facts.DEVIATION)
    nn.init.zeros_(layer.bias)
    return layer


class VGG16(nn.Module):
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to logits of batch x
    classes."""

    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.channels_last = layout == "NHWC"
        layers: list[nn.Module] = []
        channels = 3
        for width, count in facts.STAGES:
            for _ in range(count):
                layers += [_convolution(channels, width), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(facts.POOLED)
        layers = []
        for sizes in facts.dense_layers():
            layers += [_dense(*sizes), nn.ReLU(inplace=True), nn.Dropout(facts.DROPOUT)]
        self.classifier = nn.Sequential(*layers[:-2])
        if self.channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.channels_last:
            # A view: PyTorch always indexes NCHW, whatever the order in memory.
            images = images.permute(0, 3, 1, 2)
        return self.classifier(self.avgpool(self.features(images)).flatten(1))

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, labels.flatten())
