"""GPU queries with a fake NVML, because this machine has no GPU."""

import ctypes
import os

import pynvml
import pytest

from perfkit.system import gpus
from perfkit.system.gpus import core_ranges, near_cores, run_near, topology

MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tSYS\tPIX\t0-15,32-47\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tNODE\t0-15,32-47\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tSYS\t16-31,48-63\t1\t\tN/A\n"
    "NIC0\tPIX\tNODE\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)
"""Output of `nvidia-smi topo -m` with drivers of 2024."""


@pytest.fixture
def three_gpus(monkeypatch):
    """NVML of three GPUs: two near cores 0 to 2, 64 and 65, the third near no existing core."""
    masks = {0: (0b111, 0b11), 1: (0b111, 0b11), 2: (0, 1 << 63)}

    def affinity(handle, words):
        return (ctypes.c_ulong * words)(*masks[handle][:words])

    for name, function in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetCpuAffinity": affinity,
    }.items():
        monkeypatch.setattr(pynvml, name, function)
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_topology_keeps_the_rows_of_visible_gpus(three_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    head, *rows = topology(MATRIX).splitlines()
    assert head == "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    assert rows == [
        "GPU0\tX\tNV12\tSYS\tPIX\t0-15,32-47\t0\t\tN/A",
        "GPU2\tSYS\tSYS\tX\tSYS\t16-31,48-63\t1\t\tN/A",
    ]


def test_near_cores_are_decoded_from_nvmls_mask(three_gpus, monkeypatch):
    assert near_cores(0) == {0, 1, 2, 64, 65}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert near_cores(0) == {127}


@pytest.fixture
def bound(monkeypatch):
    """The core sets that a process with cores 1 to 7 was bound to."""
    seen = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {*range(1, 8)})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _pid, cores: seen.append(cores))
    return seen


def test_a_rank_runs_on_its_cores_near_its_gpu(three_gpus, bound):
    assert run_near(1) == "cores 1-2"
    assert bound == [{1, 2}]


def test_a_rank_runs_on_all_cores_if_none_is_known_to_be_near(three_gpus, bound, monkeypatch):
    assert run_near(2) == "all cores: none of them is near the GPU"
    assert run_near(3).startswith("all cores: IndexError")

    def unsupported(_handle, _words):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCpuAffinity", unsupported)
    assert run_near(0) == "all cores: NVMLError_NotSupported: Not Supported"
    assert bound == []


def test_the_kernel_binds_this_process(three_gpus, monkeypatch):
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(gpus, "near_cores", lambda _index: {min(before)})
    try:
        assert run_near(0) == f"cores {min(before)}"
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("cores", "shown"), [({0}, "0"), ({3, 1, 2, 8}, "1-3,8"), ({0, 2, 3}, "0,2-3")]
)
def test_cores_are_shown_as_ranges(cores, shown):
    assert core_ranges(cores) == shown
