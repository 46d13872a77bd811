"""Whether a configuration can be measured here."""

import shlex
import tempfile
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Literal

from perfkit.core import refusals
from perfkit.core.config import Config, RunConfig
from perfkit.core.data import digest
from perfkit.core.parameters import ABOUT, choices
from perfkit.core.paths import stored_path
from perfkit.core.refusals import Refusal
from perfkit.core.request import hosts
from perfkit.core.request.contradictions import DECIDING, contradictions
from perfkit.core.request.requirements import lacking
from perfkit.core.request.resolve import resolve
from perfkit.core.request.shared_memory import too_small
from perfkit.core.script_config import AnyConfig
from perfkit.inputs import InputError, OtherLengthError, samples_of_step
from perfkit.inputs.data_set import data_set, data_set_class
from perfkit.training.models import model_of

CheckScope = Literal["machine", "requirements", "data"]
OF_DATA = {"model", "model_size", "data_dir", "image_size", "sequence_length"}
"""Parameters that decide whether data can be trained on."""


def problems(
    config: AnyConfig,
    gpus: int,
    skip_checks: Collection[CheckScope] = (),
    unsure: Collection[str] = (),
) -> list[Refusal]:
    """Return all reasons why this machine, with `gpus` visible devices of the training type,
    can't measure this configuration.

    `skip_checks`: `machine` if another machine measures, and this one must not be accessed;
    `requirements` if this machine need not meet them; `data` if the data does not exist yet.
    `unsure`: parameters that were refused, and have a default value instead: nothing is said
    that could follow from it.
    """
    refused: list[Refusal] = []
    if not any(_decides_others(name) for name in unsure):
        refused += contradictions(config)
    if "machine" not in skip_checks and "requirements" not in skip_checks:
        refused += lacking(config, gpus)
        refused += hosts.problems(config)
        refused += _unwritable(config)
        if "batch_size" not in unsure and (refusal := too_small(config)):
            refused.append(refusal)
    if "data" not in skip_checks and "model" not in unsure and isinstance(config, Config):
        refused += _wrong_data(config, unsure)
    follows = {*unsure}
    if follows & {"framework", "script"}:
        follows |= {"framework", "python", "input"}
    return [refusal for refusal in refused if refusal.parameter not in follows]


def _decides_others(name: str) -> bool:
    """Return whether values of other parameters may contradict the value of this one."""
    is_of_work = name in (*DECIDING, "gpus", "processes")
    return is_of_work or (name in ABOUT and bool(choices(name)))


def _wrong_data(config: Config, unsure: Collection[str]) -> Iterator[Refusal]:
    """Yield why the data can't be trained on; if a parameter that decides this is unsure, only
    whether there is any."""
    model = model_of(config)
    if config.input == "synthetic" or config.input not in model.inputs:
        return
    expected = data_set_class(config)
    try:
        expected.find(config.data_folder)
    except OSError:
        yield refusals.DataMissing(
            expected=expected.expected,
            folder=str(config.data_folder),
            command=_samples_command(config),
        )
        return
    if not OF_DATA.intersection(unsure):
        yield from _unfit_data(config, unsure)


def _samples_command(config: Config) -> str:
    """Return the command that makes sample data where the configuration expects data."""
    model = model_of(config)
    words = ["perfkit", "samples"]
    if config.data_folder != stored_path(model.data_dir):
        words.append(str(config.data_folder))
    if model.sample != "image":
        words += ["--for", config.model]
    if model.data == "shards" and config.sequence_length != model.default_sequence_length:
        words += ["--sequence-length", str(config.sequence_length)]
    return shlex.join(words)


def _unfit_data(config: Config, unsure: Collection[str]) -> Iterator[Refusal]:
    """Yield why existing data does not fit the model or the configuration."""
    folder = str(config.data_folder)
    try:
        samples = sample_count(config)
    except OtherLengthError as error:
        yield refusals.OtherLength(
            folder=folder,
            found=error.found,
            requested=config.sample_size,
            model=config.model,
        )
        return
    except InputError as error:
        yield refusals.DataInvalid(faults=str(error).splitlines())
        return
    needed = samples_of_step(config)
    if samples < needed and not {"batch_size", "gpus", "processes", "nodes"} & {*unsure}:
        yield refusals.TooFewSamples(
            ranks=config.ranks,
            batch_size=config.batch_size,
            needed=needed,
            folder=folder,
            samples=samples,
        )


def sample_count(config: Config) -> int:
    """Check the data and return the number of its samples. Raises InputError."""
    of_data = resolve({**config.model_dump(include=OF_DATA), "device": "cpu"})
    return _sample_count(of_data, digest(of_data))


@lru_cache(maxsize=64)
def _sample_count(config: Config, _digest: str | None) -> int:
    """Return the samples of data with this digest, which many configurations may share."""
    data = data_set(config)
    data.check()
    return len(data)


def _unwritable(config: RunConfig) -> Iterator[Refusal]:
    folder = stored_path(config.outputs_dir)
    try:
        # A missing folder is created by its writer, not by this check.
        while not folder.exists():
            folder = folder.parent
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        yield refusals.Unwritable(folder=str(folder), reason=str(error.strerror))
