"""The base of all models of stored JSON files."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Time = Annotated[str, AfterValidator(_time)]
"""A time in ISO 8601, UTC."""
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]


class Stored(BaseModel):
    """A part of a stored JSON file; immutable, without unknown fields, all numbers finite."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, frozen=True, allow_inf_nan=False
    )


class Reading(Stored):
    """One fact of the environment, or why it could not be read."""

    value: str | int | float | bool | list[str] | None
    """the fact; None if missing"""
    missing: str | None = None
    """why there is no value"""
