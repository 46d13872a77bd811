"""Names and readings for the settings under which a training effectively runs."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any


class PrecisionUnknownError(RuntimeError):
    """Some matrix products of the network were not seen, so their dtype is unknown."""

    failure_code = "precision_unknown"


TENSOR_CORES_SINCE = 7
"""First compute capability (Volta) with tensor cores."""
TF32_SINCE = 8
"""First compute capability (Ampere) whose tensor cores support TF32."""
EXCHANGED_MEANWHILE = "during the backward pass"
EXCHANGED_AFTERWARDS = "after the backward pass"
"""Values of the setting `gradient_exchange`: when ranks begin to exchange gradients."""


def dtype_name(dtype: Any) -> str:
    """Return the dtype's name without its framework's prefix, such as `float32`."""
    return re.findall(r"\w+", str(dtype))[-1]


def effective_precision(produced: Iterable[str], weights: Iterable[str]) -> str:
    """Return the training precision for these output dtypes and weight dtypes of layers.

    `amp` keeps float32 weights and computes in float16 where that is safe; `pure_fp16` also
    stores weights in float16; `bf16` computes in bfloat16 with weights of any dtype. Other
    combinations are returned as the output dtypes, joined by "+".
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


def rounds_to_tf32(compute_capability: tuple[int, int], *, allowed: bool = True) -> bool:
    """Return whether a GPU rounds float32 factors to TF32 if the framework has `allowed` it."""
    supported = compute_capability[0] >= TF32_SINCE
    return supported and allowed and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def named_threads(*names: str) -> dict[str, int]:
    """Return name -> number of threads of this process with that name."""
    threads = []
    for path in Path("/proc/self/task").glob("*/comm"):
        # The thread may end meanwhile.
        with suppress(OSError):
            threads.append(path.read_text().strip())
    return {name: threads.count(name) for name in names}
