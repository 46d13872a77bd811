"""A parameters file: the configurations that it names, and everything that is wrong with it."""

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
"""Where something stands in a file: keys and indices from the top."""
PARAMETERS = ROOT / "parameters"
SCALAR = (str, int, float, type(None))
WORDS = {
    "extra_forbidden": "no such name",
    "missing": "is missing",
    "dict_type": "must hold names with values: indent what belongs to it",
    "list_type": "must be a list: [A, B]",
    "too_short": "is empty",
    "model_type": "must hold names with values, `notebook` among them",
    "string_type": "must be a name",
    "invalid_key": "a key must be a name",
}
"""What is wrong, by pydantic's type of error, where its own words are for programmers."""


class SweepError(RequestError):
    """A sweep is refused, and nothing was started. `problems` lists all that is wrong, each
    with the file's name and the line."""

    heading = "The sweep was refused; nothing was started."


class Sweep(BaseModel, frozen=True, extra="forbid"):
    """The sections of a parameters file.

    `protocol` and `parameters` are the same in all configurations; `matrix` stands for every
    combination of its values, less those that agree with an entry of `exclude`, where a list
    agrees with any of its values. An entry of `include` gives its other parameters to the
    combinations that agree with it; one that agrees with none and names the whole matrix is
    one more.
    """

    notebook: str
    protocol: Any = None
    parameters: dict[str, Any] = {}
    matrix: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    exclude: list[dict[str, Any]] = []
    include: list[dict[str, Any]] = []


class Position(NamedTuple):
    """Where something was set: the line of the file, 0 for none, and what messages call it."""

    line: int
    name: str


class Problem(NamedTuple):
    """What is wrong, and at which position."""

    position: Position
    message: str

    def __str__(self) -> str:
        return f"{self.position.name}: {self.message}"


class Setting(NamedTuple):
    """A value that was set for a parameter, and where."""

    value: Any
    where: Position


Cell = dict[str, Setting]
GIVEN = Position(0, "-p")
"""Of what was not set in the file."""


class Configuration(NamedTuple):
    """A model and its parameters, flat, for papermill; `where` each is set."""

    model: str
    parameters: dict[str, Any]
    where: dict[str, Position]


def load_yaml(path: Path) -> Any:
    """The content of a small file of this machine, with positions (ruamel.yaml's `lc`).

    Raises SweepError for no YAML, a key given twice, or an alias: a few lines of those can
    stand for gigabytes.
    """
    line = None
    try:
        if re.match(r"[a-z]+:/", str(path)):
            raise ValueError("no file of this machine; fetch it first")
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
                raise ValueError(f"the alias *{event.anchor}: write it out")
        line = None
        return YAML().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem, line = f"not YAML: {error.problem}", mark and mark.line + 1
    except OSError as error:
        problem = str(error.strerror)
    # Text that is not UTF-8, and what looks like a date and is none.
    except (ValueError, YAMLError) as error:
        problem = str(error)
    ours = PARAMETERS / path.name
    problem += f"; did you mean {ours}?" if not path.exists() and ours.exists() else ""
    raise SweepError([f"{path}{f':{line}' if line else ''}: {problem}"])


def read_sweep(
    path: str | Path, given: Mapping[str, Any] | None = None
) -> tuple[list[Configuration], list[Problem]]:
    """The configurations that the parameters file `path` names, and what is wrong with it;
    whether its values can be measured is seen by `plan`.

    `given` parameters are the same in all of them, instead of what the file has for all. Of a
    file that is wrong there may be no configurations, or some without what can't be used.
    Raises SweepError for a file that can't be read.
    """
    file = _File(Path(path))
    cells: list[Cell] = []
    file.check_names()
    try:
        cells = file.cells(Sweep.model_validate(file.content), given or {})
    except ValidationError as error:
        for one in error.errors():
            place = tuple(part for part in one["loc"] if part != "[key]")
            message = WORDS.get(one["type"], one["msg"])
            if one["type"] == "extra_forbidden":
                message += suggest(place[-1], Sweep.model_fields)
            file.refuse(place, f"{'.'.join(map(str, place))}{': ' if place else ''}{message}")
    found = []
    for cell in cells:
        # What can't be a parameter is refused above; of -p, `plan` does that.
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
    """The content of a parameters file, and `problems` with it, as they are found."""

    def __init__(self, path: Path) -> None:
        self.path, self.content = path, load_yaml(path)
        self.problems: dict[Problem, None] = {}

    def at(self, place: Place) -> Position:
        """That of what stands at `place`, or of the nearest thing above it."""
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
        """Whether names and types can be, each by itself, whatever the file's shape is."""
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
                        settings |= {(*place, k): one for k, one in enumerate(value)}
                    else:
                        settings[place] = value
        for place, value in settings.items():
            if not isinstance(value, SCALAR):
                problem = "must be text, a number, true, false or null"
                self.refuse(place, f"{'.'.join(map(str, place))}: {problem}")

    def cells(self, sweep: Sweep, given: Mapping[str, Any]) -> list[Cell]:
        """What is set in each configuration."""
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
        """The cells of the matrix, without those excluded, with what is included."""
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
                what = "adds nothing to" if chosen else "matches nothing in"
                self.refuse(("include", index), f"include: {dict(values)} {what} the matrix")
        return kept + more

    def joined(self, first: Cell, second: Cell) -> Cell:
        for name in first.keys() & second.keys():
            problem = f"{name} is given here and at {first[name].where.name}: keep one"
            self.problems[Problem(second[name].where, problem)] = None
        return first | second


def _agrees(values: dict[str, Any], cell: Cell) -> bool:
    """Whether the cell has the values; a list agrees with any of its own."""
    return all(
        name in cell and cell[name].value in (value if isinstance(value, list) else [value])
        for name, value in values.items()
    )
