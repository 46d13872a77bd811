"""Parameters files: their configurations and errors."""

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent

from perfkit.core.config import parameters
from perfkit.core.paths import ROOT
from perfkit.core.request import RequestError, nearest, suggest

MOST_DEPTH, MOST_CONFIGURATIONS, MOST_BYTES = 8, 10_000, 256 * 1024
PARAMETERS = ROOT / "parameters"
SCALAR = (str, int, float, type(None))
WORDS = {
    "missing": "is missing",
    "dict_type": "must hold names with values: check the indentation",
    "list_type": "must be a list: [A, B]",
    "too_short": "is empty",
    "invalid_key": "a key must be a name",
    "model_type": "must hold names with values, including `notebook`",
}
"""User-friendly messages for pydantic's error types."""
GIVEN = 0
"""Line of values from the command line."""


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


class Problem(NamedTuple):
    line: int
    message: str


class Setting(NamedTuple):
    """A parameter's value and its line."""

    value: Any
    line: int


Cell = dict[str, Setting]


class Configuration(NamedTuple):
    """A model and its parameters, flat for papermill, and the line of each."""

    model: str
    parameters: dict[str, Any]
    lines: dict[str, int]


class _AliasError(MarkedYAMLError):
    pass


class _Composer(Composer):
    """Refuses aliases: a few lines of them expand to gigabytes, if only in an error message."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent):
            problem = f"the alias *{event.anchor} is not allowed: repeat the value"
            raise _AliasError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def load_yaml(path: Path) -> Any:
    """Read a small regular file, with positions (ruamel.yaml's `lc`).

    Raises SweepError for any other file, invalid YAML, duplicate keys and aliases.
    """
    yaml, line = YAML(), None
    yaml.max_depth, yaml.Composer = MOST_DEPTH, _Composer
    try:
        if path.exists() and not path.is_file():
            raise ValueError("not a regular file")
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"larger than {MOST_BYTES >> 10} KiB")
        return yaml.load(content.decode())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        kind = "" if isinstance(error, _AliasError) else "not YAML: "
        problem, line = f"{kind}{error.problem}", mark and mark.line + 1
    except OSError as error:
        known = {file.stem: file for file in PARAMETERS.glob("*.yaml")}
        names = nearest(path.stem, known)
        meant = names and isinstance(error, FileNotFoundError)
        problem = f"{error.strerror}{f'; did you mean {known[names[0]]}?' if meant else ''}"
    # Not UTF-8, or an invalid date.
    except (ValueError, YAMLError) as error:
        problem = str(error)
    # A key that contains a list can't be hashed.
    except TypeError:
        problem = WORDS["invalid_key"]
    raise SweepError([f"{path}{f':{line}' if line else ''}: {problem}"])


def read_sweep(
    path: str | Path, given: Mapping[str, Any] | None = None
) -> tuple[list[Configuration], list[Problem]]:
    """Return the configurations of the parameters file `path`, and its errors. `plan` checks
    model and values.

    `given` parameters apply to all configurations: one of the matrix selects the combinations
    with its value, any other overrides `parameters` of the file. With errors, configurations
    may be missing, or lack invalid values. Raises SweepError if the file can't be read.
    """
    file = _File(load_yaml(Path(path)))
    file.correct_sections()
    try:
        sweep = Sweep.model_validate(file.content)
    except ValidationError as error:
        for item in error.errors():
            place = tuple(part for part in item["loc"] if part != "[key]")
            message = WORDS.get(item["type"], item["msg"])
            file.refuse(place, ": ".join(filter(None, [".".join(map(str, place)), message])))
        return [], file.problems
    model = {"model": file.line("notebook")}
    found = [
        Configuration(
            sweep.notebook,
            {name: setting.value for name, setting in cell.items()},
            {name: setting.line for name, setting in cell.items()} | model,
        )
        for cell in file.cells(sweep, given or {})
    ]
    return found, file.problems


class _File:
    """The content of a parameters file, and the `problems` found so far."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.problems: list[Problem] = []

    def line(self, *place: str | int) -> int:
        """The line of the item with these keys and indices, or of its nearest parent."""
        line, content = 1, self.content
        for part in place:
            positions = content.lc.data if hasattr(content, "lc") else None
            if not positions or part not in positions:
                break
            line, content = positions[part][0] + 1, content[part]
        return line

    def correct_sections(self) -> None:
        """Refuse unknown sections. Each becomes the section with the nearest name, so that the
        errors in it and those that depend on it are found too."""
        content = self.content if isinstance(self.content, CommentedMap) else CommentedMap()
        for name in [n for n in content if isinstance(n, str) and n not in Sweep.model_fields]:
            self.refuse((name,), f"{name}: no such name{suggest(name, Sweep.model_fields)}")
            value = content.pop(name)
            for near in nearest(name, Sweep.model_fields.keys() - content.keys()):
                content[near], content.lc.data[near] = value, content.lc.data.get(name, [0])

    def refuse(self, place: tuple[str | int, ...], message: str) -> None:
        self.add(Problem(self.line(*place), message))

    def add(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def setting(self, name: str, value: Any, *place: str | int) -> Cell:
        """A cell of this parameter, empty if its name or value is refused."""
        if name not in parameters():
            place = place[: place.index(name) + 1]
            problem = f"no such name{suggest(name, parameters())}"
        elif not isinstance(value, SCALAR):
            problem = "must be text, a number, true, false or null"
        else:
            return {name: Setting(value, self.line(*place))}
        self.refuse(place, f"{'.'.join(map(str, place))}: {problem}")
        return {}

    def entry(self, values: dict[str, Any], *place: str | int) -> Cell:
        return _merged(self.setting(name, v, *place, name) for name, v in values.items())

    def cells(self, sweep: Sweep, given: Mapping[str, Any]) -> list[Cell]:
        """The settings of each configuration."""
        fixed = self.entry(sweep.parameters, "parameters")
        if sweep.protocol is not None:
            fixed = self.joined(fixed, self.setting("protocol", sweep.protocol, "protocol"))
        chosen = {name: value for name, value in given.items() if name in sweep.matrix}
        for name, value in given.items():
            if name not in chosen:
                fixed[name] = Setting(value, GIVEN)
        cells = [self.joined(fixed, cell) for cell in self.selected(sweep, chosen)]
        if not cells and not self.problems:
            self.refuse(("matrix",), "no configuration is left")
        return cells

    def selected(self, sweep: Sweep, chosen: dict[str, Any]) -> list[Cell]:
        """The combinations with the chosen values of the matrix's parameters."""
        cells = self.combinations(sweep)
        for name, value in chosen.items():
            values = [cell[name].value for cell in cells if name in cell]
            if values and value not in values:
                allowed = ", ".join(str(each) for each in dict.fromkeys(values))
                problem = f"{name}: {value!r} is not in the matrix; allowed: {allowed}"
                self.add(Problem(GIVEN, problem))
        return [cell for cell in cells if _agrees(chosen, cell)]

    def combinations(self, sweep: Sweep) -> list[Cell]:
        """The cells of the matrix, after `exclude` and `include`."""
        if prod(map(len, sweep.matrix.values())) > MOST_CONFIGURATIONS:
            self.refuse(("matrix",), f"over {MOST_CONFIGURATIONS:,} configurations")
            return []
        has_matrix = bool(sweep.matrix) or not sweep.include
        cells = self.all_combinations(sweep) if has_matrix else []
        cells = self.without_excluded(sweep, cells)
        return self.with_included(sweep, cells)

    def all_combinations(self, sweep: Sweep) -> list[Cell]:
        """The cells of the matrix; of one without parameters, a single empty cell."""
        axes = []
        for name, values in sweep.matrix.items():
            axes.append(
                [self.setting(name, v, "matrix", name, k) for k, v in enumerate(values)]
            )
            for k, value in enumerate(values):
                if value in values[:k]:
                    problem = f"matrix.{name}: {value!r} is given twice"
                    self.refuse(("matrix", name, k), problem)
        return [_merged(settings) for settings in product(*axes)]

    def without_excluded(self, sweep: Sweep, cells: list[Cell]) -> list[Cell]:
        """The cells that match no entry of `exclude`."""
        kept = cells
        for index, values in enumerate(sweep.exclude):
            for name, value in values.items():
                for item in value if isinstance(value, list) else [value]:
                    self.setting(name, item, "exclude", index, name)
            kept = [cell for cell in kept if not _agrees(values, cell)]
            if not any(_agrees(values, cell) for cell in cells):
                problem = f"exclude: {dict(values)} matches nothing in the matrix"
                self.refuse(("exclude", index), problem)
        return kept

    def with_included(self, sweep: Sweep, cells: list[Cell]) -> list[Cell]:
        """The cells with what the entries of `include` add to them, and further cells."""
        further: list[Cell] = []
        for index, values in enumerate(sweep.include):
            place = ("include", index)
            entry = self.entry(values, *place)
            of_matrix = {name: value for name, value in values.items() if name in sweep.matrix}
            added = {name: entry[name] for name in entry if name not in of_matrix}
            has_match = any(_agrees(of_matrix, cell) for cell in cells)
            unset = [name for name in sweep.matrix if name not in of_matrix]
            if has_match and added:
                cells = [
                    self.joined(cell, added) if _agrees(of_matrix, cell) else cell
                    for cell in cells
                ]
            elif has_match:
                self.refuse(place, f"include: {dict(values)} adds nothing to the matrix")
            elif unset:
                problem = f"include: {dict(values)} matches nothing in the matrix"
                remedy = f"a configuration of its own also sets {', '.join(unset)}"
                self.refuse(place, f"{problem}; {remedy}")
            else:
                further.append(entry)
        return cells + further

    def joined(self, first: Cell, second: Cell) -> Cell:
        for name in first.keys() & second.keys():
            line = first[name].line
            place = "by -p" if line == GIVEN else f"in line {line}"
            self.add(Problem(second[name].line, f"{name} is given here and {place}: keep one"))
        return first | second


def _merged(cells: Iterable[Cell]) -> Cell:
    return {name: setting for cell in cells for name, setting in cell.items()}


def _agrees(values: dict[str, Any], cell: Cell) -> bool:
    """Whether the cell matches the values; a list matches any of its items."""
    return all(
        name in cell and cell[name].value in (value if isinstance(value, list) else [value])
        for name, value in values.items()
    )
