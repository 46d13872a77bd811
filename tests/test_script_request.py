"""Requests to measure a script of the user's: what is read of it, and the errors."""

import json
import shlex
from pathlib import Path

import pytest
from conftest import cli
from pydantic import ValidationError

import perfkit
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import plan
from perfkit.measuring.request.script import read_script, script_digest
from perfkit.measuring.results.effective import Told
from perfkit.measuring.results.identity import measurement_id
from perfkit.measuring.results.schema import Throughput
from perfkit.sweep.jobs import read_jobs

TRAIN = "import torch\nimport perfkit\n"


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", list)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, which has a script for PyTorch."""
    monkeypatch.chdir(tmp_path)
    write("train.py", TRAIN)
    return tmp_path


def write(name, text):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def planned(**request):
    """Return the configuration of a request that only this machine need not meet."""
    return plan(
        "script", {"script": "train.py", "device": "cpu"} | request, ("machine",)
    ).config


def problems(**request):
    with pytest.raises(RequestError) as refused:
        plan("script", {"device": "cpu"} | request, ("machine",))
    return refused.value.problems


def test_a_script_is_planned_with_the_framework_that_it_imports(folder):
    config = planned()
    assert (config.framework, config.device, config.ranks) == ("torch", "cpu", 1)
    assert config.work.name == "train.py"
    assert config.work.modules == []


def test_relative_paths_of_a_script_start_in_the_working_directory(folder):
    config = planned(python="env/bin/python")
    assert config.work.script_file == folder / "train.py"
    assert config.outputs_dir == str(folder / "outputs")
    assert config.interpreter == str(folder / "env/bin/python")


@pytest.mark.parametrize(
    ("imports", "frameworks"),
    [
        ("def main():\n    from paddle.io import DataLoader", ["paddle"]),
        ("import transformers", ["torch"]),
        ("import keras", ["tensorflow"]),
        ("import torch, tensorflow", ["torch", "tensorflow"]),
        ("import numpy\nimport torchmetrics_like", []),
    ],
)
def test_the_framework_is_read_from_the_imports(folder, imports, frameworks):
    write("train.py", imports)
    assert read_script(folder / "train.py").frameworks == frameworks


def test_a_framework_that_only_a_local_module_imports_is_recognized(folder):
    write("train.py", "from lib.net import Net")
    write("lib/net.py", "import paddle")
    assert planned().framework == "paddle"


def test_several_frameworks_or_none_are_refused_unless_one_is_named(folder):
    write("train.py", "import torch, jax")
    assert problems(script="train.py") == [
        "framework: train.py and its modules import torch, jax; name the one that trains: -p "
        "framework NAME"
    ]
    assert planned(framework="jax").framework == "jax"
    write("train.py", "import numpy")
    (problem,) = problems(script="train.py")
    assert "import none of torch, paddle, jax, tensorflow;" in problem
    assert problem.endswith("-p framework NAME")
    assert planned(framework="torch").framework == "torch"


def test_the_local_modules_are_found_at_any_depth_and_in_packages(folder):
    write("train.py", "import torch, other\nfrom lib import data, absent\nimport lib.deep.er")
    write("lib/__init__.py", "from .base import Base")
    write("lib/base.py", "import torch\nfrom . import sibling")
    write("lib/sibling.py", "import train")
    write("lib/data.py", "from .deep import er\nimport not_here")
    write("lib/deep/er.py", "from ..base import Base\nfrom ... import beyond")
    write("unused.py", "import paddle")
    content = read_script(folder / "train.py")
    assert content.modules == sorted(
        ["lib", "lib.base", "lib.data", "lib.deep.er", "lib.sibling", "train"]
    )
    assert content.frameworks == ["torch"]


def test_a_script_is_another_one_if_its_content_or_that_of_a_module_changes(folder):
    write("train.py", "import torch\nimport net")
    write("net.py", "width = 1")
    write("unused.py", "width = 1")
    before = script_digest(folder / "train.py")
    write("unused.py", "width = 2")
    assert script_digest(folder / "train.py") == before
    write("net.py", "width = 2")
    assert script_digest(folder / "train.py") != before


def identifier(config):
    return measurement_id(config, plan_protocol(), {}, None)


def plan_protocol():
    return perfkit.Protocol.named("quick")


def test_the_id_follows_from_name_content_and_arguments_but_not_from_the_path(folder):
    config = planned(label="first")
    first = identifier(config)
    assert first.startswith("train-torch-1x1-cpu-quick-first-")
    write("copy/train.py", TRAIN)
    assert identifier(planned(label="first", script="copy/train.py")) == first
    assert identifier(planned(label="first", arguments="--lr 0.1")) != first
    write("other.py", TRAIN)
    assert identifier(planned(label="first", script="other.py")).startswith("other-torch-")
    write("train.py", TRAIN + "pass\n")
    assert identifier(planned(label="first")) != first


def test_arguments_that_are_quoted_differently_are_the_same_work(folder):
    config = planned(arguments="--name 'a b'   --lr \"0.1\"\n")
    assert config.work.arguments == "--name 'a b' --lr 0.1"
    words = config.work.script_words(config)
    assert words[1:] == ["--name", "a b", "--lr", "0.1"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, "script: names no training script: -p script train.py"),
        ({"script": "trian.py"}, "No such file or directory; did you mean 'train.py'?"),
        ({"script": "wrong.py"}, "wrong.py, line 2: '(' was never closed (as Python 3."),
        ({"script": "train.py", "arguments": "'a"}, "No closing quotation"),
        ({"script": "train.py", "batch_size": 8}, "batch_size: only for built-in models"),
        (
            {"script": "train.py", "framework": "mxnet"},
            "framework: 'mxnet' is not for a script; allowed: torch, paddle, jax, tensorflow",
        ),
    ],
)
def test_an_invalid_request_for_a_script_says_what_to_type(folder, request_, expected):
    write("wrong.py", "import torch\nprint(1")
    (problem,) = problems(**request_)
    assert expected in problem


@pytest.mark.parametrize("unit", ["a" * 29, "<b>"])
def test_the_unit_of_a_script_is_a_short_name(unit):
    values = {"samples_per_step": 64, "framework": "torch", "device": "cpu"}
    values |= {"step_clock": "host", "counts_data_wait": False}
    with pytest.raises(ValidationError):
        Told(**values, unit=unit)
    rates = {"value": 128.0, "interval": None, "interval_level": None, "n": 1}
    with pytest.raises(ValidationError):
        Throughput(**rates, unit=f"{unit}/s", steps_per_second=2.0)


# The command line.


@pytest.fixture
def without_framework(monkeypatch):
    """Machines of these tests need not have the framework of a script."""
    monkeypatch.setattr("perfkit.measuring.request.checks.lacking", lambda _config: [])
    monkeypatch.setattr("perfkit.measuring.driver.doctor._software", lambda _config: [])


def doctor_command(*words):
    """Return the command that `perfkit doctor` says to type, as words."""
    done = cli("doctor", "train.py", "-p", "device=cpu", *words)
    assert done.exit_code == 0, done.output
    last_line = done.stdout.splitlines()[-1]
    return shlex.split(last_line.removeprefix("Ready. To measure: "))


def test_what_follows_two_dashes_is_for_the_script_exactly(folder, without_framework):
    words = ["-p", "seed=1", "a b", "c'd", 'e"f', "$HOME", ""]
    command = doctor_command("--", *words)
    assert command == [
        *("perfkit", "run", str(folder / "train.py"), "-p", "device", "cpu", "--"),
        *words,
    ]


def test_the_doctor_reads_the_script(folder, without_framework):
    write("train.py", "import torch, net")
    write("net.py", "")
    done = cli("doctor", "train.py", "-p", "device=cpu")
    lines = " ".join(done.stdout.split())
    assert "trains with PyTorch; local modules: net " in lines
    assert "timer: train.py and its modules do not import perfkit" in lines
    assert "Ready. To measure:" in lines


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train.py --compile", "'--compile'.\nThe arguments of a script follow --"),
        ("resnet50 -- --lr 1", "resnet50 takes no arguments after --; a script does\n"),
        ("resnet50 batch_size=4", "Parameters need -p: -p batch_size=4\n"),
    ],
)
def test_misplaced_arguments_of_a_script_are_refused(folder, words, expected):
    done = cli("run", *words.split())
    assert done.exit_code == 2
    assert expected in done.stderr


# Sweeps.


def sweep_of(folder, **content):
    path = folder / "sweep.yaml"
    path.write_text(json.dumps({"notebook": "script", "protocol": "quick", **content}))
    return read_jobs(path, {}, elsewhere=True)


FIXED = {"script": "train.py", "device": "cpu"}


def test_a_sweep_measures_a_script_with_each_of_its_arguments(folder):
    jobs = sweep_of(folder, parameters=FIXED, matrix={"arguments": ["", "--lr 0.1", "--fast"]})
    assert [job.label for job in jobs] == [
        "arguments ''",
        "arguments '--lr 0.1'",
        "arguments --fast",
    ]
    assert [job.plan.config.work.arguments for job in jobs] == ["", "--lr 0.1", "--fast"]
    script = str(folder / "train.py")
    assert jobs[1].words[:2] == ["run", script]
    assert jobs[1].words[-3:] == ["--", "--lr", "0.1"]
    assert str(folder / "outputs") in jobs[0].words
    assert jobs[0].working_folder == folder
