"""From the values of a request to a configuration with every field set."""

from collections.abc import Mapping
from typing import Any

from perfkit.core.config import FIELDS, Config, is_open, select
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import model_named
from perfkit.core.paths import portable_path


def resolve(given: Mapping[str, Any], gpus: int = 0) -> Config:
    """Return the configuration of these values, including `model`, on a machine with `gpus`
    GPUs. Open values follow from model, framework, device and nodes.

    Raises KeyError for a model or framework that perfkit can't train, pydantic's
    ValidationError for any other invalid value.
    """
    given = {n: v for n, v in given.items() if n == "model" or not is_open(n, v)}
    model = model_named(given["model"])
    framework = FRAMEWORKS[given.get("framework", FIELDS["framework"].default)]
    device = given.get("device", "gpu" if given.get("gpus", gpus) else "cpu")
    launcher = given.get("launcher", "local" if given.get("nodes", 1) == 1 else "srun")

    def first(name: str, values: tuple[str, ...]) -> str:
        """The model's first value that the framework supports."""
        supported = framework.supports.get(name, values)
        return next((value for value in values if value in supported), values[0])

    layout = framework.layout
    if device == "gpu":
        layout = framework.gpu_layouts.get(given.get("precision", ""), layout)
    length = model.default_sequence_length
    if device == "cpu":
        length = model.cpu_sequence_length or length
    values = {
        "execution": framework.execution,
        "optimizer": first("optimizer", model.optimizers),
        "layout": layout if model.sample == "image" else None,
        "batch_size": model.cpu_batch_size if device == "cpu" else model.gpu_batch_size,
        "image_size": model.default_image_size,
        "sequence_length": length,
        "device": device,
        "gpus": 0 if device == "cpu" else gpus,
        "processes": 1,
        "launcher": launcher,
        "dali_threads": 0 if device == "gpu" else 4,
        "dali_prefetch": 0 if device == "gpu" else 2,
        "dali_decoder": "image" if device == "gpu" else "image_random_crop",
        "port": None,
        "input": first("input", model.inputs),
        "data_dir": model.data_dir,
        **given,
    }
    paths = {name: values[name] for name in select(is_path=True) if name in values}
    return Config(
        **values | {n: portable_path(v) for n, v in paths.items() if isinstance(v, str)}
    )
