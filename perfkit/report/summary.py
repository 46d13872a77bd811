"""Sections of the summary: rankings, ratios with intervals, scaling."""

import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from math import ceil
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from perfkit.analysis.comparison import blocks, stored
from perfkit.analysis.comparison import history as series
from perfkit.analysis.comparison.blocks import PANEL, Ranking, rankings, speedups
from perfkit.analysis.published import cells_of, published
from perfkit.analysis.published.matches import match
from perfkit.core.format import percent
from perfkit.core.models import model_named
from perfkit.core.paths import resolved_path
from perfkit.core.results.frames import records
from perfkit.core.results.outputs import load
from perfkit.core.results.store import ResultError
from perfkit.report import style
from perfkit.report.elements import markup
from perfkit.report.links import Site
from perfkit.report.rendering import render
from perfkit.report.section import Section, picture
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _

MOST_ROWS, MOST_PANELS, MOST_BARS, MOST_ANSWERS = 200, 12, 40, 5


@dataclass(frozen=True)
class Summary:
    """Data of the sections: measurements (perfkit.load) of a site, interleaved
    comparisons by name, reasons for files left out."""

    site: Site
    measurements: pd.DataFrame
    comparisons: dict[str, stored.InterleavedComparison] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, outputs: str | Path, *, check: bool = False) -> "Summary":
        """Read all results under `outputs`, and with `check` all raw files: results that
        contradict these are left out. Relative paths start at the checkout. Raises ResultError
        if the folder does not exist."""
        place = resolved_path(str(outputs))
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
        return f"Summary({self.outputs}: {len(self.measurements)} measurements)"

    @property
    def outputs(self) -> Path:
        """The folder of outputs."""
        return self.site.outputs

    @property
    def folder(self) -> Path:
        """The page's folder."""
        return self.outputs / "summary"

    @property
    def newest(self) -> list[tuple[str, stored.InterleavedComparison]]:
        """Names and comparisons, newest first."""
        return sorted(self.comparisons.items(), key=lambda item: item[1].created, reverse=True)

    @cached_property
    def placed(self) -> pd.DataFrame:
        """The measurements with their block and row of the table."""
        return blocks.placed(self.measurements, self.comparisons.values())

    @cached_property
    def history(self) -> series.History:
        """The series among the measurements, with their change points."""
        return series.history(self.measurements)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The measurement shown for each row and framework, in the tables' order."""
        return blocks.cells(self.placed)


def _text(summary: Summary, macro: str, *values: Any, **named: Any) -> Section:
    return render("summary", macro, summary.folder, *values, **named)


def read_all(
    folders: Iterable[Path], read: Callable[[Path], Any], outputs: Path, unreadable: list[str]
) -> dict[str, Any]:
    """Read these folders below `outputs`; return the results by folder name and append reasons
    for unreadable folders to `unreadable`."""
    found = {}
    for folder in folders:
        try:
            found[folder.name] = read(folder)
        except ResultError as error:
            unreadable.append(error.relative_to(outputs))
    return found


def fastest(summary: Summary) -> Section:
    """The fastest framework of each row covered by an interleaved comparison; then a table per
    hardware, protocol and set of versions: throughputs with intervals and ratios to Paddle."""
    cells = summary.cells
    ranked = rankings(cells, [comparison for _name, comparison in summary.newest])
    shown = cells[cells["row"].isin(cells["row"].unique()[:MOST_ROWS])]
    tables = []
    for caption, facts, block in blocks.captioned(shown):
        columns = [name for name in blocks.NAMES if name in {*block["name"]}]
        rows = groupby(records(block), itemgetter("row"))
        by_name = [{cell["name"]: cell for cell in row} for _number, row in rows]
        tables.append((caption, facts, columns, by_name))
    return _text(
        summary,
        "fastest",
        tables,
        ranked,
        answers=_answers(cells, ranked),
        most=MOST_ANSWERS,
        levels=[*cells["interval_level"].quantile([0, 1]).dropna()],
        rest=cells["row"].nunique() - shown["row"].nunique(),
        site=summary.site,
    )


def _answers(cells: pd.DataFrame, ranked: Mapping[int, Ranking]) -> dict[str, Ranking]:
    """Return rankings by row title, which has topology, input, setup and device only where
    rows differ in nothing else. Of rankings with the same title, the first block's is kept."""
    frame = cells[cells["row"].isin(ranked)].drop_duplicates("row")
    frame = frame.assign(on=[names.device_name(row) for row in records(frame)])
    first, more = blocks.ROW[1:4], [*blocks.ROW[4:], "on"]
    alike = frame.groupby(first)
    keys = [*first, *(key for key in more if alike[key].nunique().max() > 1)]
    found: dict[str, Ranking] = {}
    for row in records(frame.sort_values(first, kind="stable")):
        found.setdefault(blocks.title(row, keys, between=" "), ranked[row["row"]])
    return found


def ratios(summary: Summary) -> Section:
    """The ratio of each variant to the base in all interleaved comparisons, with intervals."""
    every = []
    for name, c in summary.newest:
        for pair in c.pairs:
            sides = map(names.variant_name, [c.variant_of(pair), c.base])
            every.append((name, c, pair, " / ".join(sides)))
    text = _text(summary, "ratios", every, MOST_BARS, summary.site)
    if not every:
        return text
    rows = [
        (f"{model_named(c.model).short_name} · {variants}", c.variant_of(pair), pair)
        for _name, c, pair, variants in every[:MOST_BARS]
    ]
    figure = style.forest(rows, _("ratio of throughputs; right of 1 is faster"))
    return picture(figure, _("Ratios of interleaved comparisons")) + text


def _charts(
    summary: Summary, points: pd.DataFrame, vary: str, heading: str, x: str, y: str
) -> Section:
    """A figure per block, a panel per group of rows that differ only in `vary`: `y` over `x`, a
    line per framework and source."""
    keys, section = [key for key in blocks.ROW if key != vary], Section()
    numbers = blocks.numbered(points, keys)
    for caption, facts, block in blocks.captioned(points[numbers < MOST_PANELS]):
        panels = [panel for _key, panel in block.groupby(keys, sort=False)]
        columns, rows = min(len(panels), 3), ceil(len(panels) / 3)
        size = (3.4 * columns + 0.4, 2.8 * rows + 0.2)
        with style.new_figure(*size, columns, rows) as (figure, places):
            for axes in places[len(panels) :]:
                axes.set_axis_off()
            for axes, panel in zip(places, panels, strict=False):
                for (name, source), line in panel.groupby(["name", "source"], sort=False):
                    label = _("%(name)s, published") % {"name": name} if source else name
                    style.estimates(axes, line, x, y, label)
                style.from_zero(axes, axes.dataLim.y1)
                ticks = panel[vary].astype(str).groupby(panel[x]).unique().map("\n".join)
                title = textwrap.wrap(blocks.title(panel.iloc[0], keys[1:]), 46, max_lines=3)
                axes.set_title("\n".join(title), fontsize=8)
                axes.set(xscale="log", xlabel=heading, ylabel=panel["unit"].iloc[0])
                axes.set_xticks(ticks.index.astype(float), ticks)
                axes.xaxis.set_minor_locator(NullLocator())
                if y == "speedup":
                    _compare_to_ideal(axes, panel)
                axes.legend(fontsize=7)
        note = markup(Markup('<p class="note">%s<br>%s</p>') % (caption, facts))
        section += note + picture(figure, caption)
    return section + _text(summary, "more", numbers.max() + 1 - MOST_PANELS)


def _compare_to_ideal(axes: Axes, panel: pd.DataFrame) -> None:
    """Make the y axis logarithmic, so that the ideal speed-up is a straight line. Unless the
    processes share cores, draw the ideal, and the efficiency at each measured point."""
    if not panel["shares_cores"].any():
        panel = panel.sort_values("devices")
        devices = panel["devices"].astype(float)
        axes.plot(devices, devices / devices.min(), "--", color=style.IDEAL, label=_("ideal"))
        for row in records(panel[(panel["source"] == "") & (devices > devices.min())]):
            share, at = percent(row["efficiency"], 2), (row["devices"], row["speedup"])
            below, colour = (4, -9 * (row["order"] + 1)), style.COLOURS[row["name"]]
            axes.annotate(share, at, below, textcoords="offset points", color=colour, size=7)
    ends = (axes.dataLim.y0 / style.HEADROOM, axes.dataLim.y1 * style.HEADROOM)
    axes.set(yscale="log", ylabel=_("speed-up"), ylim=ends)
    axes.yaxis.set_major_locator(LogLocator(2, subs=(1, 1.5)))
    axes.yaxis.set(major_formatter="{x:g}", minor_locator=NullLocator())


def throughput_by_batch(summary: Summary) -> Section:
    """Throughput by batch size, or the command that measures several batch sizes."""
    points = blocks.varying(summary.cells, "batch_size").assign(source="")
    if points.empty:
        return _text(summary, "one_batch")
    return _charts(summary, points, "batch_size", _("Batch"), "batch_size", "throughput")


def scaling(summary: Summary) -> Section:
    """Speed-up over the fewest devices, with the ideal and published speed-ups."""
    points = speedups(summary.cells)
    if points.empty:
        return _text(summary, "scaling", [], PANEL, 0)
    lines = points[points["source"] == ""].groupby([*PANEL, "name"], sort=False)
    text = _text(summary, "scaling", records(lines.tail(1)), PANEL[1:], MOST_PANELS)
    return text + _charts(summary, points, "topology", _("Topology"), "devices", "speedup")


def beside_published(summary: Summary) -> Section:
    """Published numbers with measurements of the same work, and the differences."""
    measured = records(summary.cells[summary.cells["measured"]])
    found = [pair for pair in match(cells_of(published()), measured) if pair.ratio]
    return _text(summary, "beside_published", found, MOST_ROWS, summary.site)


def left_out(summary: Summary) -> Section:
    """Reasons for files that could not be read."""
    return _text(summary, "left_out", summary.unreadable)
