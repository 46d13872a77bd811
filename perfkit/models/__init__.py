"""What is true of a model whatever framework trains it; `networks.py` of a framework builds it.

model.py     the facts that each model has
resnet50.py  those of ResNet-50
vgg16.py     those of VGG-16
bert.py      those of BERT
gpt.py       those of GPT-2
"""

from typing import NamedTuple, TypeVar

from perfkit.config import Config
from perfkit.models import bert, gpt, resnet50, vgg16
from perfkit.models.model import ADAM_BETAS, Model

MODELS: dict[str, Model] = {
    "resnet50": resnet50.MODEL,
    "vgg16": vgg16.MODEL,
    "bert": bert.MODEL,
    "gpt": gpt.MODEL,
}

MOMENTUM = 0.9
"""Of momentum SGD."""
DESCRIPTIONS = {
    "momentum": f"momentum SGD {MOMENTUM}, learning rate {{rate:g}}, weight decay {{decay:g}}",
    "adamw": "AdamW, learning rate {rate:g}, weight decay {decay:g} but on biases and norms",
    "lamb": "LAMB, learning rate {rate:g}, weight decay {decay:g} but on biases and norms",
}

Number = TypeVar("Number", int, float)


class OptimizerSettings(NamedTuple):
    """`optimizer` is `momentum` (the decay is added to every gradient), `adamw` or `lamb`
    (decay of parameters with more than one axis only); `betas` and `clip_norm` are those of
    OptimizerDefaults; `description` names the loss too."""

    optimizer: str
    learning_rate: float
    weight_decay: float
    description: str = ""
    betas: tuple[float, float] = ADAM_BETAS
    clip_norm: float | None = None


def optimizer_settings(config: Config) -> OptimizerSettings:
    """Those that published trainings of the model use with this optimizer and global batch."""
    optimizer = str(config.optimizer)
    defaults = MODELS[config.model].optimizer_defaults[optimizer]
    learning_rate, decay, betas, clip = defaults
    rate = learning_rate(config.global_batch)
    words = DESCRIPTIONS[optimizer].format(rate=rate, decay=decay)
    words += "; betas {:g} and {:g}".format(*betas) if betas != ADAM_BETAS else ""
    words += f"; gradients clipped at norm {clip:g}" if clip else ""
    words += "; rate constant; cross entropy"
    return OptimizerSettings(optimizer, rate, decay, words, betas, clip)


def units_per_sample(config: Config) -> int:
    """What a sample counts in the unit of the model's throughput: its tokens, of tokens/s; 0
    where the configuration leaves that open."""
    return config.sample_size if MODELS[config.model].unit == "tokens/s" else 1


def training_flops(config: Config) -> int | None:
    """Floating-point operations of forward and backward pass for one sample, or one token where
    throughput counts tokens; None where the configuration leaves its size open. Of a
    token, these are 6 N + 12 L d T (model.Decoder).
    """
    if not config.sample_size:
        return None
    return flops_with_backward(config, multiply_adds(config)) // units_per_sample(config)


def flops_with_backward(config: Config, forward: Number) -> Number:
    """Floating-point operations of forward and backward pass for one sample, of a forward pass
    with so many multiply-adds.

    A multiply-add is two operations. The backward pass has two products for each of the forward
    pass, one for the gradient of the weights and one for that of the input (Chowdhery et al.,
    PaLM, 2022, appendix B); the first convolution needs no gradient of the images. What is
    recomputed does not count.
    """
    return 6 * forward - 2 * _multiply_adds(config)[0]


def multiply_adds(config: Config) -> int:
    """Those of one sample's forward pass."""
    return sum(_multiply_adds(config))


def _multiply_adds(config: Config) -> tuple[int, int]:
    return MODELS[config.model].multiply_adds(config.sample_size)
