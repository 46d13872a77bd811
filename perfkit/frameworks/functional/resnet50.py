"""ResNet-50 as a function of a forward pass; perfkit.models.resnet50 names the source."""

from perfkit.frameworks.functional.layers import Array, Forward, mean_loss, uniform
from perfkit.models import resnet50 as facts
from perfkit.models.model import CLASSES


class ResNet50:
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to logits of batch x
    classes."""

    inputs = 1
    loss = staticmethod(mean_loss)

    def __call__(self, run: Forward, images: Array) -> Array:
        x = run.convolution("conv1", images, 3, facts.STEM, 7, 2)
        x = run.max_pool(run.relu(run.batch_norm("bn1", x, facts.STEM)), 3, 2, padding=1)
        for stage, blocks in enumerate(facts.stages(), 1):
            for block, sizes in enumerate(blocks):
                x = _bottleneck(run, f"layer{stage}.{block}", x, *sizes)
        features = facts.features()
        # Glorot and Bengio, 2010: the first values of Paddle's dense layers.
        limit = (6 / (features + CLASSES)) ** 0.5
        return run.dense("fc", run.spatial_mean(x), features, CLASSES, uniform(limit))


def _bottleneck(
    run: Forward, name: str, x: Array, inputs: int, width: int, stride: int
) -> Array:
    """1x1, 3x3 (strided), 1x1, and a projected or plain shortcut."""
    outputs = width * facts.EXPANSION
    y = run.convolution(f"{name}.conv1", x, inputs, width, 1)
    y = run.relu(run.batch_norm(f"{name}.bn1", y, width))
    y = run.convolution(f"{name}.conv2", y, width, width, 3, stride)
    y = run.relu(run.batch_norm(f"{name}.bn2", y, width))
    y = run.convolution(f"{name}.conv3", y, width, outputs, 1)
    y = run.batch_norm(f"{name}.bn3", y, outputs)
    if stride != 1 or inputs != outputs:
        x = run.convolution(f"{name}.downsample.0", x, inputs, outputs, 1, stride)
        x = run.batch_norm(f"{name}.downsample.1", x, outputs)
    return run.relu(y + x)
