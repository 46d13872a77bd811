"""All measurements of an outputs folder, from their result.json alone.

Reading a result takes about 0.5 ms, checking it against its raw files ten times as long. Raw
files are therefore checked only where a number is judged: on the measurement's own page, in a
comparison, in the history, and before its repeats continue.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from perfkit.measuring.paths import outputs_path
from perfkit.measuring.results.frames import as_frame, row_of
from perfkit.measuring.results.store import Measurement, ResultError, folders
from perfkit.measuring.results.summarize import check_against_raw


def load(outputs: str | Path, *, check: bool = False) -> pd.DataFrame:
    """Return one row per measurement under `outputs`.

    Columns have the names of the parameters, plus `throughput`, `throughput_low` and
    `throughput_high` in `unit`, `repeat_throughputs` (a tuple with one value per complete
    repeat), effective settings (`effective.…`) and the environment (`environment.…`).
    An empty cell is NaN in columns of numbers, else None.
    Results that can't be read are left out and named in `.attrs["unreadable"]`; with `check`,
    so are results that contradict their raw files, all of which are then read. Raises
    ResultError if there is no such folder.
    """
    unreadable: list[str] = []
    every = measurements(outputs, unreadable)
    if check:
        every = agreeing(every, unreadable)
    frame = as_frame(map(row_of, every))
    frame.attrs["unreadable"] = unreadable
    return frame


def measurements(outputs: str | Path, unreadable: list[str]) -> Iterator[Measurement]:
    """Yield the measurements under `outputs` in the order of their folders.

    Measurements that can't be read are left out, and the reasons, with paths below `outputs`,
    are added to `unreadable`. Raises ResultError if there is no such folder.
    """
    place = outputs_path(outputs)
    if not place.is_dir():
        raise ResultError(place, "no folder")
    for folder in folders(place):
        try:
            yield Measurement.read(folder)
        except ResultError as error:
            unreadable.append(error.relative_to(place))


def agreeing(measurements: Iterable[Measurement], left_out: list[str]) -> Iterator[Measurement]:
    """Yield the measurements that agree with their raw files, and add to `left_out` why each
    other one is left out."""
    for measurement in measurements:
        if difference := check_against_raw(measurement):
            left_out.append(contradiction(measurement.folder.name, difference))
        else:
            yield measurement


def contradiction(name: str, difference: str) -> str:
    """Return why a measurement is left out that differs from its raw files."""
    return f"{name}: contradicts its raw files: {difference}"
