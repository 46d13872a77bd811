"""The NVIDIA GPUs that this process may use, found through NVML: without CUDA, and without
starting anything on them."""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pynvml

from perfkit.machine.gauges import Gauge

T = TypeVar("T")
REASONS = {
    0x02: "application_clocks",
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
}
"""NVML's reasons why a GPU's clock is not at its highest, by their bits; 0x01, that the GPU is
idle, is none."""


class NoDriverError(Exception):
    """No NVIDIA driver answers; the message is NVML's."""


@contextlib.contextmanager
def session() -> Iterator[None]:
    """NVML from its start to its end. Raises NoDriverError, for what is asked within too."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDriverError(str(error)) from error
    try:
        yield
    except pynvml.NVMLError as error:
        raise NoDriverError(str(error)) from error
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def ask(read: Callable[[], T]) -> T:
    """What `read` says between NVML's start and its end. Raises NoDriverError."""
    with session():
        return read()


def visible_gpus() -> list[str]:
    """Labels of the GPUs that CUDA_VISIBLE_DEVICES leaves visible; none without a driver."""
    try:
        return list(ask(_visible))
    except NoDriverError:
        return []


def visible_names() -> list[str]:
    """Name and memory of each visible GPU, in the order of the labels. Raises NoDriverError."""
    return ask(lambda: [_name(handle) for handle in _visible().values()])


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


def gauges(count: int) -> dict[str, Callable[[], list[Gauge]]]:
    """By name, what the first `count` visible GPUs tell of themselves, within a `session`.
    Raises NoDriverError, as reading one of them may."""
    readers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "gpu_clock": ("clock_mhz", _sm_clock),
        "gpu_temperature": ("temperature_celsius", _temperature),
        "gpu_throttling": ("throttled", _throttled),
        "gpu_energy": ("energy_joules", _energy),
    }
    handles = list(_told(_visible).values())[:count]

    def of_all(what: str, read: Callable[[Any], Any]) -> list[Gauge]:
        return [
            Gauge(what, f"gpu{index}", partial(_told, partial(read, handle)))
            for index, handle in enumerate(handles)
        ]

    return {name: partial(of_all, *reader) for name, reader in readers.items()}


def _told(read: Callable[[], T]) -> T:
    try:
        return read()
    except pynvml.NVMLError as error:
        raise NoDriverError(str(error)) from error


def _sm_clock(handle: Any) -> float:
    return float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))


def _temperature(handle: Any) -> float:
    return float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _throttled(handle: Any) -> list[str]:
    # By its older name, which every driver knows.
    bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return [name for bit, name in REASONS.items() if bits & bit]


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
    memory = round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
    return f"{pynvml.nvmlDeviceGetName(handle)}, {memory} GiB"
