"""What the samples are made of that the models learn from."""

CLASSES = 1000
"""Labels of images are below it."""

VOCABULARY = 30_522
"""Ids of tokens are below it: the size of BERT's English lower-case vocabulary."""
PADDING = 0
"""The id that fills unused places of a sequence; no word to be guessed has it."""
FIRST_WORD = 999
"""Ids below it are special tokens or unused in that vocabulary."""


def predictions(sequence_length: int) -> int:
    """Most masked tokens of a sequence: the public recipes' 20 at 128 tokens, 80 at 512."""
    return min(sequence_length, 20) if sequence_length <= 128 else 80
