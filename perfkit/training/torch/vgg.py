"""VGG-16 with torchvision's names (Simonyan and Zisserman, Very deep convolutional networks for
large-scale image recognition, 2014, configuration D)."""

from collections.abc import Sequence

from torch import Tensor, nn

from perfkit.training.models import CLASSES, VGG_DENSE, VGG_STAGES


class VGG(nn.Module):
    """`stages`: channels and number of convolutions of each stage, which ends with a 2x2
    max-pool; `dense`: width of the hidden dense layers."""

    def __init__(
        self,
        stages: Sequence[tuple[int, int]] = VGG_STAGES,
        dense: int = VGG_DENSE,
        classes: int = CLASSES,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, convolutions in stages:
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        # Changes nothing at 224 px; lets images have any size.
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(channels * 7 * 7, dense),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(dense, dense),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(dense, classes),
        )
        self.apply(initialize)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (batch x classes) of images (batch x 3 x height x width)."""
        x = self.avgpool(self.features(images))
        return self.classifier(x.flatten(1))


def initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.01)
        nn.init.zeros_(module.bias)
