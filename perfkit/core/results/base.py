"""The base of all models of stored JSON files."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]


class Stored(BaseModel):
    """A part of a stored JSON file; immutable, without unknown fields, all numbers finite."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, frozen=True, allow_inf_nan=False
    )


def in_utc(text: str, timespec: str) -> str:
    """Convert a time in ISO 8601 to UTC. Raises ValueError, also if it has no time zone or its
    year is not 1970 to 8999."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    if not 1970 <= moment.year < 9000:
        raise ValueError("no year from 1970 to 8999")
    return moment.astimezone(UTC).isoformat(timespec=timespec)
