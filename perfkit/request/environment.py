"""Where a measurement is made: facts of the machine and of the framework that trains, and what
the workers' interpreter has installed."""

import sys
from pathlib import Path

from perfkit.config import Config
from perfkit.frameworks import FRAMEWORKS
from perfkit.results.schema import Reading
from perfkit.system.environment import read_facts
from perfkit.system.software import PACKAGES, Software, read_software

WORKER = ("numpy", "pydantic", "threadpoolctl")
"""What every worker imports, besides the framework and what the input needs."""
OF_INPUT = {"dali": ("nvidia.dali", "PIL"), "dataloader": ("PIL", "h5py"), "synthetic": ()}


def read_environment(
    framework: str, data_dir: Path, interpreter: str = sys.executable
) -> dict[str, Reading]:
    """Every fact of this machine by name, and those of the framework; `data_dir` is where the
    input lies, `interpreter` what runs the workers. Raises InterpreterError."""
    facts = FRAMEWORKS[framework]
    software = read_software(interpreter, {**PACKAGES, **facts.versions})
    environment = read_facts(data_dir, software)
    absent = Reading(value=None, missing=f"this {facts.name} is a CPU build")
    if software.versions[facts.facts[0]]:
        found = software.versions
        environment |= {fact: absent for fact in facts.facts if not found[fact]}
    return environment


def software_for(config: Config) -> Software:
    """What the workers' interpreter has of what this configuration needs. Raises
    InterpreterError."""
    framework = FRAMEWORKS[config.framework]
    modules = [*WORKER, framework.module, *OF_INPUT[config.input]]
    modules += ["pynvml"] if config.device == "gpu" else []
    return read_software(config.interpreter, framework.versions, modules)
