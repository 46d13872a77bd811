"""Whether a configuration can be measured here."""

import shlex
import tempfile
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Literal

from perfkit.core.config import Config, RunConfig
from perfkit.core.data import digest
from perfkit.core.paths import stored_path
from perfkit.core.request import hosts
from perfkit.core.request.contradictions import contradictions
from perfkit.core.request.requirements import lacking
from perfkit.core.request.resolve import resolve
from perfkit.core.script_config import AnyConfig
from perfkit.inputs import InputError, OtherLengthError, samples_of_step
from perfkit.inputs.data_set import data_set, data_set_class
from perfkit.training.models import model_of

CheckScope = Literal["machine", "requirements", "data"]
OF_DATA = {"model", "model_size", "data_dir", "image_size", "sequence_length"}
"""Parameters that decide whether data can be trained on."""


def problems(config: AnyConfig, skip_checks: Collection[CheckScope] = ()) -> list[str]:
    """Return all reasons why this machine can't measure this configuration.

    `skip_checks`: `machine` if another machine measures, and this one must not be accessed;
    `requirements` if this machine need not meet them; `data` if the data does not exist yet.
    """
    found = [*contradictions(config)]
    if "machine" not in skip_checks and "requirements" not in skip_checks:
        found += lacking(config)
        found += hosts.problems(config)
        found += _unwritable(config)
    if "data" not in skip_checks and isinstance(config, Config):
        found += _wrong_data(config)
    return found


def _unwritable(config: RunConfig) -> Iterator[str]:
    folder = stored_path(config.outputs_dir)
    try:
        # A missing folder is created by its writer, not by this check.
        while not folder.exists():
            folder = folder.parent
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        yield (
            f"outputs_dir: can't write to {folder} ({error.strerror}); choose a writable "
            "folder: -p outputs_dir FOLDER"
        )


def _wrong_data(config: Config) -> Iterator[str]:
    """Yield why there is no data, or why it does not fit the model or the configuration."""
    if config.input == "synthetic" or config.input not in model_of(config).inputs:
        return
    expected = data_set_class(config)
    try:
        expected.find(config.data_folder)
    except OSError:
        yield (
            f"data_dir: expected {expected.expected} in {config.data_folder}; to create sample "
            f"data: {_samples_command(config)}"
        )
        return
    yield from _unfit_data(config)


def _unfit_data(config: Config) -> Iterator[str]:
    folder, length = config.data_folder, config.sample_size
    try:
        samples = sample_count(config)
    except OtherLengthError as error:
        yield (
            f"sequence_length: the sequences in {folder} have {error.found} tokens, not "
            f"{length}: -p sequence_length {error.found}; for sample data of {length}: perfkit "
            f"samples FOLDER --for {config.model} --sequence-length {length}, and -p data_dir "
            "FOLDER"
        )
        return
    except InputError as error:
        for fault in str(error).splitlines():
            yield f"data_dir: {fault}"
        return
    needed = samples_of_step(config)
    if samples < needed:
        yield (
            f"batch_size: one step of {config.ranks} x {config.batch_size} samples needs "
            f"{needed:,}, but {folder} has {samples:,}; add data, or set a smaller batch: -p "
            "batch_size N"
        )


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
