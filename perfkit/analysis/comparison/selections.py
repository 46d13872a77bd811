"""What the names A and B of a comparison select: measurements, or a published table."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.analysis.comparison.stored import Selection, TakenAs
from perfkit.analysis.published import published
from perfkit.analysis.published.cells import RUNS, PublishedCell, cells_of
from perfkit.analysis.published.layouts import LAYOUTS
from perfkit.measuring.format import plain
from perfkit.measuring.paths import outputs_path
from perfkit.measuring.request import RequestError, suggest
from perfkit.measuring.results.outputs import agreeing, measurements
from perfkit.measuring.results.store import Measurement, ResultError, Store, read_result
from perfkit.measuring.results.summarize import check_against_raw

LABEL = "label:"
TABLES = [table for table in LAYOUTS if table != RUNS]
"""Tables that can be compared: single runs are left out, since another table averages them."""


class ComparisonError(RequestError):
    """Nothing was compared; `problems` lists the reasons, each of one or more lines."""

    heading = "Not compared."


@dataclass(frozen=True)
class Selected:
    """The measurements that a name selects, or the cells of a published table that have a
    number. `left_out` has the reasons why other files could not be read."""

    name: str
    taken_as: TakenAs
    measurements: list[Measurement] = field(default_factory=list)
    cells: list[PublishedCell] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def stored(self) -> Selection:
        """The part of a Comparison that describes the selection."""
        return Selection(
            name=plain(self.name),
            taken_as=self.taken_as,
            count=len(self.cells or self.measurements),
            left_out=[plain(reason) for reason in self.left_out],
        )


def select_results(name: str, outputs: str | Path) -> Selected:
    """Return what `name` selects, the first of:

    `label:NAME`, the measurements under `outputs` with this label, or without a label if NAME
    is empty; a result.json; a folder of one or many measurements; the id of a measurement under
    `outputs`; a published table; a label. Relative paths start in the working directory.
    Raises ComparisonError if there is none.
    """
    if name.startswith(LABEL):
        return _of_label(name.removeprefix(LABEL), outputs)
    path = outputs_path(name)
    by_id = outputs_path(outputs) / name
    if not path.exists() and Store(by_id).result_file.is_file():
        path = by_id
    file = path if path.is_file() else Store(path).result_file
    if file.is_file():
        return _of_file(name, file)
    if path.is_dir():
        return _of_folder(name, path)
    if name in TABLES:
        return _of_table(name)
    no_table = f"no such published table; there are {', '.join(TABLES)}{suggest(name, TABLES)}"
    return _of_label(name, outputs, [f"no file or folder {path}", no_table])


def _of_file(name: str, file: Path) -> Selected:
    try:
        measurement = Measurement(file.parent, read_result(file))
    except ResultError as error:
        raise ComparisonError([str(error)]) from None
    if difference := check_against_raw(measurement):
        raise ComparisonError([f"{file}: contradicts its raw files: {difference}"])
    return Selected(name, "result", [measurement])


def _of_folder(name: str, path: Path) -> Selected:
    left_out: list[str] = []
    readable = list(agreeing(measurements(path, left_out), left_out))
    if not readable:
        raise ComparisonError([f"no readable measurement in {path}", *left_out])
    return Selected(name, "folder", readable, left_out=left_out)


def _of_table(name: str) -> Selected:
    cells = []
    for cell in cells_of(published()):
        if cell.table == name and cell.throughput:
            cells.append(cell)
    return Selected(name, "published table", cells=cells)


def _of_label(label: str, outputs: str | Path, others: Sequence[str] = ()) -> Selected:
    """Return the measurements of a label. `others` say what else the name could have meant;
    they are part of the error if there is no such label."""
    left_out: list[str] = []
    try:
        every = list(measurements(outputs, left_out))
    except ResultError as error:
        raise ComparisonError([*others, f"no label {label!r}: {error}"]) from None
    labelled = [each for each in every if each.result.config.label == label]
    if not labelled:
        labels = sorted({each.result.config.label for each in every} - {""})
        has = f"{', '.join(labels) or 'none'}{suggest(label, labels)}"
        no_label = f"no label {label!r} under {outputs_path(outputs)}, which has {has}"
        raise ComparisonError([*others, no_label, *left_out])
    agreed = list(agreeing(labelled, left_out))
    if not agreed:
        nothing = f"no measurement to compare of {label!r}"
        raise ComparisonError([*others, nothing, *left_out])
    return Selected(f"{LABEL}{label}", "label", agreed, left_out=left_out)
