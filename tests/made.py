"""Factories of results with known numbers."""

import json
import random
from pathlib import Path

from perfkit.analysis.diagnosis.stored import Diagnosis, InputAlone
from perfkit.core.config import Protocol
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import model_of, units_per_sample
from perfkit.core.request.resolve import resolve
from perfkit.core.results.identity import Reading, measurement_id
from perfkit.core.results.repeat import Rank, Repeat, StepSeconds
from perfkit.core.results.schema import SCHEMA_VERSION, Effective, InputData, Result, Throughput
from perfkit.core.results.store import (
    Measurement,
    Store,
    raw_digests,
    read_raw_files,
    read_result,
    write_result,
)
from perfkit.core.results.summarize import NOT_IN_RAW_FILES, summarize
from perfkit.core.system import environment

V100 = "Tesla V100-SXM2-32GB, 32 GiB"
FACTS = dict.fromkeys([*environment.FACTS, *FRAMEWORKS["paddle"].facts], "1.0") | {
    "cpu": "AMD EPYC (family 25 model 17)",
    "gpus": None,
    "driver": None,
    "paddle": "3.3.1",
    "suite_commit": "0" * 40,
    "suite_modified": False,
}


def made_result(**changes):
    """Return a complete measurement of one repeat on the CPU, with fields changed."""
    given = {"model": "resnet50", "device": "cpu", "gpus": 0, "processes": 1}
    config = changes.get("config", resolve(given | {"batch_size": 4, "input": "synthetic"}))
    repeats = [Repeat(index=1, status="complete", throughput=4.0, steps_per_second=1.0)]
    repeats = changes.pop("repeats", repeats)
    count = max(1, len(repeats)) + (changes.get("status") == "partial")
    protocol = changes.get("protocol", Protocol.named("quick", repeats=count))
    repeats = [_with_ranks(repeat, config, protocol) for repeat in repeats]
    finished = [repeat for repeat in repeats if repeat.status == "complete"]
    values = {
        "schema_version": SCHEMA_VERSION,
        "id": "made",
        "created": "2026-01-01T00:00:00+00:00",
        "status": "complete",
        "config": config,
        "protocol": protocol,
        "environment": {"gpus": Reading(value=None, missing="none here")},
        "repeats": repeats,
        "throughput": Throughput.of(finished, "images/s") if finished else None,
    }
    return Result(**values | changes)


def stored(folder, **changes):
    """Store a variant of `made_result` with two repeats and raw files; see `identified` for the
    folder's name."""
    if "repeats" in changes:
        return keep(folder, made_result(**changes))
    seconds = [1 + step / 10 for step in range(1, 8)]
    events = [
        rank_events([s * 20 / (4.0 + k / 10) / sum(seconds[-5:]) for s in seconds], 4, 5)
        for k in (1, 2)
    ]
    return with_raw_files(folder, made_result(**changes), [[ranks] for ranks in events])


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
    usual = {"model": "resnet50", "input": "dali", "device": "cpu", "batch_size": 32}
    usual |= {"optimizer": "momentum", "layout": "NCHW", "image_size": 224, "launcher": "local"}
    config = resolve(usual | parameters)
    if config.device == "gpu":
        facts = {"gpus": [V100] * 8, "driver": "525.60"} | (facts or {})
    data = None
    if config.input != "synthetic" and values:
        data = InputData(samples=512, sha256="0" * 64)
    steps = {"warmup_steps": warmup_steps, "measured_steps": measured_steps}
    protocol = Protocol.named(protocol, repeats=len(values) or 1, **steps)
    samples, units = protocol.measured_steps * config.samples_per_step, units_per_sample(config)
    seconds = [samples * config.ranks * units / value for value in values]
    repeats = [
        Repeat(
            index=k,
            status="complete",
            throughput=value,
            steps_per_second=value / config.global_batch / units,
            data_wait_share=0.01,
            step_seconds=StepSeconds(minimum=1, p25=1, median=1, p75=1, maximum=1),
            loss_first=7.0,
            loss_last=6.5,
            wall_seconds=max(9.5, window),
            ranks=_ranks(config, samples, window, 0.01),
        )
        for k, (value, window) in enumerate(zip(values, seconds, strict=True), 1)
    ]
    unit = model_of(config).unit
    failure = None if values else {"code": "out_of_memory", "params": {"detail": "no room"}}
    name = f"{config.model}-{config.precision}-{config.topology}-b{config.batch_size}"
    return Result(
        schema_version=SCHEMA_VERSION,
        id=name,
        created="2026-01-01T00:00:00+00:00",
        status="complete" if values else "failed",
        failure=failure,
        config=config,
        protocol=protocol,
        environment={
            fact: Reading(value=value, missing=None if value else "none here")
            for fact, value in (FACTS | (facts or {})).items()
        },
        input_data=data,
        effective=_effective(config, used, tf32_used) if values else None,
        repeats=repeats,
        throughput=Throughput.of(repeats, unit) if values else None,
    )


def _ranks(config, samples, window, data_wait_share):
    counts = {"samples": samples, "window_seconds": window}
    counts["data_wait_seconds"] = data_wait_share * window
    return [Rank(rank=rank, **counts) for rank in range(config.ranks)]


def _with_ranks(repeat, config, protocol):
    """Return the repeat with a window for each rank, if it is complete and has none."""
    if repeat.ranks or repeat.status != "complete":
        return repeat
    steps, share = protocol.measured_steps, repeat.data_wait_share or 0.0
    seconds = steps / repeat.steps_per_second
    ranks = _ranks(config, steps * config.samples_per_step, seconds, share)
    return repeat.model_copy(update={"ranks": ranks})


def _effective(config, used, tf32_used):
    return Effective(
        precision=used or config.precision,
        device=config.device,
        dtypes={"float32": 109},
        threads={"libgomp": 2},
        variables={"OMP_NUM_THREADS": "2"},
        parameters=25_557_032,
        optimizer_settings="momentum SGD",
        tf32=config.tf32 if tf32_used is None else tf32_used,
        loss_scaling=None,
    )


def change(path, old, new):
    """Replace the first `old` in a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def identified(folder, result):
    """Return the folder with the digest that the result's id must end in added to its name."""
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

    def kept(repeat):
        if repeat.status != "complete":
            return repeat
        others = {name: getattr(repeat, name) for name in NOT_IN_RAW_FILES - {"raw_files"}}
        return _derived(folder, result, repeat.index, _events(result, repeat), **others)

    return _write(folder, result, [kept(repeat) for repeat in result.repeats])


def _derived(folder, result, index, events, telemetry=(), **others):
    """Write the raw files of a repeat, a list of events for each rank, and return the numbers
    that follow from them."""
    files = {Store(folder).rank_file(index, rank): lines for rank, lines in enumerate(events)}
    if telemetry:
        files[Store(folder).telemetry_file(index)] = telemetry
    for path, lines in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    units = units_per_sample(result.config)
    repeat = summarize(index, result.protocol, events, 0.0, telemetry, units=units)
    others["raw_files"] = raw_digests(read_raw_files(Store(folder).raw_folder(index)))
    return repeat.model_copy(update=others)


def _events(result, repeat):
    """Return the raw events of each rank that give a complete repeat's numbers."""
    count, samples = result.protocol.measured_steps, result.config.samples_per_step
    ranks, share = repeat.ranks, repeat.data_wait_share or 0.0
    steps = range(1, result.steps(repeat) + 1)
    losses = {1: repeat.loss_first or 7.0, steps[-1]: repeat.loss_last or 6.5}
    every = []
    for rank in ranks:
        step = {"seconds": rank.window_seconds / count, "samples": samples}
        step["data_wait_seconds"] = share * rank.window_seconds / count
        events = [{"event": "step", "step": k} | step for k in steps]
        events += [{"event": "loss", "step": k, "value": v} for k, v in losses.items()]
        if repeat.warmup:
            events.append({"event": "warmup"} | repeat.warmup.model_dump())
        if repeat.evaluation:
            events.append({"event": "evaluation"} | repeat.evaluation.model_dump())
        if repeat.peak:
            peak = {k: v / len(ranks) for k, v in repeat.peak if k != "disturbance"}
            events.append({"event": "peak"} | peak)
        window = {"samples": rank.samples, "seconds": rank.window_seconds}
        end = {"memory_bytes": rank.memory_bytes, "compute_seconds": rank.compute_seconds}
        end |= {"samples_seen": rank.samples_seen, "loss_scale": repeat.loss_scale}
        end["skipped_steps"] = repeat.skipped_steps
        every.append([*events, {"event": "window"} | window, {"event": "end"} | end])
    return every


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
    window = seconds[-(measured_steps or len(seconds) - 1) :]
    rest = {"data_wait_seconds": 0.1, "samples": samples}
    end = {"event": "end", "memory_bytes": 1, "compute_seconds": compute_seconds}
    counts = {"samples": samples * len(window), "seconds": sum(window)}
    return [
        {"event": "start"},
        *({"event": "step", "step": k, "seconds": s} | rest for k, s in enumerate(seconds, 1)),
        *({"event": "loss", "step": k, "value": 10.0 - k} for k in range(1, len(seconds) + 1)),
        {"event": "window"} | counts,
        end | {"skipped_steps": None, "loss_scale": None},
    ]


def with_raw_files(folder, result, events, telemetry=()):
    """Store `result` with raw files and numbers of `events`, a list of ranks for each repeat,
    and of `telemetry`, for each; see `identified` for the folder's name."""
    steps = [event for event in events[0][0] if event["event"] == "step"]
    window = next(event for event in events[0][0] if event["event"] == "window")
    samples = {"batch_size": steps[0]["samples"] // result.config.accumulate}
    repeats = len(events) + (result.status == "partial")
    counts = {"repeats": repeats, "measured_steps": window["samples"] // steps[0]["samples"]}
    config = result.config.model_copy(update=samples)
    protocol = result.protocol.model_copy(update=counts)
    result = result.model_copy(update={"config": config, "protocol": protocol})
    folder, repeats = identified(Path(folder), result), []
    for k, ranks in enumerate(events, 1):
        longest = max(e["seconds"] for rank in ranks for e in rank if e["event"] == "window")
        seconds = {"wall_seconds": longest + 9.5}
        repeats.append(_derived(folder, result, k, ranks, telemetry, **seconds))
    return _write(folder, result, repeats)


def write_many(outputs, count, seed=0, raw=True):
    """Store `count` measurements of 7 repeats that vary in model, precision, batch size,
    topology (1 to 4 ranks), driver and label; with 120 varying raw steps each if `raw`."""
    chance = random.Random(seed)
    for number in range(count):
        model = chance.choice(["resnet50", "vgg16", "bert"])
        result = measured(
            [chance.gauss(1000, 5) for _repeat in range(7)],
            model=model,
            input="dataloader" if model == "bert" else "dali",
            device="gpu",
            precision=chance.choice(["fp32", "amp"]),
            batch_size=chance.choice([32, 64, 128, 256]),
            nodes=chance.choice([1, 2]),
            gpus=chance.choice([1, 2]),
            label=f"week{number // 100}",
            facts={"driver": chance.choice(["525.60", "550.54"])},
        )
        folder = Path(outputs) / f"{result.id}-{number:05}"
        if raw:
            events = [
                [
                    rank_events([chance.gauss(0.2, 0.002) for _step in range(120)], 32, 100)
                    for _rank in range(result.config.ranks)
                ]
                for _repeat in range(7)
            ]
            with_raw_files(folder, result, events)
        else:
            keep(folder, result)


def input_alone(count, rate):
    """Return the throughput of the input alone with `count` threads."""
    return InputAlone(setting="dali_threads", count=count, throughput=rate, depth=2)


def diagnosis(**changes):
    """Return a diagnosis of an input that is too slow, with fields changed."""
    values = {
        "schema_version": 4,
        "created": "2026-01-01T00:00:00+00:00",
        "verdict": "input-bound",
        "throughput": 50.0,
        "synthetic": 100.0,
        "synthetic_id": "other",
        "ratio": 0.5,
        "interval": (0.49, 0.51),
        "interval_level": 0.98,
        "comparison": "resnet50-input-0a1b2c3d",
        "out_of_turn": [],
        "input_alone": [
            input_alone(4, 51.0),
            input_alone(8, 105.0),
            input_alone(16, 200.0),
            input_alone(32, 300.0),
        ],
    }
    return Diagnosis(**values | changes)
