"""Sections of a measurement's page; templates/measurement.html.j2 has their text."""

import shlex
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from perfkit import config, verification
from perfkit.analysis.steady import FEWEST_STEPS, published_throughput
from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.analysis.warnings import Checks, check, checked_aspects
from perfkit.comparison.stored import comparisons_of
from perfkit.diagnosis import EVIDENCE, Diagnosis, diagnosis_lines, read_diagnosis
from perfkit.diagnosis import FILE as DIAGNOSIS
from perfkit.models import MODELS
from perfkit.report import pages, style
from perfkit.report.section import Section, folded, markup
from perfkit.report.step_charts import step_charts
from perfkit.report.words import number_words, warning_words
from perfkit.request.plan import Plan
from perfkit.request.resolve import resolve
from perfkit.results.schema import Result
from perfkit.results.store import NOTEBOOK, RESULT, Measurement, ResultError
from perfkit.statistics import detectable_difference
from perfkit.text import format
from perfkit.text.format import FRAMEWORK_NAMES
from perfkit.text.language import LANGUAGES, in_language
from perfkit.text.language import gettext as _
from perfkit.text.messages import coded


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
    return Steps(step_charts(found.steps, colour), found)


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
    if c.input == "synthetic" or c.nodes > 1:
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
    checked = checked_aspects(result, found.profiles)
    return _text("warnings", result, found.warnings, checked, FEWEST_STEPS)


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
    verify = verification.command(result.config)
    return _text("equivalence", verification.rows, found, verify, unreadable)


def parameters(measurement: Measurement) -> Section:
    """The command that repeats the measurement, and every parameter with its meaning."""
    result, c = measurement.result, measurement.result.config
    return _text(
        "parameters",
        result,
        sampled=c.input != "synthetic" and c.data_dir == MODELS[c.model].data_dir,
        values=result.parameters,
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
    """How the throughput is measured."""
    return _text("method", measurement.result)


def raw_files(measurement: Measurement) -> Section:
    """Links to the result and the raw files, and the check of one against the other."""
    folder, problems = measurement.folder, read_steps(measurement).checks.disagreements
    files = [measurement.result_file, *measurement.raw_files(), *measurement.log_files()]
    files += sorted([*folder.glob(DIAGNOSIS), *folder.glob(f"{EVIDENCE}/*/*.jsonl")])
    sizes = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]
    checked = 0 if problems is None else len(measurement.result.complete_repeats)
    return _text("raw_files", problems, checked, sizes)


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
    return markup(
        line % (number_words(result), warning_words(read_steps(measurement).checks), link)
    )


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
    codes = " ".join(warning.code for warning in read_steps(measurement).checks.warnings)
    for language in LANGUAGES:
        with in_language(language):
            title = format.title(result)
            when = _("Started %(time)s") % {"time": format.minute(result.created)}
            pages.write_notebook(
                folder,
                source,
                {"measurement": measurement},
                result.parameters,
                title,
                keep=notebook and language == "en" and pages.OWN not in source.metadata,
                outputs=folder.parent,
                files=[NOTEBOOK, RESULT],
                title=f"{title} · {result.id.rsplit('-', 1)[-1]}",
                made=f"{when} · {format.device(result)} · {format.framework_version(result)}",
                facts={"warnings": codes} if result.complete_repeats else {},
            )
