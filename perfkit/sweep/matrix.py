"""Parameters files: their configurations and errors."""

import re
from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from perfkit.config import ROOT, parameters
from perfkit.models import MODELS
from perfkit.request import RequestError, suggest

MOST_BYTES, MOST_DEPTH, MOST_CONFIGURATIONS = 256 * 1024, 8, 10_000
Place = tuple[str | int, ...]
"""Path of an item in a file: keys and indices from the top."""
PARAMETERS = ROOT / "parameters"
SCALAR = (str, int, float, type(None))
WORDS = {
    "extra_forbidden": "no such name",
    "missing": "is missing",
    "dict_type": "must hold names with values: check the indentation",
    "list_type": "must be a list: [A, B]",
    "too_short": "is empty",
    "model_type": "must hold names with values, including `notebook`",
    "string_type": "must be a name",
    "invalid_key": "a key must be a name",
}
"""User-friendly messages for pydantic's error types."""


class SweepError(RequestError):
    """The sweep is invalid, and nothing was started. `problems` have file and line."""

    heading = "The sweep was refused; nothing was started."


class Sweep(BaseModel, frozen=True, extra="forbid"):
    """The sections of a parameters file.

    `protocol` and `parameters` apply to all configurations. `matrix` stands for combinations of
    its values, except those that match an entry of `exclude`; a list matches any of its items.
    An entry of `include` adds its other parameters to the combinations that match it. If it
    matches none and sets all parameters of the matrix, it adds a configuration.
    """

    notebook: str
    protocol: Any = None
    parameters: dict[str, Any] = {}
    matrix: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    exclude: list[dict[str, Any]] = []
    include: list[dict[str, Any]] = []


class Position(NamedTuple):
    """The line where a value was set (0: not in the file), and its name in messages."""

    line: int
    name: str


class Problem(NamedTuple):
    position: Position
    message: str

    def __str__(self) -> str:
        return f"{self.position.name}: {self.message}"


class Setting(NamedTuple):
    """A parameter's value and its position."""

    value: Any
    where: Position


Cell = dict[str, Setting]
GIVEN = Position(0, "-p")
"""Position of values from the command line."""


class Configuration(NamedTuple):
    """A model and its parameters, flat for papermill, and the position of each."""

    model: str
    parameters: dict[str, Any]
    where: dict[str, Position]


def load_yaml(path: Path) -> Any:
    """Read a small local file, with positions (ruamel.yaml's `lc`).

    Raises SweepError for invalid YAML, duplicate keys and aliases, since a few lines of aliases
    can expand to gigabytes.
    """
    line = None
    try:
        if re.match(r"[a-z]+:/", str(path)):
            raise ValueError("not a local file; download it first")
        if path.exists() and not path.is_file():
            raise ValueError("not a file")
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"over {MOST_BYTES // 1024} KiB, too large for a parameters file")
        text = path.read_text("utf-8")
        depth = 0
        for event in YAML().parse(text):
            line = event.start_mark.line + 1
            depth += isinstance(event, CollectionStartEvent)
            depth -= isinstance(event, CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise ValueError("nested too deep for a parameters file")
            if isinstance(event, AliasEvent):
                raise ValueError(f"the alias *{event.anchor} is not allowed: repeat the value")
        line = None
        return YAML().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem, line = f"not YAML: {error.problem}", mark and mark.line + 1
    except OSError as error:
        problem = str(error.strerror)
    # Not UTF-8, or an invalid date.
    except (ValueError, YAMLError) as error:
        problem = str(error)
    known = PARAMETERS / path.name
    problem += f"; did you mean {known}?" if not path.exists() and known.exists() else ""
    raise SweepError([f"{path}{f':{line}' if line else ''}: {problem}"])


def read_sweep(
    path: str | Path, given: Mapping[str, Any] | None = None
) -> tuple[list[Configuration], list[Problem]]:
    """Return the configurations of the parameters file `path`, and its errors. `plan` checks
    whether the values can be measured.

    `given` parameters apply to all configurations and override `parameters` of the file. With
    errors, configurations may be missing, or lack invalid values. Raises SweepError if the file
    can't be read.
    """
    file = _File(Path(path))
    cells: list[Cell] = []
    file.check_names()
    try:
        cells = file.cells(Sweep.model_validate(file.content), given or {})
    except ValidationError as error:
        for item in error.errors():
            place = tuple(part for part in item["loc"] if part != "[key]")
            message = WORDS.get(item["type"], item["msg"])
            if item["type"] == "extra_forbidden":
                message += suggest(place[-1], Sweep.model_fields)
            file.refuse(place, f"{'.'.join(map(str, place))}{': ' if place else ''}{message}")
    found = []
    for cell in cells:
        # Invalid parameters of the file are reported above; `plan` reports those of -p.
        usable = {
            name: setting
            for name, setting in cell.items()
            if setting.where == GIVEN
            or (name in parameters() and isinstance(setting.value, SCALAR))
        }
        values = {name: setting.value for name, setting in usable.items()}
        where = {name: setting.where for name, setting in usable.items()}
        found.append(Configuration(file.content["notebook"], values, where))
    return found, [*file.problems]


class _File:
    """The content of a parameters file, and the `problems` found so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.content = path, load_yaml(path)
        self.problems: dict[Problem, None] = {}

    def at(self, place: Place) -> Position:
        """The position of `place`, or of its nearest parent with a position."""
        line, content = 1, self.content
        for part in place:
            positions = content.lc.data if hasattr(content, "lc") else None
            if not positions or part not in positions:
                break
            line, content = positions[part][0] + 1, content[part]
        return Position(line, f"{self.path}:{line}")

    def refuse(self, place: Place, problem: str) -> None:
        self.problems[Problem(self.at(place), problem)] = None

    def check_names(self) -> None:
        """Check each name and type independently of the file's structure."""
        sections = self.content if isinstance(self.content, dict) else {}
        model = sections.get("notebook")
        if isinstance(model, str) and model not in MODELS:
            self.refuse(("notebook",), f"notebook: no such name{suggest(model, MODELS)}")
        settings: dict[Place, Any] = {("protocol",): sections.get("protocol")}
        for section in ("parameters", "matrix", "exclude", "include"):
            entries = sections.get(section)
            places: dict[Place, Any] = {(section,): entries}
            if isinstance(entries, list):
                places = {(section, index): entry for index, entry in enumerate(entries)}
            for above, entry in places.items():
                for name, value in entry.items() if isinstance(entry, dict) else ():
                    place = (*above, name)
                    if name not in parameters():
                        problem = f"no such name{suggest(name, parameters())}"
                        self.refuse(place, f"{'.'.join(map(str, place))}: {problem}")
                    elif section in ("matrix", "exclude") and isinstance(value, list):
                        settings |= {(*place, k): item for k, item in enumerate(value)}
                    else:
                        settings[place] = value
        for place, value in settings.items():
            if not isinstance(value, SCALAR):
                problem = "must be text, a number, true, false or null"
                self.refuse(place, f"{'.'.join(map(str, place))}: {problem}")

    def cells(self, sweep: Sweep, given: Mapping[str, Any]) -> list[Cell]:
        """The settings of each configuration."""
        fixed = self.entry(sweep.parameters, ("parameters",))
        if sweep.protocol is not None:
            protocol = {"protocol": Setting(sweep.protocol, self.at(("protocol",)))}
            fixed = self.joined(fixed, protocol)
        fixed |= {name: Setting(value, GIVEN) for name, value in given.items()}
        cells = [self.joined(fixed, cell) for cell in self.combinations(sweep)]
        if not cells and not self.problems:
            self.refuse(("matrix",), "no configuration is left")
        return cells

    def entry(self, values: dict[str, Any], place: Place) -> Cell:
        return {name: Setting(v, self.at((*place, name))) for name, v in values.items()}

    def combinations(self, sweep: Sweep) -> list[Cell]:
        """The cells of the matrix, after `exclude` and `include`."""
        if prod(map(len, sweep.matrix.values())) > MOST_CONFIGURATIONS:
            self.refuse(("matrix",), f"over {MOST_CONFIGURATIONS:,} configurations")
            return []
        axes = [
            [(name, Setting(v, self.at(("matrix", name, k)))) for k, v in enumerate(values)]
            for name, values in sweep.matrix.items()
        ]
        cells = [dict(cell) for cell in product(*axes)] if axes or not sweep.include else []
        kept = cells
        for index, values in enumerate(sweep.exclude):
            kept = [cell for cell in kept if not _agrees(values, cell)]
            if not any(_agrees(values, cell) for cell in cells):
                problem = f"exclude: {dict(values)} matches nothing in the matrix"
                self.refuse(("exclude", index), problem)
        more: list[Cell] = []
        for index, values in enumerate(sweep.include):
            entry = self.entry(values, ("include", index))
            agreed = {name: value for name, value in values.items() if name in sweep.matrix}
            added = {name: setting for name, setting in entry.items() if name not in agreed}
            chosen = any(_agrees(agreed, cell) for cell in kept)
            if chosen and added:
                kept = [self.joined(c, added) if _agrees(agreed, c) else c for c in kept]
            elif not chosen and agreed.keys() == sweep.matrix.keys():
                more.append(entry)
            else:
                fault = "adds nothing to" if chosen else "matches nothing in"
                self.refuse(("include", index), f"include: {dict(values)} {fault} the matrix")
        return kept + more

    def joined(self, first: Cell, second: Cell) -> Cell:
        for name in first.keys() & second.keys():
            problem = f"{name} is given here and at {first[name].where.name}: keep one"
            self.problems[Problem(second[name].where, problem)] = None
        return first | second


def _agrees(values: dict[str, Any], cell: Cell) -> bool:
    """Whether the cell matches the values; a list matches any of its items."""
    return all(
        name in cell and cell[name].value in (value if isinstance(value, list) else [value])
        for name, value in values.items()
    )
