"""How published recipes train each model. The learning rate is constant: what is measured is
throughput, not accuracy."""

from typing import NamedTuple

from perfkit.config import Config


class Recipe(NamedTuple):
    """`optimizer` is `momentum` (of MOMENTUM; the decay is added to every gradient) or `adamw`
    or `lamb` (decay of parameters with more than one axis only)."""

    optimizer: str
    rate: float
    weight_decay: float
    words: str


MOMENTUM = 0.9
MOMENTUM_RATE_AND_DECAY = {"resnet50": (0.1, 1e-4), "vgg16": (0.01, 5e-4)}
"""For a batch of 256: He et al. (2015), Simonyan and Zisserman (2014)."""


def recipe(config: Config) -> Recipe:
    """The recipe for this model, optimizer and global batch."""
    if config.optimizer == "momentum":
        # Linear below a batch of 256. Above it, a growing rate needs a warm-up (Goyal et al.,
        # 2017), without which VGG dies within a few steps: that would be no training.
        base, decay = MOMENTUM_RATE_AND_DECAY[config.model]
        rate = base * min(1.0, config.global_batch / 256)
        words = f"momentum SGD {MOMENTUM}, learning rate {rate:g}, weight decay {decay:g}"
    elif config.optimizer == "adamw":
        # Devlin et al., 2018.
        rate, decay = 1e-4, 0.01
        words = "AdamW, learning rate 1e-4, weight decay 0.01 but on biases and norms"
    else:
        # You et al., 2020: the rate grows with the root of the batch, from 1 / 1600 at 512.
        rate, decay = (config.global_batch / 512) ** 0.5 / 1600, 0.01
        words = f"LAMB, learning rate {rate:g}, weight decay 0.01 but on biases and norms"
    words = f"{words}; rate constant; cross entropy"
    return Recipe(str(config.optimizer), rate, decay, words)
