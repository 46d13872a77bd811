"""The index of an outputs folder: a row per measurement, lists of comparisons and audits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from perfkit.analysis.comparison.stored import InterleavedComparison
from perfkit.analysis.comparison.verdicts import VERDICTS
from perfkit.analysis.warning_types import severity
from perfkit.analysis.wording import arguments_text, long_title, work_title
from perfkit.audit.audit import Audit
from perfkit.core.format import minute, number
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.results.frames import topology_size
from perfkit.report.audit_text import claim_counts
from perfkit.report.elements import Text, code, joined, link, severity_mark, strong
from perfkit.report.pages import Page
from perfkit.report.rendering import page_warnings
from perfkit.report.text.language import file_name, ngettext
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import (
    device_name,
    interval_words,
    traits,
    variant_name,
    variant_names,
)

Row = Mapping[str, Any]
"""A row of `perfkit.load`."""
SORTED_SEVERITIES = (None, "notice", "caution", "error")
"""Severities in the order in which the index sorts them."""


@dataclass(frozen=True)
class Heading:
    """The heading of a column: its key in addresses, how the column is sorted, the attribute of
    rows that has its facet for filters, and the attribute within which it is sorted, if any."""

    key: str
    name: str
    sort: str = "text"
    facet: str | None = None
    within: str | None = None

    @property
    def attributes(self) -> dict[str, str | None]:
        return {
            "scope": "col",
            "role": "columnheader",
            "class": self.key,
            "data-key": self.key,
            "data-sort": self.sort,
            "data-facet": self.facet,
            "data-within": self.within,
        }


def headings() -> list[Heading]:
    """Return the headings of the table of measurements."""
    return [
        Heading("model", _("Model"), facet="model"),
        Heading("framework", _("Framework"), facet="framework"),
        Heading("precision", _("Precision"), facet="precision"),
        Heading("batch", _("Batch"), "number"),
        Heading("devices", _("Devices"), "number"),
        Heading("throughput", _("Throughput"), "number", within="unit"),
        Heading("warnings", _("Warnings"), facet="severity"),
        Heading("input", _("Input"), facet="input"),
        Heading("status", _("Status"), facet="status"),
        Heading("begun", _("Started (UTC)")),
    ]


@dataclass(frozen=True)
class Cell:
    """A cell of a measurement's row: the heading of its column, what it shows, the value that
    it is sorted by, and its class in the style sheet."""

    label: str
    content: Text
    sorts: Any = None
    style: str | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "role": "cell",
            "data-label": self.label,
            "class": self.style,
            "data-sorts": self.sorts,
        }


@dataclass(frozen=True)
class IndexRow:
    """A measurement's row: the attributes that filters use, the name with a link to its page,
    the setup in words, and the cells of the other columns."""

    attributes: Mapping[str, str]
    name: Text
    label: str
    setup: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class ModelGroup:
    """The rows of one model."""

    title: str
    rows: Sequence[IndexRow]


@dataclass(frozen=True)
class ListedPage:
    """A comparison or an audit with a page: the page's address, its name, the outcome, and when
    it was made."""

    address: str
    name: str
    outcome: Text
    created: str


def model_groups(outputs: Path, rows: Iterable[Row]) -> list[ModelGroup]:
    """Return the rows by model, in the order given within a model."""
    by_model = sorted(rows, key=lambda row: str(row["model"]))
    groups = []
    for model, measurements in groupby(by_model, key=lambda row: str(row["model"])):
        listed = [index_row(outputs, row) for row in measurements]
        groups.append(ModelGroup(f"{long_title(model)} ({len(listed)})", listed))
    return groups


def index_row(outputs: Path, row: Row) -> IndexRow:
    """Return a measurement's row of the index."""
    page = outputs / row["folder"] / "report.html"
    precision = row["effective.precision"] or row["precision"] or row.get("told.precision")
    codes = None if row["throughput"] is None else page_warnings(page)
    attributes = {
        "role": "row",
        "data-folder": row["folder"],
        "data-model": row["model"],
        "data-framework": row["framework"],
        "data-precision": precision,
        "data-input": row["input"],
        "data-status": row["status"],
        "data-severity": _facet(codes),
        "data-unit": row["unit"],
        "data-codes": " ".join(codes or ()),
    }
    cells = [
        Cell(_("Framework"), _span(FRAMEWORKS[row["framework"]].display_name)),
        Cell(_("Precision"), _precision(precision, row["precision"])),
        _batch(row),
        Cell(_("Devices"), row["topology"], topology_size(row["topology"])[0], "number"),
        _throughput(row),
        _warnings(codes),
        Cell(_("Input"), _span(row["input"] or "–")),
        Cell(_("Status"), _status(row)),
        _start(row),
    ]
    return IndexRow(attributes, _name(row, page, precision), row["label"], _setup(row), cells)


def _span(text: Text, style: str = "") -> Markup:
    if not style:
        return Markup("<span>%s</span>") % text
    return Markup('<span class="%s">%s</span>') % (style, text)


def _note(text: str) -> Markup:
    return _span(text, "note")


def _facet(codes: Sequence[str] | None) -> str:
    """Return the severity by which rows are filtered; empty if it is unknown."""
    return "" if codes is None else severity(codes) or "none"


def _name(row: Row, page: Path, precision: str | None) -> Markup:
    """Return the model's name, or a script's with its arguments, with a link to the page if
    there is one."""
    name = work_title(row["model"], row.get("model_size"))
    arguments = arguments_text(row.get("arguments") or "")
    return joined([_linked(name, row, page, precision), arguments and code(arguments)])


def _linked(name: str, row: Row, page: Path, precision: str | None) -> Markup:
    """Return the name with a link to the page if there is one."""
    if not page.exists():
        return _span(name)
    framework = FRAMEWORKS[row["framework"]].display_name
    facts = [name, row.get("arguments"), framework, precision, row["topology"], row["input"]]
    facts.append(row["label"])
    address = f"{quote(row['folder'])}/{file_name('report')}"
    layout = Markup('<a href="%s" aria-label="%s">%s</a>')
    return layout % (address, joined(facts, " · "), name)


def _setup(row: Row) -> str:
    """Return protocol, unusual parameters, device and framework's version in words. A script's
    arguments belong to its name."""
    steps = {key: row[key] for key in ("protocol", "warmup_steps", "measured_steps")}
    protocol = _("%(protocol)s (%(warmup_steps)d + %(measured_steps)d steps)") % steps
    unusual = [text for name, text in traits(row).items() if name != "arguments"]
    work = ", ".join([protocol, *unusual])
    version = row.get(f"environment.{row['framework']}") or ""
    return f"{work} · {device_name(row)}, {FRAMEWORKS[row['framework']].display_name} {version}"


def _precision(used: str | None, requested: str | None) -> Markup:
    """Return the effective precision, and what was requested if that differs; of a script, what
    it told."""
    if requested is None or used == requested:
        return _span(used or "–")
    words = _("requested: %(precision)s") % {"precision": requested}
    return joined([_span(used or ""), _note(words)])


def _batch(row: Row) -> Cell:
    """Return the batch size with the micro-batches of a step; of a script, the samples per step
    that it told."""
    size = row["batch_size"] or row.get("told.samples_per_step")
    text = "–" if size is None else str(size)
    if (row["accumulate"] or 1) > 1:
        text = f"{text} × {row['accumulate']}"
    return Cell(_("Batch"), text, size, "number")


def _throughput(row: Row) -> Cell:
    value = row["throughput"]
    if value is None:
        return Cell(_("Throughput"), _("no number"), "", "number")
    ends = (row["throughput_low"], row["throughput_high"])
    interval = interval_words(*ends, row["interval_level"], row["n"])
    content = joined([strong(number(value)), row["unit"], _note(interval)])
    return Cell(_("Throughput"), content, value, "number")


def _warnings(codes: Sequence[str] | None) -> Cell:
    """Return the worst warning and the number of others; a dash if they are unknown."""
    if codes is None:
        return Cell(_("Warnings"), "–", "", "warned")
    level = severity(codes)
    names = {
        "error": _("error"),
        "caution": _("caution"),
        "notice": _("notice"),
        None: _("none"),
    }
    mark = Markup('<span class="mark %s"%s>%s %s</span>')
    title = Markup(' title="%s"') % ", ".join(codes) if codes else Markup()
    texts = [mark % (level or "none", title, severity_mark(level), names[level])]
    texts += map(code, codes[:1])
    if len(codes) > 1:
        texts.append(Markup("+%d") % (len(codes) - 1))
    return Cell(_("Warnings"), joined(texts), SORTED_SEVERITIES.index(level), "warned")


def _status(row: Row) -> Markup:
    status = _span(_(row["status"]), row["status"])
    if not row["failure"]:
        return status
    return joined([status, code(row["failure"])], ": ")


def _start(row: Row) -> Cell:
    created = row["created"]
    content = joined([created[:10], _note(created[11:16])])
    return Cell(_("Started (UTC)"), content, created, "begun")


def _newest_with_page(folder: Path, stored: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the names of stored results that have a page in `folder`, and the results."""
    with_page = [
        (name, result)
        for name, result in stored.items()
        if (folder / name / "report.html").exists()
    ]
    return sorted(with_page, key=lambda named: str(named[1].created), reverse=True)


def listed_comparisons(
    outputs: Path, stored: Mapping[str, InterleavedComparison]
) -> list[ListedPage]:
    """Return the interleaved comparisons with a page, the newest first, each with the ratio and
    the verdict of every variant."""
    listed = []
    for folder, comparison in _newest_with_page(outputs / "comparisons", stored):
        name = f"{comparison.short_title}: {' · '.join(variant_names(comparison))}"
        verdicts = []
        for pair in comparison.pairs:
            variant = variant_name(comparison.variant_of(pair), comparison)
            verdict = _(VERDICTS[pair.verdict])
            verdicts.append(
                Markup("%s <strong>%s</strong> (%s)") % (variant, number(pair.ratio), verdict)
            )
        outcome = joined(verdicts, ", ") or Markup("%s") % _("no number")
        if not comparison.complete:
            outcome = joined([outcome, _span(_("partial"), "partial")])
        address = f"comparisons/{quote(folder)}/{file_name('report')}"
        listed.append(ListedPage(address, name, outcome, minute(comparison.created)))
    return listed


def listed_audits(outputs: Path, stored: Mapping[str, Audit]) -> list[ListedPage]:
    """Return the audits with a page, the newest first, each with its claims by state."""
    listed = []
    for folder, audit in _newest_with_page(outputs / "audits", stored):
        outcome = ", ".join(claim_counts(audit)) or _("No number was claimed.")
        address = f"audits/{quote(folder)}/{file_name('report')}"
        listed.append(ListedPage(address, audit.label, outcome, minute(audit.created)))
    return listed


@dataclass(frozen=True)
class Index:
    """What the index shows: the measurements, comparisons and audits by folder, reasons for
    files that were left out, and whether the summary is older than a measurement."""

    measurements: Sequence[Row]
    comparisons: Mapping[str, InterleavedComparison]
    audits: Mapping[str, Audit]
    left_out: Sequence[str]
    is_summary_old: bool

    def write(self, page: Page) -> None:
        """Write the index in the current language."""
        outputs = page.folder
        count = len(self.measurements)
        words = ngettext(
            "Training throughput: %(count)s measurement",
            "Training throughput: %(count)s measurements",
            count,
        )
        page.write_as(
            "index",
            heading=words % {"count": count},
            links=self._links(outputs),
            stale=_stale() if self.is_summary_old else "",
            headings=headings(),
            groups=model_groups(outputs, self.measurements),
            comparisons=self._listed(outputs, "comparisons"),
            audits=self._listed(outputs, "audits"),
            left_out=self.left_out,
            first_command=code("make report"),
        )

    def _links(self, outputs: Path) -> list[Text]:
        """Return links to the tables, the examples, and the reasons for what was left out."""
        links = []
        if (outputs / "results.csv").exists():
            links += [link(name, name) for name in ("results.csv", "results.json")]
        if (outputs / "examples" / "index.html").exists():
            links.append(link(f"examples/{file_name('index')}", _("Examples")))
        if self.left_out:
            count = len(self.left_out)
            words = _("%(count)s left out") % {"count": count}
            links.append(link("#left-out", words))
        return links

    def _listed(self, outputs: Path, kind: str) -> list[ListedPage] | None:
        """Return the pages of comparisons or audits; None without a folder of them."""
        if not (outputs / kind).exists():
            return None
        if kind == "audits":
            return listed_audits(outputs, self.audits)
        return listed_comparisons(outputs, self.comparisons)


def _stale() -> Markup:
    words = _("The summary is older than the newest measurement: %(command)s rewrites it.")
    return Markup(words) % {"command": code("perfkit report")}
