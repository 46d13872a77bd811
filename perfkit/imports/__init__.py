"""Logs of other suites as a measurement: what they tell, and what must be said besides.

What no log tells and nobody says stays unknown. The steps that the number is of are those of
the protocol `published` where prints end there, else the nearest that they allow.

told.py   what logs and hands tell: configuration and environment
steps.py  which steps the number is of
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from perfkit.config import Config, Protocol, resolved_path
from perfkit.importers import read_log
from perfkit.importers.log import Log, LogError, Running, SincePrint
from perfkit.imports.steps import Training, window_of
from perfkit.imports.told import ENVIRONMENT, STEPS, Told, config_of, environment_of, told_of
from perfkit.models import MODELS
from perfkit.request.refusal import RequestError
from perfkit.results.files import Measurement, windows_file, write_atomically, write_last_result
from perfkit.results.numbers import disagreements
from perfkit.results.schema import (
    SCHEMA_VERSION,
    Imported,
    ImportedLog,
    Reading,
    Result,
    Throughput,
)
from perfkit.results.windows import Basis, Window, numbers_of_windows, rated_samples
from perfkit.statistics import median
from perfkit.text.terminal import plain

ODD_BATCH = 0.1
"""By how much the samples of a step that a log's own rates and times make may differ from those
that the batch size makes: a rate may leave out what is waited for input."""


def import_logs(paths: Sequence[Path], given: Mapping[str, str], outputs: Path) -> Measurement:
    """Store what the logs tell, each as a repeat of one measurement, below `outputs`; one that
    is stored already is left as it is, and given its windows again if they were damaged.

    `given` are parameters, and facts as `environment.<fact>`, as they are typed. Raises
    RequestError with all that is wrong or lacking, ResultError where what is stored already
    can't be read.
    """
    problems: list[str] = []
    logs = [log for path in paths if (log := _read(path, problems))]
    if problems := [*problems, *_unlike(logs)]:
        raise RequestError(problems)
    told = told_of(logs, given, problems)
    config = None if problems else config_of(told, problems)
    if config is None or problems:
        raise RequestError(problems)
    asked = {name: told[name][0] for name in STEPS if name in told}
    basis, protocol, trainings = window_of(logs, asked)
    imported = _imported(trainings, basis, protocol, told, given)
    if problems := _odd_batch(trainings, config, imported):
        raise RequestError(problems)
    kept = [[w for w in one.windows if w["last"] <= protocol.steps] for one in trainings]
    try:
        repeats = [
            numbers_of_windows(index, config, protocol, imported, windows)
            for index, windows in enumerate(kept, 1)
        ]
    except (ValueError, ArithmeticError) as error:
        raise RequestError([f"no throughput follows from these logs: {error}"]) from error
    environment = environment_of(told, config)
    name = _name(config, protocol, imported, environment)
    result = Result(
        schema_version=SCHEMA_VERSION,
        id=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete",
        config=config,
        protocol=protocol,
        environment=environment,
        repeats=repeats,
        throughput=Throughput.of(repeats, MODELS[config.model].unit),
        imported=imported,
    )
    return _stored(resolved_path(str(outputs)) / name, result, kept)


def _read(path: Path, problems: list[str]) -> Log | None:
    try:
        return read_log(path)
    except LogError as error:
        problems.append(plain(str(error)))
    return None


def _file(log: Log) -> str:
    return plain(log.path.name)


def _unlike(logs: Sequence[Log]) -> list[str]:
    """What keeps logs from being repeats of one measurement."""
    problems = []
    names: dict[str, str] = {}
    for log in logs:
        if first := names.get(log.sha256):
            problems.append(f"{_file(log)}: the same bytes as {first}; a log is one repeat")
        names[log.sha256] = _file(log)
        if not log.windows.count:
            own = ", ".join(plain(f"{told.name} {told.text}") for told in log.told[-3:])
            problems.append(f"{_file(log)}: tells of no step{own and f', only {own}'}")
    kinds = {log.format: _file(log) for log in logs}
    if len(kinds) > 1:
        words = "; ".join(f"{name} is of {kind}" for kind, name in kinds.items())
        problems.append(f"logs of one measurement have one format: {words}")
    return problems


def _odd_batch(trainings: Sequence[Training], config: Config, imported: Imported) -> list[str]:
    """What is wrong with the batch size, by the rates and times that a log prints."""
    problems = []
    wanted = rated_samples(config, imported)
    whose = "all devices" if imported.rate_of == "all" else "a device"
    for training in trainings:
        steps = [
            window["own_rate"] * window["seconds"] / (window["last"] - window["first"] + 1)
            for window in training.windows
            if window["own_rate"] is not None and window["seconds"] is not None
        ]
        if steps and abs(median(steps) / wanted - 1) > ODD_BATCH:
            problems.append(
                f"batch_size: rates and times that {_file(training.log)} prints make "
                f"{median(steps):.4g} samples a step of {whose}; batch_size, accumulate and "
                f"topology make {wanted}"
            )
    return problems


def _imported(
    trainings: Sequence[Training],
    basis: Basis,
    protocol: Protocol,
    told: Told,
    given: Mapping[str, str],
) -> Imported:
    log = trainings[0].log
    covers = log.meaning.covers
    kind: Literal["window", "running", "step"] = "window"
    if not isinstance(covers, SincePrint):
        kind = "running" if isinstance(covers, Running) else "step"
    return Imported(
        format=log.format,
        rate_of=log.meaning.rate_of,
        covers=kind,
        since=getattr(covers, "since", None),
        step=log.meaning.step,
        counts_from=log.meaning.counts_from,
        reader=log.meaning.reader,
        source=log.meaning.source,
        basis=basis,
        logs=[_log(training, protocol) for training in trainings],
        facts={
            name: by
            for name, (_value, by) in told.items()
            if name in Config.model_fields or name.startswith(ENVIRONMENT)
        },
        given={name: plain(value) for name, value in given.items()},
    )


def _log(training: Training, protocol: Protocol) -> ImportedLog:
    lines = [
        window["line"]
        for window in training.windows
        if protocol.warmup_steps < window["last"] <= protocol.steps
    ]
    return ImportedLog(
        file=_file(training.log),
        sha256=training.log.sha256,
        lines=(min(lines), max(lines)),
        epoch=training.epoch,
        run=training.run,
    )


def _name(
    config: Config,
    protocol: Protocol,
    imported: Imported,
    environment: Mapping[str, Reading],
) -> str:
    """As driver.measurement_folder names what perfkit measures: the digest is of all that
    makes it this measurement."""
    facts = {name: reading.value for name, reading in environment.items()}
    parts = [config.model_dump(), protocol.model_dump(), imported.model_dump(), facts]
    hashed = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    name = [config.model, config.framework, config.precision, config.topology]
    name += [f"b{config.batch_size}", config.device, str(config.input), "imported"]
    return "-".join([*name, *filter(None, [config.label]), hashed[:8]])


def _stored(folder: Path, result: Result, kept: Sequence[Sequence[Window]]) -> Measurement:
    """What is there already stays, unless its windows do not give its numbers. Raises
    RequestError where the folder can't be written to."""
    there = (folder / "result.json").exists()
    if not there or disagreements(Measurement.read(folder)):
        for index, windows in enumerate(kept, 1):
            path = windows_file(folder, index)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RequestError([f"--outputs: {path.parent}: {error.strerror}"]) from error
            write_atomically(path, "".join(f"{json.dumps(window)}\n" for window in windows))
        if not there:
            write_last_result(folder, result)
    return Measurement.read(folder)
