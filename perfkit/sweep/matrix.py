"""The configurations of a parameters file."""

from collections.abc import Iterable, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from perfkit.measuring.parameters import parameters
from perfkit.measuring.request import suggest
from perfkit.measuring.work import CommandWork, ScriptWork
from perfkit.sweep.sweep_file import Problem, SweepFile, load_yaml

SCALAR = (str, int, float, type(None))
NAMES = (*parameters(), *parameters(ScriptWork), *parameters(CommandWork))
"""Parameters of models, scripts and commands; `plan` refuses those that the notebook lacks."""
MOST_COMBINATIONS = 1000
"""Most in a file. Each is checked before anything starts, which takes up to 10 ms."""
GIVEN = 0
"""Line of values from the command line."""


FORM = (
    "a parameters file has `notebook: resnet50` (a model or script), and for parameters that "
    "vary `matrix: {batch_size: [4, 8]}`, such as parameters/quick.yaml"
)
"""Form of a parameters file."""


class Sweep(BaseModel, frozen=True, extra="forbid"):
    """The sections of a parameters file.

    `notebook` is a model, or `script` for the `script` in `parameters`, or a list of these,
    each of which has all configurations. `protocol` and `parameters` apply to all
    configurations. `matrix` stands for combinations of its values, except those that match an
    entry of `exclude`; a list matches any of its items. An entry of `include` adds its other
    parameters to the combinations that match it. If it matches none and sets all parameters of
    the matrix, it adds a configuration.
    """

    notebook: str | Annotated[list[str], Field(min_length=1)]
    protocol: Any = None
    parameters: dict[str, Any] = {}
    matrix: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    exclude: list[dict[str, Any]] = []
    include: list[dict[str, Any]] = []


class Setting(NamedTuple):
    """A parameter's value and its line."""

    value: Any
    line: int


Cell = dict[str, Setting]
"""The settings of one configuration, by parameter."""


class Configuration(NamedTuple):
    """A model and its parameters, flat for papermill, and the line of each."""

    model: str
    parameters: dict[str, Any]
    lines: dict[str, int]


def read_sweep(
    path: str | Path, given: Mapping[str, Any] | None = None
) -> tuple[list[Configuration], list[Problem]]:
    """Return the configurations of the parameters file `path`, and its errors. `plan` checks
    model and values.

    `given` parameters apply to all configurations: one of the matrix selects the combinations
    with its value, any other overrides `parameters` of the file. A number of nodes that the
    matrix lacks takes the place of its largest. With errors, configurations may be missing, or
    lack invalid values. Raises SweepError if the file can't be read.
    """
    file = SweepFile(load_yaml(Path(path)))
    try:
        sweep = Sweep.model_validate(file.content)
    except ValidationError as error:
        if not (isinstance(file.content, dict) and "notebook" in file.content):
            file.refuse((), FORM)
        file.refuse_invalid(error, Sweep.model_fields)
        return [], file.problems
    models = [sweep.notebook] if isinstance(sweep.notebook, str) else sweep.notebook
    count = len(models) * prod(map(len, sweep.matrix.values())) + len(sweep.include)
    if count > MOST_COMBINATIONS:
        problem = f"{count:,} combinations; at most {MOST_COMBINATIONS:,} in a file"
        file.refuse_item(("matrix",), problem)
        return [], file.problems
    cells = Matrix(file, sweep).cells(given or {})
    configurations = []
    for model, cell in product(models, cells):
        values = {}
        lines = {"model": file.line("notebook")}
        for name, setting in cell.items():
            values[name] = setting.value
            lines[name] = setting.line
        configurations.append(Configuration(model, values, lines))
    return configurations, file.problems


class Matrix:
    """The combinations of the values in a parameters file; what is wrong with them is added to
    the problems of the file."""

    def __init__(self, file: SweepFile, sweep: Sweep) -> None:
        self.file = file
        self.sweep = sweep

    def cells(self, given: Mapping[str, Any]) -> list[Cell]:
        """Return the settings of each configuration, with the parameters that are given for
        all."""
        fixed = self.entry(self.sweep.parameters, "parameters")
        if self.sweep.protocol is not None:
            protocol = self.setting("protocol", self.sweep.protocol, "protocol")
            fixed = self.joined(fixed, protocol)
        chosen = {}
        for name, value in given.items():
            if name in self.sweep.matrix:
                chosen[name] = value
            else:
                fixed[name] = Setting(value, GIVEN)
        cells = [self.joined(fixed, cell) for cell in self.selected(chosen)]
        if not cells and not self.file.problems:
            self.file.refuse(("matrix",), "no configuration is left")
        return cells

    def selected(self, chosen: dict[str, Any]) -> list[Cell]:
        """Return the combinations with the chosen values of the matrix's parameters; on another
        number of nodes than the file has, those with the most nodes."""
        cells = self.combinations()
        for name, value in chosen.items():
            values = [cell[name].value for cell in cells if name in cell]
            if name == "nodes" and value not in values:
                cells = _on_nodes(value, cells)
            elif values and value not in values:
                allowed = ", ".join(str(each) for each in dict.fromkeys(values))
                problem = f"{name}: {value!r} is not in the matrix; allowed: {allowed}"
                self.file.add(Problem(GIVEN, problem))
        return _matching(chosen, cells)

    def combinations(self) -> list[Cell]:
        """Return the cells of the matrix, after `exclude` and `include`."""
        cells: list[Cell] = []
        if self.sweep.matrix or not self.sweep.include:
            cells = self.all_combinations()
        return self.with_included(self.without_excluded(cells))

    def all_combinations(self) -> list[Cell]:
        """Return the cells of the matrix; of one without parameters, a single empty cell."""
        axes = []
        for name, values in self.sweep.matrix.items():
            axis = []
            for index, value in enumerate(values):
                place = ("matrix", name, index)
                axis.append(self.setting(name, value, *place))
                if value in values[:index]:
                    problem = f"matrix.{name}: {value!r} is given twice"
                    self.file.refuse(place, problem)
            axes.append(axis)
        return [_merged(settings) for settings in product(*axes)]

    def without_excluded(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells that match no entry of `exclude`."""
        remaining = cells
        for index, values in enumerate(self.sweep.exclude):
            for name, value in values.items():
                for item in _as_list(value):
                    self.setting(name, item, "exclude", index, name)
            remaining = [cell for cell in remaining if not _matches(values, cell)]
            if not _matching(values, cells):
                problem = f"exclude: {dict(values)} matches nothing in the matrix"
                self.file.refuse(("exclude", index), problem)
        return remaining

    def with_included(self, cells: list[Cell]) -> list[Cell]:
        """Return the cells with what the entries of `include` add to them, and further
        cells."""
        further: list[Cell] = []
        for index, values in enumerate(self.sweep.include):
            entry = self.entry(values, "include", index)
            of_matrix = {}
            added = {**entry}
            for name, value in values.items():
                if name in self.sweep.matrix:
                    of_matrix[name] = value
                    added.pop(name, None)
            if not _matching(of_matrix, cells):
                further += self.further_cell(index, entry)
            elif added:
                cells = self.extended(cells, of_matrix, added)
            else:
                problem = f"include: {dict(values)} adds nothing to the matrix"
                self.file.refuse(("include", index), problem)
        return cells + further

    def extended(self, cells: list[Cell], of_matrix: dict[str, Any], added: Cell) -> list[Cell]:
        """Return all cells; those that match `of_matrix` with the added settings."""
        extended = []
        for cell in cells:
            is_extended = _matches(of_matrix, cell)
            extended.append(self.joined(cell, added) if is_extended else cell)
        return extended

    def further_cell(self, index: int, entry: Cell) -> list[Cell]:
        """Return the entry of `include` as a cell of its own, if it sets all parameters of the
        matrix."""
        values = self.sweep.include[index]
        unset = [name for name in self.sweep.matrix if name not in values]
        if not unset:
            return [entry]
        problem = f"include: {dict(values)} matches nothing in the matrix"
        remedy = f"a configuration of its own also sets {', '.join(unset)}"
        self.file.refuse(("include", index), f"{problem}; {remedy}")
        return []

    def entry(self, values: dict[str, Any], *place: str | int) -> Cell:
        """Return the settings of a section, or of an entry of it, without those refused."""
        return _merged(
            self.setting(name, value, *place, name) for name, value in values.items()
        )

    def setting(self, name: str, value: Any, *place: str | int) -> Cell:
        """Return a cell of this parameter, empty if its name or value is refused."""
        if name not in NAMES:
            end = place.index(name) + 1
            problem = f"no such name{suggest(name, NAMES)}"
            self.file.refuse_item(place[:end], problem)
            return {}
        if not isinstance(value, SCALAR):
            self.file.refuse_item(place, "must be text, a number, true, false or null")
            return {}
        return {name: Setting(value, self.file.line(*place))}

    def joined(self, first: Cell, second: Cell) -> Cell:
        """Return the settings of both cells, which must have no parameter in common."""
        for name in first.keys() & second.keys():
            line = first[name].line
            place = "by -p" if line == GIVEN else f"in line {line}"
            problem = f"{name} is given here and {place}: keep one"
            self.file.add(Problem(second[name].line, problem))
        return first | second


def _merged(cells: Iterable[Cell]) -> Cell:
    merged: Cell = {}
    for cell in cells:
        merged |= cell
    return merged


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _matching(values: dict[str, Any], cells: list[Cell]) -> list[Cell]:
    """Return the cells with these values."""
    return [cell for cell in cells if _matches(values, cell)]


def _on_nodes(nodes: Any, cells: list[Cell]) -> list[Cell]:
    """Return the cells with the most nodes, on this number of nodes instead: they are what a
    table's source measured on whole nodes."""
    numbers = [cell["nodes"].value for cell in cells if "nodes" in cell]
    most = max((number for number in numbers if isinstance(number, int)), default=None)
    largest = _matching({"nodes": most}, cells)
    return [cell | {"nodes": Setting(nodes, GIVEN)} for cell in largest]


def _matches(values: dict[str, Any], cell: Cell) -> bool:
    """Return whether the cell has these values; a list matches any of its items."""
    for name, value in values.items():
        if name not in cell or cell[name].value not in _as_list(value):
            return False
    return True
