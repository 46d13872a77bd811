"""The rows of the index: a measurement each, by device."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from perfkit.analysis.comparison.keys import LIVE_LABEL
from perfkit.analysis.verdicts import are_few
from perfkit.analysis.warnings import severity
from perfkit.measuring.format import number, plus_minus
from perfkit.measuring.results.frames import topology_size
from perfkit.measuring.statements import N_
from perfkit.measuring.units import GIB
from perfkit.report.blocks import Inline
from perfkit.report.distinctions import Row, distinctions
from perfkit.report.elements import code, joined, severity_mark, span, strong
from perfkit.report.links import Site
from perfkit.report.rendering import page_warnings
from perfkit.report.text.language import file_name
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import peak_share
from perfkit.report.text.wording import (
    column_value,
    device_name,
    protocol_words,
    traits,
    work_title,
)
from perfkit.training.frameworks import FRAMEWORKS

SORTED_SEVERITIES = ("error", "caution", "notice", "undecided", None)
"""Severities in the order in which the index sorts them."""


HEADINGS = {
    "configuration": N_("Configuration"),
    "framework": N_("Framework"),
    "throughput": N_("Throughput"),
    "each": N_("Per device"),
    "tflops": N_("TFLOP/s per device"),
    "share": N_("Share of peak"),
    "memory": N_("Memory (GiB)"),
    "trust": N_("Trust"),
    "begun": N_("Started (UTC)"),
}
"""The headings of the table of measurements, by the classes of their columns."""


@dataclass(frozen=True)
class Cell:
    """A cell of a measurement's row: what it shows, and the text that it is sorted by if that
    is another one; empty without a value."""

    content: Inline
    sorts: str | None = None


@dataclass(frozen=True)
class IndexRow:
    """A measurement's row: the configuration with a link to its page, the setup in words, and
    the cells of the other columns by the keys of their headings."""

    name: Inline
    label: str
    setup: str
    cells: Mapping[str, Cell]
    is_doubtful: bool
    """whether it has a caution or an error"""


@dataclass(frozen=True)
class DeviceGroup:
    """The rows of one kind of device."""

    title: str
    rows: Sequence[IndexRow]


def device_groups(site: Site, rows: Iterable[Row]) -> list[DeviceGroup]:
    """Return the rows by device, then by model, in the order given within a model."""
    ordered = sorted(rows, key=lambda row: (_device(row), str(row["model"])))
    told_apart = distinctions(ordered, appearance)
    groups = []
    for device, measurements in groupby(ordered, key=_device):
        listed = []
        for row in measurements:
            listed.append(index_row(site, row, told_apart.get(row["folder"], [])))
        facts = {"title": device, "count": len(listed)}
        groups.append(DeviceGroup(_("%(title)s (%(count)d)") % facts, listed))
    return groups


def _device(row: Row) -> str:
    """Return the devices of a measurement: "8 × NVIDIA H100"."""
    column = {"gpu": "environment.gpus", "cpu": "environment.cpu"}.get(row["device"], "")
    value = row.get(column)
    return column_value(column, value) if value else device_name(row)


def appearance(row: Row) -> tuple[Any, ...]:
    """Return what the index shows of a measurement's configuration: rows for which it is the
    same read alike."""
    return (_words(row), _device(row), row["framework"], framework_version(row), row["label"])


def index_row(site: Site, row: Row, told_apart: Sequence[str]) -> IndexRow:
    """Return a measurement's row of the index; `told_apart` has the facts that tell it from
    rows that read alike."""
    has_number = row["throughput"] is not None
    codes = page_warnings(site.outputs / row["folder"]) if has_number else None
    setup = " · ".join([protocol_words(row), *told_apart])
    label = "" if re.fullmatch(LIVE_LABEL, row["label"] or "") else row["label"]
    name, cells = _name(site, row, told_apart), _cells(row, codes)
    return IndexRow(name, label, setup, cells, severity(codes or []) in ("caution", "error"))


def _words(row: Row) -> str:
    """Return the configuration in words: "ResNet-50 · fp32 · batch 64 · 1x1 · dali"."""
    unusual = traits(row)
    words = [
        work_title(row["model"], row.get("model_size")),
        unusual.pop("arguments", ""),
        _precision(row),
        _batch(row),
        row["topology"],
        row["input"],
        *unusual.values(),
        row["python"] and column_value("python", row["python"]),
    ]
    return " · ".join(filter(None, words))


def _cells(row: Row, codes: Sequence[str] | None) -> dict[str, Cell]:
    """Return the cells beside the name, by the keys of their headings."""
    memory = row["peak_memory_bytes"]
    each = row["throughput_per_device"]
    devices, _nodes = topology_size(row["topology"])
    return {
        "framework": Cell(_framework(row)),
        "throughput": _throughput(row),
        "each": _number(each if devices > 1 else None),
        "tflops": _number(row["tflops_per_device"]),
        "share": _share(row["share_of_peak"]),
        "memory": _number(memory / GIB if memory else None, 3),
        "trust": _trust(codes, row),
        "begun": _start(row),
    }


def _number(value: float | None, digits: int = 4) -> Cell:
    return Cell("" if value is None else number(value, digits), _sortable(value))


def _share(value: float | None) -> Cell:
    if value is None:
        return Cell("", "")
    return Cell(peak_share([value]), _sortable(value))


def _note(text: str) -> Markup:
    return span(text, "note")


def _severity(codes: Sequence[str], row: Row) -> str | None:
    """Return the severity of a measurement's warnings; undecided if it has none, but too few
    repeats to tell."""
    return severity(codes) or ("undecided" if are_few(row["n"]) else None)


def _sortable(value: float | None) -> str:
    """Return a positive number as text that sorts as the number does; empty without one."""
    return "" if value is None else f"{value:020.6f}"


def _name(site: Site, row: Row, told_apart: Sequence[str]) -> Inline:
    """Return the configuration with a link to the measurement's page if there is one."""
    words = _words(row)
    if not site.has_page(row["folder"]):
        return span(words)
    framework = f"{FRAMEWORKS[row['framework']].display_name} {framework_version(row)}".strip()
    facts = joined([words, framework, row["label"], *told_apart], " · ")
    address = f"{quote(row['folder'])}/{file_name('report')}"
    return Markup('<a href="%s" aria-label="%s">%s</a>') % (address, facts, words)


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


def _precision(row: Row) -> str:
    """Return the effective precision, and what was requested if that differs; of a script, what
    it told."""
    used, requested = used_precision(row) or "", row["precision"]
    if requested is None or used == requested:
        return used
    words = _("requested: %(precision)s") % {"precision": requested}
    return f"{used} ({words})"


def _batch(row: Row) -> str:
    """Return the batch size, or the samples per step that a script told; empty without
    either."""
    size = row["batch_size"] or row.get("told.samples_per_step")
    return _("batch %(size)s") % {"size": size} if size else ""


def _throughput(row: Row) -> Cell:
    """Return the number, and below it the state of a measurement that is not complete."""
    value = row["throughput"]
    state: Inline = ""
    if row["status"] != "complete":
        failure = row["failure"] and code(row["failure"])
        state = joined([span(_(row["status"]), row["status"]), failure])
    if value is None:
        return Cell(state or _("no number"), "")
    width = plus_minus(value, row["throughput_low"], row["throughput_high"])
    content = joined([strong(number(value)), row["unit"], width, state])
    return Cell(content, f"{row['unit']} {_sortable(value)}")


def _trust(codes: Sequence[str] | None, row: Row) -> Cell:
    """Return the worst warning and the number of others; a dash if they are unknown."""
    if codes is None:
        return Cell("–", "")
    level = _severity(codes, row)
    names = {
        "error": _("error"),
        "caution": _("caution"),
        "notice": _("notice"),
        "undecided": _("too few repeats"),
        None: _("no warnings"),
    }
    mark = Markup('<span class="mark %s"%s>%s %s</span>')
    title = Markup(' title="%s"') % ", ".join(codes) if codes else Markup()
    texts = [mark % (level or "none", title, severity_mark(level), names[level])]
    texts += map(code, codes[:1])
    if len(codes) > 1:
        texts.append(Markup("+%d") % (len(codes) - 1))
    return Cell(joined(texts), str(SORTED_SEVERITIES.index(level)))


def _start(row: Row) -> Cell:
    created = row["created"]
    day, time = created[:10], created[11:16]
    return Cell(joined([day, _note(time)]), created)
