"""What the ranks of a node run: a script of the user's, or the script of a built-in model."""

import os
from abc import ABC, abstractmethod
from dataclasses import MISSING, asdict
from pathlib import Path
from typing import Any

import perfkit
from perfkit.core.config import Config, Protocol
from perfkit.core.driver.settings import (
    script_environment,
    with_dali_settings,
    worker_environment,
)
from perfkit.core.driver.supervised import RANK
from perfkit.core.script_config import AnyConfig, ScriptConfig
from perfkit.core.system.devices import visible_variable
from perfkit.core.system.environment import usable_cores
from perfkit.core.system.gpus import near_cores
from perfkit.timing.job import Job, Task
from perfkit.training.frameworks import AFFINITY, FRAMEWORKS, NodeRank
from perfkit.training.options import Options, options

LINKS = "python"
"""Folder in the scratch folder in which a script's interpreter finds perfkit."""
TASKS: dict[str, Task] = {
    "measure": "train",
    "read_input": "read_input",
    "verify": "run",
}
"""Task of workers -> its name in the job file."""


class RankJob(ABC):
    """What each rank of a node runs."""

    @abstractmethod
    def command(self, task: str, job_file: Path) -> list[str]:
        """Return the command of a rank."""

    @abstractmethod
    def content(self, task: str, raw_folder: Path) -> dict[str, Any]:
        """Return the content of the job file. `raw_folder`: where the ranks write."""

    @abstractmethod
    def environment(self, place: NodeRank, scratch: Path) -> dict[str, str]:
        """Return the environment of the ranks of the node at `place`."""


def job_content(
    config: AnyConfig, protocol: Protocol, task: str, raw_folder: Path, **others: Any
) -> dict[str, Any]:
    """Return the content of the job file of a script."""
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
        warmup_limit=protocol.warmup_limit,
        warmup_seconds=protocol.warmup_seconds,
        **others,
    )
    return asdict(job)


class ModelRankJob(RankJob):
    """The script of a built-in model: perfkit.training.<framework>.train, or .verify."""

    def __init__(self, config: Config, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol

    def command(self, task: str, job_file: Path) -> list[str]:
        config = self.config
        script = "verify" if task == "verify" else "train"
        asked = with_dali_settings(config, usable_cores())
        asked = asked.model_copy(update={"data_dir": str(config.data_folder)})
        return [
            *(config.interpreter, "-m", RANK, str(job_file)),
            *("-m", f"perfkit.training.{config.framework}.{script}"),
            *training_arguments(asked),
        ]

    def content(self, task: str, raw_folder: Path) -> dict[str, Any]:
        config = self.config
        cores: list[list[int]] = []
        if config.device == "gpu" and config.tunes(AFFINITY):
            cores = near_cores(config.devices)
        return job_content(
            config, self.protocol, task, raw_folder, static_modules=[], cores=cores
        )

    def environment(self, place: NodeRank, _scratch: Path) -> dict[str, str]:
        return worker_environment(self.config, place)


def training_arguments(config: Config) -> list[str]:
    """Return the arguments of a training script that differ from its defaults. The timer ends
    the training after the window."""
    asked = config.model_dump()
    if config.input == "synthetic":
        del asked["data_dir"]
    usual = Options(framework=config.framework, model=config.model, device=config.device)
    words = []
    for each in options():
        value = asked.get(each.name)
        is_usual = each.default is not MISSING and value == getattr(usual, each.name)
        if value is None or (is_usual and each.name != "device"):
            continue
        words.append("--" + each.name.replace("_", "-"))
        if not isinstance(value, bool):
            words.append(str(value))
    return words


class ScriptRankJob(RankJob):
    def __init__(self, config: ScriptConfig, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol

    def command(self, _task: str, job_file: Path) -> list[str]:
        """Return the command of a rank, which sees no GPU if it is to train on a CPU: most
        scripts take a GPU if they see one. The launcher does not get this variable, because
        Paddle's takes it for a list of its devices."""
        config = self.config
        command = [config.interpreter, "-m", RANK, str(job_file)]
        command += [str(config.script_file), *config.argument_list]
        if config.device == "cpu":
            return ["env", f"{visible_variable('gpu')}=", *command]
        return command

    def content(self, task: str, raw_folder: Path) -> dict[str, Any]:
        return job_content(
            self.config,
            self.protocol,
            task,
            raw_folder,
            static_modules=self.config.modules,
            cores=[],
        )

    def environment(self, place: NodeRank, scratch: Path) -> dict[str, str]:
        """Return this process's environment with the settings of a script. perfkit comes last
        in PYTHONPATH, alone, so that the interpreter finds no other package of the driver's."""
        links = scratch / LINKS
        links.mkdir()
        package = Path(perfkit.__file__).parent
        (links / package.name).symlink_to(package, target_is_directory=True)
        folders = filter(None, [os.environ.get("PYTHONPATH"), str(links)])
        settings = script_environment(self.config, place)
        return settings | {"PYTHONPATH": os.pathsep.join(folders)}


def rank_job(config: AnyConfig, protocol: Protocol) -> RankJob:
    if isinstance(config, ScriptConfig):
        return ScriptRankJob(config, protocol)
    return ModelRankJob(config, protocol)
