"""Whether a configuration can be measured here."""

import tempfile
from collections.abc import Collection, Iterator
from typing import Literal

from perfkit.core import refusals
from perfkit.core.config import Config, RunConfig
from perfkit.core.inputs.data_set import data_set_class
from perfkit.core.models import model_of
from perfkit.core.paths import stored_path
from perfkit.core.refusals import Refusal
from perfkit.core.request import hosts
from perfkit.core.request.contradictions import contradictions
from perfkit.core.request.requirements import lacking
from perfkit.core.request.shared_memory import too_small
from perfkit.core.script_config import AnyConfig

CheckScope = Literal["machine", "requirements", "data"]


def problems(
    config: AnyConfig, gpus: int, skip_checks: Collection[CheckScope] = ()
) -> list[Refusal]:
    """Return all reasons why this machine, with `gpus` visible devices of the training type,
    can't measure this configuration. `skip_checks`: `machine` if another machine measures, and
    this one must not be accessed; `requirements` if this machine need not meet them; `data` if
    the data does not exist yet."""
    refused = [*contradictions(config)]
    if "machine" not in skip_checks and "requirements" not in skip_checks:
        refused += lacking(config, gpus)
        refused += hosts.problems(config)
        refused += _unwritable(config)
        if refusal := too_small(config):
            refused.append(refusal)
    if "data" not in skip_checks and isinstance(config, Config):
        refused += _without_data(config)
    return refused


def _without_data(config: Config) -> Iterator[Refusal]:
    model = model_of(config)
    if config.input == "synthetic" or config.input not in model.inputs:
        return
    data_set = data_set_class(config)
    try:
        data_set.find(config.data_folder)
    except OSError:
        command = "perfkit samples"
        if model.sample != "image":
            command += f" --for {config.model}"
        yield refusals.DataMissing(
            expected=data_set.expected, folder=str(config.data_folder), command=command
        )


def _unwritable(config: RunConfig) -> Iterator[Refusal]:
    folder = stored_path(config.outputs_dir)
    try:
        # A missing folder is created by its writer, not by this check.
        while not folder.exists():
            folder = folder.parent
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        yield refusals.Unwritable(folder=str(folder), reason=str(error.strerror))
