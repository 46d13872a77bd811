"""The models: facts that do not depend on the framework. perfkit.core.frameworks.networks has
the networks."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from perfkit.core.config import Config
from perfkit.core.models import bert, gpt, llama, resnet50, vgg16
from perfkit.core.models.model import ADAM_BETAS, Model

MODELS: dict[str, Model] = {
    "resnet50": resnet50.MODEL,
    "vgg16": vgg16.MODEL,
    "bert": bert.MODEL,
    "gpt": gpt.model(),
    "llama": llama.model(),
}
"""Facts by name. Those of a model that exists in several sizes are of its default size, under
the name of them all."""
MODELS_BY_SIZE: dict[str, Callable[[str], Model]] = {"gpt": gpt.model, "llama": llama.model}
"""Functions that return the facts of a size of a model."""

MOMENTUM = 0.9
"""Momentum of SGD."""
DESCRIPTIONS = {
    "momentum": f"momentum SGD {MOMENTUM}, learning rate {{rate:g}}, weight decay {{decay:g}}",
    "adamw": "AdamW, learning rate {rate:g}, weight decay {decay:g} but on biases and norms",
    "lamb": "LAMB, learning rate {rate:g}, weight decay {decay:g} but on biases and norms",
}

Amount = TypeVar("Amount", int, float)
"""A number of multiply-adds: counted, or measured and rounded."""


def model_of(config: Config) -> Model:
    """Return the facts of what a configuration trains. Other modules ask this function, and not
    MODELS, since a configuration need not train one of those."""
    return model_named(config.model, config.model_size)


def model_named(name: str, size: str | None = None) -> Model:
    """Return the facts of a model by its name and size in stored rows; without a size that the
    model has, the facts in MODELS. Raises KeyError for another name."""
    model = MODELS[name]
    if model.sizes is None or size not in model.sizes.names:
        return model
    return MODELS_BY_SIZE[name](size)


def find_model(name: object) -> Model | None:
    """Return the facts of a model by its name in a foreign log; None for other models."""
    return MODELS.get(str(name))


class OptimizerSettings(NamedTuple):
    """`optimizer` is `momentum` (weight decay is added to every gradient), `adamw` or `lamb`
    (weight decay of parameters with more than one axis only). For `betas` and `clip_norm`, see
    OptimizerDefaults. `description` includes the loss."""

    optimizer: str
    learning_rate: float
    weight_decay: float
    description: str = ""
    betas: tuple[float, float] = ADAM_BETAS
    clip_norm: float | None = None


def optimizer_settings(config: Config) -> OptimizerSettings:
    """Return the settings of published trainings with this optimizer and global batch."""
    optimizer = str(config.optimizer)
    defaults = model_of(config).optimizer_defaults[optimizer]
    rate = defaults.learning_rate(config.global_batch)
    description = [DESCRIPTIONS[optimizer].format(rate=rate, decay=defaults.weight_decay)]
    if defaults.betas != ADAM_BETAS:
        description.append("betas {:g} and {:g}".format(*defaults.betas))
    if defaults.clip_norm:
        description.append(f"gradients clipped at norm {defaults.clip_norm:g}")
    description += ["rate constant", "cross entropy"]
    return OptimizerSettings(
        optimizer=optimizer,
        learning_rate=rate,
        weight_decay=defaults.weight_decay,
        description="; ".join(description),
        betas=defaults.betas,
        clip_norm=defaults.clip_norm,
    )


def units_per_sample(config: Config) -> int:
    """Return the units of throughput per sample: its tokens for tokens/s, otherwise 1."""
    counts_tokens = model_of(config).unit == "tokens/s"
    return config.sample_size if counts_tokens else 1


def training_flops(config: Config) -> int:
    """Return the FLOPs of forward and backward pass per sample, or per token for tokens/s (6 N
    + 12 L d T, see model.Decoder)."""
    return flops_with_backward(config, multiply_adds(config)) // units_per_sample(config)


def flops_with_backward(config: Config, forward: Amount) -> Amount:
    """Return the FLOPs of forward and backward pass per sample from the multiply-adds of the
    forward pass.

    A multiply-add is two FLOPs. The backward pass has two products for each product of the
    forward pass, one for the weights' gradient and one for the input's (Chowdhery et al., PaLM,
    2022, appendix B); the first convolution needs no gradient of the images. Recomputation does
    not count.
    """
    first, _others = _multiply_adds(config)
    return _with_backward(first, forward - first)


def _with_backward(first: Amount, others: Amount) -> Amount:
    """Return the FLOPs of all passes from the forward pass's multiply-adds in the layers that
    need no gradient of their input, and in the others."""
    return 4 * first + 6 * others


def multiply_adds(config: Config) -> int:
    """Return the multiply-adds of one sample's forward pass."""
    return sum(_multiply_adds(config))


def flops_in_fast_convolutions(config: Config) -> int:
    """Return the FLOPs of one sample's forward and backward pass that fast algorithms compute
    with fewer multiplications."""
    count = model_of(config).in_fast_convolutions
    return _with_backward(*count(config.sample_size)) if count else 0


def _multiply_adds(config: Config) -> tuple[int, int]:
    return model_of(config).multiply_adds(config.sample_size)
