"""A YAML file of a person's: read with care, and with the line of everything in it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 256 * 1024
Place = tuple[str | int, ...]
"""Where something stands in a file: keys and indices from the top."""


class YamlError(ValueError):
    """The file can't be read; the message says why, `line` where, None for all of it."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(path: Path) -> tuple[Any, dict[Place, int]]:
    """What the file says, in plain values, and the line of each place in it, from 1.

    Raises YamlError for what is no small file of this machine, no YAML, has a key twice, or an
    alias: a few lines of those can stand for gigabytes.
    """
    try:
        text = _text(path)
        root = yaml.compose(text, yaml.SafeLoader)
        lines = dict(_lines(root, ())) if root else {}
        return yaml.safe_load(text), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(f"not YAML: {error.problem}", mark.line + 1 if mark else None) from None
    except OSError as error:
        raise YamlError(str(error.strerror)) from error
    except RecursionError:
        raise YamlError("nested too deep for a parameters file") from None
    # Text that is not UTF-8, and what looks like a date and is none.
    except (ValueError, yaml.YAMLError) as error:
        if isinstance(error, YamlError):
            raise
        raise YamlError(str(error)) from error


def _text(path: Path) -> str:
    if re.match(r"[a-z]+:/", str(path)):
        raise YamlError("no file of this machine; fetch it first")
    if path.exists() and not path.is_file():
        raise YamlError("not a file")
    if path.stat().st_size > MOST_BYTES:
        raise YamlError(f"over {MOST_BYTES // 1024} KiB, too large for a parameters file")
    text = path.read_text("utf-8")
    for token in yaml.scan(text, yaml.SafeLoader):
        if isinstance(token, yaml.AliasToken):
            raise YamlError(
                f"the alias *{token.value}: write it out", token.start_mark.line + 1
            )
    return text


def _lines(node: yaml.Node, place: Place) -> Iterator[tuple[Place, int]]:
    yield place, node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _lines(item, (*place, index))
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError("a key must be a name", line)
            if key.value in seen:
                raise YamlError(f"{key.value} is given twice", line)
            seen.add(key.value)
            yield from _lines(value, (*place, key.value))
            # The key's own line: its value may begin on the next one.
            yield (*place, key.value), line
