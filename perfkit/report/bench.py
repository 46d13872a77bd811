"""The sections of the page of the suite's own figures; each raises ResultError without any."""

from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure as Chart

from perfkit.config import resolved_path
from perfkit.report import pages
from perfkit.report.measurement import environment_table
from perfkit.report.section import Section, columns, picture, table
from perfkit.report.style import Dots, dot_plot
from perfkit.results.figures import Figure, Number, figures_file, read_figures
from perfkit.results.files import ResultError
from perfkit.results.schema import NOT_IDENTITY
from perfkit.text import format
from perfkit.text.language import gettext as _


def bench_facts(outputs_dir: str | Path) -> tuple[str, str]:
    """The page's title, and when the newest figure was made."""
    newest = max(figure.created for figure in _read(outputs_dir).values())
    made = format.minute(newest.astimezone(UTC).isoformat())
    return _("The suite's own figures"), made


def bench_headline(outputs_dir: str | Path) -> Section:
    """How many figures there are, when they were made, and which failed."""
    return pages.prose("bench_overview", figures=_read(outputs_dir), text=format)


def bench_figures(outputs_dir: str | Path) -> Section:
    """Every figure with its numbers, intervals and runs; the environment of the newest."""
    figures, found = _read(outputs_dir), Section()
    newest = max(figures.values(), key=lambda figure: figure.created)
    known = {"newest": newest, "ignored": NOT_IDENTITY, "text": format}
    cells = {
        _("Number"): lambda n: n.name,
        _("Value"): lambda n: f"{format.number(n.value)} {n.unit if n.values else ''}",
        _("Interval"): lambda n: format.interval(*n.interval or (None, None)),
        _("Level"): lambda n: format.percent(n.interval_level, 4),
        _("Runs"): lambda n: Markup(pages.prose("bench_runs", number=n, text=format).html),
    }
    for name, figure in figures.items():
        found += pages.prose("bench_figure", name=name, figure=figure, **known)
        if figure.numbers:
            found += table(columns([(n,) for n in figure.numbers], cells), name)
        if plot := run_plot(figure.numbers):
            found += picture(plot, name)
    return found + environment_table(newest.environment)


def run_plot(numbers: Sequence[Number]) -> Chart | None:
    """The runs of the suite's own numbers as a dot plot: ratios of pairs, and other runs as
    multiples of their median. None where no number has several positive runs."""
    found = []
    for one in numbers:
        unit = 1 if one.pairs else one.value
        runs = [run / unit for run in one.runs if one.n > 1 and min(one.runs) > 0]
        ends = one.interval and (one.interval[0] / unit, one.interval[1] / unit)
        if runs:
            found.append(Dots(one.name, runs, one.value / unit, ends, format.number(one.value)))
    return dot_plot(found, _("ratio of a pair, or run / median")) if found else None


def _read(outputs_dir: str | Path) -> dict[str, Figure]:
    place = resolved_path(str(outputs_dir))
    if not (figures := read_figures(place)):
        raise ResultError(f"no figures in {figures_file(place)}; make them: make bench")
    return figures
