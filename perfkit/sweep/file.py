"""From a parameters file to the configurations that it names, or to all that is wrong in it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from perfkit.config import ROOT, parameters
from perfkit.models import MODELS
from perfkit.request.errors import suggest
from perfkit.request.plan import value_problems
from perfkit.sweep.yaml_file import Place, YamlError, read_yaml

MOST_CONFIGURATIONS = 10_000
GIVEN: Place = ("-p",)
"""The place of what was not set in the file but by -p."""
PARAMETERS = ROOT / "parameters"
WORDS = {
    "extra_forbidden": "no such name",
    "missing": "is missing",
    "dict_type": "must hold names with values: indent what belongs to it",
    "list_type": "must be a list: [A, B]",
    "too_short": "is empty",
    "model_type": "must hold names with values, `notebook` among them",
}
"""What is wrong, by pydantic's type of error, where its own words are for programmers."""


class SweepError(ValueError):
    """A sweep is refused, and nothing was started. `problems` lists all that is wrong, each
    with the file's name and the line."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(
            "\n  ".join(["The sweep was refused; nothing was started.", *problems])
        )


def _known(name: str, names: Iterable[str]) -> str:
    if name in names:
        return name
    raise ValueError(f"no such name{suggest(name, names)}")


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | None):
        return value
    raise ValueError("must be text, a number, true, false or null")


Model = Annotated[str, AfterValidator(lambda name: _known(name, MODELS))]
Name = Annotated[str, AfterValidator(lambda name: _known(name, parameters()))]
Plain = Annotated[Any, AfterValidator(_plain)]
Values = Annotated[list[Plain], Field(min_length=1)]
Choice = Annotated[Values, BeforeValidator(lambda v: v if isinstance(v, list) else [v])]


class Sweep(BaseModel, frozen=True, extra="forbid"):
    """What a parameters file may hold.

    `protocol` and `parameters` are the same in all configurations; `matrix` stands for every
    combination of its values, less those that agree with an entry of `exclude`, where a list
    agrees with any of its values. An entry of `include` gives its other parameters to the
    combinations that agree with it; one that agrees with none and names the whole matrix is
    one more.
    """

    notebook: Model
    protocol: str | None = None
    parameters: dict[Name, Plain] = {}
    matrix: dict[Name, Values] = {}
    exclude: list[dict[Name, Choice]] = []
    include: list[dict[Name, Plain]] = []


class Set(NamedTuple):
    """A value that was set for a parameter, and the place in the file where."""

    value: Any
    place: Place


Cell = dict[str, Set]


@dataclass(frozen=True)
class Configuration:
    """A model and its parameters, flat, for papermill; `where` each is set, as file:line."""

    model: str
    parameters: dict[str, Any]
    where: dict[str, str]


def read_sweep(
    path: str | Path, given: Mapping[str, Any] | None = None
) -> tuple[list[Configuration], list[str]]:
    """The configurations that the parameters file `path` names, and what is wrong with it.

    `given` parameters are the same in all of them, instead of what the file has for all. Of a
    file that is wrong there may be no configurations, or such as can't be used.
    """
    path = Path(path)
    try:
        content, lines = read_yaml(path)
    except YamlError as error:
        line = f":{error.line}" if error.line else ""
        ours = PARAMETERS / path.name
        meant = f"; did you mean {ours}?" if not path.exists() and ours.exists() else ""
        return [], [f"{path}{line}: {error}{meant}"]

    def at(place: Place) -> str:
        """`file:line` of the nearest thing that stands at `place` or above it."""
        if place == GIVEN:
            return "-p"
        while place and place not in lines:
            place = place[:-1]
        return f"{path}:{lines[place]}" if place in lines else str(path)

    wrong: list[Wrong] = list(_values(content))
    cells: list[Cell] = []
    model = ""
    try:
        sweep = Sweep.model_validate(content)
        model, cells = sweep.notebook, _cells(sweep, dict(given or {}), wrong)
    except ValidationError as error:
        wrong += map(_schema_problem, error.errors())
    for name, value in (given or {}).items():
        wrong += [Wrong(GIVEN, problem) for problem in _value_problems(name, value)]
    told = sorted(wrong, key=lambda one: (lines.get(one.place, 0), one.message))
    return [
        Configuration(
            model,
            {name: one.value for name, one in cell.items()},
            {name: at(one.place) for name, one in cell.items()},
        )
        for cell in cells
    ], list(dict.fromkeys(f"{at(one.place)}: {one.message}" for one in told))


class Wrong(NamedTuple):
    place: Place
    message: str


def _schema_problem(error: Any) -> Wrong:
    place = tuple(part for part in error["loc"] if part != "[key]")
    name = ".".join(map(str, place)) + (": " if place else "")
    message = WORDS.get(error["type"], error["msg"].removeprefix("Value error, "))
    if error["type"] == "extra_forbidden":
        message += suggest(place[-1], Sweep.model_fields)
    return Wrong(place, name + message)


def _values(content: Any) -> Iterator[Wrong]:
    """What is wrong with single values: told even if the file is no Sweep as a whole."""
    sections = content if isinstance(content, dict) else {}
    sets: list[tuple[Place, str, Any]] = []
    sets.append((("protocol",), "protocol", sections.get("protocol", "auto")))
    sets += _items(sections.get("parameters"), ("parameters",))
    for place, name, values in _items(sections.get("matrix"), ("matrix",)):
        if isinstance(values, list):
            sets += [((*place, index), name, value) for index, value in enumerate(values)]
    entries = sections.get("include")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        sets += _items(entry, ("include", index))
    for place, name, value in sets:
        for problem in _value_problems(name, value):
            yield Wrong(place, problem)


def _value_problems(name: str, value: Any) -> list[str]:
    # Names and kinds of values that are not known are told by the schema, or by plan.
    known = name in parameters() and isinstance(value, str | int | float | None)
    return value_problems(name, value) if known else []


def _items(section: Any, place: Place) -> list[tuple[Place, str, Any]]:
    entries = section.items() if isinstance(section, dict) else ()
    return [((*place, name), name, value) for name, value in entries]


def _cells(sweep: Sweep, given: dict[str, Any], wrong: list[Wrong]) -> list[Cell]:
    fixed = {name: Set(v, ("parameters", name)) for name, v in sweep.parameters.items()}
    if sweep.protocol is not None:
        fixed = _joined(fixed, {"protocol": Set(sweep.protocol, ("protocol",))}, wrong)
    fixed |= {name: Set(value, GIVEN) for name, value in given.items()}
    cells = [_joined(fixed, cell, wrong) for cell in _combinations(sweep, wrong)]
    if not cells and not wrong:
        wrong.append(Wrong(("matrix",), "no configuration is left"))
    seen = set()
    for cell in cells:
        values = frozenset((name, repr(one.value)) for name, one in cell.items())
        if values in seen:
            place = max((one.place for one in cell.values()), key=len, default=("include",))
            wrong.append(Wrong(place, f"the same configuration twice: {_shown(cell)}"))
        seen.add(values)
    return cells


def _combinations(sweep: Sweep, wrong: list[Wrong]) -> list[Cell]:
    """The cells of the matrix, without those excluded, with what is included."""
    if prod(map(len, sweep.matrix.values())) > MOST_CONFIGURATIONS:
        wrong.append(Wrong(("matrix",), f"over {MOST_CONFIGURATIONS:,} configurations"))
        return []
    axes = [
        [(name, Set(value, ("matrix", name, index))) for index, value in enumerate(values)]
        for name, values in sweep.matrix.items()
    ]
    whole = product(*axes) if axes or not sweep.include else ()
    cells = [dict(cell) for cell in whole]
    for index, choice in enumerate(sweep.exclude):
        if not any(_agrees(choice, cell) for cell in cells):
            shown = {name: v[0] if len(v) == 1 else v for name, v in choice.items()}
            message = f"exclude: {shown} matches nothing in the matrix"
            wrong.append(Wrong(("exclude", index), message))
    cells = [cell for cell in cells if not any(_agrees(e, cell) for e in sweep.exclude)]
    more = []
    for index, values in enumerate(sweep.include):
        entry = {name: Set(v, ("include", index, name)) for name, v in values.items()}
        agreed = {name: [v] for name, v in values.items() if name in sweep.matrix}
        added = {name: one for name, one in entry.items() if name not in sweep.matrix}
        chosen = [_agrees(agreed, cell) for cell in cells]
        if any(chosen) and added:
            cells = [
                _joined(cell, added, wrong) if is_chosen else cell
                for cell, is_chosen in zip(cells, chosen, strict=True)
            ]
        elif not any(chosen) and agreed.keys() == sweep.matrix.keys():
            more.append(entry)
        else:
            what = "adds nothing to" if any(chosen) else "matches nothing in"
            message = f"include: {values} {what} the matrix"
            wrong.append(Wrong(("include", index), message))
    return cells + more


def _agrees(entry: dict[str, list[Any]], cell: Cell) -> bool:
    return all(name in cell and cell[name].value in values for name, values in entry.items())


def _joined(one: Cell, other: Cell, wrong: list[Wrong]) -> Cell:
    for name in one.keys() & other.keys():
        elsewhere = ".".join(map(str, one[name].place))
        message = f"{name} is given here and at {elsewhere}: keep one"
        wrong.append(Wrong(other[name].place[:2], message))
    return one | other


def _shown(cell: Cell) -> str:
    return ", ".join(f"{name}={one.value!r}" for name, one in cell.items())
