"""Sections of a measurement's page; templates/measurement.html.j2 has their text."""

import shlex
from contextlib import suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from perfkit import config, verification
from perfkit.analysis.steady import FEWEST_STEPS, published_throughput
from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.analysis.warnings import Checks, check, checked_aspects
from perfkit.comparison.stored import comparisons_of
from perfkit.diagnosis import EVIDENCE, Diagnosis, diagnosis_lines, read_diagnosis
from perfkit.diagnosis import FILE as DIAGNOSIS
from perfkit.logs.wording import sentence as found_in_log
from perfkit.models import MODELS
from perfkit.report import pages, style
from perfkit.report.section import Section, folded, markup, picture
from perfkit.request.plan import Plan
from perfkit.request.resolve import resolve
from perfkit.results.schema import Result
from perfkit.results.store import NOTEBOOK, RESULT, Measurement, ResultError
from perfkit.statistics import detectable_difference
from perfkit.text import format
from perfkit.text.format import FRAMEWORK_NAMES
from perfkit.text.language import LANGUAGES, in_language, ngettext
from perfkit.text.language import gettext as _
from perfkit.text.language import gettext_noop as later
from perfkit.text.messages import coded

MARGINS = {"left": 0.07, "right": 0.99, "top": 0.86, "bottom": 0.17}
"""Margins of a chart. Computing them would take longer than drawing the chart."""
MOST_RANKS = 8
"""With more ranks, only the fastest and the slowest rank are drawn."""
SHADE: dict[str, Any] = {"color": style.FAINT, "alpha": 0.2, "linewidth": 0}


class Steps(NamedTuple):
    """Charts of the raw steps (empty if there are no raw steps) and results of the checks."""

    charts: Section
    checks: Checks


def read_steps(measurement: Measurement) -> Steps:
    """Read the raw steps, once for all sections and languages of a page."""
    paths = [measurement.result_file, *measurement.raw_files()]
    files = [path.stat() for path in paths]
    stamps = tuple((file.st_mtime_ns, file.st_size) for file in files)
    return _read_steps(measurement.folder, stamps)


@lru_cache(maxsize=1)
def _read_steps(folder: Path, _stamps: tuple[Any, ...]) -> Steps:
    measurement = Measurement.read(folder)
    found = check(measurement)
    if found.steps.empty:
        return Steps(Section(), found)
    colour = style.COLOURS[FRAMEWORK_NAMES[measurement.result.config.framework]]
    alt = later("Time of each step, all repeats overlaid")
    charts = picture(partial(_overlaid, found.steps, colour), alt)
    # A single line is in the first chart already.
    if len(found.steps[["repeat", "rank"]].drop_duplicates()) > 1:
        alt = later("Time of each step, one repeat below another, on one scale")
        each = picture(partial(_each, found.steps, colour), alt)
        charts += folded(later("Each repeat"), each)
    return Steps(charts, found)


def _warmups(steps: pd.DataFrame) -> "pd.Series[int]":
    """Last warm-up step of each repeat that has a warm-up."""
    return steps[~steps["measured"]].groupby("repeat")["step"].max()


@cache
def _canvas() -> tuple[Figure, Axes]:
    """The figure of `_overlaid`: new axes for each chart would take as long as its drawing."""
    with style.new_figure(9, 2.7, layout=None) as (figure, (axes,)):
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.grid(visible=False, axis="x")
        figure.subplots_adjust(**MARGINS)
    return figure, axes


def _overlaid(steps: pd.DataFrame, colour: str) -> Figure:
    """Chart of all repeats overlaid: the slowest rank's seconds by step, and their median. The
    shade of a step grows with the share of repeats that have it in their warm-up."""
    slowest = steps.groupby(["step", "repeat"])[["seconds", "data_wait_seconds"]].max()
    seconds, waits = slowest["seconds"].unstack(), slowest["data_wait_seconds"].unstack()
    x = seconds.index.to_numpy()
    lines = [np.column_stack([x, seconds[repeat]]) for repeat in seconds]
    look: dict[str, Any] = {"colors": style.FAINT, "linewidths": 0.7}
    figure, axes = _canvas()
    for artist in [*axes.collections, *axes.lines, *axes.patches, *axes.texts]:
        artist.remove()
    axes.add_collection(LineCollection(lines, **look))
    axes.plot(x, seconds.median(axis=1), color=colour)
    wait: dict[str, Any] = {"color": style.WAIT, "linewidth": 0}
    axes.fill_between(x, waits.median(axis=1), **wait)
    warmups = _warmups(steps).value_counts(normalize=True)
    for warmup, share in warmups.items():
        shade = SHADE | {"alpha": SHADE["alpha"] * share}
        axes.axvspan(x[0] - 0.5, warmup + 0.5, **shade)
    axes.set(xlim=(x[0] - 0.5, x[-1] + 0.5), xlabel=later("step"))
    axes.set_ylabel(later("step time (s)"))
    style.from_zero(axes, float(steps["seconds"].max()))
    _name(axes, 0.41, later("a repeat"), color=style.FAINT, linewidth=0.7)
    _name(axes, 0.53, later("median of the repeats"), color=colour)
    _name(axes, 0.77, later("data wait"), color=style.WAIT, linewidth=6)
    if not warmups.empty:
        _name(axes, 0.9, later("warm-up"), **SHADE | {"linewidth": 6})
    return figure


def _name(axes: Axes, x: float, name: str, **look: Any) -> None:
    """Write an entry of a legend above the axes. matplotlib's legend would take a third of the
    chart's time."""
    look |= {"solid_capstyle": "butt", "transform": axes.transAxes, "clip_on": False}
    axes.add_line(Line2D([x - 0.035, x - 0.01], [1.08, 1.08], **look))
    axes.text(x, 1.05, name, transform=axes.transAxes)


def _each(steps: pd.DataFrame, colour: str) -> Figure:
    """Chart with a row per repeat, on one scale: a line per rank (with many ranks, only the
    fastest and the slowest), data wait, shaded warm-up. Drawn without axes, which would be
    slow for the thousands of charts of a site."""
    if steps["rank"].nunique() > MOST_RANKS:
        by_step = steps.groupby(["repeat", "step"], as_index=False)
        steps = pd.concat([by_step.max(), by_step.min().assign(rank=-1)])
    first, last, highest = steps["step"].min(), steps["step"].max(), steps["seconds"].max()
    repeats = sorted(steps["repeat"].unique(), reverse=True)
    lines, waits = [], []
    columns = ["step", "seconds", "data_wait_seconds"]
    for (repeat, _rank), group in steps.groupby(["repeat", "rank"])[columns]:
        row = repeats.index(repeat)
        x, seconds, wait = group.to_numpy().T
        lines.append(np.column_stack([x, row + 0.9 * seconds / highest]))
        bottom = [(x[-1], row), (x[0], row)]
        waits.append([*zip(x, row + 0.9 * wait / highest, strict=True), *bottom])
    rows = [[(first, row), (last, row)] for row in range(len(repeats))]
    figure = Figure(figsize=(9, 0.5 * (len(repeats) + 1)))
    # From steps and rows to shares of the figure; the labels are in its margins.
    scale = Affine2D().translate(-first, 0.6)
    scale.scale(0.86 / max(last - first, 1), 1 / (len(repeats) + 1)).translate(0.07, 0)
    place: dict[str, Any] = {"transform": scale + figure.transFigure}
    for repeat, warmup in _warmups(steps).items():
        corner, width = (first, repeats.index(repeat)), max(warmup + 0.5 - first, 0)
        figure.add_artist(Rectangle(corner, width, height=1, **SHADE, **place))
    figure.add_artist(LineCollection(rows, colors="#d8dee4", linewidths=0.8, **place))
    figure.add_artist(PolyCollection(waits, facecolors=style.WAIT, **place))
    figure.add_artist(LineCollection(lines, colors=colour, linewidths=0.8, **place))
    for row, repeat in enumerate(repeats):
        figure.text(0.055, scale.transform((0, row))[1], str(repeat), ha="right")
    figure.text(0.005, 0.99, later("repeat"), va="top")
    figure.text(0.935, scale.transform((0, len(repeats) - 0.1))[1], f"{highest:.3g} s")
    figure.text(0.935, scale.transform((0, len(repeats) - 1))[1], "0 s")
    figure.text(0.07, 0.02, str(first))
    figure.text(0.5, 0.02, later("step"), ha="center")
    figure.text(0.93, 0.02, str(last), ha="right")
    return figure


_text = partial(pages.render, "measurement")


class MeasurementError(RuntimeError):
    """The measurement is not complete; the message gives the reason and the next command."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


def plan(plan: Plan) -> Section:
    """The configuration and protocol of a planned measurement."""
    return _text("plan", plan.config, plan.protocol)


def headline(measurement: Measurement) -> Section:
    """Three tiles (throughput, limit, trust), the failure if any, and related pages."""
    result, found = measurement.result, read_steps(measurement).checks
    diagnosis, _problem = _diagnosis(measurement)
    return _text(
        "headline",
        result,
        warnings=found.warnings,
        problems=found.disagreements,
        checked=checked_aspects(result, found.profiles),
        diagnosis=diagnosis,
        diagnose=diagnose_command(result),
        used=utilization(result),
        links=_related(measurement, diagnosis),
        published=published_throughput(found.profiles),
    )


def _diagnosis(measurement: Measurement) -> tuple[Diagnosis | None, str]:
    """Return the diagnosis, None without one, and why it can't be read."""
    try:
        return read_diagnosis(measurement.folder), ""
    except ResultError as error:
        return None, str(error).replace(f"{measurement.folder}/", "")


def diagnose_command(result: Result) -> str:
    """Return the command that diagnoses the measurement on the same machine, without parameters
    that follow from others; empty if it can't be diagnosed."""
    c = result.config
    if result.imported or c.input == "synthetic" or c.nodes > 1:
        return ""
    kept = {"model", "framework", "precision", "gpus"}
    usual = resolve(c.model_dump(include=kept | {"device"})).model_dump()
    usual |= {"device": "gpu" if result.fact("gpus") else "cpu"}
    usual |= {"protocol": "published" if c.accelerated else "quick"}
    given = format.requested(result).items()
    values = {name: value for name, value in given if name in kept or value != usual.get(name)}
    words = config.run_command(c.model, values)
    return shlex.join(words).replace("perfkit run", "perfkit diagnose", 1)


def _related(measurement: Measurement, diagnosis: Diagnosis | None) -> list[tuple[str, str]]:
    """Return names and addresses of related pages."""
    outputs, own = measurement.folder.parent, measurement.result.id
    found = [
        (_("Interleaved comparison: %(name)s") % {"name": name}, folder)
        for folder, name in comparisons_of(outputs, own)
    ]
    if diagnosis:
        found.append((_("Same configuration, synthetic input"), diagnosis.synthetic_id))
    if measurement.result.config.input == "synthetic":
        folders = pages.DIAGNOSED if pages.PLANNED else diagnosed(outputs)
        label = _("Diagnosis with this measurement")
        found += [(label, folder) for folder in folders.get(own, ())]
    links = [(name, pages.page_address(outputs, folder)) for name, folder in found]
    return [(name, address) for name, address in links if address]


def diagnosed(outputs: Path) -> dict[str, list[str]]:
    """Return the folders below `outputs` with a diagnosis, by the id of the measurement with
    synthetic input."""
    found: dict[str, list[str]] = {}
    for file in sorted(outputs.glob(f"*/{DIAGNOSIS}")):
        with suppress(ResultError):
            if diagnosis := read_diagnosis(file.parent):
                found.setdefault(diagnosis.synthetic_id, []).append(file.parent.name)
    return found


def step_times(measurement: Measurement) -> Section:
    """Charts of all steps, repeats overlaid and one by one, and the steady state."""
    result, steps = measurement.result, read_steps(measurement)
    if not steps.charts.parts:
        return _text("no_steps", result, steps.checks.problem)
    known = [profile for profile in steps.checks.profiles if profile.steadiness]
    steady = _text("steady", result, known, FEWEST_STEPS)
    return steps.charts + folded(_("Steady state"), steady)


def warnings(measurement: Measurement) -> Section:
    """The warnings, worst first, and the checks that were made."""
    result, found = measurement.result, read_steps(measurement).checks
    in_logs = [
        (note.code, f"{note.file}{f', {note.line}' if note.line else ''}: {found_in_log(note)}")
        for note in (result.imported.findings if result.imported else ())
    ]
    checked = checked_aspects(result, found.profiles)
    return _text("warnings", result, found.warnings, checked, FEWEST_STEPS, in_logs)


def repeats(measurement: Measurement) -> Section:
    """Tables of the repeats and, with several ranks, of the ranks."""
    result = measurement.result
    every = [rank for repeat in result.complete_repeats for rank in repeat.ranks]
    numbers = sorted({rank.rank for rank in every})
    ranks = {k: [rank for rank in every if rank.rank == k] for k in numbers}
    return _text("repeats", result, detectable_difference(result.throughputs), ranks)


def limits(measurement: Measurement) -> Section:
    """The diagnosis, and the shares of the measured peak and the datasheet's peak."""
    result, c = measurement.result, measurement.result.config
    found, problem = _diagnosis(measurement)
    sheet = datasheet(result)
    return _text(
        "limits",
        result,
        lines=diagnosis_lines(found, c) if found else {},
        verdict=found and found.verdict,
        problem=problem,
        diagnose=diagnose_command(result),
        used=utilization(result),
        sheet=sheet,
        share=sheet and share_of_datasheet(result, sheet),
    )


def telemetry(measurement: Measurement) -> Section:
    """Other load, clocks, temperatures and energy during each window."""
    return _text("telemetry", measurement.result)


def work_equivalence(measurement: Measurement) -> Section:
    """Results of work verification against other frameworks."""
    result, unreadable = measurement.result, list[str]()
    found = verification.comparisons_of(measurement.folder.parent, result, unreadable)
    verify = "" if result.imported else verification.command(result.config)
    return _text("equivalence", verification.rows, found, verify, unreadable)


def parameters(measurement: Measurement) -> Section:
    """The command that repeats the measurement, and every parameter with its meaning; for an
    imported measurement, the known values and their sources."""
    result, c = measurement.result, measurement.result.config
    known = result.parameters | {"model": c.model}
    known |= {f"environment.{fact}": result.fact(fact) for fact in result.environment}
    facts = result.imported.facts if result.imported else {}
    return _text(
        "parameters",
        result,
        sampled=c.input != "synthetic" and c.data_dir == MODELS[c.model].data_dir,
        sources=[(name, str(known[name]), found_in_log(by)) for name, by in facts.items()],
        values=config.parameter_values(c, result.protocol),
        meanings={
            name: known
            for name, known in config.parameters().items()
            if config.ABOUT[name].identifies
        },
    )


def effective_settings(measurement: Measurement) -> Section:
    """Effective settings as read inside the workers."""
    return _text("settings", measurement.result)


def environment(measurement: Measurement) -> Section:
    """Hardware, driver and versions, with reasons for facts that could not be read."""
    readings = measurement.result.environment
    missing: dict[str, list[str]] = {}
    for name, reading in readings.items():
        if reading.missing:
            missing.setdefault(reading.missing, []).append(format.fact_name(name))
    known = {name: fact.value for name, fact in readings.items() if not fact.missing}
    shown = _text("environment", known, missing)
    return folded(_("%(count)d facts") % {"count": len(readings)}, shown)


def method(measurement: Measurement) -> Section:
    """How the throughput is measured, or derived from imported logs."""
    return _text("method", measurement.result)


def raw_files(measurement: Measurement) -> Section:
    """Links to the result and the raw files, and the check of one against the other."""
    folder, problems = measurement.folder, read_steps(measurement).checks.disagreements
    files = [measurement.result_file, *measurement.raw_files(), *measurement.log_files()]
    files += sorted([*folder.glob(DIAGNOSIS), *folder.glob(f"{EVIDENCE}/*/*.jsonl")])
    sizes = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]
    checked = 0 if problems is None else len(measurement.result.complete_repeats)
    return _text("raw_files", problems, checked, sizes)


def number_words(result: Result) -> str:
    """Return the throughput of a complete measurement with its unit and interval."""
    found = result.throughput
    assert found
    words = f"{format.number(found.value)} {found.unit}, "
    words += _("median of n=%(n)d") % {"n": found.n}
    if found.interval and found.interval_level:
        low, high = map(format.number, found.interval)
        shown = {"level": format.percent(found.interval_level, 4), "low": low, "high": high}
        words += "; " + _("%(level)s interval %(low)s to %(high)s") % shown
    return words


def warning_words(measurement: Measurement) -> str:
    """Return the number of warnings and their codes, worst first."""
    codes = [warning.code for warning in read_steps(measurement).checks.warnings]
    if not codes:
        return _("no warnings")
    words = ngettext(
        "%(count)d warning: %(codes)s", "%(count)d warnings: %(codes)s", len(codes)
    )
    return words % {"count": len(codes), "codes": ", ".join(codes)}


def outcome(measurement: Measurement) -> Section:
    """The last output of a model notebook, which `papermill --log-output` prints: throughput,
    interval, warnings, page. Raises MeasurementError if the measurement is not complete."""
    result, kept = measurement.result, len(measurement.result.complete_repeats)
    if result.status != "complete":
        reason = coded(result.failure) if result.failure else "not finished"
        done = f"{kept} of {result.protocol.repeats} repeats are kept"
        logs = f"Logs: {config.portable(str(measurement.folder / 'logs'))}"
        advice = f"{done}; the same command continues. {logs}" if kept else logs
        raise MeasurementError(f"{result.id} {result.status}: {reason}\n{advice}")
    page = config.portable(str(measurement.page_file))
    link = Markup('<a href="report.html">%s</a>') % page
    line = Markup("<p><strong>%s</strong> · %s · %s</p>")
    return markup(line % (number_words(result), warning_words(measurement), link))


def write_measurement(
    measurement: Measurement, *, notebook: bool = False, executed: Path | None = None
) -> None:
    """Write the measurement's page in every language and, with `notebook`, notebook.ipynb with
    its outputs. `executed` is an executed notebook of the user's: it becomes notebook.ipynb,
    and its cells are on the page too."""
    result, folder = measurement.result, measurement.folder
    if executed:
        pages.keep_own_notebook(executed, folder)
    source = pages.source_notebook(folder, result.config.model)
    values = result.parameters
    if result.imported:
        values = {name: value for name, value in values.items() if value is not None}
    codes = " ".join(warning.code for warning in read_steps(measurement).checks.warnings)
    for language in LANGUAGES:
        with in_language(language):
            title = format.title(result)
            begun = _("Imported %(time)s") if result.imported else _("Started %(time)s")
            when = begun % {"time": format.minute(result.created)}
            pages.write_notebook(
                folder,
                source,
                {"measurement": measurement},
                values,
                title,
                keep=notebook and language == "en" and pages.OWN not in source.metadata,
                outputs=folder.parent,
                files=[NOTEBOOK, RESULT],
                title=f"{title} · {result.id.rsplit('-', 1)[-1]}",
                made=f"{when} · {format.device(result)} · {format.framework_version(result)}",
                facts={"warnings": codes} if result.complete_repeats else {},
            )
