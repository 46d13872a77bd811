"""What the driver asks of one rank."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

Task = Literal["train", "read_input", "run"]


@dataclass(frozen=True)
class Job:
    """The task of a rank, which the driver writes as a JSON object into a scratch folder."""

    task: Task
    """train under the protocol, only read the input, or run the script to its end, which then
    needs no timer"""
    framework: str
    """name of the framework whose launcher has started the ranks"""
    device: str
    """type of the requested device: cpu, gpu, or another that Paddle has"""
    ranks: int
    """number of all ranks"""
    rank_variable: str
    """environment variable with the number of the rank; empty for a single rank"""
    raw_folder: str
    """folder of the raw files"""
    warmup_steps: int
    """length of the warm-up; if it is automatic, the shortest"""
    measured_steps: int
    """steps of the window"""
    measured_seconds: float
    """shortest window, which then may have more steps, after a warm-up of a third of it"""
    warmup_limit: int | None
    """longest warm-up until the steps are steady; None: it need not be steady"""
    warmup_seconds: float | None
    """time after which such a warm-up ends; None: never"""
    static_modules: list[str]
    """names of the modules of the script's folder that import statements name"""
    cores: list[list[int]]
    """cores on which each rank of this node runs, such as those near its GPU; empty: all"""
    profile: bool = False
    """whether the framework's profiler traces the steps of the window"""

    @classmethod
    def read(cls, file: Path) -> Self:
        return cls(**json.loads(file.read_text()))
