"""What a training's precision really was, by the dtypes seen in it. Pure functions."""

import re
from collections.abc import Iterable
from typing import Any


def dtype_name(dtype: Any) -> str:
    """`float32` for the float32 of any framework."""
    return re.findall(r"\w+", str(dtype))[-1]


def effective_precision(produced: Iterable[str], weights: Iterable[str]) -> str:
    """The precision that layers producing these dtypes from weights of those dtypes train in.

    `amp` keeps float32 weights and computes in float16 where that is safe; `pure_fp16` stores
    weights in float16 too; `bf16` computes in bfloat16, whatever the weights are. What is none
    of these comes back as its dtypes, joined by "+".
    """
    produced, weights = set(produced), set(weights)
    if not produced:
        return "unknown"
    if produced == {"float32"}:
        return "fp32"
    if produced <= {"float16", "float32"}:
        return "pure_fp16" if "float16" in weights else "amp"
    if produced <= {"bfloat16", "float32"}:
        return "bf16"
    return "+".join(sorted(produced))
