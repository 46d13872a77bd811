"""Runs the missing repeats of a measurement and stores its result. Imports no framework."""

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from perfkit.inputs import InputError
from perfkit.measuring.config import Config
from perfkit.measuring.driver.cluster import ClusterLauncher, remove_abandoned
from perfkit.measuring.driver.conclusion import Concluded
from perfkit.measuring.driver.failures import NodeError
from perfkit.measuring.driver.profile import profile
from perfkit.measuring.driver.progress import RepeatsProgress, display
from perfkit.measuring.driver.repeat import run_repeat
from perfkit.measuring.driver.workers import Launcher
from perfkit.measuring.format import minute
from perfkit.measuring.paths import stored_path
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.checks import problems
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.results import store
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.identity import measurement_id
from perfkit.measuring.results.schema import SCHEMA_VERSION, InputData, NodeSeen, Result
from perfkit.measuring.results.store import Measurement, ResultError, Store
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.timing.failure import portable

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of a lock on a file system that has none, as NFS without its lock service."""
BEING_MEASURED = "is being measured by another process right now"


def measure(config: Config, protocol: Protocol) -> Measurement:
    """Measure `config` under `protocol`, reusing the repeats that are already stored.

    Errors during a repeat are not raised, but stored and returned in the measurement's `status`
    and `failure`. Raises RequestError if the configuration can't run on this machine or another
    process is making the same measurement.

    In a notebook, the last line of the progress replaces the output of the cell.
    """
    if wrong := problems(config):
        raise RequestError(wrong)
    environment = read_environment(
        config.framework, config.work.data_folder, config.interpreter
    )
    stored = stored_result(measurement_folder(config, protocol, environment))
    if stored and stored.status == "complete":
        on = minute(stored.created)
        display().print(f"Already measured on {on}; -p label NAME measures again")
    return resume(config, protocol, environment)


def resume(
    config: Config,
    protocol: Protocol,
    environment: dict[str, Reading],
    until: int | None = None,
    shared: RepeatsProgress | None = None,
) -> Measurement:
    """Measure like `measure`, for a resolved `config`. `until`: run repeats only up to this
    one, which may be 0. `shared`: the progress of several measurements."""
    folder = measurement_folder(config, protocol, environment)
    folder.mkdir(parents=True, exist_ok=True)
    taken = f"{folder.name} {BEING_MEASURED}. Wait for it, or use another label: -p label NAME"
    with alone(Store(folder).lock_file, taken):
        run = MeasurementRun(config, protocol, folder, environment)
        run.make_repeats(until, shared)
        if config.profile and until is None and run.result.status == "complete":
            profile(config, protocol, Measurement(folder, run.result))
    return Measurement.read(folder)


@contextmanager
def alone(lock_file: Path, taken: str) -> Iterator[None]:
    """Hold the lock of a measurement, a comparison or a sweep. Raises RequestError if another
    process holds it, with the sentence `taken`, or if the file system has no locks; OSError."""
    # Without locks, filelock would leave a file that outlives a kill.
    lock = FileLock(lock_file, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise RequestError([taken]) from None
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in NO_LOCKS:
            raise
        problem = (
            f"outputs_dir: the file system of {lock_file.parent} has no file locks ({error}); "
            "choose a folder on another one (for Lustre: mounted with -o flock): -p "
            "outputs_dir FOLDER"
        )
        raise RequestError([problem]) from None
    try:
        yield
    finally:
        lock.release()


def measurement_folder(
    config: Config, protocol: Protocol, environment: dict[str, Reading]
) -> Path:
    """Return the folder of this measurement's results: `outputs_dir/<id>`."""
    name = measurement_id(config, protocol, environment, config.work.data_sha256)
    return stored_path(config.outputs_dir) / name


def stored_result(folder: Path) -> Result | None:
    """Return the result of the measurement in `folder`; None if none can be read."""
    try:
        return store.read_result(Store(folder).result_file)
    except ResultError:
        return None


class MeasurementRun:
    """The missing repeats of a measurement, which are made now. `result` is what its folder
    holds: the complete repeats of earlier runs, and those of this one."""

    def __init__(
        self,
        config: Config,
        protocol: Protocol,
        folder: Path,
        environment: dict[str, Reading],
    ) -> None:
        """Raises RequestError if the stored result can't be continued."""
        self.config = config
        self.protocol = protocol
        self.folder = folder
        self.result = _result_to_continue(folder) or Result(
            schema_version=SCHEMA_VERSION,
            id=folder.name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            status="partial",
            config=config,
            protocol=protocol,
            environment=environment,
        )

    def make_repeats(self, until: int | None, shared: RepeatsProgress | None) -> None:
        """Make the missing repeats up to `until`, and store each. Raises KeyboardInterrupt if
        the user interrupts them."""
        if self.result.ended_by:
            return
        store.write_result(self.folder, self.result)
        missing = self.missing(until)
        if not missing:
            return
        try:
            self._make(missing, shared)
        except InputError as error:
            self.conclude(Failure(code="bad_input", reason=portable(str(error))))
        except NodeError as error:
            self.conclude(error.failure)
        except KeyboardInterrupt:
            if not self.result.failure:
                self.conclude(Failure(code="interrupted", reason="interrupted"))
            raise

    def missing(self, until: int | None) -> list[int]:
        """Return the numbers of the repeats that are not complete, up to `until`."""
        last = self.protocol.repeats if until is None else until
        complete = [repeat.index for repeat in self.result.complete_repeats]
        return [index for index in range(1, last + 1) if index not in complete]

    def _make(self, missing: list[int], shared: RepeatsProgress | None) -> None:
        """Make these repeats until one fails or the protocol ends them. Raises InputError,
        NodeError and KeyboardInterrupt."""
        samples = self.examine_data()
        with self.launcher() as launcher, self.progress(shared) as progress:
            for index in missing:
                changed = self.config.work.change()
                if changed:
                    self.conclude(changed)
                    return
                store, told = Store(self.folder), self.result.told
                made = run_repeat(launcher, store, index, progress, samples, told)
                self.add(made, launcher.nodes)
                if made.repeat.failure and made.repeat.failure.code == "interrupted":
                    raise KeyboardInterrupt
                if self.result.failure or self.result.ended_by:
                    return

    def examine_data(self) -> int | None:
        """Note the data set in the result, and return its size; None for synthetic input."""
        data = self.config.work.examine(self.config)
        if data is None:
            return None
        input_data = InputData(samples=len(data), sha256=data.sha256)
        self.result = self.result.model_copy(update={"input_data": input_data})
        return len(data)

    def launcher(self) -> Launcher:
        """Return the launcher; no other process is measuring in the folder."""
        if self.config.nodes == 1 or self.config.work.launches_itself:
            return Launcher(self.config, self.protocol)
        remove_abandoned(self.folder)
        earlier = self.result.nodes if self.result.complete_repeats else []
        return ClusterLauncher(self.config, self.protocol, self.folder, earlier)

    def progress(
        self, shared: RepeatsProgress | None
    ) -> AbstractContextManager[RepeatsProgress]:
        """Return the progress to enter; a shared one has been entered already."""
        if shared:
            return nullcontext(shared)
        unit = self.result.counts.unit
        return RepeatsProgress(
            self.protocol.repeats, self.protocol.steps, unit, self.protocol.budget
        )

    def add(self, made: Concluded, nodes: list[NodeSeen]) -> None:
        """Store a repeat, which replaces an earlier try, and its failure as the result's."""
        names = [node.name for node in nodes]
        repeat = made.repeat.model_copy(update={"nodes": names})
        repeats = [other for other in self.result.repeats if other.index != repeat.index]
        repeats.append(repeat)
        repeats.sort(key=lambda repeat: repeat.index)
        changes: dict[str, Any] = {"repeats": repeats, "nodes": nodes}
        changes["effective"] = made.effective or self.result.effective
        changes["nccl_network"] = made.nccl_network or self.result.nccl_network
        # What a script tells in a repeat that fails does not bind the others.
        if not repeat.failure and not self.result.told:
            changes["told"] = made.told
        self.result = self.result.model_copy(update=changes)
        self.conclude(repeat.failure)

    def conclude(self, failure: Failure | None) -> None:
        """Store the result with the failure of its last repeat, or without one."""
        self.result = _concluded(self.result, failure)
        store.write_result(self.folder, self.result)


def _result_to_continue(folder: Path) -> Result | None:
    """Return the stored result of an earlier run without its failure; None if there is none.
    Raises RequestError if it can't be read or contradicts its raw files."""
    path = Store(folder).result_file
    if not path.exists():
        return None
    try:
        result = store.read_result(path)
        difference = check_against_raw(Measurement(folder, result))
    except ResultError as error:
        raise _not_continued(str(error)) from None
    if difference:
        raise _not_continued(f"{path}: contradicts its raw files: {difference}")
    return _concluded(result, None)


def _not_continued(problem: str) -> RequestError:
    advice = "move it away, or use another label: -p label NAME"
    return RequestError([f"{problem}; {advice}"])


def _concluded(result: Result, failure: Failure | None) -> Result:
    """Return the result with a failure, and with status and throughput derived from its
    repeats."""
    result = result.model_copy(update={"failure": failure})
    derived = {"status": result.derived_status, "throughput": result.derived_throughput}
    return result.model_copy(update=derived)
