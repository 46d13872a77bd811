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
from contextlib import ExitStack
from itertools import count, pairwise
from pathlib import Path
from unittest.mock import patch

import paddle
from accelerator.fake import NAMES
from narrow import replace_sizes
from trained import train_here

from perfkit.measuring.request.resolve import resolve
from perfkit.timing import frameworks
from perfkit.timing.devices import GpuDevice
from perfkit.training.frameworks import PADDLE
from perfkit.training.paddle import sharding
from perfkit.training.paddle import train as script

WARMUP, MEASURED = 2, 2
KERNELS = ("momentum", "merged_momentum")
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


class Made:
    """Keeps what the script and its timer make, within a block of `with`: the model, the
    batches and the device."""

    def __init__(self):
        self.patches = ExitStack()

    def __enter__(self):
        self._keep("model", script, "new_model")
        self._keep("batches", script, "new_batches")
        self._keep("device", frameworks.Paddle, "open_device", Counting)
        return self

    def __exit__(self, *error):
        self.patches.close()

    def _keep(self, name, owner, function, changed=lambda made: made):
        make = getattr(owner, function)

        def kept(*arguments):
            made = changed(make(*arguments))
            setattr(self, name, made)
            return made

        self.replace(owner, function, kept)

    def replace(self, owner, name, value):
        self.patches.enter_context(patch.object(owner, name, value))


def run(parameters):
    warmup = parameters.pop("warmup", WARMUP)
    overflow = parameters.pop("overflow_at", None)
    kernel_seconds = parameters.pop("kernel_seconds", 0.0)
    forgetful = parameters.pop("forgetful", False)
    least_sharded = parameters.pop("shard_over", sharding.LEAST_SHARDED_VALUES)
    config = resolve(parameters, 1)
    job = {"device": config.device, "ranks": config.ranks, "warmup_steps": warmup}
    if config.ranks > 1:
        job["rank_variable"] = PADDLE.rank_variable
    with Made() as made:
        made.replace(sharding, "LEAST_SHARDED_VALUES", least_sharded)
        if overflow:
            made.replace(paddle.amp.GradScaler, "step", overflowing_at(overflow))
        if forgetful:
            made.replace(GpuDevice, "wait_for", lambda *_: None)
        # train_here replaces the protocol's steps.
        words = config.work.training_arguments(config)
        library.fake_kernel_seconds(kernel_seconds)
        try:
            trained = train_here("paddle", *words, **job, measured_steps=MEASURED)
        finally:
            library.fake_kernel_seconds(0.0)
    answer = {
        "rank": int(os.environ.get("PADDLE_TRAINER_ID", "0")),
        "told": trained.told,
        "notes": trained.notes,
        "losses": trained.losses,
        "seconds": trained.step_seconds,
        "window": trained.window["seconds"],
        "addresses": len({next(made.batches)[0].data_ptr() for _ in range(3)}),
        "places": [str(tensor.place) for tensor in next(made.batches)],
        "values_held": values_held(made.model),
    }
    return answer | counted(made.device)


def values_held(model):
    """Return how many values of the parameters this device has."""
    shares = [getattr(parameter, "fw_storage", parameter) for parameter in model.parameters()]
    return sum(share.size for share in shares)


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


def overflowing_at(overflow):
    """Return a GradScaler.step before which the gradients of one step overflow."""
    step = paddle.amp.GradScaler.step
    numbers = count(1)

    def stepped(scaler, optimizer):
        if next(numbers) == overflow:
            gradient = optimizer._parameter_list[0].grad
            gradient.set_value(gradient * float("inf"))
        return step(scaler, optimizer)

    return stepped


if __name__ == "__main__":
    # As the driver sets it without tf32.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    replace_sizes(setattr)
    for parameters in json.loads(Path(sys.argv[1]).read_text()):
        try:
            printed = run(parameters)
        except Exception:
            printed = {"error": traceback.format_exc()}
        print(json.dumps(printed), flush=True)
