"""The NVIDIA GPUs visible to this process, through NVML: without CUDA, and without starting
anything on the GPUs. Functions raise NVML's own error if there is no driver or a GPU does not
support a query."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

# CPU workers may lack pynvml.
with contextlib.suppress(ModuleNotFoundError):
    import pynvml

T = TypeVar("T")
REASONS = "idle application_clocks power_cap hardware_slowdown sync_boost software_thermal"
REASONS += " hardware_thermal power_brake display_clocks"
"""NVML's reasons for a GPU clock below its maximum, from the lowest bit."""
ESCAPES = r"\x1b\[[0-9;]*[A-Za-z]"
"""Terminal escape sequences, which nvidia-smi prints even without a terminal."""
WORD_BITS = 64
"""Bits of a word in NVML's sets of cores."""


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Initialize NVML and shut it down on exit. Raises pynvml.NVMLError without a driver."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def visible_gpus() -> list[str]:
    """Labels of the GPUs that CUDA_VISIBLE_DEVICES leaves visible; none without a driver."""
    try:
        return list(ask(_visible))
    except pynvml.NVMLError:
        return []


def ask(read: Callable[[], T]) -> T:
    """Call `read` within a `session` and return its value."""
    with session():
        return read()


def visible_names() -> list[str]:
    """Name and memory of each visible GPU, in the order of the labels."""
    return ask(lambda: [_name(handle) for handle in _visible().values()])


def topology(printed: str) -> str:
    """The header and the rows of visible GPUs in the output of `nvidia-smi topo -m`."""
    shown = {"", *(f"GPU{index}" for index in ask(_visible_indices).values())}
    lines = [line.split("\t") for line in re.sub(ESCAPES, "", printed).splitlines()]
    table = [[cell.strip() for cell in line] for line in lines if len(line) > 1]
    return "\n".join("\t".join(row).rstrip() for row in table if row[0] in shown)


def near_cores(index: int) -> set[int]:
    """The cores of the NUMA node of the visible GPU `index`. Raises pynvml.NVMLError if NVML
    does not report them, IndexError for an unknown GPU."""
    words = -(-(os.cpu_count() or 1) // WORD_BITS)
    with session():
        masks = [*pynvml.nvmlDeviceGetCpuAffinity([*_visible().values()][index], words)]
    cores = range(WORD_BITS * words)
    return {core for core in cores if masks[core // WORD_BITS] >> core % WORD_BITS & 1}


def run_near(index: int) -> str:
    """Bind this process, and its future children, to its cores near the visible GPU `index`.
    Return a sentence with the cores, or the reason for using all."""
    try:
        near = near_cores(index) & os.sched_getaffinity(0)
    except (pynvml.NVMLError, IndexError) as error:
        return f"all cores: {type(error).__name__}: {error}"
    if not near:
        return "all cores: none of them is near the GPU"
    os.sched_setaffinity(0, near)
    return f"cores {core_ranges(near)}"


def core_ranges(cores: set[int]) -> str:
    """`0-3,8` for the cores 0, 1, 2, 3 and 8."""
    ordered = sorted(cores)
    first = [core for core in ordered if core - 1 not in cores]
    last = [core for core in ordered if core + 1 not in cores]
    pairs = zip(first, last, strict=True)
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in pairs)


def driver_cuda() -> str:
    """The newest CUDA version that the driver supports."""
    number = ask(pynvml.nvmlSystemGetCudaDriverVersion)
    return f"{number // 1000}.{number % 1000 // 10}"


def select(variable: str | None, uuids: list[str]) -> dict[str, int]:
    """Map each label in `variable` (CUDA_VISIBLE_DEVICES) to the index of its GPU.

    A label is an index or the beginning of a UUID. A MIG instance counts as a separate GPU and
    gets index 0, since its name does not contain the GPU. Like CUDA, stop at the first label
    without a GPU.
    """
    if variable is None:
        return {str(index): index for index in range(len(uuids))}
    selected: dict[str, int] = {}
    for label in (part.strip() for part in variable.split(",")):
        named = [index for index, uuid in enumerate(uuids) if uuid.startswith(label)]
        if label.isdigit() and int(label) < len(uuids):
            selected[label] = int(label)
        elif label.startswith("GPU-") and named:
            selected[label] = named[0]
        elif label.startswith("MIG-") and uuids:
            selected[label] = 0
        else:
            break
    return selected


def figures(count: int) -> dict[str, tuple[str, dict[str, Callable[[], Any]]]]:
    """Readings of the first `count` visible GPUs, within a `session`: name -> field of a sample
    and, by GPU, the function that reads it."""
    sm, on_gpu = pynvml.NVML_CLOCK_SM, pynvml.NVML_TEMPERATURE_GPU
    devices = {f"gpu{i}": handle for i, handle in enumerate([*_visible().values()][:count])}
    queries: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "gpu_clock": ("clock_mhz", lambda h: pynvml.nvmlDeviceGetClockInfo(h, sm)),
        "gpu_temperature": (
            "temperature_celsius",
            lambda h: pynvml.nvmlDeviceGetTemperature(h, on_gpu),
        ),
        "gpu_throttling": ("throttled", _throttled),
        # Millijoules since the driver was loaded.
        "gpu_energy": (
            "energy_joules",
            lambda h: pynvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3,
        ),
        "gpu_memory": (
            "memory_used_bytes",
            lambda h: int(pynvml.nvmlDeviceGetMemoryInfo(h).used),
        ),
    }
    return {
        name: (field, {gpu: partial(query, handle) for gpu, handle in devices.items()})
        for name, (field, query) in queries.items()
    }


def _throttled(handle: Any) -> list[str]:
    # The function's older name, which every driver supports.
    bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return [name for bit, name in enumerate(REASONS.split()) if bit and bits & 1 << bit]


def _visible() -> dict[str, Any]:
    """Label -> NVML handle; within a `session`."""
    handle = pynvml.nvmlDeviceGetHandleByIndex
    return {label: handle(index) for label, index in _visible_indices().items()}


def _visible_indices() -> dict[str, int]:
    """Label -> NVML's index; within a `session`."""
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    return select(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)


def _name(handle: Any) -> str:
    name = pynvml.nvmlDeviceGetName(handle)
    try:
        memory = round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
    except pynvml.NVMLError_NotSupported:
        # GPUs that share the host's memory have no size.
        return str(name)
    return f"{name}, {memory} GiB"
