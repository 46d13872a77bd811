"""The parameter `python`: workers in a different Python environment than the driver's."""

import os
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


def test_missing_packages_are_listed(new_environment):
    python = portable(new_environment(empty=True))
    with pytest.raises(RequestError) as refused:
        plan(python=python, input="dataloader", data_dir=str(ROOT))
    *_others, problem = refused.value.problems
    assert problem == f"python: {python} has no paddle, numpy, PIL, h5py; install them there"


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
