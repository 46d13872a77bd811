"""The NVIDIA GPUs visible to this process, through NVML: without CUDA, and without starting
anything on the GPUs. Functions raise NVML's own error if there is no driver or a GPU does not
support a query."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

# CPU workers may lack pynvml.
with contextlib.suppress(ModuleNotFoundError):
    import pynvml

REASONS = "idle application_clocks power_cap hardware_slowdown sync_boost software_thermal"
REASONS += " hardware_thermal power_brake display_clocks"
"""NVML's reasons for a GPU clock below its maximum, from the lowest bit."""
ESCAPES = r"\x1b\[[0-9;]*[A-Za-z]"
"""Terminal escape sequences, which nvidia-smi prints even without a terminal."""


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Initialize NVML and shut it down on exit; also a decorator of functions. Raises
    pynvml.NVMLError without a driver."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def visible_gpus() -> list[str]:
    """Labels of the GPUs that CUDA_VISIBLE_DEVICES leaves visible; none without a driver.
    Raises OSError if the driver fails."""
    try:
        with session():
            return [*_selected()]
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return []
    except pynvml.NVMLError as error:
        raise OSError(f"NVIDIA's driver fails (NVML: {error})") from error


@session()
def visible_names() -> list[str]:
    """Name and memory of each visible GPU, in the order of the labels."""
    return [_name(handle) for handle in _visible().values()]


def topology(printed: str) -> str:
    """The matrix in the output of `nvidia-smi topo -m`, without the legend below it."""
    return re.sub(ESCAPES, "", printed).partition("\n\n")[0]


def run_near(index: int) -> str:
    """Bind this process, and its future children, to its cores near the visible GPU `index`.
    Return a sentence with the cores, or the reason for using all."""
    own = os.sched_getaffinity(0)
    try:
        with session():
            pynvml.nvmlDeviceSetCpuAffinity([*_visible().values()][index])
    except (pynvml.NVMLError, IndexError) as error:
        return f"all cores: {type(error).__name__}: {error}"
    # NVML ignores the cores that the process was bound to, by Slurm for example.
    near = os.sched_getaffinity(0) & own
    os.sched_setaffinity(0, near or own)
    return f"cores {core_ranges(near)}" if near else "all cores: none of them is near the GPU"


def core_ranges(cores: set[int]) -> str:
    """`0-3,8` for the cores 0, 1, 2, 3 and 8."""
    ordered = sorted(cores)
    first = [core for core in ordered if core - 1 not in cores]
    last = [core for core in ordered if core + 1 not in cores]
    pairs = zip(first, last, strict=True)
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in pairs)


@session()
def driver() -> str:
    """The driver's version."""
    return str(pynvml.nvmlSystemGetDriverVersion())


@session()
def driver_cuda() -> str:
    """The newest CUDA version that the driver supports."""
    number = pynvml.nvmlSystemGetCudaDriverVersion()
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
    """Label -> NVML handle of the GPU or MIG instance; within a `session`."""
    return {
        label: pynvml.nvmlDeviceGetHandleByUUID(label) if label.startswith("MIG-") else handle
        for label, handle in _selected().items()
    }


def _selected() -> dict[str, Any]:
    """Label -> NVML handle of the GPU, of any GPU for a MIG instance; within a `session`."""
    indices = range(pynvml.nvmlDeviceGetCount())
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in indices]
    uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    selected = select(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
    return {label: handles[index] for label, index in selected.items()}


def _name(handle: Any) -> str:
    name = pynvml.nvmlDeviceGetName(handle)
    try:
        memory = round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
    except pynvml.NVMLError_NotSupported:
        # GPUs that share the host's memory have no size.
        return str(name)
    return f"{name}, {memory} GiB"
