"""Fake GPUs: a libnvidia-ml.so.1 (nvml.c) for the real nvidia-ml-py, so that a function or a
constant that NVML does not have is an error, as on a machine with a driver."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"


def compile_nvml(folder: Path) -> Path:
    """Compile the library into a folder, which takes 0.1 s, and return its path. A process
    that has loaded it gets it wherever it loads a library of this name."""
    path = folder / LIBRARY
    command = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    command += [f"-Wl,-soname,{LIBRARY}", str(SOURCE), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("no C compiler is installed")
    return compile_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives this process and those that it starts two fake GPUs. The value is a function that
    changes them: it takes entries of FAKE_NVML, and keeps those of earlier calls."""
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(nvml_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    settings: list[str] = []

    def change(*entries: str) -> None:
        # The library takes the first entry of a key.
        settings[:0] = entries
        monkeypatch.setenv("FAKE_NVML", ";".join(settings))

    change()
    return change
