"""The records of a file: JSON lines, one JSON object, a JSON list, or a table with a heading.

Files are untrusted: records may be cut off, nested, huge, or of any type.
"""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

DEPTH = 8
"""Nesting levels of a JSON object that are flattened."""
LONGEST_HEADING = 200_000
"""Characters read of a table's first line: an untrusted file may have a line of any length."""
MOST_COLUMNS = 20_000
LARGEST_DOCUMENT = 32 * 1024 * 1024
"""Characters of a file that is read as a single JSON document."""
HISTORY = "log_history"
"""List of records within a record, as in the state of Hugging Face's Trainer."""


class NumberedRow(NamedTuple):
    """A row of a table or a JSON object: its line, and its values by (dotted) names."""

    line: int
    values: dict[str, Any]


def parsed(text: str) -> Any:
    """Return the JSON in a text; None if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def flat(document: Any) -> dict[str, Any]:
    """Return the values of a JSON object by dotted names: {"a.b": 1} for {"a": {"b": 1}}."""
    return dict(_values("", document, DEPTH))


def _values(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if not (isinstance(value, dict) and value and depth):
        yield name, value
        return
    for key, inner in value.items():
        yield from _values(f"{name}.{key}" if name else key, inner, depth - 1)


def is_json(text: str) -> bool:
    """Whether a text begins as a JSON object or list."""
    return text.lstrip()[:1] in ("{", "[")


def json_records(text: str) -> Iterator[NumberedRow]:
    """Yield the records of JSON lines or of a JSON document, in their order."""
    # Of JSON lines, only the first object is parsed here.
    document = parsed(text) if len(text) <= LARGEST_DOCUMENT else None
    if document is not None:
        yield from _with_history(1, document)
        return
    begin, number = 0, 0
    while begin < len(text):
        end = text.find("\n", begin)
        if end < 0:
            end = len(text)
        number += 1
        line = text[begin:end].strip()
        begin = end + 1
        if line.startswith("{"):
            yield from _with_history(number, parsed(line))


def _with_history(line: int, document: Any) -> Iterator[NumberedRow]:
    """Yield the records of a JSON object or list, and those of its history."""
    records = document if isinstance(document, list) else [document]
    for record in records:
        if not isinstance(record, dict) or not record:
            continue
        yield NumberedRow(line, flat(record))
        history = record.get(HISTORY)
        if isinstance(history, list):
            for entry in history:
                if isinstance(entry, dict):
                    yield NumberedRow(line, flat(entry))


def heading_of(text: str) -> list[str]:
    """Return the column names of a table; empty for a text without two of them in its first
    line."""
    first_line = text.lstrip()[:LONGEST_HEADING].partition("\n")[0]
    try:
        names = next(csv.reader([first_line]), [])
    except csv.Error:
        return []
    return [name.strip() for name in names] if 2 <= len(names) <= MOST_COLUMNS else []


def table_rows(text: str) -> Iterator[NumberedRow]:
    """Yield the rows of a table by the names in its heading, until one can't be read."""
    names = heading_of(text)
    if not names:
        return
    lines = csv.reader(io.StringIO(text.lstrip()))
    try:
        next(lines, None)
        for number, cells in enumerate(lines, 2):
            if cells:
                yield NumberedRow(number, dict(zip(names, cells, strict=False)))
    except csv.Error:
        return
