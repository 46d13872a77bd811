"""Functions that ask a framework about the GPU, each in a process of its own:
`python device.py FUNCTION CONFIG SMALL`. The answer is the last line of the output, as JSON."""

import json
import os
import sys
import tempfile
import time
from itertools import islice, pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pynvml
from perfkit.core.worker.peak import measure_peak

from perfkit.core.config import Config
from perfkit.core.frameworks.interface import backend
from perfkit.core.system import gpus
from perfkit.core.worker.loop import train
from perfkit.inputs import synthetic

LARGE, TINY = 4096, 512
"""Rows of a matrix that keeps a GPU busy, and of one for a device that is none."""
WARMUP_STEPS, STEPS = 3, 10
HELD_BATCHES = 6


def identity(config, small):
    """Name and bytes of the first visible GPU, by NVML and by the framework."""
    with gpus.session():
        handle = first_handle()
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        name = pynvml.nvmlDeviceGetName(handle)
    if config.framework == "torch":
        import torch

        properties = torch.cuda.get_device_properties(0)
    else:
        import paddle

        properties = paddle.device.cuda.get_device_properties(0)
    return {
        "nvml": [str(name), int(memory.total)],
        "framework": [str(properties.name), int(properties.total_memory)],
    }


def first_handle():
    """NVML's handle of the first visible GPU."""
    (handle, *_others) = gpus.visible_handles().values()
    return handle


def events(config, small):
    """Seconds of matrix products by the events between them and by the host's clock, and
    whether the last event had passed just after its launch."""
    framework = backend(config.framework)
    device = framework.open_device(config)
    rows = LARGE
    if small:
        rows = TINY
    multiply = framework.Workloads(config).matmul(rows)
    for _ in range(3):
        multiply()
    device.synchronize()
    began = time.perf_counter()
    marks = [device.record_event()]
    for _ in range(200):
        multiply()
        marks.append(device.record_event())
    passed = device.is_complete(marks[-1])
    device.synchronize()
    host = time.perf_counter() - began
    on_device = 0.0
    for before, after in pairwise(marks):
        on_device += device.seconds_between(before, after)
    return {"passed_at_once": passed, "device": on_device, "host": host}


def peaks(config, small):
    """Two measured peaks in a row."""
    framework = backend(config.framework)
    device = framework.open_device(config)
    workloads = framework.Workloads(config)
    return [measure_peak(workloads, device) for _ in range(2)]


class Watched:
    """A device that makes PyTorch raise an error for a synchronization in the window, which is
    from the first event after the second synchronization to the wait for the last event. The
    warm-up's losses are read between the two synchronizations. `events` counts those in the
    window."""

    def __init__(self, device, torch):
        self.device = device
        self.torch = torch
        self.synchronized = 0
        self.events = 0

    def __getattr__(self, name):
        return getattr(self.device, name)

    def synchronize(self):
        self.device.synchronize()
        self.synchronized += 1

    def record_event(self, result=None):
        event = self.device.record_event(result)
        if self.torch and self.synchronized == 2:
            self.torch.cuda.set_sync_debug_mode("error")
            self.events += 1
        return event

    def wait_for(self, event):
        if self.torch:
            self.torch.cuda.set_sync_debug_mode("default")
        self.device.wait_for(event)


def training(config, small):
    """What a training's step is: losses, times, precision, and where its batches lie."""
    framework = backend(config.framework)
    device = framework.open_device(config)
    batches = framework.tensors(synthetic.batches(config, 0), config)
    places = [place(batch) for batch in islice(batches, 4)]
    trainer = framework.Trainer(config)
    inspector = framework.Inspector(trainer)
    inspector.disable_dropout()
    # The threads of a CPU, which need another package to be counted.
    inspector.threads = dict
    effective = inspector.effective(next(batches))
    torch = None
    if config.framework == "torch":
        torch = sys.modules["torch"]
    watched = Watched(device, torch)
    written = []

    def write(*events):
        written.extend(events)

    window = train(
        trainer,
        batches,
        watched,
        write,
        samples_per_step=config.samples_per_step,
        accumulate=config.accumulate,
        warmup_steps=WARMUP_STEPS,
        measured_steps=STEPS,
        read_losses_at_once=False,
    )
    steps = [event["seconds"] for event in written if event["event"] == "step"]
    losses = [event["value"] for event in written if event["event"] == "loss"]
    measured_steps = steps[WARMUP_STEPS:]
    return {
        "precision": effective.precision,
        "tf32": effective.tf32,
        "places": places,
        "watched_events": watched.events,
        "steps": STEPS,
        # A skipped step updates nothing: the next loss belongs to the same weights.
        "losses": losses[trainer.skipped_steps :],
        "host": window.seconds,
        "device": sum(measured_steps),
        "step": median(measured_steps),
    }


def place(batch):
    """The device of a batch and the address of its first tensor."""
    first, *_others = batch
    if hasattr(first, "place"):
        return [str(first.place), first.data_ptr()]
    return [str(first.device), first.data_ptr()]


def overflow(config, small):
    """Finite weights after a first step that overflowed, with NaN in the memory that the
    optimizer gets."""
    framework = backend(config.framework)
    framework.open_device(config)
    batch = next(framework.tensors(synthetic.batches(config, 0), config))
    trainer = framework.Trainer(config)
    if config.framework == "torch":
        import torch

        freed = []
        for parameter in trainer.network.parameters():
            for _ in range(2):
                freed.append(torch.full(parameter.shape, float("nan"), device="cuda"))
        del freed
    for step in range(STEPS):
        trainer.backward(batch)
        if step == 0:
            first = next(iter(trainer.network.parameters()))
            with sys.modules[config.framework].no_grad():
                first.grad.fill_(float("inf"))
        trainer.update()
    weights = framework.Inspector(trainer).weights()
    finite = 0
    for array in weights.values():
        finite += bool(np.isfinite(array).all())
    return {"skipped": trainer.skipped_steps, "finite": finite, "weights": len(weights)}


def dali(config, small):
    """The mean difference of DALI's first batch from that of its CPU pipeline, and whether a
    held batch changes while others are produced."""
    from perfkit.inputs import dali as source
    from perfkit.inputs.samples import make_images

    with tempfile.TemporaryDirectory() as folder:
        for _ in make_images(Path(folder), 64):
            pass
        config = config.model_copy(update={"data_dir": folder})
        framework = backend(config.framework)
        device = framework.open_device(config)
        on_cpu = config.model_copy(update={"device": "cpu", "processes": 1})
        images_on_cpu, *_labels = next(source.batches(on_cpu, 0))
        expected = np.array(images_on_cpu)
        batches = framework.tensors(source.batches(config, 0), config)
        first = next(batches)[0]
        device.synchronize()
        as_array = framework.Inspector(framework.Trainer(config)).array
        copied = np.array(as_array(first))
        for _ in range(HELD_BATCHES + config.dali_prefetch):
            next(batches)
        device.synchronize()
        changed = not np.array_equal(copied, as_array(first))
    difference = np.abs(copied - expected).mean()
    return {"difference": float(difference), "changed": changed}


def main(function, config, small):
    small = json.loads(small)
    if small:
        from narrow import replace_sizes

        replace_sizes(setattr)
    ask = globals()[function]
    answer = ask(Config.model_validate_json(config), small)
    print(json.dumps(answer), flush=True)
    # Skip the framework's slow shutdown.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
