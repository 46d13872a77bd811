"""VGG-16 as a function of a forward pass; perfkit.models.vgg16 names the source."""

from perfkit.frameworks.functional.layers import Array, Forward, mean_loss, normal
from perfkit.models import vgg16 as facts


class VGG16:
    """Images of batch x 3 x H x W (NCHW) or batch x H x W x 3 (NHWC) to logits of batch x
    classes."""

    inputs = 1
    loss = staticmethod(mean_loss)

    def __call__(self, run: Forward, images: Array) -> Array:
        x, channels, index = images, 3, 0
        for width, count in facts.STAGES:
            for _ in range(count):
                name, sizes = f"features.{index}", (channels, width, 3)
                x = run.relu(run.convolution(name, x, *sizes, bias=True))
                # A ReLU counts as a layer, as does the pool.
                channels, index = width, index + 2
            x = run.max_pool(x, 2, 2)
            index += 1
        x = run.flatten(run.average_to(x, facts.POOLED))
        *hidden, last = facts.dense_layers()
        for number, wide in enumerate(hidden):
            # Behind it are a ReLU and dropout.
            x = run.dense(f"classifier.{3 * number}", x, *wide, normal(facts.DEVIATION))
            x = run.dropout(run.relu(x), facts.DROPOUT)
        return run.dense(f"classifier.{3 * len(hidden)}", x, *last, normal(facts.DEVIATION))
