"""The parameter `python`: workers in a different Python environment than the driver's."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version

import pytest

import perfkit
from perfkit.cli.frameworks_option import verified_configs
from perfkit.measuring.paths import ROOT
from perfkit.measuring.request import RequestError
from perfkit.measuring.system import software
from perfkit.measuring.system.software import Software
from perfkit.timing.failure import portable

BLOCKING = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError("blocked: " + name)

sys.meta_path.insert(0, Blocked())
import perfkit.timing.rank, perfkit.training.options, perfkit.inputs.synthetic
print("imported")
"""


def plan(**request):
    usual = {"device": "cpu", "input": "synthetic", "batch_size": 2, "image_size": 32}
    return perfkit.plan("resnet50", usual | request)


def problem(**request):
    """Return the only problem of a request that is refused."""
    with pytest.raises(RequestError) as refused:
        plan(**request)
    (sentence,) = refused.value.problems
    return sentence


def packages_for(model="resnet50", **request):
    """Return the words with which pip installs what an interpreter lacks."""
    usual = {} if model == "script" else {"input": "synthetic"}
    with pytest.raises(RequestError) as refused:
        perfkit.plan(model, usual | request)
    (problem,) = [each for each in refused.value.problems if each.startswith("python: ")]
    return problem.partition(" -m pip install ")[2]


@pytest.mark.usefixtures("processes")
def test_a_rank_needs_numpy_alone_besides_its_framework():
    blocked = packages_distributions().keys() - {"numpy", "perfkit"}
    assert {
        "pandas",
        "papermill",
        "pydantic",
        "scipy",
        "matplotlib",
        "psutil",
        "pynvml",
    } <= blocked
    command = [sys.executable, "-c", BLOCKING.format(blocked=blocked)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    printed = subprocess.check_output(command, text=True, env=environment)
    assert printed == "imported\n"


@pytest.mark.parametrize(
    ("framework", "packages"),
    [
        (
            "paddle",
            "--extra-index-url https://www.paddlepaddle.org.cn/packages/stable/cu126/ -e "
            "'.[gpu-cu12]'",
        ),
        ("torch", "-e '.[torch-cu12]'"),
    ],
)
def test_for_gpus_a_missing_framework_is_installed_as_a_build_for_gpus(
    new_environment, monkeypatch, framework, packages
):
    monkeypatch.chdir(ROOT)
    python = portable(new_environment(empty=True))
    request = {"framework": framework, "device": "gpu", "gpus": 8, "python": python}
    assert packages_for(**request) == packages
    monkeypatch.chdir("/")
    with pytest.raises(RequestError, match=re.escape(f"cd {ROOT} && {python} -m pip")):
        plan(**request)


@pytest.mark.parametrize(
    ("framework", "packages"),
    [
        (
            "paddle",
            "--extra-index-url https://www.paddlepaddle.org.cn/packages/stable/cu130/ -e "
            "'.[gpu-cu13]'",
        ),
        ("jax", "-e '.[jax-cu12]'"),
    ],
)
def test_for_a_blackwell_gpu_a_missing_framework_is_installed_as_a_build_that_has_its_code(
    new_environment, monkeypatch, nvml, framework, packages
):
    nvml("capability=12.0")
    monkeypatch.chdir(ROOT)
    python = portable(new_environment(empty=True))
    request = {"framework": framework, "device": "gpu", "gpus": 1, "python": python}
    assert packages_for(**request) == packages


@pytest.mark.parametrize(
    ("framework", "package"),
    [
        (
            "paddle",
            "--extra-index-url https://www.paddlepaddle.org.cn/packages/stable/cu126/ -c "
            "constraints.txt paddlepaddle-gpu",
        ),
        ("jax", "-c constraints.txt 'jax[cuda12]'"),
    ],
)
def test_a_script_on_a_gpu_needs_the_framework_alone_and_not_perfkit_with_its_packages(
    new_environment, monkeypatch, nvml, tmp_path, framework, package
):
    nvml("capability=9.0")
    monkeypatch.chdir(ROOT)
    script = tmp_path / "train.py"
    script.write_text(f"import {framework}\nimport perfkit\n")
    python = portable(new_environment(empty=True))
    request = {"script": str(script), "device": "gpu", "gpus": 1, "python": python}
    assert packages_for("script", **request) == package


@pytest.mark.parametrize(
    ("capability", "package"),
    [("9.0", "nvidia-dali-cuda120>=2,<2.3"), ("12.0", "nvidia-dali-cuda130>=2,<2.3")],
)
def test_for_gpus_a_missing_dali_is_that_of_the_extra_with_its_bounds(
    monkeypatch, nvml, capability, package
):
    nvml(f"capability={capability}")
    monkeypatch.setattr(
        "perfkit.measuring.request.requirements.software_for",
        lambda _config: Software("3.12.1", {}, ["nvidia.dali"]),
    )
    request = {"framework": "torch", "device": "gpu", "gpus": 1, "python": sys.executable}
    assert shlex.split(packages_for(**request, input="dali")) == [package]
    assert f'"{package}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.usefixtures("processes")
def test_a_path_that_is_no_interpreter_is_rejected_and_not_run(tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    assert "is not a Python interpreter; use one such as .venv" in problem(python=str(program))
    assert "is not a Python interpreter" in problem(python=str(tmp_path))
    assert not (tmp_path / "started").exists()
    assert "No such file" in problem(python=str(tmp_path / "bin" / "python"))


@pytest.mark.usefixtures("processes")
def test_an_old_interpreter_is_rejected_with_its_version(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.version_info, sys.version = (3, 6, 9), '3.6.9 (old)'\n"
    )
    old = tmp_path / "python3.6"
    old.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    old.chmod(0o755)
    expected = f"python: {portable(str(old))}: Python 3.6.9; needs 3.11 or later"
    assert problem(python=str(old)) == expected
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">={}.{}".format(*software.OLDEST)


def test_missing_packages_are_listed_with_the_install_command(new_environment):
    python = portable(new_environment(empty=True))
    with pytest.raises(RequestError) as refused:
        plan(python=python, input="dataloader", data_dir=str(ROOT))
    *_others, problem = refused.value.problems
    assert problem == (
        f"python: {python} has no paddle, numpy, PIL, h5py; to install: {python} -m pip "
        "install -c constraints.txt paddlepaddle numpy pillow h5py"
    )


def test_a_verification_may_set_an_environment_per_framework(new_environment):
    python = new_environment()
    configs = verified_configs("resnet50", f"paddle,paddle:{python}", {})
    assert [config.interpreter for config in configs] == [sys.executable, python]
    with pytest.raises(RequestError, match="python: set it by --frameworks"):
        verified_configs("resnet50", "paddle,torch", {"python": python})


@pytest.mark.slow
def test_a_measurement_records_the_versions_of_its_workers(new_environment, measure):
    python = new_environment(h5py="0.0.1")
    result = measure(python=python, input="synthetic").result
    assert result.status == "complete"
    assert result.config.python == portable(python)
    assert result.fact("h5py") == "0.0.1"
    assert result.fact("paddle") == version("paddlepaddle")
