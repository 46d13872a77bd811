"""The vendors' peak speeds of GPUs: gpu_peaks.csv.

A row is one GPU: TFLOP/s by precision, dense and with 2:4 structured sparsity, GB/s of memory,
and the source. `gpu` has the words of the GPU's name, `nvml` tells whether a machine's NVML can
report it; the others are for audits of logs and claims only. NVIDIA's datasheets since Hopper
print the figures with sparsity; training is dense, so its peak is half of them, as a test of
the table checks.
"""

import csv
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from perfkit.measuring.units import GIGA, TERA

FILE = Path(__file__).parent / "gpu_peaks.csv"
TRAINING_PRECISIONS = ("bf16", "fp16")
"""Columns of the peak for training in an unknown precision: the first that the GPU has."""

WORD = re.compile(r"[A-Z0-9]{1,20}")
COUNTED = re.compile(r"(?<![A-Z0-9])\d{1,5}X(?=[A-Z])")
"""The number before a GPU's name, as in 8xH100."""
QUALIFIERS = {"MIG", "LAPTOP", "MOBILE", "D", "MAX", "3E"}
"""Words that make a name one of a slower or different GPU: a MIG slice, RTX 4090 D, Max-Q,
H20-3e."""
SHARED = re.compile(r"\d{1,3}[ABCQ]")
"""The profile of a shared GPU, such as A40-48Q."""
FORMS = {"SXM", "SXM2", "SXM3", "SXM4", "SXM5", "SXM6", "PCIE", "NVL"}


class Datasheet(NamedTuple):
    """The vendor's peak speeds of one GPU in one precision, dense."""

    gpu: str
    precision: str
    flops_per_second: float
    bytes_per_second: float
    source: str
    url: str


def datasheet_of(name: str, precision: str) -> Datasheet | None:
    """Return the datasheet of the GPU with this NVML name in `precision`, a column of the
    table; None if the table lacks it."""
    words = words_of(name)
    matching = []
    for row in _rows():
        row_words = words_of(row["gpu"])
        if row["nvml"] == "yes" and row_words <= words and _is_same_chip(words, row_words):
            matching.append(row)
    if not matching:
        return None
    # The most specific name wins: an H200 NVL is no H200.
    row = max(matching, key=lambda row: len(words_of(row["gpu"])))
    return _datasheet(row, precision)


def datasheet_named(name: str, precision: str = "") -> Datasheet | None:
    """Return the datasheet of a GPU as logs and people name it: "H100", "8xA100-SXM4-80GB".

    Where a name fits several rows equally, the fastest is returned: H100 is the H100 SXM. Its
    `gpu` tells which. Without a `precision`, it is that of TRAINING_PRECISIONS.
    """
    words = words_of(name)
    sheets: list[tuple[int, float, Datasheet]] = []
    for row in _rows():
        row_words = words_of(row["gpu"])
        if not _model_words(row_words) <= words or not _is_same_chip(words, row_words):
            continue
        sheet = _datasheet(row, precision) if precision else _training_datasheet(row)
        if sheet:
            common = len(words & row_words)
            sheets.append((common, sheet.flops_per_second, sheet))
    if not sheets:
        return None
    _common, _speed, best = max(sheets, key=lambda candidate: candidate[:2])
    return best


@cache
def is_class(gpu: str, name: str) -> bool:
    """Return whether the GPU with this NVML name is what people call `name`: NVIDIA H200 is an
    H200 SXM; an H200 NVL or a MIG slice is not. Pages ask this for each published number."""
    if gpu == name:
        return True
    own, named = datasheet_of(gpu, "fp16"), datasheet_named(name, "fp16")
    return bool(own and named and own.gpu == named.gpu)


def words_of(name: str) -> set[str]:
    """Return the words of a GPU's name in capitals: H100-SXM5-80GB has three, RTX5090 two."""
    spaced = re.sub(r"RTX(?=\d)", "RTX ", name.upper())
    return {*WORD.findall(COUNTED.sub("", spaced))}


@cache
def _rows() -> list[dict[str, str]]:
    with FILE.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _is_same_chip(words: set[str], row_words: set[str]) -> bool:
    """Return whether the words name the whole GPU of a row, and not a variant of it."""
    if any(SHARED.fullmatch(word) for word in words):
        return False
    return words & QUALIFIERS <= row_words


def _model_words(row_words: set[str]) -> set[str]:
    """Return the words without which a name is not one of this row's GPU: PRO and 6000, H100;
    neither memory nor form."""
    optional = FORMS | {"RTX", "BLACKWELL", "WORKSTATION", "EDITION"}
    model = set()
    for word in row_words - optional:
        is_memory = re.fullmatch(r"\d{1,4}GB?|HBM\d\w?", word)
        if not is_memory:
            model.add(word)
    return model


def _training_datasheet(row: dict[str, str]) -> Datasheet | None:
    for precision in TRAINING_PRECISIONS:
        sheet = _datasheet(row, precision)
        if sheet:
            return sheet
    return None


def _datasheet(row: dict[str, str], precision: str) -> Datasheet | None:
    if not row.get(precision):
        return None
    return Datasheet(
        gpu=row["gpu"],
        precision=precision,
        flops_per_second=float(row[precision]) * TERA,
        bytes_per_second=float(row["memory"]) * GIGA,
        source=row["source"],
        url=row["url"],
    )
