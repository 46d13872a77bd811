"""Prints found by a regular expression whose groups are named as the columns of RAW.

No expression may take more than linear time whatever is in a file: every repetition in it has a
bound, and gives nothing back where it needn't (`+`), which is faster, too.
"""

import re
from collections.abc import Sequence

import numpy as np

from perfkit.importers.lines import Chunk
from perfkit.importers.log import RAW

REAL = rb"[-+.0-9A-Za-z]{1,32}+"
"""A number as a log may print it: nan and inf, too. What isn't one becomes nan."""
WHOLE = rb"[0-9]{1,9}+"
RANK = rb"[0-9]{1,5}+"
MOMENT = rb"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,6}+)?"
TAG = re.compile(rb"\[\d{1,9},(\d{1,5})\]<std(?:out|err)>: ?$")
"""What `mpirun --tag-output` puts before a line."""
TAG_BYTES = 40
ISO = bytes.maketrans(b"/ ,", b"-T.")
EXACT_DIGITS = 16
POWERS = 10.0 ** np.arange(EXACT_DIGITS + 1)
"""A decimal of so many characters is a whole number by a power of ten, both exact in a float,
so that their quotient is the nearest float."""
UNSAID = {"rank": -1, "line": 0, "epoch": 0, "step": 0, "since": 0}


def expression(text: bytes) -> re.Pattern[bytes]:
    """An expression in which `<name>` is a group for what the column of RAW with that name
    holds, and for a number if there is none."""
    return re.compile(re.sub(rb"(?<!P)<(\w+)>", _group, text))


def _group(match: re.Match[bytes]) -> bytes:
    kinds = {"at": MOMENT} | dict.fromkeys(UNSAID, WHOLE) | {"rank": RANK}
    return rb"(?P<" + match[1] + rb">" + kinds.get(match[1].decode(), REAL) + rb")"


def prints(chunk: Chunk, pattern: re.Pattern[bytes]) -> tuple[np.ndarray, Chunk]:
    """Rows of RAW for the places in `chunk` that `pattern` matches, and what is left of it.

    No place goes over a line's end. Its groups are named as columns of RAW: `at` in ISO 8601,
    also with slashes or a space, or in seconds; of `accuracy`, `accuracy2`, … the lowest is
    taken.
    """
    # Splitting gives what is between the places, and of each its groups, without an object for
    # the match.
    parts = pattern.split(chunk.text)
    stride = pattern.groups + 1
    between = parts[::stride]
    rest = Chunk(b"".join(between), chunk.line)
    rows = np.zeros(len(between) - 1, RAW)
    for name in RAW.names or ():
        rows[name] = UNSAID.get(name, np.nan)
    if len(rows):
        rows["line"] = rest.lines_at(np.cumsum([*map(len, between[:-1])]))
        rows["rank"] = _ranks(between[:-1]) if b"]<std" in rest.text else UNSAID["rank"]
        for name, index in pattern.groupindex.items():
            texts = parts[index::stride]
            if name in UNSAID:
                rows[name] = _wholes(texts, UNSAID[name])
            elif name == "at":
                rows[name] = _moments(texts)
            elif name.startswith("accuracy"):
                rows["accuracy"] = np.fmin(rows["accuracy"], floats(texts))
            else:
                rows[name] = floats(texts)
    return rows, rest


def floats(texts: Sequence[bytes | None]) -> np.ndarray:
    """Numbers of texts, as `float` reads them; nan for what isn't one."""
    array = np.array(texts, f"S{EXACT_DIGITS + 1}")
    places = array.view(np.uint8).reshape(len(texts), -1).T
    places = places[places.any(1)]
    if not 0 < len(places) <= EXACT_DIGITS:
        return _slow_floats(texts)
    # Of decimals without exponent, all digits at one place are taken together.
    digits = places - ord("0")
    is_digit, is_dot = digits < 10, places == ord(".")
    whole, behind_dot = np.zeros(len(texts), "i8"), np.zeros(len(texts), "i8")
    dots = np.zeros(len(texts), "i8")
    for digit, is_one, dot in zip(digits, is_digit, is_dot, strict=True):
        np.multiply(whole, 10, out=whole, where=is_one)
        np.add(whole, digit, out=whole, where=is_one)
        dots += dot
        behind_dot += is_one & (dots > 0)
    minus = places[0] == ord("-")
    numbers = whole / np.where(minus, -1, 1) / POWERS[behind_dot]
    known = is_digit | is_dot | (places == 0)
    known[0] |= minus
    plain = known.all(0) & is_digit.any(0) & (dots <= 1)
    for index in np.flatnonzero(~plain).tolist():
        numbers[index] = _float(texts[index])
    return numbers


def _slow_floats(texts: Sequence[bytes | None]) -> np.ndarray:
    try:
        return np.fromiter(map(float, texts), float, len(texts))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return np.array([_float(text) for text in texts])


def _wholes(texts: Sequence[bytes | None], unsaid: int) -> np.ndarray:
    numbers = floats(texts)
    return np.where(np.isnan(numbers), unsaid, numbers)


def _float(text: bytes | None) -> float:
    try:
        return float(text or b"nan")
    except ValueError:
        return float("nan")


def _moments(texts: Sequence[bytes | None]) -> np.ndarray:
    """Clock readings in seconds; of any zone, for differences."""
    if texts[0] and b":" not in texts[0]:
        return floats(texts)
    joined = b"\n".join([text or b"NaT" for text in texts])
    parts = joined.translate(ISO).decode().split("\n")
    try:
        moments = np.array(parts, "M8[us]")
    except ValueError:
        moments = np.array([_moment(part) for part in parts])
    return np.where(np.isnat(moments), np.nan, moments.astype("i8") / 1e6)


def _moment(part: str) -> np.datetime64:
    try:
        return np.datetime64(part, "us")
    except ValueError:
        return np.datetime64("NaT", "us")


def _ranks(before: list[bytes]) -> list[int]:
    """Who printed, by what stands directly before each print."""
    tags = [TAG.search(text, max(len(text) - TAG_BYTES, 0)) for text in before]
    return [int(tag[1]) if tag else UNSAID["rank"] for tag in tags]
