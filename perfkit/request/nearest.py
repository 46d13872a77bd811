"""What was meant by a word that is not known."""

import difflib
from collections.abc import Iterable
from typing import Any


def nearest(word: object, words: Iterable[Any]) -> str:
    """A question after the word that was meant; empty if none is near."""
    close = difflib.get_close_matches(str(word), [str(known) for known in words], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
