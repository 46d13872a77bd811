"""Functions that ask a framework about the GPU, each in a process of its own:
`python device.py FUNCTION SMALL FRAMEWORK WORDS…`; WORDS are those of a training script. The
answer is the last line of the output, as JSON."""

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pynvml
from trained import train_here

from perfkit.measuring.system import gpus
from perfkit.timing.frameworks import FRAMEWORKS
from perfkit.timing.peak import measure_peak, product_precision
from perfkit.training.options import Options

LARGE, TINY = 4096, 512
"""Rows of a matrix that keeps a GPU busy, and of one for a device that is none."""
WARMUP_STEPS, STEPS = 3, 10
HELD_BATCHES = 6


def script_of(framework):
    return import_module(f"perfkit.training.{framework}.train")


def opened(options):
    """Open the GPU as the training script does; return the timer's framework and device."""
    script_of(options.framework).open_device(options)
    framework = FRAMEWORKS[options.framework](sys.modules[options.framework])
    return framework, framework.open_device(options.device)


def identity(options, _words, small):
    """Name and bytes of the first visible GPU, by NVML and by the framework."""
    with gpus.session():
        handle = first_handle()
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        name = pynvml.nvmlDeviceGetName(handle)
    if options.framework == "torch":
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


def events(options, _words, small):
    """Seconds of matrix products by the events between them and by the host's clock, and
    whether the last event had passed just after its launch."""
    framework, device = opened(options)
    rows = LARGE
    if small:
        rows = TINY
    multiply = framework.matmul(rows, product_precision(options.precision))
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


def peaks(options, _words, small):
    """Two measured peaks in a row."""
    framework, device = opened(options)
    matmul = partial(framework.matmul, precision=product_precision(options.precision))
    return [measure_peak(matmul, framework.copy, device) for _ in range(2)]


class Watched:
    """A device that makes PyTorch raise an error for a synchronization in the window, which is
    from the first event after the third synchronization to the wait for the last event. The
    first one ends the first step, the second one begins the next step, and the losses of the
    warm-up are read after the third one. `events` counts those in the window."""

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
        if self.torch and self.synchronized == 3:
            self.torch.cuda.set_sync_debug_mode("error")
            self.events += 1
        return event

    def wait_for(self, event):
        if self.torch:
            self.torch.cuda.set_sync_debug_mode("default")
        self.device.wait_for(event)


def watched_devices(name):
    """Have the timer watch the device that it opens; return a list for that device."""
    framework = FRAMEWORKS[name]
    open_device = framework.open_device
    devices = []

    def watch(self, device_type):
        torch = None
        if name == "torch":
            torch = self.module
        devices.append(Watched(open_device(self, device_type), torch))
        return devices[-1]

    framework.open_device = watch
    return devices


def wrap(module, name, receive):
    """Have `receive` see all that a function of a module returns."""
    function = getattr(module, name)

    def wrapped(*given, **named):
        returned = function(*given, **named)
        receive(returned)
        return returned

    setattr(module, name, wrapped)


def train(options, words):
    steps = {"warmup_steps": WARMUP_STEPS, "measured_steps": STEPS}
    return train_here(options.framework, *words, device=options.device, **steps)


def training(options, words, small):
    """What a training's step is: losses, times, precision, and where its batches lie."""
    script = script_of(options.framework)
    verify = import_module(f"perfkit.training.{options.framework}.verify")
    places = []
    wrap(script, "new_model", verify.disable_dropout)
    wrap(script, "new_batches", lambda batches: places.extend(map(place, islice(batches, 4))))
    devices = watched_devices(options.framework)
    run = train(options, words)
    (watched,) = devices
    measured_steps = run.step_seconds[WARMUP_STEPS:]
    return {
        "precision": run.notes["precision"],
        "tf32": run.notes["tf32"],
        "places": places,
        "watched_events": watched.events,
        "steps": STEPS,
        # A skipped step updates nothing: the next loss belongs to the same weights.
        "losses": run.losses[run.notes.get("skipped_steps", 0) :],
        "host": run.window["seconds"],
        "device": sum(measured_steps),
        "step": median(measured_steps),
    }


def place(batch):
    """The device of a batch and the address of its first tensor."""
    first, *_others = batch
    if hasattr(first, "place"):
        return [str(first.place), first.data_ptr()]
    return [str(first.device), first.data_ptr()]


def overflow(options, words, small):
    """Finite weights after a first step that overflowed, with NaN in the memory that the
    optimizer gets."""
    script = script_of(options.framework)
    framework = sys.modules[options.framework]
    models = []
    wrap(script, "new_model", models.append)
    update = framework.amp.GradScaler.step
    updated = []

    def overflowing(self, optimizer):
        (model,) = models
        if not updated:
            with framework.no_grad():
                next(iter(model.parameters())).grad.fill_(float("inf"))
            if options.framework == "torch":
                leave_nan(model)
        updated.append(optimizer)
        return update(self, optimizer)

    framework.amp.GradScaler.step = overflowing
    run = train(options, words)
    (model,) = models
    weights = [array_of(parameter.detach()) for parameter in model.parameters()]
    finite = sum(bool(np.isfinite(array).all()) for array in weights)
    return {
        "skipped": run.notes["skipped_steps"],
        "finite": finite,
        "weights": len(weights),
    }


def leave_nan(model):
    """Leave NaN in the memory that PyTorch allocates next for tensors of these sizes."""
    import torch

    freed = []
    for parameter in model.parameters():
        for _ in range(2):
            freed.append(torch.full(parameter.shape, float("nan"), device="cuda"))
    del freed


def array_of(tensor):
    """A copy of a tensor in the host's memory."""
    return np.array(tensor.cpu().numpy())


def dali(options, _words, small):
    """The mean difference of DALI's first batch from that of its CPU pipeline, and whether a
    held batch changes while others are produced."""
    from perfkit.inputs.samples import make_images

    with tempfile.TemporaryDirectory() as folder:
        for _ in make_images(Path(folder), 64):
            pass
        options = replace(options, data_dir=folder)
        expected = array_of(next(batches_of(replace(options, device="cpu")))[0])
        batches = batches_of(options)
        _framework, device = opened(options)
        first = next(batches)[0]
        device.synchronize()
        copied = array_of(first)
        for _ in range(HELD_BATCHES + options.dali_prefetch):
            next(batches)
        device.synchronize()
        changed = not np.array_equal(copied, array_of(first))
    difference = np.abs(copied - expected).mean()
    return {"difference": float(difference), "changed": changed}


def batches_of(options):
    """The input of a training script, which opens its device first."""
    script = script_of(options.framework)
    device = script.open_device(options)
    if options.framework == "torch":
        return script.new_batches(options, device)
    return script.new_batches(options)


def main(function, small, framework, *words):
    small = json.loads(small)
    if small:
        from narrow import replace_sizes

        replace_sizes(setattr)
    options = Options.parse(framework, words)
    # Loads the framework.
    script_of(framework)
    answer = globals()[function](options, words, small)
    print(json.dumps(answer), flush=True)
    # Skip the framework's slow shutdown.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
