"""Sections of an audit's page. Each raises ResultError for a folder without an audit."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from perfkit.analysis.published import FRAMEWORK_NAMES
from perfkit.audit import wording
from perfkit.audit.audit import Audit, Claim, Stage, State, WaterfallStage, read_audit
from perfkit.core.format import minute, shortened
from perfkit.core.paths import resolved_path
from perfkit.report.pages import render
from perfkit.report.section import Section, picture
from perfkit.report.style import FAINT, INK, SHADES, new_figure
from perfkit.report.text.language import gettext as _

MOST_ROWS = 12
"""Waterfalls that are drawn at most: those with the largest differences."""


def audit_facts(folder: str | Path) -> tuple[str, str]:
    """Return the page's title and the time of the audit."""
    audit = _read(folder)
    return _("Audit: %(label)s") % {"label": audit.label}, minute(audit.created)


def _read(folder: str | Path) -> Audit:
    return read_audit(resolved_path(str(folder)))


def _text(folder: str | Path, macro: str, *values: Any) -> Section:
    return render("audit", macro, Path(folder), *values)


def audit_headline(folder: str | Path) -> Section:
    """Counts of claims by state."""
    return _text(folder, "headline", _read(folder), get_args(State))


def audit_waterfall(folder: str | Path) -> Section:
    """Stages from each published number to the throughput over all steady steps; for a log
    without a claim, from the protocol's steps to the steady steps."""
    # Imported here: pages of measurements need no log formats, which take time to compile.
    from perfkit.audit.claims import waterfall

    audit = _read(folder)
    claimed, names = {c.log for c in audit.claims}, wording.short_names(audit.logs)
    found, labels = {}, Counter(map(_label, audit.claims))
    for claim in audit.claims:
        label = _label(claim)
        if claim.log and labels[label] > 1:
            # Several logs are runs of one cell.
            label = f"{names[claim.log]} · {label}"
        found[label] = claim.waterfall
    free = [log for log in audit.logs if log.name not in claimed]
    found |= {names[log.name]: waterfall(None, [], log) for log in free}
    found = {label: stages for label, stages in found.items() if len(stages) > 1}
    text = _text(folder, "waterfalls", found, get_args(Stage))
    return _waterfall(found) + text if found else text


def _label(claim: Claim) -> str:
    if not claim.framework:
        return claim.place
    name, gpu = FRAMEWORK_NAMES[claim.framework], (claim.gpu or "–").split("-")[0]
    words = [name, gpu, claim.precision, claim.topology, f"b{claim.batch_size}", claim.text]
    return " · ".join(str(word) for word in words)


def _waterfall(found: Mapping[str, list[WaterfallStage]]) -> Section:
    """Chart with a row per number: the difference of each stage from the first, in percent."""
    import seaborn

    names = {stage: wording.label("stage", stage) for stage in get_args(Stage)}
    points = pd.DataFrame(
        [
            (label, names[stage.stage], 100 * (stage.value / stages[0].value - 1))
            for label, stages in found.items()
            for stage in stages
        ],
        columns=["label", "stage", "share"],
    )
    widest = points["share"].abs().groupby(points["label"]).max().nlargest(MOST_ROWS).index
    points = points[points["label"].isin(widest)]
    rows, shown = points["label"].unique(), {*points["stage"]}
    order = [name for name in names.values() if name in shown]
    look: dict[str, Any] = {"hue_order": order, "style_order": order, "s": 55, "zorder": 3}
    look |= {"palette": [INK, FAINT, *SHADES[1:]][: len(order)], "hue": "stage"}
    line = {"units": "label", "estimator": None, "sort": False, "color": FAINT}
    label = _("difference from the first stage (%)")
    with new_figure(9, 1 + 0.3 * len(rows)) as (figure, (axes,)):
        at: dict[str, Any] = {"data": points, "x": "share", "y": "label", "ax": axes}
        seaborn.lineplot(**at, linewidth=1.5, **line)
        seaborn.scatterplot(**at, style="stage", **look)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(rows)), [shortened(row, 48) for row in rows])
        axes.set(xlabel=label, ylabel="")
        seaborn.move_legend(axes, "lower left", bbox_to_anchor=(0, 1), ncol=2, title="")
    return picture(figure, label)


def audit_claims(folder: str | Path) -> Section:
    """Each claimed number with its recomputation, then claims without a log."""
    audit = _read(folder)
    return _text(folder, "claims", audit, {log.name: k for k, log in enumerate(audit.logs, 1)})


def audit_findings(folder: str | Path) -> Section:
    """Findings about several logs together, then findings by file and line."""
    audit = _read(folder)
    return _text(folder, "findings", audit, wording.short_names(audit.logs))


def audit_logs(folder: str | Path) -> Section:
    """The facts and figures of each log, and the command of the audit."""
    return _text(folder, "logs", _read(folder))
