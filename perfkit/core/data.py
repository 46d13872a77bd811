"""The digest of a configuration's data set."""

from perfkit.core.config import Config
from perfkit.core.script_config import AnyConfig
from perfkit.inputs.data_set import data_set_class


def digest(config: AnyConfig) -> str | None:
    """Return the data set's `sha256` quickly, without checks; None without a data set."""
    if not isinstance(config, Config) or config.input == "synthetic":
        return None
    try:
        return data_set_class(config).digest(config.data_folder)
    except OSError:
        return None
