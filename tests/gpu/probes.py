"""Collects facts about a device in one process: `python probes.py TASK CONFIG FILE`.

TASK and CONFIG are JSON; the facts are written to FILE as JSON. A task is {"name": a name in
TASKS, and its keyword arguments}. On a CPU, which only tests this program, models are narrow.
This process imports a framework; run.py, which starts it, does not.
"""

import json
import os
import sys
import time
from itertools import islice, pairwise
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pynvml  # noqa: E402

from perfkit.config import Config  # noqa: E402
from perfkit.frameworks.base import backend  # noqa: E402
from perfkit.inputs import synthetic  # noqa: E402
from perfkit.system import gpus  # noqa: E402
from perfkit.worker.loop import train  # noqa: E402
from perfkit.worker.peak import measure_peak  # noqa: E402


class Watched:
    """A device that makes PyTorch raise an error for synchronizations in the window, which is
    from the first event after the second synchronization to the wait for the last event. The
    warm-up's losses are read between the two synchronizations."""

    def __init__(self, device, torch):
        self.device, self.torch, self.synchronized = device, torch, 0

    def __getattr__(self, name):
        return getattr(self.device, name)

    def synchronize(self):
        self.device.synchronize()
        self.synchronized += 1

    def record_event(self):
        event = self.device.record_event()
        if self.torch and self.synchronized == 2:
            self.torch.cuda.set_sync_debug_mode("error")
        return event

    def wait_for(self, event):
        if self.torch:
            self.torch.cuda.set_sync_debug_mode("default")
        self.device.wait_for(event)


def opened(config):
    framework = backend(config.framework)
    return framework, framework.open_device(config)


def device_facts(config, seconds=1.0, size=4096):
    framework, device = opened(config)
    return {
        "identity": identity(config),
        "energy": energy(framework, device, config, seconds, size),
        "events": events(framework, device, config, seconds, size),
    }


def identity(config):
    """Return name and bytes of the first visible GPU by NVML and framework; empty on a CPU."""
    if config.device == "cpu":
        return {}

    @gpus.session()
    def by_nvml():
        (handle, *_) = gpus._visible().values()
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
        return {"name": str(pynvml.nvmlDeviceGetName(handle)), "bytes": int(memory)}

    if config.framework == "torch":
        import torch

        seen = torch.cuda.get_device_properties(0)
    else:
        import paddle

        seen = paddle.device.cuda.get_device_properties(0)
    by_framework = {"name": str(seen.name), "bytes": int(seen.total_memory)}
    return {"nvml": by_nvml(), "framework": by_framework}


def energy(framework, device, config, seconds, size):
    """Return NVML's energy in joules for about `seconds` of matrix products; empty on a CPU."""
    if config.device == "cpu":
        return {}
    multiply = framework.Workloads(config).matmul(size)
    before, began = joules(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            multiply()
        device.synchronize()
    after, lasted = joules(), time.perf_counter() - began
    return {"joules": after - before, "seconds": lasted}


@gpus.session()
def joules():
    """Return the energy that the first visible GPU has used."""
    _field, readers = gpus.figures(1)["gpu_energy"]
    return readers["gpu0"]()


def events(framework, device, config, seconds, size):
    """Record events around matrix products. Return whether the last one had passed just after
    launch, and the sum of the times between events and the host's time, in seconds."""
    multiply = framework.Workloads(config).matmul(size)
    for _ in range(3):
        multiply()
    device.synchronize()
    began = time.perf_counter()
    multiply()
    device.synchronize()
    count = max(4, min(200, int(seconds / (time.perf_counter() - began))))
    began = time.perf_counter()
    marks = [device.record_event()]
    for _ in range(count):
        multiply()
        marks.append(device.record_event())
    passed = device.is_complete(marks[-1])
    device.synchronize()
    host = time.perf_counter() - began
    between = [device.seconds_between(a, b) for a, b in pairwise(marks)]
    return {"passed_at_once": passed, "device_seconds": sum(between), "host_seconds": host}


def peaks(config, times=2):
    framework, device = opened(config)
    workloads = framework.Workloads(config)
    return {"peaks": [measure_peak(workloads, device) for _ in range(times)]}


def training(config, warmup=3, steps=10, addresses=4):
    """Return a training's losses by update, times, batch places and synchronizations."""
    framework, device = opened(config)
    batches = framework.tensors(synthetic.batches(config, 0), config)
    seen = [place(batch) for batch in islice(batches, addresses)]
    trainer = framework.Trainer(config)
    trainer.disable_dropout()
    effective = trainer.effective(next(batches))
    written, torch = [], None
    if config.device == "gpu" and config.framework == "torch":
        import torch
    found = {"synchronized": "" if torch else None}
    try:
        window = train(
            trainer,
            batches,
            Watched(device, torch),
            lambda *events: written.extend(events),
            samples_per_step=config.samples_per_step,
            accumulate=config.accumulate,
            warmup_steps=warmup,
            measured_steps=steps,
            read_losses_at_once=config.device == "cpu",
        )
    except RuntimeError as error:
        found["synchronized"] = str(error)[:300]
        return found | {"effective": effective, "places": seen}
    times = [e["seconds"] for e in written if e["event"] == "step"][warmup:]
    # A skipped step updates nothing: the next loss belongs to the same weights.
    losses = [e["value"] for e in written if e["event"] == "loss"]
    return found | {
        "effective": effective,
        "places": seen,
        "losses": losses[trainer.skipped_steps :],
        "host_seconds": window.seconds,
        "device_seconds": sum(times),
        "step_seconds": median(times),
        "peak_memory_bytes": device.peak_memory_bytes(),
    }


def place(batch):
    """Return the device of a batch and the address of its first tensor."""
    first = batch[0]
    where = first.place if hasattr(first, "place") else first.device
    return [str(where), first.data_ptr()]


def overflow(config, steps=12):
    """Count finite weights after a first-step overflow, with optimizer memory full of NaN."""
    framework, _device = opened(config)
    batch = next(framework.tensors(synthetic.batches(config, 0), config))
    trainer = framework.Trainer(config)
    if config.framework == "torch":
        import torch

        kind = "cuda" if config.device == "gpu" else "cpu"
        sizes = [p.shape for p in trainer.network.parameters() for _ in range(2)]
        freed = [torch.full(size, float("nan"), device=kind) for size in sizes]
        del freed
    for step in range(steps):
        trainer.backward(batch)
        if step == 0:
            next(iter(trainer.network.parameters())).grad.fill_(float("inf"))
        trainer.update()
    finite = [bool(np.isfinite(array).all()) for array in trainer.weights().values()]
    return {
        "steps": steps,
        "skipped_steps": trainer.skipped_steps,
        "finite": sum(finite),
        "of": len(finite),
    }


def profiled(config, warmup=3, steps=5):
    """Return the parts of a step by the framework's profiler."""
    framework, device = opened(config)
    batches = framework.tensors(synthetic.batches(config, 0), config)
    trainer = framework.Trainer(config)

    def step():
        trainer.backward(next(batches))
        trainer.update()

    for _ in range(warmup):
        step()
    device.synchronize()
    return {"parts": framework.profile(step, steps)}


def dali(config, data, held=6):
    """Compare DALI's first batch with that of its CPU pipeline with the same seed; return the
    mean difference and whether a held batch changes while others are produced."""
    from perfkit.inputs import dali as source
    from perfkit.inputs.samples import make_images

    for _ in make_images(Path(data), 64):
        pass
    config = config.model_copy(update={"data_dir": str(data)})
    framework, device = opened(config)
    on_cpu = config.model_copy(update={"device": "cpu", "processes": 1})
    expected = np.array(next(source.batches(on_cpu, 0))[0])
    batches = framework.tensors(source.batches(config, 0), config)
    first = next(batches)[0]
    device.synchronize()
    as_array = framework.Trainer(config).array
    copied = np.array(as_array(first))
    changed = None
    if config.device == "gpu":
        for _ in range(held + config.dali_prefetch):
            next(batches)
        device.synchronize()
        changed = not np.array_equal(copied, as_array(first))
    difference = float(np.abs(copied - expected).mean())
    return {"difference": difference, "held_batch_changed": changed}


TASKS = {
    task.__name__: task for task in (device_facts, peaks, training, overflow, profiled, dali)
}


def main(task, config, file):
    task, config = json.loads(task), Config.model_validate_json(config)
    if config.device == "cpu":
        from narrow import replace_sizes

        replace_sizes(setattr)
    found = TASKS[task.pop("name")](config, **task)
    Path(file).write_text(json.dumps(found))
    # Skip the framework's slow shutdown.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
