"""The page that summarizes all measurements."""

from functools import partial

from perfkit.report.curves import scaling, throughput_by_batch
from perfkit.report.elements import more, part, table
from perfkit.report.rankings import fastest
from perfkit.report.section import Section, picture
from perfkit.report.style import ForestRow, forest
from perfkit.report.summarized import Summary
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _

MOST_BARS = 40


def page(summary: Summary) -> Section:
    """Which framework is fastest, the interleaved comparisons, batch sizes and scaling."""
    section = part(_("Which framework is fastest"), fastest(summary))
    section += part(_("Interleaved comparisons"), ratios(summary))
    section += part(_("Throughput by batch size"), throughput_by_batch(summary))
    section += part(_("Scaling"), scaling(summary))
    section += part(_("Files left out"), left_out(summary))
    return section.on_page_in(summary.folder)


def ratios(summary: Summary) -> Section:
    """A chart of the ratio of each variant to the base, with its interval, of the newest
    interleaved comparisons; empty without any."""
    rows = []
    for _folder, comparison in summary.newest:
        title = names.comparison_title(comparison)
        base = names.variant_name(comparison.base, comparison)
        for pair in comparison.pairs:
            variant = comparison.variant_of(pair)
            name = f"{title} · {names.variant_name(variant, comparison)} / {base}"
            row = ForestRow(name, variant, pair, comparison.level, comparison.threshold)
            rows.append(row)
    if not rows:
        return Section()
    shown = rows[:MOST_BARS]
    label = _("ratio of throughputs; right of 1 is faster")
    narrow = partial(forest, shown, label, narrow=True)
    chart = picture(forest(shown, label), _("Ratios of interleaved comparisons"), narrow)
    return chart + more(len(rows) - len(shown), _("in the index"))


def left_out(summary: Summary) -> Section:
    """Reasons for files that could not be read; empty without any."""
    return table([[reason] for reason in summary.unreadable], [_("Left out")])
