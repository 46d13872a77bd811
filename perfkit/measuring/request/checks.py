"""Whether a configuration can be measured here."""

import shlex
import tempfile
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Literal

from perfkit.inputs import InputError, OtherLengthError
from perfkit.inputs.data_set import data_set, data_set_class
from perfkit.measuring.config import Config
from perfkit.measuring.paths import stored_path
from perfkit.measuring.request import hosts
from perfkit.measuring.request.contradictions import contradictions
from perfkit.measuring.request.requirements import lacking
from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.work import ModelWork

CheckScope = Literal["machine", "requirements", "data"]
OF_DATA = {"model", "model_size", "data_dir", "image_size", "sequence_length"}
"""Parameters that decide whether data can be trained on."""


def problems(config: Config, skip_checks: Collection[CheckScope] = ()) -> list[str]:
    """Return all reasons why this machine can't measure this configuration.

    `skip_checks`: `machine` if another machine measures, and this one must not be accessed;
    `requirements` if this machine need not meet them; `data` if the data does not exist yet.
    """
    found = [*contradictions(config)]
    if "machine" not in skip_checks and "requirements" not in skip_checks:
        found += lacking(config)
        found += hosts.problems(config)
        found += _unwritable(config)
    if "data" not in skip_checks and config.work.facts:
        found += _wrong_data(config, config.work.built_in)
    return found


def _unwritable(config: Config) -> Iterator[str]:
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


def _wrong_data(config: Config, work: ModelWork) -> Iterator[str]:
    """Yield why there is no data, or why it does not fit the model or the configuration."""
    if work.input == "synthetic" or work.input not in work.facts.inputs:
        return
    expected = data_set_class(work)
    try:
        expected.find(work.data_folder)
    except OSError:
        yield (
            f"data_dir: expected {expected.expected} in {work.data_folder}; to create sample "
            f"data: {_samples_command(work)}"
        )
        return
    yield from _unfit_data(config, work)


def _unfit_data(config: Config, work: ModelWork) -> Iterator[str]:
    folder, length = work.data_folder, work.sample_size
    try:
        samples = sample_count(work)
    except OtherLengthError as error:
        yield (
            f"sequence_length: the sequences in {folder} have {error.found} tokens, not "
            f"{length}: -p sequence_length {error.found}; for sample data of {length}: perfkit "
            f"samples FOLDER --for {work.model} --sequence-length {length}, and -p data_dir "
            "FOLDER"
        )
        return
    except InputError as error:
        for fault in str(error).splitlines():
            yield f"data_dir: {fault}"
        return
    needed = config.ranks * work.batch_size
    if samples < needed:
        yield (
            f"batch_size: one step of {config.ranks} x {work.batch_size} samples needs "
            f"{needed:,}, but {folder} has {samples:,}; add data, or set a smaller batch: -p "
            "batch_size N"
        )


def _samples_command(work: ModelWork) -> str:
    """Return the command that makes sample data where the work expects data."""
    model = work.facts
    words = ["perfkit", "samples"]
    if work.data_folder != stored_path(model.data_dir):
        words.append(str(work.data_folder))
    if model.sample != "image":
        words += ["--for", work.model]
    if model.data == "shards" and work.sequence_length != model.default_sequence_length:
        words += ["--sequence-length", str(work.sequence_length)]
    return shlex.join(words)


def sample_count(work: ModelWork) -> int:
    """Check the data and return the number of its samples. Raises InputError."""
    of_data = resolve({**work.model_dump(include=OF_DATA), "device": "cpu"})
    return _sample_count(of_data, of_data.work.data_sha256)


@lru_cache(maxsize=64)
def _sample_count(config: Config, _digest: str | None) -> int:
    """Return the samples of data with this digest, which many configurations may share."""
    data = data_set(config.work.built_in.options(config))
    data.check()
    return len(data)
