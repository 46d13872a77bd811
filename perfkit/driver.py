"""The driver: plans repeats, runs them in fresh processes, collects, stores. No framework."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from perfkit.config import Config, Protocol, portable, resolved_path
from perfkit.environment import identity, read_environment
from perfkit.gpus import visible_gpus
from perfkit.inputs.files import InputError, check_files, read_list
from perfkit.progress import Progress
from perfkit.repeat import failure, run_repeat
from perfkit.request import RequestError, resolve
from perfkit.results import (
    Failure,
    InputData,
    Measurement,
    Reading,
    Result,
    ResultError,
    Throughput,
    read_result,
    write_result,
)
from perfkit.statistics import median, median_interval

LOCK = ".lock"
UNITS: dict[str, Any] = {"resnet50": "images/s"}


def measure(config: Config, protocol: Protocol) -> Measurement:
    """Measure `config` under `protocol`; what was already measured of it is not run again.

    Whatever goes wrong during a repeat is told by the returned measurement's `status` and
    `failure`, and stored; nothing is raised for it. Raises RequestError if the configuration
    can't run on this machine or the same measurement is being made by another process.
    """
    config = resolve(config, len(visible_gpus()))
    environment = read_environment(resolved_path(config.data_dir))
    folder = measurement_folder(config, protocol, environment)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            _measure(config, protocol, environment, folder)
    except Timeout:
        raise RequestError(
            [
                f"{folder.name} is being measured by another process right now. Wait for it, "
                "or give this one a label of its own: -p label NAME"
            ]
        ) from None
    return Measurement.read(folder)


def measurement_folder(
    config: Config, protocol: Protocol, environment: dict[str, Reading]
) -> Path:
    """Where the results of exactly this measurement belong: `outputs_dir/<id>`.

    The id ends in a digest of configuration, protocol, environment and the list of training
    files, so that only repeats of one and the same measurement ever come together.
    """
    where_and_how_long = {"outputs_dir", "timeout"}
    try:
        data = hashlib.sha256(
            (resolved_path(config.data_dir) / "train_list.txt").read_bytes()
        ).hexdigest()
    except OSError:
        data = None
    parts = [
        config.model_dump(exclude=where_and_how_long),
        protocol.model_dump(),
        identity(environment),
        data if config.input != "synthetic" else None,
    ]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    name = [config.model, config.framework, config.precision, config.topology]
    name += [f"b{config.batch_size}", config.device, config.input, protocol.name]
    name += [config.label] if config.label else []
    return resolved_path(config.outputs_dir) / "-".join([*name, digest[:8]])


def is_complete(folder: Path) -> bool:
    """Whether the measurement in `folder` has all its repeats."""
    try:
        return read_result(folder / "result.json").status == "complete"
    except ResultError:
        return False


def _measure(
    config: Config, protocol: Protocol, environment: dict[str, Reading], folder: Path
) -> None:
    result = _begin(config, protocol, environment, folder)
    done = {repeat.index for repeat in result.complete_repeats}
    missing = [k for k in range(1, protocol.repeats + 1) if k not in done]
    if not missing:
        return
    write_result(folder, result)
    if config.input != "synthetic":
        try:
            listed = read_list(resolved_path(config.data_dir))
            check_files(listed)
        except InputError as error:
            failed = failure("bad_input", str(error))
            write_result(folder, _concluded(result, failed))
            return
        data = InputData(images=len(listed.paths), list_sha256=listed.sha256)
        result = result.model_copy(update={"input_data": data})
    with Progress(protocol.repeats, protocol.steps, UNITS[config.model]) as progress:
        for index in missing:
            repeat, effective = run_repeat(config, protocol, folder, index, progress)
            kept = [r for r in result.repeats if r.index != index]
            repeats = sorted([*kept, repeat], key=lambda r: r.index)
            update = {"repeats": repeats, "effective": effective or result.effective}
            result = _concluded(result.model_copy(update=update), repeat.failure)
            write_result(folder, result)
            if repeat.failure and repeat.failure.code == "interrupted":
                raise KeyboardInterrupt
            if repeat.failure:
                return


def _begin(
    config: Config, protocol: Protocol, environment: dict[str, Reading], folder: Path
) -> Result:
    """The stored result with its complete repeats, or a new one."""
    path = folder / "result.json"
    if path.exists():
        try:
            return _concluded(read_result(path), None)
        except ResultError as error:
            advice = "move it away, or give a label of your own: -p label NAME"
            raise RequestError([f"{portable(str(error))}; {advice}"]) from error
    return Result(
        id=folder.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status="partial",
        config=config,
        protocol=protocol,
        environment=environment,
    )


def _concluded(result: Result, failure: Failure | None) -> Result:
    """`result` with status, failure and throughput as its repeats have them."""
    complete = result.complete_repeats
    if len(complete) == result.protocol.repeats:
        status = "complete"
    else:
        status = "partial" if complete or not failure else "failed"
    values = [repeat.throughput for repeat in complete if repeat.throughput is not None]
    return result.model_copy(
        update={
            "status": status,
            "failure": failure,
            "throughput": throughput(values, UNITS[result.config.model]) if values else None,
        }
    )


def throughput(values: list[float], unit: Any) -> Throughput:
    """The median over repeats with its interval."""
    interval = median_interval(values)
    return Throughput(
        value=median(values),
        unit=unit,
        statistic="median",
        interval=(interval.low, interval.high) if interval else None,
        interval_level=interval.level if interval else None,
        n=len(values),
    )
