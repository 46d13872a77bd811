"""Command lines and settings of the workers, and the supervisor that ends them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from perfkit.config import ROOT, Config, portable
from perfkit.launch import cpu_settings, launcher_command

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
    return Config(**values | changes)


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


def test_on_a_cpu_the_launcher_gets_a_number_of_processes_and_no_devices():
    command = launcher_command(config(processes=2), Path("/logs"), "job", ["worker"])
    assert command[-3:] == ["--nproc_per_node", "2", "worker"]
    assert "--devices" not in command


def test_on_gpus_the_launcher_gets_the_first_visible_devices_by_their_labels(monkeypatch):
    monkeypatch.setattr("perfkit.launch.visible_gpus", lambda: ["3", "5", "6"])
    command = launcher_command(config(device="gpu", gpus=2), Path("/logs"), "job", ["worker"])
    assert command[-3:] == ["--devices", "3,5", "worker"]


def test_home_and_checkout_paths_are_taken_out_of_text():
    text = f"File {ROOT}/perfkit/worker.py, data in {Path.home()}/imagenet"
    assert portable(text) == "File perfkit/worker.py, data in ~/imagenet"


def supervise(marker, seconds):
    command = [sys.executable, "-m", "perfkit.supervisor"]
    command += [marker, sys.executable, "-c", ESCAPING, marker, str(seconds)]
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


def test_the_status_of_the_command_is_the_status_of_the_supervisor():
    command = [sys.executable, "-m", "perfkit.supervisor", "scratch", sys.executable, "-c"]
    command += ["exit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as supervisor:
        assert supervisor.wait(20) == 7
