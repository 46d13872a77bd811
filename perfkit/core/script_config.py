"""The configuration of a script of the user's, and of any work."""

import re
import shlex
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator

from perfkit.core.config import About, Config, FrameworkName, RunConfig
from perfkit.core.paths import is_local_folder, stored_path

SCRIPT = "script"
"""What `perfkit.plan` and the notebooks call a script, in place of a model's name."""
SHA256 = r"^[0-9a-f]{64}$"
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
MOST_OF_NAME = 40
"""Longest part of a folder's name that names the script."""
MOST_CHARACTERS = 4000
"""Longest line of arguments."""


def _local_file(path: str) -> str:
    if not is_local_folder(path):
        raise ValueError("not a file on this machine")
    return path


LocalFile = Annotated[str, Field(min_length=1), AfterValidator(_local_file)]


class ScriptConfig(RunConfig):
    """The configuration of a training script of the user's: what runs, and how.

    `request.resolve` fills in `framework`, `script_sha256` and `modules`, which
    follow from the script's content.
    """

    script: Annotated[
        LocalFile, About(identifies=False, compared="ignore", key="script_sha256", is_path=True)
    ]
    """the training script, which calls perfkit.StepTimer; its name and content make a new id,
    its folder does not"""
    arguments: Annotated[str, Field(max_length=MOST_CHARACTERS)] = ""
    """the script's arguments, quoted as in a shell"""
    framework: FrameworkName
    """training framework; None: the one that the script imports"""
    script_sha256: Annotated[str, Field(pattern=SHA256)]
    """digest of the names and contents of the script and its modules"""
    modules: list[str]
    """local modules that the script imports statically, at any depth"""

    @field_validator("arguments")
    @classmethod
    def _requoted(cls, arguments: str) -> str:
        """Quote the arguments anew: the same words give the same configuration."""
        advice = "write them on one line and quote them as in a shell"
        try:
            requoted = shlex.join(shlex.split(arguments))
        except ValueError as error:
            raise ValueError(f"{error}; {advice}") from None
        if not requoted.isprintable():
            fault = "a line break or another character that is not printable"
            raise ValueError(f"{fault}; {advice}")
        return requoted

    @property
    def script_file(self) -> Path:
        """`script` as an absolute path."""
        return stored_path(self.script)

    @property
    def file_name(self) -> str:
        """The script's file name, `train.py`."""
        return PurePosixPath(self.script).name

    @property
    def short_name(self) -> str:
        """The file name without `.py`, as far as it can be part of a folder's name."""
        stem = NOT_IN_NAMES.sub("_", PurePosixPath(self.script).stem)
        return stem[:MOST_OF_NAME]

    @property
    def argument_list(self) -> list[str]:
        """The arguments as the script gets them."""
        return shlex.split(self.arguments)


TAGS = ("<model>", "<script>")
"""Pydantic's names of the two configurations in the place of an error."""


def _kind(config: Any) -> str:
    """Return the tag of a configuration that is validated: a script's has `script`."""
    if isinstance(config, dict):
        is_script = "script" in config
    else:
        is_script = isinstance(config, ScriptConfig)
    return TAGS[is_script]


AnyConfig = Config | ScriptConfig
"""The configuration of a built-in model or of a script."""
StoredConfig = Annotated[
    Annotated[Config, Tag(TAGS[0])] | Annotated[ScriptConfig, Tag(TAGS[1])],
    Discriminator(_kind),
]
"""A field with either configuration, which tells them apart by the presence of `script`."""


class NotBuiltInError(TypeError):
    """Something that only a built-in model has was asked of a script."""


def built_in(config: AnyConfig) -> Config:
    """Return the configuration of a built-in model. Raises NotBuiltInError for a script."""
    if isinstance(config, Config):
        return config
    raise NotBuiltInError(f"{config.script} is a script, not a built-in model")
