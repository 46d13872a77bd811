"""Logs of other suites as a measurement: what they tell, and what must be said besides.

What no log tells and nobody says stays unknown. The steps that the number is of are those of
the protocol `published` where prints end there, else the nearest that they allow.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from math import isfinite
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
from perfkit.text.terminal import plain

STEPS = ("warmup_steps", "measured_steps")
ENVIRONMENT = "environment."
BASES: tuple[Basis, ...] = ("seconds", "own_rate", "clock")
PRINTS = 100_000
"""In how many prints of a log, from its first on, the window is looked for."""
ODD_BATCH = 0.1
"""By how much the samples of a step that a log's own rates and times make may differ from those
that the batch size makes: a rate may leave out what is waited for input."""
Known = dict[str, Sourced]
"""Parameters and facts."""
Stretch = tuple[Basis, int, int]
"""From what the time of steps follows, the first of them and the last."""


def import_logs(
    paths: Sequence[Path],
    given: Mapping[str, str],
    outputs: Path,
    form: LogFormat | None = None,
) -> store.Measurement:
    """Store what the logs tell, each as a repeat of one measurement, below `outputs`; one that
    is stored already is left as it is, and given its windows again if they were damaged.

    `given` are parameters, and facts as `environment.<fact>`, as they are typed; `form` is the
    format of the logs if it is none of those known. Raises RequestError with all that is wrong
    or lacking, ResultError where what is stored already can't be read.
    """
    problems: list[str] = []
    logs = [log for path in paths for log in _read(path, form, problems)]
    _refuse([*problems, *_unlike(logs)])
    known = known_of(logs, given, problems)
    _refuse(problems)
    config = config_of(known)
    asked = {name: known[name].value for name in STEPS if name in known}
    basis, protocol, epochs = window_of(logs, asked)
    figures = [Figures(log) for log in logs]
    semantics = asdict(logs[0].semantics)
    if semantics["covers"] == "step":
        semantics["since"] = None
    imported = schema.Imported(
        **{k: v for k, v in semantics.items() if k in schema.Imported.model_fields},
        format=logs[0].format,
        rate_unit=str(logs[0].fact("unit") or ""),
        basis=basis,
        logs=[_origin(one, protocol) for one in epochs],
        facts={
            name: one.by
            for name, one in known.items()
            if name in Config.model_fields or name.startswith(ENVIRONMENT)
        },
        given={k: plain(v) for k, v in {**given, **(form.options if form else {})}.items()},
        findings=[found for one in figures for found in findings_of(_file(one.log), one)],
    )
    _refuse([*_odd_batches(figures, config, imported)])
    kept = [[w for w in one.windows if w["last"] <= protocol.steps] for one in epochs]
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


def _refuse(problems: list[str]) -> None:
    if problems:
        raise RequestError(problems)


def _file(log: Log) -> str:
    return plain(log.path.name)


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


def _unlike(logs: Sequence[Log]) -> Iterator[str]:
    """What keeps logs from being repeats of one measurement."""
    names: dict[str, str] = {}
    for log in logs:
        file = _file(log)
        if first := names.get(log.sha256):
            yield f"{file}: the same bytes as {first}; a log is one repeat"
        names[log.sha256] = file
        if log.fact("mode") == "inference":
            yield f"{file}: inference, no training"
        if not len(log.windows):
            own = ", ".join(plain(f"{one.name} {one.text}") for one in log.reported[-3:])
            yield f"{file}: tells of no step{own and f', only {own}'}"
    kinds = {log.format: _file(log) for log in logs}
    if len(kinds) > 1:
        words = "; ".join(f"{name} is of {kind}" for kind, name in kinds.items())
        yield f"logs of one measurement have one format: {words}"


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
            problems.append(f"{name}: no log tells it; -p {name} {allowed}")
    return known


def _facts(logs: Sequence[Log], problems: list[str]) -> Known:
    """What the logs tell, in which they have to agree."""
    known: Known = {}
    for log in logs:
        for name, fact in log.facts.items():
            own = Sourced(fact.value, Message("by_file", {"file": _file(log), "by": fact.by}))
            first = known.setdefault(name, own)
            if first.value != own.value:
                both = ", ".join(f"{one.value!r} by {sentence(one.by)}" for one in (first, own))
                problems.append(f"{name}: differs, so these are no repeats: {both}")
    if "ranks" in known and known["ranks"].value == 1:
        for name in ("nodes", "devices"):
            known.setdefault(name, known["ranks"])
    return known


def config_of(known: Known) -> Config:
    """The configuration, in which None or a default stands for what is not known. Raises
    RequestError."""
    values: dict[str, Any] = dict.fromkeys(
        name for name, field in Config.model_fields.items() if field.is_required()
    )
    values |= {"gpus": 0, "processes": 1, "data_dir": "not known"}
    values |= {name: known[name].value for name in Config.model_fields if name in known}
    problems: list[str] = []
    is_unknown = is_open("device", values["device"])
    config = None if is_unknown else validated(lambda: Config(**values), problems)
    if is_unknown or (config and not config.devices):
        problems.append("device: say what trained, cpu with processes or gpu with gpus")
    if config is None:
        raise RequestError(problems)
    devices = "gpus" if config.device == "gpu" else "processes"
    both = f"batch_size, accumulate: they and {config.topology} make"
    for name, count, words in (
        ("ranks", config.ranks, f"nodes, {devices}: {config.topology} makes {{}} ranks"),
        ("global_batch_size", config.global_batch, f"{both} {{}} samples an update"),
    ):
        if name in known and (other := known[name]).value != count:
            by = f"{sentence(other.by)} says {other.value}"
            problems.append(f"{words.format(count)}; {by}")
    _refuse(problems)
    return config


def environment_of(known: Known, config: Config) -> dict[str, schema.Reading]:
    """The facts of where it was made. Of the GPUs, the name alone: how many a node had, beside
    those that trained, nobody said."""
    framework = FRAMEWORKS.get(config.framework)
    facts = [*FACTS, *(framework.facts if framework else [config.framework])]
    untold = schema.Reading(value=None, missing="the log does not tell")
    environment = dict.fromkeys(facts, untold)
    for name, one in known.items():
        if name.startswith(ENVIRONMENT):
            fact = name.removeprefix(ENVIRONMENT)
            value = [str(one.value)] if fact == "gpus" else one.value
            environment[fact] = schema.Reading(value=value)
    return environment


# Which steps the number is of.


class Epoch(NamedTuple):
    """One epoch of one training in a log: its windows in the file's order, those of each rank,
    and from what the time of these may follow."""

    log: Log
    run: int
    epoch: int
    windows: list[Window]
    ranks: list[list[Window]]
    bases: list[Basis]

    def covers(self, basis: Basis, first: int, last: int) -> bool:
        known = (covering(some, first, last, basis) for some in self.ranks)
        return basis in self.bases and all(known)


def _epochs(log: Log) -> Iterator[Epoch]:
    """Those in a log, of its first PRINTS windows."""
    rows = log.windows[:PRINTS]
    found: dict[tuple[int, int], list[Window]] = {}
    for place, row in zip(rows[["run", "epoch"]].tolist(), rows[FIELDS].tolist(), strict=True):
        values = (value if isfinite(value) else None for value in row)
        found.setdefault(place, []).append(dict(zip(FIELDS, values, strict=True)))
    for (run, epoch), windows in found.items():
        waits = [window["reader"] is not None for window in windows]
        # Where nothing says whether the printed time has the printed wait in it, there must be
        # none; a format that leaves the wait out and never prints it leaves it out of its
        # throughput, too.
        known = {"in": True, "apart": all(waits) or not any(waits), None: not any(waits)}
        bases = BASES if known[log.semantics.reader] else BASES[1:]
        yield Epoch(log, run, epoch, windows, by_rank(windows), [*bases])


def _origin(epoch: Epoch, protocol: Protocol) -> schema.ImportedLog:
    """Where in the log the protocol's steps are."""
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
    logs: Sequence[Log], asked: Mapping[str, Any]
) -> tuple[Basis, Protocol, list[Epoch]]:
    """From what the time of the window follows, its steps, and the first epoch of each log that
    has them. Raises RequestError where there are no such steps."""
    epochs = [[*_epochs(log)] for log in logs]
    problems: list[str] = []
    named = partial(Protocol.named, "published", repeats=len(logs))
    wanted = validated(lambda: named(**asked), problems)
    if wanted is None:
        raise RequestError(problems)
    stretches: list[Stretch] = [(b, wanted.warmup_steps + 1, wanted.steps) for b in BASES]
    stretches += [] if asked else _nearest(epochs[0][0])
    for basis, first, last in stretches:
        found = [[one for one in some if one.covers(basis, first, last)][:1] for some in epochs]
        steps = {"warmup_steps": first - 1, "measured_steps": last - first + 1}
        protocol = validated(partial(named, **steps), [])
        if protocol and all(found):
            return basis, protocol, [one for (one,) in found]
    ends = ", ".join(str(window["last"]) for window in epochs[0][0].windows[:8])
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


def _nearest(epoch: Epoch) -> list[Stretch]:
    """The steps nearest to those of the protocol `published` that prints allow: after its
    warm-up, and at least as many. The best basis first."""
    warmup, measured = (PROTOCOLS["published"][name] for name in STEPS)
    found: list[Stretch] = []
    for basis in epoch.bases:
        ends = _ends(epoch.ranks[0], basis)
        begin = next((end for end in ends[:-1] if end >= warmup), ends[0])
        last = next((end for end in ends if end >= begin + measured), ends[-1])
        # Of one step among others that are not printed, nothing follows for those.
        if last > begin + 1 or (last > begin and len(epoch.windows) == 1):
            found.append((basis, begin + 1, last))
    return sorted(found, key=lambda one: min(one[2] - one[1] + 1, measured), reverse=True)


def _ends(windows: Sequence[Window], basis: Basis) -> list[int]:
    """The steps after which a window may begin or end, of the longest row of prints of which
    each goes on where the last ended."""
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
    """What is wrong with the batch size, by the rates and times that a log prints or, where it
    prints no times, by its rates and its clock."""
    wanted = rated_samples(config, imported)
    whose = "all devices" if imported.rate_of == "all" else "a device"
    for one in figures:
        samples = step_samples(one.rows, by_clock=imported.basis == "clock")
        if samples is not None and abs(samples / wanted - 1) > ODD_BATCH:
            yield (
                f"batch_size: rates and times that {_file(one.log)} prints make {samples:.4g} "
                f"samples a step of {whose}; batch_size, accumulate and topology make {wanted}"
            )


# What is stored.


def _stored(
    folder: Path, result: schema.Result, kept: Sequence[Sequence[Window]]
) -> store.Measurement:
    """What is there already stays, unless its windows do not give its numbers. Raises
    RequestError where the folder can't be written to."""
    there, repeats = store.Store(folder), []
    is_there = there.result_file.exists()
    if is_there and not check_against_raw(store.Measurement.read(folder)):
        return store.Measurement.read(folder)
    for repeat, windows in zip(result.repeats, kept, strict=True):
        path = there.windows_file(repeat.index)
        try:
            store.make_folder(path.parent)
        except OSError as error:
            raise RequestError([f"--outputs: {path.parent}: {error.strerror}"]) from error
        store.write_atomically(path, "".join(f"{json.dumps(window)}\n" for window in windows))
        digests = store.raw_digests(store.read_raw_files(path.parent))
        repeats.append(repeat.model_copy(update={"raw_files": digests}))
    if not is_there:
        store.write_last_result(folder, result.model_copy(update={"repeats": repeats}))
    return store.Measurement.read(folder)
