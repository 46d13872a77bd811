"""Results with known numbers, and which repeats of stored ones are finished."""

import hashlib
import json
import random
from pathlib import Path

import pandas as pd

from perfkit.analysis.diagnosis import Diagnosis
from perfkit.analysis.warnings import MeasurementChecks
from perfkit.measuring.config import Config
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.effective import Effective, Told
from perfkit.measuring.results.identity import folder_name, measurement_id
from perfkit.measuring.results.repeat import FirstStep, Peak, Rank, Repeat, StepSeconds
from perfkit.measuring.results.schema import SCHEMA_VERSION, InputData, Result, Throughput
from perfkit.measuring.results.store import (
    Measurement,
    Store,
    raw_digests,
    read_raw_files,
    read_result,
    write_result,
)
from perfkit.measuring.results.summarize import NOT_IN_RAW_FILES, summarize
from perfkit.measuring.system import environment
from perfkit.measuring.work import ScriptWork
from perfkit.training.frameworks import FRAMEWORKS

V100 = "Tesla V100-SXM2-32GB, 32 GiB"
FACTS = dict.fromkeys([*environment.FACTS, *FRAMEWORKS["paddle"].facts], "1.0") | {
    "cpu": "AMD EPYC (family 25 model 17)",
    "gpus": None,
    "driver": None,
    "paddle": "3.3.1",
    "suite_commit": "0" * 40,
    "suite_modified": False,
}


USUAL = {
    "model": "resnet50",
    "input": "dali",
    "device": "cpu",
    "batch_size": 32,
    "optimizer": "momentum",
    "layout": "NCHW",
    "image_size": 224,
    "launcher": "local",
}
"""Parameters of `measured`."""
CREATED = "2026-01-01T00:00:00+00:00"


def event(kind, **fields):
    """Return a raw event."""
    return {"event": kind} | fields


START = event("start", pid=1, began=0.0)
"""The start of a rank. Its window begins at the same time, so that the time to its first step
is unknown."""


def made_result(**changes):
    """Return a complete measurement of one repeat on the CPU, with fields changed."""
    repeat = Repeat(index=1, status="complete", throughput=4.0, steps_per_second=1.0)
    repeats = changes.pop("repeats", [repeat])
    request = {"model": "resnet50", "device": "cpu", "gpus": 0, "processes": 1}
    request |= {"batch_size": 4, "input": "synthetic"}
    config = changes.get("config", resolve(request))
    planned = max(1, len(repeats))
    if changes.get("status") == "partial":
        planned += 1
    protocol = changes.get("protocol", Protocol.named("quick", repeats=planned))
    repeats = [_with_ranks(repeat, config, protocol) for repeat in repeats]
    finished = [repeat for repeat in repeats if repeat.status == "complete"]
    values = {
        "schema_version": SCHEMA_VERSION,
        "id": "made",
        "created": CREATED,
        "status": "complete",
        "config": config,
        "protocol": protocol,
        "environment": {"gpus": _reading(None)},
        "repeats": repeats,
    }
    if finished:
        values["throughput"] = Throughput.of(finished, "images/s")
    return Result(**values | changes)


def _reading(value):
    """Return a fact of the environment, which is missing if it has no value."""
    if value:
        return Reading(value=value)
    return Reading(value=value, missing="none here")


def _with_ranks(repeat, config, protocol):
    """Return the repeat with a window for each rank, if it is complete and has none."""
    if repeat.ranks or repeat.status != "complete":
        return repeat
    steps = protocol.measured_steps
    window = steps / repeat.steps_per_second
    data_wait_share = repeat.data_wait_share or 0.0
    samples = steps * (config.work.counts().samples_per_step or 1)
    ranks = _ranks(config, samples, window, data_wait_share)
    return repeat.model_copy(update={"ranks": ranks})


def _ranks(config, samples, window, data_wait_share):
    """Return the windows of all ranks, which are alike."""
    ranks = []
    for number in range(config.ranks):
        rank = Rank(
            rank=number,
            samples=samples,
            window_seconds=window,
            data_wait_seconds=None if data_wait_share is None else data_wait_share * window,
        )
        ranks.append(rank)
    return ranks


def stored(folder, **changes):
    """Store a variant of `made_result` with two repeats and raw files; see `identified` for the
    folder's name."""
    result = made_result(**changes)
    if "repeats" in changes:
        return keep(folder, result)
    relative_seconds = [1 + step / 10 for step in range(1, 8)]
    window = sum(relative_seconds[-5:])
    repeats = []
    for throughput in (4.1, 4.2):
        seconds = [step * 20 / throughput / window for step in relative_seconds]
        repeats.append([rank_events(seconds, samples=4, measured_steps=5)])
    return with_raw_files(folder, result, repeats)


def forget_repeats(folder, *, after, **changes):
    """Drop the stored result's repeats after `after`, as if interrupted, and change fields."""
    result = read_result(folder / "result.json")
    _write(folder, result.model_copy(update=changes), result.repeats[:after])


def _write(folder, result, repeats):
    """Store the result with these repeats and the fields derived from them."""
    result = result.model_copy(update={"id": folder.name, "repeats": repeats})
    changes = {"throughput": result.derived_throughput, "status": result.derived_status}
    folder.mkdir(parents=True, exist_ok=True)
    write_result(folder, result.model_copy(update=changes))
    return Measurement.read(folder)


def measured(
    values,
    *,
    facts=None,
    used=None,
    tf32_used=None,
    protocol="published",
    warmup_steps=None,
    measured_steps=None,
    **parameters,
):
    """Return a result with one repeat for each throughput; without any, it ran out of memory.

    `facts` override FACTS, `used` and `tf32_used` are the effective precision and TF32, and
    `parameters` override the configuration.
    """
    config = resolve(USUAL | parameters)
    work = config.work
    steps = {"warmup_steps": warmup_steps, "measured_steps": measured_steps}
    protocol = Protocol.named(protocol, repeats=len(values) or 1, **steps)
    result = {
        "schema_version": SCHEMA_VERSION,
        "id": f"{work.model}-{work.precision}-{config.topology}-b{work.batch_size}",
        "created": CREATED,
        "config": config,
        "protocol": protocol,
        "environment": _environment(config, facts or {}),
    }
    if not values:
        failure = {"code": "out_of_memory", "reason": "no room"}
        return Result(**result, status="failed", failure=failure)
    repeats = []
    for index, throughput in enumerate(values, 1):
        repeats.append(_repeat(index, throughput, config, protocol))
    if work.input != "synthetic":
        result["input_data"] = InputData(samples=512, sha256="0" * 64)
    return Result(
        **result,
        status="complete",
        effective=_effective(config, used, tf32_used),
        repeats=repeats,
        throughput=Throughput.of(repeats, work.facts.unit),
    )


SCRIPT = {
    "script": "train.py",
    "arguments": "--lr 0.1",
    "framework": "torch",
    "script_sha256": "a" * 64,
    "modules": ["net"],
    "device": "cpu",
    "gpus": 0,
    "processes": 1,
    "launcher": "local",
}
"""Parameters of `script_measured`."""
TOLD = {
    "samples_per_step": 64,
    "unit": "images",
    "framework": "torch",
    "framework_version": "2.13.0",
    "device": "cpu",
    "step_clock": "host",
    "counts_data_wait": False,
}
"""What the script of `script_measured` told the timer."""


def warnings_of(result, profiles=()):
    """Return the warnings about a result whose raw files agree and whose steps were read."""
    steps = pd.DataFrame({"seconds": [1.0]})
    return MeasurementChecks(result, [*profiles], steps).warnings


def script_config(**parameters):
    """Return the configuration of a script: SCRIPT with parameters changed."""
    values = SCRIPT | parameters
    work = {name: values.pop(name) for name in ScriptWork.model_fields if name in values}
    return Config(work=ScriptWork(**work), **values)


def script_measured(values, *, told=None, facts=None, repeat=None, protocol=None, **parameters):
    """Return a result of a script with one repeat for each throughput; without any, the script
    never called the timer.

    `told` overrides TOLD, `facts` FACTS, `repeat` the fields of each repeat and `parameters`
    the configuration."""
    config = script_config(**parameters)
    told = Told(**TOLD | (told or {}))
    protocol = protocol or Protocol.named("published", repeats=len(values) or 1)
    own_facts = {"torch": "2.13.0", "paddle": None}
    result = {
        "schema_version": SCHEMA_VERSION,
        "id": "-".join(
            [folder_name(config.work), config.framework, config.topology, config.device]
        ),
        "created": CREATED,
        "config": config,
        "protocol": protocol,
        "environment": _environment(config, own_facts | (facts or {})),
    }
    if not values:
        failure = {"code": "out_of_memory", "reason": "no room"}
        return Result(**result, status="failed", failure=failure)
    repeats = []
    for index, throughput in enumerate(values, 1):
        made = _script_repeat(index, throughput, config, protocol, told)
        repeats.append(made.model_copy(update=repeat or {}))
    throughput = Throughput.of(repeats, f"{told.unit}/s")
    return Result(
        **result, status="complete", told=told, repeats=repeats, throughput=throughput
    )


def _script_repeat(index, throughput, config, protocol, told):
    """Return a complete repeat of a script with this throughput."""
    samples = protocol.measured_steps * told.samples_per_step
    window = samples * config.ranks / throughput
    share = 0.01 if told.counts_data_wait else None
    ranks = _ranks(config, samples, window, share)
    seconds = window / protocol.measured_steps
    of_steps = dict.fromkeys(["minimum", "median", "maximum"], seconds)
    return Repeat(
        index=index,
        status="complete",
        throughput=throughput,
        steps_per_second=protocol.measured_steps / window,
        data_wait_share=share,
        step_seconds=StepSeconds(**of_steps),
        loss_first=7.0,
        loss_last=6.5,
        wall_seconds=window + 9.5,
        ranks=ranks,
    )


def _environment(config, changes):
    facts = dict(FACTS)
    if config.device == "gpu":
        facts |= {"gpus": [V100] * 8, "driver": "525.60"}
    return {fact: _reading(value) for fact, value in (facts | changes).items()}


def _repeat(index, throughput, config, protocol):
    """Return a complete repeat with this throughput."""
    counts = config.work.counts()
    samples = protocol.measured_steps * counts.samples_per_step
    units = counts.units_per_sample
    window = samples * config.ranks * units / throughput
    return Repeat(
        index=index,
        status="complete",
        throughput=throughput,
        steps_per_second=throughput / (counts.samples_per_step * config.ranks) / units,
        data_wait_share=0.01,
        step_seconds=StepSeconds(minimum=1, median=1, maximum=1),
        loss_first=7.0,
        loss_last=6.5,
        wall_seconds=max(9.5, window),
        ranks=_ranks(config, samples, window, 0.01),
    )


def _effective(config, precision, tf32):
    """Return the effective settings; precision and TF32 as requested if they are None."""
    if tf32 is None:
        tf32 = config.work.tf32
    return Effective(
        precision=precision or config.work.precision,
        device=config.device,
        dtypes={"float32": 109},
        threads={"libgomp": 2},
        variables={"OMP_NUM_THREADS": "2"},
        parameters=25_557_032,
        optimizer_settings="momentum SGD",
        tf32=tf32,
        loss_scaling=None,
    )


def change(path, old, new):
    """Replace the first `old` in a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def identified(folder, result):
    """Return the folder with the digest of what identifies the result added to its name."""
    data = result.input_data and result.input_data.sha256
    digest = measurement_id(result.config, result.protocol, result.environment, data)[-8:]
    name = folder.name.removesuffix(f"-{digest}")
    return folder.with_name(f"{name}-{digest}")


def name_of(result, number=0):
    """Return the folder name of the n-th result of `write_all`."""
    return identified(Path(f"{result.id}-{number}"), result).name


def keep(folder, result):
    """Store a result with matching raw files; see `identified` for the folder's name."""
    folder = identified(Path(folder), result)
    repeats = [_with_raw_files(folder, result, repeat) for repeat in result.repeats]
    return _write(folder, result, repeats)


def _with_raw_files(folder, result, repeat):
    """Write raw files that give a complete repeat's numbers; return the repeat with them."""
    if repeat.status != "complete":
        return repeat
    others = {name: getattr(repeat, name) for name in NOT_IN_RAW_FILES - {"raw_files"}}
    events = [_events(result, repeat, rank) for rank in repeat.ranks]
    return _derived(folder, result, repeat.index, events, **others)


def _derived(folder, result, index, events, telemetry=(), **others):
    """Write the raw files of a repeat, a list of events for each rank, and return the numbers
    that follow from them."""
    store = Store(folder)
    for rank, rank_lines in enumerate(events):
        _write_lines(store.rank_file(index, rank), rank_lines)
    if telemetry:
        _write_lines(store.telemetry_file(index), telemetry)
    units = result.counts.units_per_sample
    repeat = summarize(index, result.protocol, events, 0.0, telemetry, units=units)
    raw_files = read_raw_files(store.raw_folder(index))
    return repeat.model_copy(update=others | {"raw_files": raw_digests(raw_files)})


def _write_lines(path, events):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def _events(result, repeat, rank):
    """Return the raw events of a rank that give its numbers."""
    measured_steps = result.protocol.measured_steps
    last_step = result.steps(repeat)
    step = {
        "seconds": rank.window_seconds / measured_steps,
        "samples": result.counts.samples_per_step,
    }
    if rank.data_wait_seconds is not None:
        data_wait_seconds = (repeat.data_wait_share or 0.0) * rank.window_seconds
        step["data_wait_seconds"] = data_wait_seconds / measured_steps
    events = [START]
    if result.told:
        events.append(event("told", **result.told.model_dump()))
    events += [event("step", step=number, **step) for number in range(1, last_step + 1)]
    losses = {1: repeat.loss_first or 7.0, last_step: repeat.loss_last or 6.5}
    events += [event("loss", step=number, value=loss) for number, loss in losses.items()]
    if repeat.warmup:
        events.append(event("warmup", **repeat.warmup.model_dump()))
    if repeat.pauses_seconds:
        events.append(event("pause", step=last_step - 1, seconds=repeat.pauses_seconds))
    if repeat.late_modules:
        events.append(event("modules", late=repeat.late_modules))
    if repeat.peak:
        events.append(event("peak", **_peak_of_rank(repeat)))
    end = {
        "memory_bytes": rank.memory_bytes,
        "compute_seconds": rank.compute_seconds,
        "skipped_steps": repeat.skipped_steps,
    }
    began = 0.0
    if repeat.first_step:
        later_steps = result.warmup_steps(repeat) - 1
        began = repeat.first_step.seconds + later_steps * step["seconds"]
    window = event("window", samples=rank.samples, seconds=rank.window_seconds, began=began)
    if not result.told:
        window["batches"] = measured_steps * result.built_in.accumulate
    return [*events, window, event("end", **end)]


def _peak_of_rank(repeat):
    """Return the rates of one rank: equal shares of all ranks' together."""
    rates = repeat.peak.model_dump(exclude_none=True)
    return {name: rate / len(repeat.ranks) for name, rate in rates.items()}


def steady_peak(flops, copied=1e10):
    """Return a peak whose sustained rates are the highest ones."""
    return Peak(
        matmul_flops_per_second=flops,
        copy_bytes_per_second=copied,
        sustained_matmul_flops_per_second=flops,
        sustained_copy_bytes_per_second=copied,
    )


def write_all(outputs, *results):
    """Store the results below `outputs`, with n in the name of the n-th folder."""
    for number, result in enumerate(results):
        keep(Path(outputs) / f"{result.id}-{number}", result)
    return Path(outputs)


def rank_events(seconds, samples=8, measured_steps=None, compute_seconds=None):
    """Return a rank's events for these step times.

    The last `measured_steps`, by default all but the first, are the window. Each step has
    `samples` samples and 0.1 s of data wait.
    """
    if measured_steps is None:
        measured_steps = len(seconds) - 1
    window = seconds[-measured_steps:]
    steps, losses = [], []
    for number, step_seconds in enumerate(seconds, 1):
        step = {"seconds": step_seconds, "data_wait_seconds": 0.1, "samples": samples}
        steps.append(event("step", step=number, **step))
        losses.append(event("loss", step=number, value=10.0 - number))
    end = {"memory_bytes": 1, "compute_seconds": compute_seconds}
    end |= {"skipped_steps": None, "loss_scale": None}
    return [
        START,
        *steps,
        *losses,
        event("window", samples=samples * len(window), seconds=sum(window), began=0.0),
        event("end", **end),
    ]


def with_start(result, memory_bytes, first_step_seconds):
    """Return the result whose ranks take this much memory, and whose first step, as long as the
    others, ends after so many seconds."""
    repeats = []
    for repeat in result.repeats:
        memory = {"memory_bytes": memory_bytes}
        ranks = [rank.model_copy(update=memory) for rank in repeat.ranks]
        step_seconds = ranks[0].window_seconds / result.protocol.measured_steps
        first_step = FirstStep(seconds=first_step_seconds, step_seconds=step_seconds)
        changes = {"ranks": ranks, "first_step": first_step}
        repeats.append(repeat.model_copy(update=changes))
    return result.model_copy(update={"repeats": repeats})


def with_raw_files(folder, result, events, telemetry=()):
    """Store `result` with raw files and numbers of `events`, a list of ranks for each repeat,
    and of `telemetry`, for each; see `identified` for the folder's name."""
    first_rank = events[0][0]
    samples = next(e["samples"] for e in first_rank if e["event"] == "step")
    window = next(e for e in first_rank if e["event"] == "window")
    batch_size = samples // result.built_in.accumulate
    planned = len(events) + (result.status == "partial")
    steps = {"repeats": planned, "measured_steps": window["samples"] // samples}
    config = result.config.changed(batch_size=batch_size)
    protocol = result.protocol.model_copy(update=steps)
    result = result.model_copy(update={"config": config, "protocol": protocol})
    folder = identified(Path(folder), result)
    repeats = []
    for index, ranks in enumerate(events, 1):
        windows = [e["seconds"] for rank in ranks for e in rank if e["event"] == "window"]
        wall_seconds = max(windows) + 9.5
        repeat = _derived(folder, result, index, ranks, telemetry, wall_seconds=wall_seconds)
        repeats.append(repeat)
    return _write(folder, result, repeats)


def write_many(outputs, count, seed=0, raw=True):
    """Store `count` measurements of 7 repeats that vary in model, precision, batch size,
    topology (1 to 4 ranks), driver and label; with 120 varying raw steps each if `raw`."""
    chance = random.Random(seed)
    for number in range(count):
        result = _varying_result(chance, label=f"week{number // 100}")
        folder = Path(outputs) / f"{result.id}-{number:05}"
        if not raw:
            keep(folder, result)
            continue
        repeats = []
        for _repeat in range(7):
            ranks = [_varying_events(chance) for _rank in range(result.config.ranks)]
            repeats.append(ranks)
        with_raw_files(folder, result, repeats)


def _varying_result(chance, label):
    model = chance.choice(["resnet50", "vgg16", "bert"])
    throughputs = [chance.gauss(1000, 5) for _repeat in range(7)]
    parameters = {"model": model, "input": "dali", "device": "gpu", "label": label}
    if model == "bert":
        parameters["input"] = "dataloader"
    parameters["precision"] = chance.choice(["fp32", "amp"])
    parameters["batch_size"] = chance.choice([32, 64, 128, 256])
    parameters["nodes"] = chance.choice([1, 2])
    parameters["gpus"] = chance.choice([1, 2])
    driver = chance.choice(["525.60", "550.54"])
    return measured(throughputs, facts={"driver": driver}, **parameters)


def _varying_events(chance):
    seconds = [chance.gauss(0.2, 0.002) for _step in range(120)]
    return rank_events(seconds, samples=32, measured_steps=100)


def diagnosis(**changes):
    """Return a diagnosis of an input that is too slow, with fields changed."""
    values = {
        "schema_version": 5,
        "created": CREATED,
        "verdict": "input-bound",
        "data_wait_share": 0.9,
        "training": 50.0,
        "input_alone": 51.0,
    }
    return Diagnosis(**values | changes)


def finished_repeats(outputs):
    """Map the raw files of finished repeats to digest and modification time in ns.

    Raises ValueError if a result or a notebook is truncated.
    """
    states = {}
    for path in outputs.glob("*/result.json"):
        result = json.loads(path.read_text())
        for repeat in result["repeats"]:
            if repeat["status"] != "complete":
                continue
            raw_folder = path.parent / "repeats" / str(repeat["index"])
            for raw_file in raw_folder.iterdir():
                digest = hashlib.sha256(raw_file.read_bytes()).hexdigest()
                states[str(raw_file)] = (digest, raw_file.stat().st_mtime_ns)
    for notebook in outputs.glob("*/notebook.ipynb"):
        json.loads(notebook.read_text())
    return states
