"""Whether `perfkit fleet` finds a slow node, and no other, on a real cluster.

python benchmarks/slow_node.py [FLEETS] starts a Slurm of four nodes here and measures
fleets with `perfkit sweep --slurm --each-node --jobs 1`: one on whose second node the workers
are stopped for a third of the time, and FLEETS (default 10) in which nothing is planted. It
prints what `perfkit fleet` says of each, and how many are wrong.
"""

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from slowing import is_worker, slowed, stop_and_go

from perfkit.core.paths import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from clusters import Slurm, slurm_cluster

PERFKIT = str(Path(sys.executable).parent / "perfkit")
SLOW_NODE = "node2"
SWEEP = {
    "notebook": "resnet50",
    "protocol": "quick",
    "parameters": {
        "framework": "torch",
        "device": "cpu",
        "batch_size": 4,
        "image_size": 64,
        "input": "synthetic",
        "warmup_steps": 2,
        "measured_steps": 8,
        "repeats": 5,
    },
}


def workers_of_slow_node() -> list[psutil.Process]:
    """Return the workers that run on the slow node now."""
    workers = []
    for process in psutil.process_iter():
        if is_worker(process) and node_of(process) == SLOW_NODE:
            workers.append(process)
    return workers


def node_of(process: psutil.Process) -> str:
    """Return the node of Slurm whose job has started a process; empty outside a job."""
    try:
        return process.environ().get("SLURMD_NODENAME", "")
    except psutil.Error:
        return ""


def slow_nodes(cluster: Slurm, folder: Path, planted: bool) -> list[str]:
    """Measure a fleet, print what `perfkit fleet` says, and return the nodes it calls slow."""
    outputs = folder / "outputs"
    file = folder / "fleet.json"
    file.write_text(json.dumps(SWEEP))
    environment = os.environ | cluster.environment
    sweep = [PERFKIT, "sweep", str(file), "--slurm", "--each-node", "--jobs", "1"]
    sweep += ["-p", "outputs_dir", str(outputs)]
    fault: AbstractContextManager[None] = nullcontext()
    if planted:
        fault = slowed(stop_and_go, workers_of_slow_node)
    with fault:
        subprocess.run(sweep, env=environment, check=True, stderr=subprocess.DEVNULL)
    judged = subprocess.run(
        [PERFKIT, "fleet", str(outputs)], capture_output=True, text=True, check=False
    )
    print(judged.stdout, judged.stderr, flush=True)
    return (outputs / "slow-nodes.txt").read_text().split()


def main(fleets: int) -> None:
    false_alarms = 0
    with slurm_cluster() as cluster:
        for number in range(fleets + 1):
            with TemporaryDirectory() as folder:
                slow = slow_nodes(cluster, Path(folder), planted=number == 0)
            if number == 0:
                print(f"slow node planted: {SLOW_NODE}; called slow: {slow or 'none'}")
            elif slow:
                false_alarms += 1
    print(f"fleets without a slow node: {fleets}; with a node called slow: {false_alarms}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
