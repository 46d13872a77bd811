"""Node programs started through a stand-in for ssh that runs the command on this machine: their
command lines, refusals and failures. test_nodes.py has the real ssh and Slurm."""

import errno
import fcntl
import os
import shlex
from pathlib import Path

import fake_trainer
import pytest
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

    fake_trainer.plant(1.0)
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

    def replaced(lines=RUN_HERE, fault="pass"):
        ssh_here(lines)
        folder = tmp_path / "planted"
        folder.mkdir()
        node = NODE.format(tests=str(Path(__file__).parent), fault=fault)
        (folder / "sitecustomize.py").write_text(node)
        monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
        command = fake_trainer.launcher_command(1.0)
        monkeypatch.setattr("perfkit.measuring.driver.workers.launcher_command", command)

    return replaced


@pytest.fixture
def result_of_two_nodes(small):
    """Measures on this machine and, through ssh, on this machine."""

    def measured():
        hosts = {"nodes": 2, "launcher": "ssh", "hosts": "127.0.0.1,localhost"}
        plan = perfkit.plan("resnet50", small(input="synthetic", **hosts))
        return perfkit.measure(plan.config, plan.protocol).result

    return measured


def test_ssh_runs_a_node_program_on_a_host(monkeypatch):
    monkeypatch.setattr("os.environ", {"UCX_TLS": "rc,cuda copy", "HOME": "/root"})
    place = {"nodes": 3, "hosts": "a,b,c", "launcher": "ssh"}
    config = resolve({"model": "resnet50", "device": "cpu", "processes": 1} | place)
    command = start_command(config, 2, "c", Path("/shared/run 1"))
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


def test_a_host_name_may_resolve_to_a_loopback_address(monkeypatch):
    addresses = {"there": "192.0.2.1", "here": "127.0.1.1"}
    monkeypatch.setattr(
        "perfkit.measuring.request.hosts.socket.gethostbyname", addresses.__getitem__
    )
    monkeypatch.setattr("perfkit.measuring.request.hosts.own_addresses", dict)
    assert own_index(["there", "here"]) == 1
    assert own_index(["there"]) is None


@pytest.mark.usefixtures("processes")
def test_a_node_that_does_not_see_the_folder_is_named(ssh, result_of_two_nodes, tmp_path):
    elsewhere = f'command=$(echo "$command" | sed "s#{tmp_path}/outputs#/elsewhere#")\n'
    ssh(RUN_HERE.replace("exec", f"{elsewhere}exec"))
    result = result_of_two_nodes()
    assert result.failure.code == "node_lost"
    text = result.failure.reason
    assert text.startswith(f"{NAME}: ssh ended with status 1; it said: did not find ")
    assert f"/elsewhere/{result.id}: " in text
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
def test_nodes_that_differ_fail_the_first_repeat(ssh, result_of_two_nodes, fault, expected):
    ssh(fault=fault)
    result = result_of_two_nodes()
    assert (result.failure.code, result.failure.reason) == ("nodes_differ", expected)
    assert result.complete_repeats == []


@pytest.mark.usefixtures("processes")
def test_a_node_that_can_not_write_into_the_shared_folder_is_named(ssh, result_of_two_nodes):
    ssh(fault=UNWRITTEN)
    failure = result_of_two_nodes().failure
    assert failure.code == "node_lost"
    assert failure.reason.startswith(NAME)
    assert os.strerror(errno.ENOSPC) in failure.reason


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
