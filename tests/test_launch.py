"""Command lines and settings of the workers, and the supervisor that ends them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from perfkit.config import ROOT, portable
from perfkit.driver.workers import (
    cpu_settings,
    launcher_command,
    shortened,
    worker_environment,
)
from perfkit.frameworks.base import NodeRank
from perfkit.request.resolve import resolve

ESCAPING = """
import os, subprocess, sys, time
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[1]],
                     start_new_session=True)
print("started", flush=True)
time.sleep(float(sys.argv[2]))
"""
"""Starts processes in sessions of their own, as Paddle's launcher does."""


def config(**changes):
    values = {"model": "resnet50", "device": "cpu", "processes": 1, "batch_size": 4}
    return resolve(values | changes)


def test_threads_are_shared_among_the_processes_and_amd_gets_the_fast_path_of_mkl():
    assert cpu_settings(config(processes=2), "AuthenticAMD", 8) == {
        "OMP_NUM_THREADS": "4",
        "MKL_DEBUG_CPU_TYPE": "5",
    }


def test_another_maker_gets_threads_only():
    assert cpu_settings(config(), "GenuineIntel", 2) == {"OMP_NUM_THREADS": "2"}


@pytest.mark.parametrize("changes", [{"cpu_tuning": False}, {"device": "gpu", "gpus": 1}])
def test_nothing_is_set_when_it_is_turned_off_or_a_gpu_trains(changes):
    assert cpu_settings(config(**changes), "AuthenticAMD", 2) == {}


def command_of(config, place=None):
    return launcher_command(config, place or NodeRank(), Path("/logs"), "job", ["worker"])


def test_on_a_cpu_the_launcher_gets_a_number_of_processes_and_no_devices():
    command = command_of(config(processes=2))
    assert command[-3:] == ["--nproc_per_node", "2", "worker"]
    assert "--devices" not in command


def test_on_gpus_the_launcher_gets_the_first_visible_devices_by_their_labels(monkeypatch):
    monkeypatch.setattr("perfkit.frameworks.paddle.visible_gpus", lambda: ["3", "5", "6"])
    command = command_of(config(device="gpu", gpus=2))
    assert command[-3:] == ["--devices", "3,5", "worker"]


def test_of_several_nodes_each_is_told_its_number_its_address_and_where_all_meet():
    place = NodeRank(1, 2, "10.0.0.2", "eth0", "10.0.0.1:29500")
    command = command_of(config(nodes=2), place)
    assert command[-9:-3] == ["--rank", "1", "--master", "10.0.0.1:29500", "--host", "10.0.0.2"]
    assert worker_environment(config(nodes=2), place)["GLOO_SOCKET_IFNAME"] == "eth0"


def test_an_interface_that_the_user_has_chosen_stays(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    place = NodeRank(1, 2, "10.0.0.2", "eth0", "10.0.0.1:29500")
    assert worker_environment(config(nodes=2), place)["GLOO_SOCKET_IFNAME"] == "ib0"


@pytest.mark.parametrize(("tf32", "expected"), [(False, "0"), (True, None)])
def test_on_a_gpu_tf32_is_forbidden_to_all_libraries_unless_it_is_asked_for(
    tf32, expected, monkeypatch
):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    settings = worker_environment(config(device="gpu", gpus=1, tf32=tf32), NodeRank())
    assert settings.get("NVIDIA_TF32_OVERRIDE") == expected


def test_home_and_checkout_paths_are_taken_out_of_text():
    text = f"File {ROOT}/perfkit/worker/rank.py, data in {Path.home()}/imagenet"
    assert portable(text) == "File perfkit/worker/rank.py, data in ~/imagenet"


def supervise(marker, seconds):
    command = [sys.executable, "-m", "perfkit.driver.supervisor"]
    command += [marker, "0", sys.executable, "-c", ESCAPING, marker, str(seconds)]
    supervisor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert supervisor.stdout.readline() == b"started\n"
    return supervisor


def left_over(marker):
    deadline = time.monotonic() + 10
    while left := [
        p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or ())
    ]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("ending", ["by itself", "pipe closed", "terminated"])
def test_however_the_command_ends_no_descendant_is_left(ending, tmp_path):
    marker = str(tmp_path)
    with supervise(marker, 0.1 if ending == "by itself" else 1000) as supervisor:
        if ending == "pipe closed":
            supervisor.stdin.close()
        if ending == "terminated":
            supervisor.send_signal(signal.SIGTERM)
        status = supervisor.wait(20)
    assert (status == 0) == (ending == "by itself")
    assert not left_over(marker)


@pytest.mark.usefixtures("processes")
def test_the_status_of_the_command_is_the_status_of_the_supervisor():
    command = [sys.executable, "-m", "perfkit.driver.supervisor", "scratch", "0"]
    command += [sys.executable, "-c", "exit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as supervisor:
        assert supervisor.wait(20) == 7


@pytest.mark.usefixtures("processes")
def test_a_command_gets_a_sigterm_and_time_for_its_own_end_where_that_is_asked_for(tmp_path):
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('ended well'), sys.exit()))\n"
        "print('started', flush=True); time.sleep(1000)"
    )
    command = [sys.executable, "-m", "perfkit.driver.supervisor", str(tmp_path), "10"]
    with subprocess.Popen(
        [*command, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as supervisor:
        assert supervisor.stdout.readline() == b"started\n"
        supervisor.stdin.close()
        assert supervisor.stdout.read() == b"ended well\n"


def test_of_a_long_log_the_beginning_and_the_end_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("perfkit.driver.workers.LOG_BYTES", 4)
    for length, kept in ((8, "01234567"), (10, "0123\n[… 2 bytes left out …]\n6789")):
        (tmp_path / "log").write_text("0123456789"[:length])
        assert shortened(tmp_path / "log") == kept
