"""The driver: plans repeats, runs them in fresh processes, collects, stores. No framework."""

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from perfkit.config import Config, Protocol, portable, resolved_path
from perfkit.driver.cluster import ClusterLauncher
from perfkit.driver.connection import InvalidMessageError, LostError
from perfkit.driver.failures import NodeError, failure, unwritten
from perfkit.driver.node_agent import join
from perfkit.driver.progress import Progress
from perfkit.driver.repeat import run_repeat
from perfkit.driver.workers import Launcher
from perfkit.frameworks import FRAMEWORKS
from perfkit.inputs import InputError
from perfkit.inputs.data_set import digest, examine
from perfkit.models import MODELS
from perfkit.request import RequestError
from perfkit.request.checks import problems, read_environment
from perfkit.request.hosts import own_index
from perfkit.results.schema import (
    SCHEMA_VERSION,
    Failure,
    InputData,
    Reading,
    Result,
    measurement_id,
)
from perfkit.results.store import (
    Measurement,
    ResultError,
    Store,
    make_folder,
    read_result,
    write_atomically,
    write_last_result,
    write_result,
)
from perfkit.results.summarize import check_against_raw


def measure(config: Config, protocol: Protocol) -> Measurement:
    """Measure `config` under `protocol`; what was already measured of it is not run again.

    Whatever goes wrong during a repeat is reported by the returned measurement's `status` and
    `failure`, and stored; nothing is raised for it. Raises RequestError if the configuration
    can't run on this machine or the same measurement is being made by another process.

    With launcher=manual, on a host that is not the first: serves the measurement that the
    first one makes, and returns that.
    """
    framework = FRAMEWORKS.get(config.framework)
    devices = framework.visible_devices(config.device, config.interpreter) if framework else []
    if wrong := problems(config, len(devices)):
        raise RequestError(wrong)
    if config.launcher == "manual" and (node := own_index(config.host_list)):
        return _serve(config, protocol, node)
    environment = read_environment(config.framework, config.data_folder, config.interpreter)
    return resume(config, protocol, environment)


def resume(
    config: Config,
    protocol: Protocol,
    environment: dict[str, Reading],
    until: int | None = None,
    shared: Progress | None = None,
) -> Measurement:
    """The measurement of a resolved `config` with what was missing of its repeats, or of those
    up to `until`, which may be 0; as `measure` else. A `shared` progress is that of several
    measurements."""
    folder = measurement_folder(config, protocol, environment)
    make_folder(folder)
    try:
        with FileLock(Store(folder).lock_file, timeout=0):
            _measure(config, protocol, environment, folder, until, shared)
    except Timeout:
        problem = f"{folder.name} is being measured by another process right now"
        advice = "Wait for it, or give this one a label of its own: -p label NAME"
        raise RequestError([f"{problem}. {advice}"]) from None
    return Measurement.read(folder)


def _serve(config: Config, protocol: Protocol, number: int) -> Measurement:
    """Be node `number` of the measurement that the first host makes; its result."""
    text = join(config, protocol, number)
    if text is None:
        raise LostError("the first host ended without a result; it says why")
    try:
        result = Result.model_validate_json(text)
    except ValidationError as error:
        raise InvalidMessageError("bye.result", str(error)[:200]) from error
    folder = measurement_folder(config, protocol, result.environment)
    asked = (folder.name, config.identity, protocol)
    if (result.id, result.config.identity, result.protocol) != asked:
        raise InvalidMessageError("bye.result", "not what was asked for here")
    earlier = _begin(config, protocol, result.environment, folder)
    if any(repeat not in result.repeats for repeat in earlier.complete_repeats):
        raise InvalidMessageError("bye.result", "without a repeat that is stored here")
    make_folder(folder)
    # Where nodes share the folder, this is the text that it has already.
    write_atomically(Store(folder).result_file, text)
    return Measurement(folder, result)


def measurement_folder(
    config: Config, protocol: Protocol, environment: dict[str, Reading]
) -> Path:
    """Where the results of exactly this measurement belong: `outputs_dir/<id>`."""
    name = measurement_id(config, protocol, environment, digest(config))
    return resolved_path(config.outputs_dir) / name


def is_complete(folder: Path) -> bool:
    """Whether the measurement in `folder` has all its repeats."""
    try:
        return read_result(Store(folder).result_file).status == "complete"
    except ResultError:
        return False


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
    own = Progress(protocol.repeats, protocol.steps, MODELS[config.model].unit, protocol.budget)
    try:
        samples = None
        if config.input != "synthetic":
            data = examine(config)
            samples = len(data)
            found = InputData(samples=samples, sha256=data.sha256)
            result = result.model_copy(update={"input_data": found})
        with (
            (ClusterLauncher if config.nodes > 1 else Launcher)(config, protocol) as launcher,
            nullcontext(shared) if shared else own as progress,
        ):
            nodes = launcher.wait_for_nodes(progress.show_status)
            # Repeats made on other nodes join these only if those show the same facts.
            before = [node.differs for node in result.nodes]
            if result.complete_repeats and before != [node.differs for node in nodes]:
                names = [node.name for node in result.nodes]
                raise NodeError("nodes_differ", earlier_nodes=names)
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
                launcher.result_json = result.model_dump_json(indent=1)
                if result.failure or result.ended_by:
                    break
    except InputError as error:
        _stored(folder, _concluded(result, failure("bad_input", detail=str(error))))
    except NodeError as error:
        _stored(folder, _concluded(result, error.failure))
    except KeyboardInterrupt:
        _stored(folder, _concluded(result, failure("interrupted")))
        raise
    if interrupted:
        raise KeyboardInterrupt


def _stored(folder: Path, result: Result) -> Result:
    """`result`, stored; with a failure, should more be to come and no room be left for it.

    Raises OSError if not even that can be stored.
    """
    try:
        write_result(folder, result)
    except OSError as error:
        if result.status != "complete":
            result = _concluded(result, result.failure or unwritten(error))
        write_last_result(folder, result)
    return result


def _begin(
    config: Config, protocol: Protocol, environment: dict[str, Reading], folder: Path
) -> Result:
    """The stored result with its complete repeats, or a new one."""
    path = Store(folder).result_file
    if path.exists():
        try:
            stored = read_result(path)
            wrong = check_against_raw(Measurement(folder, stored))
            problem = f"{path}: contradicts its raw files: {wrong[0]}" if wrong else ""
        except ResultError as error:
            problem = str(error)
        if problem:
            advice = "move it away, or give a label of your own: -p label NAME"
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
    """`result` with status, failure and throughput as its repeats have them."""
    result = result.model_copy(update={"failure": failure})
    update = {"status": result.derived_status, "throughput": result.derived_throughput}
    return result.model_copy(update=update)
