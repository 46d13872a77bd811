"""The parameters of notebooks: their order, defaults, words and meanings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from perfkit.measuring.about import about_of
from perfkit.measuring.config import Config
from perfkit.measuring.paths import URL, absolute_path, results_path
from perfkit.measuring.protocol import PROTOCOLS, Protocol
from perfkit.measuring.work import CommandWork, Kind, ModelWork, ScriptWork
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import MODELS

CONTENTS = ("script_sha256", "modules", "files", "files_sha256", "commit", "dirty")
"""Fields that follow from the content of files."""
NOT_PARAMETERS = ("work", "model", *CONTENTS, "statistic")
"""Fields that no notebook assigns: its own name contains the model, and there is only one
statistic."""

OF_RANKS = ("launcher", "hosts", "port", "cpu_tuning", "profile")
"""How perfkit starts ranks and what they do, which a command decides itself."""


@cache
def fields_of(kind: Kind) -> dict[str, FieldInfo]:
    """Return the fields of the notebook parameters of such a work by name, in the order of the
    notebook. The protocol's name is the parameter `protocol`."""
    fields = {}
    left_out = NOT_PARAMETERS + (OF_RANKS if kind is CommandWork else ())
    every = kind.model_fields | Config.model_fields | Protocol.model_fields
    for name, field in every.items():
        if name == "name":
            fields["protocol"] = field
        elif name not in left_out:
            fields[name] = field
    return fields


FIELDS = fields_of(ModelWork)
"""Fields of the notebook parameters of a built-in model, by name."""
SCRIPT_FIELDS = fields_of(ScriptWork)
"""Fields of the notebook parameters of a script, by name."""
COMMAND_FIELDS = fields_of(CommandWork)
"""Fields of the notebook parameters of a command, by name."""
PROTOCOL_PARAMETERS = ("protocol", *(name for name in FIELDS if name in Protocol.model_fields))
TIMED_FIELDS = {"model": ModelWork.model_fields["model"]} | FIELDS | SCRIPT_FIELDS
"""Fields of models and scripts. They come first, and hold where a command has one of the same
name."""
EVERY_FIELD = TIMED_FIELDS | COMMAND_FIELDS | TIMED_FIELDS
ABOUT = {name: about_of(field) for name, field in EVERY_FIELD.items()}


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
    """Return whether a parameter may have an effect on the training of a built-in model; true
    for a script."""
    facts = MODELS.get(model)
    if facts is None:
        return True
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


def is_open(name: str, value: object, kind: Kind = ModelWork) -> bool:
    """Return whether a request with this value leaves the parameter to `request.resolve`."""
    default = parameters(kind)[name].default
    return default in (None, "auto") and value in (None, default)


@dataclass(frozen=True)
class Parameter:
    """A notebook parameter: its default, its meaning in clauses, and its choices, if any."""

    name: str
    default: Any
    meaning: str
    choices: tuple[str, ...]

    @property
    def text(self) -> str:
        """The meaning with the choices."""
        if not self.choices:
            return self.meaning
        return f"{self.meaning} ({' | '.join(self.choices)})"

    @property
    def clauses(self) -> list[str]:
        return self.meaning.split("; ")

    @property
    def type(self) -> str:
        """The type of its values other than None and `auto`, as Python names it."""
        annotation = EVERY_FIELD[self.name].annotation
        for kind in (annotation, *get_args(annotation)):
            if kind in (bool, int, float):
                return str(kind.__name__)
        return "str"


@cache
def parameters(kind: Kind = ModelWork) -> dict[str, Parameter]:
    """Return the notebook parameters of such a work by name."""
    by_name = {}
    for name, field in fields_of(kind).items():
        unset = ABOUT[name].unset
        default = field.default
        if unset or field.is_required():
            default = unset
        default, meaning = kind.defaults.get(name, (default, str(field.description)))
        meaning, words = " ".join(meaning.split()), choices(name)
        if name == "protocol":
            lengths = "; ".join(_protocol_lengths())
            meaning, words = f"auto: published on a GPU, quick on the CPU; {lengths}", ()
        elif name in PROTOCOL_PARAMETERS and field.is_required():
            meaning += "; None: set by the protocol"
        by_name[name] = Parameter(name, default, meaning, words)
    return by_name


def _protocol_lengths() -> Iterator[str]:
    for name in PROTOCOLS:
        protocol = Protocol.named(name)
        steps = f"{protocol.warmup_words} + {protocol.measured_words} steps"
        if protocol.measured_seconds:
            steps += f" for {protocol.measured_seconds:g} s"
        yield f"{name}: {steps} x {protocol.repeats}"


def parameter_values(config: Config, protocol: Protocol) -> dict[str, Any]:
    """Return the values of all notebook parameters, by name."""
    values = config.values | protocol.model_dump() | {"protocol": protocol.name}
    return {name: values[name] for name in fields_of(type(config.work))}
