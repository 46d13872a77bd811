"""Token files for language models, and blocks of them for a DataLoader.

The layout is that of the public GPT recipes: `train*.bin` and `*_train_*.bin`, one token id
after another, 16 bits each, little-endian, documents joined. nanoGPT writes nothing else; files
of llm.c begin with a header of 1,024 bytes, whose first half-word can't be a token.

Files are memory-mapped: a block costs the pages that it lies on. Block n of a file begins with
token n x length and has length + 1 tokens: a sequence, and the same one token later as its
labels.
"""

from pathlib import Path

import numpy as np

from perfkit.config import Config
from perfkit.inputs import InputError
from perfkit.inputs.shards import ROWS_CHECKED, Row, Shards
from perfkit.models.gpt import VOCABULARY

PATTERN = "*train*.bin"
DTYPE = np.dtype("<u2")
MAGIC, HEADER = 20_240_520, 512
"""The first 32 bits of a file with a header, and the header's half-words."""


class Tokens(Shards):
    """The token files in a folder, whose rows are blocks."""

    expected = f"a folder of token files ({PATTERN}, 16 bits a token)"
    missing = f"no {PATTERN} file"
    kind = "token files"
    patterns = (PATTERN,)

    @staticmethod
    def sample_bytes(length: int) -> int:
        """Of ids and labels as DataLoader hands them over."""
        return 2 * length * 8

    def __init__(self, config: Config) -> None:
        self.length = config.sample_size
        self.arrays: list[np.ndarray] = []
        super().__init__(config)

    def count_rows(self, shard: int) -> int:
        tokens = read_tokens(self.files[shard])
        if len(tokens) <= self.length:
            needed = f"a sequence of {self.length} and its labels need {self.length + 1} tokens"
            raise InputError(f"{self.files[shard]}: {needed}, found {len(tokens)}")
        self.arrays.append(tokens)
        return (len(tokens) - 1) // self.length

    def check_rows(self, shard: int) -> None:
        for row in range(min(self.rows[shard], ROWS_CHECKED)):
            self[Row(shard, row)]

    def __getitem__(self, index: Row) -> tuple[np.ndarray, np.ndarray]:
        """Ids and labels, int64 of `length` tokens each. Raises InputError for an id beyond the
        vocabulary."""
        begin = index.row * self.length
        block = self.arrays[index.shard][begin : begin + self.length + 1].astype(np.int64)
        if block.max() >= VOCABULARY:
            raise InputError(
                f"{self.files[index.shard]}: expected tokens 0 to {VOCABULARY - 1}, "
                f"found {block.max()} among tokens {begin} to {begin + self.length}"
            )
        return block[:-1], block[1:]


def read_tokens(path: Path) -> np.ndarray:
    """The tokens of a file, memory-mapped. Raises InputError for half a token, or another
    version of the header; OSError."""
    size = path.stat().st_size
    if not size or size % DTYPE.itemsize:
        raise InputError(f"{path}: expected 2 bytes a token, found {size} bytes")
    tokens = np.memmap(path, DTYPE, "r")
    head = tokens[:4].astype(np.int64)
    if len(tokens) < HEADER or head[0] + (head[1] << 16) != MAGIC:
        return tokens
    if (version := int(head[2])) != 1:
        raise InputError(f"{path}: expected version 1 of the header, found {version}")
    return tokens[HEADER:]
