"""From the values of a request to a configuration with every field set."""

from collections.abc import Mapping
from typing import Any

from perfkit.core.config import Config
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.frameworks.facts import Framework
from perfkit.core.models import model_named
from perfkit.core.models.model import Model
from perfkit.core.parameters import FIELDS, is_open, select
from perfkit.core.paths import portable_path


def resolve(request: Mapping[str, Any], gpus: int = 0) -> Config:
    """Return the configuration of these values, including `model`, on a machine with `gpus`
    GPUs. Open values follow from model, framework, device and nodes.

    Raises KeyError for a model or framework that perfkit can't train, pydantic's
    ValidationError for any other invalid value.
    """
    values = {}
    for name, value in request.items():
        if name == "model" or not is_open(name, value):
            values[name] = value
    model = model_named(values["model"])
    framework = FRAMEWORKS[values.get("framework", FIELDS["framework"].default)]
    device = values.get("device", "gpu" if values.get("gpus", gpus) else "cpu")
    values = {
        **_defaults_of_machine(device, gpus, values.get("nodes", 1)),
        **_defaults_of_work(model, framework, device, values.get("precision", "")),
        **values,
    }
    for name in select(is_path=True):
        path = values.get(name)
        if isinstance(path, str):
            values[name] = portable_path(path)
    return Config(**values)


def _defaults_of_machine(device: str, gpus: int, nodes: object) -> dict[str, Any]:
    defaults = {
        "device": device,
        "gpus": gpus,
        "processes": 1,
        "launcher": "srun",
    }
    if device == "cpu":
        defaults["gpus"] = 0
    if nodes == 1:
        defaults["launcher"] = "local"
    if device == "gpu":
        dali = {"dali_threads": 0, "dali_prefetch": 0, "dali_decoder": "image"}
    else:
        dali = {"dali_threads": 4, "dali_prefetch": 2, "dali_decoder": "image_random_crop"}
    return defaults | dali


def _defaults_of_work(
    model: Model, framework: Framework, device: str, precision: object
) -> dict[str, Any]:
    defaults = {
        "execution": framework.execution,
        "optimizer": _first_supported(framework, "optimizer", model.optimizers),
        "input": _first_supported(framework, "input", model.inputs),
        "layout": None,
        "batch_size": model.gpu_batch_size,
        "image_size": model.default_image_size,
        "sequence_length": model.default_sequence_length,
        "data_dir": model.data_dir,
    }
    if device == "cpu":
        defaults["batch_size"] = model.cpu_batch_size
        if model.cpu_sequence_length:
            defaults["sequence_length"] = model.cpu_sequence_length
    if model.sample == "image":
        defaults["layout"] = framework.layout
        if device == "gpu":
            defaults["layout"] = framework.gpu_layouts.get(str(precision), framework.layout)
    return defaults


def _first_supported(framework: Framework, name: str, values: tuple[str, ...]) -> str:
    """Return the model's first value of a parameter that the framework supports; the first of
    all if it supports none, which is refused later."""
    for value in values:
        if framework.takes(**{name: value}):
            return value
    return values[0]
