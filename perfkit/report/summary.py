"""What a summary is made from, and its sections that are tables."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.analysis.comparison import blocks, stored
from perfkit.analysis.comparison import history as series
from perfkit.analysis.comparison.stored import InterleavedComparison, PairResult
from perfkit.analysis.fleet.fleet import judge_fleet
from perfkit.analysis.fleet.rule import USUAL_RULES, Rules
from perfkit.analysis.fleet.stored import Fleet
from perfkit.analysis.published import published
from perfkit.analysis.published.cells import cells_of
from perfkit.analysis.published.matches import Match, match
from perfkit.measuring.format import amount, interval, minute, number, percent
from perfkit.measuring.paths import outputs_path
from perfkit.measuring.results.frames import records
from perfkit.measuring.results.outputs import load, measurements
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement, ResultError
from perfkit.report import style
from perfkit.report.elements import hint, joined, link, more, paragraph, table, verdict_mark
from perfkit.report.links import Site
from perfkit.report.published_cells import difference_words, labels
from perfkit.report.section import Section, picture
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import translations

MOST_ROWS, MOST_BARS = 200, 40
LIVE_COMPARISON = "perfkit compare --live resnet50 framework=paddle framework=torch"
"""The command of a comparison of two frameworks."""


@dataclass(frozen=True)
class Summary:
    """Data of the sections: measurements (perfkit.load) of a site, interleaved
    comparisons by name, reasons for files left out, and how the nodes of a fleet are judged."""

    site: Site
    measurements: pd.DataFrame
    comparisons: dict[str, InterleavedComparison] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    fleet_rules: Rules = USUAL_RULES

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
        return blocks.placed(self.measurements, self.comparisons.values(), translations())

    @cached_property
    def history(self) -> series.History:
        """The series among the measurements, with their change points."""
        return series.history(self.measurements, language=translations(), read=self.read_result)

    def read_result(self, folder: str) -> Result:
        """Return the result in a folder of the outputs."""
        return Measurement.read(self.outputs / folder).result

    @cached_property
    def fleet(self) -> Fleet:
        """The judged fleet."""
        stored = measurements(self.outputs, [])
        names = {*self.measurements["folder"]}
        agreeing = [each for each in stored if each.folder.name in names]
        return judge_fleet(agreeing, self.fleet_rules, translations())

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


@dataclass(frozen=True)
class ComparedPair:
    """A pair of an interleaved comparison, and the name of the comparison's folder."""

    folder: str
    comparison: InterleavedComparison
    pair: PairResult

    @property
    def model(self) -> str:
        return self.comparison.short_title

    @property
    def variants(self) -> str:
        """Names of the variant and the base."""
        sides = (self.comparison.variant_of(self.pair), self.comparison.base)
        return " / ".join(names.variant_name(side, self.comparison) for side in sides)

    def cells(self, address: str) -> list[Any]:
        """Return its row of the table, with a link to the comparison."""
        verdict = names.verdict_name(self.pair.verdict, self.comparison.threshold)
        ends = level = None
        if self.pair.has_level(self.comparison.level):
            ends = interval(*self.pair.interval, digits=3)
            level = percent(self.pair.interval_level, 4)
        return [
            *(
                self.model,
                link(address, self.variants),
                number(self.pair.ratio, 3),
                ends,
                level,
            ),
            joined([verdict_mark(self.pair.verdict), verdict]),
            *(len(self.pair.turns), minute(self.comparison.created)),
        ]


def ratios(summary: Summary) -> Section:
    """The ratio of each variant to the base in all interleaved comparisons, with intervals."""
    pairs = [
        ComparedPair(folder, comparison, pair)
        for folder, comparison in summary.newest
        for pair in comparison.pairs
    ]
    if not pairs:
        words = _("There are no interleaved comparisons yet. To run one:")
        return hint(words, LIVE_COMPARISON)
    headings = [
        *(_("Model"), _("Variants"), _("Ratio"), _("Interval"), _("Level"), _("Verdict")),
        *(_("Pairs"), _("Started (UTC)")),
    ]
    rows = []
    for pair in pairs:
        address = summary.site.address(f"comparisons/{pair.folder}")
        rows.append(pair.cells(address))
    section = _forest(pairs[:MOST_BARS])
    section += more(len(pairs) - MOST_BARS, _("in the table below"))
    return (section + table(rows, headings, as_cards=True)).on_page_in(summary.folder)


def _forest(pairs: Iterable[ComparedPair]) -> Section:
    """Return a chart of the pairs' ratios."""
    rows = []
    for pair in pairs:
        comparison = pair.comparison
        variant = comparison.variant_of(pair.pair)
        name = f"{pair.model} · {pair.variants}"
        level, threshold = comparison.level, comparison.threshold
        rows.append(style.ForestRow(name, variant, pair.pair, level, threshold))
    figure = style.forest(rows, _("ratio of throughputs; right of 1 is faster"))
    return picture(figure, _("Ratios of interleaved comparisons"))


def beside_published(summary: Summary) -> Section:
    """Published numbers with measurements of the same work, and the differences."""
    measured = records(summary.cells[summary.cells["measured"]])
    matches = [pair for pair in match(cells_of(published()), measured) if pair.ratio]
    tables = link(summary.site.address("published"), _("Published tables"))
    if not matches:
        section = paragraph(_("No measurement matches a published number."), tables)
        return section.on_page_in(summary.folder)
    headings = [
        *(_("Source"), _("Published"), _("Measured"), _("Measured / published")),
        _("Differences"),
    ]
    rows = [_published_row(pair, summary.site) for pair in matches[:MOST_ROWS]]
    section = table(rows, headings, as_cards=True)
    section += more(len(matches) - MOST_ROWS) + paragraph(tables)
    return section.on_page_in(summary.folder)


def _published_row(pair: Match, site: Site) -> list[Any]:
    """Return a published number beside the measurement that matches it."""
    measured = number(pair.measured or 0)
    return [
        f"{pair.cell.source} · {labels(pair.cell).place}",
        pair.cell.printed,
        link(site.address(pair.row["folder"]), measured),
        number(pair.ratio, 3),
        difference_words(pair.differences),
    ]


def left_out(summary: Summary) -> Section:
    """Reasons for files that could not be read."""
    if not summary.unreadable:
        return paragraph(_("Every file could be read."))
    return table([[reason] for reason in summary.unreadable], [_("Left out")])
