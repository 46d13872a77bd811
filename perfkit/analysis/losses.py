"""What loss and accuracy of a training can be."""

from math import log

from perfkit.models import MODELS
from perfkit.results.schema import Evaluation

NEAR_CHANCE = (0.75, 1.5)
"""Between which multiples of a guesser's loss an untrained network's first one lies."""
STANDING = 1e-4
"""A loss that differs by less from the first step to the last does not move: NaN in images or
weights can leave it finite, where operators take NaN for zero."""
ROUNDING = 0.01


def untrained_losses(model: str) -> tuple[float, float]:
    """The lowest and the highest first loss of an untrained network, which guesses: all choices
    of each part of its cross entropy are alike to it. No training should end above the
    highest."""
    guess = sum(map(log, MODELS[model].choices))
    return NEAR_CHANCE[0] * guess, NEAR_CHANCE[1] * guess


def accuracy_is_possible(seen: Evaluation) -> bool:
    """Whether accuracy and loss of one forward pass fit together.

    A sample that is not guessed right has a probability of at most one half, and so a loss of
    log 2 at least: the share of those is at most the mean loss over log 2.
    """
    least = 1 - seen.loss / log(2)
    return least - ROUNDING <= seen.accuracy <= 1 and seen.accuracy >= 0
