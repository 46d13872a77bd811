"""How soon a fault ends a two-node run, and what it leaves behind: one line per fault.

`python benchmarks/faults.py`, as root: two network namespaces, manually started nodes, each
fault planted in rank 1. "noticed" is the time from the fault to the driver's exit.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from measuring import DRIVER, planted

from perfkit.config import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from clusters import Namespaces, two_namespaces

TIMEOUT = 30
PLANTED = """
import sys
if "perfkit.worker.rank" in sys.orig_argv:
    import os, signal, time
    import perfkit.inputs.synthetic as synthetic
    real = synthetic.batches

    def batches(config, rank):
        for number, batch in enumerate(real(config, rank)):
            if rank == 1 and number == 5:
                open(os.environ["FAULT_AT"], "w").write(str(time.time()))
                {fault}
            yield batch

    synthetic.batches = batches
"""
IN_RANK = {
    "rank raises": "raise KeyError('planted')",
    "rank killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "rank hangs (time-out 30 s)": "time.sleep(1000)",
}
FROM_OUTSIDE = ["node 2 never starts (time-out 30 s)", "link goes down", "port taken"]
FROM_OUTSIDE += ["driver killed"]


def main() -> None:
    for name in [*IN_RANK, *FROM_OUTSIDE]:
        with two_namespaces() as namespaces, tempfile.TemporaryDirectory() as folder:
            seconds, message, left = run(name, namespaces, Path(folder))
            print(f"{name:36} noticed after {seconds:5.1f} s, {left} processes left; {message}")


def run(name: str, namespaces: Namespaces, folder: Path) -> tuple[float, str, int]:
    """Return seconds from the fault to the driver's exit, its last line and processes left."""
    fault = PLANTED.format(fault=IN_RANK.get(name, "pass"))
    happened = folder / "happened"
    environment = os.environ | planted(folder, fault) | {"FAULT_AT": str(happened)}
    command = [sys.executable, "-c", DRIVER, json.dumps(request(namespaces, folder))]
    drivers = []
    if name == "port taken":
        listen = "import socket, time; s = socket.create_server(('', 29400)); time.sleep(1000)"
        words = [sys.executable, "-c", listen]
        drivers.append(subprocess.Popen(namespaces.nodes[0].command(words)))
        time.sleep(1)
    began = time.time()
    alone = name.startswith("node 2") or name == "port taken"
    for node in namespaces.nodes[: 1 if alone else 2]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
        streams["stderr"] = subprocess.STDOUT
        drivers.append(subprocess.Popen(node.command(command), env=environment, **streams))
    driver = drivers[-1] if alone else drivers[0]
    if not alone:
        while not happened.exists():
            time.sleep(0.05)
        began = time.time()
    if name == "link goes down":
        namespaces.cut()
    if name == "driver killed":
        driver.kill()
        while processes(namespaces):
            time.sleep(0.05)
    output = driver.communicate()[0].strip().splitlines()[-1:]
    seconds = time.time() - began
    if name == "port taken":
        drivers[0].kill()
    deadline = time.time() + 20
    while (left := len(processes(namespaces))) and time.time() < deadline:
        time.sleep(0.1)
    return seconds, (output or ["(killed)"])[0][:150], left


def request(namespaces: Namespaces, folder: Path) -> dict[str, object]:
    small = {"device": "cpu", "batch_size": 2, "image_size": 32, "input": "synthetic"}
    steps = {"warmup_steps": 1, "measured_steps": 2000, "repeats": 1, "timeout": TIMEOUT}
    hosts = ",".join(node.address for node in namespaces.nodes)
    place = {"nodes": 2, "launcher": "manual", "hosts": hosts, "outputs_dir": str(folder)}
    return small | steps | place


def processes(namespaces: Namespaces) -> list[int]:
    found = []
    for node in namespaces.nodes:
        listed = subprocess.check_output(["ip", "netns", "pids", node.name], text=True)
        for pid in map(int, listed.split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [pid] * (psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return found


if __name__ == "__main__":
    main()
