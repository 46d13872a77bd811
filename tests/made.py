"""Results made by hand: known numbers for tests of what is read, merged and shown."""

import json
import random
from pathlib import Path

from perfkit.config import Protocol
from perfkit.frameworks import FRAMEWORKS
from perfkit.request.resolve import resolve
from perfkit.results.schema import (
    SCHEMA_VERSION,
    Effective,
    InputData,
    Rank,
    Reading,
    Repeat,
    Result,
    StepSeconds,
    Throughput,
)
from perfkit.results.store import Measurement, Store, write_result
from perfkit.results.summarize import summarize
from perfkit.system import environment

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
    """A complete measurement of one repeat on the CPU."""
    config = resolve(
        {
            "model": "resnet50",
            "device": "cpu",
            "gpus": 0,
            "processes": 1,
            "batch_size": 4,
            "input": "synthetic",
        }
    )
    repeats = [Repeat(index=1, status="complete", throughput=4.0, steps_per_second=1.0)]
    repeats = changes.get("repeats", repeats)
    numbers = [repeat for repeat in repeats if repeat.status == "complete"]
    values = {
        "schema_version": SCHEMA_VERSION,
        "id": "made",
        "created": "2026-01-01T00:00:00+00:00",
        "status": "complete",
        "config": config,
        "protocol": Protocol.named("quick", repeats=1),
        "environment": {"gpus": Reading(value=None, missing="none here")},
        "repeats": repeats,
        "throughput": Throughput.of(numbers, "images/s") if numbers else None,
    }
    return Result(**values | changes)


def stored(folder, **changes):
    """A measurement of two repeats with raw files, its result as made_result's."""
    summary = StepSeconds(minimum=1.0, p25=1.0, median=1.1, p75=1.2, maximum=1.3)
    repeats = [
        Repeat(
            index=k,
            status="complete",
            throughput=4.0 + k / 10,
            steps_per_second=1.0 + k / 40,
            step_seconds=summary,
            data_wait_share=0.01,
            loss_first=7.0,
            loss_last=6.5,
            wall_seconds=9.5,
        )
        for k in (1, 2)
    ]
    folder.mkdir(parents=True)
    for repeat in repeats:
        write_steps(folder, repeat.index, [1 + step / 10 for step in range(1, 8)])
    write_result(folder, made_result(**{"id": folder.name, "repeats": repeats} | changes))
    return Measurement.read(folder)


def write_steps(folder, repeat, seconds):
    """The raw file of rank 0: steps of these seconds, of 4 samples and 0.1 s of waiting."""
    raw = folder / "repeats" / str(repeat) / "rank0.jsonl"
    raw.parent.mkdir(parents=True)
    events = [
        {"event": "step", "step": k, "seconds": s, "data_wait_seconds": 0.1, "samples": 4}
        for k, s in enumerate(seconds, 1)
    ]
    raw.write_text("".join(json.dumps(event) + "\n" for event in events))


def forget_repeats(folder, *, after, **changes):
    """Leave the stored result the repeats up to `after`, as if it had been cut off then, and
    change other fields of it."""
    path = folder / "result.json"
    content = json.loads(path.read_text())
    content |= {"repeats": content["repeats"][:after], "throughput": None, "status": "partial"}
    path.write_text(json.dumps(content | changes))


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
    """The result of a configuration with these throughputs, one for each repeat; of none, one
    that ran out of memory before it had shown anything. `facts` change FACTS, `used` and
    `tf32_used` are what it really used, `parameters` are the configuration's."""
    usual = {"model": "resnet50", "input": "dali", "device": "cpu", "batch_size": 32}
    usual |= {"optimizer": "momentum", "layout": "NCHW", "image_size": 224, "launcher": "local"}
    config = resolve(usual | parameters)
    if config.device == "gpu":
        facts = {"gpus": [V100] * 8, "driver": "525.60"} | (facts or {})
    data = None
    if config.input != "synthetic" and values:
        data = InputData(samples=512, sha256="0" * 64)
    repeats = [
        Repeat(
            index=k,
            status="complete",
            throughput=value,
            steps_per_second=value / config.global_batch,
            data_wait_share=0.01,
            step_seconds=StepSeconds(minimum=1, p25=1, median=1, p75=1, maximum=1),
            loss_first=7.0,
            loss_last=6.5,
            wall_seconds=9.5,
            ranks=[
                Rank(
                    rank=n,
                    samples=100,
                    window_seconds=100 * config.ranks / value,
                    data_wait_seconds=0.1,
                )
                for n in range(config.ranks)
            ],
        )
        for k, value in enumerate(values, 1)
    ]
    unit = "sequences/s" if config.model == "bert" else "images/s"
    failure = None if values else {"code": "out_of_memory", "params": {"detail": "no room"}}
    name = f"{config.model}-{config.precision}-{config.topology}-b{config.batch_size}"
    return Result(
        schema_version=SCHEMA_VERSION,
        id=name,
        created="2026-01-01T00:00:00+00:00",
        status="complete" if values else "failed",
        failure=failure,
        config=config,
        protocol=Protocol.named(
            protocol,
            repeats=len(values) or 1,
            warmup_steps=warmup_steps,
            measured_steps=measured_steps,
        ),
        environment={
            fact: Reading(value=value, missing=None if value else "none here")
            for fact, value in (FACTS | (facts or {})).items()
        },
        input_data=data,
        effective=_effective(config, used, tf32_used) if values else None,
        repeats=repeats,
        throughput=Throughput.of(repeats, unit) if values else None,
    )


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


def write_all(outputs, *results):
    """Store the results below `outputs`, the n-th in a folder that ends in n."""
    for number, result in enumerate(results):
        folder = Path(outputs) / f"{result.id}-{number}"
        folder.mkdir(parents=True)
        write_result(folder, result.model_copy(update={"id": folder.name}))
    return Path(outputs)


def rank_events(seconds, samples=8, measured_steps=None, compute_seconds=None):
    """What a rank writes that takes these seconds for its steps, the last `measured_steps` of
    them (else all but one) in the window, a batch of `samples` each, and 0.1 s of waiting."""
    window = seconds[-(measured_steps or len(seconds) - 1) :]
    steps = range(1, len(seconds) + 1)
    return [
        {"event": "start"},
        *(
            {
                "event": "step",
                "step": k,
                "seconds": s,
                "data_wait_seconds": 0.1,
                "samples": samples,
            }
            for k, s in zip(steps, seconds, strict=True)
        ),
        *({"event": "loss", "step": k, "value": 10.0 - k} for k in steps),
        {
            "event": "window",
            "samples": samples * len(window),
            "seconds": sum(window),
        },
        {
            "event": "end",
            "memory_bytes": 1,
            "compute_seconds": compute_seconds,
            "skipped_steps": None,
            "loss_scale": None,
        },
    ]


def with_raw_files(folder, result, events):
    """Store in `folder` a result as `result`, with the numbers of `events`, which are those of
    each rank of each repeat, and with them as raw files."""
    protocol = result.protocol
    repeats = [summarize(k, protocol, ranks, 9.5) for k, ranks in enumerate(events, 1)]
    changes = {"id": folder.name, "repeats": repeats}
    changes["throughput"] = Throughput.of(repeats, result.throughput.unit)
    folder.mkdir(parents=True)
    for repeat, ranks in zip(repeats, events, strict=True):
        for rank, rank_events in enumerate(ranks):
            path = Store(folder).rank_file(repeat.index, rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(event) + "\n" for event in rank_events))
    write_result(folder, result.model_copy(update=changes))
    return Measurement.read(folder)


def write_many(outputs, count, seed=0, raw=True):
    """`count` measurements over models, precisions, batch sizes, topologies of 1 to 4 ranks,
    drivers and labels, of 7 repeats of 120 steps each; the raw files too unless not `raw`."""
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
            folder.mkdir(parents=True)
            write_result(folder, result.model_copy(update={"id": folder.name}))
