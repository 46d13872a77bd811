"""Requests to measure a script of the user's: what is read of it, and the errors."""

import json
import shlex
from pathlib import Path

import pytest
from conftest import cli
from pydantic import ValidationError

import perfkit
from perfkit.cli.notebook import model_notebook
from perfkit.core.command import run_command
from perfkit.core.config import Config
from perfkit.core.parameters import fields_of, parameters
from perfkit.core.paths import ROOT
from perfkit.core.request import RequestError
from perfkit.core.request.plan import plan
from perfkit.core.request.requirements import software_for
from perfkit.core.request.resolve import resolve
from perfkit.core.request.script import read_script, script_digest
from perfkit.core.results.identity import measurement_id
from perfkit.core.results.schema import SCHEMA_VERSION, Result, Throughput
from perfkit.core.results.told import Told
from perfkit.core.script_config import NotBuiltInError, ScriptConfig
from perfkit.core.system.software import Software
from perfkit.core.work import work_of
from perfkit.sweep.jobs import read_jobs
from perfkit.sweep.sweep_file import SweepError

TRAIN = "import torch\nimport perfkit\n"


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.setattr("perfkit.core.frameworks.facts.visible_gpus", list)


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


def told(**changes):
    values = {"samples_per_step": 64, "unit": "images", "framework": "torch", "device": "cpu"}
    values |= {"step_clock": "host", "counts_data_wait": False}
    return Told(**values | changes)


def test_a_script_is_planned_with_the_framework_that_it_imports(folder):
    config = planned()
    assert (config.framework, config.device, config.ranks) == ("torch", "cpu", 1)
    assert config.script_file == folder / "train.py"
    assert config.file_name == "train.py"
    assert config.modules == []


def test_relative_paths_of_a_script_start_in_the_working_directory(folder):
    config = planned(python="env/bin/python")
    assert config.script_file == folder / "train.py"
    assert config.outputs_dir == str(folder / "outputs")
    assert config.interpreter == str(folder / "env/bin/python")


def test_paths_within_the_checkout_are_stored_without_its_place(monkeypatch):
    monkeypatch.chdir(ROOT / "tests")
    config = planned(script="fake_trainer.py", framework="torch")
    assert (config.script, config.outputs_dir) == ("tests/fake_trainer.py", "outputs")


@pytest.mark.parametrize(
    ("imports", "frameworks"),
    [
        ("import torch.nn as nn", ["torch"]),
        ("def main():\n    from paddle.io import DataLoader", ["paddle"]),
        ("import flax.linen", ["jax"]),
        ("import jax, optax", ["jax"]),
        ("import transformers", ["torch"]),
        ("import transformers\nimport jax", ["jax"]),
        ("import keras", ["tensorflow"]),
        ("import keras, torch", ["torch"]),
        ("from mxnet import gluon", ["mxnet"]),
        ("import torch, tensorflow", ["torch", "tensorflow"]),
        ("import numpy\nimport torchmetrics_like", []),
        ("from . import torch", []),
    ],
)
def test_the_framework_is_read_from_the_imports(folder, imports, frameworks):
    write("train.py", imports)
    assert read_script(folder / "train.py").frameworks == frameworks


def test_a_framework_that_only_a_local_module_imports_is_recognized(folder):
    write("train.py", "from lib.net import Net")
    write("lib/net.py", "import paddle")
    assert planned().framework == "paddle"


def test_a_local_module_with_the_name_of_a_framework_is_not_the_framework(folder):
    write("train.py", "import torch, paddle")
    write("torch.py", "")
    assert read_script(folder / "train.py").frameworks == ["paddle"]


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
    write("net.py", "width = 1")
    assert script_digest(folder / "train.py") == before
    write("train.py", "import torch\nimport net\n")
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
    config = planned(arguments="--name 'a b'   --lr \"0.1\"")
    assert config.arguments == "--name 'a b' --lr 0.1"
    assert config.argument_list == ["--name", "a b", "--lr", "0.1"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, "script: names no training script: -p script train.py"),
        ({"script": "trian.py"}, "No such file or directory; did you mean 'train.py'?"),
        ({"script": "run.sh"}, "run.sh is no Python script; name the file that trains"),
        ({"script": "wrong.py"}, "wrong.py, line 2: '(' was never closed (as Python 3."),
        ({"script": "train.py", "arguments": "'a"}, "No closing quotation"),
        ({"script": "train.py", "arguments": "'a\nb'"}, "a line break or another character"),
        ({"script": "train.py", "arguments": 5}, "(for papermill: -r arguments 5)"),
        (
            {"script": "train.py", "arguments": ["--lr", 0.1, "--name", "a b"]},
            """(for papermill: -r arguments '--lr 0.1 --name '"'"'a b'"'"'')""",
        ),
        ({"script": "train.py", "framework": "tourch"}, "did you mean 'torch'?"),
        ({"script": "train.py", "batch_size": 8}, "batch_size: only for built-in models"),
        ({"script": "train.py", "batchsize": 8}, "batch_size is only for built-in models; a"),
        ({"script": "train.py", "precision": "bf16"}, "precision: only for built-in models"),
        ({"script": "train.py", "gpus": 2}, "gpus: no effect with device=cpu; for several"),
        ({"script": "train.py", "hosts": "a,b"}, "hosts: no effect with launcher=local"),
        ({"script": "train.py", "nodes": 2, "launcher": "local"}, "allowed: srun, ssh"),
        (
            {"script": "train.py", "framework": "mxnet"},
            "framework: 'mxnet' is not for a script; allowed: torch, paddle, jax, tensorflow",
        ),
    ],
)
def test_an_invalid_request_for_a_script_says_what_to_type(folder, request_, expected):
    write("lib/net.py", "")
    write("run.sh", "")
    write("wrong.py", "import torch\nprint(1")
    (problem,) = problems(**request_)
    assert expected in problem


def test_all_errors_of_a_script_and_its_parameters_are_reported_together(folder):
    names = [problem.partition(":")[0] for problem in problems(script="absent.py", nodes=0)]
    assert names == ["nodes", "script"]


def test_a_model_has_no_script_and_no_arguments():
    with pytest.raises(RequestError, match="arguments: only for a script"):
        plan("resnet50", {"input": "synthetic", "arguments": "--lr 0.1"})


def test_a_script_has_the_parameters_of_a_run_and_of_the_protocol():
    names = [*parameters(ScriptConfig)]
    assert names[:4] == ["script", "arguments", "framework", "device"]
    assert "repeats" in names and "batch_size" not in names
    assert parameters(ScriptConfig)["framework"][0] is None
    shared = {*fields_of(ScriptConfig)} - {"script", "arguments"}
    assert shared < {*fields_of(Config)}


def test_the_work_of_a_script_is_what_it_told_the_timer(folder):
    config = planned()
    work = work_of(config, told(flops_per_sample=3e9, parameters=10))
    assert (work.name, work.kind, work.unit) == ("train.py", "script", "images/s")
    assert (work.samples_per_step, work.flops_per_unit, work.parameters) == (64, 3e9, 10)
    assert work_of(config).samples_per_step is None


def test_the_work_of_a_model_is_that_of_its_configuration():
    request = {"model": "gpt", "device": "cpu", "batch_size": 2, "accumulate": 3}
    work = work_of(resolve(request))
    assert (work.name, work.kind, work.unit) == ("gpt", "sequence", "tokens/s")
    assert (work.units_per_sample, work.samples_per_step) == (128, 6)
    assert work.parameters and work.flops_per_unit


@pytest.mark.parametrize("unit", ["", "1st", "a" * 29, "<b>", "a\nb", "a/s", "\u202eabc"])
def test_the_unit_of_a_script_is_a_short_name(unit):
    with pytest.raises(ValidationError):
        told(unit=unit)
    with pytest.raises(ValidationError):
        throughput(f"{unit}/s")


def throughput(unit):
    return Throughput(
        value=128.0,
        unit=unit,
        statistic="median",
        interval=None,
        interval_level=None,
        n=1,
        steps_per_second=2.0,
    )


def result_of(config, **changes):
    """Return a result of a script with one repeat of five steps in 2.5 seconds."""
    rank = {"rank": 0, "samples": 320, "window_seconds": 2.5, "data_wait_seconds": 0.0}
    numbers = {"throughput": 128.0, "steps_per_second": 2.0, "ranks": [rank]}
    values = {
        "schema_version": SCHEMA_VERSION,
        "id": "made",
        "created": "2026-01-01T00:00:00+00:00",
        "status": "complete",
        "config": config,
        "protocol": perfkit.Protocol.named("quick", repeats=1),
        "environment": {},
        "told": told(),
        "repeats": [{"index": 1, "status": "complete", **numbers}],
        "throughput": throughput("images/s"),
    }
    return Result.model_validate(values | changes)


def test_a_result_of_a_script_is_read_as_it_was_written(folder):
    result = result_of(planned(arguments="--lr 0.1"), told=told(parameters=10**16))
    again = Result.model_validate_json(result.model_dump_json())
    assert again == result
    assert isinstance(again.config, ScriptConfig)
    assert again.work.unit == "images/s"
    assert again.global_batch == 64
    assert again.parameters["arguments"] == "--lr 0.1"


def test_only_a_model_has_the_configuration_of_one(folder):
    with pytest.raises(NotBuiltInError, match="is a script, not a built-in model"):
        _ = result_of(planned()).built_in


def test_a_script_that_does_not_import_the_timer_is_noticed(folder):
    request = {"script": "train.py", "device": "cpu"}
    assert plan("script", request, ("machine",)).notices == []
    write("train.py", "import torch")
    (notice,) = plan("script", request, ("machine",)).notices
    assert "train.py and its modules do not import perfkit" in notice.text()
    write("train.py", "import torch, timing")
    write("timing.py", "from perfkit import StepTimer")
    assert plan("script", request, ("machine",)).notices == []


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_interpreter_of_a_script_needs_the_framework_alone(folder, device, monkeypatch):
    asked = []

    def read_software(_interpreter, _versions, modules):
        asked.extend(modules)
        return Software("3.11", {}, [])

    monkeypatch.setattr("perfkit.core.request.requirements.read_software", read_software)
    software_for(planned(device=device, gpus=2 if device == "gpu" else None))
    assert asked == ["torch"]


# The command line.


@pytest.fixture
def without_framework(monkeypatch):
    """Machines of these tests need not have the framework of a script."""
    monkeypatch.setattr("perfkit.core.request.checks.lacking", lambda _config, _gpus: [])
    monkeypatch.setattr("perfkit.core.driver.doctor._software", lambda _config: [])


def doctor_command(*words):
    """Return the command that `perfkit doctor` says to type, as words."""
    done = cli("doctor", "train.py", "-p", "device=cpu", *words)
    assert done.exit_code == 0, done.output
    last_line = done.stdout.splitlines()[-1]
    return shlex.split(last_line.removeprefix("Ready. To measure: "))


@pytest.mark.parametrize(
    "words", [["--lr", "0.1"], ["--"], ["-p", "seed=1"], ["a b", "c'd", 'e"f', "$HOME", ""]]
)
def test_what_follows_two_dashes_is_for_the_script_exactly(folder, without_framework, words):
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


def test_a_script_in_a_folder_of_the_checkout_is_found_from_there(
    monkeypatch, without_framework
):
    monkeypatch.chdir(ROOT / "tests")
    options = ["-p", "device=cpu", "-p", "framework=torch"]
    done = cli("doctor", "fake_trainer.py", *options)
    assert done.exit_code == 0, done.output
    assert f"perfkit run {ROOT / 'tests/fake_trainer.py'} -p device cpu" in done.stdout


def test_verify_says_that_it_can_not_look_into_a_script(folder):
    done = cli("verify", "train.py")
    assert done.exit_code == 2
    message = " ".join(done.stderr.split())
    assert "train.py: verify compares the frameworks' built-in models" in message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train.py --compile", "'--compile'.\nThe arguments of a script follow --"),
        ("train.py --compile", "after those of perfkit: -- --compile\n"),
        ("train.py fast", "(fast)\nThe arguments of a script follow --, after those"),
        ("train.py fast -- slow", "after those of perfkit: -- fast slow\n"),
        ("resnet50 -- --lr 1", "resnet50 takes no arguments after --; a script does\n"),
        ("train.py -p arguments a -- b", "both -p arguments and --; keep one\n"),
        ("train.py -p script=other.py", "both train.py and -p script; keep one\n"),
        ("resnet50 batch_size=4", "Parameters need -p: -p batch_size=4\n"),
    ],
)
def test_misplaced_arguments_of_a_script_are_refused(folder, words, expected):
    done = cli("run", *words.split())
    assert done.exit_code == 2
    assert expected in done.stderr


def test_a_misspelt_script_is_refused_with_the_nearest_one(folder):
    done = cli("run", "trian.py", "-p", "device=cpu")
    assert done.exit_code == 2
    assert "No such file or directory; did you mean 'train.py'?" in " ".join(
        done.stderr.split()
    )


def test_the_command_of_a_script_ends_with_its_arguments():
    values = {"script": "train.py", "gpus": 8, "arguments": "--name 'a b'"}
    words = run_command("script", values)
    assert words == ["perfkit", "run", "train.py", "-p", "gpus", "8", "--", "--name", "a b"]
    assert run_command("script", {"script": "train.py", "arguments": ""})[-1] == "train.py"
    assert values["script"] == "train.py"


def test_the_notebook_of_scripts_has_their_parameters_with_the_defaults():
    notebook = model_notebook("script")
    defaults = {name: default for name, (default, _) in parameters(ScriptConfig).items()}
    assert notebook.model == "script"
    assert notebook.values == defaults
    assert not notebook.is_own


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
    assert [job.plan.config.arguments for job in jobs] == ["", "--lr 0.1", "--fast"]
    script = str(folder / "train.py")
    assert jobs[1].words[:2] == ["run", script]
    assert jobs[1].words[-3:] == ["--", "--lr", "0.1"]
    assert str(folder / "outputs") in jobs[0].words
    assert jobs[0].sample_file is None


def test_a_script_in_the_place_of_a_parameters_file_is_refused_with_a_file_that_works(folder):
    with pytest.raises(SweepError) as refused:
        read_jobs(Path("train.py"), {})
    once, with_file, *lines = refused.value.problems
    assert once == (
        "train.py is a script, but a sweep takes a parameters file; to measure the script "
        "once: perfkit run train.py"
    )
    assert with_file == (
        "to sweep its arguments: perfkit sweep FILE.yaml, a file with lines such as"
    )
    # As indented by the command.
    file = folder / "sweep.yaml"
    file.write_text("".join(f"  {line}\n" for line in lines))
    jobs = read_jobs(file, {"device": "cpu"}, elsewhere=True)
    assert [job.plan.config.arguments for job in jobs] == ["--lr 0.1", "--lr 0.2"]
    assert {job.plan.config.file_name for job in jobs} == {"train.py"}


def test_a_sweep_measures_several_scripts(folder):
    write("other.py", TRAIN)
    matrix = {"script": ["train.py", "other.py"]}
    jobs = sweep_of(folder, parameters={"device": "cpu"}, matrix=matrix)
    assert [job.label for job in jobs] == ["script train.py", "script other.py"]
    assert [job.plan.config.file_name for job in jobs] == ["train.py", "other.py"]


def test_a_models_parameter_in_a_sweep_of_a_script_is_refused_with_its_line(folder):
    with pytest.raises(SweepError, match=r"sweep\.yaml:1: batch_size: only for"):
        sweep_of(folder, parameters=FIXED | {"batch_size": 4})


def test_a_job_of_a_script_runs_in_the_working_directory(folder):
    (job,) = sweep_of(folder, parameters=FIXED)
    assert job.working_folder == folder
