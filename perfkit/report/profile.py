"""Where the time of a step goes, by a measurement's profile; and in which operators two
profiles differ."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from perfkit.analysis.profile.stored import (
    OperatorDifference,
    Profile,
    StepProfile,
    operator_differences,
    read_profile,
)
from perfkit.measuring.format import number, percent, shortened
from perfkit.measuring.results.store import Measurement, ResultError
from perfkit.measuring.statements import N_
from perfkit.report.elements import code, file_link, foreign, joined, note, paragraph, table
from perfkit.report.section import Section, picture
from perfkit.report.style import FAINT, NARROW, new_figure
from perfkit.report.text.language import gettext as _

PARTS = {
    "input": (N_("input"), "#8a5a2b"),
    "forward": (N_("forward"), "#86aee8"),
    "backward": (N_("backward"), "#1f5fbf"),
    "program jit_backward": (N_("gradient program"), "#1f5fbf"),
    "exchange": (N_("exposed exchange"), "#d1495b"),
    "optimizer": (N_("optimizer"), "#2a9d6f"),
    "program jit_take_step": (N_("update program"), "#2a9d6f"),
    "idle": (N_("device idle"), "#d0d7de"),
    "other": (N_("other"), FAINT),
}
"""Part of a step -> its name and colour, in the order of the bar. perfkit's own training in JAX
has two programs."""
PROGRAM_COLOUR = "#7a5cc0"
LEAST_SHARE = 0.0005
"""Parts below are not named: they would be 0.0 %."""
MOST_OPERATORS = 10
NAME_WIDTH = 56
"""Most characters of an operator's name."""


def where_the_step_goes(measurement: Measurement) -> Section:
    """A bar with the parts of the profiled step, the operators with most time, and the traces;
    why the profile failed, if it did; empty without a profile."""
    failed = measurement.profile_failure_file
    if failed.exists():
        words = _("The run with the profiler failed, and the timed repeats do not need it:")
        return paragraph(words, foreign(failed.read_text().strip()))
    try:
        profile = read_profile(measurement)
    except (ResultError, OSError) as error:
        return paragraph(_("The profile can't be read:"), foreign(str(error)))
    if profile is None:
        return Section()
    section, names = _profile(profile), []
    for trace in measurement.trace_files().values():
        names.append(file_link(trace.relative_to(measurement.folder).as_posix()))
    if names:
        words = _("Trace, to open in ui.perfetto.dev or chrome://tracing:")
        section += note(words, joined(names, ", "))
    return section


def _profile(profile: Profile) -> Section:
    draw = partial(_bars, profile.ranks)
    section = picture(draw, N_("Parts of a profiled step"), partial(draw, narrow=True))
    for rank, steps in profile.ranks.items():
        shares = [f"{_(name)} {percent(share)}" for name, share, _colour in _parts(steps)]
        name = f"{_('Rank %(rank)s') % {'rank': rank}}:" if len(profile.ranks) > 1 else ""
        section += paragraph(name, ", ".join(shares))
    shown = profile.slowest
    words = _(
        "%(steps)s profiled steps took %(slowdown)s times as long as the timed ones: read "
        "shares, not times."
    )
    slowdown = number(shown.step_seconds / profile.timed_step_seconds, 3)
    facts = [words % {"steps": shown.steps, "slowdown": slowdown}]
    if shown.hidden_exchange >= LEAST_SHARE:
        words = _("During %(share)s of the step, the exchange is hidden by other work.")
        facts.append(words % {"share": percent(shown.hidden_exchange)})
    rows = [
        [_operator(each.name), number(each.calls, 3), percent(each.share)]
        for each in shown.operators[:MOST_OPERATORS]
    ]
    headings = [_("Operator"), _("Calls per step"), _("Share")]
    return section + note(*facts) + table(rows, headings, as_cards=True)


def _parts(steps: StepProfile) -> Iterable[tuple[str, float, str]]:
    """Yield the name, share and colour of each part, in the order of the bar."""
    order = [*PARTS]
    programs = [part for part in steps.parts if part not in PARTS]
    order[1:1] = sorted(programs, key=lambda part: -steps.parts[part])
    for part in order:
        share = steps.parts.get(part, 0.0)
        name, colour = PARTS.get(part, (part, PROGRAM_COLOUR))
        if share >= LEAST_SHARE:
            yield name, share, colour


def _bars(ranks: Mapping[int, StepProfile], *, narrow: bool = False) -> Figure:
    """Draw a bar for each rank."""
    width, columns = (NARROW, 2) if narrow else (9, 5)
    with new_figure(width, 1.5 + 0.4 * len(ranks)) as (figure, (axes,)):
        legend: dict[str, Any] = {}
        for row, steps in enumerate(ranks.values()):
            begin = 0.0
            for name, share, colour in _parts(steps):
                legend[name] = axes.barh(
                    row, share, left=begin, color=colour, edgecolor="white"
                )
                begin += share
        axes.set(xlim=(0, 1), ylim=(len(ranks) - 0.5, -0.5), xlabel=N_("share of the step"))
        axes.set_yticks(range(len(ranks)), [*map(str, ranks)])
        axes.set_ylabel(N_("rank"))
        axes.grid(visible=False, axis="y")
        figure.legend([*legend.values()], [*legend], loc="outside upper left", ncols=columns)
    return figure


def _operator(name: str) -> str:
    return code(shortened(name, NAME_WIDTH))


def profile_difference(base: Path, variant: Path) -> Section:
    """The operators that account most for the difference between the measurements in two
    folders; empty unless both have a profile of one framework."""
    try:
        measurements = [Measurement.read(folder) for folder in (base, variant)]
        a, b = map(read_profile, measurements)
    except (ResultError, OSError):
        return Section()
    # Operators of two frameworks have no names in common.
    frameworks = {measurement.result.config.framework for measurement in measurements}
    if a is None or b is None or len(frameworks) > 1:
        return Section()
    rows = [_difference(each) for each in operator_differences(a, b)[:MOST_OPERATORS]]
    headings = [_("Operator"), _("Base (s)"), _("Variant (s)"), _("Difference (s)")]
    return table(rows, [*headings, _("Share of the difference")], as_cards=True)


def _difference(each: OperatorDifference) -> list[str]:
    seconds = [number(each.a, 3), number(each.b, 3), number(each.seconds, 3)]
    return [_operator(each.name), *seconds, percent(each.share)]
