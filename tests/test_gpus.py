"""GPU queries and telemetry with a fake NVML, because this machine has no GPU."""

import os
import re
from functools import partial
from types import SimpleNamespace

import pynvml
import pytest

from perfkit.core.config import Protocol
from perfkit.core.driver.measure import measure
from perfkit.core.request import RequestError
from perfkit.core.request.plan import plan
from perfkit.core.request.resolve import resolve
from perfkit.core.results.store import read_events
from perfkit.core.system import gpus
from perfkit.core.system.telemetry import Telemetry

GIB = 2**30
FIXED = {"model": "resnet50", "batch_size": 4, "input": "dali"}
MATRIX = (
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\n"
    "GPU0\t X \tNV12\tPIX\t0-15,32-47\n"
    "GPU1\tNV12\t X \tNODE\t0-15,32-47\n"
    "NIC0\tPIX\tNODE\t X \t"
)
PRINTED = MATRIX.replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1", 1).replace(
    "ity\n", "ity\x1b[0m\n"
)
PRINTED += "\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0"
"""Output of `nvidia-smi topo -m` with drivers of 2024."""

get_affinity, set_affinity = os.sched_getaffinity, os.sched_setaffinity


class FakeNvml:
    """NVML's functions for three GPUs, whose handles are 0, 1 and 2. The process may run on
    cores 1 to 7; two GPUs are near cores 0 to 2, the third is near core 127."""

    def __init__(self):
        self.affinity = {*range(1, 8)}
        self.open = None

    def call(self, name, *arguments):
        return getattr(self, name)(*arguments)

    def set_affinity(self, _pid, cores):
        self.affinity = cores

    def nvmlInit(self):
        self.open = True

    def nvmlShutdown(self):
        self.open = False

    def nvmlSystemGetCudaDriverVersion(self):
        return 12040

    def nvmlDeviceGetCount(self):
        return 3

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetName(self, handle):
        return f"GPU {handle}"

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}"

    def nvmlDeviceGetClockInfo(self, handle, _clock):
        return 1400 + handle

    def nvmlDeviceGetTemperature(self, handle, _sensor):
        return 60 + handle

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return 5500 + handle

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=80 * GIB, used=(2 + handle) * GIB)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return [0x1, 0x44, 0][handle]

    def nvmlDeviceSetCpuAffinity(self, handle):
        near = ({0, 1, 2}, {0, 1, 2}, {127})
        self.affinity = near[handle]


@pytest.fixture
def nvml(monkeypatch):
    """Replace NVML's functions by those of a FakeNvml, which tests may replace in turn."""
    fake = FakeNvml()
    for name in vars(FakeNvml):
        if name.startswith("nvml"):
            monkeypatch.setattr(pynvml, name, partial(fake.call, name))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: fake.affinity)
    monkeypatch.setattr(os, "sched_setaffinity", fake.set_affinity)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def failing(code):
    """Return an NVML function that raises this error."""

    def fail(*_arguments):
        raise pynvml.NVMLError(code)

    return fail


def failing_for(gpu, code, function):
    """Return an NVML function that raises this error for one GPU."""

    def call(handle):
        if handle == gpu:
            raise pynvml.NVMLError(code)
        return function(handle)

    return call


def sampled(folder, **changes):
    """Return the first event of a telemetry file, and a sample."""
    config = resolve(FIXED | {"device": "gpu", "gpus": 2} | changes)
    with Telemetry(folder / "telemetry.jsonl", config, folder) as telemetry:
        telemetry.sample(None)
    return read_events(folder / "telemetry.jsonl")


def test_topology_is_the_matrix_without_escapes_and_legend():
    assert gpus.topology(PRINTED) == MATRIX


def test_names_and_labels_follow_the_visible_devices(nvml, monkeypatch):
    nvml.nvmlDeviceGetMemoryInfo = failing_for(
        1, pynvml.NVML_ERROR_NOT_SUPPORTED, nvml.nvmlDeviceGetMemoryInfo
    )
    assert gpus.visible_names() == ["GPU 0, 80 GiB", "GPU 1", "GPU 2, 80 GiB"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert gpus.visible_names() == ["GPU 2, 80 GiB", "GPU 0, 80 GiB"]
    assert (gpus.visible_gpus(), gpus.driver_cuda()) == (["2", "0"], "12.4")
    assert nvml.open is False


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED]
)
def test_a_machine_without_a_driver_has_no_gpus(nvml, code):
    nvml.nvmlInit = failing(code)
    assert gpus.visible_gpus() == []


def test_a_failing_driver_is_not_taken_for_a_machine_without_gpus(nvml):
    nvml.nvmlInit = failing(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    reason = "NVIDIA's driver fails (NVML: RM has detected an NVML/RM version mismatch.)"
    with pytest.raises(OSError, match=re.escape(reason)):
        gpus.visible_gpus()
    refusal = f"gpus: {reason}; to run on the CPU: -p device cpu"
    for request in ({}, {"gpus": 8}, {"device": "gpu"}):
        with pytest.raises(RequestError) as refused:
            plan("resnet50", {"input": "synthetic"} | request)
        assert refusal in refused.value.problems
        codes = {refusal.code for refusal in refused.value.refusals}
        assert "too_few_devices" not in codes
    for request in ({"device": "cpu"}, {"gpus": 0}):
        planned = plan("resnet50", {"input": "synthetic"} | request)
        assert planned.config.device == "cpu"
    with pytest.raises(RequestError, match="gpus: NVIDIA's driver fails"):
        measure(resolve(FIXED | {"device": "gpu", "gpus": 1}), Protocol.named("quick"))


def test_a_lost_gpu_is_not_left_out(nvml):
    nvml.nvmlDeviceGetHandleByIndex = failing_for(
        2, pynvml.NVML_ERROR_GPU_IS_LOST, nvml.nvmlDeviceGetHandleByIndex
    )
    with pytest.raises(OSError, match="GPU is lost"):
        gpus.visible_gpus()


def test_a_mig_instance_has_its_own_readings(tmp_path, nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-one")
    names = {"MIG-one": "H100 MIG 1g.10gb"}
    memory = SimpleNamespace(total=10 * GIB, used=GIB)
    nvml.nvmlDeviceGetName = names.__getitem__
    nvml.nvmlDeviceGetMemoryInfo = lambda _handle: memory
    assert gpus.visible_names() == ["H100 MIG 1g.10gb, 10 GiB"]
    nvml.nvmlDeviceGetClockInfo = failing(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    for figure in ("Temperature", "TotalEnergyConsumption", "CurrentClocksThrottleReasons"):
        setattr(nvml, f"nvmlDeviceGet{figure}", failing(pynvml.NVML_ERROR_NOT_SUPPORTED))
    begin, sample = sampled(tmp_path, gpus=1)
    assert begin["missing"]["gpu_clock"] == "NVML: Invalid Argument"
    assert begin["missing"]["gpu_energy"] == "NVML: Not Supported"
    assert sample["memory_used_bytes"] == {"gpu0": GIB} and "clock_mhz" not in sample
    nvml.nvmlDeviceGetHandleByUUID = failing(pynvml.NVML_ERROR_NOT_FOUND)
    assert gpus.visible_gpus() == ["MIG-one"]
    assert gpus.run_near(0) == "all cores: NVMLError_NotFound: Not Found"


@pytest.mark.parametrize("index", [0, 1])
def test_a_rank_runs_on_its_cores_near_its_gpu(nvml, index):
    assert gpus.run_near(index) == "cores 1-2"
    assert nvml.affinity == {1, 2}


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (2, "none of them is near the GPU"),
        (3, "IndexError: list index out of range"),
        (0, "NVMLError_NotSupported: Not Supported"),
    ],
)
def test_a_rank_runs_on_all_its_cores_if_none_is_known_to_be_near(nvml, index, reason):
    if index == 0:
        nvml.nvmlDeviceSetCpuAffinity = failing(pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert gpus.run_near(index) == f"all cores: {reason}"
    assert nvml.affinity == {*range(1, 8)}


def test_the_kernel_binds_this_process(nvml, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", get_affinity)
    monkeypatch.setattr(os, "sched_setaffinity", set_affinity)
    before = get_affinity(0)
    nvml.nvmlDeviceSetCpuAffinity = lambda _handle: set_affinity(0, {min(before)})
    try:
        assert gpus.run_near(0) == f"cores {min(before)}"
        assert get_affinity(0) == {min(before)}
    finally:
        set_affinity(0, before)


@pytest.mark.parametrize(
    ("cores", "shown"), [({0}, "0"), ({3, 1, 2, 8}, "1-3,8"), ({0, 2, 3}, "0,2-3")]
)
def test_cores_are_shown_as_ranges(cores, shown):
    assert gpus.core_ranges(cores) == shown


def test_gpu_samples_have_clock_temperature_energy_and_throttling(tmp_path, nvml):
    begin, sample = sampled(tmp_path)
    assert not {name for name in begin["missing"] if name.startswith("gpu")}
    assert (begin["device"], begin["ranks"]) == ("gpu", 2)
    assert sample["clock_mhz"] == {"gpu0": 1400, "gpu1": 1401}
    assert sample["temperature_celsius"] == {"gpu0": 60, "gpu1": 61}
    assert sample["energy_joules"] == {"gpu0": 5.5, "gpu1": 5.501}
    assert sample["throttled"] == {"gpu0": [], "gpu1": ["power_cap", "hardware_thermal"]}
    assert sample["memory_used_bytes"] == {"gpu0": 2 * GIB, "gpu1": 3 * GIB}
    assert nvml.open is False


@pytest.mark.parametrize(
    ("function", "code", "missing"),
    [
        (
            "nvmlDeviceGetTotalEnergyConsumption",
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            {"gpu_energy": "NVML: Not Supported"},
        ),
        (
            "nvmlDeviceGetHandleByIndex",
            pynvml.NVML_ERROR_NO_PERMISSION,
            {"gpus": "NVML: Insufficient Permissions"},
        ),
        ("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED, {"gpus": "NVML: Driver Not Loaded"}),
    ],
)
def test_unsupported_gpu_readings_are_missing_with_nvmls_reason(
    tmp_path, nvml, function, code, missing
):
    setattr(nvml, function, failing(code))
    begin, sample = sampled(tmp_path)
    gpu_names = [name for name in begin["missing"] if name.startswith("gpu")]
    assert {name: begin["missing"][name] for name in gpu_names} == missing
    assert sample["at"] > 0
    assert "energy_joules" not in sample
    assert ("clock_mhz" in sample) == ("gpu_energy" in missing)
    assert not nvml.open


def test_a_cpu_measurement_reads_no_gpu(tmp_path, nvml):
    begin, sample = sampled(tmp_path, device="cpu", gpus=0, processes=1)
    assert "clock_mhz" not in sample
    assert nvml.open is None
    assert not {name for name in begin["missing"] if "gpu" in name}
