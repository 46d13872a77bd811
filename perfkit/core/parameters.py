"""The parameters of notebooks: their order, defaults, words and meanings."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from perfkit.core.config import PROTOCOLS, Config, Protocol, RunConfig, about_of
from perfkit.core.paths import URL, absolute_path, results_path
from perfkit.core.script_config import ScriptConfig
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import MODELS

NOT_PARAMETERS = ("model", "script_sha256", "modules", "statistic")
"""Fields that no notebook assigns: its own name contains the model, a script's content follows
from its path, and there is only one statistic."""


@cache
def fields_of(kind: type[RunConfig]) -> dict[str, FieldInfo]:
    """Return the fields of the notebook parameters of such a configuration, by name. The
    protocol's name is the parameter `protocol`."""
    fields = {}
    for name in (*in_notebook_order(kind), *Protocol.model_fields):
        if name == "name":
            fields["protocol"] = Protocol.model_fields[name]
        elif name not in NOT_PARAMETERS:
            fields[name] = (kind.model_fields | Protocol.model_fields)[name]
    return fields


def in_notebook_order(kind: type[RunConfig]) -> list[str]:
    """Return the names of a configuration's fields: those that it adds to RunConfig are first,
    or follow the field that `About.after` names."""
    names = [*RunConfig.model_fields]
    position = 0
    for name, field in kind.model_fields.items():
        if name not in RunConfig.model_fields:
            after = about_of(field).after
            if after:
                position = names.index(after) + 1
            names.insert(position, name)
            position += 1
    return names


FIELDS = fields_of(Config)
"""Fields of the notebook parameters of a built-in model, by name."""
SCRIPT_FIELDS = fields_of(ScriptConfig)
"""Fields of the notebook parameters of a script, by name."""
PROTOCOL_PARAMETERS = tuple(name for name in FIELDS if name not in Config.model_fields)
EVERY_FIELD = SCRIPT_FIELDS | Config.model_fields | FIELDS
ABOUT = {"model": about_of(Config.model_fields["model"])}
ABOUT |= {name: about_of(field) for name, field in (FIELDS | SCRIPT_FIELDS).items()}


def select(**properties: Any) -> tuple[str, ...]:
    """Return the names of the parameters whose About has all of these properties:
    `select(is_path=True)`."""
    names = []
    for name, about in ABOUT.items():
        if all(getattr(about, key) == value for key, value in properties.items()):
            names.append(name)
    return tuple(names)


def with_absolute_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a request with absolute paths, which mean the same in any folder.
    What is no path stays, to be refused."""
    absolute = dict(values)
    for name in select(is_path=True):
        path = values.get(name)
        if not isinstance(path, str) or not path.isprintable() or URL.match(path):
            continue
        if name == "outputs_dir" and path:
            absolute[name] = str(results_path(path))
        elif path:
            absolute[name] = str(absolute_path(path))
    return absolute


def choices(name: str) -> tuple[str, ...]:
    """Return the fixed or usual words of a parameter; empty for other types."""
    field = EVERY_FIELD[name]
    about = ABOUT[name]
    words = about.usual
    for kind in (field.annotation, *get_args(field.annotation)):
        if get_origin(kind) is Literal:
            words = get_args(kind)
    return (about.unset, *words) if about.unset else words


def choices_for(work: str, name: str) -> tuple[str, ...]:
    """Return the choices that a model, or a script, has of a parameter."""
    model = MODELS.get(work)
    if model is None:
        return choices(name)
    match name:
        case "input":
            return model.inputs
        case "optimizer":
            return model.optimizers
        case "model_size" if model.sizes:
            return model.sizes.names
        case "framework":
            return tuple(each for each in choices(name) if FRAMEWORKS[each].takes(model=work))
    return choices(name)


def takes(model: str, name: str) -> bool:
    """Return whether a parameter may have an effect on the training of a built-in model."""
    facts = MODELS[model]
    properties: dict[str, tuple[Any, ...]] = {
        "model": (model,),
        "sample": (facts.sample,),
        "input": facts.inputs,
    }
    for decider, values in ABOUT[name].only.items():
        if decider in properties and not {*values} & {*properties[decider]}:
            return False
    return True


def models_with(name: str) -> list[str]:
    """Return the models that take a parameter."""
    return [model for model in MODELS if takes(model, name)]


def is_open(name: str, value: object, kind: type[RunConfig] = Config) -> bool:
    """Return whether a request with this value leaves the parameter to `request.resolve`."""
    default, _meaning = parameters(kind)[name]
    return default in (None, "auto") and value in (None, default)


@cache
def parameters(kind: type[RunConfig] = Config) -> dict[str, tuple[Any, str]]:
    """Return the notebook parameters of such a configuration: name -> (default, description
    with the allowed words)."""
    by_name = {}
    for name, field in fields_of(kind).items():
        unset = ABOUT[name].unset
        default = field.default
        if unset or field.is_required():
            default = unset
        by_name[name] = (default, _meaning(name, field))
    return by_name


def _meaning(name: str, field: FieldInfo) -> str:
    """Return the description of a parameter with the allowed words."""
    meaning = " ".join(str(field.description).split())
    words = choices(name)
    if name == "protocol":
        return "; ".join(["auto: published on a GPU, quick on the CPU", *_protocol_lengths()])
    if name in PROTOCOL_PARAMETERS and field.is_required():
        return f"{meaning}; None: set by the protocol"
    if words:
        return f"{meaning} ({' | '.join(words)})"
    return meaning


def _protocol_lengths() -> Iterator[str]:
    for name in PROTOCOLS:
        protocol = Protocol.named(name)
        steps = f"{protocol.warmup_words} + {protocol.measured_steps} steps"
        yield f"{name}: {steps} x {protocol.repeats}"


def parameter_values(config: RunConfig, protocol: Protocol) -> dict[str, Any]:
    """Return the values of all notebook parameters, by name."""
    values = config.model_dump() | protocol.model_dump() | {"protocol": protocol.name}
    return {name: values[name] for name in fields_of(type(config))}
