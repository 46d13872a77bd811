"""VGG-16 with torchvision's names (Simonyan and Zisserman, Very deep convolutional networks for
large-scale image recognition, 2014, configuration D)."""

from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import KaimingNormal, Normal

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of convolutions of each stage, which ends with a 2x2 max-pool."""


class VGG(nn.Layer):
    """`layout`: NCHW or NHWC, of the images."""

    def __init__(self, classes: int = 1000, layout: str = "NCHW") -> None:
        super().__init__()
        layers: list[nn.Layer] = []
        channels = 3
        for width, convolutions in STAGES:
            for _ in range(convolutions):
                convolution = nn.Conv2D(
                    channels,
                    width,
                    3,
                    padding=1,
                    weight_attr=KaimingNormal(),
                    data_format=layout,
                )
                layers += [convolution, nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2D(2, data_format=layout))
        self.features = nn.Sequential(*layers)
        # Changes nothing at 224 px; lets images have any size.
        self.avgpool = nn.AdaptiveAvgPool2D(7, data_format=layout)
        weights = ParamAttr(initializer=Normal(std=0.01))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096, weights),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096, weights),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, classes, weights),
        )
        self.layout = layout

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (batch x classes) of images (batch x layout)."""
        x = self.avgpool(self.features(images))
        if self.layout == "NHWC":
            # The weights of the classifier expect channels first in both layouts.
            x = x.transpose([0, 3, 1, 2])
        return self.classifier(x.flatten(1))
