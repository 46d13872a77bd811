"""Sections of a measurement's page; templates/measurement.html.j2 has their text."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from perfkit.analysis import verification
from perfkit.analysis.comparison.stored import comparisons_with
from perfkit.analysis.diagnosis import EVIDENCE, Diagnosis, diagnosis_lines, read_diagnosis
from perfkit.analysis.diagnosis import FILE as DIAGNOSIS
from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.analysis.warnings import MeasurementChecks, check, checked_aspects
from perfkit.core import config
from perfkit.core.command import run_command
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.models import model_of
from perfkit.core.paths import portable
from perfkit.core.request.plan import Plan
from perfkit.core.request.resolve import resolve
from perfkit.core.results.schema import Result
from perfkit.core.results.store import NOTEBOOK, RESULT, Measurement, ResultError
from perfkit.core.statistics import detectable_difference
from perfkit.core.steady import FEWEST_STEPS, published_throughput
from perfkit.report import pages
from perfkit.report.section import Section, folded, markup
from perfkit.report.step_charts import step_charts
from perfkit.report.text import names
from perfkit.report.text.language import LANGUAGES, in_language
from perfkit.report.text.language import gettext as _
from perfkit.report.words import number_words, warning_words


@dataclass(frozen=True, repr=False, eq=False)
class CheckedMeasurement(Measurement):
    """A measurement with all that its sections show: the checks of its raw files, the charts of
    its raw steps (empty if there are none), and the site that its page is part of."""

    checks: MeasurementChecks
    charts: Section
    site: pages.Site


def checked(measurement: Measurement, site: pages.Site | None = None) -> CheckedMeasurement:
    """Return the measurement with its checks and charts; its raw files are read unless they
    have been."""
    if isinstance(measurement, CheckedMeasurement):
        return measurement
    folder, result, charts = measurement.folder, measurement.result, Section()
    checks = check(measurement)
    if not checks.steps.empty:
        colour = FRAMEWORKS[result.config.framework].colour
        charts = step_charts(checks.steps, colour)
    site = site or pages.Site.read(folder.parent)
    return CheckedMeasurement(folder, result, checks, charts, site)


def _text(measurement: Measurement, macro: str, *values: Any, **named: Any) -> Section:
    return pages.render("measurement", macro, measurement.folder, *values, **named)


class MeasurementError(RuntimeError):
    """The measurement is not complete; the message gives the reason and the next command."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


def plan(plan: Plan) -> Section:
    """The configuration and protocol of a planned measurement."""
    return pages.render("measurement", "plan", None, plan.config, plan.protocol)


def headline(measurement: Measurement) -> Section:
    """Three tiles (throughput, limit, trust), the failure if any, and related pages."""
    page = checked(measurement)
    result, found = page.result, page.checks
    diagnosis, _problem = _diagnosis(page)
    return _text(
        measurement,
        "headline",
        result,
        warnings=found.warnings,
        problems=found.disagreements,
        checked=checked_aspects(result, found.profiles),
        diagnosis=diagnosis,
        diagnose=diagnose_command(result),
        used=utilization(result),
        links=_related(page, diagnosis),
        published=published_throughput(found.profiles),
    )


def _diagnosis(measurement: Measurement) -> tuple[Diagnosis | None, str]:
    """Return the diagnosis, None without one, and why it can't be read."""
    try:
        return read_diagnosis(measurement.folder), ""
    except ResultError as error:
        return None, error.relative_to(measurement.folder)


def diagnose_command(result: Result) -> str:
    """Return the command that diagnoses the measurement on the same machine, without parameters
    that follow from others; empty if it can't be diagnosed."""
    c = result.config
    if c.input == "synthetic" or c.nodes > 1:
        return ""
    kept = {"model", "framework", "precision", "gpus"}
    usual = resolve(c.model_dump(include=kept | {"device"})).model_dump()
    usual |= {"device": "gpu" if result.fact("gpus") else "cpu"}
    usual |= {"protocol": "published" if c.accelerated else "quick"}
    given = names.requested(result).items()
    values = {name: value for name, value in given if name in kept or value != usual.get(name)}
    words = run_command(c.model, values)
    return shlex.join(words).replace("perfkit run", "perfkit diagnose", 1)


def _related(
    measurement: CheckedMeasurement, diagnosis: Diagnosis | None
) -> list[tuple[str, str]]:
    """Return names and addresses of related pages."""
    site, own = measurement.site, measurement.result.id
    found = [
        (
            _("Interleaved comparison: %(name)s") % {"name": names.variant_names(comparison)},
            folder,
        )
        for folder, comparison in comparisons_with(site.outputs, own)
    ]
    if diagnosis:
        found.append((_("Same configuration, synthetic input"), diagnosis.synthetic_id))
    if measurement.result.config.input == "synthetic":
        label = _("Diagnosis with this measurement")
        found += [(label, folder) for folder in site.diagnosed.get(own, ())]
    links = [(name, site.address(folder)) for name, folder in found]
    return [(name, address) for name, address in links if address]


def step_times(measurement: Measurement) -> Section:
    """Charts of all steps, repeats overlaid and one by one, and the steady state."""
    page = checked(measurement)
    result, checks = page.result, page.checks
    if not page.charts.parts:
        return _text(page, "no_steps", result, checks.problem)
    known = [profile for profile in checks.profiles if profile.steadiness]
    steady = _text(measurement, "steady", result, known, FEWEST_STEPS)
    return page.charts + folded(_("Steady state"), steady)


def warnings(measurement: Measurement) -> Section:
    """The warnings, worst first, and the checks that were made."""
    result, found = measurement.result, checked(measurement).checks
    aspects = checked_aspects(result, found.profiles)
    return _text(measurement, "warnings", result, found.warnings, aspects, FEWEST_STEPS)


def repeats(measurement: Measurement) -> Section:
    """Tables of the repeats and, with several ranks, of the ranks."""
    result = measurement.result
    every = [rank for repeat in result.complete_repeats for rank in repeat.ranks]
    numbers = sorted({rank.rank for rank in every})
    ranks = {k: [rank for rank in every if rank.rank == k] for k in numbers}
    return _text(
        measurement, "repeats", result, detectable_difference(result.throughputs), ranks
    )


def limits(measurement: Measurement) -> Section:
    """The diagnosis, and the shares of the measured peak and the datasheet's peak."""
    result, c = measurement.result, measurement.result.config
    found, problem = _diagnosis(measurement)
    sheet = datasheet(result)
    return _text(
        measurement,
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
    return _text(measurement, "telemetry", measurement.result)


def work_equivalence(measurement: Measurement) -> Section:
    """Results of work verification against other frameworks."""
    result, unreadable = measurement.result, list[str]()
    found = verification.comparisons_of(measurement.folder.parent, result, unreadable)
    verify = verification.command(result.config)
    return _text(measurement, "equivalence", verification.rows, found, verify, unreadable)


def parameters(measurement: Measurement) -> Section:
    """The command that repeats the measurement, and every parameter with its meaning."""
    result, c = measurement.result, measurement.result.config
    return _text(
        measurement,
        "parameters",
        result,
        sampled=c.input != "synthetic" and c.data_dir == model_of(c).data_dir,
        values=result.parameters,
        meanings={
            name: known
            for name, known in config.parameters().items()
            if config.ABOUT[name].identifies
        },
    )


def effective_settings(measurement: Measurement) -> Section:
    """Effective settings as read inside the workers."""
    return _text(measurement, "settings", measurement.result)


def environment(measurement: Measurement) -> Section:
    """Hardware, driver and versions, with reasons for facts that could not be read."""
    readings = measurement.result.environment
    missing: dict[str, list[str]] = {}
    for name, reading in readings.items():
        if reading.missing:
            missing.setdefault(reading.missing, []).append(names.fact_name(name))
    known = {name: fact.value for name, fact in readings.items() if not fact.missing}
    shown = _text(measurement, "environment", known, missing)
    return folded(_("%(count)d facts") % {"count": len(readings)}, shown)


def method(measurement: Measurement) -> Section:
    """How the throughput is measured."""
    return _text(measurement, "method", measurement.result)


def raw_files(measurement: Measurement) -> Section:
    """Links to the result and the raw files, and the check of one against the other."""
    folder, problems = measurement.folder, checked(measurement).checks.disagreements
    files = [measurement.result_file, *measurement.raw_files(), *measurement.log_files()]
    files += sorted([*folder.glob(DIAGNOSIS), *folder.glob(f"{EVIDENCE}/*/*.jsonl")])
    sizes = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]
    agreeing = 0 if problems is None else len(measurement.result.complete_repeats)
    return _text(measurement, "raw_files", problems, agreeing, sizes)


def outcome(measurement: Measurement) -> Section:
    """The last output of a model notebook, which `papermill --log-output` prints: throughput,
    interval, warnings, page. Raises MeasurementError if the measurement is not complete."""
    result, kept = measurement.result, len(measurement.result.complete_repeats)
    if result.status != "complete":
        reason = result.failure.line() if result.failure else "not finished"
        done = f"{kept} of {result.protocol.repeats} repeats are kept"
        logs = f"Logs: {portable(str(measurement.folder / 'logs'))}"
        advice = f"{done}; the same command continues. {logs}" if kept else logs
        raise MeasurementError(f"{result.id} {result.status}: {reason}\n{advice}")
    page = portable(str(measurement.page_file))
    link = Markup('<a href="report.html">%s</a>') % page
    line = Markup("<p><strong>%s</strong> · %s · %s</p>")
    warned = warning_words(checked(measurement).checks)
    words = line % (number_words(result), warned, link)
    return markup(words, measurement.folder)


def write_measurement(
    measurement: Measurement, *, notebook: bool = False, executed: Path | None = None
) -> None:
    """Write the measurement's page in every language and, with `notebook`, notebook.ipynb with
    its outputs. `executed` is an executed notebook of the user's: it becomes notebook.ipynb,
    and its cells are on the page too."""
    page = checked(measurement)
    result, folder = page.result, page.folder
    if executed:
        pages.keep_own_notebook(executed, folder)
    source = pages.source_notebook(folder, result.config.model)
    codes = " ".join(warning.code for warning in page.checks.warnings)
    for language in LANGUAGES:
        with in_language(language):
            title = names.title(result)
            when = _("Started %(time)s") % {"time": names.minute(result.created)}
            pages.write_notebook(
                folder,
                source,
                {"measurement": page},
                result.parameters,
                title,
                keep=notebook and language == "en" and pages.OWN not in source.metadata,
                site=page.site,
                files=[NOTEBOOK, RESULT],
                title=f"{title} · {result.id.rsplit('-', 1)[-1]}",
                made=f"{when} · {names.device(result)} · {names.framework_version(result)}",
                facts={"warnings": codes} if result.complete_repeats else {},
            )
