"""The page that summarizes all measurements."""

from perfkit.report.curves import scaling, throughput_by_batch
from perfkit.report.elements import part, table
from perfkit.report.rankings import fastest
from perfkit.report.section import Section
from perfkit.report.summarized import Summary
from perfkit.report.text.language import gettext as _


def page(summary: Summary) -> Section:
    """Which framework is fastest, batch sizes and scaling."""
    section = part(_("Which framework is fastest"), fastest(summary))
    section += part(_("Throughput by batch size"), throughput_by_batch(summary))
    section += part(_("Scaling"), scaling(summary))
    section += part(_("Files left out"), left_out(summary))
    return section.on_page_in(summary.folder)


def left_out(summary: Summary) -> Section:
    """Reasons for files that could not be read; empty without any."""
    return table([[reason] for reason in summary.unreadable], [_("Left out")])
