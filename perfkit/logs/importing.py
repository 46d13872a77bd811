"""Import logs of other suites as a measurement.

Parameters that neither a log nor the user gives stay unknown. The measured steps are those of
the protocol `published` if prints end there, else the nearest that the prints allow.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

from perfkit.config import PROTOCOLS, Config, Protocol, choices, is_open, resolved_path, select
from perfkit.frameworks import FRAMEWORKS
from perfkit.logs.config_facts import Sourced
from perfkit.logs.findings import findings_of
from perfkit.logs.formats import LogFormat
from perfkit.logs.log import Log, LogError
from perfkit.logs.reader import read_logs
from perfkit.logs.recompute import Figures, step_samples
from perfkit.logs.wording import sentence
from perfkit.messages import Message
from perfkit.models import MODELS
from perfkit.request import RequestError, suggest, validated
from perfkit.request.plan import typed
from perfkit.results import schema, store
from perfkit.results.frames import records
from perfkit.results.summarize import (
    FIELDS,
    Basis,
    Window,
    by_rank,
    check_against_raw,
    covering,
    rated_samples,
    summarize_windows,
)
from perfkit.system.environment import FACTS
from perfkit.text.terminal import plain, printable

STEPS = ("warmup_steps", "measured_steps")
ENVIRONMENT = "environment."
BASES: tuple[Basis, ...] = ("seconds", "own_rate", "clock")
PRINTS = 100_000
"""Prints of a log, from the first on, in which the window is searched."""
ODD_BATCH = 0.1
"""Share by which the samples of a step computed from a log's rates and times may differ from
the batch size: a rate may exclude the data wait."""
Known = dict[str, Sourced]
Stretch = tuple[Basis, int, int]
"""Source of the step times, first step and last step."""


def import_logs(
    paths: Sequence[Path],
    given: Mapping[str, str],
    outputs: Path,
    form: LogFormat | None = None,
) -> store.Measurement:
    """Store each log as a repeat of one measurement below `outputs`. A stored measurement is
    kept, but its damaged windows are rewritten.

    `given` are parameters, and facts as `environment.<fact>`, as typed; `form` is the format of
    the logs if it is not a known format. Raises RequestError with all errors, or ResultError if
    a stored measurement can't be read.
    """
    problems: list[str] = []
    logs = [log for path in paths for log in _read(path, form, problems)]
    _fail([*problems, *_unlike(logs)])
    known = known_of(logs, given, problems)
    _fail(problems)
    config = config_of(known)
    requested = {name: known[name].value for name in STEPS if name in known}
    basis, protocol, epochs = window_of(logs, requested)
    figures = [Figures(log) for log in logs]
    semantics = asdict(logs[0].semantics)
    if semantics["covers"] == "step":
        semantics["since"] = None
    imported = schema.Imported(
        **{k: v for k, v in semantics.items() if k in schema.Imported.model_fields},
        format=logs[0].format,
        rate_unit=str(logs[0].fact("unit") or ""),
        basis=basis,
        logs=[_origin(epoch, protocol) for epoch in epochs],
        facts={
            name: fact.by
            for name, fact in known.items()
            if name in Config.model_fields or name.startswith(ENVIRONMENT)
        },
        given={k: printable(v) for k, v in {**given, **(form.options if form else {})}.items()},
        findings=[finding for f in figures for finding in findings_of(_file(f.log), f)],
    )
    _fail([*_odd_batches(figures, config, imported)])
    kept = [[w for w in epoch.windows if w["last"] <= protocol.steps] for epoch in epochs]
    try:
        repeats = [
            summarize_windows(index, config, protocol, imported, windows)
            for index, windows in enumerate(kept, 1)
        ]
    except (ValueError, ArithmeticError) as error:
        raise RequestError([f"no throughput follows from these logs: {error}"]) from error
    environment = environment_of(known, config)
    result = schema.Result(
        schema_version=schema.SCHEMA_VERSION,
        id=schema.measurement_id(config, protocol, environment, None, imported),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete",
        config=config,
        protocol=protocol,
        environment=environment,
        repeats=repeats,
        throughput=schema.Throughput.of(repeats, MODELS[config.model].unit),
        imported=imported,
    )
    return _stored(resolved_path(str(outputs)) / result.id, result, kept)


def _fail(problems: list[str]) -> None:
    if problems:
        raise RequestError(problems)


def _file(log: Log) -> str:
    return plain(log.path.name)


def _read(path: Path, form: LogFormat | None, problems: list[str]) -> list[Log]:
    try:
        found = read_logs(path, form)
    except LogError as error:
        problems.append(plain(f"{path}: {error}"))
        return []
    if len(found) > 1:
        problems.append(
            f"{plain(str(path))}: {len(found)} trainings of different configurations; split "
            "the file by training"
        )
    return found[:1]


def _unlike(logs: Sequence[Log]) -> Iterator[str]:
    """Yield the reasons why logs cannot be repeats of one measurement."""
    names: dict[str, str] = {}
    for log in logs:
        file = _file(log)
        if first := names.get(log.sha256):
            yield f"{file}: same content as {first}; each repeat needs its own log"
        names[log.sha256] = file
        if log.fact("mode") == "inference":
            yield f"{file}: inference, not training"
        if not len(log.windows):
            own = ", ".join(plain(f"{f.name} {f.text}") for f in log.reported[-3:])
            yield f"{file}: no printed steps{own and f', only {own}'}"
    kinds = {log.format: _file(log) for log in logs}
    if len(kinds) > 1:
        words = "; ".join(f"{name}: {kind}" for kind, name in kinds.items())
        yield f"logs of one measurement must have the same format: {words}"


def known_of(logs: Sequence[Log], given: Mapping[str, str], problems: list[str]) -> Known:
    """Return the facts of logs, overridden by `given`; report missing ones in `problems`."""
    facts = {*FACTS, *choices("framework")}
    facts |= {fact for framework in FRAMEWORKS.values() for fact in framework.facts}
    names = [name for name in Config.model_fields if name not in select(identifies=False)]
    names += [*STEPS, *(f"{ENVIRONMENT}{fact}" for fact in sorted(facts))]
    problems += [
        f"{name}: not a parameter of imported logs{suggest(name, names)}"
        for name in given
        if name not in names
    ]
    known = _facts(logs, problems)
    gpu = known.pop("gpu", None)
    if gpu and f"{ENVIRONMENT}gpus" not in given:
        known[f"{ENVIRONMENT}gpus"] = gpu
    for name, kind in (("gpus", "gpu"), ("processes", "cpu")):
        if name in given:
            follows = Sourced(kind, Message("by_parameter", {"name": name}))
            known.setdefault("device", follows)
    device: Any = given.get("device", known["device"].value if "device" in known else "gpu")
    devices = "processes" if device == "cpu" else "gpus"
    if "devices" in known:
        known[devices] = known.pop("devices")
    for name, text in given.items():
        by = Message("by_hand")
        if other := known.get(name):
            by = Message("by_hand_instead", {"value": other.value, "by": other.by})
        value = plain(text) if name.startswith(ENVIRONMENT) else typed(name, text)
        known[name] = Sourced(value, by)
    model = MODELS.get(str(known["model"].value)) if "model" in known else None
    length = ["sequence_length"] if model and model.unit == "tokens/s" else []
    for name in (*select(in_log=True), *length, "nodes", devices):
        if name not in known:
            allowed = "|".join(word for word in choices(name) if word != "auto") or "NUMBER"
            problems.append(f"{name}: not in the logs; add -p {name} {allowed}")
    return known


def _facts(logs: Sequence[Log], problems: list[str]) -> Known:
    """Return the facts of the logs, which must agree."""
    known: Known = {}
    for log in logs:
        for name, fact in log.facts.items():
            own = Sourced(fact.value, Message("by_file", {"file": _file(log), "by": fact.by}))
            first = known.setdefault(name, own)
            if first.value != own.value:
                both = ", ".join(f"{f.value!r} by {sentence(f.by)}" for f in (first, own))
                problems.append(f"{name}: differs, so these are not repeats: {both}")
    if "ranks" in known and known["ranks"].value == 1:
        for name in ("nodes", "devices"):
            known.setdefault(name, known["ranks"])
    return known


def config_of(known: Known) -> Config:
    """Return the configuration; unknown parameters are None or default. Raises RequestError."""
    values: dict[str, Any] = dict.fromkeys(
        name for name, field in Config.model_fields.items() if field.is_required()
    )
    values |= {"gpus": 0, "processes": 1, "data_dir": "not known"}
    values |= {name: known[name].value for name in Config.model_fields if name in known}
    problems: list[str] = []
    is_unknown = is_open("device", values["device"])
    config = None if is_unknown else validated(lambda: Config(**values), problems)
    if is_unknown or (config and not config.devices):
        problems.append("device: add -p device cpu with processes, or gpu with gpus")
    if config is None:
        raise RequestError(problems)
    devices = "gpus" if config.device == "gpu" else "processes"
    factors = f"batch_size, accumulate and {config.topology}"
    for name, count, words in (
        ("ranks", config.ranks, f"nodes, {devices}: {config.topology} makes {{}} ranks"),
        ("global_batch_size", config.global_batch, f"{factors} make {{}} samples per update"),
    ):
        if name in known and (other := known[name]).value != count:
            problems.append(f"{words.format(count)}; {sentence(other.by)} has {other.value}")
    _fail(problems)
    return config


def environment_of(known: Known, config: Config) -> dict[str, schema.Reading]:
    """Return the environment facts. A GPU is known by name only: the number of GPUs in a node,
    besides those that trained, is unknown."""
    framework = FRAMEWORKS.get(config.framework)
    facts = [*FACTS, *(framework.facts if framework else [config.framework])]
    unknown = schema.Reading(value=None, missing="the log does not tell")
    environment = dict.fromkeys(facts, unknown)
    for name, sourced in known.items():
        if name.startswith(ENVIRONMENT):
            fact = name.removeprefix(ENVIRONMENT)
            value = [str(sourced.value)] if fact == "gpus" else sourced.value
            environment[fact] = schema.Reading(value=value)
    return environment


class Epoch(NamedTuple):
    """One epoch of a training: its windows in file order and by rank, and its time sources."""

    log: Log
    run: int
    epoch: int
    windows: list[Window]
    ranks: list[list[Window]]
    bases: list[Basis]

    def covers(self, basis: Basis, first: int, last: int) -> bool:
        known = (covering(windows, first, last, basis) for windows in self.ranks)
        return basis in self.bases and all(known)


def _epochs(log: Log) -> Iterator[Epoch]:
    """Yield the epochs in the first PRINTS windows of a log."""
    finite = log.windows[:PRINTS].replace([inf, -inf], nan)
    places = finite[["run", "epoch"]].itertuples(index=False, name=None)
    found: dict[tuple[int, int], list[Window]] = {}
    for place, window in zip(places, records(finite[FIELDS]), strict=True):
        found.setdefault(place, []).append(window)
    for (run, epoch), windows in found.items():
        waits = [window["reader"] is not None for window in windows]
        # If it is unknown whether printed times include the printed waits, they are unusable.
        # A format that excludes the wait and never prints it excludes it from throughput, too.
        known = {"in": True, "apart": all(waits) or not any(waits), None: not any(waits)}
        bases = BASES if known[log.semantics.reader] else BASES[1:]
        yield Epoch(log, run, epoch, windows, by_rank(windows), [*bases])


def _origin(epoch: Epoch, protocol: Protocol) -> schema.ImportedLog:
    """Return the lines of the log that cover the protocol's steps."""
    within = range(protocol.warmup_steps + 1, protocol.steps + 1)
    lines = [window["line"] for window in epoch.windows if window["last"] in within]
    return schema.ImportedLog(
        file=_file(epoch.log),
        sha256=epoch.log.sha256,
        lines=(min(lines), max(lines)),
        epoch=epoch.epoch,
        run=epoch.run,
    )


def window_of(
    logs: Sequence[Log], requested: Mapping[str, Any]
) -> tuple[Basis, Protocol, list[Epoch]]:
    """Return the source of the step times, the protocol, and the first epoch of each log that
    covers its steps. Raises RequestError if there are no such steps."""
    epochs = [[*_epochs(log)] for log in logs]
    problems: list[str] = []
    named = partial(Protocol.named, "published", repeats=len(logs))
    wanted = validated(lambda: named(**requested), problems)
    if wanted is None:
        raise RequestError(problems)
    stretches: list[Stretch] = [(b, wanted.warmup_steps + 1, wanted.steps) for b in BASES]
    stretches += [] if requested else _nearest(epochs[0][0])
    for basis, first, last in stretches:
        found = [[e for e in of_log if e.covers(basis, first, last)][:1] for of_log in epochs]
        steps = {"warmup_steps": first - 1, "measured_steps": last - first + 1}
        protocol = validated(partial(named, **steps), [])
        if protocol and all(found):
            return basis, protocol, [epoch for (epoch,) in found]
    ends = ", ".join(str(window["last"]) for window in epochs[0][0].windows[:8])
    other = "" if requested else f", nor other steps{' that all share' if logs[1:] else ''}"
    if any(len(log.windows) > PRINTS for log in logs):
        other += f" (only the first {PRINTS:,} prints of a log are searched)"
    remedy = f"give {'logs with the same prints, or ' if logs[1:] else ''}"
    remedy += f"{'other ' if requested else ''}-p warmup_steps and -p measured_steps"
    if logs[0].semantics.covers == "step" and epochs[0][0].windows[0]["at"] is None:
        remedy = "a print of this format covers only its last step, so each step needs a print"
    problem = (
        f"the prints of these logs do not cover exactly steps {wanted.warmup_steps + 1} to "
        f"{wanted.steps}{other}: the first log's prints end at {ends} …; {remedy}"
    )
    raise RequestError([problem])


def _nearest(epoch: Epoch) -> list[Stretch]:
    """Return the printed windows nearest to the protocol `published`: after its warm-up, with
    at least as many steps. The best source of times comes first."""
    warmup, measured = (PROTOCOLS["published"][name] for name in STEPS)
    found: list[Stretch] = []
    for basis in epoch.bases:
        ends = _ends(epoch.ranks[0], basis)
        begin = next((end for end in ends[:-1] if end >= warmup), ends[0])
        last = next((end for end in ends if end >= begin + measured), ends[-1])
        # A single printed step says nothing about unprinted steps.
        if last > begin + 1 or (last > begin and len(epoch.windows) == 1):
            found.append((basis, begin + 1, last))
    return sorted(found, key=lambda s: min(s[2] - s[1] + 1, measured), reverse=True)


def _ends(windows: Sequence[Window], basis: Basis) -> list[int]:
    """Return the steps at which windows may begin or end: the longest series without gaps."""
    if basis == "clock":
        return sorted({w["last"] for w in windows if w["at"] is not None}) or [0]
    rows: list[list[int]] = [[0]]
    for window in windows:
        if window[basis] is not None:
            if rows[-1][-1] != window["first"] - 1:
                rows.append([window["first"] - 1])
            rows[-1].append(window["last"])
    return max(rows, key=lambda row: row[-1] - row[0])


def _odd_batches(
    figures: Sequence[Figures], config: Config, imported: schema.Imported
) -> Iterator[str]:
    """Yield errors of a batch size that contradicts a log's rates and times, or its rates and
    clock if it prints no times."""
    wanted = rated_samples(config, imported)
    whose = "all devices" if imported.rate_of == "all" else "a device"
    # Rates may count waits apart from the step times or not.
    for figure in figures if imported.reader != "apart" else ():
        samples = step_samples(figure.rows, by_clock=imported.basis == "clock")
        if samples is not None and abs(samples / wanted - 1) > ODD_BATCH:
            yield (
                f"batch_size: rate x time in {_file(figure.log)} makes {samples:.4g} samples "
                f"per step of {whose}; batch_size, accumulate and topology make {wanted}"
            )


def _stored(
    folder: Path, result: schema.Result, kept: Sequence[Sequence[Window]]
) -> store.Measurement:
    """Store the result; keep an existing one unless its windows do not reproduce its numbers.
    Raises OSError."""
    files, repeats = store.Store(folder), []
    if files.result_file.exists():
        existing = store.Measurement.read(folder)
        if not check_against_raw(existing):
            return existing
    for repeat, windows in zip(result.repeats, kept, strict=True):
        path = files.windows_file(repeat.index)
        store.make_folder(path.parent)
        store.write_atomically(path, "".join(f"{json.dumps(window)}\n" for window in windows))
        digests = store.raw_digests(store.read_raw_files(path.parent))
        repeats.append(repeat.model_copy(update={"raw_files": digests}))
    store.write_last_result(folder, result.model_copy(update={"repeats": repeats}))
    return store.Measurement.read(folder)
