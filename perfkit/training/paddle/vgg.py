"""VGG-16 with torchvision's names (Simonyan and Zisserman, Very deep convolutional networks for
large-scale image recognition, 2014, configuration D)."""

from collections.abc import Sequence

from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import KaimingNormal, Normal

from perfkit.training.models import CLASSES, VGG_DENSE, VGG_STAGES


class VGG(nn.Layer):
    """`stages`: channels and number of convolutions of each stage, which ends with a 2x2
    max-pool; `dense`: width of the hidden dense layers; `layout`: NCHW or NHWC, of the
    images."""

    def __init__(
        self,
        stages: Sequence[tuple[int, int]] = VGG_STAGES,
        dense: int = VGG_DENSE,
        classes: int = CLASSES,
        layout: str = "NCHW",
    ) -> None:
        super().__init__()
        layers: list[nn.Layer] = []
        # Parts of `features` that can be compiled; a list leaves the parameters' names alone.
        self.stages: list[nn.Layer] = []
        channels = 3
        for width, convolutions in stages:
            begin = len(layers)
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
            self.stages.append(nn.Sequential(*layers[begin:]))
        self.features = nn.Sequential(*layers)
        # Changes nothing at 224 px; lets images have any size.
        self.avgpool = nn.AdaptiveAvgPool2D(7, data_format=layout)
        weights = ParamAttr(initializer=Normal(std=0.01))
        self.classifier = nn.Sequential(
            nn.Linear(channels * 7 * 7, dense, weights),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(dense, dense, weights),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(dense, classes, weights),
        )
        self.layout = layout

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (batch x classes) of images (batch x layout)."""
        x = images
        for stage in self.stages:
            x = stage(x)
        x = self.avgpool(x)
        if self.layout == "NHWC":
            # The weights of the classifier expect channels first in both layouts.
            x = x.transpose([0, 3, 1, 2])
        return self.classifier(x.flatten(1))
