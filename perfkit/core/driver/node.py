"""The node program: `python -m perfkit.core.driver.node FOLDER NODE`.

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

from perfkit.core.driver.node_files import (
    JOB,
    POLL_SECONDS,
    NodeJob,
    Refusal,
    move_raw_files,
    read_facts,
)
from perfkit.core.driver.workers import LocalWorkers
from perfkit.core.request.hosts import own_addresses, route_address
from perfkit.core.results.schema import NodeSeen
from perfkit.core.results.store import write_atomically
from perfkit.core.script_config import ScriptConfig
from perfkit.core.system.devices import visible_devices
from perfkit.core.system.environment import package_source
from perfkit.core.system.scratch import Scratch
from perfkit.timing.failure import portable
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

STARTING_SECONDS = 60.0
"""Time limit of the workers besides `timeout`, for a node that a broken link has cut off."""
COMMON = ("data", "script", "suite_source", "python", "dali", "numpy")
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
    if isinstance(job.config, ScriptConfig):
        enter_folder_of(job.config, job.working_directory)
    try:
        run_workers(folder, node, job)
    except OSError as error:
        refuse(Refusal.IO_ERROR, f"failed: {error}")


def refuse(refusal: Refusal, sentence: str) -> NoReturn:
    """Exit; `sentence` continues the node's name."""
    print(portable(sentence), file=sys.stderr)
    sys.exit(refusal)


def enter_folder_of(script: ScriptConfig, working_directory: str) -> None:
    """Change to the folder in which a script runs. Exits if this node can't run it."""
    try:
        os.chdir(working_directory)
        script.script_file.read_bytes()
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
    """Wait until the workers exit or standard input closes. A line in it is the last step of
    their warm-up."""
    while not workers.wait(POLL_SECONDS):
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        if readable:
            line = sys.stdin.readline()
            if not line:
                return
            workers.end_warmup(int(line))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
