"""Types of devices that train: all that the suite knows of them beside what is NVIDIA's alone
(system/gpus.py).

Frameworks have the types `cpu` and `gpu`; Paddle also those of its plugins (custom devices:
npu, mlu, gcu …) and of its XPU build. Of these, Paddle's launcher reads the visible devices
from <TYPE>_VISIBLE_DEVICES, gives each rank its own in FLAGS_selected_<type>s, and has them
exchange gradients by the type's own library (xccl, bkcl).
"""

import os
from collections.abc import Callable, Mapping

from perfkit.system.gpus import visible_gpus


def visible_variable(device: str) -> str:
    """The environment variable that says which devices of the type a process may use."""
    return "CUDA_VISIBLE_DEVICES" if device == "gpu" else f"{device.upper()}_VISIBLE_DEVICES"


def visible_devices(device: str, counts: Callable[[], Mapping[str, int]]) -> list[str]:
    """Labels of the devices of this type that a process may use here, in their order; none of
    CPUs. `counts()` has the number of devices of each type beside CPUs and GPUs."""
    if device == "cpu":
        return []
    if device == "gpu":
        return visible_gpus()
    count = counts().get(device, 0)
    labels = os.environ.get(visible_variable(device), "")
    if count and labels not in ("", "all"):
        return [label.strip() for label in labels.split(",")]
    return [str(index) for index in range(count)]
