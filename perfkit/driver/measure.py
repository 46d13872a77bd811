"""The driver: plans repeats, runs them in fresh processes, collects, stores. No framework."""

import hashlib
import json
import re
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from perfkit.config import Config, Protocol, portable, resolved_path
from perfkit.driver.cluster import ClusterLauncher
from perfkit.driver.connection import LostError
from perfkit.driver.failures import NodeError, failure, unwritten
from perfkit.driver.node_agent import join
from perfkit.driver.progress import Progress
from perfkit.driver.repeat import run_repeat
from perfkit.driver.workers import LocalLauncher
from perfkit.inputs import InputError
from perfkit.inputs.data_set import digest, examine
from perfkit.models import MODELS
from perfkit.request.checks import problems
from perfkit.request.environment import read_environment
from perfkit.request.errors import RequestError
from perfkit.request.hosts import own_index
from perfkit.results.schema import (
    SCHEMA_VERSION,
    Effective,
    Failure,
    InputData,
    NodeSeen,
    Reading,
    Repeat,
    Result,
    Throughput,
)
from perfkit.results.store import (
    Measurement,
    ResultError,
    Store,
    read_result,
    write_atomically,
    write_last_result,
    write_result,
)
from perfkit.system.environment import identity
from perfkit.system.gpus import visible_gpus


def measure(config: Config, protocol: Protocol) -> Measurement:
    """Measure `config` under `protocol`; what was already measured of it is not run again.

    Whatever goes wrong during a repeat is told by the returned measurement's `status` and
    `failure`, and stored; nothing is raised for it. Raises RequestError if the configuration
    can't run on this machine or the same measurement is being made by another process.

    With launcher=manual, on a host that is not the first: serves the measurement that the
    first one makes, and returns that.
    """
    if wrong := problems(config, len(visible_gpus())):
        raise RequestError(wrong)
    if config.launcher == "manual" and (node := own_index(config.host_list)):
        return _serve(config, protocol, node)
    return resume(config, protocol, read_environment(config.framework, config.data_folder))


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
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(Store(folder).lock_file, timeout=0):
            _measure(config, protocol, environment, folder, until, shared)
    except Timeout:
        raise RequestError(
            [
                f"{folder.name} is being measured by another process right now. Wait for it, "
                "or give this one a label of its own: -p label NAME"
            ]
        ) from None
    return Measurement.read(folder)


def _serve(config: Config, protocol: Protocol, number: int) -> Measurement:
    """Be node `number` of the measurement that the first host makes; its result."""
    text = join(config, protocol, number)
    if text is None:
        raise LostError("the first host ended without a result; it says why")
    result = Result.model_validate_json(text)
    if not re.fullmatch(r"\w[\w.-]*", result.id):
        raise LostError(f"the first host sent a result whose id names no folder: {result.id!r}")
    folder = resolved_path(config.outputs_dir) / result.id
    folder.mkdir(parents=True, exist_ok=True)
    # Where nodes share the folder, this is the text that it has already.
    write_atomically(Store(folder).result_file, text)
    return Measurement(folder, result)


def measurement_folder(
    config: Config, protocol: Protocol, environment: dict[str, Reading]
) -> Path:
    """Where the results of exactly this measurement belong: `outputs_dir/<id>`.

    The id ends in a digest of configuration, protocol, environment and the training data, so
    that only repeats of one and the same measurement ever come together.
    """
    parts = [
        config.identity,
        protocol.model_dump(),
        identity(environment),
        digest(config),
    ]
    hashed = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    name = [config.model, config.framework, config.precision, config.topology]
    name += [f"b{config.batch_size}", config.device, config.input, protocol.name]
    name += [config.label] if config.label else []
    return resolved_path(config.outputs_dir) / "-".join([*name, hashed[:8]])


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
    try:
        result = _with_input_data(result)
        kind = ClusterLauncher if config.nodes > 1 else LocalLauncher
        own = Progress(
            protocol.repeats, protocol.steps, MODELS[config.model].unit, protocol.budget
        )
        with (
            kind(config, protocol) as launcher,
            nullcontext(shared) if shared else own as progress,
        ):
            seen = launcher.wait_for_nodes(progress.show_status)
            _check_same_nodes(result, seen)
            result = result.model_copy(update={"nodes": seen})
            for index in missing:
                repeat, effective, interrupted = run_repeat(
                    launcher, Store(folder), index, progress
                )
                result = _stored(folder, _with_repeat(result, repeat, effective))
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


def _with_input_data(result: Result) -> Result:
    """`result` with what was found of its data set, if it has one. Raises InputError."""
    if result.config.input == "synthetic":
        return result
    data = examine(result.config)
    found = InputData(samples=len(data), sha256=data.sha256)
    return result.model_copy(update={"input_data": found})


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


def _check_same_nodes(result: Result, seen: list[NodeSeen]) -> None:
    """Repeats made on other nodes join these only if those show the same facts. Raises
    NodeError."""
    before = [node.differs for node in result.nodes]
    if result.complete_repeats and before != [node.differs for node in seen]:
        names = [node.name for node in result.nodes]
        raise NodeError("nodes_differ", earlier_nodes=names)


def _with_repeat(result: Result, repeat: Repeat, effective: Effective | None) -> Result:
    """`result` with a repeat that was run now."""
    repeat = repeat.model_copy(update={"nodes": [node.name for node in result.nodes]})
    kept = [r for r in result.repeats if r.index != repeat.index]
    repeats = sorted([*kept, repeat], key=lambda r: r.index)
    update = {"repeats": repeats, "effective": effective or result.effective}
    return _concluded(result.model_copy(update=update), repeat.failure)


def _begin(
    config: Config, protocol: Protocol, environment: dict[str, Reading], folder: Path
) -> Result:
    """The stored result with its complete repeats, or a new one."""
    path = Store(folder).result_file
    if path.exists():
        try:
            return _concluded(read_result(path), None)
        except ResultError as error:
            advice = "move it away, or give a label of your own: -p label NAME"
            raise RequestError([f"{portable(str(error))}; {advice}"]) from error
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
    complete, unit = result.complete_repeats, MODELS[result.config.model].unit
    if result.ended_by:
        status = "complete"
    else:
        status = "partial" if complete or not failure else "failed"
    return result.model_copy(
        update={
            "status": status,
            "failure": failure,
            "throughput": Throughput.of(complete, unit) if complete else None,
        }
    )
