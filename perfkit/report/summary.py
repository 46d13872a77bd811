"""The summary's sections: what is under an outputs folder, beside what was published."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from perfkit.config import resolved_path
from perfkit.models import MODELS
from perfkit.report import charts, pictures
from perfkit.report.grid import batch_by_topology, speedup_by_topology
from perfkit.report.published_grids import grids
from perfkit.report.rendering import Section, render
from perfkit.results.frames import load
from perfkit.tables.cells import Cell, cells_of
from perfkit.tables.matches import Match, match
from perfkit.tables.published import published
from perfkit.tables.series import Series, key_name, series_of, spelt

FOLDER = "summary"
"""Where the summary's pages lie below the outputs."""
CHARTS_PER_MODEL = 24
"""Series beyond these are in the tables only."""


@dataclass(frozen=True)
class Summary:
    """What the sections speak of: the measurements (perfkit.load) under `outputs`."""

    outputs: Path
    measurements: pd.DataFrame

    @classmethod
    def of(cls, outputs: str | Path) -> "Summary":
        """Read every measurement under `outputs`; a relative path starts at the checkout.
        Raises ResultError if there is no such folder."""
        return cls(resolved_path(str(outputs)), load(outputs))

    @cached_property
    def series(self) -> list[Series]:
        return series_of(self.measurements)

    @cached_property
    def cells(self) -> list[Cell]:
        return cells_of(published())

    @cached_property
    def matches(self) -> list[Match]:
        """Measurements that stand in published cells."""
        return match(self.cells, (row for one in self.series for row in one.rows))

    @property
    def unreadable(self) -> list[str]:
        """Files that could not be read, and why."""
        reasons: list[str] = self.measurements.attrs["unreadable"]
        return reasons

    def __repr__(self) -> str:
        return f"Summary({self.outputs}: {len(self.measurements)} measurements)"


def by_model(summary: Summary) -> list[tuple[str, list[Series]]]:
    """The series of each model, under its name."""
    names = dict.fromkeys(one.model for one in summary.series)
    return [
        (MODELS[model].name, [one for one in summary.series if one.model == model])
        for model in names
    ]


def overview(summary: Summary) -> Section:
    """How many measurements and published numbers there are, and how they ended."""
    states = Counter(summary.measurements["status"])
    numbers = [cell for cell in summary.cells if cell["throughput"] is not None]
    return render(
        "overview.html.j2",
        states={state: states[state] for state in ("complete", "partial", "failed")},
        measurements=len(summary.measurements),
        imported=int(summary.measurements["imported"].count()),
        unreadable=len(summary.unreadable),
        published=len(numbers),
        documents=len({*_sources(summary).values()}),
        matched=len({id(found.cell) for found in summary.matches if found.ratio}),
    )


def measured_tables(summary: Summary) -> Section:
    """Every measurement in the shape batch by topology, a table for each series."""
    models = [
        (name, [(batch_by_topology(one), _differences(one)) for one in some])
        for name, some in by_model(summary)
    ]
    return render("measured_tables.html.j2", models=models)


def _differences(series: Series) -> list[tuple[str, str]]:
    """Names and values; of the input's digest the beginning, as pages show it."""
    values = series.differs | {"input_sha256": (series.differs.get("input_sha256") or "")[:16]}
    return [(key_name(key), spelt(values[key])) for key in series.differs]


def speedups(summary: Summary) -> Section:
    """What more devices gave, for each series that has several topologies."""
    models = []
    for name, some in by_model(summary):
        tables = [grid for one in some if (grid := speedup_by_topology(one))]
        models += [(name, tables)] if tables else []
    return render("speedups.html.j2", models=models)


def measured_charts(summary: Summary) -> Section:
    """Throughput against batch size and topology, and against what was published."""
    models = []
    for name, some in by_model(summary):
        drawn = [shown for one in some[:CHARTS_PER_MODEL] for shown in pictures.of_series(one)]
        models.append((name, drawn, max(0, len(some) - CHARTS_PER_MODEL)))
    ratios = pictures.of_ratios(summary.matches)
    return _drawn(render("measured_charts.html.j2", models=models, ratios=ratios))


def _drawn(section: Section) -> Section:
    return Section(charts.with_shapes_once(section.html))


def published_tables(summary: Summary) -> Section:
    """Every published table as its source has it, with what was measured below each number."""
    tables = [
        (table, source, grids(table, summary.cells, summary.matches))
        for table, source in _sources(summary).items()
    ]
    return render("published_tables.html.j2", tables=tables)


def published_charts(summary: Summary) -> Section:
    """What the published tables show: batch size, topology, framework against framework."""
    drawn = [
        *pictures.of_fleetx("fleetx-resnet50", summary.cells),
        *pictures.of_fleetx("fleetx-vgg16", summary.cells),
        *pictures.of_dlperf(summary.cells),
        *pictures.of_frameworks("perf-resnet50", summary.cells, summary.matches),
        *pictures.of_frameworks("perf-bert", summary.cells, summary.matches),
        *pictures.of_frameworks("paddle-resnet50-report", summary.cells, summary.matches),
    ]
    return _drawn(render("pictures.html.j2", pictures=drawn))


def _sources(summary: Summary) -> dict[str, str]:
    """The document that each published table stands in."""
    return {cell["table"]: cell["source"] for cell in summary.cells}


def left_out(summary: Summary) -> Section:
    """The files that could not be read, each with the reason."""
    return render("left_out.html.j2", unreadable=summary.unreadable)
