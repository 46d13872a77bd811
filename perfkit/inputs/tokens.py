"""Tokens for language models: files of token ids, with and without a header.

llm.c writes a header of 256 32-bit integers (dev/data/data_common.py): a magic number that
tells the width of the tokens, a version, the number of tokens, and zeros.
"""

from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from perfkit.inputs import InputError
from perfkit.inputs.shards import ROWS_CHECKED, ShardRow, Shards
from perfkit.training.models import model_of
from perfkit.training.options import Options

PATTERN = "*train*.bin"
HEADER_BYTES = 1024
HEADER_DTYPE = np.dtype("<i4")


class TokenLayout(NamedTuple):
    """A layout of token files: the type of a token, and the first two integers of the header.
    `plain`: files without a header have it too."""

    dtype: np.dtype
    magic: int
    version: int
    plain: bool

    @property
    def bits(self) -> int:
        return 8 * self.dtype.itemsize

    def header(self, tokens: int) -> bytes:
        """Return the header of a file with this many tokens."""
        integers = np.zeros(HEADER_BYTES // HEADER_DTYPE.itemsize, HEADER_DTYPE)
        integers[:3] = self.magic, self.version, tokens
        return integers.tobytes()


GPT2 = TokenLayout(np.dtype("<u2"), magic=20_240_520, version=1, plain=True)
"""GPT-2's tokens: files of nanoGPT, which have no header, and of llm.c. The first 16 bits of
llm.c's magic number can't be a token."""
LLAMA3 = TokenLayout(np.dtype("<u4"), magic=20_240_801, version=7, plain=False)
"""Llama 3's tokens: files of llm.c. Without a header nothing tells how wide tokens are, and
some that are read with another width are still below a vocabulary of 128,256."""
LAYOUTS = {layout.magic: layout for layout in (GPT2, LLAMA3)}


class Tokens(Shards):
    """A folder of token files for language models: `train*.bin` and `*_train_*.bin` hold
    concatenated documents as little-endian token ids in the class's layout.

    Files are memory-mapped, so a row reads only its pages. Row n starts at token n x length and
    has length + 1 tokens: a sequence, and its labels shifted by one token.
    """

    layout: ClassVar[TokenLayout] = GPT2
    expected = f"token files ({PATTERN}, 16 bits a token)"
    patterns = (PATTERN,)

    @staticmethod
    def sample_bytes(length: int) -> int:
        return 2 * length * 8

    def __init__(self, options: Options) -> None:
        self.length = options.sample_size
        (self.vocabulary,) = model_of(options).choices
        self.current: tuple[int, np.ndarray] | None = None
        super().__init__(options)

    def count_rows(self, shard: int) -> int:
        tokens = read_tokens(self.files[shard], self.layout)
        if len(tokens) <= self.length:
            expected = f"expected at least {self.length + 1} tokens (sequence_length + 1)"
            raise InputError(f"{self.files[shard]}: {expected}, found {len(tokens)}")
        return (len(tokens) - 1) // self.length

    def check_rows(self, shard: int) -> None:
        for row in range(min(self.rows[shard], ROWS_CHECKED)):
            self[ShardRow(shard, row)]

    def __getitem__(self, index: ShardRow) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and labels, int64 of `length` tokens each. Raises InputError if an id is
        outside the vocabulary."""
        # One file at a time: a map keeps its file open, and a data set may have thousands.
        if self.current is None or self.current[0] != index.shard:
            self.current = index.shard, read_tokens(self.files[index.shard], self.layout)
        _shard, tokens = self.current
        begin = index.row * self.length
        last = begin + self.length
        block = tokens[begin : last + 1].astype(np.int64)
        if block.max() >= self.vocabulary:
            raise InputError(
                f"{self.files[index.shard]}: expected tokens 0 to {self.vocabulary - 1}, "
                f"found {block.max()} among tokens {begin} to {last}"
            )
        return block[:-1], block[1:]


class WideTokens(Tokens):
    """A folder of token files with 32 bits a token."""

    layout = LLAMA3
    expected = f"token files ({PATTERN}, 32 bits a token behind llm.c's header)"


class Header(NamedTuple):
    """The first three integers of a header; `layout` is the one of its magic number."""

    layout: TokenLayout
    version: int
    tokens: int


def read_tokens(path: Path, layout: TokenLayout) -> np.ndarray:
    """Memory-map the tokens of a file. Raises OSError, or InputError if the file has another
    layout or a size that does not fit it."""
    size = path.stat().st_size
    header = read_header(path)
    if header is None:
        return _plain_tokens(path, layout, size)
    if header.layout != layout:
        raise InputError(
            f"{path}: expected {layout.bits} bits a token, found {header.layout.bits} "
            f"(header {header.layout.magic})"
        )
    if header.version != layout.version:
        raise InputError(
            f"{path}: expected header version {layout.version}, found {header.version}"
        )
    expected_size = HEADER_BYTES + header.tokens * layout.dtype.itemsize
    if size != expected_size:
        raise InputError(
            f"{path}: expected {expected_size} bytes for the {header.tokens} tokens that its "
            f"header tells, found {size} bytes"
        )
    # By bytes, since NumPy maps no file from its end, where an empty one's tokens begin.
    return np.memmap(path, np.uint8, "r")[HEADER_BYTES:].view(layout.dtype)


def read_header(path: Path) -> Header | None:
    """Return the header of a token file; None if it has none. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    magic, version, tokens = np.frombuffer(head, HEADER_DTYPE)[:3].tolist()
    layout = LAYOUTS.get(magic)
    return layout and Header(layout, version, tokens)


def _plain_tokens(path: Path, layout: TokenLayout, size: int) -> np.ndarray:
    """Memory-map the tokens of a file without a header. Raises OSError and InputError."""
    if not layout.plain:
        raise InputError(
            f"{path}: expected a header of {HEADER_BYTES} bytes (magic number {layout.magic}, "
            f"version {layout.version}, number of tokens) before tokens of {layout.bits} bits, "
            f"found none; without it, tokens of another width would be read wrongly"
        )
    if not size or size % layout.dtype.itemsize:
        expected = f"expected {layout.dtype.itemsize} bytes a token"
        raise InputError(f"{path}: {expected}, found {size} bytes")
    return np.memmap(path, layout.dtype, "r")
