"""The NVML functions that perfkit calls, for FAKE_DEVICES fake GPUs."""

import os
import time
from types import SimpleNamespace

NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0
WATTS = 100


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


def nvmlInit():
    pass


nvmlShutdown = nvmlInit


def nvmlDeviceGetCount():
    return int(os.environ.get("FAKE_DEVICES", "2"))


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetUUID(handle):
    return f"GPU-fake-{handle}"


def nvmlDeviceGetName(handle):
    return "Fake accelerator"


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(total=4 << 30, used=1 << 30)


def nvmlDeviceGetClockInfo(handle, kind):
    return 1000 + handle


def nvmlDeviceGetTemperature(handle, kind):
    return 40 + handle


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return 0x4


def nvmlDeviceGetTotalEnergyConsumption(handle):
    return int(time.monotonic() * WATTS * 1e3)


def nvmlSystemGetDriverVersion():
    return "fake"


def nvmlSystemGetCudaDriverVersion():
    return 12040


def __getattr__(name):
    if name.startswith("NVML_"):
        return 0

    def missing(*_arguments):
        raise NVMLError(f"{name}: the fake has none")

    if name.startswith("nvml"):
        return missing
    raise AttributeError(name)
