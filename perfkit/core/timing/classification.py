"""The failure code of an exception that ended a rank."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from perfkit.core.paths import portable
from perfkit.core.timing.raw_file import UNWRITABLE
from perfkit.core.timing.recorder import LossNotFiniteError

NO_MEMORY = (
    "out of memory|resourceexhausted|bad_alloc|(unable|failed) to allocate"
    "|can(not|'t) allocate|allocation failed|oom when allocating|status_alloc_failed"
)
MOST_CHARACTERS = 600
"""Longest message of an exception, or of a script that exits, that is stored."""


class ConfigMismatchError(RuntimeError):
    """The training silently differs from the configuration."""


class FailurePattern(NamedTuple):
    """The failure code of exceptions of a class whose message has the pattern."""

    code: str
    kind: type[BaseException]
    pattern: str = ""


class Classified(NamedTuple):
    """The failure code of an exception, and its message on one line."""

    code: str
    message: str


def _errno_pattern(numbers: tuple[int, ...]) -> str:
    """Return the pattern of an OSError's message with one of these error numbers."""
    return rf"^\[Errno ({'|'.join(map(str, numbers))})\]"


WRONG_TRAINING = (
    FailurePattern("loss_not_finite", LossNotFiniteError),
    FailurePattern("config_mismatch", ConfigMismatchError),
)
OUT_OF_MEMORY = (
    FailurePattern("out_of_memory", MemoryError),
    FailurePattern("out_of_memory", BaseException, NO_MEMORY),
)
UNWRITTEN = FailurePattern("io_error", OSError, _errno_pattern(UNWRITABLE))
ANY_TRAINING = (*WRONG_TRAINING, *OUT_OF_MEMORY, UNWRITTEN)
"""Failures of any training. The first match counts."""


def classify(
    error: BaseException, patterns: Sequence[FailurePattern] = ANY_TRAINING
) -> Classified:
    """Return the code of the first pattern that the exception matches, `worker_error` if it
    matches none, and its message."""
    text = " ".join(str(error).split())
    text = text.encode(errors="replace").decode()
    message = portable(text)[:MOST_CHARACTERS] or type(error).__name__
    for failure in patterns:
        is_kind = isinstance(error, failure.kind)
        if is_kind and re.search(failure.pattern, text, re.IGNORECASE):
            return Classified(failure.code, message)
    return Classified("worker_error", f"{type(error).__name__}: {message}")
