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
from typing import NoReturn

from perfkit.measuring.driver.node_files import (
    JOB,
    POLL_SECONDS,
    NodeJob,
    Refusal,
    move_raw_files,
    read_facts,
)
from perfkit.measuring.driver.workers import LocalWorkers
from perfkit.measuring.request.hosts import own_addresses, route_address
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


def main(folder: Path, node: int) -> None:
    try:
        text = (folder / JOB).read_text(encoding="utf-8")
    except OSError:
        outputs = folder.parent.parent
        advice = "outputs_dir must be a folder that all nodes share"
        refuse(Refusal.NOT_SHARED, f"did not find {outputs}: {advice}")
    # A job of another perfkit may have other fields.
    if json.loads(text)["package"] != package_source():
        refuse(Refusal.NODES_DIFFER, "has another perfkit; make them alike")
    job = NodeJob.model_validate_json(text)
    if job.working_folder:
        enter(job.working_folder)
    try:
        run_workers(folder, node, job)
    except OSError as error:
        refuse(Refusal.IO_ERROR, f"failed: {error}")


def refuse(refusal: Refusal, sentence: str) -> NoReturn:
    """Exit; `sentence` continues the node's name."""
    print(portable(sentence), file=sys.stderr)
    sys.exit(refusal)


def enter(folder: Path) -> None:
    """Change to the folder in which a script runs. Exits if this node does not have it."""
    try:
        os.chdir(folder)
    except OSError as error:
        advice = "it must lie in a folder that all nodes share"
        refuse(Refusal.SCRIPT_UNREADABLE, f"can't run the script: {error}; {advice}")


def run_workers(folder: Path, node: int, job: NodeJob) -> None:
    """Run this node's workers, move their raw files and write how they ended. Raises
    OSError."""
    config = job.config
    host, _colon, _port = job.master.rpartition(":")
    address = route_address(host)
    interface = own_addresses().get(address, "")
    differs = differences(job)
    seen = NodeSeen(node=node, name=job.names[node], interface=interface, differs=differs)
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
        sentence = f"lost its workers: signal {-ended.status} ended their supervisor"
        refuse(Refusal.WORKER_DIED, sentence)
    write_atomically(folder / f"ended-{node}.json", ended.model_dump_json())


def differences(job: NodeJob) -> dict[str, str]:
    """Return the facts that differ from node 0's. Exits if one of them must not."""
    config = job.config
    labels = visible_devices(config.framework, config.device, config.interpreter)
    if len(labels) < config.gpus:
        refuse(Refusal.NODES_DIFFER, f"has {len(labels)} of {config.gpus} requested gpus")
    if change := config.work.change():
        advice = "it must lie in a folder that all nodes share"
        sentence = f"can't run the script: {change.reason}; {advice}"
        refuse(Refusal[change.code.upper()], sentence)
    differs = {}
    for fact, value in read_facts(config).items():
        first = job.facts.get(fact)
        if value == first:
            continue
        if fact in (*COMMON, *FRAMEWORKS[config.framework].facts):
            sentence = f"has {fact} {value!r}, node 0 has {first!r}; make them alike"
            refuse(Refusal.NODES_DIFFER, sentence)
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
