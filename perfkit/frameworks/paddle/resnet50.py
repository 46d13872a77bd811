"""ResNet-50 in Paddle; perfkit.models.resnet50 names the source."""

import paddle
from paddle import nn
from paddle.nn import functional

from perfkit.models import resnet50 as facts
from perfkit.models.model import CLASSES


def _convolution(inputs: int, outputs: int, kernel: int, stride: int, layout: str) -> nn.Conv2D:
    return nn.Conv2D(
        inputs,
        outputs,
        kernel,
        stride,
        padding=kernel // 2,
        bias_attr=False,
        weight_attr=nn.initializer.KaimingNormal(),
        data_format=layout,
    )


class Bottleneck(nn.Layer):
    """1x1, 3x3 (strided), 1x1, and a projected or plain shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, layout: str) -> None:
        super().__init__()
        outputs = width * facts.EXPANSION
        self.conv1 = _convolution(inputs, width, 1, 1, layout)
        self.bn1 = nn.BatchNorm2D(width, data_format=layout)
        self.conv2 = _convolution(width, width, 3, stride, layout)
        self.bn2 = nn.BatchNorm2D(width, data_format=layout)
        self.conv3 = _convolution(width, outputs, 1, 1, layout)
        self.bn3 = nn.BatchNorm2D(outputs, data_format=layout)
        self.downsample = None
        if inputs != outputs or stride != 1:
            self.downsample = nn.Sequential(
                _convolution(inputs, outputs, 1, stride, layout),
                nn.BatchNorm2D(outputs, data_format=layout),
            )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + shortcut)


class ResNet50(nn.Layer):
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to logits of batch x
    classes."""

    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.conv1 = _convolution(3, facts.STEM, 7, 2, layout)
        self.bn1 = nn.BatchNorm2D(facts.STEM, data_format=layout)
        self.maxpool = nn.MaxPool2D(3, 2, padding=1, data_format=layout)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(*(Bottleneck(*sizes, layout) for sizes in stage))
            for stage in facts.stages()
        )
        self.avgpool = nn.AdaptiveAvgPool2D(1, data_format=layout)
        self.fc = nn.Linear(facts.features(), CLASSES)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))

    def loss(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        return functional.cross_entropy(logits, labels)
