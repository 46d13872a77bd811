"""Sweeps: parameters files run here and on Slurm, resumed after failures."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from conftest import SMALL, cli
from fake_trainer import planted
from filelock import FileLock
from made.clusters import (
    skip_if,
    slurm_cluster,
    slurm_missing,
    wait_for,
)
from made.results import finished_repeats, keep, made_result
from PIL import Image

from perfkit.inputs.samples import picture
from perfkit.measuring.driver.measure import measurement_folder
from perfkit.measuring.paths import ROOT
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.results.repeat import Repeat
from perfkit.measuring.results.schema import InputData
from perfkit.sweep import slurm, status
from perfkit.sweep.jobs import read_jobs
from perfkit.sweep.matrix import read_sweep
from perfkit.sweep.run import run_sweep
from perfkit.sweep.slurm import SlurmSweep, command_output, sbatch_words, slurm_name
from perfkit.sweep.status import StoredResults
from perfkit.sweep.sweep_file import SweepError

COMMAND = [str(Path(sys.executable).parent / "perfkit"), "sweep"]
FAKE = {"input": "synthetic", "repeats": 2, "measured_steps": 4}
"""Fixed parameters of sweeps that use the fake trainer."""


@pytest.fixture
def sweep_file(samples, tmp_path):
    """Return a function that writes a sweep of small configurations."""

    def write(matrix, name="small", exclude=(), **parameters):
        places = {"data_dir": str(samples), "outputs_dir": str(tmp_path / "outputs")}
        fixed = SMALL | places | parameters
        for parameter in matrix:
            fixed.pop(parameter, None)
        content = {"notebook": "resnet50", "protocol": "quick", "parameters": fixed}
        content |= {"matrix": matrix, "exclude": list(exclude)}
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(content, indent=1))
        return path

    return write


@pytest.fixture
def fake_trainer(plant):
    plant(planted(0.5))


@pytest.fixture
def sweep(processes):
    """Return a function that runs `perfkit sweep` to its end."""

    def run(*words, **settings):
        command = [*COMMAND, *map(str, words)]
        settings |= {"timeout": 170, "text": True, "capture_output": True}
        return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, **settings)

    return run


def dry_run(file):
    done = cli("sweep", file, "--dry-run")
    assert done.exit_code == 0, done.stderr
    return done.stdout


def results(outputs):
    """Return folder name -> stored result."""
    stored = {}
    for path in outputs.glob("*/result.json"):
        stored[path.parent.name] = json.loads(path.read_text())
    return stored


def statuses_by(outputs, *parameters):
    """Return the values of these parameters -> status of the measurement."""
    statuses = {}
    for result in results(outputs).values():
        config = result["config"]
        every = config | config["work"]
        statuses[tuple(every[name] for name in parameters)] = result["status"]
    return statuses


def count_of_repeats(raw_files):
    """Return the number of repeats that have these raw files."""
    return len({Path(file).parent for file in raw_files})


def repeats_of(outputs):
    return sum(len(result["repeats"]) for result in results(outputs).values())


@pytest.mark.slow
def test_a_sweep_measures_every_configuration_and_writes_the_site(sweep, sweep_file, tmp_path):
    file = sweep_file({"input": ["dali", "synthetic"]})
    done = sweep(file)
    assert done.returncode == 0, done.stderr
    outputs = tmp_path / "outputs"
    assert statuses_by(outputs, "input") == {
        ("dali",): "complete",
        ("synthetic",): "complete",
    }
    assert done.stdout.strip() == str(outputs / "index.html")
    assert (outputs / "summary" / "report.html").exists()
    for name in results(outputs):
        assert (outputs / name / "report.html").exists()
        assert name in (outputs / "index.html").read_text()
    assert "2/2 done" in done.stderr


def damaged_data(folder):
    """Write data with an image whose end is missing, which no check before the run finds."""
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "one.jpeg").write_bytes(picture(0)[:30_000])
    (folder / "train_list.txt").write_text("train/one.jpeg 0\n" * 4)


@pytest.mark.slow
def test_a_failed_configuration_is_reported_with_its_command_and_retried(
    sweep, sweep_file, tmp_path, fake_trainer
):
    data, outputs = tmp_path / "data", tmp_path / "outputs"
    damaged_data(data)
    file = sweep_file({"input": ["dali", "synthetic"]}, **FAKE, data_dir=str(data))
    done = sweep(file)
    assert done.returncode == 1
    assert statuses_by(outputs, "input") == {("dali",): "failed", ("synthetic",): "complete"}
    assert "1 of 2 failed" in done.stderr
    assert "input dali: bad_input: " in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "perfkit run resnet50" in line]
    assert "-p input dali" in line
    assert f"-p data_dir {data}" in line
    assert (outputs / "summary" / "report.html").exists()
    planned = dry_run(file)
    assert "run again, 2 repeats" in planned
    assert "bad_input: " in planned
    before = finished_repeats(outputs)
    assert count_of_repeats(before) == 2
    Image.new("RGB", (64, 64)).save(data / "train" / "one.jpeg")
    done = sweep(file)
    assert done.returncode == 0, done.stderr
    after = finished_repeats(outputs)
    assert count_of_repeats(after) == 4
    assert before.items() <= after.items()


@pytest.mark.slow
def test_a_killed_sweep_resumes_without_rerunning_finished_repeats(
    sweep, sweep_file, tmp_path, fake_trainer
):
    """`make kills` is the long form, with real training and 50 kills."""
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    outputs = tmp_path / "outputs"
    file = sweep_file({"batch_size": [1, 2, 3]}, **FAKE)
    finished = {}
    for kill in range(3):
        before = repeats_of(outputs)
        process = subprocess.Popen([*COMMAND, str(file)], stderr=subprocess.DEVNULL)
        if kill:  # the first one may come before a repeat has finished
            wait_for(lambda before=before: repeats_of(outputs) > before)
        time.sleep(chance.uniform(0.2, 2))
        process.kill()
        process.wait()
        earlier, finished = finished, finished_repeats(outputs)
        assert earlier.items() <= finished.items()
    assert finished
    done = sweep(file)
    assert done.returncode == 0, done.stderr
    assert finished.items() <= finished_repeats(outputs).items()
    complete = dict.fromkeys([(1,), (2,), (3,)], "complete")
    assert statuses_by(outputs, "batch_size") == complete


@pytest.mark.slow
def test_an_interrupted_sweep_leaves_no_process_and_can_be_resumed(
    sweep_file, tmp_path, fake_trainer, worker_processes
):
    file = sweep_file({"batch_size": [1]}, **FAKE | {"repeats": 50})
    # A background shell ignores interrupts, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([*COMMAND, str(file)], stderr=subprocess.PIPE, text=True)
    while not list((tmp_path / "outputs").glob("*/repeats/2/*.jsonl")):
        time.sleep(0.1)
        assert process.poll() is None, process.communicate()
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _out, output = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command continues" in output
    _gone, alive = psutil.wait_procs(children, 10)
    assert alive == []
    wait_for(lambda: not worker_processes(), 10)
    finished = finished_repeats(tmp_path / "outputs")
    left = 50 - count_of_repeats(finished)
    assert finished
    assert f", {left} repeats" in dry_run(file)


@pytest.mark.slow
def test_a_sweep_imports_no_module_from_its_folder(sweep, sweep_file, tmp_path, fake_trainer):
    folder = tmp_path / "outputs" / "sweeps"
    folder.mkdir(parents=True)
    for name in ("psutil", "filelock", "perfkit", "papermill", "resource"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} from elsewhere')\n")
    done = sweep(sweep_file({}, **FAKE), cwd=folder)
    assert done.returncode == 0, done.stderr
    (result,) = results(tmp_path / "outputs").values()
    assert result["status"] == "complete"


def test_a_dry_run_without_gpus_lists_every_configuration_and_the_reasons(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", list)
    file = ROOT / "parameters" / "fleetx-resnet50.yaml"
    configurations, _problems = read_sweep(file)
    count = len(configurations)
    # Whether the checkout has sample data must not matter.
    folders = ["-p", f"outputs_dir={tmp_path}", "-p", f"data_dir={tmp_path}"]
    done = cli("sweep", file, "-n", *folders)
    assert done.exit_code == 0, done.stderr
    assert len(re.findall(r"skipped \(\d(?:, \d)*\)", done.stdout)) == count
    assert done.stdout.count("gpus: 8 requested") == 1
    _plan, _separator, reasons = done.stdout.partition("can't run")
    # A path is not broken.
    lines = [line for line in reasons.splitlines() if str(tmp_path) not in line]
    assert lines and all(len(line) <= 80 for line in lines)
    assert f"{count} of {count} can't run on this machine:" in done.stdout
    text = " ".join(done.stdout.split())
    assert "gpus: 8 requested; visible on this machine: 0 GPUs" in text
    assert "launcher: srun needs a Slurm allocation" in text
    refused = cli("sweep", file, *folders)
    assert refused.exit_code == 2
    assert "nothing can run here: gpus: 8 requested" in " ".join(refused.stderr.split())


@pytest.mark.slow
def test_what_cannot_run_here_is_skipped_with_its_reason(
    sweep, sweep_file, tmp_path, fake_trainer, monkeypatch
):
    """A sweep with skipped configurations exits with 1: not all of the file is measured."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    file = sweep_file(
        {"device": ["cpu", "gpu"], "nodes": [1, 4], "python": [None, "absent"]}, **FAKE
    )
    done = sweep(file)
    assert done.returncode == 1, done.stderr
    assert "7 of 8 can't run here and were skipped:" in done.stderr
    text = " ".join(done.stderr.split())
    assert "launcher: srun needs a Slurm allocation" in text
    assert "gpus: device=gpu needs at least 1" in text
    assert f"python: {Path.cwd() / 'absent'}: is not a Python interpreter" in text
    assert "device gpu, nodes 4, python absent" in text
    (result,) = results(tmp_path / "outputs").values()
    assert result["status"] == "complete"
    assert result["config"]["device"] == "cpu"


def test_a_job_with_other_data_is_not_finished(samples, sweep_file, tmp_path):
    data = tmp_path / "data"
    data.symlink_to(samples)
    file = sweep_file({"batch_size": [1, 2]}, data_dir=str(data))
    keep_measured(read_jobs(file, {})[0])
    assert "batch_size 1   kept" in dry_run(file)
    data.unlink()
    data.mkdir()
    (data / "train").symlink_to(samples / "train")
    lines = (samples / "train_list.txt").read_text().splitlines(keepends=True)
    (data / "train_list.txt").write_text("".join(lines[:12]))
    assert "2 of 2 would run" in dry_run(file)


def test_one_folder_runs_one_sweep_at_a_time(sweep_file, tmp_path):
    jobs = read_jobs(sweep_file({"batch_size": [1]}, **FAKE), {})
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    another = pytest.raises(RequestError, match="another sweep is running in")
    with FileLock(outputs / ".sweep.lock"), another:
        run_sweep(jobs, print, print)
    assert results(outputs) == {}


def keep_measured(job, folder=None, **changes):
    """Store a complete measurement of the job, by default that of this machine."""
    config, protocol = job.plan.config, job.plan.protocol
    environment = read_environment("paddle", config.work.data_folder)
    throughput = float(config.work.samples_per_step * config.ranks)
    numbers = {"status": "complete", "throughput": throughput, "steps_per_second": 1.0}
    indices = range(1, protocol.repeats + 1)
    repeats = [Repeat(index=index, **numbers) for index in indices]
    stored = {"config": config, "protocol": protocol, "repeats": repeats}
    data_sha256 = config.work.data_sha256
    if data_sha256:
        stored["input_data"] = InputData(samples=24, sha256=data_sha256)
    if not folder:
        folder = measurement_folder(config, protocol, environment)
        stored["environment"] = environment
    keep(folder, made_result(**stored | changes))


@pytest.mark.parametrize(
    ("matrix", "parameters", "expected"),
    [
        ({"batch_size": [2, -1]}, {}, [":18: batch_size: -1 is out of range"]),
        ({}, {"gpus": 3, "device": "gpu"}, ["nothing can run here: gpus: 3 requested"]),
        ({"seed": [1, 2]}, {"tf32": True}, ["no effect with device=cpu", "(2 conf"]),
        ({"outputs_dir": ["a", "b"]}, {}, ["outputs_dir: must be the same"]),
        ({"layout": [None, "NCHW"]}, {}, ["the same configuration twice"]),
    ],
)
def test_a_sweep_with_any_invalid_configuration_is_rejected(
    sweep_file, tmp_path, matrix, parameters, expected
):
    done = cli("sweep", sweep_file(matrix, **parameters))
    assert done.exit_code == 2
    assert "The sweep was refused; nothing was started." in done.stderr
    stderr = " ".join(done.stderr.split())
    assert [words for words in expected if words not in stderr] == []
    assert not (tmp_path / "outputs").exists()


def test_a_slurm_sweep_needs_the_number_of_gpus(sweep_file):
    done = cli("sweep", sweep_file({}, device="auto"), "--slurm")
    assert done.exit_code == 2
    assert "gpus: set the number per node" in " ".join(done.stderr.split())


def test_options_of_sbatch_override_all_but_the_name_of_a_job(
    slurm_command, sweep_file, tmp_path
):
    slurm_command("sbatch", f'printf "%s\\n" "$@" >{tmp_path}/words')
    (job,) = read_jobs(sweep_file({}), {}, elsewhere=True)
    command_output(*sbatch_words(job, ["--job-name", "mine", "--mem", "8G"]))
    words = (tmp_path / "words").read_text().splitlines()
    values = dict(pairwise(words))
    assert values["--mem"] == "8G"
    assert values["--job-name"] == slurm_name(job)


def test_the_result_of_an_ended_slurm_job_is_seen_although_nfs_remembers_an_older_one(
    slurm_command, sweep_file, tmp_path, monkeypatch
):
    """A file's attributes stay those of an earlier look until its folder is listed."""
    (job,) = read_jobs(sweep_file({}, input="synthetic", repeats=2), {}, elsewhere=True)
    remembered = {}
    real = status.written

    def written(folder):
        return remembered.setdefault(folder, real(folder))

    iterdir = Path.iterdir

    def listed(folder):
        remembered.pop(folder, None)
        return iterdir(folder)

    monkeypatch.setattr(status, "written", written)
    monkeypatch.setattr(Path, "iterdir", listed)
    monkeypatch.setattr(slurm, "LATENCY_SECONDS", -1.0)
    keep_measured(job, status="partial", repeats=[])
    stored = StoredResults(tmp_path / "outputs", elsewhere=True)
    sweep = SlurmSweep([stored.before_run(job)], stored, [], None, print)
    slurm_command("squeue", f"echo 1 RUNNING {slurm_name(job)}")
    sweep.advance()
    time.sleep(0.02)
    keep_measured(job)
    slurm_command("squeue", "true")
    sweep.advance()
    assert [each.state for each in sweep.statuses()] == ["done"]


def test_a_slurm_job_that_no_node_can_run_fails_and_keeps_no_other_from_starting(
    slurm_command, sweep_file, tmp_path
):
    """Printed by Slurm 22.05 on nodes with two GPUs."""
    refusal = "sbatch: error: Batch job submission failed: Requested node configuration is not"
    slurm_command("squeue", "true")
    slurm_command(
        "sbatch", f'case "$*" in *gpu:[34]*) echo "{refusal} available" >&2; exit 1; esac'
    )
    file = sweep_file({"gpus": [3, 1, 4, 2]}, device="gpu")
    jobs = read_jobs(file, {}, elsewhere=True)
    stored = StoredResults(tmp_path / "outputs", elsewhere=True)
    (tmp_path / "outputs" / "sweeps").mkdir(parents=True)
    sweep = SlurmSweep([stored.before_run(job) for job in jobs], stored, [], None, print)
    sweep.advance()
    assert [each.state for each in sweep.statuses()] == [
        "failed",
        "waiting",
        "failed",
        "waiting",
    ]
    assert len(sweep.followed) == 2
    assert "is not available" in sweep.statuses()[0].reason


@pytest.mark.usefixtures("processes")
def test_a_first_job_that_slurm_refuses_leaves_no_folder(slurm_command, sweep_file, tmp_path):
    slurm_command("squeue", "true")
    slurm_command("sbatch", "echo invalid partition specified: absent >&2; exit 1")
    done = cli("sweep", sweep_file({"seed": [1, 2]}, **FAKE), "--slurm")
    assert done.exit_code == 2
    assert "--slurm: sbatch: invalid partition specified: absent" in done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.usefixtures("processes")
def test_without_slurm_on_this_machine_nothing_starts(sweep_file, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cli("sweep", sweep_file({}), "--slurm")
    assert done.exit_code == 2
    assert "--slurm: squeue is not installed on this machine; start the sweep" in done.stderr
    assert "cancelled" not in done.stderr
    assert not (tmp_path / "outputs").exists()


def test_a_command_line_parameter_overrides_the_file(sweep_file):
    file = sweep_file({"batch_size": [1]}, seed=3)
    (job,) = read_jobs(file, {"seed": 5})
    assert job.plan.config.work.seed == 5
    with pytest.raises(SweepError, match="-p: sead: no such parameter; did you mean 'seed'"):
        read_jobs(file, {"sead": 4})


def test_a_command_line_parameter_of_the_matrix_selects_from_it(sweep_file):
    file = sweep_file(
        {"batch_size": [1, 2], "seed": [3, 4]}, exclude=[{"batch_size": 2, "seed": 4}]
    )
    chosen = read_jobs(file, {"batch_size": 1})
    assert [job.parameters["seed"] for job in chosen] == [3, 4]
    assert {job.parameters["batch_size"] for job in chosen} == {1}
    with pytest.raises(
        SweepError, match="-p: batch_size: 8 is not in the matrix; allowed: 1, 2"
    ):
        read_jobs(file, {"batch_size": 8})
    with pytest.raises(SweepError, match="no configuration is left"):
        read_jobs(file, {"batch_size": 2, "seed": 4})


def test_another_number_of_nodes_takes_the_place_of_the_largest_in_the_file(sweep_file):
    file = sweep_file(
        {"nodes": [1, 2], "gpus": [1, 8]}, exclude=[{"nodes": 2, "gpus": 1}], device="gpu"
    )
    jobs = read_jobs(file, {"nodes": 8}, elsewhere=True)
    assert [(job.parameters["nodes"], job.parameters["gpus"]) for job in jobs] == [(8, 8)]
    with pytest.raises(SweepError, match="-p: nodes: "):
        read_jobs(file, {"nodes": 0}, elsewhere=True)


def test_a_slurm_job_uses_the_requested_gpus(sweep_file):
    (job,) = read_jobs(sweep_file({}, device="auto"), {"gpus": 8}, elsewhere=True)
    assert job.plan.config.device == "gpu"
    assert job.plan.config.topology == "1x8"
    assert job.plan.protocol.name == "quick"


def test_the_command_of_a_job_works_in_every_folder(sweep_file):
    (job,) = read_jobs(sweep_file({}, **FAKE, data_dir="own"), {})
    assert f"-p data_dir {ROOT / 'own'} " in job.command


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_slurm_runs_single_and_multi_node_jobs_and_reports_a_failure(
    sweep, sweep_file, tmp_path, monkeypatch
):
    skip_if(slurm_missing())
    monkeypatch.delenv("TMPDIR", raising=False)
    data = tmp_path / "data"
    damaged_data(data)
    file = sweep_file(
        {"nodes": [1, 2], "input": ["dali", "synthetic"]},
        exclude=[{"nodes": 2, "input": "dali"}],
        data_dir=str(data),
    )
    with slurm_cluster(4) as cluster:
        words = ["--slurm", "--sbatch", "--partition all --time 30"]
        done = sweep(file, *words, env=os.environ | cluster.environment)
    assert done.returncode == 1, done.stderr
    assert statuses_by(tmp_path / "outputs", "nodes", "input") == {
        (1, "dali"): "failed",
        (1, "synthetic"): "complete",
        (2, "synthetic"): "complete",
    }
    assert "bad_input" in done.stderr
    assert (tmp_path / "outputs" / "summary" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_slurm_jobs_are_cancelled_on_an_interrupt_and_adopted_after_a_kill(
    sweep, sweep_file, tmp_path, monkeypatch, fake_trainer
):
    skip_if(slurm_missing())
    monkeypatch.delenv("TMPDIR", raising=False)
    outputs = tmp_path / "outputs"
    file = sweep_file({"batch_size": [1, 2]}, **FAKE | {"repeats": 12})
    command = [*COMMAND, str(file), "--slurm"]
    with slurm_cluster(2) as cluster:
        environment = os.environ | cluster.environment

        def start_until_a_repeat_is_finished():
            before = len(finished_repeats(outputs))
            process = subprocess.Popen(
                command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            while len(finished_repeats(outputs)) == before:
                time.sleep(0.2)
                assert process.poll() is None
            return process

        def queue():
            return cluster.output("squeue", "--noheader", "--format", "%i %j").splitlines()

        signal.signal(signal.SIGINT, signal.default_int_handler)
        process = start_until_a_repeat_is_finished()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        cluster.wait_idle()
        process = start_until_a_repeat_is_finished()
        submitted = queue()
        assert len(submitted) == 2
        process.kill()
        process.wait()
        finished = finished_repeats(outputs)
        again = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(finished_repeats(outputs)) > len(finished))
        assert {*queue()} <= {*submitted}
        _out, output = again.communicate(timeout=170)
        assert queue() == []
    assert again.returncode == 0, output
    assert finished.items() <= finished_repeats(outputs).items()
    assert {*statuses_by(outputs, "batch_size").values()} == {"complete"}
