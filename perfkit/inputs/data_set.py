"""What the driver asks of a data set before anything starts. Needs no framework."""

import hashlib
from typing import NamedTuple

from perfkit.config import Config
from perfkit.inputs.files import LIST, check_files, read_list
from perfkit.inputs.shards import check_values, fingerprint, read_shards, shard_files
from perfkit.models import MODELS


class Examined(NamedTuple):
    """A data set that can be trained on: how many samples, and what identifies it."""

    samples: int
    sha256: str


def digest(config: Config) -> str | None:
    """The sha256 that `examine` would give, unchecked and quick; None without a data set.

    Of images it is that of their list, of sequences `shards.fingerprint`.
    """
    if config.input == "synthetic":
        return None
    try:
        if MODELS[config.model].sample == "image":
            return hashlib.sha256((config.data_folder / LIST).read_bytes()).hexdigest()
        files = shard_files(config.data_folder)
        return fingerprint(files) if files else None
    except OSError:
        return None


def examine(config: Config) -> Examined:
    """Check list and files of the data set of an input that reads one. Raises InputError."""
    if MODELS[config.model].sample == "image":
        listed = read_list(config.data_folder)
        check_files(listed)
        return Examined(len(listed.paths), listed.sha256)
    assert config.sequence_length is not None
    shards = read_shards(config.data_folder, config.sequence_length)
    check_values(shards)
    return Examined(sum(shards.rows), shards.sha256)
