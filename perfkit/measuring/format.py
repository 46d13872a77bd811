"""Numbers and foreign text as text, the same in every language."""

from collections import Counter
from collections.abc import Iterable
from math import isfinite
from typing import Any


def number(value: float | None, digits: int = 4) -> str:
    """Return `value` with `digits` significant digits, trailing zeros kept, and the thousands
    of a whole number separated; a dash for None."""
    if value is None:
        return "–"
    if not isfinite(value):
        return str(value)
    text = f"{value:#.{digits}g}"
    if abs(float(text)) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return text


def percent(share: float | None, digits: int = 3) -> str:
    """Return a fraction in percent, to 0.0001 % at most; a dash for None."""
    if share is None:
        return "–"
    # Adding 0 turns -0 into 0.
    value = round(share * 100, 4) + 0.0
    if share and not value:
        return "< 0.0001 %"
    # All digits of whole percents are significant: "100 %".
    whole_digits = len(f"{abs(value):.0f}")
    return f"{value:.{max(digits, whole_digits)}g} %"


def spread(values: Iterable[float | None], unit: float = 1) -> str:
    """Return the range of the known values, divided by `unit`; empty without values."""
    scaled = [value / unit for value in values if value is not None]
    if not scaled:
        return ""
    return interval(min(scaled), max(scaled), 3)


def change(share: float, digits: int = 2) -> str:
    """Return a relative difference in percent, with its sign."""
    text = percent(share, digits)
    return f"+{text}" if round(share, 6) > 0 else text


def changes(shares: Iterable[float]) -> str:
    return ", ".join(map(change, shares))


def interval(low: float | None, high: float | None, digits: int = 4) -> str:
    """Return both ends of an interval; a dash without an interval."""
    if low is None:
        return "–"
    return f"{number(low, digits)} – {number(high, digits)}"


def plus_minus(value: float, low: float | None = None, high: float | None = None) -> str:
    """Return half the width of a value's interval as a share of the value, "± 7 %"; empty
    without an interval."""
    if low is None or high is None:
        return ""
    return f"± {percent((high - low) / 2 / value, 2)}"


def rate_text(value: float, unit: str, *interval: float) -> str:
    """Return a throughput with its unit and the width of its interval, if it has one: "4.600
    images/s ± 7 %"."""
    return f"{number(value)} {plain(unit)} {plus_minus(value, *interval)}".rstrip()


def minute(time: str) -> str:
    """Return an ISO 8601 time in UTC to the minute."""
    return f"{time[:16].replace('T', ' ')} UTC"


def one_line(value: Any) -> str:
    """Return a value as text on one line; a dash for an empty value."""
    if value in (None, ""):
        return "–"
    return " ".join(str(value).split())


def shortened(value: Any, longest: int = 40) -> str:
    """Return a value on one line of at most `longest` characters."""
    text = one_line(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def amount(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, in English: "1 repeat", "1,000 repeats"; a plural other
    than with an s is given."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size(count: int) -> str:
    """Return a number of bytes in the largest unit of which there is one: "3.21 kB"."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{number(count / factor, 3)} {unit}"
    return amount(count, "byte")


def counted(names: Iterable[str]) -> str:
    """Return shortened names, each once and with its count: "8 × V100"; a single name alone."""
    counts = Counter(map(shortened, names))
    if counts.total() == 1:
        return next(iter(counts))
    return ", ".join(f"{count} × {name}" for name, count in counts.items())


def plain(text: str) -> str:
    """Return foreign text on one line, without control characters."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return text with its line breaks, but without other control characters."""
    return "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
