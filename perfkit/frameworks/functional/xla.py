"""What XLA compiled, and what its profiler recorded."""

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from perfkit.frameworks.base import PARTS

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
"""XLA's names of dtypes, and ours."""
UPDATE = "perfkit optimizer step"
"""The optimizer's events in the profiler."""


def factor_dtypes(hlo: str) -> dict[str, int]:
    """dtype -> how many matrix products and convolutions in XLA's text have such factors."""
    dtypes: dict[str, str] = dict(re.findall(r"%(\S+) = (\w+)\[", hlo))
    factors = re.findall(r" (?:dot|convolution)\(%([^\s,)]+)", hlo)
    seen = (dtypes[name] for name in factors)
    return dict(Counter(NAMES.get(dtype, dtype) for dtype in seen))


def profile(
    step: Callable[[], None],
    steps: int,
    record: Callable[[str], AbstractContextManager[Any]],
    update_seconds: Callable[[Path], float],
) -> dict[str, float | None]:
    """See Backend. `record(folder)` has the profiler write into a folder; `update_seconds` is
    how long the events UPDATE of its file took. Forward and backward pass are one program, the
    parts of which are mixed."""
    with tempfile.TemporaryDirectory() as folder:
        with record(folder):
            began = time.perf_counter()
            for _ in range(steps):
                step()
            seconds = time.perf_counter() - began
        (file,) = Path(folder).rglob("*.xplane.pb")
        known = {"step": seconds / steps, "optimizer": update_seconds(file) / steps}
    return dict.fromkeys(PARTS) | known | {"communication": 0.0}
