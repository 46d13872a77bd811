"""Node programs started through a stand-in for ssh that runs the command on this machine: their
command lines, files, refusals and ends. test_nodes.py has the real ssh and Slurm."""

import errno
import fcntl
import os
import shlex
import shutil
import signal
from pathlib import Path

import fake_trainer
import psutil
import pytest
from clusters import wait_for
from conftest import RUN_HERE

import perfkit
from perfkit.measuring.driver import cluster
from perfkit.measuring.driver.node_files import PREFIX
from perfkit.measuring.driver.programs import exported_variables, start_command
from perfkit.measuring.paths import ROOT
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.hosts import own_index
from perfkit.measuring.request.resolve import resolve

NODE = """
import sys
if "perfkit.measuring.driver.node" in sys.orig_argv:
    sys.path.append({tests!r})
    import fake_trainer

    fake_trainer.plant({seconds!r})
    {fault}
"""
UNWRITTEN = """
    import os
    import perfkit.measuring.driver.node_files as files

    def fail(*_):
        raise OSError(28, os.strerror(28))

    files.move_raw_files = fail"""
NAME = "node 1 (localhost)"


@pytest.fixture
def ssh(ssh_here, tmp_path, monkeypatch):
    """Replaces ssh by `ssh_here`, and framework and launcher by a fake trainer; `fault` runs in
    each node program."""

    def replaced(lines=RUN_HERE, seconds=1.0, fault="pass"):
        ssh_here(lines)
        folder = tmp_path / "planted"
        folder.mkdir()
        node = NODE.format(tests=str(Path(__file__).parent), seconds=seconds, fault=fault)
        (folder / "sitecustomize.py").write_text(node)
        monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
        command = fake_trainer.launcher_command(seconds)
        monkeypatch.setattr("perfkit.measuring.driver.workers.launcher_command", command)

    return replaced


@pytest.fixture
def two_nodes(small):
    """Parameters of a measurement on this machine and, through ssh, on this machine."""

    def parameters(**changes):
        hosts = {"nodes": 2, "launcher": "ssh", "hosts": "127.0.0.1,localhost"}
        return small(input="synthetic", **hosts | changes)

    return parameters


@pytest.fixture
def failure_of(two_nodes):
    """Measures on two nodes; returns the failure's code and sentence, and the measurement."""

    def measured(**changes):
        plan = perfkit.plan("resnet50", two_nodes(**changes))
        measurement = perfkit.measure(plan.config, plan.protocol)
        failure = measurement.result.failure
        return failure.code, failure.reason, measurement

    return measured


def config(**changes):
    values = {"model": "resnet50", "nodes": 3, "hosts": "a,b,c", "timeout": 100}
    return resolve(values | {"device": "cpu", "processes": 1, "launcher": "ssh"} | changes)


def test_ssh_runs_a_node_program_on_a_host(monkeypatch):
    monkeypatch.setattr("os.environ", {"UCX_TLS": "rc,cuda copy", "HOME": "/root"})
    command = start_command(config(), 2, "c", Path("/shared/run 1"))
    program, *options, host, dashes, remote = command
    assert (program, host, dashes) == ("ssh", "c", "--")
    assert {"BatchMode=yes", "ServerAliveInterval=5"} <= {*options}
    words = shlex.split(remote)
    assert words[:2] == ["env", "UCX_TLS=rc,cuda copy"]
    assert words[3:] == ["-P", "-m", "perfkit.measuring.driver.node", "/shared/run 1", "2"]


def test_ssh_passes_on_settings_of_libraries_but_no_secret_and_no_name_of_a_gpu(
    monkeypatch,
):
    passed = {"NCCL_DEBUG": "INFO", "FI_PROVIDER": "efa", "TORCH_NCCL_ASYNC": "1"}
    passed |= {"CUDA_VISIBLE_DEVICES": "0,1", "PYTHONPATH": "/p"}
    others = {"NVIDIA_VISIBLE_DEVICES": "GPU-1ab2", "CUDA_VISIBLE_DEVICES_": "1"}
    others |= {"NVIDIA_API_KEY": "x", "SECRET": "x"}
    monkeypatch.setattr("os.environ", passed | others)
    exported = [variable.partition("=") for variable in exported_variables()]
    assert {name: value for name, _equals, value in exported} == passed
    monkeypatch.setattr("os.environ", {"CUDA_VISIBLE_DEVICES": "MIG-0f3a,MIG-12"})
    assert exported_variables() == []


def test_srun_runs_a_node_program_on_a_host_with_its_gpus(monkeypatch):
    monkeypatch.setattr("os.environ", {"SLURM_JOB_GPUS": "0,1"})
    on_gpus = config(device="gpu", gpus=2, launcher="srun", hosts=None)
    command = start_command(on_gpus, 2, "c", Path("/run"))
    assert command[0] == "srun"
    assert command[-10:-6] == ["--nodelist", "c", "--gres", "gpu:2"]
    assert command[-3:] == ["perfkit.measuring.driver.node", "/run", "2"]


def test_a_host_name_may_resolve_to_a_loopback_address(monkeypatch):
    addresses = {"there": "192.0.2.1", "here": "127.0.1.1"}
    monkeypatch.setattr(
        "perfkit.measuring.request.hosts.socket.gethostbyname", addresses.__getitem__
    )
    monkeypatch.setattr("perfkit.measuring.request.hosts.own_addresses", dict)
    assert own_index(["there", "here"]) == 1
    assert own_index(["there"]) is None


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_two_nodes_measure_and_leave_only_the_result(ssh, two_nodes, worker_processes):
    ssh()
    plan = perfkit.plan("resnet50", two_nodes(repeats=2))
    measurement = perfkit.measure(plan.config, plan.protocol)
    result = measurement.result
    assert result.status == "complete", result.failure
    first, second = result.repeats
    assert [rank.rank for rank in first.ranks] == [0, 1]
    assert first.nodes == second.nodes == ["node 0 (127.0.0.1)", NAME]
    assert [node.interface for node in result.nodes] == ["lo", "lo"]
    raw = {path.name for path in measurement.raw_folder(2).iterdir()}
    assert raw == {"rank0.jsonl", "rank1.jsonl", "telemetry.jsonl"}
    logs = {path.name for path in measurement.log_files()}
    assert {"1-launcher-node0.log", "1-launcher-node1.log"} <= logs
    assert not [*measurement.folder.glob(f"{PREFIX}*")]
    assert not worker_processes()


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_raw_files_lie_on_their_node_until_its_workers_have_ended(
    ssh, two_nodes, monkeypatch, worker_processes
):
    ssh(seconds=3.0)
    seen = []
    usual_wait = cluster.ClusterWorkers.wait

    def wait(workers, seconds):
        ended = usual_wait(workers, seconds)
        files = [*workers.folder.iterdir(), *workers.target.iterdir()]
        seen.append((len(worker_processes()), {path.name for path in files}))
        return ended

    monkeypatch.setattr(cluster.ClusterWorkers, "wait", wait)
    plan = perfkit.plan("resnet50", two_nodes())
    assert perfkit.measure(plan.config, plan.protocol).result.status == "complete"
    of_all = max(running for running, _names in seen)
    assert of_all
    for running, names in seen:
        # Those of a node whose workers have ended are moved.
        if running == of_all:
            assert not [name for name in names if name.startswith("rank")]


@pytest.mark.usefixtures("processes")
def test_a_node_that_does_not_see_the_folder_is_named(ssh, failure_of, tmp_path):
    elsewhere = f'command=$(echo "$command" | sed "s#{tmp_path}/outputs#/elsewhere#")\n'
    ssh(RUN_HERE.replace("exec", f"{elsewhere}exec"))
    code, text, measurement = failure_of()
    assert code == "node_lost"
    assert text.startswith(f"{NAME}: ssh ended with status 1; it said: did not find ")
    assert f"/elsewhere/{measurement.folder.name}: " in text
    assert text.endswith("outputs_dir must be a folder that all nodes share")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (
            "from perfkit.measuring.system import environment as e; "
            "e.package_source = lambda: 'other'",
            f"{NAME} has another perfkit; make them alike",
        ),
        (
            "import perfkit.measuring.work as w; w.ModelWork.data_sha256 = 'other'",
            f"{NAME} has data 'other', node 0 has None; make them alike",
        ),
    ],
    ids=["perfkit", "data"],
)
@pytest.mark.usefixtures("processes")
def test_nodes_that_differ_fail_the_first_repeat(ssh, two_nodes, fault, expected):
    ssh(fault=fault)
    plan = perfkit.plan("resnet50", two_nodes())
    result = perfkit.measure(plan.config, plan.protocol).result
    assert (result.failure.code, result.failure.reason) == ("nodes_differ", expected)
    assert result.complete_repeats == []


@pytest.mark.usefixtures("processes")
def test_other_differences_between_nodes_are_stored(ssh, two_nodes):
    fault = "from perfkit.measuring.driver import node_files as n; "
    fault += "n.identity = lambda _: {'cpu': 'other'}"
    ssh(fault=fault)
    plan = perfkit.plan("resnet50", two_nodes())
    result = perfkit.measure(plan.config, plan.protocol).result
    assert result.status == "complete", result.failure
    assert [node.differs for node in result.nodes] == [{}, {"cpu": "other"}]


@pytest.mark.usefixtures("processes")
def test_the_lines_of_a_killed_node_are_lost_and_this_is_said(
    ssh, failure_of, worker_processes, monkeypatch
):
    ssh(seconds=60.0)
    usual_wait = cluster.ClusterWorkers.wait

    def wait(workers, seconds):
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if str(workers.folder) in words:
                process.send_signal(signal.SIGKILL)
        return usual_wait(workers, seconds)

    monkeypatch.setattr(cluster.ClusterWorkers, "wait", wait)
    code, text, measurement = failure_of()
    assert code == "node_lost"
    assert text.startswith(f"{NAME}: ssh ended with status ")
    assert "; the raw steps there are lost" in text
    assert not [*measurement.folder.glob(f"{PREFIX}*")]
    wait_for(lambda: not worker_processes(), 20)


@pytest.mark.usefixtures("processes")
def test_a_node_that_can_not_write_into_the_shared_folder_is_named(ssh, failure_of):
    ssh(fault=UNWRITTEN)
    code, text, _measurement = failure_of()
    assert code == "node_lost"
    assert text.startswith(NAME)
    assert os.strerror(errno.ENOSPC) in text


@pytest.mark.usefixtures("processes")
def test_a_file_system_without_locks_is_refused_with_a_remedy(small, monkeypatch):
    def flock(_file, _operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    plan = perfkit.plan("resnet50", small(input="synthetic"))
    with pytest.raises(RequestError, match=r"has no file locks .*-p outputs_dir FOLDER"):
        perfkit.measure(plan.config, plan.protocol)


def test_the_shared_folder_of_a_killed_driver_is_removed(tmp_path):
    (tmp_path / f"{PREFIX}old" / "1").mkdir(parents=True)
    cluster.remove_abandoned(tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_a_shared_folder_that_can_no_longer_be_written_is_told_and_leaves_nothing(
    ssh, failure_of, worker_processes, tmp_path, monkeypatch
):
    """As when the file server returns errors."""
    ssh(seconds=5.0)
    usual_wait = cluster.ClusterWorkers.wait

    def wait(workers, seconds):
        if workers.folder.exists():
            wait_for(lambda: len(worker_processes()) >= 4)
            shutil.rmtree(workers.folder)
        return usual_wait(workers, seconds)

    monkeypatch.setattr(cluster.ClusterWorkers, "wait", wait)
    code, text, _measurement = failure_of()
    assert code == "node_lost", text
    assert os.strerror(errno.ENOENT) in text
    assert worker_processes() == []
    assert [*(tmp_path / "scratch").iterdir()] == []
