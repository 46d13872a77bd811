"""The NVML functions that perfkit calls, for FAKE_DEVICES fake GPUs."""

import os
import time
from types import SimpleNamespace

WATTS = 100


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


FUNCTIONS = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: int(os.environ.get("FAKE_DEVICES", "2")),
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetUUID": lambda handle: f"GPU-fake-{handle}",
    "nvmlDeviceGetName": lambda _handle: "Fake accelerator",
    "nvmlDeviceGetMemoryInfo": lambda _handle: SimpleNamespace(total=4 << 30, used=1 << 30),
    "nvmlDeviceGetClockInfo": lambda handle, _kind: 1000 + handle,
    "nvmlDeviceGetTemperature": lambda handle, _kind: 40 + handle,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _handle: 0x4,
    "nvmlDeviceGetTotalEnergyConsumption": lambda _: int(time.monotonic() * WATTS * 1e3),
    "nvmlSystemGetDriverVersion": lambda: "fake",
    "nvmlSystemGetCudaDriverVersion": lambda: 12040,
}


def missing(*_arguments):
    raise NVMLError("the fake has none")


def __getattr__(name):
    if name.startswith("NVML_"):
        return 0
    if name.startswith("nvml"):
        return FUNCTIONS.get(name, missing)
    raise AttributeError(name)
