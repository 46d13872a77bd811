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
from typing import Literal, NamedTuple, Protocol, TypeVar

CLASSES = 1000
"""Number of image labels, as in ImageNet."""
MOMENTUM = 0.9
"""Momentum of SGD."""
ADAM_BETAS = (0.9, 0.999)
"""Kingma and Ba, Adam, 2014."""
PADDING = 0
"""Id of padding in BERT's vocabulary, which is never a masked word."""
Unit = Literal["images/s", "sequences/s", "tokens/s"]
MultiplyAdds = tuple[int, int]
"""Multiply-adds of a sample's forward pass in the layers that need no gradient of their input,
the first convolution, and in all other layers. Only matrix products count: convolutions, dense
layers, attention."""


class OptimizerDefaults(NamedTuple):
    """`learning_rate`: samples per step of all ranks -> learning rate, constant over the
    training since throughput is measured, not accuracy. `betas` are Adam's. Gradients are
    clipped to the global norm `clip_norm`, unless it is None."""

    learning_rate: Callable[[int], float]
    weight_decay: float
    betas: tuple[float, float] = ADAM_BETAS
    clip_norm: float | None = None


class ModelSizes(NamedTuple):
    """The names of a model's sizes (the parameter `model_size`), and the defaults on a CPU and
    on an accelerator."""

    names: tuple[str, ...]
    on_cpu: str
    on_gpu: str


@dataclass(frozen=True)
class Model:
    """Facts and defaults of a model in one size. Batch sizes are samples per device, image
    sizes pixels, sequence lengths tokens; None: not applicable. The first of `inputs` and
    `optimizers` is the default.

    `sizes` are the sizes in which the model exists. `data` is the format of the training data.
    `cpu_sequence_length` is the default on a CPU if different; `longest_sequence` is the number
    of positions. `choices`: number of classes for each part of the loss. `convolutions`:
    those of an image model, by the pixels of a side.
    """

    name: str
    short_name: str
    parameters: int
    sample: Literal["image", "sequence"]
    data: Literal["images", "shards", "tokens", "tokens32"]
    unit: Unit
    inputs: tuple[str, ...]
    optimizer_defaults: Mapping[str, OptimizerDefaults]
    multiply_adds: Callable[[int], MultiplyAdds]
    choices: tuple[int, ...]
    gpu_batch_size: int
    cpu_batch_size: int
    data_dir: str
    sizes: ModelSizes | None = None
    default_image_size: int | None = None
    default_sequence_length: int | None = None
    cpu_sequence_length: int | None = None
    longest_sequence: int | None = None
    decoder: "DecoderSize | None" = None
    convolutions: "Callable[[int], list[ConvolutionSize]] | None" = None

    @property
    def optimizers(self) -> tuple[str, ...]:
        return tuple(self.optimizer_defaults)


def linear_rate(rate: float) -> Callable[[int], float]:
    """Scale `rate` linearly with the global batch up to 256, constant above: a larger rate
    needs a warm-up (Goyal et al., 2017), without which VGG's loss diverges in a few steps."""
    return lambda global_batch: rate * min(1.0, global_batch / 256)


RESNET_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width (channels of the 3x3 convolutions) and number of blocks of each stage."""


class ConvolutionSize(NamedTuple):
    """A square convolution: channels, kernel, stride, and pixels of its output's side."""

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
    inputs = RESNET_STAGES[0][0]
    convolutions = [ConvolutionSize(3, inputs, 7, 2, side)]
    side = ceil(side / 2)
    for stage, (width, blocks) in enumerate(RESNET_STAGES):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            outputs = 4 * width
            convolutions.append(ConvolutionSize(inputs, width, 1, 1, side))
            side = ceil(side / stride)
            convolutions.append(ConvolutionSize(width, width, 3, stride, side))
            convolutions.append(ConvolutionSize(width, outputs, 1, 1, side))
            if stride != 1 or inputs != outputs:
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


VGG_DENSE = 4096
"""Width of VGG-16's two hidden dense layers, which get 7 x 7 pixels."""


def image_model(
    *,
    name: str,
    short_name: str,
    parameters: int,
    convolutions: Callable[[int], list[ConvolutionSize]],
    dense: Callable[[], int],
    optimizer: OptimizerDefaults,
    gpu_batch_size: int,
    cpu_batch_size: int,
) -> Model:
    """Return the facts of an image classifier. `dense` returns the multiply-adds of its dense
    layers."""

    def multiply_adds(size: int) -> MultiplyAdds:
        first, *others = convolutions(size)
        return first.multiply_adds, dense() + sum(one.multiply_adds for one in others)

    return Model(
        name=name,
        short_name=short_name,
        parameters=parameters,
        sample="image",
        data="images",
        unit="images/s",
        inputs=("dali", "dataloader", "synthetic"),
        optimizer_defaults={"momentum": optimizer},
        multiply_adds=multiply_adds,
        choices=(CLASSES,),
        gpu_batch_size=gpu_batch_size,
        cpu_batch_size=cpu_batch_size,
        data_dir="data/samples",
        default_image_size=224,
        convolutions=convolutions,
    )


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


BERT_SIZE = BertSize()
"""BERT-base."""


def bert_multiply_adds(length: int) -> MultiplyAdds:
    """See MultiplyAdds; includes unused predictions, which are computed too."""
    size = BERT_SIZE
    layer = 12 * size.width**2 + 2 * length * size.width
    next_sentence = size.width**2 + 2 * size.width
    prediction = size.width**2 + size.width * size.vocabulary
    products = size.layers * length * layer + next_sentence
    return 0, products + predictions(length) * prediction


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


SEQUENCE_INPUTS = ("dataloader", "synthetic")
RESNET50 = image_model(
    name="ResNet-50 v1.5",
    short_name="ResNet-50",
    parameters=25_557_032,
    convolutions=resnet_convolutions,
    dense=lambda: 4 * RESNET_STAGES[-1][0] * CLASSES,
    # He et al.
    optimizer=OptimizerDefaults(linear_rate(0.1), 1e-4),
    gpu_batch_size=128,
    cpu_batch_size=4,
)
VGG16 = image_model(
    name="VGG-16",
    short_name="VGG-16",
    parameters=138_357_544,
    convolutions=vgg_convolutions,
    dense=lambda: VGG_DENSE * (7 * 7 * VGG_STAGES[-1][0] + VGG_DENSE + CLASSES),
    # Simonyan and Zisserman.
    optimizer=OptimizerDefaults(linear_rate(0.01), 5e-4),
    gpu_batch_size=64,
    cpu_batch_size=2,
)
BERT = Model(
    name="BERT-base pre-training",
    short_name="BERT-base",
    parameters=110_106_428,
    sample="sequence",
    data="shards",
    unit="sequences/s",
    inputs=SEQUENCE_INPUTS,
    optimizer_defaults={
        # Devlin et al.
        "adamw": OptimizerDefaults(lambda _batch: 1e-4, 0.01),
        # You et al., 2020: square-root scaling of the rate, 1 / 1600 for a batch of 512.
        "lamb": OptimizerDefaults(lambda batch: (batch / 512) ** 0.5 / 1600, 0.01),
    },
    multiply_adds=bert_multiply_adds,
    choices=(BERT_SIZE.vocabulary, 2),
    gpu_batch_size=32,
    cpu_batch_size=2,
    data_dir="data/sequences",
    default_sequence_length=128,
    longest_sequence=BERT_SIZE.positions,
)


def gpt(size_name: str | None = None) -> Model:
    """Return the facts of a size of GPT-2; without one, of 124M under the name of them all."""
    size = GPT_SIZES[size_name or "124M"]
    rate = GPT_RATES[size_name or "124M"]
    short_name = f"GPT-2 {size_name}" if size_name else "GPT-2"
    return Model(
        name=f"{short_name} pre-training",
        short_name=short_name,
        parameters=size.parameters,
        sample="sequence",
        data="tokens",
        unit="tokens/s",
        inputs=SEQUENCE_INPUTS,
        optimizer_defaults={
            "adamw": OptimizerDefaults(lambda _batch: rate, 0.1, (0.9, 0.95), 1.0)
        },
        multiply_adds=size.decoder.multiply_adds,
        choices=(size.vocabulary,),
        gpu_batch_size=16,
        cpu_batch_size=1,
        data_dir="data/tokens",
        sizes=ModelSizes(tuple(GPT_SIZES), on_cpu="124M", on_gpu="124M"),
        default_sequence_length=size.positions,
        cpu_sequence_length=128,
        longest_sequence=size.positions,
        decoder=size.decoder,
    )


def llama(size_name: str | None = None) -> Model:
    """Return the facts of a size of Llama; without one, of 1b under the name of them all."""
    size = LLAMA_SIZES[size_name or "1b"]
    short_name = LLAMA_NAMES[size_name] if size_name else "Llama 3"
    # The peak rate of the 8B pre-training (Grattafiori et al., 2024, table 3), here of all.
    adamw = OptimizerDefaults(lambda _batch: 3e-4, 0.1, (0.9, 0.95), 1.0)
    return Model(
        name=f"{short_name} pre-training",
        short_name=short_name,
        parameters=size.parameters,
        sample="sequence",
        data="tokens32",
        unit="tokens/s",
        inputs=SEQUENCE_INPUTS,
        optimizer_defaults={"adamw": adamw},
        multiply_adds=size.decoder.multiply_adds,
        choices=(size.vocabulary,),
        gpu_batch_size=1,
        cpu_batch_size=1,
        data_dir="data/llama-tokens",
        sizes=ModelSizes(tuple(LLAMA_SIZES), on_cpu="tiny", on_gpu="1b"),
        default_sequence_length=8192,
        cpu_sequence_length=128,
        longest_sequence=size.positions,
        decoder=size.decoder,
    )


MODELS = {"resnet50": RESNET50, "vgg16": VGG16, "bert": BERT, "gpt": gpt(), "llama": llama()}
"""Facts by name; of a model that exists in several sizes, those of its default size under the
name of them all."""
MODELS_BY_SIZE: dict[str, Callable[[str], Model]] = {"gpt": gpt, "llama": llama}


def model_named(name: str, size: str | None = None) -> Model:
    """Return the facts of a model by its name and size; without a size that the model has,
    those in MODELS. Raises KeyError for another name."""
    model = MODELS[name]
    if model.sizes is None or size not in model.sizes.names:
        return model
    return MODELS_BY_SIZE[name](size)


def find_model(name: object) -> Model | None:
    """Return the facts of a model by its name in a foreign log; None for other models."""
    return MODELS.get(str(name))


class Choice(Protocol):
    """The model that is asked for, and the size of its samples."""

    @property
    def model(self) -> str: ...
    @property
    def model_size(self) -> str | None: ...
    @property
    def sample_size(self) -> int: ...


class OptimizerChoice(Choice, Protocol):
    """How it is trained."""

    @property
    def optimizer(self) -> str: ...
    @property
    def global_batch(self) -> int: ...


def model_of(choice: Choice) -> Model:
    """Return the facts of what is trained."""
    return model_named(choice.model, choice.model_size)


class OptimizerSettings(NamedTuple):
    """`optimizer` is `momentum` (weight decay is added to every gradient), `adamw` or `lamb`
    (weight decay of parameters with more than one axis only). For `betas` and `clip_norm`, see
    OptimizerDefaults. `description` includes the loss."""

    optimizer: str
    learning_rate: float
    weight_decay: float
    description: str
    betas: tuple[float, float] = ADAM_BETAS
    clip_norm: float | None = None


OPTIMIZERS = {
    "momentum": f"momentum SGD {MOMENTUM}, learning rate {{rate:g}}, weight decay {{decay:g}}",
    "adamw": "AdamW, learning rate {rate:g}, weight decay {decay:g} but on biases and norms",
    "lamb": "LAMB, learning rate {rate:g}, weight decay {decay:g} but on biases and norms",
}


def optimizer_settings(choice: OptimizerChoice) -> OptimizerSettings:
    """Return the settings of published trainings with this optimizer and global batch."""
    defaults = model_of(choice).optimizer_defaults[choice.optimizer]
    rate = defaults.learning_rate(choice.global_batch)
    parts = [OPTIMIZERS[choice.optimizer].format(rate=rate, decay=defaults.weight_decay)]
    if defaults.betas != ADAM_BETAS:
        parts.append("betas {:g} and {:g}".format(*defaults.betas))
    if defaults.clip_norm:
        parts.append(f"gradients clipped at norm {defaults.clip_norm:g}")
    parts += ["rate constant", "cross entropy"]
    return OptimizerSettings(
        optimizer=choice.optimizer,
        learning_rate=rate,
        weight_decay=defaults.weight_decay,
        description="; ".join(parts),
        betas=defaults.betas,
        clip_norm=defaults.clip_norm,
    )


def units_per_sample(choice: Choice) -> int:
    """Return the units of throughput per sample: its tokens for tokens/s, otherwise 1."""
    return choice.sample_size if model_of(choice).unit == "tokens/s" else 1


def multiply_adds(choice: Choice) -> int:
    """Return the multiply-adds of one sample's forward pass."""
    return sum(model_of(choice).multiply_adds(choice.sample_size))


def training_flops(choice: Choice) -> int:
    """Return the FLOPs of forward and backward pass per sample, or per token for tokens/s (6 N
    + 12 L d T, see DecoderSize)."""
    return flops_with_backward(choice, multiply_adds(choice)) // units_per_sample(choice)


Amount = TypeVar("Amount", int, float)
"""A number of multiply-adds: counted, or measured and rounded."""


def flops_with_backward(choice: Choice, forward: Amount) -> Amount:
    """Return the FLOPs of forward and backward pass per sample from the multiply-adds of the
    forward pass.

    A multiply-add is two FLOPs. The backward pass has two products for each product of the
    forward pass, one for the weights' gradient and one for the input's (Chowdhery et al., PaLM,
    2022, appendix B); the first convolution needs no gradient of the images. Recomputation does
    not count.
    """
    first, _others = model_of(choice).multiply_adds(choice.sample_size)
    return 4 * first + 6 * (forward - first)


def flops_in_fast_convolutions(choice: Choice) -> int:
    """Return the FLOPs of one sample's forward and backward pass in 3x3 convolutions with
    stride 1, which fast algorithms compute with fewer multiplications (Lavin and Gray, Fast
    algorithms for convolutional neural networks, 2015)."""
    convolutions = model_of(choice).convolutions
    if convolutions is None:
        return 0
    first, *others = [
        one.multiply_adds if one.kernel == 3 and one.stride == 1 else 0
        for one in convolutions(choice.sample_size)
    ]
    return 4 * first + 6 * sum(others)
