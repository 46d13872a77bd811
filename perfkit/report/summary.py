"""The page that summarizes all measurements."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from perfkit.analysis.comparison.stored import InterleavedComparison, PairResult
from perfkit.measuring.format import minute
from perfkit.report import style
from perfkit.report.curves import scaling, throughput_by_batch
from perfkit.report.elements import (
    joined,
    link,
    more,
    part,
    table,
    verdict_mark,
)
from perfkit.report.rankings import fastest
from perfkit.report.section import Section, folded, picture
from perfkit.report.summarized import Summary
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _
from perfkit.report.verdicts import ratio_words, verdict_name

MOST_BARS = 40


def page(summary: Summary) -> Section:
    """Which framework is fastest, the interleaved comparisons, batch sizes and scaling."""
    section = part(_("Which framework is fastest"), fastest(summary))
    section += part(_("Interleaved comparisons"), ratios(summary))
    section += part(_("Throughput by batch size"), throughput_by_batch(summary))
    section += part(_("Scaling"), scaling(summary))
    section += part(_("Files left out"), left_out(summary))
    return section.on_page_in(summary.folder)


@dataclass(frozen=True)
class ComparedPair:
    """A pair of an interleaved comparison, and the name of the comparison's folder."""

    folder: str
    comparison: InterleavedComparison
    pair: PairResult

    @property
    def model(self) -> str:
        return names.comparison_title(self.comparison)

    @property
    def variants(self) -> str:
        """Names of the variant and the base."""
        sides = (self.comparison.variant_of(self.pair), self.comparison.base)
        return " / ".join(names.variant_name(side, self.comparison) for side in sides)

    def cells(self, address: str) -> list[Any]:
        """Return its row of the table, with a link to the comparison."""
        verdict = verdict_name(self.pair.verdict, self.comparison.threshold)
        return [
            self.model,
            link(address, self.variants),
            ratio_words(self.pair, self.comparison.level),
            joined([verdict_mark(self.pair.verdict), verdict]),
            len(self.pair.turns),
            minute(self.comparison.created),
        ]


def ratios(summary: Summary) -> Section:
    """The ratio of each variant to the base in all interleaved comparisons, with intervals;
    empty without any."""
    pairs = [
        ComparedPair(folder, comparison, pair)
        for folder, comparison in summary.newest
        for pair in comparison.pairs
    ]
    if not pairs:
        return Section()
    headings = [_("Model"), _("Variants"), _("Ratio"), _("Verdict"), _("Pairs")]
    headings.append(_("Started (UTC)"))
    rows = []
    for pair in pairs:
        address = summary.site.address(f"comparisons/{pair.folder}")
        rows.append(pair.cells(address))
    section = _forest(pairs[:MOST_BARS])
    section += more(len(pairs) - MOST_BARS, _("in the table below"))
    return section + folded(_("All ratios"), table(rows, headings, as_cards=True))


def _forest(pairs: Iterable[ComparedPair]) -> Section:
    """Return a chart of the pairs' ratios."""
    rows = []
    for pair in pairs:
        comparison = pair.comparison
        variant = comparison.variant_of(pair.pair)
        name = f"{pair.model} · {pair.variants}"
        level, threshold = comparison.level, comparison.threshold
        rows.append(style.ForestRow(name, variant, pair.pair, level, threshold))
    label = _("ratio of throughputs; right of 1 is faster")
    narrow = partial(style.forest, rows, label, narrow=True)
    return picture(style.forest(rows, label), _("Ratios of interleaved comparisons"), narrow)


def left_out(summary: Summary) -> Section:
    """Reasons for files that could not be read; empty without any."""
    return table([[reason] for reason in summary.unreadable], [_("Left out")])
