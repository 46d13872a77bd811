"""The sections of an audit's page; each raises ResultError for a folder without one."""

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, get_args

import pandas as pd
import seaborn
from markupsafe import Markup

from perfkit.audit import sentences
from perfkit.audit.sentences import value_of
from perfkit.audit.stored import Claim, State, read_audit
from perfkit.config import resolved_path
from perfkit.report.pages import TEMPLATES
from perfkit.report.section import Section, folded, markup, picture, table
from perfkit.report.style import COLOURS, INK, MARKERS, new_figure
from perfkit.text import format
from perfkit.text.language import gettext as _


def _text(**context: Any) -> Section:
    template = TEMPLATES.get_template("audit.html.j2")
    return markup(template.render(context, words=sentences))


def columns(items: list[Any], cells: dict[str, Callable[[Any], Any]]) -> Any:
    return [[cell(item) for cell in cells.values()] for item in items], [*cells]


def audit_facts(folder: str | Path) -> tuple[str, str]:
    """The page's title, and when the audit was made."""
    audit = read_audit(resolved_path(str(folder)))
    return _("Audit: %(label)s") % {"label": audit.label}, format.minute(audit.created)


def audit_headline(folder: str | Path) -> Section:
    """How many claimed numbers are reproduced, and how far samples / time is from each."""
    audit = read_audit(resolved_path(str(folder)))
    text = _text(part="headline", audit=audit, states=get_args(State))
    known = [c for c in audit.claims if c.framework and c.right_difference is not None]
    return text + _differences(known) if len(known) > 1 else text


def audit_claims(folder: str | Path) -> Section:
    """Each claimed number beside its recomputation; then those without a log."""
    audit = read_audit(resolved_path(str(folder)))
    numbers = {log.name: k for k, log in enumerate(audit.logs, 1)}
    cells = {
        _("Place"): lambda c: Markup(
            _text(part="place", claim=c, number=numbers.get(c.log)).html
        ),
        _("Claimed"): lambda c: c.text,
        _("State"): lambda c: Markup(_text(part="state", claim=c).html),
        _("Explanation"): lambda c: Markup(_text(part="explanation", claim=c).html),
        _("Samples / time"): lambda c: c.right and format.number(value_of(c.right), 6),
        _("Difference"): lambda c: sentences.difference_words(c.right_difference) or "–",
        _("Steps"): lambda c: c.right and sentences.range_words(c.right),
        _("Findings"): lambda c: Markup(_text(part="noticed", claim=c).html),
    }
    found, claims = Section(), pd.Series([c for c in audit.claims if c.log], dtype=object)
    for part, some in claims.groupby(claims.map(sentences.part_words), sort=False):
        found += table(*columns(some, cells), str(part))
    return found + _text(part="without", audit=audit)


def audit_findings(folder: str | Path) -> Section:
    """What was noticed in several logs together, then by file and line."""
    audit = read_audit(resolved_path(str(folder)))
    files = {log.name: PurePath(log.name).name for log in audit.logs}
    return _text(part="findings", audit=audit, files=files)


def audit_logs(folder: str | Path) -> Section:
    """Each log with its facts and all its figures; the command of the audit."""
    audit, found = read_audit(resolved_path(str(folder))), Section()
    cells = {
        _("Statistic"): sentences.way_words,
        _("Range"): sentences.range_words,
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
    shares = [100 * (c.right_difference or 0) for c in claims]
    kinds = {"hue": names, "style": names, "palette": COLOURS, "markers": MARKERS}
    label = _("recomputed samples / time against the claim (%)")
    with new_figure(8, 0.9 + 0.25 * len({*places})) as (figure, (axes,)):
        seaborn.scatterplot(x=shares, y=places, s=45, ax=axes, **kinds)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_xlabel(label)
        seaborn.move_legend(axes, "center left", bbox_to_anchor=(1, 0.5))
    return picture(figure, label)
