"""Where batches come from. Each input's `batches(config, rank)` yields them for ever.

`dali`, `dataloader` and `synthetic` are the inputs. A batch of images is (images, labels):
float32 of batch x layout, int64 of batch x 1. A batch of sequences is (input_ids, segment_ids,
input_mask, masked_lm_positions, masked_lm_ids, next_sentence_labels): int64 of three times
batch x tokens, twice batch x predictions, batch x 1; unused predictions are 0.
A batch is one micro-batch: `config.batch_size` samples.
"""

PROBLEMS_SHOWN = 5


class InputError(ValueError):
    """The data can't be trained on; the message names the file, and line or dataset."""


def raise_if_any(problems: list[str]) -> None:
    """Raise InputError with the first PROBLEMS_SHOWN of the problems, if there are any."""
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        shown = problems[:PROBLEMS_SHOWN] + [f"and {more} more"] * (more > 0)
        raise InputError("\n".join(shown))
