"""Logs of other suites as a measurement: what they tell, and what must be said besides.

What no log tells and nobody says stays unknown. The steps that the number is of are those of
the protocol `published` where prints end there, else the nearest that they allow.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from perfkit.config import PROTOCOLS, Config, Protocol, choices, is_open, resolved_path, select
from perfkit.frameworks import FRAMEWORKS
from perfkit.logs.findings import findings_of
from perfkit.logs.formats import LogFormat
from perfkit.logs.log import Log, LogError
from perfkit.logs.reader import read_logs
from perfkit.logs.recompute import figures_of
from perfkit.messages import Message
from perfkit.models import MODELS
from perfkit.request.errors import RequestError, suggest, validated
from perfkit.request.plan import typed
from perfkit.results.schema import (
    SCHEMA_VERSION,
    Imported,
    ImportedLog,
    Reading,
    Result,
    Throughput,
)
from perfkit.results.store import Measurement, Store, write_atomically, write_last_result
from perfkit.results.summarize import check_against_raw
from perfkit.results.windows import (
    FIELDS,
    Basis,
    Window,
    by_rank,
    covering,
    rated_samples,
    summarize_windows,
)
from perfkit.statistics import median
from perfkit.system.environment import FACTS
from perfkit.text.terminal import plain

STEPS = ("warmup_steps", "measured_steps")
ENVIRONMENT = "environment."
BY_HAND = "given by hand"
BASES: tuple[Basis, ...] = ("seconds", "own_rate", "clock")
PRINTS = 100_000
"""In how many prints of a log, from its first on, the window is looked for."""
ODD_BATCH = 0.1
"""By how much the samples of a step that a log's own rates and times make may differ from those
that the batch size makes: a rate may leave out what is waited for input."""
Known = dict[str, tuple[Any, str]]
"""Parameter or fact -> its value and who says it."""


@dataclass(frozen=True)
class Training:
    """One epoch of one training in a log, with its windows in the file's order."""

    log: Log
    run: int
    epoch: int
    windows: list[Window]


def import_logs(
    paths: Sequence[Path],
    given: Mapping[str, str],
    outputs: Path,
    form: LogFormat | None = None,
) -> Measurement:
    """Store what the logs tell, each as a repeat of one measurement, below `outputs`; one that
    is stored already is left as it is, and given its windows again if they were damaged.

    `given` are parameters, and facts as `environment.<fact>`, as they are typed; `form` is the
    format of the logs if it is none of those known. Raises RequestError with all that is wrong
    or lacking, ResultError where what is stored already can't be read.
    """
    problems: list[str] = []
    logs = [log for path in paths for log in _read(path, form, problems)]
    if problems := [*problems, *_unlike(logs)]:
        raise RequestError(problems)
    known = known_of(logs, given, problems)
    config = None if problems else config_of(known, problems)
    if config is None or problems:
        raise RequestError(problems)
    asked = {name: known[name][0] for name in STEPS if name in known}
    basis, protocol, trainings = window_of(logs, asked)
    options = form.options if form else {}
    imported = _imported(trainings, basis, protocol, known, {**given, **options})
    if problems := _odd_batch(trainings, config, imported):
        raise RequestError(problems)
    kept = [[w for w in one.windows if w["last"] <= protocol.steps] for one in trainings]
    try:
        repeats = [
            summarize_windows(index, config, protocol, imported, windows)
            for index, windows in enumerate(kept, 1)
        ]
    except (ValueError, ArithmeticError) as error:
        raise RequestError([f"no throughput follows from these logs: {error}"]) from error
    environment = environment_of(known, config)
    result = Result(
        schema_version=SCHEMA_VERSION,
        id=_name(config, protocol, imported, environment),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        status="complete",
        config=config,
        protocol=protocol,
        environment=environment,
        repeats=repeats,
        throughput=Throughput.of(repeats, MODELS[config.model].unit),
        imported=imported,
    )
    return _stored(resolved_path(str(outputs)) / result.id, result, kept)


def _read(path: Path, form: LogFormat | None, problems: list[str]) -> list[Log]:
    try:
        found = read_logs(path, form)
    except LogError as error:
        problems.append(plain(str(error)))
        return []
    if len(found) > 1:
        problems.append(
            f"{plain(path.name)}: {len(found)} trainings of different configurations; give a "
            "file for each"
        )
    return found[:1]


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
        if log.fact("mode") == "inference":
            problems.append(f"{_file(log)}: inference, no training")
        if log.windows.empty:
            own = ", ".join(plain(f"{one.name} {one.text}") for one in log.reported[-3:])
            problems.append(f"{_file(log)}: tells of no step{own and f', only {own}'}")
    kinds = {log.format: _file(log) for log in logs}
    if len(kinds) > 1:
        words = "; ".join(f"{name} is of {kind}" for kind, name in kinds.items())
        problems.append(f"logs of one measurement have one format: {words}")
    return problems


# What is known, and who says it.


def known_of(logs: Sequence[Log], given: Mapping[str, str], problems: list[str]) -> Known:
    """What the logs tell and what is given, which takes the place of that; what lacks is added
    to `problems`, as is what is no parameter."""
    facts = {*FACTS, *choices("framework")}
    facts |= {fact for framework in FRAMEWORKS.values() for fact in framework.facts}
    names = [name for name in Config.model_fields if name not in select(identifies=False)]
    names += [*STEPS, *(f"{ENVIRONMENT}{fact}" for fact in sorted(facts))]
    problems += [
        f"{name}: nothing that is told of a log{suggest(name, names)}"
        for name in given
        if name not in names
    ]
    known = _facts(logs, problems)
    by_hand = {
        name: plain(value) if name.startswith(ENVIRONMENT) else typed(name, value)
        for name, value in given.items()
    }
    for name, kind in (("gpus", "gpu"), ("processes", "cpu")):
        if name in by_hand:
            known.setdefault("device", (kind, f"follows from {name}"))
    device = by_hand.get("device", known.get("device", ("gpu", ""))[0])
    devices = "processes" if device == "cpu" else "gpus"
    if "devices" in known:
        known[devices] = known.pop("devices")
    for name, value in by_hand.items():
        other = "; {1} says {0}".format(*known[name]) if name in known else ""
        known[name] = (value, f"{BY_HAND}{other}")
    problems += [
        f"{name}: no log tells it; -p {name} {_values(name)}"
        for name in (*select(in_log=True), "nodes", devices)
        if name not in known
    ]
    return known


def _facts(logs: Sequence[Log], problems: list[str]) -> Known:
    """What the logs tell, in which they have to agree."""
    facts: Known = {}
    for log in logs:
        for name, fact in log.facts.items():
            by = f"{_file(log)}, {_by(fact.by)}"
            value, first = facts.setdefault(name, (fact.value, by))
            if fact.value != value:
                both = f"{value!r} by {first}, {fact.value!r} by {by}"
                problems.append(f"{name}: differs, so these are no repeats: {both}")
    if "ranks" in facts and facts["ranks"][0] == 1:
        for name in ("nodes", "devices"):
            facts.setdefault(name, facts["ranks"])
    return facts


def _by(message: Message) -> str:
    """Who says a fact, in a word or two that are stored."""
    if message.code == "by_line":
        return f"line {message.params['line']}"
    return str(message.params.get("how", message.code.replace("by_", "its ")))


def _values(name: str) -> str:
    """What may be typed for a parameter."""
    return "|".join(word for word in choices(name) if word != "auto") or "NUMBER"


def config_of(known: Known, problems: list[str]) -> Config | None:
    """The configuration, in which None or a default stands for what is not known."""
    values = {name: known[name][0] for name in Config.model_fields if name in known}
    unknown: dict[str, Any] = dict.fromkeys(
        name for name, field in Config.model_fields.items() if field.is_required()
    )
    unknown |= {"gpus": 0, "processes": 1, "data_dir": "not known"}
    is_unknown = is_open("device", values["device"])
    config = None if is_unknown else validated(lambda: Config(**unknown | values), problems)
    if is_unknown or (config and not config.devices):
        problems.append("device: say what trained, cpu with processes or gpu with gpus")
    if config is None:
        return None
    ranks, by = known.get("ranks", (config.ranks, ""))
    if ranks != config.ranks:
        problems.append(
            f"nodes, {'gpus' if config.device == 'gpu' else 'processes'}: {config.topology} "
            f"makes {config.ranks} ranks; {by} says {ranks}"
        )
    whole, by = known.get("global_batch_size", (config.global_batch, ""))
    if whole != config.global_batch:
        problems.append(
            f"batch_size, accumulate: they and {config.topology} make {config.global_batch} "
            f"samples an update; {by} says {whole}"
        )
    return config


def environment_of(known: Known, config: Config) -> dict[str, Reading]:
    """The facts of where it was made. Of the GPUs, the name alone: how many a node had, beside
    those that trained, nobody said."""
    framework = FRAMEWORKS.get(config.framework)
    facts = [*FACTS, *(framework.facts if framework else [config.framework])]
    environment = {fact: Reading(value=None, missing="the log does not tell") for fact in facts}
    for name, (value, _by_whom) in known.items():
        if name.startswith(ENVIRONMENT):
            fact = name.removeprefix(ENVIRONMENT)
            environment[fact] = Reading(value=[value] if fact == "gpus" else value)
    return environment


# Which steps the number is of.


def window_of(
    logs: Sequence[Log], asked: Mapping[str, Any]
) -> tuple[Basis, Protocol, list[Training]]:
    """From what the time of the window follows, its steps, and the training of each log that
    has them. Raises RequestError where there are no such steps."""
    trainings = [[*_trainings(log)] for log in logs]
    problems: list[str] = []
    repeats: dict[str, Any] = {"name": "published", "repeats": len(logs)}
    wanted = validated(lambda: Protocol.named(**repeats | dict(asked)), problems)
    if wanted is None:
        raise RequestError(problems)
    usual = [(basis, (wanted.warmup_steps + 1, wanted.steps)) for basis in BASES]
    for basis, (first, last) in usual if asked else [*usual, *_nearest(trainings[0][0])]:
        found = [
            next((one for one in some if _covers(one, basis, first, last)), None)
            for some in trainings
        ]
        if all(found):
            warmup, measured = first - 1, last - first + 1
            protocol = Protocol.named(**repeats, warmup_steps=warmup, measured_steps=measured)
            return basis, protocol, [one for one in found if one]
    ends = ", ".join(str(window["last"]) for window in trainings[0][0].windows[:8])
    other = "" if asked else ", nor are there others that all logs have"
    if any(len(log.windows) > PRINTS for log in logs):
        other += f" (only the first {PRINTS:,} prints of a log are looked at)"
    raise RequestError(
        [
            f"the prints of these logs do not tell of steps {wanted.warmup_steps + 1} to "
            f"{wanted.steps} and no more{other}: the first log's end at {ends} …; give logs "
            "with the same prints, or -p warmup_steps and -p measured_steps"
        ]
    )


def _trainings(log: Log) -> Iterator[Training]:
    """The epochs of the trainings in a log, of its first PRINTS windows."""
    for (run, epoch), rows in log.windows[:PRINTS].groupby(["run", "epoch"], sort=False):
        windows = [
            {name: value if isfinite(value) else None for name, value in row.items()}
            for row in rows[FIELDS].to_dict("records")
        ]
        yield Training(log, int(run), int(epoch), windows)


def _bases(training: Training) -> Iterator[Basis]:
    """From what the time of this log's windows may follow."""
    waits = [window["reader"] is not None for window in training.windows]
    # Where nothing says whether the printed time has the printed wait in it, there must be
    # none; a format that leaves the wait out and never prints it leaves it out of its
    # throughput, too.
    known = {"in": True, "apart": all(waits) or not any(waits), None: not any(waits)}
    if known[training.log.semantics.reader]:
        yield "seconds"
    yield "own_rate"
    yield "clock"


def _covers(training: Training, basis: Basis, first: int, last: int) -> bool:
    return basis in _bases(training) and all(
        covering(some, first, last, basis) for some in by_rank(training.windows)
    )


def _nearest(training: Training) -> list[tuple[Basis, tuple[int, int]]]:
    """The steps nearest to those of the protocol `published` that prints allow: after its
    warm-up, and at least as many. The best basis first."""
    warmup, measured = (PROTOCOLS["published"][name] for name in STEPS)
    found = []
    for basis in _bases(training):
        ends = _ends(by_rank(training.windows)[0], basis)
        begin = next((end for end in ends[:-1] if end >= warmup), ends[0])
        last = next((end for end in ends if end >= begin + measured), ends[-1])
        # Of one step among others that are not printed, nothing follows for those.
        if last > begin + 1 or (last > begin and len(training.windows) == 1):
            found.append((basis, (begin + 1, last)))
    return sorted(found, key=lambda one: min(one[1][1] - one[1][0] + 1, measured), reverse=True)


def _ends(windows: Sequence[Window], basis: Basis) -> list[int]:
    """The steps after which a window may begin or end, of the longest row of prints of which
    each goes on where the last ended."""
    if basis == "clock":
        return sorted({w["last"] for w in windows if w["at"] is not None}) or [0]
    rows: list[list[int]] = [[0]]
    for window in windows:
        if window[basis] is None:
            continue
        if rows[-1][-1] != window["first"] - 1:
            rows.append([window["first"] - 1])
        rows[-1].append(window["last"])
    return max(rows, key=lambda row: row[-1] - row[0])


def _odd_batch(trainings: Sequence[Training], config: Config, imported: Imported) -> list[str]:
    """What is wrong with the batch size, by the rates and times that a log prints or, where it
    prints no times, by its rates and its clock."""
    problems = []
    wanted = rated_samples(config, imported)
    whose = "all devices" if imported.rate_of == "all" else "a device"
    for training in trainings:
        steps = [*_step_samples(training, imported.basis)]
        if steps and abs(median(steps) / wanted - 1) > ODD_BATCH:
            problems.append(
                f"batch_size: rates and times that {_file(training.log)} prints make "
                f"{median(steps):.4g} samples a step of {whose}; batch_size, accumulate and "
                f"topology make {wanted}"
            )
    return problems


def _step_samples(training: Training, basis: Basis) -> Iterator[float]:
    """The samples of a step by the log's own figures, from each print."""
    for some in by_rank(training.windows):
        for before, window in zip([None, *some], some, strict=False):
            rate, seconds = window["own_rate"], window["seconds"]
            steps = window["last"] - window["first"] + 1
            if basis == "clock" and before and None not in (before["at"], window["at"]):
                rate, seconds = rate or window["rate"], window["at"] - before["at"]
                steps = window["last"] - before["last"]
            if rate and seconds is not None and steps > 0:
                yield rate * seconds / steps


# What is stored.


def _imported(
    trainings: Sequence[Training],
    basis: Basis,
    protocol: Protocol,
    known: Known,
    given: Mapping[str, str],
) -> Imported:
    log = trainings[0].log
    semantics = {k: v for k, v in asdict(log.semantics).items() if k in Imported.model_fields}
    if log.semantics.covers == "step":
        semantics["since"] = None
    logs, findings = [], []
    for training in trainings:
        lines = [
            window["line"]
            for window in training.windows
            if protocol.warmup_steps < window["last"] <= protocol.steps
        ]
        logs.append(
            ImportedLog(
                file=_file(training.log),
                sha256=training.log.sha256,
                lines=(min(lines), max(lines)),
                epoch=training.epoch,
                run=training.run,
            )
        )
        findings += findings_of(training.log, _file(training.log), figures_of(training.log))
    return Imported(
        **semantics,
        format=log.format,
        basis=basis,
        logs=logs,
        facts={
            name: by
            for name, (_value, by) in known.items()
            if name in Config.model_fields or name.startswith(ENVIRONMENT)
        },
        given={name: plain(value) for name, value in given.items()},
        findings=findings,
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
    parts = [config.model_dump(), protocol.model_dump(), facts]
    parts.append(imported.model_dump(exclude={"findings"}))
    hashed = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    name = [config.model, config.framework, config.precision, config.topology]
    name += [f"b{config.batch_size}", config.device, config.input, "imported"]
    return "-".join([*name, *filter(None, [config.label]), hashed[:8]])


def _stored(folder: Path, result: Result, kept: Sequence[Sequence[Window]]) -> Measurement:
    """What is there already stays, unless its windows do not give its numbers. Raises
    RequestError where the folder can't be written to."""
    there = Store(folder).result_file.exists()
    if not there or check_against_raw(Measurement.read(folder)):
        for index, windows in enumerate(kept, 1):
            path = Store(folder).windows_file(index)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RequestError([f"--outputs: {path.parent}: {error.strerror}"]) from error
            write_atomically(path, "".join(f"{json.dumps(window)}\n" for window in windows))
        if not there:
            write_last_result(folder, result)
    return Measurement.read(folder)
