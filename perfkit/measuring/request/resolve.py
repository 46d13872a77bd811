"""From the values of a request to a configuration with every field set."""

from collections.abc import Mapping
from typing import Any

from perfkit.measuring.config import Config
from perfkit.measuring.parameters import fields_of, is_open, parameters, select
from perfkit.measuring.request.command_files import CommandContent
from perfkit.measuring.request.script import ScriptContent
from perfkit.measuring.work import CommandWork, Kind, ModelWork, ScriptWork
from perfkit.timing.failure import portable
from perfkit.training.frameworks import FRAMEWORKS, Framework
from perfkit.training.options import Options

COMMANDS_FRAMEWORK = "torch"
"""That of most trainers."""
AS_THE_SCRIPT = (
    *("model_size", "execution", "optimizer", "layout"),
    *("batch_size", "image_size", "sequence_length", "data_dir"),
)
"""Parameters whose defaults are those of the training script."""


def resolve(request: Mapping[str, Any], gpus: int = 0) -> Config:
    """Return the configuration of these values, including `model`, on a machine with `gpus`
    GPUs. Open values follow from model, framework, device and nodes.

    Raises KeyError for a model or framework that perfkit can't train, pydantic's
    ValidationError for any other invalid value.
    """
    values = _set_values(request, ModelWork)
    framework = FRAMEWORKS[values.get("framework", usual_framework())]
    device = values.get("device", "gpu" if values.get("gpus", gpus) else "cpu")
    defaults = _defaults_of_run(device, gpus, values.get("nodes", 1))
    defaults |= _defaults_of_dali(device) | _defaults_of_work(values, framework, device)
    return _config(ModelWork, {"framework": framework.name} | defaults | values)


def resolve_script(request: Mapping[str, Any], content: ScriptContent, gpus: int = 0) -> Config:
    """Return the configuration of a script with this content. Raises pydantic's ValidationError
    for an invalid value, also if the framework is open and the content does not tell it."""
    values = _set_values(request, ScriptWork)
    device = values.get("device", "gpu" if values.get("gpus", gpus) else "cpu")
    follows = {"script_sha256": content.sha256, "modules": content.modules}
    if len(content.frameworks) == 1:
        follows["framework"] = content.frameworks[0]
    defaults = _defaults_of_run(device, gpus, values.get("nodes", 1))
    return _config(ScriptWork, defaults | follows | values)


def resolve_command(
    request: Mapping[str, Any], content: CommandContent, gpus: int = 0
) -> Config:
    """Return the configuration of a command whose files have this content. Its framework, if
    the files import none, is only a name until its log tells another."""
    values = _set_values(request, CommandWork)
    device = values.get("device", "gpu" if values.get("gpus", gpus) else "cpu")
    follows = {
        "files": content.files,
        "files_sha256": content.files_sha256,
        "commit": content.commit,
        "dirty": content.dirty,
        "framework": [*content.frameworks, COMMANDS_FRAMEWORK][0],
        "processes": content.devices or 1,
        "nodes": content.nodes,
    }
    return _config(CommandWork, _defaults_of_run(device, gpus, 1) | follows | values)


def usual_framework() -> str:
    """Return the framework of a model's request that leaves it open."""
    return str(parameters(ModelWork)["framework"].default)


def _config(kind: Kind, values: dict[str, Any]) -> Config:
    """Return the configuration whose work of this class has some of the values."""
    stored = with_portable_paths(values)
    work = {name: stored.pop(name) for name in kind.model_fields if name in stored}
    return Config(work=kind(**work), **stored)


def _set_values(request: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """Return the values of a request that it does not leave open."""
    values = {}
    for name, value in request.items():
        is_parameter = name in fields_of(kind)
        if not (is_parameter and is_open(name, value, kind)):
            values[name] = value
    return values


def with_portable_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of parameters, with paths as they are stored: without user names."""
    stored = dict(values)
    for name in select(is_path=True):
        if stored.get(name):
            stored[name] = portable(stored[name])
    return stored


def _defaults_of_dali(device: str) -> dict[str, Any]:
    if device == "gpu":
        return {"dali_threads": 0, "dali_prefetch": 0, "dali_decoder": "image"}
    return {"dali_threads": 4, "dali_prefetch": 2, "dali_decoder": "image_random_crop"}


def _defaults_of_run(device: str, gpus: int, nodes: int) -> dict[str, Any]:
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
    return defaults


def _defaults_of_work(
    values: Mapping[str, Any], framework: Framework, device: str
) -> dict[str, Any]:
    script = Options(
        framework=framework.name,
        model=values["model"],
        device=device,
        precision=values.get("precision", "fp32"),
    )
    defaults = {name: getattr(script, name) for name in AS_THE_SCRIPT}
    inputs = script.facts.inputs
    supported = [each for each in inputs if framework.takes(input=each)]
    # That of a framework which supports none is refused later.
    defaults["input"] = [*supported, *inputs][0]
    return defaults
