"""What the driver asks of a data set before anything starts. Needs no framework."""

from perfkit.config import Config
from perfkit.inputs.images import Images
from perfkit.inputs.sequences import Sequences
from perfkit.models import MODELS

DataSet = Images | Sequences
DATA_SETS: dict[str, type[DataSet]] = {"image": Images, "sequence": Sequences}
"""By what a model's sample is."""


def data_set(config: Config) -> DataSet:
    """The data set that `config` trains on. Raises InputError for a wrong list or layout."""
    return DATA_SETS[MODELS[config.model].sample](config)


def examine(config: Config) -> DataSet:
    """The same with its files checked, too: `len` and `sha256` are stored with a result."""
    found = data_set(config)
    found.check()
    return found


def digest(config: Config) -> str | None:
    """The sha256 that `examine` would give, unchecked and quick; None without a data set."""
    if config.input == "synthetic":
        return None
    try:
        return DATA_SETS[MODELS[config.model].sample].digest(config.data_folder)
    except OSError:
        return None
