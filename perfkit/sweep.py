"""From a file of parameters/ to the configurations that it names."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from perfkit.config import parameters
from perfkit.models import MODELS
from perfkit.request import nearest


class SweepError(ValueError):
    """A parameters file is wrong; the message names the file and what is wrong in it."""


def _known(name: str, names: Iterable[str]) -> str:
    if name in names:
        return name
    raise ValueError(f"no such name{nearest(name, names)}")


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
    """A parameters file.

    `parameters` are the same in all configurations; `matrix` stands for every combination of
    its values, less those that agree with an entry of `exclude`, where a list agrees with any
    of its values. An entry of `include` gives its other parameters to the combinations that
    agree with it; one that agrees with none and names the whole matrix is one more.
    """

    notebook: Model
    parameters: dict[Name, Plain] = {}
    matrix: dict[Name, Values] = {}
    exclude: list[dict[Name, Choice]] = []
    include: list[dict[Name, Plain]] = []


def expand(path: str | Path) -> list[dict[str, Any]]:
    """The configurations that the YAML file `path` names, each as `model` and parameters for
    papermill, flat. Values are not judged here: `plan` does that. Raises SweepError.
    """
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
        return _configurations(Sweep.model_validate(content))
    except ValidationError as error:
        problems = "; ".join(
            ".".join(str(part) for part in e["loc"] if part != "[key]")
            + (": " if e["loc"] else "")
            + e["msg"].removeprefix("Value error, ")
            for e in error.errors()
        )
        raise SweepError(f"{path}: {problems}") from None
    # A plain ValueError: of what follows here, or text that is not UTF-8.
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SweepError(f"{path}: {error}") from error


def _configurations(sweep: Sweep) -> list[dict[str, Any]]:
    whole = product(*sweep.matrix.values()) if sweep.matrix or not sweep.include else ()
    cells = [dict(zip(sweep.matrix, values, strict=True)) for values in whole]
    for entry in sweep.exclude:
        if not any(_agrees(entry, cell) for cell in cells):
            raise ValueError(f"exclude: {entry} matches nothing in the matrix")
    cells = [cell for cell in cells if not any(_agrees(e, cell) for e in sweep.exclude)]
    more = []
    for entry in sweep.include:
        agreed = {name: value for name, value in entry.items() if name in sweep.matrix}
        added = {name: value for name, value in entry.items() if name not in sweep.matrix}
        chosen = [cell for cell in cells if agreed.items() <= cell.items()]
        if chosen and added:
            cells = [_joined(cell, added) if cell in chosen else cell for cell in cells]
        elif not chosen and agreed.keys() == sweep.matrix.keys():
            more.append(entry)
        else:
            what = "adds nothing to" if chosen else "matches nothing in"
            raise ValueError(f"include: {entry} {what} the matrix")
    fixed = {"model": sweep.notebook} | sweep.parameters
    configurations = [_joined(fixed, cell) for cell in cells + more]
    if not configurations:
        raise ValueError("no configuration is left")
    for index, configuration in enumerate(configurations):
        if configuration in configurations[:index]:
            raise ValueError(f"the same configuration twice: {configuration}")
    return configurations


def _agrees(entry: dict[str, list[Any]], cell: dict[str, Any]) -> bool:
    return all(name in cell and cell[name] in values for name, values in entry.items())


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    if twice := one.keys() & other.keys():
        raise ValueError(f"{min(twice)} is given twice for one configuration: {one}, {other}")
    return one | other
