"""All results of an outputs folder, as the pages about several measurements show them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.analysis.comparison import blocks, stored
from perfkit.analysis.comparison import history as series
from perfkit.analysis.comparison.stored import InterleavedComparison
from perfkit.analysis.fleet.fleet import judge_fleet, read_rules
from perfkit.analysis.fleet.stored import Fleet
from perfkit.measuring.format import amount
from perfkit.measuring.paths import outputs_path
from perfkit.measuring.results.outputs import load, measurements
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement, ResultError
from perfkit.report.links import Site


@dataclass(frozen=True)
class Summary:
    """Data of the sections: measurements (perfkit.load) of a site, interleaved
    comparisons by name, and reasons for files left out."""

    site: Site
    measurements: pd.DataFrame
    comparisons: dict[str, InterleavedComparison] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, outputs: str | Path, *, check: bool = False) -> "Summary":
        """Read all results under `outputs`, and with `check` all raw files: results that
        contradict these are left out. Raises ResultError if the folder does not
        exist."""
        place = outputs_path(outputs)
        return cls.of(Site(place), load(place, check=check))

    @classmethod
    def of(cls, site: Site, frame: pd.DataFrame) -> "Summary":
        """Read the other results of the site; `frame` has the measurements."""
        place = site.outputs
        unreadable = [*frame.attrs["unreadable"]]
        folders = stored.comparison_folders(place)
        comparisons = read_all(folders, stored.read_comparison, place, unreadable)
        return cls(site, frame, comparisons, unreadable)

    def __repr__(self) -> str:
        return f"Summary({self.outputs}: {amount(len(self.measurements), 'measurement')})"

    @property
    def outputs(self) -> Path:
        """The folder of outputs."""
        return self.site.outputs

    @property
    def folder(self) -> Path:
        """The page's folder."""
        return self.outputs / "summary"

    @property
    def newest(self) -> list[tuple[str, InterleavedComparison]]:
        """Names and comparisons, newest first."""
        return sorted(self.comparisons.items(), key=lambda item: item[1].created, reverse=True)

    @cached_property
    def placed(self) -> pd.DataFrame:
        """The measurements with their block and row of the table."""
        return blocks.placed(self.measurements, self.comparisons.values())

    @cached_property
    def history(self) -> series.History:
        """The series among the measurements, with their change points."""
        return series.history(self.measurements, read=self.read_result)

    def read_result(self, folder: str) -> Result:
        """Return the result in a folder of the outputs."""
        return Measurement.read(self.outputs / folder).result

    @cached_property
    def fleet(self) -> Fleet:
        """The judged fleet."""
        stored = measurements(self.outputs, [])
        names = {*self.measurements["folder"]}
        agreeing = [each for each in stored if each.folder.name in names]
        return judge_fleet(agreeing, read_rules(self.outputs))

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The measurement shown for each row and framework, in the tables' order."""
        return blocks.cells(self.placed)


def read_all(
    folders: Iterable[Path], read: Callable[[Path], Any], outputs: Path, unreadable: list[str]
) -> dict[str, Any]:
    """Read these folders below `outputs`; return the results by folder name and append reasons
    for unreadable folders to `unreadable`."""
    results = {}
    for folder in folders:
        try:
            results[folder.name] = read(folder)
        except ResultError as error:
            unreadable.append(error.relative_to(outputs))
    return results
