"""The work of a measurement, whatever trains: a built-in model or a script of the user's."""

from dataclasses import dataclass
from typing import Literal

from perfkit.core.config import Config
from perfkit.core.results.told import Told
from perfkit.core.script_config import AnyConfig, ScriptConfig
from perfkit.training.models import model_of, training_flops, units_per_sample

UNTOLD_UNIT = "samples/s"
"""Unit of a script that has not told its own."""


@dataclass(frozen=True)
class Work:
    """What is trained, and in which unit its throughput counts.

    `name` is that of rows and tables: `resnet50`, or a script's file name, `train.py`, which no
    model has; `title` and `short_title` are for display. A sample counts as `units_per_sample`
    of the unit. `samples_per_step` are those of one rank. `flops_per_unit`, of forward and
    backward pass, and the number of trainable `parameters` are None if a script has not told
    them, `samples_per_step` is None before it has. Texts of a script are untrusted.
    """

    name: str
    title: str
    short_title: str
    kind: Literal["image", "sequence", "script"]
    unit: str
    units_per_sample: int
    samples_per_step: int | None
    flops_per_unit: float | None
    parameters: int | None


def work_of(config: AnyConfig, told: Told | None = None) -> Work:
    """Return the work of a configuration; of a script, with what it has `told`."""
    if isinstance(config, ScriptConfig):
        return _script_work(config, told)
    return _model_work(config)


def _model_work(config: Config) -> Work:
    model = model_of(config)
    return Work(
        name=config.model,
        title=model.name,
        short_title=model.short_name,
        kind=model.sample,
        unit=model.unit,
        units_per_sample=units_per_sample(config),
        samples_per_step=config.samples_per_step,
        flops_per_unit=training_flops(config),
        parameters=model.parameters,
    )


def _script_work(config: ScriptConfig, told: Told | None) -> Work:
    return Work(
        name=config.file_name,
        title=config.file_name,
        short_title=config.file_name,
        kind="script",
        unit=f"{told.unit}/s" if told else UNTOLD_UNIT,
        units_per_sample=1,
        samples_per_step=told.samples_per_step if told else None,
        flops_per_unit=told.flops_per_sample if told else None,
        parameters=told.parameters if told else None,
    )
