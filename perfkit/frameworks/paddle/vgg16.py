"""VGG-16 in Paddle: thirteen 3x3 convolutions with bias, no batch norm, three dense layers.

Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition,
2014, configuration D. 138,357,544 trainable parameters for 1000 classes, most of them in the
first dense layer.
"""

import paddle
from paddle import nn
from paddle.nn import functional

from perfkit.models.architecture import VGG16_DENSE as DENSE
from perfkit.models.architecture import VGG16_POOLED as POOLED
from perfkit.models.architecture import VGG16_STAGES as STAGES
from perfkit.models.data import CLASSES


class VGG16(nn.Layer):
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to batch x classes.

    Before the dense layers, features are averaged to 7x7: at 224 pixels they have that size
    already, so nothing changes there, and other sizes can be trained too.
    """

    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.channels_last = layout == "NHWC"
        layers: list[nn.Layer] = []
        channels = 3
        for width, count in STAGES:
            for _ in range(count):
                weight = nn.initializer.KaimingNormal()
                layers.append(
                    nn.Conv2D(
                        channels, width, 3, padding=1, weight_attr=weight, data_format=layout
                    )
                )
                layers.append(nn.ReLU())
                channels = width
            layers.append(nn.MaxPool2D(2, 2, data_format=layout))
        self.features = nn.Sequential(*layers)
        self.average = nn.AdaptiveAvgPool2D(POOLED, data_format=layout)
        self.classify = nn.Sequential(
            _dense(channels * POOLED * POOLED, DENSE),
            nn.ReLU(),
            nn.Dropout(0.5),
            _dense(DENSE, DENSE),
            nn.ReLU(),
            nn.Dropout(0.5),
            _dense(DENSE, CLASSES),
        )

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        x = self.average(self.features(images))
        if self.channels_last:
            # The dense weights then mean the same in both layouts.
            x = x.transpose([0, 3, 1, 2])
        return self.classify(x.flatten(1))

    def loss(self, scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        return functional.cross_entropy(scores, labels)

    def accuracy(self, scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """The share of images whose label has the highest score."""
        return (scores.argmax(-1) == labels.flatten()).astype("float32").mean()


def _dense(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, weight_attr=nn.initializer.Normal(std=0.01))
