"""What the suite says of a number, a run or a request: a code with parameters.

A message is stored as such. `perfkit.text.messages` has its sentence, in each language; nothing
reads a sentence back.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True)
"""Of all that is stored: nothing unknown is in it, and docstrings describe the fields."""


def _revived(value: Any) -> Any:
    stored = isinstance(value, dict) and value.keys() == {"code", "params"}
    return Message(**value) if stored else value


@dataclass(frozen=True, config=STRICT)
class Message:
    """A code and the parameters of its sentence, which may be messages themselves."""

    # Described here, where subclasses have it too.
    code: Annotated[str, Field(description="which sentence it is")]
    params: Annotated[
        dict[str, Annotated[Any, BeforeValidator(_revived)]],
        Field(description="what the sentence names; text from elsewhere is in `detail`"),
    ] = Field(default_factory=dict)
