"""Patches for processes with the fake accelerator.

Workers train narrow models and run the file FAKE_FAULT. If the accelerator is called `gpu`, a
CPU build of Paddle answers like a GPU build.
"""

import ctypes
import os
import runpy
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

IN_WORKER = "perfkit.timing.rank" in sys.orig_argv
CAPABILITY = (8, 0)
"""The A100's, which supports TF32."""


def patch_models(models):
    if IN_WORKER:
        from narrow import replace_sizes

        replace_sizes(setattr)


def patch_paddle(paddle):
    if IN_WORKER and "FAKE_FAULT" in os.environ:
        runpy.run_path(os.environ["FAKE_FAULT"])
    if os.environ["FAKE_NAME"] == "gpu":
        answer_as_gpu(paddle)


class CudaBuild:
    """Paddle as a build for CUDA sees itself."""

    def __init__(self, paddle):
        self.paddle = paddle

    def __getattr__(self, name):
        return getattr(self.paddle, name)

    @staticmethod
    def is_compiled_with_cuda():
        return True


def answer_as_gpu(paddle):
    library = ctypes.CDLL(f"{os.environ['CUSTOM_DEVICE_ROOT']}/libfake.so")
    library.fake_event_seconds.restype = ctypes.c_double
    library.fake_event_seconds.argtypes = [ctypes.c_void_p]
    library.fake_kernel_seconds.argtypes = [ctypes.c_double]
    library.fake_kernel_seconds(float(os.environ.get("FAKE_KERNEL_SECONDS", "0")))

    def seconds(event):
        return library.fake_event_seconds(event.event_base.raw_event)

    # Custom devices have no elapsed_time in Paddle 3.3.
    paddle.device.Event.elapsed_time = lambda begin, end: 1e3 * (seconds(end) - seconds(begin))
    paddle.device.cuda.get_device_capability = lambda *_: CAPABILITY
    paddle.base.core.Place.is_gpu_place = lambda place: place.is_custom_place()
    paddle.base.core.gpu_memory_available = lambda: 4 << 30
    # The function paddle.amp.auto_cast hides the module of the same name.
    auto_cast = sys.modules["paddle.amp.auto_cast"]
    auto_cast._is_gpu_float16_supported = lambda: True
    auto_cast._is_gpu_bfloat16_supported = lambda: True
    # Otherwise bfloat16 is disabled except for four device types.
    auto_cast._is_custom_device_bfloat16_supported = lambda: True
    # Dense layers then call the operator of builds for CUDA. Other modules see a build without
    # CUDA, because they would call its driver.
    paddle.nn.functional.common.paddle = CudaBuild(paddle)


def patch_software(software):
    read = software.constants

    def constants(name, file):
        cuda = dict.fromkeys(("cuda_version", "cudnn_version", "nccl_version"), "fake")
        in_paddle = name == "paddle" and os.environ["FAKE_NAME"] == "gpu"
        return read(name, file) | (cuda if in_paddle else {})

    software.constants = constants


PATCHES = {
    "paddle": patch_paddle,
    "perfkit.training.models": patch_models,
    "perfkit.measuring.system.software": patch_software,
}


class Finder(MetaPathFinder):
    """Patch modules after their import."""

    def find_spec(self, name, path, target=None):
        spec = PathFinder.find_spec(name, path) if name in PATCHES else None
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                PATCHES[name](module)

            spec.loader.exec_module = exec_module
        return spec


if os.environ.get("CUSTOM_DEVICE_ROOT"):
    sys.meta_path.insert(0, Finder())
