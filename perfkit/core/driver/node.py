"""The node program: `python -m perfkit.core.driver.node facts|repeat FOLDER [NODE]`.

The driver starts it on every node but its own, under a supervisor, which ends it with all its
processes when the driver ends. It reads FOLDER/job.json, does what that says, writes its answer
into FOLDER (node_files.py), and exits. srun starts the same command on all nodes, so there NODE
follows from the task.
"""

import json
import os
import sys
import time
from pathlib import Path

from perfkit.core.driver.exit_info import ExitInfo
from perfkit.core.driver.network import try_each_other
from perfkit.core.driver.node_files import (
    END,
    JOB,
    POLL_SECONDS,
    Answer,
    End,
    ExitStatus,
    FactsJob,
    RepeatJob,
    listed,
    machine_name,
    move_raw_files,
    read,
    read_facts,
    told_last_step,
    write,
)
from perfkit.core.driver.workers import LocalWorkers
from perfkit.core.script_config import ScriptConfig
from perfkit.core.system.environment import package_source
from perfkit.core.system.scratch import Scratch
from perfkit.timing.failure import portable


def main(task: str, folder: Path, number: str = "") -> None:
    """Do the job in `folder`. Exits with an ExitStatus if the answer can't be written there."""
    try:
        has_job = JOB in listed(folder)
    except OSError:
        has_job = False
    if not has_job:
        print(f"{machine_name()} does not see {folder}", file=sys.stderr)
        sys.exit(ExitStatus.NOT_SHARED)
    try:
        if task == "facts":
            # With srun, the first task runs on node 1.
            tell_facts(folder, int(number or int(os.environ["SLURM_PROCID"]) + 1))
        else:
            run_repeat(folder, int(number) if number else None)
    except OSError as error:
        print(f"{machine_name()}: {error}", file=sys.stderr)
        sys.exit(ExitStatus.IO_ERROR)


def tell_facts(folder: Path, node: int) -> None:
    """Write this node's facts and, if asked for, which other nodes it can't reach."""
    package = json.loads((folder / JOB).read_text(encoding="utf-8"))["package"]
    if package != package_source():
        # A job of another perfkit may have other fields.
        write(folder, f"facts-{node}.json", Answer(other_package=package_source()))
        return
    job = read(folder, JOB, FactsJob)
    first_address = job.first_address or os.environ["SLURM_LAUNCH_NODE_IPADDR"]
    problem = script_problem(job)
    if problem:
        write(folder, f"facts-{node}.json", Answer(script_problem=problem))
        return
    try:
        facts = read_facts(job.config, first_address)
    except (OSError, ValueError) as error:
        detail = portable(f"{type(error).__name__}: {error}")
        write(folder, f"facts-{node}.json", Answer(error=detail))
        return
    if not job.try_each_other:
        write(folder, f"facts-{node}.json", Answer(facts=facts))
        return
    deadline = time.monotonic() + job.config.timeout
    try_each_other(folder, node, facts, job.config.nodes, deadline)


def script_problem(job: FactsJob) -> str | None:
    """Return why this node can't run the script; None if it can, and for a model."""
    if not isinstance(job.config, ScriptConfig):
        return None
    try:
        job.config.script_file.read_bytes()
    except OSError as error:
        return portable(str(error))
    folder = job.working_directory
    if folder and not Path(folder).is_dir():
        return portable(f"{folder}, the working directory, is not there")
    return None


def run_repeat(folder: Path, node: int | None) -> None:
    """Run this node's workers until they exit or the driver wants them to end; then move their
    raw files and write how they ended."""
    job = read(folder, JOB, RepeatJob)
    if node is None:
        node = job.names.index(machine_name())
    with (
        Scratch() as scratch,
        LocalWorkers(
            job.config,
            job.protocol,
            scratch.folder,
            job.job,
            job.places[node],
            cwd=Path(job.working_directory) if job.working_directory else None,
        ) as workers,
    ):
        end = wait_for_end(folder, workers, job)
        workers.end(dump_stacks=bool(end and end.dump_stacks))
        ended: ExitInfo = workers.exit_info()
        move_raw_files(scratch.folder, workers.ranks, folder)
        write(folder, f"ended-{node}.json", ended)


def wait_for_end(folder: Path, workers: LocalWorkers, job: RepeatJob) -> End | None:
    """Wait until the workers exit, or return what the driver says about their end. Meanwhile,
    pass on to the ranks which is the last step of their warm-up."""
    awaits_last_step = job.protocol.warmup_limit is not None
    while not workers.wait(POLL_SECONDS):
        if END in listed(folder):
            return read(folder, END, End)
        last_step = told_last_step(folder) if awaits_last_step else None
        if last_step is not None:
            workers.end_warmup(last_step)
            awaits_last_step = False
    return None


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
