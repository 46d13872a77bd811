"""Traces each framework in its own process, compares the traces, and stores the result."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from perfkit.analysis.verification.judge import Trace, judge
from perfkit.analysis.verification.stored import (
    FOLDER,
    SCHEMA_VERSION,
    FrameworkSetup,
    SetupComparison,
    Verification,
    setup_name,
)
from perfkit.measuring.config import Config
from perfkit.measuring.driver.repeat import perform
from perfkit.measuring.paths import stored_path
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.store import write_atomically
from perfkit.measuring.work import ModelWork
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.trace import STEPS

TRACES, LOCK = ".traces-", ".lock"
"""Prefix of the folders of traces, and the name of the lock in each."""
FACTS = ("cpu", "suite", "suite_source", "suite_commit", "suite_modified")
"""Facts of the environment that are stored."""


class TracedSetup(NamedTuple):
    """A framework's setup, what its training did, and its environment."""

    setup: FrameworkSetup
    trace: Trace
    environment: dict[str, Reading]


def verify(configs: Sequence[Config], say: Callable[[str], None]) -> tuple[Verification, Path]:
    """Compare the work of the first configuration with each other's and store the verification.
    `say` is called with each configuration before it runs.

    The traces, which are removed, have many copies of the parameters. Raises TaskError if a
    framework fails, also for lack of disk space.
    """
    folder = stored_path(configs[0].outputs_dir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    traced = []
    with _shared_folder(folder) as shared:
        for number, config in enumerate(configs):
            name = FRAMEWORKS[config.framework].display_name
            work = config.work.built_in
            say(setup_name(name, work.execution, work.layout))
            traced.append(_traced(config, shared / str(number), folder))
    verification = _judged(configs[0].work.built_in, traced)
    path = folder / verification.file_name
    write_atomically(path, verification.model_dump_json(indent=1))
    return verification, path


def _traced(config: Config, raw_folder: Path, folder: Path) -> TracedSetup:
    """Train a few steps of `config` and return what happened."""
    (events,) = perform(config, Protocol.named("quick"), "verify", raw_folder)
    environment = read_environment(config.framework, folder, config.interpreter)
    version = environment[FRAMEWORKS[config.framework].facts[0]].value
    setup = FrameworkSetup(
        framework=config.framework,
        version=str(version),
        execution=config.work.built_in.execution,
        layout=config.work.built_in.layout,
    )
    return TracedSetup(setup, Trace.of(events), environment)


def _judged(work: ModelWork, traced: Sequence[TracedSetup]) -> Verification:
    """Return the verification of these setups, whose base trained `work`."""
    base, *others = traced
    comparisons = []
    for other in others:
        checks = judge(base.trace, other.trace, work)
        comparisons.append(SetupComparison(side=other.setup, checks=checks))
    return Verification(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=work.model,
        model_size=work.model_size,
        optimizer=work.optimizer,
        image_size=work.image_size,
        sequence_length=work.sequence_length,
        batch_size=work.batch_size,
        seed=work.seed,
        steps=STEPS,
        base=base.setup,
        against=comparisons,
        environment={name: base.environment[name] for name in FACTS},
    )


@contextmanager
def _shared_folder(folder: Path) -> Iterator[Path]:
    """Make a temporary folder below `folder` for the traces, locked while in use. Unlocked
    folders, left by killed verifications, are removed first."""
    for lock in folder.glob(f"{TRACES}*/{LOCK}"):
        with suppress(Timeout), FileLock(lock, timeout=0):
            shutil.rmtree(lock.parent, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=TRACES, dir=folder) as shared,
        FileLock(Path(shared) / LOCK),
    ):
        yield Path(shared)
