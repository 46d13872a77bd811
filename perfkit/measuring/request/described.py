"""The parameters of one model, or of a script, as the parameters cell of its notebook and
`perfkit run MODEL --help` describe them."""

from dataclasses import replace

from perfkit.measuring.parameters import Parameter, choices_for, parameters, takes
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.work import kind_of
from perfkit.training.models import MODELS

OF_THE_MODEL = (
    *("model_size", "optimizer", "batch_size", "image_size", "sequence_length"),
    *("input", "data_dir"),
)
"""Parameters whose defaults are facts of the model."""


def described(work: str) -> list[Parameter]:
    """Return the parameters that a model takes, with its own choices and defaults, or those of
    a script, in the notebook's order."""
    every = []
    for name, parameter in parameters(kind_of(work)).items():
        if not takes(work, name):
            continue
        meaning, choices = parameter.meaning, parameter.choices
        if choices:
            choices = choices_for(work, name)
        if work in MODELS and name in OF_THE_MODEL:
            meaning = f"{parameter.clauses[0]}; {_default_words(work, name)}"
        every.append(replace(parameter, meaning=meaning, choices=choices))
    return every


def _default_words(model: str, name: str) -> str:
    """Return what an open parameter stands for, on a CPU and on a GPU."""
    on_cpu = resolve({"model": model, "device": "cpu"}).values[name]
    on_gpu = resolve({"model": model, "device": "gpu"}, gpus=1).values[name]
    if on_cpu == on_gpu:
        return f"None: {on_cpu}"
    return f"None: {on_cpu}, on a GPU {on_gpu}"
