"""What the ranks of a node run: the worker of a built-in model, or a script of the user's."""

import os
from abc import ABC, abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import perfkit
from perfkit.core.config import Config, Protocol
from perfkit.core.driver.settings import (
    script_environment,
    with_dali_settings,
    worker_environment,
)
from perfkit.core.driver.supervised import SCRIPT, WORKER
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.frameworks.facts import NodeRank, visible_variable
from perfkit.core.script_config import AnyConfig, ScriptConfig
from perfkit.core.system.environment import usable_cores
from perfkit.core.timing.job import ScriptJob, ScriptTask

LINKS = "python"
"""Folder in the scratch folder in which a script's interpreter finds perfkit."""


class RankJob(ABC):
    """What each rank of a node runs."""

    module: str
    """The module that each rank runs, with the path of its job file."""

    def command(self, interpreter: str, job_file: Path) -> list[str]:
        """Return the command of a rank."""
        return [interpreter, "-m", self.module, str(job_file)]

    @abstractmethod
    def content(self, task: str, raw_folder: Path) -> dict[str, Any]:
        """Return the content of the job file. `raw_folder`: where the ranks write."""

    @abstractmethod
    def environment(self, place: NodeRank, scratch: Path) -> dict[str, str]:
        """Return the environment of the ranks of the node at `place`."""


class ModelRankJob(RankJob):
    module = WORKER

    def __init__(self, config: Config, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol

    def content(self, task: str, raw_folder: Path) -> dict[str, Any]:
        return {
            "task": task,
            "config": with_dali_settings(self.config, usable_cores()).model_dump(),
            "protocol": self.protocol.model_dump(),
            "raw_folder": str(raw_folder.resolve()),
        }

    def environment(self, place: NodeRank, _scratch: Path) -> dict[str, str]:
        return worker_environment(self.config, place)


class ScriptRankJob(RankJob):
    module = SCRIPT
    tasks: ClassVar[dict[str, ScriptTask]] = {"measure": "script", "read_input": "script_input"}
    """Task of workers -> its name in the job file."""

    def __init__(self, config: ScriptConfig, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol

    def command(self, interpreter: str, job_file: Path) -> list[str]:
        """Return the command of a rank, which sees no GPU if it is to train on a CPU: most
        scripts take a GPU if they see one. The launcher does not get this variable, because
        Paddle's takes it for a list of its devices."""
        command = super().command(interpreter, job_file)
        if self.config.device == "cpu":
            return ["env", f"{visible_variable('gpu')}=", *command]
        return command

    def content(self, task: str, raw_folder: Path) -> dict[str, Any]:
        config, protocol = self.config, self.protocol
        framework = FRAMEWORKS[config.framework]
        job = ScriptJob(
            task=self.tasks[task],
            script=str(config.script_file),
            arguments=config.argument_list,
            framework=config.framework,
            device=config.device,
            ranks=config.ranks,
            rank_variable=framework.rank_variable if config.ranks > 1 else "",
            raw_folder=str(raw_folder.resolve()),
            warmup_steps=protocol.warmup_steps,
            measured_steps=protocol.measured_steps,
            warmup_limit=protocol.warmup_limit,
            warmup_seconds=protocol.warmup_seconds,
            static_modules=config.modules,
        )
        return asdict(job)

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
