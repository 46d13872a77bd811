"""How the ranks of a script are started: command and environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from made.results import script_config

from perfkit.measuring.driver.rank_job import rank_command
from perfkit.measuring.driver.settings import rank_environment
from perfkit.measuring.driver.workers import launcher_command
from perfkit.training.frameworks import NodeRank

LABELS = ["GPU-a", "GPU-b", "GPU-c"]


def config(**changes):
    values = {
        "script": "/scripts/train.py",
        "arguments": "--name 'two words' --lr 0.1",
        "framework": "torch",
        "device": "cpu",
        "gpus": 0,
        "processes": 1,
        "launcher": "local",
        "script_sha256": "0" * 64,
        "modules": ["model"],
    }
    return script_config(**values | changes)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Returns the environment variables that a script's ranks have more than this process."""
    monkeypatch.setattr("os.environ", {"HOME": "/root"})
    monkeypatch.setattr("perfkit.measuring.driver.settings.visible_devices", lambda *_: LABELS)

    def added(place=None, **changes):
        scratch = tmp_path / str(len([*tmp_path.iterdir()]))
        scratch.mkdir()
        variables = rank_environment(config(**changes), place or NodeRank(), scratch)
        assert variables["HOME"] == "/root"
        assert variables.pop("PYTHONPATH") == str(scratch / "python")
        assert variables.pop("PYTHONUNBUFFERED") == "1"
        return dict(variables.items() - os.environ.items())

    return added


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_on_a_cpu_a_script_gets_its_threads_and_nothing_else(environment, framework):
    assert environment(framework=framework).keys() == {"OMP_NUM_THREADS"}
    assert environment(framework=framework, cpu_tuning=False) == {}


def test_on_a_cpu_a_rank_sees_no_gpu():
    words = [sys.executable, "-m", "perfkit.timing.rank", "JOB", "/scripts/train.py"]
    words += ["--name", "two words", "--lr", "0.1"]
    on_cpu = rank_command(config(), "measure", Path("JOB"))
    assert on_cpu == ["env", "CUDA_VISIBLE_DEVICES=", *words]
    on_gpu = rank_command(config(device="gpu", gpus=1), "measure", Path("JOB"))
    assert on_gpu == words


@pytest.mark.parametrize("framework", ["torch", "paddle", "jax"])
def test_on_gpus_a_script_sees_as_many_as_it_was_given_and_no_setting_of_numerics(
    environment, framework
):
    variables = environment(framework=framework, device="gpu", gpus=2)
    assert variables == {
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


@pytest.mark.usefixtures("processes")
def test_an_interpreter_finds_perfkit_alone_after_the_users_own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    variables = rank_environment(config(), NodeRank(), tmp_path)
    first, last = variables["PYTHONPATH"].split(os.pathsep)
    assert first == "/mine"
    assert [path.name for path in Path(last).iterdir()] == ["perfkit"]
    code = "import perfkit, sys; print(perfkit.__file__, [*sys.modules])"
    code = f"import sys; sys.path.append({last!r}); {code}"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{last}/perfkit/__init__.py ")
    assert "pydantic" not in done.stdout


def test_a_single_rank_starts_as_by_python_and_several_by_the_launcher():
    worker = ["python", "-m", "perfkit.timing.rank", "JOB", "train.py"]
    alone = launcher_command(config(), NodeRank(), Path("/logs"), "job", worker)
    assert alone == worker
    several = launcher_command(config(processes=2), NodeRank(), Path("/logs"), "job", worker)
    assert several[1:3] == ["-m", "torch.distributed.run"]
    assert several[-5:] == worker
