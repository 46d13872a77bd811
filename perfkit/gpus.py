"""The NVIDIA GPUs that this process may use, found through NVML: without CUDA, and without
starting anything on them."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")


class NoDriverError(Exception):
    """No NVIDIA driver answers; the message is NVML's."""


def ask(read: Callable[[], T]) -> T:
    """What `read` says between NVML's start and its end. Raises NoDriverError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoDriverError(str(error)) from error
    try:
        return read()
    except pynvml.NVMLError as error:
        raise NoDriverError(str(error)) from error
    finally:
        pynvml.nvmlShutdown()


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


def _visible() -> dict[str, Any]:
    """Label -> NVML handle; within `ask`."""
    count = pynvml.nvmlDeviceGetCount()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    selected = select(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
    return {label: handles[index] for label, index in selected.items()}


def _name(handle: Any) -> str:
    memory = round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
    return f"{pynvml.nvmlDeviceGetName(handle)}, {memory} GiB"
