"""The inputs `dali`, `dataloader` and `synthetic`. Each has `batches(config, rank)`, an endless
iterator over micro-batches of `config.batch_size` samples:

images  (images, labels): float32, batch x layout; int64, batch x 1
BERT    (input_ids, segment_ids, input_mask, masked_lm_positions, masked_lm_ids,
        next_sentence_labels), int64: three times batch x tokens, twice batch x predictions
        (unused predictions are 0), batch x 1
tokens  (ids, labels): int64, batch x tokens; labels are shifted by one token
"""

from perfkit.core.config import Config
from perfkit.training.models import model_of

PROBLEMS_SHOWN = 5


class InputError(ValueError):
    """The training data is invalid; the message names the file and the line or dataset."""

    def __init__(self, message: str) -> None:
        # A file's name need not be UTF-8, but the message is stored as JSON.
        super().__init__(message.encode(errors="backslashreplace").decode())


class OtherLengthError(InputError):
    """A file has sequences of another length than requested."""

    def __init__(self, file: object, found: int, requested: int) -> None:
        super().__init__(f"{file}: sequences of {found} tokens; sequence_length is {requested}")
        self.found = found


def raise_if_any(problems: list[str]) -> None:
    """Raise InputError with the first PROBLEMS_SHOWN problems, if any."""
    if not problems:
        return
    lines = problems[:PROBLEMS_SHOWN]
    if len(problems) > PROBLEMS_SHOWN:
        lines.append(f"and {len(problems) - PROBLEMS_SHOWN} more")
    raise InputError("\n".join(lines))


def raise_if_short(samples: int, config: Config, source: str) -> None:
    """Raise InputError if a rank's share of `samples` does not fill one batch, so that an input
    would repeat samples or never fill a batch."""
    needed = samples_of_step(config)
    if samples < needed:
        kind = model_of(config).sample
        raise InputError(
            f"{source}: {samples} {kind}s, but one step of {config.ranks} x "
            f"{config.batch_size} needs {needed}; add data or reduce batch_size"
        )


def samples_of_step(config: Config) -> int:
    """Return the samples that fill one micro-batch of every rank, the fewest that an input
    needs."""
    return config.ranks * config.batch_size
