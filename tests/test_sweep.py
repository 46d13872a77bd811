"""Sweeps: parameters files run by Snakemake and papermill, resumed after failures."""

import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import kubernetes_validate
import psutil
import pytest
from clusters import (
    slurm_cluster,
    slurm_missing,
    ssh_between,
    ssh_missing,
    two_namespaces,
    wait_for,
)
from conftest import SMALL, cli
from fake_trainer import planted
from kept import finished_repeats
from kubernetes_api import kubernetes_api
from made import keep, made_result
from PIL import Image

import perfkit
from perfkit.config import ROOT
from perfkit.request.checks import read_environment
from perfkit.results.schema import Repeat
from perfkit.sweep import engine, jobs
from perfkit.sweep.engine import Profile
from perfkit.sweep.jobs import for_snakemake, read_jobs
from perfkit.sweep.matrix import SweepError, read_sweep
from perfkit.system.environment import LIBRARY_VARIABLES

COMMAND = [str(Path(sys.executable).parent / "perfkit"), "sweep"]
FAKE = {"input": "synthetic", "repeats": 3, "measured_steps": 4}
"""Fixed parameters of sweeps that use the fake trainer."""


@pytest.fixture
def sweep_file(samples, tmp_path):
    """Return a function that writes a sweep of small configurations."""

    def write(matrix, name="small", exclude=(), **parameters):
        places = {"data_dir": str(samples), "outputs_dir": str(tmp_path / "outputs")}
        fixed = {n: v for n, v in (SMALL | places | parameters).items() if n not in matrix}
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

    def ended(*words, **settings):
        return subprocess.run(
            [*COMMAND, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=170,
            stdin=subprocess.DEVNULL,
            check=False,
            **settings,
        )

    return ended


def dry_run(file):
    jobs._environment.cache_clear()
    done = cli("sweep", file, "--dry-run")
    assert done.exit_code == 0, done.stderr
    return done.stdout


def results(outputs):
    """Return folder name -> stored result."""
    return {p.parent.name: json.loads(p.read_text()) for p in outputs.glob("*/result.json")}


def repeats_of(outputs):
    return sum(len(result["repeats"]) for result in results(outputs).values())


@pytest.mark.slow
def test_a_sweep_measures_every_configuration_and_writes_the_site(
    sweep, sweep_file, tmp_path, monkeypatch
):
    # Longer than the path of a socket may be.
    (folder := tmp_path / ("long" * 25)).mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    file = sweep_file({"input": ["dali", "synthetic"]})
    done = sweep(file)
    assert done.returncode == 0, done.stderr
    outputs = tmp_path / "outputs"
    measured = results(outputs).values()
    assert {m["config"]["input"] for m in measured} == {"dali", "synthetic"}
    assert {m["status"] for m in measured} == {"complete"}
    assert done.stdout.strip() == str(outputs / "index.html")
    assert (outputs / "summary" / "report.html").exists()
    for name in results(outputs):
        assert (outputs / name / "report.html").exists()
        assert name in (outputs / "index.html").read_text()
    assert "2/2 done" in done.stderr


@pytest.mark.slow
def test_a_failed_configuration_is_reported_with_its_command_and_retried(
    sweep, sweep_file, tmp_path, fake_trainer
):
    own, outputs = tmp_path / "own", tmp_path / "outputs"
    (own / "train").mkdir(parents=True)
    (own / "train_list.txt").write_text("train/one.jpeg 0\n" * 4)
    file = sweep_file({"input": ["dali", "synthetic"]}, **FAKE, data_dir=str(own))
    done = sweep(file)
    assert done.returncode == 1
    statuses = {m["config"]["input"]: m["status"] for m in results(outputs).values()}
    assert statuses == {"dali": "failed", "synthetic": "complete"}
    assert "1 of 2 failed" in done.stderr
    assert "input dali: bad_input: " in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "perfkit run resnet50" in line]
    assert "-p input dali" in line and f"-p data_dir {own}" in line
    assert (outputs / "summary" / "report.html").exists()
    planned = dry_run(file)
    assert "run again, 3 repeats" in planned and "bad_input: " in planned
    before = finished_repeats(outputs)
    assert len({Path(raw).parent for raw in before}) == 3
    Image.new("RGB", (64, 64)).save(own / "train" / "one.jpeg")
    done = sweep(file)
    assert done.returncode == 0, done.stderr
    after = finished_repeats(outputs)
    assert len({Path(raw).parent for raw in after}) == 6
    assert before.items() <= after.items()


@pytest.mark.slow
def test_a_changed_matrix_runs_only_new_configurations(
    sweep, sweep_file, tmp_path, fake_trainer, monkeypatch
):
    """The user's OMP_NUM_THREADS overrides Snakemake's."""
    # Remove what imports of other tests have set in this process.
    for name in [name for name in os.environ if name.startswith(LIBRARY_VARIABLES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    outputs = tmp_path / "outputs"
    assert "1 of 1 would run\n" in dry_run(sweep_file({"batch_size": [1]}, **FAKE))
    assert results(outputs) == {}
    assert sweep(sweep_file({"batch_size": [1]}, **FAKE)).returncode == 0
    before = results(outputs)
    (result,) = before.values()
    assert result["environment"]["variables"]["value"] == ["OMP_NUM_THREADS=2"]
    assert dry_run(sweep_file({"batch_size": [1]}, **FAKE)).endswith("0 of 1 would run\n")
    file = sweep_file({"batch_size": [1, 2]}, **FAKE)
    planned = dry_run(file)
    assert "batch_size 1   kept" in planned
    assert "batch_size 2   run, 3 repeats" in planned
    assert "1 of 2 would run, about " in planned
    done = sweep(file)
    assert done.returncode == 0
    assert "1/2 kept    batch_size 1: " in done.stderr
    assert "2/2 done    batch_size 2: " in done.stderr
    added = results(outputs).keys() - before.keys()
    assert [results(outputs)[name]["config"]["batch_size"] for name in added] == [2]
    assert {name: results(outputs)[name] for name in before} == before
    after = results(outputs)
    (outputs / "index.html").unlink()
    again = sweep(file)
    assert (again.returncode, results(outputs)) == (0, after)
    assert "2/2 kept" in again.stderr and (outputs / "index.html").exists()


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
    kept = {}
    for kill in range(3):
        before = repeats_of(outputs)
        process = subprocess.Popen([*COMMAND, str(file)], stderr=subprocess.DEVNULL)
        if kill:  # the first one may come before a repeat has finished
            wait_for(lambda before=before: repeats_of(outputs) > before)
        time.sleep(chance.uniform(0.2, 2))
        process.kill()
        process.wait()
        now = finished_repeats(outputs)
        assert kept.items() <= now.items()
        kept = now
    assert kept
    done = sweep(file)
    assert done.returncode == 0, done.stderr
    assert kept.items() <= finished_repeats(outputs).items()
    measured = results(outputs).values()
    assert sorted(result["config"]["batch_size"] for result in measured) == [1, 2, 3]
    assert {result["status"] for result in measured} == {"complete"}


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
    assert process.returncode == 1
    assert "the same command continues" in output
    assert psutil.wait_procs(children, 10)[1] == []
    wait_for(lambda: not worker_processes(), 10)
    kept = finished_repeats(tmp_path / "outputs")
    left = 50 - len({Path(raw).parent for raw in kept})
    assert kept and f", {left} repeats" in dry_run(file)


@pytest.mark.slow
def test_a_sweep_imports_no_module_from_its_folder(sweep, sweep_file, tmp_path, fake_trainer):
    folder = tmp_path / "outputs" / "sweeps" / "small"
    folder.mkdir(parents=True)
    for name in ("psutil", "snakemake", "perfkit", "papermill", "resource"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} from elsewhere')\n")
    done = sweep(sweep_file({}, **FAKE))
    assert done.returncode == 0, done.stderr
    assert {m["status"] for m in results(tmp_path / "outputs").values()} == {"complete"}


@pytest.mark.parametrize("table", ["fleetx-resnet50", "perf-bert", "gpt2", "quick"])
def test_a_dry_run_without_gpus_lists_every_configuration_and_the_reasons(
    table, monkeypatch, tmp_path
):
    monkeypatch.setattr("perfkit.frameworks.base.visible_gpus", list)
    file = ROOT / "parameters" / f"{table}.yaml"
    count = len(read_sweep(file)[0])
    done = cli("sweep", file, "-n", "-p", f"outputs_dir={tmp_path}")
    assert done.exit_code == 0, done.stderr
    if table == "quick":
        assert done.stdout.count("run, 5 repeats") == count
        assert "refused" not in done.stdout
        return
    assert len(re.findall(r"refused here \(\d(?:, \d)?\)", done.stdout)) == count
    assert "result" not in done.stdout.splitlines()[0]
    assert done.stdout.count("gpus: 8 requested") == 1
    assert max(map(len, done.stdout.partition("can't run")[2].splitlines())) <= 80
    assert f"{count} of {count} can't run on this machine:" in done.stdout
    text = " ".join(done.stdout.split())
    assert "gpus: 8 requested; visible on this machine: 0 GPUs" in text
    assert "launcher: srun needs a Slurm allocation" in text
    assert cli("sweep", file).exit_code == 2


def test_a_dry_run_lists_configurations_whose_interpreter_is_missing(sweep_file):
    planned = dry_run(sweep_file({"python": [None, "absent"]}, **FAKE))
    assert "refused here (1)" in planned and "run, 3 repeats" in planned
    assert "python: absent: is not a Python interpreter" in planned


def test_one_folder_runs_one_sweep_at_a_time(sweep_file, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "LOCK_SECONDS", 0.3)
    asked = read_jobs(sweep_file({"batch_size": [1]}, **FAKE), {}, "local")
    outputs, output = tmp_path / "outputs", []
    outputs.mkdir()
    with (outputs / ".sweep.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SweepError, match="another sweep is running in"):
            engine.Engine("small", asked, Profile.named("local")).run(print, output.append)
    assert output == [f"Waiting for another sweep of {outputs}, or its remaining processes …"]
    assert results(outputs) == {}


def test_a_lock_that_is_a_link_is_not_followed(sweep_file, tmp_path):
    asked = read_jobs(sweep_file({"batch_size": [1]}, **FAKE), {}, "local")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "outputs" / ".sweep.lock").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match=r"sweep\.lock"):
        engine.Engine("small", asked, Profile.named("local")).run(print, print)
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.mark.parametrize("name", [".", ".."])
def test_a_file_whose_name_is_no_folder_is_rejected(sweep_file, name):
    done = cli("sweep", sweep_file({}, name), "--dry-run")
    assert done.exit_code == 2
    assert "rename the file" in done.stderr


@pytest.mark.usefixtures("without_summary")
def test_a_job_measured_by_changed_code_is_done(sweep_file, tmp_path, monkeypatch):
    """Its result has another id than the incomplete result of an earlier call. Of the earlier
    files, only this sweep's and those of killed writers are removed."""
    jobs._environment.cache_clear()
    (job,) = read_jobs(sweep_file({}, input="synthetic", repeats=2), {}, "local")
    started = engine.Engine("small", [job], Profile.named("local"))
    outputs = tmp_path / "outputs"
    request = {"config": job.plan.config, "protocol": job.plan.protocol}
    numbers = {"status": "complete", "throughput": 2.0, "steps_per_second": 1.0}
    repeats = [Repeat(index=k, **numbers) for k in (1, 2)]
    own = {"environment": read_environment("paddle", job.plan.config.data_folder)}
    keep(jobs._folder(job), made_result(**request | own, status="partial", repeats=repeats[:1]))
    assert started.statuses()[0].measurement
    (started.folder / ".snakemake" / "incomplete").mkdir(parents=True)
    names = (f"{job.name}.log", f"{job.name}.ended", f".{job.name}.ipynb", "other.log")
    old, new = outputs / ".index.html.old.partial", outputs / "some" / ".result.json.x.partial"
    new.parent.mkdir()
    for path in (old, new, *(started.folder / name for name in names)):
        path.touch()
    os.utime(old, (time.time() - 4000,) * 2)

    def snakemake(*_command, cwd, **_options):
        left = {path.name for path in cwd.iterdir()}
        assert left == {"jobs.json", "Snakefile", "other.log"}
        keep(outputs / "new", made_result(**request, repeats=repeats))
        return SimpleNamespace(poll=lambda: 0, returncode=0)

    monkeypatch.setattr(engine, "start_supervised", snakemake)
    monkeypatch.setattr(engine, "close", lambda *_: None)
    (status,) = started.run(lambda _statuses: None, print)
    assert (status.state, status.measurement.folder.name[:4]) == ("done", "new-")
    assert (old.exists(), new.exists()) == (False, True)


BOTH_MPIRUN = {"nodes": 2, "launcher": "mpirun", "hosts": "a,b"}


@pytest.mark.parametrize(
    ("profile", "matrix", "parameters", "expected"),
    [
        ("local", {"batch_size": [2, -1]}, {}, [":17: batch_size: -1 is out of range"]),
        ("local", {"batch_size": [0], "input": ["x"]}, {}, ["batch_size: 0 is", "input: 'x'"]),
        ("local", {}, {"gpus": 3, "device": "gpu"}, ["gpus: 3 requested; visible"]),
        ("local", {"seed": [1, 2]}, {"tf32": True}, ["no effect with device=cpu", "(2 conf"]),
        ("local", {"outputs_dir": ["a", "b"]}, {}, ["outputs_dir: must be the same"]),
        ("local", {"layout": [None, "NCHW"]}, {}, ["the same configuration twice"]),
        ("local", {"timeout": [10, 20]}, {}, ["the same configuration twice"]),
        ("local", {}, {"launcher": "manual", "nodes": 2}, ["hosts: launcher=manual"]),
        ("local", {"nodes": [1, 2, 4]}, {}, ["launcher: srun needs a Slurm allocation"]),
        ("slurm", {}, {"device": "auto"}, ["gpus: set the number per node"]),
        ("slurm", {}, BOTH_MPIRUN, ["mpirun is not available", "allowed: local, srun"]),
        (
            "kubernetes",
            {},
            {"nodes": 2},
            ["srun is not available in a sweep", "allowed: local"],
        ),
    ],
)
def test_a_sweep_with_any_invalid_configuration_is_rejected(
    sweep_file, tmp_path, profile, matrix, parameters, expected
):
    done = cli("sweep", sweep_file(matrix, **parameters), "--profile", profile)
    assert done.exit_code == 2
    assert "The sweep was refused; nothing was started." in done.stderr
    stderr = " ".join(done.stderr.split())
    assert [words for words in expected if words not in stderr] == []
    assert results(tmp_path / "outputs") == {}


def test_a_command_line_parameter_overrides_the_file(sweep_file, tmp_path):
    file = sweep_file({"batch_size": [1]}, seed=3)
    (job,) = read_jobs(file, {"seed": 5}, "local")
    assert job.plan.config.seed == 5
    with pytest.raises(SweepError, match="batch_size is given here and by -p"):
        read_jobs(file, {"batch_size": 4}, "local")
    with pytest.raises(SweepError, match="-p: sead: no such parameter; did you mean 'seed'"):
        read_jobs(file, {"sead": 4}, "local")


@pytest.mark.parametrize(
    ("model", "more"), [("bert", ["--sequence-length", "64"]), ("gpt", [])]
)
def test_sample_data_has_the_sequence_length_of_the_jobs(model, more, tmp_path):
    (file := tmp_path / "small.yaml").write_text(f"notebook: {model}\n")
    given = {"device": "cpu", "sequence_length": 64}
    content = for_snakemake(read_jobs(file, given, "local"), makes_samples=True)
    assert [*content["samples"].values()] == [["--for", model, *more]]


def test_several_sequence_lengths_need_own_data(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text("notebook: bert\nmatrix: {sequence_length: [64, 32]}\n")
    with pytest.raises(SweepError, match="sequence_length: sample data has one length"):
        read_jobs(file, {"device": "cpu"}, "local")
    assert len(read_jobs(file, {"device": "cpu", "data_dir": "own"}, "slurm")) == 2
    file.write_text(file.read_text().replace("bert", "gpt"))
    assert len(read_jobs(file, {"device": "cpu"}, "local")) == 2


def test_each_configuration_gets_one_host_per_node(sweep_file):
    hosts = "127.0.0.1,127.0.0.2,127.0.0.3"
    file = sweep_file({"nodes": [1, 2]}, launcher="mpirun", hosts=hosts)
    single, double = read_jobs(file, {}, "local")
    assert (single.plan.config.launcher, single.plan.config.hosts) == ("local", None)
    assert (double.plan.config.launcher, double.plan.config.hosts) == ("mpirun", hosts[:19])


def test_job_names_are_safe_unique_and_reproducible(sweep_file):
    file = sweep_file({"label": ["a", "b"], "nodes": [1, 2], "seed": list(range(20))})
    names = [job.name for job in read_jobs(file, {}, "slurm")]
    assert len(set(names)) == 80
    assert names == [job.name for job in read_jobs(file, {}, "slurm")]
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.") for name in names)


def test_a_remote_job_uses_the_requested_gpus(sweep_file):
    (job,) = read_jobs(sweep_file({}, device="auto"), {"gpus": 8}, "slurm")
    assert (job.plan.config.device, job.plan.config.topology) == ("gpu", "1x8")
    assert job.plan.protocol.name == "quick"


def test_the_command_of_a_job_works_in_every_folder(sweep_file):
    (job,) = read_jobs(sweep_file({}, **FAKE, data_dir="own"), {}, "local")
    assert f"-p data_dir {ROOT / 'own'} " in job.command


def test_a_snakemake_startup_error_is_reported(sweep, sweep_file, tmp_path):
    (tmp_path / "config.yaml").write_text("executor: local\nno-such-option: 1\n")
    done = sweep(sweep_file({"batch_size": [1]}, **FAKE), "--profile", tmp_path)
    assert done.returncode == 2
    assert "Snakemake exited before starting a job:" in done.stderr
    assert "no-such-option" in done.stderr


@pytest.mark.parametrize("name", ["quick.yaml", "quick", "quik.yaml"])
def test_a_missing_file_suggests_the_bundled_one(tmp_path, name):
    with pytest.raises(SweepError, match=r"did you mean .*parameters/quick\.yaml"):
        read_jobs(tmp_path / name, {}, "local")


def test_a_missing_file_with_another_name_has_no_suggestion(tmp_path):
    with pytest.raises(SweepError, match=r"my\.yaml: No such file or directory$"):
        read_jobs(tmp_path / "my.yaml", {}, "local")


def test_an_invalid_profile_is_rejected_with_the_allowed_names(tmp_path):
    (tmp_path / "config.yaml").write_text("executor: [")
    with pytest.raises(SweepError, match=r"config\.yaml:1: not YAML"):
        Profile.named(str(tmp_path))
    expected = (
        r"allowed: kubernetes, local, slurm, or a folder with a config\.yaml; did you mean"
    )
    with pytest.raises(SweepError, match=f"{expected} 'slurm'"):
        Profile.named("slrum")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_slurm_runs_single_and_multi_node_jobs_and_reports_a_failure(
    sweep, sweep_file, tmp_path, monkeypatch
):
    if reason := slurm_missing():
        pytest.skip(reason)
    monkeypatch.delenv("TMPDIR", raising=False)
    own = tmp_path / "own"
    own.mkdir()
    (own / "train_list.txt").write_text("train/missing.jpeg 0\n")
    file = sweep_file(
        {"nodes": [1, 2], "input": ["dali", "synthetic"]},
        exclude=[{"nodes": 2, "input": "dali"}],
        data_dir=str(own),
    )
    with slurm_cluster(4) as cluster:
        done = sweep(file, "--profile", "slurm", env=os.environ | cluster.environment)
    assert done.returncode == 1, done.stderr
    found = {
        (r["config"]["nodes"], r["config"]["input"]): r["status"]
        for r in results(tmp_path / "outputs").values()
    }
    expected = {
        (1, "dali"): "failed",
        (1, "synthetic"): "complete",
        (2, "synthetic"): "complete",
    }
    assert found == expected
    assert "bad_input" in done.stderr
    assert (tmp_path / "outputs" / "summary" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_slurm_jobs_end_with_an_interrupted_or_killed_sweep(
    sweep, sweep_file, tmp_path, monkeypatch, fake_trainer
):
    if reason := slurm_missing():
        pytest.skip(reason)
    monkeypatch.delenv("TMPDIR", raising=False)
    outputs = tmp_path / "outputs"
    file = sweep_file({"batch_size": [1, 2]}, **FAKE | {"repeats": 12})
    command = [*COMMAND, str(file), "--profile", "slurm"]
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

        signal.signal(signal.SIGINT, signal.default_int_handler)
        process = start_until_a_repeat_is_finished()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
        cluster.wait_idle()
        process = start_until_a_repeat_is_finished()
        process.kill()
        process.wait()
        kept = finished_repeats(outputs)
        done = sweep(file, "--profile", "slurm", env=environment)
    assert done.returncode == 0, done.stderr
    assert kept.items() <= finished_repeats(outputs).items()
    assert {r["status"] for r in results(outputs).values()} == {"complete"}


@pytest.mark.slow
def test_kubernetes_gets_a_valid_working_job_per_configuration(
    sweep, sweep_file, tmp_path, fake_trainer
):
    if not shutil.which("rsync"):
        pytest.skip("not installed: rsync")
    file = sweep_file({"batch_size": [1, 2]}, **FAKE)
    api = tmp_path / "api"
    api.mkdir()
    with kubernetes_api(api) as (environment, submitted):
        done = sweep(file, "--profile", "kubernetes", env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    assert {r["status"] for r in results(tmp_path / "outputs").values()} == {"complete"}
    assert len(submitted) == 2
    for job in submitted:
        whole = {"apiVersion": "batch/v1", "kind": "Job"} | job
        kubernetes_validate.validate(whole, "1.31", strict=True)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["cpu"] == "8000m"
        assert {"name": "perfkit", "mountPath": "/perfkit"} in container["volumeMounts"]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("processes")
def test_mpirun_over_ssh_runs_two_host_configurations(sweep_file, tmp_path):
    if reason := ssh_missing():
        pytest.skip(reason)
    file = sweep_file({"nodes": [1, 2]}, launcher="mpirun", input="synthetic")
    with two_namespaces() as namespaces, ssh_between(namespaces) as environment:
        first, second = namespaces.nodes
        words = [*COMMAND, str(file), "-p", "hosts", f"{first.address},{second.address}"]
        done = subprocess.run(
            first.command(words),
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    frame = perfkit.load(tmp_path / "outputs")
    assert dict(zip(frame["nodes"], frame["status"], strict=True)) == {
        1: "complete",
        2: "complete",
    }
