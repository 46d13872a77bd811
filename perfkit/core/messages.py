"""Messages about a number, a run or a request: codes with parameters.

Messages are stored as such. `perfkit.report.text.messages` has the sentences in each language;
nothing parses a sentence.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

STORED = ConfigDict(extra="forbid", use_attribute_docstrings=True)
"""Configuration of all stored models: no unknown fields; docstrings describe the fields."""


def _revived(value: Any) -> Any:
    stored = isinstance(value, dict) and value.keys() == {"code", "params"}
    return Message(**value) if stored else value


@dataclass(frozen=True, config=STORED)
class Message:
    """A code and the parameters of its sentence, which may be messages themselves."""

    # Described by Field, which subclasses inherit.
    code: Annotated[str, Field(description="code of the sentence")]
    params: Annotated[
        dict[str, Annotated[Any, BeforeValidator(_revived)]],
        Field(description="values in the sentence; text of other programs is in `detail`"),
    ] = Field(default_factory=dict)
