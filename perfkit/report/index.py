"""The index of an outputs folder: a row per measurement, lists of comparisons and audits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from perfkit.analysis.comparison.history import Mover
from perfkit.analysis.comparison.stored import InterleavedComparison, PairResult
from perfkit.analysis.verdicts import Verdict
from perfkit.audit.audit import Audit
from perfkit.measuring.format import minute
from perfkit.report.audit_text import claim_counts
from perfkit.report.blocks import Inline
from perfkit.report.distinctions import Row
from perfkit.report.elements import code, joined, link, span, verdict_mark
from perfkit.report.index_rows import HEADINGS, DeviceGroup, device_groups
from perfkit.report.links import Site
from perfkit.report.pages import Page
from perfkit.report.text.language import file_name, ngettext
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import (
    comparison_title,
    configuration_name,
    variant_name,
    variant_names,
)
from perfkit.report.verdicts import digits_of, verdict_line

MOST_MOVERS = 3
"""Series whose last change is told, at most."""


@dataclass(frozen=True)
class ListedPage:
    """A comparison or an audit with a page: the page's address, its name, the outcome, and when
    it was made."""

    address: str
    name: str
    outcome: Inline
    created: str


def _newest_with_page(
    site: Site, kind: str, stored: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return the names of stored results of a kind that have a page, and the results."""
    with_page = [named for named in stored.items() if site.has_page(f"{kind}/{named[0]}")]
    return sorted(with_page, key=lambda named: str(named[1].created), reverse=True)


def listed_comparisons(
    site: Site, stored: Mapping[str, InterleavedComparison]
) -> list[ListedPage]:
    """Return the interleaved comparisons with a page, the newest first, each with the ratio and
    the verdict of every variant."""
    listed = []
    for folder, comparison in _newest_with_page(site, "comparisons", stored):
        name = f"{comparison_title(comparison)}: {' · '.join(variant_names(comparison))}"
        verdicts = []
        for pair in comparison.pairs:
            verdicts.append(_verdict(pair, comparison))
        outcome = joined(verdicts, ", ") or Markup("%s") % _("no number")
        if not comparison.complete:
            outcome = joined([outcome, span(_("partial"), "partial")])
        address = f"comparisons/{quote(folder)}/{file_name('report')}"
        listed.append(ListedPage(address, name, outcome, minute(comparison.created)))
    return listed


def _verdict(pair: PairResult, comparison: InterleavedComparison) -> Markup:
    """Return the verdict on a variant."""
    variant = variant_name(comparison.variant_of(pair), comparison)
    base = variant_name(comparison.base, comparison)
    line = verdict_line(pair, comparison.level, comparison.threshold, base, variant)
    return joined([verdict_mark(pair.verdict), line])


def listed_audits(site: Site, stored: Mapping[str, Audit]) -> list[ListedPage]:
    """Return the audits with a page, the newest first, each with its claims by state."""
    listed = []
    for folder, audit in _newest_with_page(site, "audits", stored):
        outcome = ", ".join(claim_counts(audit.claims)) or _("No number was claimed.")
        address = f"audits/{quote(folder)}/{file_name('report')}"
        listed.append(ListedPage(address, audit.label, outcome, minute(audit.created)))
    return listed


@dataclass(frozen=True)
class Index:
    """What the index shows: the measurements, comparisons and audits of a site by folder,
    reasons for files that were left out, and whether the summary is older than a
    measurement."""

    site: Site
    measurements: Sequence[Row]
    comparisons: Mapping[str, InterleavedComparison]
    audits: Mapping[str, Audit]
    left_out: Sequence[str]
    is_summary_old: bool
    movers: Sequence[Mover] = ()

    def write(self, page: Page) -> None:
        """Write the index in the current language."""
        count = len(self.measurements)
        groups = device_groups(self.site, self.measurements)
        words = ngettext(
            "Training throughput: %(count)s measurement",
            "Training throughput: %(count)s measurements",
            count,
        )
        page.write_as(
            "index",
            heading=words % {"count": count},
            links=self._links(),
            stale=_stale() if self.is_summary_old else "",
            headings=_shown_headings(groups),
            groups=groups,
            doubtful=_doubtful(groups),
            movers=self._movers(),
            comparisons=self._listed("comparisons"),
            audits=self._listed("audits"),
            left_out=self.left_out,
            first_command=code("perfkit run resnet50 -p input synthetic"),
        )

    def _links(self) -> list[Inline]:
        """Return links to the tables and the reasons for what was left out."""
        links = []
        if (self.site.outputs / "results.csv").exists():
            links += [link(name, name) for name in ("results.csv", "results.json")]
        if self.left_out:
            count = len(self.left_out)
            words = _("%(count)s left out") % {"count": count}
            links.append(link("#left-out", words))
        return links

    def _movers(self) -> list[Markup]:
        """Return the series that changed most since the measurement before, in words."""
        texts = []
        for mover in self.movers[:MOST_MOVERS]:
            found = mover.ratio
            verdict: Verdict = "faster" if found.value > 1 else "slower"
            ratio, low, high = digits_of(found.value, found.low, found.high)
            words = _("%(name)s: %(ratio)s × (%(ends)s) since %(before)s")
            facts = {
                "name": configuration_name(mover.configuration),
                "ratio": ratio,
                "ends": f"{low} – {high}",
                "before": f"{mover.before['created'][:10]} {mover.before['label']}".strip(),
            }
            page = link(self.site.address(mover.newest["folder"]), words % facts)
            texts.append(joined([verdict_mark(verdict), page]))
        return texts

    def _listed(self, kind: str) -> list[ListedPage] | None:
        """Return the pages of comparisons or audits; None without a folder of them."""
        if not (self.site.outputs / kind).exists():
            return None
        if kind == "audits":
            return listed_audits(self.site, self.audits)
        return listed_comparisons(self.site, self.comparisons)


def _shown_headings(groups: Sequence[DeviceGroup]) -> dict[str, str]:
    """Return the headings of the columns that have a value."""
    cells = [row.cells for group in groups for row in group.rows]
    shown = {}
    for key, heading in HEADINGS.items():
        if key == "configuration" or any(each[key].content for each in cells):
            shown[key] = heading
    return shown


def _doubtful(groups: Sequence[DeviceGroup]) -> str:
    """Return how many measurements have a caution or an error; empty if none has."""
    rows = [row for group in groups for row in group.rows]
    count = sum(row.is_doubtful for row in rows)
    if not count:
        return ""
    words = ngettext(
        "%(count)d of %(all)d has a caution (▲, it may not hold) or an error (■, it is "
        "wrong): sort by Trust.",
        "%(count)d of %(all)d have a caution (▲, they may not hold) or an error (■, they are "
        "wrong): sort by Trust.",
        count,
    )
    return words % {"count": count, "all": len(rows)}


def _stale() -> Markup:
    words = _("The summary is older than the newest measurement: %(command)s rewrites it.")
    return Markup(words) % {"command": code("perfkit report")}
