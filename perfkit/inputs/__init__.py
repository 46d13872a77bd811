"""Where batches come from. Each input's `batches(config, rank)` yields them for ever.

`dali`, `dataloader` and `synthetic` are the inputs. A batch of images is (images, labels):
float32 of batch x layout, int64 of batch x 1. A batch of BERT is (input_ids, segment_ids,
input_mask, masked_lm_positions, masked_lm_ids, next_sentence_labels): int64 of three times
batch x tokens, twice batch x predictions, batch x 1; unused predictions are 0. A batch of GPT-2
is (ids, labels): int64 of batch x tokens each, the labels one token on.
A batch is one micro-batch: `config.batch_size` samples.
"""

from perfkit.config import Config
from perfkit.models import MODELS

PROBLEMS_SHOWN = 5


class InputError(ValueError):
    """The data can't be trained on; the message names the file, and line or dataset."""


def raise_if_any(problems: list[str]) -> None:
    """Raise InputError with the first PROBLEMS_SHOWN of the problems, if there are any."""
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        shown = problems[:PROBLEMS_SHOWN] + [f"and {more} more"] * (more > 0)
        raise InputError("\n".join(shown))


def raise_if_short(samples: int, config: Config, source: str) -> None:
    """Raise InputError where a rank's share of `samples` does not fill a batch, which would
    then repeat samples or never be full."""
    step = config.ranks * config.batch_size
    if samples < step:
        kind = MODELS[config.model].sample
        raise InputError(
            f"{source}: {samples} {kind}s, and one step of {config.ranks} x "
            f"{config.batch_size} needs {step}; more data, or a smaller batch_size"
        )
