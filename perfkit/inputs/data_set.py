"""The data set of a training, and its checks before a run. Imports no framework."""

from perfkit.inputs import raise_if_short
from perfkit.inputs.images import Images
from perfkit.inputs.sequences import Sequences
from perfkit.inputs.tokens import Tokens, WideTokens
from perfkit.training.models import Choice, model_of
from perfkit.training.options import Options

DataSet = Images | Sequences | Tokens
DATA_SETS: dict[str, type[DataSet]] = {
    "images": Images,
    "shards": Sequences,
    "tokens": Tokens,
    "tokens32": WideTokens,
}
"""Classes by data format of a model."""


def data_set_class(choice: Choice) -> type[DataSet]:
    """Return the data set class of the model."""
    return DATA_SETS[model_of(choice).data]


def data_set(options: Options) -> DataSet:
    """Open the data set. Raises InputError if its list or layout is invalid."""
    return data_set_class(options)(options)


def examine(options: Options) -> DataSet:
    """Open the data set and check its files. Raises InputError."""
    data = data_set(options)
    data.check()
    raise_if_short(len(data), options, str(data.source))
    return data
