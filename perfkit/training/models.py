"""Facts of the models, without any framework."""

from typing import NamedTuple


class BertSize(NamedTuple):
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 30_522
    positions: int = 512
    dropout: float = 0.1


BERT_SIZE = BertSize()
"""BERT-base."""


class GptSize(NamedTuple):
    layers: int
    width: int
    heads: int
    vocabulary: int = 50_304
    positions: int = 1024


GPT_SIZES = {
    "124M": GptSize(12, 768, 12),
    "355M": GptSize(24, 1024, 16),
    "774M": GptSize(36, 1280, 20),
    "1558M": GptSize(48, 1600, 25),
}


class LlamaSize(NamedTuple):
    """`heads` are the query heads, `inner` is the hidden width of a layer's MLP; `is_tied`:
    whether the output layer shares the embedding's weights; `theta`: the base of the rotation's
    wavelengths."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    is_tied: bool
    vocabulary: int = 128_256
    positions: int = 32_768
    theta: float = 500_000.0

    @property
    def head_width(self) -> int:
        return self.width // self.heads


LLAMA_SIZES = {
    "tiny": LlamaSize(4, 256, 4, 2, 896, is_tied=True),
    "1b": LlamaSize(16, 2048, 32, 8, 8192, is_tied=True),
    "8b": LlamaSize(32, 4096, 32, 8, 14_336, is_tied=False),
}
