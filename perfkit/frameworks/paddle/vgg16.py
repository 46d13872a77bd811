"""VGG-16 in Paddle; perfkit.models.vgg16 names the source."""

import paddle
from paddle import nn
from paddle.nn import functional

from perfkit.models import vgg16 as facts


def _convolution(inputs: int, outputs: int, layout: str) -> nn.Conv2D:
    weight = nn.initializer.KaimingNormal()
    return nn.Conv2D(inputs, outputs, 3, padding=1, weight_attr=weight, data_format=layout)


def _dense(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, weight_attr=nn.initializer.Normal(std=facts.DEVIATION))


class VGG16(nn.Layer):
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to logits of batch x
    classes."""

    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.channels_last = layout == "NHWC"
        layers: list[nn.Layer] = []
        channels = 3
        for width, count in facts.STAGES:
            for _ in range(count):
                layers += [_convolution(channels, width, layout), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2D(2, 2, data_format=layout))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2D(facts.POOLED, data_format=layout)
        layers = []
        for sizes in facts.dense_layers():
            layers += [_dense(*sizes), nn.ReLU(), nn.Dropout(facts.DROPOUT)]
        self.classifier = nn.Sequential(*layers[:-2])

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        x = self.avgpool(self.features(images))
        if self.channels_last:
            # The dense weights then mean the same in both layouts.
            x = x.transpose([0, 3, 1, 2])
        return self.classifier(x.flatten(1))

    def loss(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        return functional.cross_entropy(logits, labels)
