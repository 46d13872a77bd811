"""What loss and accuracy of a training can be."""

from math import log

from perfkit.models import MODELS
from perfkit.models.bert import VOCABULARY
from perfkit.models.model import CLASSES
from perfkit.results.schema import Evaluation

NEAR_CHANCE = (0.75, 1.5)
"""Between which multiples of a guesser's loss an untrained network's first one lies."""
STANDING = 1e-4
"""A loss that differs by less from the first step to the last does not move: NaN in images or
weights can leave it finite, where operators take NaN for zero."""
ROUNDING = 0.01


def guessing_loss(model: str) -> float:
    """The cross entropy of a network that guesses: all classes alike or, for BERT, all words
    and both answers about the pair."""
    if MODELS[model].sample == "image":
        return log(CLASSES)
    return log(VOCABULARY) + log(2)


def untrained_losses(model: str) -> tuple[float, float]:
    """The lowest and the highest first loss of an untrained network; no training should end
    above the highest."""
    low, high = (factor * guessing_loss(model) for factor in NEAR_CHANCE)
    return low, high


def accuracy_is_possible(seen: Evaluation) -> bool:
    """Whether accuracy and loss of one forward pass fit together.

    A sample that is not guessed right has a probability of at most one half, and so a loss of
    log 2 at least: the share of those is at most the mean loss over log 2.
    """
    least = 1 - seen.loss / log(2)
    return least - ROUNDING <= seen.accuracy <= 1 and seen.accuracy >= 0
