"""A reader of XLA's compiled text, for JAX and TensorFlow."""

import re
from collections import Counter

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
"""XLA's dtype name -> NumPy's."""


def factor_dtypes(hlo: str) -> dict[str, int]:
    """Return factor dtype -> number of matrix products and convolutions in HLO text."""
    dtype_of: dict[str, str] = dict(re.findall(r"%(\S+) = (\w+)\[", hlo))
    counts: Counter[str] = Counter()
    for factor in re.findall(r" (?:dot|convolution)\(%([^\s,)]+)", hlo):
        dtype = dtype_of[factor]
        counts[NAMES.get(dtype, dtype)] += 1
    return dict(counts)
