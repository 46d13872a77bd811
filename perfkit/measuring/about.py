"""How parameters are declared: their properties besides type, range and description."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.fields import FieldInfo

from perfkit.measuring.paths import URL

DEVICE = r"^[a-z][a-z0-9_]{0,29}$"
STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)
FrameworkName = Literal["paddle", "torch", "jax", "tensorflow", "mxnet"]


@dataclass(frozen=True)
class About:
    """Properties of a parameter besides its type, range and description. Code that treats
    parameters differently uses these (`select`); no other place lists parameter names.

    `unset`: the word that leaves it open in a request; None if the field has no default.
    `usual`: usual values of a text without fixed choices.
    `identifies`: whether another value makes another measurement. `compared`: whether two
    measurements must agree in it, may differ and show the difference, or ignore it; `key`: its
    name in comparisons, if different; `follows`: the parameter along with which it may differ.
    `only`: parameter, `sample` of the model, or `accelerated` -> the values with which it has
    an effect; a model that can have none of them does not take the parameter.
    `verified`: whether `perfkit verify` accepts it. `is_path`: whether it is a path.
    """

    unset: str | None = None
    usual: tuple[str, ...] = ()
    identifies: bool = True
    compared: Literal["agree", "show", "ignore"] = "agree"
    key: str = ""
    follows: str = ""
    only: dict[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    verified: bool = False
    is_path: bool = False

    def is_for(self, name: str, value: Any) -> bool:
        """Return whether it has an effect if parameter `name` has this value."""
        return value in self.only.get(name, (value,))


def about_of(field: FieldInfo) -> About:
    """Return the properties of a parameter besides its type, range and description."""
    for item in field.metadata:
        if isinstance(item, About):
            return item
    return About()


RUN = About(identifies=False, compared="ignore")
"""Location of results and limits of time, which do not affect the measurement."""
OF_PLACE = About(compared="ignore", is_path=True)
"""A file or folder whose place is another one in each checkout."""
IGNORED = About(compared="ignore")
OWN_CHOICE = About(follows="framework")
"""Choices that may differ with the framework."""
OF_IMAGES, OF_SEQUENCES = {"sample": ("image",)}, {"sample": ("sequence",)}
IN_SIZES = {"model": ("gpt", "llama")}
OF_LLAMA = About(only={"model": ("llama",)})
ON_GPU, ON_CPU = {"device": ("gpu",)}, {"device": ("cpu",)}
ACCELERATED = {"accelerated": (True,)}
BY_DALI = About(only={"input": ("dali",)})
BY_DATALOADER = About(only={"input": ("dataloader",)})
CONTENT = About(is_path=True, identifies=False, compared="ignore", key="script_sha256")
"""A file whose name and content make another measurement, but not its folder."""


def _local(path: str) -> str:
    if URL.match(path) or not path.isprintable():
        raise ValueError("not a file or folder on this machine")
    return path


LocalPath = Annotated[str, Field(min_length=1), AfterValidator(_local)]
