"""The page of an audit."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from perfkit.analysis.published.cells import FRAMEWORK_NAMES
from perfkit.audit.audit import Audit, read_audit
from perfkit.audit.claim import GIVEN, Claim
from perfkit.audit.claims import Waterfall, waterfall
from perfkit.audit.figure import unit_for
from perfkit.audit.statements import DIGITS
from perfkit.measuring.format import minute, number, shortened
from perfkit.measuring.paths import outputs_path
from perfkit.report.audit_answer import answer_text
from perfkit.report.audit_summary import answers, details, findings
from perfkit.report.audit_text import (
    STAGES,
    claim_counts,
    difference_text,
    short_names,
    stage_text,
    state_text,
)
from perfkit.report.audited_claims import claimed
from perfkit.report.elements import (
    bullets,
    command,
    note,
    paragraph,
    part,
    strong,
    table,
    title,
)
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import FAINT, INK, SHADES, new_figure
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext

MOST_ROWS = 40
"""Of more waterfalls there is a table alone."""
NARROWEST = 0.5
"""Least percent on both sides of 0 that the chart shows: else it would magnify rounding."""

Waterfalls = Mapping[str, Waterfall]
"""Label of a number or log -> its waterfall."""


def audit_facts(folder: str | Path) -> tuple[str, str]:
    """Return the page's title and the time of the audit."""
    audit = _read(folder)
    return _("Audit: %(label)s") % {"label": audit.label}, minute(audit.created)


def _read(folder: str | Path) -> Audit:
    return read_audit(outputs_path(folder))


def page(folder: str | Path) -> Section:
    """The answer of the log, or the logs side by side, claims, findings and each log. Raises
    ResultError for a folder without an audit."""
    audit = _read(folder)
    section = headline(audit)
    section += part(_("From the published number to the answer"), from_published(audit))
    section += part(_("Claimed and recomputed"), claimed(audit))
    section += part(_("Findings"), findings(audit.logs, short_names(audit.logs)))
    section += part(_("Logs"), _logs(audit))
    return section.on_page_in(outputs_path(folder))


def headline(audit: Audit) -> Section:
    """The answer of the log, or the logs side by side, and counts of claims by state."""
    counts = claim_counts(audit.claims)
    if [claim.place for claim in audit.claims] == [GIVEN]:
        (claim,) = audit.claims
        counts = [f"{claim.text}: {state_text(claim)}"]
    section = title(_("Audit: %(label)s") % {"label": audit.label}) + answers(audit)
    if counts:
        section += paragraph(strong(" · ".join(counts)))
    return section + note(*_about(audit)) + _left_out(audit)


def _about(audit: Audit) -> Iterator[str]:
    """Yield what was read, and what the states of claims mean."""
    count = len(audit.logs)
    words = ngettext("%(count)s log was read.", "%(count)s logs were read.", count)
    yield words % {"count": count}
    if audit.tables:
        yield _("Published tables: %(tables)s.") % {"tables": ", ".join(audit.tables)}
    if audit.claims:
        yield _(
            "A number is reproduced if a statistic of its log has the same digits; the "
            "explanation names the statistic. The log's answer is its throughput itself."
        )


def _left_out(audit: Audit) -> Section:
    count = len(audit.left_out)
    if not count:
        return Section()
    words = ngettext("%(count)s file was left out:", "%(count)s files were left out:", count)
    return paragraph(strong(words % {"count": count})) + bullets(audit.left_out, "en")


# From the published number to the answer.


def from_published(audit: Audit) -> Section:
    """Stages from each published number to the log's answer; for a log without one in the unit
    of its answer, from the protocol's steps."""
    waterfalls = _waterfalls(audit)
    if not waterfalls:
        return Section()
    rows = []
    for label, (stages, unit, of_all) in waterfalls.items():
        texts = dict.fromkeys(STAGES, "")
        before = None
        for stage, value in stages:
            texts[stage] = number(value, DIGITS)
            if before:
                texts[stage] += f" ({difference_text(value / before - 1)})"
            before = value
        rows.append([label, *texts.values(), unit_for(unit, of_all=of_all)])
    headings = [_("Number"), *map(stage_text, STAGES), _("Unit")]
    section = note(
        _(
            "Each value has its difference from the previous value. If the answer differs from "
            "the protocol's steps, these lie in a warm-up, a cold first epoch or at another "
            "level, or the timestamps differ from the printed times."
        )
    ) + table(rows, headings, as_cards=True)
    if len(waterfalls) > MOST_ROWS:
        return section
    name = _("difference from the first stage (%)")
    return picture(waterfall_chart(waterfalls), name) + section


def _waterfalls(audit: Audit) -> Waterfalls:
    """Return the waterfalls with two stages or more: one for each claim in the unit of its
    log's answer, and those of the other logs."""
    logs = {log.name: log for log in audit.logs}
    names = short_names(audit.logs)
    labels = [_label(claim) for claim in audit.claims]
    waterfalls, claimed = {}, set()
    for claim in audit.claims:
        drawn = waterfall(logs[claim.log], claim) if claim.log else None
        if drawn and drawn.stages[0].stage == "claimed":
            label = _label(claim)
            if labels.count(label) > 1:
                # Several logs are runs of one cell.
                label = f"{names[str(claim.log)]} · {label}"
            waterfalls[label] = drawn
            claimed.add(claim.log)
    for log in audit.logs:
        drawn = waterfall(log)
        if drawn and log.name not in claimed:
            waterfalls[names[log.name]] = drawn
    return {label: drawn for label, drawn in waterfalls.items() if len(drawn.stages) > 1}


def _label(claim: Claim) -> str:
    """Return what a number is of: PyTorch · V100 · fp32 · 1x8 · b256 · 2602.629."""
    if not claim.framework:
        return claim.text
    name, gpu = FRAMEWORK_NAMES[claim.framework], (claim.gpu or "–").split("-")[0]
    batch_size = f"b{claim.batch_size}"
    traits = [name, gpu, claim.precision, claim.topology, batch_size, claim.text]
    return " · ".join(str(trait) for trait in traits)


def waterfall_chart(waterfalls: Waterfalls) -> Figure:
    """Return a chart with a row per number: the difference of each stage from the first, in
    percent."""
    import seaborn

    rows = []
    for label, drawn in waterfalls.items():
        first = drawn.stages[0].value
        for stage, value in drawn.stages:
            rows.append([label, stage_text(stage), 100 * (value / first - 1)])
    points = pd.DataFrame(rows, columns=["label", "stage", "share"])
    labels = points["label"].unique()
    stages = [text for text in map(stage_text, STAGES) if text in {*points["stage"]}]
    palette = [INK, FAINT, *SHADES[1:]][: len(stages)]
    look: dict[str, Any] = {"hue": "stage", "style": "stage", "palette": palette, "s": 55}
    look |= {"hue_order": stages, "style_order": stages}
    axis = _("difference from the first stage (%)")
    with new_figure(9, 1 + 0.3 * len(labels)) as (figure, (axes,)):
        seaborn.scatterplot(points, x="share", y="label", ax=axes, zorder=3, **look)
        axes.axvline(0, color=INK, linewidth=1)
        left, right = axes.get_xlim()
        axes.set_xlim(min(left, -NARROWEST), max(right, NARROWEST))
        axes.set_yticks(range(len(labels)), [shortened(label, 56) for label in labels])
        axes.set(xlabel=axis, ylabel="")
        seaborn.move_legend(axes, "lower left", bbox_to_anchor=(0, 1), ncol=2, title="")
    return figure


# Logs.


def _logs(audit: Audit) -> Section:
    """Return the facts and figures of each log, and the command of the audit."""
    section = Section()
    for index, log in enumerate(audit.logs, 1):
        name = f"{log.name}: {answer_text(log)}"
        section += folded(name, details(log), f"log{index}")
    return section + paragraph(_("To repeat this audit:")) + command(audit.command)
