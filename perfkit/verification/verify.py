"""`perfkit verify`: has frameworks do the same training, and compares what they did."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from perfkit.config import FIELDS, Config, Protocol, portable, resolved_path, select
from perfkit.driver.task import TaskError, perform
from perfkit.frameworks import FRAMEWORKS
from perfkit.models import MODELS
from perfkit.request.environment import read_environment
from perfkit.request.errors import RequestError
from perfkit.request.plan import plan
from perfkit.results.schema import Reading
from perfkit.results.store import write_atomically
from perfkit.verification.stored import FOLDER, SCHEMA_VERSION, Against, Side, Verification
from perfkit.verification.verdict import Account, judged
from perfkit.worker.trace import COPIES, STEPS

FIXED = {"device": "cpu", "input": "synthetic", "protocol": "quick"}
WITNESSES, LOCK = ".witnesses-", ".lock"
FACTS = ("cpu", "suite", "suite_source", "suite_commit", "suite_modified")


def sides(model: str, named: str | None, values: Mapping[str, Any]) -> list[Config]:
    """The configurations to compare, the base first: of `named`, as `paddle,torch:static`, each
    a framework with what differs from its usual execution and layout; None: all that are
    installed and have the optimizer. Raises RequestError."""
    problems = []
    for name in values:
        if name in ("framework", "execution", "layout"):
            problems.append(f"{name}: is said by --frameworks, as in paddle,torch:static:NCHW")
        elif name in FIELDS and name not in (takes := select(verified=True)):
            problems.append(f"{name}: a verification has its own; it takes {', '.join(takes)}")
    optimizer = values.get("optimizer") or (
        MODELS[model].optimizers[0] if model in MODELS else ""
    )
    able = [
        name
        for name, framework in FRAMEWORKS.items()
        if framework.version and optimizer in framework.supports.get("optimizer", (optimizer,))
    ]
    words = [side.split(":") for side in (able if named is None else named.split(","))]
    if len(words) < 2:
        problems.append(
            f"--frameworks: two are needed to compare; installed for this: {', '.join(able)}"
        )
    configs: list[Config] = []
    for framework, *how in words:
        ways: dict[str, Any] = {"framework": framework}
        for word in how:
            name = "layout" if word in ("NCHW", "NHWC") else "execution"
            ways[name] = word
        try:
            config = plan(model, FIXED | dict(values) | ways).config
        except RequestError as error:
            problems += [one for one in error.problems if one not in problems]
            continue
        if config in configs:
            problems.append(f"--frameworks: {':'.join([framework, *how])} is there already")
        configs.append(config)
    if problems:
        raise RequestError(problems)
    return configs


def verify(configs: Sequence[Config], say: Callable[[str], None]) -> tuple[Verification, Path]:
    """Compare the work of the first of these configurations with that of each other, and store
    what comes out; `say` is told which of them begins.

    Takes disk room for COPIES copies of the parameters until it ends. Raises TaskError where a
    framework fails, or the room is not there.
    """
    base = configs[0]
    folder = resolved_path(base.outputs_dir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    heard: list[Account] = []
    environment: dict[str, Reading] = {}
    with _shared_folder(folder) as shared:
        _see_room(base, folder)
        for number, config in enumerate(configs):
            framework = FRAMEWORKS[config.framework]
            say(", ".join(filter(None, [framework.name, config.execution, config.layout])))
            raw = shared / str(number)
            (events,) = perform(config, Protocol.named("quick"), "verify", raw)
            heard.append(Account.of(events))
            environment |= read_environment(config.framework, folder)
    made = Verification(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        **base.model_dump(include={*Verification.model_fields}),
        steps=STEPS,
        base=_side(base),
        against=[
            Against(side=_side(config), checks=judged(heard[0], other, base))
            for config, other in zip(configs[1:], heard[1:], strict=True)
        ],
        environment={name: environment[name] for name in FACTS},
    )
    path = folder / made.file_name
    write_atomically(path, made.model_dump_json(indent=1))
    return made, path


@contextmanager
def _shared_folder(folder: Path) -> Iterator[Path]:
    """A folder below `folder` for what the witnesses leave, locked while it is in use. Those of
    verifications that were killed, which nobody has locked, are removed first."""
    for lock in folder.glob(f"{WITNESSES}*/{LOCK}"):
        with suppress(Timeout), FileLock(lock, timeout=0):
            shutil.rmtree(lock.parent, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=WITNESSES, dir=folder) as shared,
        FileLock(Path(shared) / LOCK),
    ):
        yield Path(shared)


def _side(config: Config) -> Side:
    version = FRAMEWORKS[config.framework].version
    assert version
    how = config.model_dump(include={"framework", "execution", "layout"})
    return Side(version=version, **how)


def _see_room(config: Config, folder: Path) -> None:
    needed = COPIES * 4 * MODELS[config.model].parameters
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise TaskError(
            f"disk_full: {portable(str(folder))} has {free / 1e9:.1f} GB of room, and what is "
            f"compared takes {needed / 1e9:.1f} meanwhile; make room, or name another folder: "
            "-p outputs_dir FOLDER"
        )
