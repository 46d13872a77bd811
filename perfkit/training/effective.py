"""What a training effectively computes in: seen before the first step, compared with what was
asked for."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import log2
from pathlib import Path
from statistics import median
from typing import Any

from perfkit.timing.failure import ConfigMismatchError
from perfkit.training.options import Options

COMPUTE_STEPS = 3
VARIABLES = {
    "torch": ("OMP_NUM_THREADS", "NVIDIA_TF32_OVERRIDE"),
    "paddle": ("OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE", "NVIDIA_TF32_OVERRIDE"),
    "jax": (
        *("NPROC", "XLA_FLAGS", "NVIDIA_TF32_OVERRIDE"),
        *("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
    ),
    "tensorflow": ("TF_NUM_INTRAOP_THREADS", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS"),
    "mxnet": ("OMP_NUM_THREADS", "MXNET_CPU_WORKER_NTHREADS", "MXNET_SUBGRAPH_BACKEND"),
}
"""Framework -> environment variables that change what a rank computes in or how fast."""
THREADS = {"jax": ("tf_XLAEigen",), "tensorflow": ("tf_Compute", "tf_XLAEigen")}
"""Framework -> names of the threads of its pools, if threadpoolctl does not know these."""
EXCHANGED_MEANWHILE = "during the backward pass"
EXCHANGED_AFTERWARDS = "after the backward pass"
"""Values of the setting `gradient_exchange`: when ranks begin to exchange gradients."""
TENSOR_CORES_SINCE = 7
"""First compute capability (Volta) with tensor cores."""
TF32_SINCE = (8, 0)
"""First compute capability (Ampere) whose tensor cores support TF32."""


class PrecisionUnknownError(RuntimeError):
    """Some matrix products of the model were not seen, so their dtype is unknown."""

    failure_code = "precision_unknown"


def dtype_name(dtype: Any) -> str:
    """Return the dtype's name without its framework's prefix, such as `float32`."""
    return re.findall(r"\w+", str(dtype))[-1]


def effective_precision(produced: Iterable[str], weights: Iterable[str]) -> str:
    """Return the training precision for these output dtypes and weight dtypes of layers.

    `amp` keeps float32 weights and computes in float16 where that is safe; `pure_fp16` also
    stores weights in float16; `bf16` computes in bfloat16 with weights of any dtype. Other
    combinations are returned as the output dtypes, joined by "+".
    """
    produced, weights = {*produced}, {*weights}
    if not produced:
        return "unknown"
    if produced == {"float32"}:
        return "fp32"
    if produced <= {"float16", "float32"}:
        return "pure_fp16" if "float16" in weights else "amp"
    if produced <= {"bfloat16", "float32"}:
        return "bf16"
    return "+".join(sorted(produced))


def check(options: Options, device: str, precision: str, dtypes: Mapping[str, int]) -> None:
    """Raise ConfigMismatchError if a training on this type of device, whose layers compute in
    `dtypes` (dtype -> number of layers or products), differs from the options."""
    asked = {"device": options.device, "precision": options.precision}
    if options.precision == "auto":
        del asked["precision"]
    used = {"device": device, "precision": precision}
    counts = ", ".join(f"{count} in {dtype}" for dtype, count in dtypes.items())
    for name, value in asked.items():
        if used[name] != value:
            raise ConfigMismatchError(
                f"{name}={value} was requested, but the training has {name}={used[name]} "
                f"(matrix products: {counts}): {options.framework} ignores it on this device"
            )


def check_tf32(options: Options, tf32: bool) -> None:
    """Raise ConfigMismatchError if a training in fp32 rounds to TF32 unasked, or does not as
    asked."""
    if options.precision == "fp32" and options.tf32 != tf32:
        raise ConfigMismatchError(
            f"tf32={options.tf32} was requested, but the training has tf32={tf32}: "
            f"{options.framework} ignores it on this device"
        )


def rounds_to_tf32(capability: tuple[int, int], *, allowed: bool = True) -> bool:
    """Return whether a GPU rounds float32 factors to TF32 if the framework has `allowed` it."""
    overridden = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"
    return capability >= TF32_SINCE and allowed and not overridden


def host_settings(options: Options) -> dict[str, Any]:
    """Return the fields of a note about the process: thread pools and environment variables,
    optimizer and loss in words."""
    return {
        "threads": threads(options.framework),
        "variables": {name: os.environ.get(name) for name in VARIABLES[options.framework]},
        "optimizer_settings": options.optimizer_settings.description,
    }


def skipped_steps(initial_scale: float, scale: float, steps: int, interval: int) -> int | None:
    """Return how many steps a loss scaler has skipped: each overflow halves the scale. None if
    `steps` reach the `interval` of steps without an overflow, after which it doubles."""
    return round(log2(initial_scale / scale)) if steps < interval else None


def seconds_without_exchange(
    work: Callable[[], None], synchronize: Callable[[], None]
) -> float:
    """Return the seconds of `work`, a step's batches, forward and backward passes without
    waiting for other ranks: the median of COMPUTE_STEPS steps. Inside the window, all ranks
    step together, so step times do not show which rank the others wait for; this time does."""
    seconds = []
    for _step in range(COMPUTE_STEPS):
        synchronize()
        began = time.perf_counter()
        work()
        synchronize()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def input_settings(options: Options) -> dict[str, str]:
    if options.input != "dali":
        return {}
    return {
        "dali_threads": str(options.dali_threads),
        "dali_prefetch": str(options.dali_prefetch),
    }


def threads(framework: str) -> dict[str, int]:
    """Return thread pool -> number of threads; {} where threadpoolctl is not installed."""
    if framework in THREADS:
        return named_threads(THREADS[framework])
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return {}
    return {pool["prefix"]: pool["num_threads"] for pool in threadpool_info()}


def named_threads(names: Iterable[str]) -> dict[str, int]:
    """Return name -> number of threads of this process with that name."""
    threads = []
    for path in Path("/proc/self/task").glob("*/comm"):
        # The thread may end meanwhile.
        with suppress(OSError):
            threads.append(path.read_text().strip())
    return {name: threads.count(name) for name in names}
