"""The parameters of one model, or of a script, as the parameters cell of its notebook and
`perfkit run MODEL --help` describe them."""

from typing import Any, NamedTuple, get_args

from pydantic.fields import FieldInfo

from perfkit.measuring.parameters import (
    EVERY_FIELD,
    PROTOCOL_PARAMETERS,
    choices_for,
    fields_of,
    parameters,
    takes,
)
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.work import kind_of
from perfkit.training.models import MODELS

OF_THE_MODEL = (
    *("model_size", "optimizer", "batch_size", "image_size", "sequence_length"),
    *("input", "data_dir"),
)
"""Parameters whose defaults are facts of the model."""
TYPES = (bool, int, float)


class Described(NamedTuple):
    """One parameter: its default, its type as Python names it, its choices, if any, and its
    meaning in clauses."""

    name: str
    default: Any
    type: str
    choices: tuple[str, ...]
    clauses: list[str]

    @property
    def meaning(self) -> str:
        """The meaning with the choices, on one line."""
        text = "; ".join(self.clauses)
        return f"{text} ({' | '.join(self.choices)})" if self.choices else text


def described(work: str) -> list[Described]:
    """Return the parameters that a model takes, or those of a script, in the notebook's
    order."""
    every = []
    for name, (default, _meaning) in parameters(kind_of(work)).items():
        if takes(work, name):
            every.append(
                Described(
                    name=name,
                    default=default,
                    type=_type_word(EVERY_FIELD[name]),
                    choices=() if name == "protocol" else choices_for(work, name),
                    clauses=_clauses(work, name),
                )
            )
    return every


def _type_word(field: FieldInfo) -> str:
    """Return the type of a field's values other than None and `auto`."""
    annotation = field.annotation
    for kind in (annotation, *get_args(annotation)):
        if kind in TYPES:
            return str(kind.__name__)
    return "str"


def _clauses(work: str, name: str) -> list[str]:
    """Return the meaning of a parameter, with the default of this model."""
    kind = kind_of(work)
    _default, meaning = parameters(kind)[name]
    if name not in PROTOCOL_PARAMETERS:
        # Without the allowed words.
        field = fields_of(kind)[name]
        _default, meaning = kind.defaults.get(name, (None, str(field.description)))
        meaning = " ".join(meaning.split())
    clauses = meaning.split("; ")
    if work in MODELS and name in OF_THE_MODEL:
        return [clauses[0], _default_words(work, name)]
    return clauses


def _default_words(model: str, name: str) -> str:
    """Return what an open parameter stands for, on a CPU and on a GPU."""
    on_cpu = resolve({"model": model, "device": "cpu"}).values[name]
    on_gpu = resolve({"model": model, "device": "gpu"}, gpus=1).values[name]
    if on_cpu == on_gpu:
        return f"None: {on_cpu}"
    return f"None: {on_cpu}, on a GPU {on_gpu}"
