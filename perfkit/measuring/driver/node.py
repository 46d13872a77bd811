"""The node program: `python -m perfkit.measuring.driver.node FOLDER NODE`.

For each repeat, the driver starts it by ssh or srun on every node but its own. It does
FOLDER/job.json (node_files.py): runs this node's workers until they exit or its standard input
closes, then kills what remains and says how they ended. If it is killed, the supervisor of its
workers ends them.
"""

import json
import os
import select
import sys
from pathlib import Path

from perfkit.measuring.driver.exit_info import ExitInfo
from perfkit.measuring.driver.failures import NodeError
from perfkit.measuring.driver.node_files import (
    JOB,
    POLL_SECONDS,
    NodeJob,
    move_raw_files,
    read_facts,
)
from perfkit.measuring.driver.workers import LocalWorkers
from perfkit.measuring.request.hosts import own_addresses, route_address
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.schema import NodeSeen
from perfkit.measuring.results.store import write_atomically
from perfkit.measuring.system.devices import visible_devices
from perfkit.measuring.system.environment import package_source
from perfkit.measuring.system.scratch import Scratch
from perfkit.timing.failure import portable
from perfkit.timing.warmup import WindowStart
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

STARTING_SECONDS = 60.0
"""Time limit of the workers besides `timeout`, for a node that a broken link has cut off."""
COMMON = ("data", "suite_source", "python", "dali", "numpy")
"""Facts that must be equal on all nodes, besides the framework's; others are stored."""
TO_SHARE = "it must lie in a folder that all nodes share"


def main(folder: Path, node: int) -> None:
    try:
        text = (folder / JOB).read_text(encoding="utf-8")
    except OSError:
        outputs = portable(str(folder.parent.parent))
        sys.exit(f"did not find {outputs}: outputs_dir must be a folder that all nodes share")
    # A job of another perfkit may have other fields.
    job_fields = json.loads(text)
    name = job_fields["names"][node]
    try:
        if job_fields["package"] != package_source():
            raise refusal(name, "has another perfkit; make them alike")
        ended = run_workers(folder, node, NodeJob.model_validate_json(text))
    except NodeError as error:
        ended = ExitInfo(error=error.failure)
    write_atomically(folder / f"ended-{node}.json", ended.model_dump_json())


def refusal(name: str, why: str, code: str = "nodes_differ") -> NodeError:
    """Return the error of the node called `name`, with which its sentence begins."""
    return NodeError(Failure(code=code, reason=f"{name} {portable(why)}", node=name))


def run_workers(folder: Path, node: int, job: NodeJob) -> ExitInfo:
    """Run this node's workers, move their raw files and return how they ended. Raises NodeError
    and OSError."""
    config, name = job.config, job.names[node]
    if job.working_folder:
        try:
            os.chdir(job.working_folder)
        except OSError as error:
            why = f"can't run the script: {error}; {TO_SHARE}"
            raise refusal(name, why, "script_unreadable") from error
    host, _colon, _port = job.master.rpartition(":")
    address = route_address(host)
    interface = own_addresses().get(address, "")
    differs = differences(name, job)
    seen = NodeSeen(node=node, name=name, interface=interface, differs=differs)
    write_atomically(folder / f"started-{node}.json", seen.model_dump_json())
    place = NodeRank(node, config.nodes, address, interface, job.master)
    seconds = config.timeout + STARTING_SECONDS
    with (
        Scratch() as scratch,
        LocalWorkers(
            config, job.protocol, scratch.folder, job.job, place, seconds=seconds
        ) as workers,
    ):
        wait_for_end(workers)
        workers.end(dump_stacks=True)
        ended = workers.exit_info()
        move_raw_files(scratch.folder, workers.ranks, folder)
    if ended.status and ended.status < 0:
        # The ranks of other nodes may have exited before anybody saw those of this node do so.
        why = f"lost its workers: signal {-ended.status} ended their supervisor"
        raise refusal(name, why, "worker_died")
    return ended


def differences(name: str, job: NodeJob) -> dict[str, str]:
    """Return the facts in which this node, called `name`, differs from node 0. Raises NodeError
    if one of them must not."""
    config = job.config
    labels = visible_devices(config.framework, config.device, config.interpreter)
    if len(labels) < config.gpus:
        raise refusal(name, f"has {len(labels)} of {config.gpus} requested gpus")
    if change := config.work.change():
        why = f"can't run the script: {change.reason}; {TO_SHARE}"
        raise refusal(name, why, change.code)
    differs = {}
    for fact, value in read_facts(config).items():
        first = job.facts.get(fact)
        if value == first:
            continue
        if fact in (*COMMON, *FRAMEWORKS[config.framework].facts):
            why = f"has {fact} {value!r}, node 0 has {first!r}; make them alike"
            raise refusal(name, why)
        differs[fact] = str(value)
    return differs


def wait_for_end(workers: LocalWorkers) -> None:
    """Wait until the workers exit or standard input closes. A line in it is where the
    window starts."""
    while not workers.wait(POLL_SECONDS):
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        if readable:
            line = sys.stdin.readline()
            if not line:
                return
            workers.start_window(WindowStart.of(line))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
