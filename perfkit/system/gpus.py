"""The NVIDIA GPUs that this process may use, found through NVML: without CUDA, and without
starting anything on them. Without a driver, or where a GPU does not support it, NVML's own
error is raised."""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")
REASONS = "idle application_clocks power_cap hardware_slowdown sync_boost software_thermal"
REASONS += " hardware_thermal power_brake display_clocks"
"""NVML's reasons why a GPU's clock is not at its highest, from the lowest bit."""


@contextlib.contextmanager
def session() -> Iterator[None]:
    """NVML from its start to its end. Raises pynvml.NVMLError without a driver."""
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
    """What `read` returns between NVML's start and its end."""
    with session():
        return read()


def visible_names() -> list[str]:
    """Name and memory of each visible GPU, in the order of the labels."""
    return ask(lambda: [_name(handle) for handle in _visible().values()])


def driver_cuda() -> str:
    """The newest CUDA that the driver supports."""
    number = ask(pynvml.nvmlSystemGetCudaDriverVersion)
    return f"{number // 1000}.{number % 1000 // 10}"


def select(variable: str | None, uuids: list[str]) -> dict[str, int]:
    """The labels in `variable` (CUDA_VISIBLE_DEVICES), each with the GPU that it names.

    A label is an index or the beginning of a UUID; a MIG instance counts as a GPU of its own
    and is given the first GPU's place, since its name doesn't tell. The list ends before the
    first label that no GPU answers to, as CUDA's own does.
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
    """What can be sampled of the first `count` visible GPUs, within a `session`: name -> field
    of a sample, and by GPU what reads it."""
    sm, on_gpu = pynvml.NVML_CLOCK_SM, pynvml.NVML_TEMPERATURE_GPU
    queries: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "gpu_clock": ("clock_mhz", lambda h: pynvml.nvmlDeviceGetClockInfo(h, sm)),
        "gpu_temperature": (
            "temperature_celsius",
            lambda h: pynvml.nvmlDeviceGetTemperature(h, on_gpu),
        ),
        "gpu_throttling": ("throttled", _throttled),
        "gpu_energy": ("energy_joules", _energy),
    }
    handles = list(_visible().values())[:count]
    return {
        name: (field, {f"gpu{i}": partial(query, handle) for i, handle in enumerate(handles)})
        for name, (field, query) in queries.items()
    }


def _throttled(handle: Any) -> list[str]:
    # By its older name, which every driver knows.
    bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return [name for bit, name in enumerate(REASONS.split()) if bit and bits & 1 << bit]


def _energy(handle: Any) -> float:
    """Joules since the driver was loaded."""
    return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3


def _visible() -> dict[str, Any]:
    """Label -> NVML handle; within a `session`."""
    count = pynvml.nvmlDeviceGetCount()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    selected = select(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
    return {label: handles[index] for label, index in selected.items()}


def _name(handle: Any) -> str:
    name = pynvml.nvmlDeviceGetName(handle)
    try:
        memory = round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
    except pynvml.NVMLError_NotSupported:
        # Of GPUs that share the host's memory.
        return str(name)
    return f"{name}, {memory} GiB"
