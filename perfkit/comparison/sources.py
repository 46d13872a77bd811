"""What A and B of a comparison name: stored measurements, or a published table."""

from dataclasses import dataclass, field
from pathlib import Path

from perfkit.comparison.stored import Named, TakenAs
from perfkit.config import resolved_path
from perfkit.reference.cells import RUNS, SHAPES, Cell, cells_of
from perfkit.reference.table import published
from perfkit.request.errors import RequestError, suggest
from perfkit.results.frames import measurements
from perfkit.results.store import Measurement, ResultError, Store, read_result
from perfkit.results.summarize import check_against_raw
from perfkit.text.terminal import plain, wrapped

LABEL = "label:"
TABLES = [table for table in SHAPES if table != RUNS]
"""Single runs are no numbers to compare with: another table has their average."""


class ComparisonError(RequestError):
    """Nothing was compared; `problems` says why, a line or more each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        lines = [wrapped(problem, "  ") for problem in problems]
        ValueError.__init__(self, "\n".join(["Not compared.", *lines]))


@dataclass(frozen=True)
class Source:
    """What a name stands for: measurements, or cells of a published table with a number."""

    name: str
    taken_as: TakenAs
    measurements: list[Measurement] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def named(self) -> Named:
        """As it is stored."""
        return Named(
            name=plain(self.name),
            taken_as=self.taken_as,
            count=len(self.cells or self.measurements),
            left_out=[plain(reason) for reason in self.left_out],
        )


def source(name: str, outputs: str | Path) -> Source:
    """What `name` stands for; the first of these that there is:

    `label:NAME`, the measurements under `outputs` that have this label, or none if NAME is
    empty; a file, which is a result.json; a folder, of one measurement or of many; a published
    table; a label. A relative path starts at the checkout. Raises ComparisonError.
    """
    if name.startswith(LABEL):
        return _labelled(name.removeprefix(LABEL), outputs, [])
    path, left_out = resolved_path(name), list[str]()
    file = path if path.is_file() else Store(path).result_file
    if file.is_file():
        try:
            found = Measurement(file.parent, read_result(file))
        except ResultError as error:
            raise ComparisonError([str(error)]) from None
        if wrong := check_against_raw(found):
            raise ComparisonError([f"{file}: contradicts its raw files", *wrong])
        return Source(name, "result", [found])
    if path.is_dir():
        several = list(measurements(path, left_out))
        if not several:
            raise ComparisonError([f"no measurement that can be read in {path}", *left_out])
        return Source(name, "folder", several, left_out=left_out)
    if name in TABLES:
        cells = cells_of(published())
        numbers = [cell for cell in cells if cell["table"] == name and cell["throughput"]]
        return Source(name, "published table", cells=numbers)
    no_table = f"no published table; those are {', '.join(TABLES)}{suggest(name, TABLES)}"
    return _labelled(name, outputs, [f"no file or folder {path}", no_table])


def _labelled(label: str, outputs: str | Path, before: list[str]) -> Source:
    """The measurements of a label; `before` says what else there is not."""
    left_out: list[str] = []
    try:
        there = list(measurements(outputs, left_out))
    except ResultError as error:
        raise ComparisonError([*before, f"no label {label!r}: {error}"]) from None
    found = [one for one in there if one.result.config.label == label]
    if not found:
        known = sorted({one.result.config.label for one in there} - {""})
        problem = f"no label {label!r} under {resolved_path(str(outputs))}, which has "
        problem += f"{', '.join(known) or 'none'}{suggest(label, known)}"
        if any(one.folder.name == label for one in there):
            problem += f"; the measurement {label} is named by its folder, {outputs}/{label}"
        raise ComparisonError([*before, problem, *left_out])
    return Source(f"{LABEL}{label}", "label", found, left_out=left_out)
