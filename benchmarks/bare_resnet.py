"""ResNet-50 in PyTorch on a GPU: perfkit / a bare torchvision loop.

python benchmarks/bare_resnet.py blocks [N]  perfkit's script and the loop in one process, in
                                             alternating blocks of steps
python benchmarks/bare_resnet.py pairs [N]   measurements and loops in processes of their own,
                                             by turns, and bf16 measured in turn with amp
python benchmarks/bare_resnet.py kernels     the kernels of the loop's steps that take most time

Needs torchvision. Both sides train on one batch that stays on the device, channels last, with
fused SGD and a loss scale. `--device cpu --batch-size 2 --image-size 64` is a trial.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torchvision
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

import perfkit
from perfkit.measuring.statistics import median_estimate
from perfkit.training.torch import train

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from trained import train_here

AUTO_CAST = {"amp": torch.float16, "bf16": torch.bfloat16}
WARMUP, MEASURED = 20, 100
BLOCK = 20
"""Steps between two synchronizations, whose idle time is small beside them."""
PROFILED, KERNELS_SHOWN = 5, 12


class BareLoop:
    def __init__(self, given):
        self.given = given
        torch.backends.cudnn.benchmark = True
        self.device = torch.device("cuda" if given.device == "gpu" else "cpu")
        model = torchvision.models.resnet50()
        self.model = model.to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, fused=True
        )
        # As perfkit's: a first step that overflows would leave fused momentum uninitialized,
        # and weights that are NaN train 2 % faster.
        for parameter in model.parameters():
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.dtype = AUTO_CAST[given.precision]
        scales = self.dtype == torch.float16
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scales)
        images = torch.randn(given.batch_size, 3, given.image_size, given.image_size)
        self.images = images.to(self.device, memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1000, (given.batch_size,), device=self.device)

    def steps(self, count):
        """Take this many steps, and return the images per second."""
        began = synchronized(self.given)
        for _ in range(count):
            with torch.autocast(self.device.type, self.dtype):
                loss = functional.cross_entropy(self.model(self.images), self.labels)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        seconds = synchronized(self.given) - began
        if not loss.isfinite():
            raise ArithmeticError("the bare loop's loss is not finite")
        return count * self.given.batch_size / seconds


def synchronized(given):
    """Wait for the device, and return the time in seconds."""
    if given.device == "gpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def bare(given):
    loop = BareLoop(given)
    loop.steps(WARMUP)
    print(loop.steps(MEASURED))


def kernels(given):
    loop = BareLoop(given)
    loop.steps(WARMUP)
    on_gpu = given.device == "gpu"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        loop.steps(PROFILED)
    seconds = {}
    for event in profiled.events():
        taken = event.device_time_total if on_gpu else event.self_cpu_time_total
        seconds[event.name] = seconds.get(event.name, 0.0) + taken / PROFILED / 1e6
    total = sum(seconds.values())
    for name in sorted(seconds, key=seconds.get, reverse=True)[:KERNELS_SHOWN]:
        print(f"{seconds[name] / total:6.1%} {seconds[name] * 1e3:8.3f} ms  {name[:100]}")


def blocks(given):
    """Let perfkit's script take a block, then the loop, then the loop, then the script …"""
    seen = {"perfkit": [], "bare loop": []}

    def batches(original):
        batch = next(original)
        # The script looks at one batch before its first step.
        yield batch
        for _ in range(WARMUP):
            yield batch
        loop = BareLoop(given)
        loop.steps(WARMUP)
        for number in range(given.count):
            if number % 2 == 0:
                seen["bare loop"].append(loop.steps(BLOCK))
            began = synchronized(given)
            for _ in range(BLOCK):
                yield batch
            seconds = synchronized(given) - began
            seen["perfkit"].append(BLOCK * given.batch_size / seconds)
            if number % 2 == 1:
                seen["bare loop"].append(loop.steps(BLOCK))
        while True:
            yield batch

    new_batches = train.new_batches
    train.new_batches = lambda *words: batches(new_batches(*words))
    words = ["--model", "resnet50", "--device", given.device, "--precision", given.precision]
    words += ["--layout", "NHWC", "--batch-size", given.batch_size]
    words += ["--image-size", given.image_size]
    protocol = {"warmup_steps": WARMUP, "measured_steps": given.count * BLOCK + 1}
    train_here("torch", *words, device=given.device, **protocol)
    tell(given, seen)


def pairs(given):
    seen = {"perfkit": [], "bare loop": [], "perfkit in bf16": []}
    for number in range(given.count):
        sides = [
            ("perfkit", measured, given.precision),
            ("bare loop", run_bare, given.precision),
            ("perfkit in bf16", measured, "bf16"),
        ]
        for name, side, precision in sides if number % 2 == 0 else reversed(sides):
            seen[name].append(side(given, precision))
            print(f"{name}: {seen[name][-1]:.5g} images/s", flush=True)
    tell(given, seen)


def measured(given, precision):
    """Return the images per second of a measurement of one repeat."""
    with tempfile.TemporaryDirectory() as outputs:
        request = {
            "framework": "torch",
            "device": given.device,
            "precision": precision,
            "layout": "NHWC",
            "input": "synthetic",
            "batch_size": given.batch_size,
            "image_size": given.image_size,
            "warmup_steps": WARMUP,
            "measured_steps": MEASURED,
            "measured_seconds": 0,
            "repeats": 1,
            "outputs_dir": outputs,
        }
        plan = perfkit.plan("resnet50", request)
        result = perfkit.measure(plan.config, plan.protocol).result
    if result.throughput is None:
        raise SystemExit(f"{precision}: {result.repeats[-1].failure}")
    return result.throughput.value


def run_bare(given, precision):
    words = [sys.executable, __file__, "bare", "--precision", precision]
    words += ["--device", given.device, "--batch-size", str(given.batch_size)]
    words += ["--image-size", str(given.image_size)]
    return float(subprocess.check_output(words, text=True))


def tell(given, seen):
    for name, values in seen.items():
        print(f"{name}: {', '.join(f'{value:.5g}' for value in values)} images/s")
    ratios = [
        mine / bare for mine, bare in zip(seen["perfkit"], seen["bare loop"], strict=True)
    ]
    ratio = median_estimate(ratios, 0.95)
    print(
        f"perfkit / bare loop, {given.precision}: {ratio.value:.4f}, "
        f"{ratio.level:.1%} interval {ratio.low:.4f} to {ratio.high:.4f}, n={given.count}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tasks = {task.__name__: task for task in (blocks, pairs, kernels, bare)}
    parser.add_argument("task", choices=tasks)
    parser.add_argument("count", type=int, nargs="?", default=10)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--precision", choices=AUTO_CAST, default="amp")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    arguments = parser.parse_args()
    tasks[arguments.task](arguments)
