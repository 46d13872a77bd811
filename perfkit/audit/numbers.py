"""Numbers as logs spell them: 1,234.5; 1_234; 3.4e5; 340K; 1.2M; 35.6%; 51.2 ms; 1:02:03.4.

Patterns match a number as a whole or not at all: 12 is never read out of 12,810 or 12.810,5.
Every repetition is bounded, because logs are untrusted.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
"""Letters behind a number -> factor; B is an American billion."""
SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "msec": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "mins": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}
"""Units of time -> seconds."""

_WHOLE = r"(?:[0-9]{1,3}(?:(?:,[0-9]{3}){1,5}|(?:_[0-9]{3}){1,5})(?![0-9])|[0-9]{1,18}+)"
_SPECIAL = r"[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity)\b"
_MANTISSA = rf"(?:{_WHOLE}(?:\.[0-9]{{0,40}}+)?|\.[0-9]{{1,40}}+)"
_DECIMAL = rf"[-+]?{_MANTISSA}(?:[eE][-+]?[0-9]{{1,3}}){{0,1}}+"
_PREFIX = rf"(?: ?[{''.join(PREFIXES)}](?![A-Za-z]))?"
_UNIT = rf"(?: ?(?:{'|'.join(sorted(SECONDS, key=len, reverse=True))})(?![A-Za-z]))?"
_CLOCK = (
    r"(?:[0-9]{1,6} days?, ?)?[0-9]{1,6}:[0-5][0-9](?::[0-5][0-9])?(?:\.[0-9]{1,9})?(?![:0-9])"
)
_PARTS = r"(?:[0-9]{1,6} ?[dhm] ?){1,3}[0-9]{1,6}(?:\.[0-9]{1,9})? ?s(?![A-Za-z])"

WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,3}(?![0-9])|[0-9]{1,12}+)"
"""Pattern of a whole number."""
REAL = f"(?:{_DECIMAL}|{_SPECIAL})"
"""Pattern of a number without a unit."""
COUNT = f"(?:{_DECIMAL}{_PREFIX}|{_SPECIAL})"
"""Pattern of a number that may be spelled in thousands or millions."""
TIME = f"(?:{_CLOCK}|{_PARTS}|{_DECIMAL}{_UNIT}|{_SPECIAL})"
"""Pattern of a time: a number with or without a unit, or a duration."""
END, WHOLE_END = r"(?![.,_]?[0-9])", r"(?![,_]?[0-9])"
"""Patterns of what must follow a number, so that it is not a part of another."""

_SPELLED = re.compile(rf"({_DECIMAL}) ?([A-Za-zµ]{{0,7}}|%)")
_DURATION = re.compile(f"{_CLOCK}|{_PARTS}")
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([dhms])")
Text = str | float | int | None


def number(text: str) -> float:
    """Return the number that a text spells: 12810.0 for "12,810", 1200000.0 for "1.2M", 35.6
    for "35.6%". Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        value, suffix = _spelled(text)
    if suffix in ("", "%"):
        return value
    if suffix not in PREFIXES:
        raise ValueError(f"no number: {text[:40]!r}")
    return value * PREFIXES[suffix]


def seconds(text: str, unit: float = 1.0) -> float:
    """Return the time that a text spells, in seconds: 0.0512 for "51.2 ms", 3723.4 for
    "1:02:03.4" and for "1h 2m 3.4s". A number without a unit is in `unit`, seconds. Raises
    ValueError."""
    try:
        return float(text) * unit
    except ValueError:
        pass
    if _DURATION.fullmatch(text.strip()):
        return _duration(text.strip())
    value, suffix = _spelled(text)
    if suffix and suffix not in SECONDS:
        raise ValueError(f"no time: {text[:40]!r}")
    return value * SECONDS.get(suffix, unit)


def number_or_nan(text: str) -> float:
    try:
        return number(text)
    except ValueError:
        return np.nan


def seconds_or_nan(text: str, unit: float = 1.0) -> float:
    try:
        return seconds(text, unit)
    except ValueError:
        return np.nan


def _spelled(text: str) -> tuple[float, str]:
    """Return the number in a text without separators between thousands, and its suffix."""
    match = _SPELLED.fullmatch(text.strip())
    if not match:
        raise ValueError(f"no number: {text[:40]!r}")
    return float(match[1].replace(",", "")), match[2]


def _duration(text: str) -> float:
    """Return the seconds of 1:02:03.4, 02:03, 1 day, 0:02:03 or 1h 2m 3s."""
    if ":" not in text:
        return sum(float(value) * SECONDS[unit] for value, unit in _PART.findall(text))
    days, _days, clock = text.rpartition("day")
    total = 0.0
    for part in clock.lstrip("s, ").split(":"):
        total = 60 * total + float(part)
    return total + 86400 * float(days or 0)


def numbers(texts: Sequence[Text]) -> np.ndarray:
    """Return the numbers that texts spell; nan for what is none."""
    return _converted(texts, number_or_nan, 1.0)


def times(texts: Sequence[Text], unit: float = 1.0) -> np.ndarray:
    """Return the times that texts spell, in seconds; a number without a unit is in `unit`,
    seconds."""
    return _converted(texts, lambda text: seconds_or_nan(text, unit), unit)


def _converted(
    texts: Sequence[Text], convert: Callable[[str], float], unit: float
) -> np.ndarray:
    """Convert texts, which NumPy can do at once if they are plain numbers."""
    try:
        return np.array(texts, float) * unit
    except ValueError:
        return np.array([np.nan if text is None else convert(str(text)) for text in texts])
