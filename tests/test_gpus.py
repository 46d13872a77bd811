"""GPU queries and telemetry with fake GPUs under the real nvidia-ml-py, because this machine
has no GPU."""

import os
import re
import subprocess
import sys
from importlib.metadata import version

import pynvml
import pytest
from conftest import needs_frameworks

from perfkit.measuring.driver.measure import measure
from perfkit.measuring.paths import ROOT
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.checks import problems as problems_here
from perfkit.measuring.request.plan import plan
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.results.store import read_events
from perfkit.measuring.system import devices, gpus
from perfkit.measuring.system.environment import read_facts
from perfkit.measuring.system.software import Software
from perfkit.measuring.system.telemetry import Telemetry

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

OF_INDEX = "nvmlDeviceGetHandleByIndex_v2"
NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION


@pytest.fixture
def three_gpus(nvml):
    nvml("gpus=3", "total_gib=80", *(f"name.{index}=GPU {index}" for index in range(3)))
    return nvml


@pytest.fixture
def cores():
    """Two cores of this process, which may run on both."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("this process may use one core; the test needs two")
    first, second, *_others = sorted(before)
    os.sched_setaffinity(0, {first, second})
    yield first, second
    os.sched_setaffinity(0, before)


def sampled(folder, **changes):
    """Return the first event of a telemetry file, and a sample."""
    config = resolve(FIXED | {"device": "gpu", "gpus": 2} | changes)
    with Telemetry(folder / "telemetry.jsonl", config, folder) as telemetry:
        telemetry.sample(None)
    return read_events(folder / "telemetry.jsonl")


def missing_of_gpus(begin):
    """Return the readings of GPUs that a telemetry file lacks, with the reasons."""
    return {name: why for name, why in begin["missing"].items() if name.startswith("gpu")}


def test_topology_is_the_matrix_without_escapes_and_legend():
    assert gpus.topology(PRINTED) == MATRIX


def test_names_and_labels_follow_the_visible_devices(three_gpus, monkeypatch):
    three_gpus(f"nvmlDeviceGetMemoryInfo.1={pynvml.NVML_ERROR_NOT_SUPPORTED}")
    assert gpus.visible_names() == ["GPU 0, 80 GiB", "GPU 1", "GPU 2, 80 GiB"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert gpus.visible_names() == ["GPU 2, 80 GiB", "GPU 0, 80 GiB"]
    assert gpus.visible_gpus() == ["2", "0"]


def test_the_facts_have_the_compute_capability_of_each_gpu(three_gpus, tmp_path, monkeypatch):
    three_gpus("capability=9.0", "capability.2=12.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    facts = read_facts(tmp_path, Software("3.11", {}, []))
    assert facts["compute_capability"].value == ["12.0", "9.0"]


def test_a_machine_without_a_driver_has_no_gpus(nvml):
    nvml(f"nvmlInitWithFlags={pynvml.NVML_ERROR_DRIVER_NOT_LOADED}")
    assert gpus.visible_gpus() == []
    assert gpus.unseen() == gpus.Unseen("Driver Not Loaded")


FOR_A_CPU = {
    "paddle/__init__.py": "",
    "paddle/version/__init__.py": "full_version = '3.3.1'\ncuda_version = 'False'\n",
    "torch/__init__.py": "",
    "torch/version.py": "__version__ = '2.15.0+cpu'\ncuda = None\n",
}
"""What perfkit reads of builds for a CPU."""


@pytest.mark.usefixtures("processes")
@pytest.mark.usefixtures("nvml")
def test_the_checks_of_make_gpu_fail_where_there_is_nothing_to_check(tmp_path):
    for name, text in FOR_A_CPU.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    words = ["-c", "tests/gpu/pytest.ini", "--confcutdir", "tests/gpu", "tests/gpu"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1, done.stdout
    reason = "Paddle 3.3.1 is no build for GPUs; PyTorch 2.15.0+cpu is no build for GPUs; "
    assert f"No GPU was checked: {reason}" in done.stdout


def test_a_failing_driver_is_not_taken_for_a_machine_without_gpus(nvml):
    nvml(f"nvmlInitWithFlags={pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}")
    reason = "NVIDIA's driver fails (NVML: RM has detected an NVML/RM version mismatch.)"
    with pytest.raises(OSError, match=re.escape(reason)):
        gpus.visible_gpus()
    problem = f"gpus: {reason}; to run on the CPU: -p device cpu"
    for request in ({}, {"gpus": 8}):
        with pytest.raises(RequestError) as refused:
            plan("resnet50", {"input": "synthetic"} | request)
        assert problem in refused.value.problems
        assert "visible on this machine" not in str(refused.value)
    planned = plan("resnet50", {"input": "synthetic", "device": "cpu"})
    assert planned.config.device == "cpu"
    with pytest.raises(RequestError, match="gpus: NVIDIA's driver fails"):
        measure(resolve(FIXED | {"device": "gpu", "gpus": 1}), Protocol.named("quick"))


def test_a_lost_gpu_is_not_left_out(three_gpus):
    three_gpus(f"{OF_INDEX}.2={pynvml.NVML_ERROR_GPU_IS_LOST}")
    with pytest.raises(OSError, match="GPU is lost"):
        gpus.visible_gpus()


def test_a_forbidden_gpu_does_not_hide_the_others(three_gpus, tmp_path, monkeypatch):
    """CUDA numbers the GPUs of a container's device group from 0."""
    three_gpus(f"{OF_INDEX}.0={NO_PERMISSION}")
    assert gpus.visible_gpus() == ["0", "1"]
    assert gpus.visible_names() == ["GPU 1, 80 GiB", "GPU 2, 80 GiB"]
    assert gpus.unseen().forbidden == 1
    begin, sample = sampled(tmp_path)
    assert missing_of_gpus(begin) == {}
    assert sample["clock_mhz"] == {"gpu0": 1001, "gpu1": 1002}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpus.visible_names() == ["GPU 2, 80 GiB"]


def test_a_request_for_more_gpus_than_are_permitted_is_told_how_many_are_not(three_gpus):
    three_gpus(f"{OF_INDEX}.0={NO_PERMISSION}", f"{OF_INDEX}.2={NO_PERMISSION}")
    with pytest.raises(RequestError) as refused:
        plan("resnet50", {"input": "synthetic", "gpus": 3})
    text = "\n".join(refused.value.problems)
    assert "gpus: 3 requested; visible on this machine: 1 GPU." in text
    assert "gpus: this process has no permission to use 2 GPUs of this machine" in text


@pytest.mark.parametrize(("variable", "hidden"), [("", "3 GPUs"), ("1,2", "1 GPU")])
def test_a_request_for_more_gpus_than_the_variable_leaves_is_told_how_many_it_hides(
    three_gpus, gpu_build, monkeypatch, variable, hidden
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with pytest.raises(RequestError) as refused:
        plan("resnet50", {"input": "synthetic", "gpus": 3})
    _number, cause = refused.value.problems
    shown = variable or "''"
    assert cause == (
        f"gpus: CUDA_VISIBLE_DEVICES={shown} hides {hidden} of this machine; unset it, or ask "
        "the scheduler that set it for more"
    )


def test_a_mig_instance_has_its_own_readings(tmp_path, nvml, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-one")
    nvml("name.100=H100 MIG 1g.10gb", "total_gib.100=10")
    assert gpus.visible_names() == ["H100 MIG 1g.10gb, 10 GiB"]
    nvml(f"nvmlDeviceGetClockInfo.100={pynvml.NVML_ERROR_INVALID_ARGUMENT}")
    for figure in ("Temperature", "TotalEnergyConsumption", "CurrentClocksThrottleReasons"):
        nvml(f"nvmlDeviceGet{figure}.100={pynvml.NVML_ERROR_NOT_SUPPORTED}")
    begin, sample = sampled(tmp_path, gpus=1)
    assert begin["missing"]["gpu_clock"] == "NVML: Invalid Argument"
    assert begin["missing"]["gpu_energy"] == "NVML: Not Supported"
    assert sample["memory_used_bytes"] == {"gpu0": GIB} and "clock_mhz" not in sample


def test_a_rank_is_given_the_cores_near_its_gpu(nvml, cores):
    nvml("gpus=2", f"cores.0={cores[0]}", f"cores.1={cores[1]},127")
    assert gpus.near_cores(2) == [[cores[0]], [cores[1]]]


def test_a_rank_is_given_no_core_that_it_may_not_use(nvml, cores):
    os.sched_setaffinity(0, {cores[0]})
    nvml(f"cores={cores[0]},{cores[1]}")
    assert gpus.near_cores(1) == [[cores[0]]]
    # None of those near the GPU: all that are left.
    nvml(f"cores={cores[1]}")
    assert gpus.near_cores(1) == [[cores[0]]]


def test_a_rank_has_all_its_cores_if_none_is_known_to_be_near(nvml):
    nvml(f"nvmlDeviceGetCpuAffinity={pynvml.NVML_ERROR_NOT_SUPPORTED}")
    assert gpus.near_cores(1) == []


def test_gpu_samples_have_clock_temperature_energy_and_throttling(tmp_path, nvml):
    nvml("millijoules.0=5500", "millijoules.1=5501", "throttled.0=1", "throttled.1=68")
    nvml("used_gib.0=2", "used_gib.1=3")
    begin, sample = sampled(tmp_path)
    assert missing_of_gpus(begin) == {}
    assert (begin["device"], begin["ranks"]) == ("gpu", 2)
    assert sample["clock_mhz"] == {"gpu0": 1000, "gpu1": 1001}
    assert sample["temperature_celsius"] == {"gpu0": 40, "gpu1": 41}
    assert sample["energy_joules"] == {"gpu0": 5.5, "gpu1": 5.501}
    assert sample["throttled"] == {"gpu0": [], "gpu1": ["power_cap", "hardware_thermal"]}
    assert sample["memory_used_bytes"] == {"gpu0": 2 * GIB, "gpu1": 3 * GIB}


@pytest.mark.parametrize(
    ("function", "code", "missing"),
    [
        (
            "nvmlDeviceGetTotalEnergyConsumption",
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            {"gpu_energy": "NVML: Not Supported"},
        ),
        (OF_INDEX, NO_PERMISSION, {"gpus": "NVML shows no GPU that this process may use"}),
    ],
)
def test_unsupported_gpu_readings_are_missing_with_nvmls_reason(
    tmp_path, nvml, function, code, missing
):
    nvml(f"{function}={code}")
    begin, sample = sampled(tmp_path)
    assert missing_of_gpus(begin) == missing
    assert sample["at"] > 0
    assert "energy_joules" not in sample
    assert ("clock_mhz" in sample) == ("gpu_energy" in missing)


@pytest.mark.parametrize(
    ("architecture", "runs", "does_not_run"),
    [
        ("sm_80", ["8.0", "8.6", "8.9"], ["7.5", "9.0", "12.0"]),
        ("sm_90a", ["9.0"], ["10.0", "12.0"]),
        ("sm_100f", ["10.0", "10.3"], ["12.0", "9.0"]),
        ("compute_90", ["9.0", "10.0", "12.0"], ["8.9"]),
    ],
)
def test_code_runs_on_the_compute_capabilities_of_cudas_rules(architecture, runs, does_not_run):
    assert all(gpus.runs_on(architecture, capability) for capability in runs)
    assert not any(gpus.runs_on(architecture, capability) for capability in does_not_run)


# GPUs for which the framework's build has no code

FOR_CUDA_12 = {"cuda_version": "12.6", "compiled_cuda_archs": "[70, 75, 80, 86, 90]"}


def refused_architecture(**request):
    """Return the problem of a GPU's architecture; empty if there is none."""
    config = resolve({"model": "resnet50", "input": "synthetic", "device": "gpu"} | request, 2)
    refused = [problem for problem in problems_here(config) if "has no code for" in problem]
    assert len(refused) <= 1
    return "".join(refused)


def test_paddle_without_code_for_a_gpu_is_refused_before_a_worker_crashes(nvml, monkeypatch):
    nvml("capability.1=12.0", "name.1=NVIDIA X", "total_gib.1=96")
    monkeypatch.setattr("perfkit.measuring.system.software.constants", lambda *_: FOR_CUDA_12)
    assert refused_architecture(gpus=1) == ""
    assert refused_architecture(gpus=2) == (
        "framework: this build of Paddle has no code for NVIDIA X, 96 GiB (compute capability "
        "12.0), only for sm_70, sm_75, sm_80, sm_86, sm_90. For a later GPU, install a later "
        "build, in an environment of its own: conda env create -f environment-cu13.yml; for an "
        "earlier one, a build for an older CUDA or an older version may have it; to run on the "
        "CPU: -p device cpu"
    )


@needs_frameworks
@pytest.mark.parametrize("listed", [["sm_80", "sm_90"], ["sm_80", "compute_90"]])
def test_pytorchs_own_list_of_architectures_decides(nvml, monkeypatch, listed):
    """PTX runs on later GPUs."""
    nvml("capability=10.0")
    monkeypatch.setattr(
        "perfkit.measuring.system.software.constants", lambda *_: {"cuda": "12.8"}
    )
    monkeypatch.setattr(
        "perfkit.measuring.system.devices.torch_architectures", lambda _interpreter: listed
    )
    problem = refused_architecture(framework="torch", gpus=1)
    if listed == ["sm_80", "sm_90"]:
        assert "its own: pip install -e '.[torch-cu13]'; for an earlier one" in problem
    else:
        assert problem == ""


@pytest.mark.usefixtures("processes")
def test_the_installed_frameworks_list_their_architectures():
    """Paddle's is a build for the CPU, whose list is empty, as that of PyTorch's would be."""
    assert devices.architectures("paddle", sys.executable) == []
    listed = devices.architectures("torch", sys.executable)
    is_cpu_build = version("torch").endswith("+cpu")
    assert (listed == []) == is_cpu_build
    assert all(name.startswith("sm_") for name in listed)
