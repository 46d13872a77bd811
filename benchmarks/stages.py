"""Stages of a long measurement: commands with a name and the minutes that they are expected to
take. What has finished is recorded, so that the same call goes on where an earlier one ended.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.store import write_atomically

PERFKIT = str(Path(sys.executable).with_name("perfkit"))
SECONDS_PER_MINUTE = 60


class StageError(Exception):
    """A command failed, or a group does not show what it is there to show."""


@dataclass(frozen=True)
class Stage:
    """A part of a group: what it does, its expected minutes on 2 idle cores, and the function
    that does it, which may be called again after an interruption."""

    title: str
    minutes: float
    do: Callable[[], None]


@dataclass(frozen=True)
class Group:
    """Stages that are measured in this order."""

    name: str
    stages: Sequence[Stage]

    @property
    def minutes(self) -> float:
        return sum(stage.minutes for stage in self.stages)

    def key(self, stage: Stage) -> str:
        """Return the stage's name in a record."""
        return f"{self.name}: {stage.title}"


@dataclass
class Record:
    """The commit that measures, and the minutes that each finished stage took, by its key."""

    commit: str
    minutes: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> "Record | None":
        """Return the record in the file, None without one."""
        if not file.exists():
            return None
        return cls(**json.loads(file.read_text()))

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(asdict(self), indent=1))

    def minutes_left(self, groups: Sequence[Group]) -> float:
        """Return the expected minutes of all stages that have not finished."""
        left = 0.0
        for group in groups:
            for stage in group.stages:
                if group.key(stage) not in self.minutes:
                    left += stage.minutes
        return left


def run_stages(groups: Sequence[Group], record: Record, file: Path) -> None:
    """Run the stages that have not finished, and store each in `file` once it has. Raises
    StageError; after that, or an interruption, the same call goes on."""
    for number, group in enumerate(groups, 1):
        for part, stage in enumerate(group.stages, 1):
            place = f"[{number}/{len(groups)}] {group.name} {part}/{len(group.stages)}"
            if group.key(stage) in record.minutes:
                print(f"{place}: {stage.title}: kept", flush=True)
                continue
            print(f"\n{place}: {stage.title}, about {stage.minutes:g} min", flush=True)
            began = time.monotonic()
            stage.do()
            minutes = (time.monotonic() - began) / SECONDS_PER_MINUTE
            record.minutes[group.key(stage)] = round(minutes, 2)
            record.write(file)
            left = record.minutes_left(groups)
            print(f"{place}: took {minutes:.1f} min; about {left:.0f} min left", flush=True)


def perfkit(
    *words: str, statuses: Sequence[int] = (0,), environment: Mapping[str, str] | None = None
) -> int:
    """Run a command of perfkit in the checkout as a user does, and return its exit status.
    Raises StageError if it is not among `statuses`."""
    print(f"$ {shlex.join(['perfkit', *words])}", flush=True)
    done = subprocess.run([PERFKIT, *words], cwd=ROOT, env=environment, check=False)
    if done.returncode not in statuses:
        expected = " or ".join(map(str, statuses))
        raise StageError(f"perfkit {words[0]} exited with {done.returncode}, not {expected}")
    return done.returncode
