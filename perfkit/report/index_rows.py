"""The rows of the index: a measurement each, by model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from perfkit.analysis.distinctions import Row, distinctions
from perfkit.analysis.verdicts import few_repeats
from perfkit.analysis.warnings import severity
from perfkit.analysis.wording import (
    arguments_text,
    column_value,
    long_title,
    protocol_words,
    work_title,
)
from perfkit.measuring.format import number, plus_minus
from perfkit.measuring.results.frames import topology_size
from perfkit.measuring.statements import N_
from perfkit.report.elements import Text, code, joined, severity_mark, span, strong
from perfkit.report.links import Site
from perfkit.report.rendering import page_warnings
from perfkit.report.text.language import enumerated, file_name, translations
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import device_name, traits
from perfkit.training.frameworks import FRAMEWORKS

SORTED_SEVERITIES = (None, "undecided", "notice", "caution", "error")
"""Severities in the order in which the index sorts them."""


HEADINGS = {
    "model": N_("Model"),
    "framework": N_("Framework"),
    "precision": N_("Precision"),
    "batch": N_("Batch"),
    "devices": N_("Devices"),
    "throughput": N_("Throughput"),
    "warnings": N_("Warnings"),
    "input": N_("Input"),
    "status": N_("Status"),
    "begun": N_("Started (UTC)"),
}
"""The headings of the table of measurements, by the classes of their columns."""


@dataclass(frozen=True)
class Cell:
    """A cell of a measurement's row: what it shows, and the text that it is sorted by if that
    is another one; empty without a value."""

    content: Text
    sorts: str | None = None


@dataclass(frozen=True)
class IndexRow:
    """A measurement's row: the name with a link to its page, the setup in words, and the cells
    of the other columns by the keys of their headings."""

    name: Text
    label: str
    setup: str
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class ModelGroup:
    """The rows of one model."""

    title: str
    rows: Sequence[IndexRow]


def model_groups(site: Site, rows: Iterable[Row]) -> list[ModelGroup]:
    """Return the rows by model, in the order given within a model."""
    by_model = sorted(rows, key=lambda row: str(row["model"]))
    told_apart = distinctions(by_model, appearance, translations())
    groups = []
    for model, measurements in groupby(by_model, key=lambda row: str(row["model"])):
        listed = []
        for row in measurements:
            listed.append(index_row(site, row, told_apart.get(row["folder"], [])))
        facts = {"title": long_title(model, language=translations()), "count": len(listed)}
        groups.append(ModelGroup(_("%(title)s (%(count)d)") % facts, listed))
    return groups


def appearance(row: Row) -> tuple[Any, ...]:
    """Return what the index shows of a measurement's configuration: rows for which it is the
    same read alike."""
    arguments = arguments_text(row.get("arguments") or "")
    framework = (row["framework"], framework_version(row))
    precision = (used_precision(row), row["precision"])
    work = (row["model"], row.get("model_size"), arguments, batch_text(row), row["topology"])
    return (*work, *framework, *precision, row["input"], row["label"], _setup(row))


def index_row(site: Site, row: Row, told_apart: Sequence[str]) -> IndexRow:
    """Return a measurement's row of the index; `told_apart` has the facts that tell it from
    rows that read alike."""
    has_number = row["throughput"] is not None
    codes = page_warnings(site.outputs / row["folder"]) if has_number else None
    name = _name(site, row, told_apart)
    setup = " · ".join([_setup(row), *told_apart])
    return IndexRow(name, row["label"], setup, _cells(row, codes))


def _cells(row: Row, codes: Sequence[str] | None) -> dict[str, Cell]:
    """Return the cells beside the name, by the keys of their headings."""
    devices, _nodes = topology_size(row["topology"])
    return {
        "framework": Cell(_framework(row)),
        "precision": Cell(_precision(row)),
        "batch": Cell(batch_text(row), _sortable(_samples(row))),
        "devices": Cell(row["topology"], _sortable(devices)),
        "throughput": _throughput(row),
        "warnings": _warnings(codes, row),
        "input": Cell(span(row["input"] or "–")),
        "status": Cell(_status(row)),
        "begun": _start(row),
    }


def _note(text: str) -> Markup:
    return span(text, "note")


def _severity(codes: Sequence[str], row: Row) -> str | None:
    """Return the severity of a measurement's warnings; undecided if it has none, but too few
    repeats to tell."""
    return severity(codes) or ("undecided" if few_repeats(row["n"]) else None)


def _sortable(value: float | None) -> str:
    """Return a positive number as text that sorts as the number does; empty without one."""
    return "" if value is None else f"{value:020.6f}"


def _name(site: Site, row: Row, told_apart: Sequence[str]) -> Markup:
    """Return the model's name, or a script's with its arguments, with a link to the page if
    there is one."""
    name = work_title(row["model"], row.get("model_size"))
    arguments = arguments_text(row.get("arguments") or "")
    return joined([_linked(name, site, row, told_apart), arguments and code(arguments)])


def _linked(name: str, site: Site, row: Row, told_apart: Sequence[str]) -> Markup:
    """Return the name with a link to the page if there is one."""
    if not site.has_page(row["folder"]):
        return span(name)
    framework = f"{FRAMEWORKS[row['framework']].display_name} {framework_version(row)}".strip()
    facts = [name, row.get("arguments"), framework, used_precision(row), row["topology"]]
    facts += [row["input"], row["label"], *told_apart]
    address = f"{quote(row['folder'])}/{file_name('report')}"
    layout = Markup('<a href="%s" aria-label="%s">%s</a>')
    return layout % (address, joined(facts, " · "), name)


def used_precision(row: Row) -> str | None:
    """Return the effective precision, else the one requested or told."""
    return row["effective.precision"] or row["precision"] or row.get("told.precision")


def framework_version(row: Row) -> str:
    return row.get(f"environment.{row['framework']}") or ""


def _framework(row: Row) -> Markup:
    """Return the framework's name with its version."""
    name = span(FRAMEWORKS[row["framework"]].display_name)
    version = framework_version(row)
    return joined([name, version and _note(version)])


def _setup(row: Row) -> str:
    """Return protocol, unusual parameters, interpreter and device in words. A script's
    arguments belong to its name."""
    protocol = protocol_words(row, translations())
    unusual = [text for name, text in traits(row).items() if name != "arguments"]
    work = enumerated([protocol, *unusual])
    python = row["python"] and column_value("python", row["python"], translations())
    return " · ".join(filter(None, [work, python, device_name(row)]))


def _precision(row: Row) -> Markup:
    """Return the effective precision, and what was requested if that differs; of a script, what
    it told."""
    used, requested = used_precision(row), row["precision"]
    if requested is None or used == requested:
        return span(used or "–")
    words = _("requested: %(precision)s") % {"precision": requested}
    return joined([span(used or ""), _note(words)])


def _samples(row: Row) -> int | None:
    """Return the batch size; of a script, the samples per step that it told."""
    return row["batch_size"] or row.get("told.samples_per_step")


def batch_text(row: Row) -> str:
    """Return the batch size with the micro-batches of a step, a dash without one."""
    size = _samples(row)
    text = "–" if size is None else str(size)
    if (row["accumulate"] or 1) > 1:
        text = f"{text} × {row['accumulate']}"
    return text


def _throughput(row: Row) -> Cell:
    value = row["throughput"]
    if value is None:
        return Cell(_("no number"), "")
    width = plus_minus(value, row["throughput_low"], row["throughput_high"])
    content = joined([strong(number(value)), row["unit"], width])
    return Cell(content, f"{row['unit']} {_sortable(value)}")


def _warnings(codes: Sequence[str] | None, row: Row) -> Cell:
    """Return the worst warning and the number of others; a dash if they are unknown."""
    if codes is None:
        return Cell("–", "")
    level = _severity(codes, row)
    names = {
        "error": _("error"),
        "caution": _("caution"),
        "notice": _("notice"),
        "undecided": _("too few repeats"),
        None: _("none"),
    }
    mark = Markup('<span class="mark %s"%s>%s %s</span>')
    title = Markup(' title="%s"') % ", ".join(codes) if codes else Markup()
    texts = [mark % (level or "none", title, severity_mark(level), names[level])]
    texts += map(code, codes[:1])
    if len(codes) > 1:
        texts.append(Markup("+%d") % (len(codes) - 1))
    return Cell(joined(texts), str(SORTED_SEVERITIES.index(level)))


def _status(row: Row) -> Markup:
    status = span(_(row["status"]), row["status"])
    if not row["failure"]:
        return status
    return joined([status, code(row["failure"])], ": ")


def _start(row: Row) -> Cell:
    created = row["created"]
    day, time = created[:10], created[11:16]
    return Cell(joined([day, _note(time)]), created)
