"""The inputs `dali`, `dataloader` and `synthetic`. Each has `batches(options, rank, …)`, an
endless iterator over micro-batches of `batch_size` samples:

images  (images, labels): float32, batch x layout; int64, batch x 1
BERT    (input_ids, segment_ids, input_mask, masked_lm_positions, masked_lm_ids,
        next_sentence_labels), int64: three times batch x tokens, twice batch x predictions
        (unused predictions are 0), batch x 1
tokens  (ids, labels): int64, batch x tokens; labels are shifted by one token
"""

from collections.abc import Callable, Iterator
from typing import Any

from perfkit.training.models import model_of
from perfkit.training.options import Options

PROBLEMS_SHOWN = 5


class InputError(ValueError):
    """The training data is invalid; the message names the file and the line or dataset."""

    failure_code = "bad_input"

    def __init__(self, message: str) -> None:
        # A file's name need not be UTF-8, but the message is stored as JSON.
        super().__init__(message.encode(errors="backslashreplace").decode())


class OtherLengthError(InputError):
    """A file has sequences of another length than requested."""

    def __init__(self, file: object, found: int, requested: int) -> None:
        super().__init__(f"{file}: sequences of {found} tokens; sequence_length is {requested}")
        self.found = found


class Batches:
    """Batches as tensors of a framework on the training device, each converted once, endlessly.
    `prefetch_factor` batches are prepared in each of `num_workers` processes, as a DataLoader
    tells it."""

    def __init__(
        self,
        batches: Iterator[tuple[Any, ...]],
        convert: Callable[[Any], Any],
        num_workers: int = 0,
        prefetch_factor: int = 2,
    ) -> None:
        self.batches = batches
        self.convert = convert
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.source: Any = None
        self.converted: tuple[Any, ...] = ()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __next__(self) -> tuple[Any, ...]:
        batch = next(self.batches)
        # Synthetic input repeats one batch.
        if batch is not self.source:
            self.source = batch
            self.converted = tuple(self.convert(array) for array in batch)
        return self.converted


def raise_if_any(problems: list[str]) -> None:
    """Raise InputError with the first PROBLEMS_SHOWN problems, if any."""
    if not problems:
        return
    lines = problems[:PROBLEMS_SHOWN]
    if len(problems) > PROBLEMS_SHOWN:
        lines.append(f"and {len(problems) - PROBLEMS_SHOWN} more")
    raise InputError("\n".join(lines))


def raise_if_short(samples: int, options: Options, source: str) -> None:
    """Raise InputError if a rank's share of `samples` does not fill one batch, so that an input
    would repeat samples or never fill a batch."""
    needed = options.ranks * options.batch_size
    if samples < needed:
        kind = model_of(options).sample
        raise InputError(
            f"{source}: {samples} {kind}s, but one step of {options.ranks} x "
            f"{options.batch_size} needs {needed}; add data or reduce batch_size"
        )
