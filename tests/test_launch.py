"""Workers' command lines and settings, and the supervisor that ends them."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from made.clusters import wait_for

from perfkit.measuring.driver.exit_info import killed_for_memory
from perfkit.measuring.driver.settings import cpu_settings, dali_settings, rank_environment
from perfkit.measuring.driver.supervised import close, start_supervised
from perfkit.measuring.driver.workers import launcher_command
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.system.scratch import Scratch
from perfkit.training.frameworks import NodeRank

ESCAPING = """
import os, subprocess, sys, time
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]],
                     start_new_session=True)
print("started", flush=True)
time.sleep(float(sys.argv[2]))
"""
"""Starts processes in new sessions, as Paddle's launcher does."""


def config(**changes):
    values = {"model": "resnet50", "device": "cpu", "processes": 1, "batch_size": 4}
    return resolve(values | changes)


AMD, INTEL = "AuthenticAMD", "GenuineIntel"


@pytest.mark.parametrize(
    ("changes", "vendor", "cores", "settings"),
    [
        ({}, INTEL, 2, {"OMP_NUM_THREADS": "2"}),
        ({"cpu_tuning": False}, AMD, 2, {}),
        ({"device": "gpu", "gpus": 1}, AMD, 2, {}),
    ],
)
def test_cpu_settings_share_cores_and_use_fast_mkl_on_amd(changes, vendor, cores, settings):
    assert cpu_settings(config(**changes), vendor, cores) == settings


def test_on_gpus_the_launcher_gets_the_first_visible_devices(monkeypatch):
    monkeypatch.setattr("perfkit.measuring.system.gpus.visible_gpus", lambda: ["3", "5", "6"])
    on_gpus = config(device="gpu", gpus=2)
    command = launcher_command(on_gpus, NodeRank(), Path("/logs"), "job", ["worker"])
    assert command[command.index("--devices") + 1] == "3,5"


def test_gloo_gets_the_interface_of_the_node_and_nccl_may_use_every_one(monkeypatch):
    """One interface, as gloo needs it, would limit NCCL over sockets to one adapter."""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    place = NodeRank(1, 2, "10.0.0.2", "eth0", "10.0.0.1:29500")
    settings = variables(config(nodes=2), place)
    assert settings["GLOO_SOCKET_IFNAME"] == "eth0"
    assert "NCCL_SOCKET_IFNAME" not in settings


def test_an_interface_that_the_user_has_set_is_kept(monkeypatch):
    place = NodeRank(1, 2, "10.0.0.2", "eth0", "10.0.0.1:29500")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "chosen")
    assert variables(config(nodes=2), place)["GLOO_SOCKET_IFNAME"] == "chosen"


@pytest.mark.parametrize(
    ("changes", "override", "order"),
    [
        ({"device": "gpu", "gpus": 1}, "0", "PCI_BUS_ID"),
        ({"device": "gpu", "gpus": 1, "tf32": True}, None, "PCI_BUS_ID"),
        ({}, None, "FASTEST_FIRST"),
    ],
)
def test_on_a_gpu_tf32_is_off_by_default_and_devices_are_in_pci_order(
    monkeypatch, changes, override, order
):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    settings = variables(config(**changes), NodeRank())
    assert settings.get("NVIDIA_TF32_OVERRIDE") == override
    assert settings["CUDA_DEVICE_ORDER"] == order


@pytest.mark.parametrize(("set_before", "expected"), [(None, "false"), ("true", "true")])
def test_jax_takes_memory_of_a_gpu_as_it_needs_it_unless_the_user_decides(
    monkeypatch, set_before, expected
):
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    monkeypatch.delenv(name, raising=False)
    if set_before:
        monkeypatch.setenv(name, set_before)
    on_gpu = config(framework="jax", device="gpu", gpus=1)
    assert variables(on_gpu, NodeRank())[name] == expected
    assert variables(config(framework="jax"), NodeRank()).get(name) == set_before


def variables(config, place):
    """Return the environment of the ranks of this configuration."""
    with TemporaryDirectory() as scratch:
        return rank_environment(config, place, Path(scratch))


PLACE = """
import os, sys, time
rank = int(os.environ["PERFKIT_RANK"])
names = ("RANK", "RANKS", "LOCAL_RANK", "DEVICES", "MEETING")
print(*(os.environ["PERFKIT_" + name] for name in names), flush=True)
if rank == 1 and sys.argv[1] == "fails":
    sys.exit(7)
if rank == 1 and sys.argv[1] == "is killed":
    os.kill(os.getpid(), 9)
time.sleep(0.1 if sys.argv[1] == "ends" else 1000)
"""


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(("what", "status"), [("ends", 0), ("fails", 7), ("is killed", 137)])
def test_plain_ranks_get_their_places_and_the_first_failure_ends_them(tmp_path, what, status):
    launch = [sys.executable, "-m", "perfkit.training.jax.launch", str(tmp_path)]
    rank = [sys.executable, "-c", PLACE, what]
    with supervised(str(tmp_path), "60", *launch, "0", "2", "2", "-", *rank) as supervisor:
        assert supervisor.wait(60) == status
    addresses = set()
    for index in range(2):
        *place, address = (tmp_path / f"rank{index}.log").read_text().split()
        assert place == [str(index), "2", str(index), "2"]
        addresses.add(address)
    (address,) = addresses
    assert address.startswith("127.0.0.1:")
    wait_for(lambda: not left_over(PLACE), 10)


@pytest.mark.usefixtures("processes")
def test_plain_ranks_of_the_second_node_follow_those_of_the_first(tmp_path):
    launch = [sys.executable, "-m", "perfkit.training.jax.launch", str(tmp_path)]
    rank = [sys.executable, "-c", PLACE, "ends"]
    subprocess.run([*launch, "2", "2", "4", "10.0.0.1:29500", *rank], check=True, timeout=60)
    lines = [(tmp_path / f"rank{index}.log").read_text() for index in range(2)]
    assert lines == ["2 4 0 2 10.0.0.1:29500\n", "3 4 1 2 10.0.0.1:29500\n"]


@pytest.mark.usefixtures("processes")
def test_a_file_of_the_working_directory_is_no_module_of_the_supervisor(tmp_path):
    (tmp_path / "psutil.py").write_text("raise SystemExit(9)")
    with Scratch() as scratch:
        supervisor = start_supervised(["true"], scratch.folder, dict(os.environ), cwd=tmp_path)
        try:
            assert supervisor.wait(60) == 0
        finally:
            close(supervisor)


@pytest.mark.parametrize(
    ("cores", "threads", "prefetch"), [(88, 10, 4), (80, 9, 2), (16, 2, 2)]
)
def test_dali_gets_the_cores_that_training_leaves(cores, threads, prefetch):
    chosen = dali_settings(threads=0, prefetch=0, cores=cores // 8)
    assert chosen == {"dali_threads": threads, "dali_prefetch": prefetch}


def test_given_dali_settings_are_kept():
    given = {"dali_threads": 3, "dali_prefetch": 8}
    assert dali_settings(threads=3, prefetch=8, cores=64) == given
    work = config().work
    assert (work.dali_threads, work.dali_prefetch) == (4, 2)


def supervised(*words):
    """Start a supervisor with pipes."""
    command = [sys.executable, "-m", "perfkit.measuring.driver.supervisor", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def left_over(marker):
    """Return the processes with the marker in their command line."""
    processes = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or ()
        if marker in command:
            processes.append(process)
    return processes


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("ending", ["by itself", "pipe closed", "terminated", "time limit"])
def test_no_descendant_is_left_however_the_command_ends(ending, tmp_path):
    marker, seconds = str(tmp_path), "0.1" if ending == "by itself" else "1000"
    escaping = [sys.executable, "-c", ESCAPING, marker, seconds]
    limit = "2" if ending == "time limit" else "inf"
    with supervised(marker, limit, *escaping) as supervisor:
        assert supervisor.stdout.readline() == b"started\n"
        if ending == "pipe closed":
            supervisor.stdin.close()
        if ending == "terminated":
            supervisor.send_signal(signal.SIGTERM)
        status = supervisor.wait(20)
    assert (status == 0) == (ending == "by itself")
    wait_for(lambda: not left_over(marker), 10)


@pytest.mark.parametrize(
    ("line", "file", "lines"),
    [
        ("0::/user.slice/a.scope", "{}/user.slice/a.scope/memory.events.local", "oom 7\n"),
        ("0::/", "{}/memory.events.local", "low 0\n"),
        ("4:memory:/docker/1", "{}/memory/docker/1/memory.oom_control", "under_oom 0\n"),
        ("4:memory:/docker/1", "{}/memory/memory.oom_control", ""),
    ],
    ids=["version 2", "container, 2", "version 1", "container, 1"],
)
def test_oom_kills_are_counted_only_in_the_own_control_group(tmp_path, line, file, lines):
    for path, text in (
        ("proc/self/cgroup", f"3:cpuset:/elsewhere\n{line}\n"),
        ("proc/vmstat", "oom_kill 9\n"),
        (file.format("sys/fs/cgroup"), f"{lines}oom_kill 3\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert killed_for_memory(tmp_path) == 3
    (tmp_path / file.format("sys/fs/cgroup")).unlink()
    assert killed_for_memory(tmp_path) == 0
