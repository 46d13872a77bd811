"""The models: sizes, FLOPs, optimizer settings and defaults, without any framework.

ResNet-50 v1.5: He et al., Deep residual learning for image recognition, 2015
VGG-16: Simonyan and Zisserman, Very deep convolutional networks, 2014, configuration D
BERT-base: Devlin et al., BERT: pre-training of deep bidirectional transformers, 2018
GPT-2: Radford et al., Language models are unsupervised multitask learners, 2019; as in nanoGPT,
       the vocabulary is padded to a multiple of 64 and there is no dropout
Llama 3: Grattafiori et al., The Llama 3 herd of models, 2024, as published for 8B (3.1) and 1B
       (3.2), and a tiny size with the same vocabulary for CPUs
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

CLASSES = 1000
"""Number of image labels, as in ImageNet."""
MOMENTUM = 0.9
"""Momentum of SGD."""
ADAM_BETAS = (0.9, 0.999)
"""Kingma and Ba, Adam, 2014."""
Unit = Literal["images/s", "sequences/s", "tokens/s"]
MultiplyAdds = tuple[int, int]
"""Multiply-adds of a sample's forward pass in the layers that need no gradient of their input,
the first convolution, and in all other layers. Only matrix products count: convolutions, dense
layers, attention."""


class Optimizer(NamedTuple):
    """`learning_rate`: samples per step of all ranks -> learning rate, constant over the
    training since throughput is measured, not accuracy. `betas` are Adam's. Gradients are
    clipped to the global norm `clip_norm`, unless it is None."""

    learning_rate: Callable[[int], float]
    weight_decay: float
    betas: tuple[float, float] = ADAM_BETAS
    clip_norm: float | None = None


@dataclass(frozen=True)
class Model:
    """Facts and defaults of a model in one size. Batch sizes are samples per device, lengths
    pixels of an image's sides or tokens of a sequence. The first of `inputs` and `optimizers`
    is the default. `data` is the format of the training data. `choices`: number of classes for
    each part of the loss. Rows with `ignored_label` count neither in the loss nor in the
    accuracy. `in_fast_convolutions`: the multiply-adds of 3x3 convolutions with stride 1, which
    fast algorithms compute with fewer multiplications; None without such."""

    name: str
    short_name: str
    parameters: int
    sample: Literal["image", "sequence"]
    data: Literal["images", "shards", "tokens", "tokens32"]
    unit: Unit
    inputs: tuple[str, ...]
    optimizers: Mapping[str, Optimizer]
    multiply_adds: Callable[[int], MultiplyAdds]
    choices: tuple[int, ...]
    gpu_batch_size: int
    cpu_batch_size: int
    gpu_length: int
    cpu_length: int
    data_dir: str
    longest: int | None = None
    ignored_label: int | None = None
    in_fast_convolutions: Callable[[int], MultiplyAdds] | None = None


def linear_rate(rate: float) -> Callable[[int], float]:
    """Scale `rate` linearly with the global batch up to 256, constant above: a larger rate
    needs a warm-up (Goyal et al., 2017), without which VGG's loss diverges in a few steps."""
    return lambda global_batch: rate * min(1.0, global_batch / 256)


RESNET_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width (channels of the 3x3 convolutions) and number of blocks of each stage."""


class ConvolutionSize(NamedTuple):
    """A square convolution: channels, kernel and stride, and the pixels of its output's side."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    side: int

    @property
    def multiply_adds(self) -> int:
        return self.side**2 * self.kernel**2 * self.inputs * self.outputs


def resnet_convolutions(size: int) -> list[ConvolutionSize]:
    """Return the convolutions of ResNet-50 for images of this many pixels a side."""
    side = ceil(size / 2)
    convolutions = [ConvolutionSize(3, 64, 7, 2, side)]
    side = ceil(side / 2)
    inputs = 64
    for stage, (width, blocks) in enumerate(RESNET_STAGES):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            outputs = 4 * width
            convolutions.append(ConvolutionSize(inputs, width, 1, 1, side))
            side = ceil(side / stride)
            convolutions.append(ConvolutionSize(width, width, 3, stride, side))
            convolutions.append(ConvolutionSize(width, outputs, 1, 1, side))
            if block == 0:
                convolutions.append(ConvolutionSize(inputs, outputs, 1, stride, side))
            inputs = outputs
    return convolutions


VGG_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of convolutions of each stage, which ends with a 2x2 max-pool."""


def vgg_convolutions(size: int) -> list[ConvolutionSize]:
    """Return the convolutions of VGG-16 for images of this many pixels a side."""
    convolutions = []
    inputs, side = 3, size
    for width, count in VGG_STAGES:
        for _ in range(count):
            convolutions.append(ConvolutionSize(inputs, width, 3, 1, side))
            inputs = width
        side //= 2
    return convolutions


def image_model_flops(
    convolutions: Callable[[int], list[ConvolutionSize]], dense_weights: int
) -> Callable[[int], MultiplyAdds]:
    """Return the function `multiply_adds` of a model with these convolutions and dense
    layers."""

    def multiply_adds(size: int) -> MultiplyAdds:
        first, *others = convolutions(size)
        return first.multiply_adds, sum(c.multiply_adds for c in others) + dense_weights

    return multiply_adds


def fast_convolutions(
    convolutions: Callable[[int], list[ConvolutionSize]],
) -> Callable[[int], MultiplyAdds]:
    """Return the function `in_fast_convolutions` of a model with these convolutions."""

    def multiply_adds(size: int) -> MultiplyAdds:
        first, *others = (
            c.multiply_adds if c.kernel == 3 and c.stride == 1 else 0
            for c in convolutions(size)
        )
        return first, sum(others)

    return multiply_adds


class BertSize(NamedTuple):
    """The dimensions of BERT. Id 0 is padding; ids from `first_word` on are words, lower ones
    special or unused tokens of the English lower-case vocabulary."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 30_522
    positions: int = 512
    dropout: float = 0.1
    first_word: int = 999

    def multiply_adds(self, length: int) -> MultiplyAdds:
        """See MultiplyAdds; includes unused predictions, which are computed too."""
        layer = 12 * self.width**2 + 2 * length * self.width
        next_sentence = self.width**2 + 2 * self.width
        prediction = self.width**2 + self.width * self.vocabulary
        products = self.layers * length * layer + next_sentence
        return 0, products + predictions(length) * prediction


BERT_SIZE = BertSize()
"""BERT-base."""


def predictions(length: int) -> int:
    """Return the most masked words of a sequence: as in public trainings, 20 of 128 tokens, 80
    of 512."""
    return min(length, 20) if length <= 128 else 80


class DecoderSize(NamedTuple):
    """The terms of 6 N + 12 L d T, the FLOPs of a token's training step (Chowdhery et al.,
    PaLM, 2022, appendix B): N is `product_weights`, the weights in matrix products, with the
    output layer, without lookups, biases and norms; L `layers`, d `width`, T the length."""

    product_weights: int
    layers: int
    width: int

    def multiply_adds(self, length: int) -> MultiplyAdds:
        """See MultiplyAdds. All attention scores count, including the masked half."""
        attention = self.layers * 2 * length * self.width
        return 0, length * (self.product_weights + attention)


class GptSize(NamedTuple):
    """The dimensions of a GPT-2."""

    layers: int
    width: int
    heads: int
    vocabulary: int = 50_304
    positions: int = 1024

    @property
    def decoder(self) -> DecoderSize:
        weights = self.layers * 12 * self.width**2 + self.width * self.vocabulary
        return DecoderSize(weights, self.layers, self.width)

    @property
    def parameters(self) -> int:
        biases_and_norms = self.layers * 13 * self.width + 2 * self.width
        return self.decoder.product_weights + biases_and_norms + self.positions * self.width


GPT_SIZES = {
    "124M": GptSize(12, 768, 12),
    "355M": GptSize(24, 1024, 16),
    "774M": GptSize(36, 1280, 20),
    "1558M": GptSize(48, 1600, 25),
}
GPT_RATES = {"124M": 6e-4, "355M": 3e-4, "774M": 2.5e-4, "1558M": 2e-4}
"""Size -> learning rate of about as many parameters in Brown et al., Language models are
few-shot learners, 2020."""
END_OF_TEXT = 50_256
"""Id of GPT-2's token after each document."""


class LlamaSize(NamedTuple):
    """The dimensions of a Llama. `heads` are the query heads, `inner` is the hidden width of a
    layer's MLP; `is_tied`: whether the output layer shares the embedding's weights; `theta`:
    the base of the rotation's wavelengths."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    is_tied: bool
    vocabulary: int = 128_256
    positions: int = 32_768
    theta: float = 500_000.0

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def decoder(self) -> DecoderSize:
        kv_width = self.kv_heads * self.head_width
        attention = 2 * self.width**2 + 2 * self.width * kv_width
        layer = attention + 3 * self.width * self.inner
        weights = self.layers * layer + self.width * self.vocabulary
        return DecoderSize(weights, self.layers, self.width)

    @property
    def parameters(self) -> int:
        norms = (2 * self.layers + 1) * self.width
        embedding = 0 if self.is_tied else self.width * self.vocabulary
        return self.decoder.product_weights + norms + embedding


LLAMA_SIZES = {
    "tiny": LlamaSize(4, 256, 4, 2, 896, is_tied=True),
    "1b": LlamaSize(16, 2048, 32, 8, 8192, is_tied=True),
    "8b": LlamaSize(32, 4096, 32, 8, 14_336, is_tied=False),
}
LLAMA_NAMES = {"tiny": "Llama 3 tiny", "1b": "Llama 3.2 1B", "8b": "Llama 3.1 8B"}
