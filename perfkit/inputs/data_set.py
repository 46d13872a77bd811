"""What the driver asks of a data set before anything starts. Needs no framework."""

from perfkit.config import Config
from perfkit.inputs import raise_if_short
from perfkit.inputs.images import Images
from perfkit.inputs.sequences import Sequences, Tokens
from perfkit.models import MODELS

DataSet = Images | Sequences | Tokens
DATA_SETS: dict[str, type[DataSet]] = {"images": Images, "shards": Sequences, "tokens": Tokens}
"""By the form of a model's data."""


def data_set_class(config: Config) -> type[DataSet]:
    """The class of the data sets that the model of `config` trains on."""
    return DATA_SETS[MODELS[config.model].data]


def data_set(config: Config) -> DataSet:
    """The data set that `config` trains on. Raises InputError for a wrong list or layout."""
    return data_set_class(config)(config)


def examine(config: Config) -> DataSet:
    """The same with its files checked, too: `len` and `sha256` are stored with a result."""
    found = data_set(config)
    found.check()
    raise_if_short(len(found), config, str(found.source))
    return found


def digest(config: Config) -> str | None:
    """The sha256 that `examine` would give, unchecked and quick; None without a data set."""
    if config.input == "synthetic":
        return None
    try:
        return data_set_class(config).digest(config.data_folder)
    except OSError:
        return None
