"""Configurations of any framework."""

from perfkit.measuring.request.resolve import resolve
from perfkit.training.models import model_named


def config(model="resnet50", framework="paddle", **changes):
    """Return the configuration of a small training on the CPU."""
    facts = model_named(model)
    values = {"model": model, "framework": framework, "device": "cpu", "processes": 1}
    values |= {"input": "synthetic", "batch_size": 2, "optimizer": facts.optimizers[0]}
    if facts.sample == "sequence":
        values["sequence_length"] = 16
    else:
        values["image_size"] = 32
    return resolve(values | changes)
