"""The data set of a configuration, and its checks before a run. Imports no framework."""

from perfkit.core.config import Config
from perfkit.core.inputs import raise_if_short
from perfkit.core.inputs.images import Images
from perfkit.core.inputs.sequences import Sequences
from perfkit.core.inputs.tokens import Tokens, WideTokens
from perfkit.core.script_config import AnyConfig
from perfkit.training.models import model_of

DataSet = Images | Sequences | Tokens
DATA_SETS: dict[str, type[DataSet]] = {
    "images": Images,
    "shards": Sequences,
    "tokens": Tokens,
    "tokens32": WideTokens,
}
"""Classes by data format of a model."""


def data_set_class(config: Config) -> type[DataSet]:
    """Return the data set class of the model."""
    return DATA_SETS[model_of(config).data]


def data_set(config: Config) -> DataSet:
    """Open the data set. Raises InputError if its list or layout is invalid."""
    return data_set_class(config)(config)


def examine(config: Config) -> DataSet:
    """Open the data set and check its files. Raises InputError."""
    data = data_set(config)
    data.check()
    raise_if_short(len(data), config, str(data.source))
    return data


def digest(config: AnyConfig) -> str | None:
    """Return the data set's `sha256` quickly, without checks; None without a data set."""
    if not isinstance(config, Config) or config.input == "synthetic":
        return None
    try:
        return data_set_class(config).digest(config.data_folder)
    except OSError:
        return None
