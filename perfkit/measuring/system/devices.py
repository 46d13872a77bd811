"""The accelerators of this machine as a framework sees them."""

import os
import re
import sys
from functools import cache

from perfkit.measuring.system import gpus
from perfkit.measuring.system.software import InterpreterError, ask, read_software

COMPILED_ARCHITECTURES = ("paddle/version/__init__.py:compiled_cuda_archs",)
COUNT_DEVICES = """
import json
import paddle
core = paddle.base.core
types = core.get_all_custom_device_type()
counts = {kind: core.get_custom_device_count(kind) for kind in types}
if paddle.is_compiled_with_xpu():
    counts["xpu"] = core.get_xpu_device_count()
print(json.dumps(counts))
"""
LIST_ARCHITECTURES = """
import json
import torch
print(json.dumps(torch.cuda.get_arch_list()))
"""


def visible_variable(device: str) -> str:
    """Return the environment variable that restricts a process to some devices of a type.

    For the types of its plugins (npu, mlu, gcu ...) and its XPU build, Paddle's launcher reads
    it and assigns each rank its own devices in FLAGS_selected_<type>s.
    """
    if device == "gpu":
        return "CUDA_VISIBLE_DEVICES"
    return f"{device.upper()}_VISIBLE_DEVICES"


def visible_devices(
    framework: str, device: str, interpreter: str = sys.executable
) -> list[str]:
    """Return the labels of this type's devices that the framework's processes may use, in
    order; [] for `cpu`. Raises OSError if NVIDIA's driver fails."""
    if device == "cpu":
        return []
    if device == "gpu":
        return gpus.visible_gpus()
    count = other_devices(framework, interpreter).get(device, 0)
    labels = os.environ.get(visible_variable(device), "")
    if count and labels not in ("", "all"):
        return [label.strip() for label in labels.split(",")]
    return [str(index) for index in range(count)]


@cache
def other_devices(framework: str, interpreter: str) -> dict[str, int]:
    """Return type -> number of this machine's devices other than CPUs and GPUs that the
    framework sees: those of Paddle's plugins and XPU build, queried in a separate process; {}
    if it cannot be queried."""
    if framework != "paddle":
        return {}
    try:
        return dict(ask(interpreter, COUNT_DEVICES))
    except InterpreterError:
        return {}


def architectures(framework: str, interpreter: str) -> list[str]:
    """Return the GPU architectures that the framework's build has machine code (`sm_90`) or PTX
    (`compute_90`) for; [] if they are unknown. May start a process. Raises
    InterpreterError."""
    if framework == "torch":
        return torch_architectures(interpreter)
    if framework != "paddle":
        return []
    # Paddle's builds from 3.1 on list those with machine code; none has PTX.
    software = read_software(interpreter, {"architectures": COMPILED_ARCHITECTURES})
    numbers = re.findall(r"\d+", software.versions["architectures"] or "")
    return [f"sm_{number}" for number in numbers]


@cache
def torch_architectures(interpreter: str) -> list[str]:
    """Return PyTorch's own list of architectures, queried in a separate process."""
    return [str(architecture) for architecture in ask(interpreter, LIST_ARCHITECTURES)]
