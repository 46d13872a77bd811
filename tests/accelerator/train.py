"""Train narrow models on the fake accelerator: `train.py FILE`, alone or under a launcher.

FILE is a JSON list of parameters; one JSON object is printed for each, with the `rank`. `steps`
has each measured step's nonzero counters (NAMES in fake.py), `calls` the last step's kernels,
`collectives` the number of the step's kernels before each collective of the last step.
Additional parameters: `warmup`, in steps; `overflow_at`, a step whose gradients overflow;
`kernel_seconds`, the time per kernel; `forgetful`, whether to skip waiting for the last step;
`shard_over`, the number of values above which a parameter is sharded.
"""

import ctypes
import json
import os
import sys
import traceback
from itertools import count, pairwise
from pathlib import Path

from accelerator.fake import NAMES
from narrow import replace_sizes

from perfkit.core.frameworks.paddle import backend, sharding
from perfkit.core.request.resolve import resolve
from perfkit.core.worker.loop import train
from perfkit.inputs import dataloader, synthetic

INPUTS = {"synthetic": synthetic, "dataloader": dataloader}
WARMUP, MEASURED = 2, 2
KERNELS = ("momentum", "merged_momentum", "adamw_", "adamw", "transpose", "cast", "linear_v2")
library = ctypes.CDLL(f"{os.environ['CUSTOM_DEVICE_ROOT']}/libfake.so")
library.fake_calls.restype = ctypes.c_size_t
library.fake_kernel_seconds.argtypes = [ctypes.c_double]


def counters():
    values = (ctypes.c_size_t * len(NAMES))()
    library.fake_counters(values)
    return dict(zip(NAMES, values, strict=True))


def calls():
    return {name: library.fake_calls(name.encode()) for name in KERNELS}


def increase(before, after):
    """Return by how much each count rose, without those that did not."""
    rises = {}
    for name, total in after.items():
        if total != before[name]:
            rises[name] = total - before[name]
    return rises


class Counting:
    """A device that records the counters at each event."""

    def __init__(self, device):
        self.device = device
        self.counted = []
        self.called = []
        self.kernels_before_collectives = []

    def __getattr__(self, name):
        return getattr(self.device, name)

    def record_event(self, result=None):
        event = self.device.record_event(result)
        self.counted.append(counters())
        self.called.append(calls())
        self.kernels_before_collectives = self._kernels_before_collectives()
        return event

    def _kernels_before_collectives(self):
        """Return the number of kernels between the last event and each collective."""
        if len(self.counted) < 2:
            return []
        before, after = self.counted[-2:]
        count = after["collectives"] - before["collectives"]
        kernels = (ctypes.c_size_t * count)()
        library.fake_collectives(kernels, ctypes.c_size_t(count))
        return [number - before["kernels"] for number in kernels]


def run(parameters):
    warmup = parameters.pop("warmup", WARMUP)
    overflow = parameters.pop("overflow_at", None)
    kernel_seconds = parameters.pop("kernel_seconds", 0.0)
    forgetful = parameters.pop("forgetful", False)
    sharding.LEAST_SHARDED_VALUES = parameters.pop("shard_over", sharding.LEAST_SHARDED_VALUES)
    config = resolve(parameters, 1)
    rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    device = Counting(backend.open_device(config))
    if forgetful:
        device.wait_for = lambda _event: None
    trainer = backend.Trainer(config)
    host_batches = INPUTS[config.input].batches(config, rank)
    batches = backend.tensors(host_batches, config)
    batch = next(batches)
    inspector = backend.Inspector(trainer)
    effective = inspector.effective(batch)
    if overflow:
        plant_overflow(trainer, overflow)
    events = Events()
    library.fake_kernel_seconds(kernel_seconds)
    window = train(
        trainer,
        batches,
        device,
        events.write,
        samples_per_step=config.samples_per_step,
        accumulate=config.accumulate,
        warmup_steps=warmup,
        measured_steps=MEASURED,
        read_losses_at_once=False,
    )
    library.fake_kernel_seconds(0.0)
    addresses = {next(batches)[0].data_ptr() for _ in range(3)}
    answer = {
        "rank": rank,
        "effective": effective.model_dump(),
        "losses": events.losses,
        "seconds": events.step_seconds,
        "window": window.seconds,
        "addresses": len(addresses),
        "skipped_steps": trainer.skipped_steps,
        "waits_in_update": trainer.waits_in_update,
        "loss_scale": trainer.loss_scale,
        "memory_bytes": device.peak_memory_bytes(),
        "matrix_products": inspector.multiply_adds(batch),
        "evaluation": inspector.evaluate(batch),
        "values_held": values_held(inspector),
    }
    return answer | about_batch(batch) | counted(device)


def values_held(inspector):
    """Return how many values of the parameters this device has."""
    shares = [sharding.share_of(parameter) for _name, parameter in inspector.named_parameters()]
    return sum(share.size for share in shares)


class Events:
    """The losses and step times that a training writes."""

    def __init__(self):
        self.losses = []
        self.step_seconds = []

    def write(self, *events):
        for event in events:
            if event["event"] == "loss":
                self.losses.append(event["value"])
            elif event["event"] == "step":
                self.step_seconds.append(event["seconds"])


def about_batch(batch):
    """Return where the tensors of a batch lie, and their size."""
    places = [str(tensor.place) for tensor in batch]
    size = 0
    for tensor in batch:
        size += tensor.size * tensor.element_size()
    return {"places": places, "bytes": size}


def counted(device):
    """Return the counters of each measured step and of all steps together, and the last step's
    kernels."""
    steps = []
    for before, after in pairwise(device.counted):
        steps.append(increase(before, after))
    *_earlier, before, after = device.called
    return {
        "steps": steps[-MEASURED:],
        "all_steps": increase(device.counted[0], device.counted[-1]),
        "all_steps_count": len(steps),
        "calls": increase(before, after),
        "collectives": device.kernels_before_collectives,
    }


def plant_overflow(trainer, step):
    """Make the gradients of one step overflow."""
    backward = trainer.backward
    numbers = count(1)

    def infinite(batch, **options):
        loss = backward(batch, **options)
        if next(numbers) == step:
            parameter = next(iter(trainer.network.parameters()))
            parameter.grad.set_value(parameter.grad * float("inf"))
        return loss

    trainer.backward = infinite


if __name__ == "__main__":
    replace_sizes(setattr)
    for parameters in json.loads(Path(sys.argv[1]).read_text()):
        try:
            printed = run(parameters)
        except Exception:
            printed = {"error": traceback.format_exc()}
        print(json.dumps(printed), flush=True)
