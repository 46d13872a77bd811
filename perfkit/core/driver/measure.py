"""Runs the missing repeats of a measurement and stores its result. Imports no framework."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from perfkit.core.config import Config, Protocol
from perfkit.core.driver.cluster import ClusterLauncher, remove_abandoned
from perfkit.core.driver.failures import NodeError, unwritten
from perfkit.core.driver.progress import Progress
from perfkit.core.driver.repeat import run_repeat
from perfkit.core.driver.workers import Launcher
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.inputs import InputError
from perfkit.core.inputs.data_set import digest, examine
from perfkit.core.models import model_of
from perfkit.core.paths import portable, resolved_path
from perfkit.core.request import RequestError
from perfkit.core.request.checks import problems
from perfkit.core.request.requirements import read_environment
from perfkit.core.results import store
from perfkit.core.results.failures import BadInput, Failure, Interrupted, NodesDiffer
from perfkit.core.results.identity import Reading, measurement_id
from perfkit.core.results.schema import SCHEMA_VERSION, InputData, Result
from perfkit.core.results.store import Measurement, ResultError, Store
from perfkit.core.results.summarize import check_against_raw

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
    framework = FRAMEWORKS[config.framework]
    try:
        devices = framework.visible_devices(config.device, config.interpreter)
    except OSError as error:
        raise RequestError([f"gpus: {error}"]) from None
    if wrong := problems(config, len(devices)):
        raise RequestError(wrong)
    environment = read_environment(config.framework, config.data_folder, config.interpreter)
    return resume(config, protocol, environment)


def resume(
    config: Config,
    protocol: Protocol,
    environment: dict[str, Reading],
    until: int | None = None,
    shared: Progress | None = None,
) -> Measurement:
    """Like `measure`, for a resolved `config`; `until`: run repeats only up to this one, which
    may be 0; `shared`: the progress of several measurements."""
    folder = measurement_folder(config, protocol, environment)
    store.make_folder(folder)
    taken = f"{folder.name} {BEING_MEASURED}. Wait for it, or use another label: -p label NAME"
    with alone(Store(folder).lock_file, taken):
        _measure(config, protocol, environment, folder, until, shared)
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
        folder = portable(str(lock_file.parent))
        problem = f"outputs_dir: the file system of {folder} has no file locks"
        advice = "choose a folder on another one (for Lustre: mounted with -o flock)"
        raise RequestError([f"{problem} ({error}); {advice}: -p outputs_dir FOLDER"]) from None
    try:
        yield
    finally:
        lock.release()


def measurement_folder(
    config: Config, protocol: Protocol, environment: dict[str, Reading]
) -> Path:
    """The folder of this measurement's results: `outputs_dir/<id>`."""
    name = measurement_id(config, protocol, environment, digest(config))
    return resolved_path(config.outputs_dir) / name


def is_complete(folder: Path) -> bool:
    """Whether the measurement in `folder` has all its repeats."""
    try:
        return store.read_result(Store(folder).result_file).status == "complete"
    except ResultError:
        return False


def finished_repeats(folder: Path) -> int:
    """The number of complete repeats of the measurement in `folder`; 0 if it can't be read."""
    try:
        return len(store.read_result(Store(folder).result_file).complete_repeats)
    except ResultError:
        return 0


def _measure(
    config: Config,
    protocol: Protocol,
    environment: dict[str, Reading],
    folder: Path,
    until: int | None,
    shared: Progress | None,
) -> None:
    result = _begin(config, protocol, environment, folder)
    if result.ended_by:
        return
    result = _stored(folder, result)
    done = {repeat.index for repeat in result.complete_repeats}
    last = protocol.repeats if until is None else until
    missing = [k for k in range(1, last + 1) if k not in done]
    if result.failure or not missing:
        return
    interrupted = False
    own = Progress(protocol.repeats, protocol.steps, model_of(config).unit, protocol.budget)
    try:
        samples = None
        if config.input != "synthetic":
            data = examine(config)
            samples = len(data)
            found = InputData(samples=samples, sha256=data.sha256)
            result = result.model_copy(update={"input_data": found})
        with (
            _launcher(config, protocol, folder) as launcher,
            nullcontext(shared) if shared else own as progress,
        ):
            nodes = launcher.wait_for_nodes(progress.show_status)
            # Repeats of other nodes are continued only if those have the same facts.
            before = [node.differs for node in result.nodes]
            if result.complete_repeats and before != [node.differs for node in nodes]:
                names = [node.name for node in result.nodes]
                raise NodeError(NodesDiffer(earlier_nodes=names))
            result = result.model_copy(update={"nodes": nodes})
            for index in missing:
                repeat, effective, interrupted = run_repeat(
                    launcher, Store(folder), index, progress, samples
                )
                repeat = repeat.model_copy(update={"nodes": [node.name for node in nodes]})
                kept = [r for r in result.repeats if r.index != index]
                repeats = sorted([*kept, repeat], key=lambda r: r.index)
                update = {"repeats": repeats, "effective": effective or result.effective}
                result = _concluded(result.model_copy(update=update), repeat.failure)
                result = _stored(folder, result)
                if result.failure or result.ended_by:
                    break
    except InputError as error:
        _stored(folder, _concluded(result, BadInput(detail=portable(str(error)))))
    except NodeError as error:
        _stored(folder, _concluded(result, error.failure))
    except KeyboardInterrupt:
        _stored(folder, _concluded(result, Interrupted()))
        raise
    if interrupted:
        raise KeyboardInterrupt


def _launcher(config: Config, protocol: Protocol, folder: Path) -> Launcher:
    """The launcher of a measurement in `folder`, which no other process is measuring."""
    if config.nodes == 1:
        return Launcher(config, protocol)
    remove_abandoned(folder)
    return ClusterLauncher(config, protocol, folder)


def _stored(folder: Path, result: Result) -> Result:
    """Store and return `result`. If that fails and repeats are missing, add the failure. Raises
    OSError if not even that can be stored."""
    try:
        store.write_result(folder, result)
    except OSError as error:
        if result.status != "complete":
            result = _concluded(result, result.failure or unwritten(error))
        store.write_last_result(folder, result)
    return result


def _begin(
    config: Config, protocol: Protocol, environment: dict[str, Reading], folder: Path
) -> Result:
    """The stored result with its complete repeats, or a new one."""
    path = Store(folder).result_file
    if path.exists():
        try:
            stored = store.read_result(path)
            wrong = check_against_raw(Measurement(folder, stored))
            problem = f"{path}: contradicts its raw files: {wrong[0]}" if wrong else ""
        except ResultError as error:
            problem = str(error)
        if problem:
            advice = "move it away, or use another label: -p label NAME"
            raise RequestError([f"{portable(problem)}; {advice}"])
        return _concluded(stored, None)
    return Result(
        schema_version=SCHEMA_VERSION,
        id=folder.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status="partial",
        config=config,
        protocol=protocol,
        environment=environment,
    )


def _concluded(result: Result, failure: Failure | None) -> Result:
    """`result` with `failure`, and with status and throughput derived from its repeats."""
    result = result.model_copy(update={"failure": failure})
    update = {"status": result.derived_status, "throughput": result.derived_throughput}
    return result.model_copy(update=update)
