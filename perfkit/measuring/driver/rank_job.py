"""What a rank runs: its command, and the file that tells it the protocol."""

import json
from dataclasses import asdict
from pathlib import Path

from perfkit.measuring.config import Config
from perfkit.measuring.driver.supervised import FOLLOW, PYTHON, RANK
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.system.devices import visible_variable
from perfkit.timing.job import Job, Task
from perfkit.training.frameworks import FRAMEWORKS

TASKS: dict[str, Task] = {
    "measure": "train",
    "read_input": "read_input",
    "profile": "train",
    "verify": "run",
}
"""Task of workers -> its name in the job file."""


def rank_command(config: Config, task: str, job_file: Path) -> list[str]:
    """Return the command of a rank, which sees no GPU if it is to train on a CPU: most scripts
    take a GPU if they see one. The launcher does not get this variable, because Paddle's takes
    it for a list of its devices."""
    words = config.work.script_words(config, task)
    program = [config.interpreter, "-m", RANK]
    if config.work.launches_itself:
        program = [*PYTHON, "-m", FOLLOW]
    command = [*program, str(job_file), *words]
    if config.device == "cpu":
        return ["env", f"{visible_variable('gpu')}=", *command]
    return command


def write_job(
    job_file: Path, config: Config, protocol: Protocol, task: str, raw_folder: Path
) -> None:
    """Write what each rank of a node is to do. `raw_folder`: where the ranks write."""
    framework = FRAMEWORKS[config.framework]
    job = Job(
        task=TASKS[task],
        framework=config.framework,
        device=config.device,
        ranks=config.ranks,
        rank_variable=framework.rank_variable if config.ranks > 1 else "",
        raw_folder=str(raw_folder.resolve()),
        warmup_steps=protocol.warmup_steps,
        measured_steps=protocol.measured_steps,
        measured_seconds=protocol.measured_seconds,
        warmup_limit=protocol.warmup_limit,
        warmup_seconds=protocol.warmup_seconds,
        static_modules=config.work.modules,
        cores=config.work.cores(config),
        profile=task == "profile",
    )
    job_file.write_text(json.dumps(asdict(job)))
