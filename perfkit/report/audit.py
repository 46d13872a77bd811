"""The sections of an audit's page; each raises ResultError for a folder without one."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Any, get_args

import pandas as pd
import seaborn
from markupsafe import Markup

from perfkit.config import resolved_path
from perfkit.logs import wording
from perfkit.logs.audit import Audit, Claim, Stage, State, WaterfallStage, read_audit
from perfkit.logs.claims import waterfall
from perfkit.report.pages import TEMPLATES
from perfkit.report.section import Section, folded, markup, paragraph, picture, table
from perfkit.report.style import COLOURS, FAINT, INK, MARKERS, SHADES, new_figure
from perfkit.text import format
from perfkit.text.language import gettext as _

SHOWN = 12
"""So many waterfalls are drawn at most, those with the greatest differences."""


def _text(**context: Any) -> Section:
    template = TEMPLATES.get_template("audit.html.j2")
    return markup(template.render(context, words=wording))


def columns(items: Any, cells: Mapping[str, Callable[[Any], Any]]) -> Any:
    return [[cell(item) for cell in cells.values()] for item in items], [*cells]


def audit_facts(folder: str | Path) -> tuple[str, str]:
    """The page's title, and when the audit was made."""
    audit = _read(folder)
    return _("Audit: %(label)s") % {"label": audit.label}, format.minute(audit.created)


def _read(folder: str | Path) -> Audit:
    return read_audit(resolved_path(str(folder)))


def audit_headline(folder: str | Path) -> Section:
    """How many claimed numbers are reproduced, and how far samples / time is from each."""
    audit = _read(folder)
    text = _text(part="headline", audit=audit, states=get_args(State))
    known = [c for c in audit.claims if c.framework and c.reference_difference is not None]
    return text + _differences(known) if len(known) > 1 else text


def audit_waterfall(folder: str | Path) -> Section:
    """From each published number to the throughput over all steady steps; of logs without a
    claim, from the protocol's steps to the steady ones."""
    audit = _read(folder)
    found = {_label(c): c.waterfall for c in audit.claims if len(c.waterfall) > 1}
    claimed, names = {c.log for c in audit.claims}, wording.short_names(audit.logs)
    free = [log for log in audit.logs if log.name not in claimed]
    found |= {names[log.name]: waterfall(None, [], log) for log in free}
    found = {label: stages for label, stages in found.items() if len(stages) > 1}
    if not found:
        return paragraph(
            _("No log has both the protocol's steps and a steady state."), note=True
        )
    cells: dict[str, Callable[..., str]] = {_("Number"): lambda item: item[0]}
    for stage in get_args(Stage):
        cells[wording.stage_words(stage)] = partial(_stage_cell, stage)
    explained = paragraph(
        _(
            "Each value with its difference from the one before. Where the steady steps differ "
            "from the protocol's, those lie in a warm-up, a cold first epoch or another level."
        ),
        note=True,
    )
    return _waterfall(found) + explained + table(*columns(found.items(), cells))


def _label(claim: Claim) -> str:
    if not claim.framework:
        return claim.place
    name, gpu = format.FRAMEWORK_NAMES[claim.framework], (claim.gpu or "–").split("-")[0]
    words = [name, gpu, claim.precision, claim.topology, f"b{claim.batch_size}", claim.text]
    return " · ".join(str(word) for word in words)


def _stage_cell(stage: str, item: tuple[str, list[WaterfallStage]]) -> str:
    one = next((one for one in item[1] if one.stage == stage), None)
    value = format.number(one.value, 6) if one else ""
    difference = wording.difference_words(one.difference) if one else ""
    return f"{value} ({difference})" if difference else value


def _waterfall(found: Mapping[str, list[WaterfallStage]]) -> Section:
    """A bar for each stage, in percent of the first."""

    def spread(stages: list[WaterfallStage]) -> float:
        return max(abs(one.value / stages[0].value - 1) for one in stages)

    widest = sorted(found.items(), key=lambda item: spread(item[1]), reverse=True)[:SHOWN]
    points = pd.DataFrame(
        [
            (label, wording.stage_words(one.stage), 100 * one.value / stages[0].value)
            for label, stages in widest
            for one in stages
        ],
        columns=["label", "stage", "share"],
    )
    xlabel = _("throughput, in percent of the first stage")
    shades = dict(zip(points["stage"].unique(), [FAINT, *SHADES], strict=False))
    with new_figure(8, 0.9 + 0.12 * len(points) + 0.2 * len(widest)) as (figure, (axes,)):
        seaborn.barplot(
            points, x="share", y="label", hue="stage", palette=shades, orient="h", ax=axes
        )
        bars: Any
        for bars in axes.containers:
            axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=7)
        axes.axvline(100, color=INK, linewidth=1)
        axes.set(xlabel=xlabel, ylabel="", xlim=(0, 1.08 * points["share"].max()))
        seaborn.move_legend(axes, "lower center", bbox_to_anchor=(0.5, 1), ncol=2, title="")
    return picture(figure, xlabel)


def audit_claims(folder: str | Path) -> Section:
    """Each claimed number beside its recomputation; then those without a log."""
    audit = _read(folder)
    numbers = {log.name: k for k, log in enumerate(audit.logs, 1)}
    cells = {
        _("Place"): lambda c: Markup(
            _text(part="place", claim=c, number=numbers.get(c.log)).html
        ),
        _("Claimed"): lambda c: c.text,
        _("State"): lambda c: Markup(_text(part="state", claim=c).html),
        _("Explanation"): lambda c: Markup(_text(part="explanation", claim=c).html),
        _("Samples / time"): lambda c: c.reference and format.number(c.reference.value, 6),
        _("Difference"): lambda c: wording.difference_words(c.reference_difference) or "–",
        _("Data wait"): lambda c: wording.wait_words(c.reference),
        _("Steps"): lambda c: c.reference and wording.range_words(c.reference),
        _("Findings"): lambda c: Markup(_text(part="noticed", claim=c).html),
    }
    found, claims = Section(), pd.Series([c for c in audit.claims if c.log], dtype=object)
    for part, some in claims.groupby(claims.map(wording.part_words), sort=False):
        rows, headings = columns(some, cells)
        found += table(rows, headings, str(part))
    return found + _text(part="without", audit=audit)


def audit_findings(folder: str | Path) -> Section:
    """What was noticed in several logs together, then by file and line."""
    audit = _read(folder)
    files = {log.name: PurePath(log.name).name for log in audit.logs}
    return _text(part="findings", audit=audit, files=files)


def audit_logs(folder: str | Path) -> Section:
    """Each log with its facts and all its figures; the command of the audit."""
    audit, found = _read(folder), Section()
    cells = {
        _("Statistic"): wording.method_words,
        _("Range"): wording.range_words,
        _("All devices (samples/s)"): lambda f: format.number(f.throughput, 7),
        _("One device (samples/s)"): lambda f: format.number(f.per_device, 7),
    }
    for k, log in enumerate(audit.logs, 1):
        figures = table(*columns(log.figures, cells))
        found += folded(log.name, _text(part="log", log=log) + figures, f"log{k}")
    return found + _text(part="command", audit=audit)


def _differences(claims: list[Claim]) -> Section:
    """How far samples / time of a log is from its claim: a dot each, coloured by framework."""
    places = [f"{(c.gpu or '–').split('-')[0]} · {c.precision} · {c.topology}" for c in claims]
    names = [format.FRAMEWORK_NAMES[c.framework or ""] for c in claims]
    shares = [100 * (c.reference_difference or 0) for c in claims]
    kinds = {"hue": names, "style": names, "palette": COLOURS, "markers": MARKERS}
    label = _("recomputed samples / time against the claim (%)")
    with new_figure(8, 0.9 + 0.25 * len({*places})) as (figure, (axes,)):
        seaborn.scatterplot(x=shares, y=places, s=45, ax=axes, **kinds)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_xlabel(label)
        seaborn.move_legend(axes, "center left", bbox_to_anchor=(1, 0.5))
    return picture(figure, label)
