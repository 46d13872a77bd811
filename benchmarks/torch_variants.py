"""Compares settings of PyTorch on a CPU: `torch_variants.py MODEL ROUNDS VARIANT…`.

A variant is `name=value,…` of layout, precision, execution, optimizer (fused or foreach),
threads, and flush (1: denormal numbers are flushed to 0). Steps are interleaved, A B A B, in
one process. Prints each variant's shortest step and its median speedup over the first variant,
in wall time and in CPU time of all threads, which other load disturbs less.
"""

import sys
import time
from statistics import median
from typing import Any

import torch

from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.torch import backend
from perfkit.inputs import synthetic
from perfkit.models import MODELS
from perfkit.request.resolve import resolve

SIZES = {
    "resnet50": {"batch_size": 8, "image_size": 224},
    "vgg16": {"batch_size": 2, "image_size": 224},
    "bert": {"batch_size": 4, "sequence_length": 128},
}


def prepare(model: str, variant: dict[str, str]) -> tuple[Any, Any]:
    values: dict[str, Any] = {"model": model, "framework": "torch", "device": "cpu"}
    values |= {"processes": 1, "optimizer": MODELS[model].optimizers[0], **SIZES[model]}
    values |= {} if model == "bert" else {"layout": FRAMEWORKS["torch"].layout}
    values |= {k: variant[k] for k in ("layout", "precision", "execution") if k in variant}
    config = resolve(values)
    backend.open_device(config)
    trainer = backend.Trainer(config)
    fused = variant.get("optimizer", "fused") == "fused"
    for group in trainer.optimizer.param_groups:
        group |= {"fused": fused, "foreach": not fused}
    return trainer, next(backend.tensors(synthetic.batches(config, 0), config))


def step(trainer: Any, batch: Any, variant: dict[str, str]) -> tuple[float, float]:
    """Run a step; return its wall time and the CPU time of all threads, in seconds."""
    torch.set_num_threads(int(variant.get("threads", "2")))
    torch.set_flush_denormal(variant.get("flush") == "1")
    wall, processor = time.perf_counter(), time.process_time()
    trainer.backward(batch)
    trainer.update()
    return time.perf_counter() - wall, time.process_time() - processor


def main(model: str, rounds: int, texts: list[str]) -> None:
    variants = [dict(part.split("=") for part in text.split(",")) for text in texts]
    trainers = [prepare(model, variant) for variant in variants]
    for work, variant in 2 * list(zip(trainers, variants, strict=True)):
        step(*work, variant)
    seconds: list[list[tuple[float, float]]] = [[] for _ in variants]
    for number in range(1, rounds + 1):
        for taken, work, variant in zip(seconds, trainers, variants, strict=True):
            taken.append(step(*work, variant))
        print(f"after {number} rounds")
        for taken, text in zip(seconds, texts, strict=True):
            pairs = zip(seconds[0], taken, strict=True)
            ratios = [(first[0] / own[0], first[1] / own[1]) for first, own in pairs]
            wall, processor = map(median, zip(*ratios, strict=True))
            shortest = [min(kind) for kind in zip(*taken, strict=True)]
            print(f"  {text:40} {shortest[0]:7.3f} s {wall:5.2f} times as fast", end="")
            print(f"   {shortest[1]:7.3f} s {processor:5.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
