"""Where a measurement is made: facts of the machine and of the framework that trains."""

from pathlib import Path

from perfkit.frameworks import FRAMEWORKS
from perfkit.results.schema import Reading
from perfkit.system.environment import read_facts


def read_environment(framework: str, data_dir: Path) -> dict[str, Reading]:
    """Every fact of this machine by name, and those of the framework; `data_dir` is where the
    input lies."""
    facts = FRAMEWORKS[framework]
    missing = f"this {facts.name} is a CPU build" if facts.version else "not installed"
    return read_facts(data_dir) | {
        name: Reading(value=value, missing=None if value else missing)
        for name, value in facts.build().items()
    }
