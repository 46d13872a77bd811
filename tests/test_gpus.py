"""GPU queries and telemetry with a fake NVML, because this machine has no GPU."""

import os
import re
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


@pytest.fixture
def nvml(monkeypatch):
    """Replace NVML's functions by fakes for three GPUs; return the fakes by name. The process
    may run on cores 1 to 7; two GPUs are near cores 0 to 2, the third is near core 127."""
    near = ({0, 1, 2}, {0, 1, 2}, {127})
    functions = {
        "affinity": {*range(1, 8)},
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetClockInfo": lambda handle, _clock: 1400 + handle,
        "nvmlDeviceGetTemperature": lambda handle, _sensor: 60 + handle,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 5500 + handle,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
            total=80 * GIB, used=(2 + handle) * GIB
        ),
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: [0x1, 0x44, 0][handle],
        "nvmlDeviceSetCpuAffinity": lambda handle: functions.update(affinity=near[handle]),
        "nvmlSystemGetCudaDriverVersion": lambda: 12040,
        "nvmlInit": lambda: functions.update(open=True),
        "nvmlShutdown": lambda: functions.update(open=False),
    }
    for name in list(functions)[1:]:
        monkeypatch.setattr(pynvml, name, lambda *given, name=name: functions[name](*given))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: functions["affinity"])
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda _pid, cores: functions.update(affinity=cores)
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return functions


def failing(code, when=lambda *_: True, otherwise=None):
    """Return an NVML function that raises this error, or calls `otherwise` unless `when`."""

    def fail(*given):
        if when(*given):
            raise pynvml.NVMLError(code)
        return otherwise(*given)

    return fail


def sampled(folder, **changes):
    """Return the first event of a telemetry file, and a sample."""
    config = resolve(FIXED | {"device": "gpu", "gpus": 2} | changes)
    with Telemetry(folder / "telemetry.jsonl", config, folder) as telemetry:
        telemetry.sample(None)
    return read_events(folder / "telemetry.jsonl")


def test_topology_is_the_matrix_without_escapes_and_legend():
    assert gpus.topology(PRINTED) == MATRIX


def test_names_and_labels_follow_the_visible_devices(nvml, monkeypatch):
    nvml["nvmlDeviceGetMemoryInfo"] = failing(
        pynvml.NVML_ERROR_NOT_SUPPORTED, lambda h: h == 1, nvml["nvmlDeviceGetMemoryInfo"]
    )
    assert gpus.visible_names() == ["GPU 0, 80 GiB", "GPU 1", "GPU 2, 80 GiB"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert gpus.visible_names() == ["GPU 2, 80 GiB", "GPU 0, 80 GiB"]
    assert (gpus.visible_gpus(), gpus.driver_cuda()) == (["2", "0"], "12.4")
    assert nvml["open"] is False


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, []),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, []),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, None),
    ],
)
def test_a_failing_driver_is_not_taken_for_a_machine_without_gpus(nvml, code, found):
    nvml["nvmlInit"] = failing(code)
    if found is not None:
        assert gpus.visible_gpus() == found
        return
    reason = "NVIDIA's driver fails (NVML: RM has detected an NVML/RM version mismatch.)"
    with pytest.raises(OSError, match=re.escape(reason)):
        gpus.visible_gpus()
    refusal = f"gpus: {reason}; to run on the CPU: -p device cpu"
    for given in ({}, {"gpus": 8}, {"device": "gpu"}):
        with pytest.raises(RequestError) as refused:
            plan("resnet50", {"input": "synthetic"} | given)
        assert refusal in refused.value.problems
        assert not any("visible on this machine" in p for p in refused.value.problems)
    for given in ({"device": "cpu"}, {"gpus": 0}):
        assert plan("resnet50", {"input": "synthetic"} | given).config.device == "cpu"
    with pytest.raises(RequestError, match="gpus: NVIDIA's driver fails"):
        measure(resolve(FIXED | {"device": "gpu", "gpus": 1}), Protocol.named("quick"))


def test_a_lost_gpu_is_not_left_out(nvml):
    get = nvml["nvmlDeviceGetHandleByIndex"]
    lost = failing(pynvml.NVML_ERROR_GPU_IS_LOST, lambda index: index == 2, get)
    nvml["nvmlDeviceGetHandleByIndex"] = lost
    with pytest.raises(OSError, match="GPU is lost"):
        gpus.visible_gpus()


def test_a_mig_instance_has_its_own_readings(tmp_path, nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-one")
    names = {"MIG-one": "H100 MIG 1g.10gb"}
    nvml["nvmlDeviceGetHandleByUUID"] = lambda label: label
    nvml["nvmlDeviceGetName"] = lambda handle: names[handle]
    nvml["nvmlDeviceGetMemoryInfo"] = lambda _: SimpleNamespace(total=10 * GIB, used=GIB)
    assert gpus.visible_names() == ["H100 MIG 1g.10gb, 10 GiB"]
    nvml["nvmlDeviceGetClockInfo"] = failing(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    for figure in ("Temperature", "TotalEnergyConsumption", "CurrentClocksThrottleReasons"):
        nvml[f"nvmlDeviceGet{figure}"] = failing(pynvml.NVML_ERROR_NOT_SUPPORTED)
    begin, sample = sampled(tmp_path, gpus=1)
    assert begin["missing"]["gpu_clock"] == "NVML: Invalid Argument"
    assert begin["missing"]["gpu_energy"] == "NVML: Not Supported"
    assert sample["memory_used_bytes"] == {"gpu0": GIB} and "clock_mhz" not in sample
    nvml["nvmlDeviceGetHandleByUUID"] = failing(pynvml.NVML_ERROR_NOT_FOUND)
    assert gpus.visible_gpus() == ["MIG-one"]
    assert gpus.run_near(0) == "all cores: NVMLError_NotFound: Not Found"


@pytest.mark.parametrize("index", [0, 1])
def test_a_rank_runs_on_its_cores_near_its_gpu(nvml, index):
    assert gpus.run_near(index) == "cores 1-2"
    assert nvml["affinity"] == {1, 2}


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
        nvml["nvmlDeviceSetCpuAffinity"] = failing(pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert gpus.run_near(index) == f"all cores: {reason}"
    assert nvml["affinity"] == {*range(1, 8)}


def test_the_kernel_binds_this_process(nvml, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", get_affinity)
    monkeypatch.setattr(os, "sched_setaffinity", set_affinity)
    before = get_affinity(0)
    nvml["nvmlDeviceSetCpuAffinity"] = lambda _handle: set_affinity(0, {min(before)})
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
    assert nvml["open"] is False


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
    nvml[function] = failing(code)
    begin, sample = sampled(tmp_path)
    assert {k: v for k, v in begin["missing"].items() if k.startswith("gpu")} == missing
    assert sample["at"] > 0 and "energy_joules" not in sample
    assert ("clock_mhz" in sample) == ("gpu_energy" in missing)
    assert not nvml.get("open")


def test_a_cpu_measurement_reads_no_gpu(tmp_path, nvml):
    begin, sample = sampled(tmp_path, device="cpu", gpus=0, processes=1)
    assert "clock_mhz" not in sample and "open" not in nvml
    assert not {name for name in begin["missing"] if "gpu" in name}
