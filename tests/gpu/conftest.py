"""Fixtures of the GPU checks: which framework, and its answers from processes of their own.

A check needs pytest, NumPy, psutil, pydantic, nvidia-ml-py and one framework; one that needs
more is skipped with the name of what is missing. Without a GPU or a framework, the checks as a
whole fail, so that no machine is accepted on which nothing was checked.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import perfkit
from perfkit.measuring.driver.settings import rank_environment
from perfkit.measuring.paths import ROOT
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.system import gpus
from perfkit.measuring.system.software import find_version, installed_version
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

CHECKED = ("paddle", "torch", "jax")
DEVICE = Path(__file__).with_name("device.py")
SECONDS = 240
"""Limit for an answer: some compile, or fill the GPU's memory."""
FULL = {"batch_size": 64}
SMALL = {"batch_size": 8, "image_size": 64}
MODULES_OF_A_MEASUREMENT = ("filelock", "h5py", "PIL", "threadpoolctl")


def pytest_addoption(parser):
    parser.addoption(
        "--small", action="store_true", help="narrow models, for a device that is no GPU"
    )


def pytest_report_teststatus(report):
    """Show what a check has seen in its line."""
    seen = dict(report.user_properties).get("seen")
    if report.when == "call" and report.passed and seen:
        return "passed", ".", f"PASSED: {seen}"
    return None


@pytest.fixture
def say(record_property):
    """Adds what the check has seen to its line."""
    return lambda text: record_property("seen", text)


@pytest.fixture(scope="session", autouse=True)
def visible_gpus():
    """The labels of the visible GPUs. If nothing can be checked, this ends the checks, which
    have failed then."""
    try:
        labels = gpus.visible_gpus()
    except OSError as error:
        nothing_was_checked(str(error))
    if reason := gpus.unseen().error:
        nothing_was_checked(f"no NVIDIA driver answers (NVML: {reason})")
    if not labels:
        nothing_was_checked("NVML shows no GPU that this process may use")
    if all(map(absence, CHECKED)):
        nothing_was_checked("; ".join(map(absence, CHECKED)))
    return labels


def nothing_was_checked(reason):
    pytest.exit(f"No GPU was checked: {reason}", returncode=1)


def absence(name):
    """Return why a framework can't be checked; None if it is installed as a build for GPUs."""
    facts = FRAMEWORKS[name]
    if not installed_version(facts):
        return f"{facts.display_name} is not installed"
    if not find_version(*facts.versions[facts.gpu_fact]):
        return f"{facts.display_name} {installed_version(facts)} is no build for GPUs"
    return None


@pytest.fixture(scope="session", params=["paddle", "torch"])
def framework(request, visible_gpus):
    """The name of each framework that is installed as a build for GPUs."""
    if reason := absence(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="session")
def small(request):
    return request.config.getoption("--small")


@pytest.fixture(scope="session")
def values(framework, small):
    """Parameters of one GPU with these changes."""

    def merged(**changes):
        given = {"framework": framework, "device": "gpu", "gpus": 1, "input": "synthetic"}
        sizes = dict(SMALL if small else FULL)
        if changes.get("model") == "bert":
            sizes.pop("image_size", None)
        return given | sizes | changes

    return merged


@pytest.fixture(scope="session")
def ask(values, small, tmp_path_factory):
    """Calls a function of device.py in a process of its own, so that neither its crash nor its
    settings reach other checks; asks once for each configuration."""
    answers = {}

    def answered(function, **changes):
        key = json.dumps([function, changes], sort_keys=True)
        if key not in answers:
            config = resolve({"model": "resnet50"} | values(**changes))
            scratch = tmp_path_factory.mktemp("scratch")
            environment = rank_environment(config, NodeRank(), scratch)
            paths = [str(ROOT), str(ROOT / "tests"), environment.get("PYTHONPATH", "")]
            _module, _name, *words = config.work.script_words(config)
            question = [function, json.dumps(small), config.framework, *words]
            done = subprocess.run(
                [sys.executable, DEVICE, *question],
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
                env=environment | {"PYTHONPATH": ":".join(filter(None, paths))},
            )
            assert done.returncode == 0, done.stderr[-2000:]
            answers[key] = json.loads(done.stdout.splitlines()[-1])
        return answers[key]

    return answered


@pytest.fixture
def measure(values, tmp_path):
    """Measures ResNet-50 with these changes, as `perfkit run` does, and returns the result."""
    for module in MODULES_OF_A_MEASUREMENT:
        pytest.importorskip(module, reason=f"a measurement needs {module}")

    def measured(**changes):
        planned = perfkit.plan("resnet50", values(outputs_dir=str(tmp_path), **changes))
        return perfkit.measure(planned.config, planned.protocol).result

    return measured
