"""Measurements beside references: published numbers, or the user's own."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from perfkit.analysis.own_references import Judged, OwnComparison, State
from perfkit.analysis.published.cells import FRAMEWORK_NAMES, PublishedCell
from perfkit.analysis.published.references import (
    Reference,
    Referenced,
    referenced,
)
from perfkit.measuring.format import interval, number, percent, plain, plus_minus
from perfkit.measuring.results.store import Measurement
from perfkit.report.elements import (
    bullets,
    joined,
    more,
    note,
    paragraph,
    severity_mark,
    strong,
    table,
)
from perfkit.report.published_cells import TABLE_PRECISION
from perfkit.report.section import Section
from perfkit.report.text.language import enumerated
from perfkit.report.text.language import gettext as _
from perfkit.report.verdicts import ratio_words

MOST_REFERENCES = 10
"""Most references of a measurement that are listed; the JSON has all."""
STATE_SEVERITIES: dict[State, str | None] = {
    "ok": None,
    "low": "error",
    "no reference": "undecided",
}


def most_alike(measurement: Measurement) -> Section:
    """The ratio to the most alike published number; empty without any."""
    found = referenced(measurement)
    if not found:
        return Section()
    nearest, *_others = found.references
    cell = nearest.published
    words = _("%(ratio)s of %(source)s on %(gpu)s (%(conditions)s)")
    facts = {
        "ratio": f"{nearest.ratio:.2f}",
        "source": cell.source,
        "gpu": cell.gpu.split("-")[0],
        "conditions": enumerated(_setup(cell)),
    }
    return paragraph(words % facts)


def _setup(cell: PublishedCell) -> Iterator[str]:
    yield FRAMEWORK_NAMES[cell.framework]
    yield _(TABLE_PRECISION[cell.precision])
    if cell.input:
        yield _("synthetic data") if cell.input == "synthetic" else _("real data")


def beside_published_section(found: Referenced) -> Section:
    """The ratios of a measurement to the published numbers, and what differs."""
    measured = f"{number(found.per_device)} {plain(found.unit)} per device"
    rows = []
    for each in found.references[:MOST_REFERENCES]:
        cell = each.published
        source = enumerated(filter(None, [cell.source, cell.gpu, cell.setup]))
        differing = "; ".join(_differing(each))
        rows.append([ratio_words(each, found.level), number(cell.per_gpu), source, differing])
    headings = ["Ratio", "Published", "Source", "Published with"]
    section = paragraph(strong(found.name), f"{measured} on {plain(found.gpu)}.")
    section += table(rows, headings, as_cards=True)
    section += more(len(found.references) - len(rows), "--json has all")
    return section + note(
        "Ratios are measured / published, of one device. A published number has no interval. "
        "Only what its source states is compared."
    )


def _differing(reference: Reference) -> Iterator[str]:
    """Yield the published value of each condition that differs, and the source's remark."""
    for name, (published, _measured) in reference.conditions.items():
        yield f"{name} {FRAMEWORK_NAMES.get(published, published)}"
    if reference.published.note:
        yield reference.published.note


def beside_own_section(found: OwnComparison) -> Section:
    """A row for each measurement and reference."""
    counts = Counter(each.state for each in found.judged)
    states = [f"{counts[state]} {state}" for state in STATE_SEVERITIES]
    rows = [_judged_row(each) for each in found.judged]
    headings = ["", "Measurement", "Per device", "Reference"]
    section = paragraph(strong(", ".join(states))) + table(rows, headings, as_cards=True)
    section += bullets(_low(each) for each in found.judged if each.state == "low")
    units = ", ".join(sorted({plain(each.unit) for each in found.judged}))
    tolerance = f"the tolerance ({percent(found.tolerance)} unless the entry has its own)"
    words = f"Low: the whole interval is more than {tolerance} below the reference."
    return section + note(f"Medians in {units}. {words}")


def _judged_row(judged: Judged) -> list[Any]:
    state = joined([severity_mark(STATE_SEVERITIES[judged.state]), judged.state])
    width = plus_minus(judged.per_device, *(judged.interval or ()))
    reference = judged.reference and number(judged.reference.value)
    return [state, judged.name, f"{number(judged.per_device)} {width}".rstrip(), reference]


def _low(judged: Judged) -> str:
    assert judged.reference
    ends = interval(*judged.interval) if judged.interval else number(judged.per_device)
    reference = plain(f"{number(judged.reference.value)}, {judged.reference.source}")
    return f"{judged.name}: {ends}; reference: {reference}"
