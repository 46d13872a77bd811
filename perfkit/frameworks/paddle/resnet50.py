"""ResNet-50 v1.5 in Paddle: the stride of a stage's first block is in its 3x3 convolution.

He et al., Deep residual learning for image recognition, 2015 (the network); "v1.5" moves the
stride from the first 1x1 to the 3x3, as the published suites measure it.
25,557,032 trainable parameters for 1000 classes.
"""

import paddle
from paddle import nn
from paddle.nn import functional

from perfkit.models.architecture import RESNET50_BLOCKS as BLOCKS
from perfkit.models.architecture import RESNET50_EXPANSION as EXPANSION
from perfkit.models.architecture import RESNET50_WIDTHS as WIDTHS
from perfkit.models.data import CLASSES


class ConvNorm(nn.Sequential):
    """Convolution without bias, then batch norm."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, layout: str
    ) -> None:
        super().__init__(
            nn.Conv2D(
                inputs,
                outputs,
                kernel,
                stride,
                padding=kernel // 2,
                bias_attr=False,
                weight_attr=nn.initializer.KaimingNormal(),
                data_format=layout,
            ),
            nn.BatchNorm2D(outputs, data_format=layout),
        )


class Bottleneck(nn.Layer):
    """1x1, 3x3 (strided), 1x1, and a projected or plain shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, layout: str) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.reduce = ConvNorm(inputs, width, 1, 1, layout)
        self.spatial = ConvNorm(width, width, 3, stride, layout)
        self.expand = ConvNorm(width, outputs, 1, 1, layout)
        self.project = inputs != outputs or stride != 1
        if self.project:
            self.shortcut = ConvNorm(inputs, outputs, 1, stride, layout)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        shortcut = self.shortcut(x) if self.project else x
        y = functional.relu(self.reduce(x))
        y = functional.relu(self.spatial(y))
        return functional.relu(self.expand(y) + shortcut)


class ResNet50(nn.Layer):
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to batch x classes."""

    inputs = 1

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.stem = ConvNorm(3, WIDTHS[0], 7, 2, layout)
        self.pool = nn.MaxPool2D(3, 2, padding=1, data_format=layout)
        blocks = []
        inputs = WIDTHS[0]
        for stage, (width, count) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
            for block in range(count):
                stride = 2 if stage and not block else 1
                blocks.append(Bottleneck(inputs, width, stride, layout))
                inputs = width * EXPANSION
        self.blocks = nn.Sequential(*blocks)
        self.average = nn.AdaptiveAvgPool2D(1, data_format=layout)
        self.classify = nn.Linear(inputs, CLASSES)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.pool(functional.relu(self.stem(x)))
        x = self.average(self.blocks(x))
        return self.classify(x.flatten(1))

    def loss(self, scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        return functional.cross_entropy(scores, labels)

    def accuracy(self, scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """The share of images whose label has the highest score."""
        return (scores.argmax(-1) == labels.flatten()).astype("float32").mean()
