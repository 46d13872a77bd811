"""Parameters files: their YAML, with the line of each item and of each problem."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from perfkit.measuring.request import RequestError, suggest
from perfkit.measuring.request.script import SUFFIX

MESSAGES = {
    "missing": "is missing",
    "dict_type": "must hold names with values: check the indentation",
    "list_type": "must be a list: [A, B]",
    "too_short": "is empty",
    "invalid_key": "a key must be a name",
    "model_type": "must hold names with values, including `notebook`",
}
"""Messages for pydantic's types of errors."""


class SweepError(RequestError):
    """The sweep is invalid, and nothing was started. `problems` have file and line."""

    heading = "The sweep was refused; nothing was started."


class Problem(NamedTuple):
    """What is wrong in a line of the file."""

    line: int
    message: str


def load_yaml(path: Path) -> Any:
    """Read a file, with positions (ruamel.yaml's `lc`). Raises SweepError for a file that can't
    be read, a script, and invalid YAML."""
    if path.suffix == SUFFIX:
        raise SweepError([f"{path} is a script; a sweep takes a parameters file"])
    place = str(path)
    try:
        return YAML().load(path.read_text("utf-8"))
    except MarkedYAMLError as error:
        problem = f"not YAML: {error.problem}"
        mark = error.problem_mark or error.context_mark
        if mark:
            place = f"{path}:{mark.line + 1}"
    except OSError as error:
        problem = str(error.strerror)
    # Not UTF-8, an invalid date, or a list in a key.
    except (ValueError, TypeError, YAMLError) as error:
        problem = str(error)
    raise SweepError([f"{place}: {problem}"])


class SweepFile:
    """The content of a parameters file, and the `problems` found so far."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.problems: list[Problem] = []

    def line(self, *place: str | int) -> int:
        """Return the line of the item with these keys and indices, or of its nearest parent."""
        line = 1
        content = self.content
        for part in place:
            positions = content.lc.data if hasattr(content, "lc") else None
            if not positions or part not in positions:
                break
            line = positions[part][0] + 1
            content = content[part]
        return line

    def refuse_invalid(self, error: ValidationError, sections: Collection[str]) -> None:
        """Add pydantic's errors in the content, which may have these sections."""
        for item in error.errors():
            place = tuple(part for part in item["loc"] if part != "[key]")
            message = MESSAGES.get(item["type"], item["msg"])
            if item["type"] == "extra_forbidden":
                message = f"no such name{suggest(place[0], sections)}"
            name = _dotted(place)
            self.refuse(place, f"{name}: {message}" if name else message)

    def refuse_item(self, place: tuple[str | int, ...], message: str) -> None:
        """Add a problem that begins with the item's name."""
        self.refuse(place, f"{_dotted(place)}: {message}")

    def refuse(self, place: tuple[str | int, ...], message: str) -> None:
        """Add a problem of the item with these keys and indices."""
        self.add(Problem(self.line(*place), message))

    def add(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _dotted(place: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in place)
