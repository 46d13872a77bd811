"""The sections of a measurement's page. Their text is in templates/measurement.html.j2."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

from perfkit import config
from perfkit.analysis.sanity import looked_at
from perfkit.analysis.steady import FEWEST_STEPS
from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.comparison.live.stored import comparisons_of
from perfkit.diagnosis.verdict import EVIDENCE, Diagnosis, read_diagnosis
from perfkit.diagnosis.verdict import FILE as DIAGNOSIS
from perfkit.diagnosis.words import VERDICTS, diagnosis_lines
from perfkit.frameworks.paddle import presets
from perfkit.logs.wording import sentence as found_in_log
from perfkit.models import MODELS
from perfkit.report import pages
from perfkit.report.section import Section, folded
from perfkit.report.steps import read_steps
from perfkit.request.plan import Plan
from perfkit.results.schema import Reading
from perfkit.results.store import NOTEBOOK, RESULT, Measurement, ResultError
from perfkit.statistics import noise_floor
from perfkit.text import format
from perfkit.text.language import LANGUAGES, file_name, in_language
from perfkit.text.language import gettext as _
from perfkit.verification import words as work

_text = partial(pages.render, "measurement")


def plan(plan: Plan) -> Section:
    """What will be measured, before it runs."""
    return _text("plan", c=plan.config, p=plan.protocol)


def headline(measurement: Measurement) -> Section:
    """Three tiles: the throughput, what limits it, and whether it can be trusted; then what
    went wrong, and the pages that the measurement belongs to."""
    result, found = measurement.result, read_steps(measurement).checks
    diagnosis, _problem = _diagnosis(measurement)
    checked = looked_at(result, found.courses)
    return _text(
        "headline",
        result=result,
        warnings=found.warnings,
        unchecked=[what for what, is_known in checked.items() if not is_known],
        verdict=diagnosis and VERDICTS[diagnosis.verdict],
        used=utilization(result),
        links=_related(measurement, diagnosis),
    )


def _diagnosis(measurement: Measurement) -> tuple[Diagnosis | None, str]:
    """The diagnosis, if there is one; why it can't be read."""
    try:
        return read_diagnosis(measurement.folder), ""
    except ResultError as error:
        return None, str(error).replace(f"{measurement.folder}/", "")


def _related(measurement: Measurement, diagnosis: Diagnosis | None) -> list[tuple[str, str]]:
    """Names and addresses of the pages that this one belongs to."""
    outputs, own = measurement.folder.parent, measurement.result.id
    found = [
        (_("Interleaved comparison: %(name)s") % {"name": name}, folder)
        for folder, name in comparisons_of(outputs).get(own, [])
    ]
    if diagnosis:
        found.append((_("Same configuration, synthetic input"), diagnosis.synthetic_id))
    if measurement.result.config.input == "synthetic":
        for file in outputs.glob(f"*/{DIAGNOSIS}"):
            with suppress(ResultError):
                other = read_diagnosis(file.parent)
                if other and other.synthetic_id == own:
                    found.append((_("Diagnosis with this measurement"), file.parent.name))
    page = file_name("report")
    there = [(name, folder) for name, folder in found if pages.has_page(outputs / folder)]
    return [(name, f"../{quote(folder)}/{page}") for name, folder in there]


def step_times(measurement: Measurement) -> Section:
    """Every step: all repeats overlaid, then one after another, and where they are steady."""
    result, steps = measurement.result, read_steps(measurement)
    if not steps.charts.parts:
        return _text("no_steps", result=result, problem=steps.checks.problem)
    known = [course for course in steps.checks.courses if course.steadiness]
    unit = MODELS[result.config.model].unit
    steady = _text("steady", known=known, unit=unit, fewest=FEWEST_STEPS)
    return steps.charts + folded(_("Steady state"), steady)


def warnings(measurement: Measurement) -> Section:
    """The warnings with their sentences, the worst first, and what was checked."""
    result, found = measurement.result, read_steps(measurement).checks
    checked = looked_at(result, found.courses)
    in_logs = [
        (one.code, f"{one.file}{f', {one.line}' if one.line else ''}: {found_in_log(one)}")
        for one in (result.imported.findings if result.imported else ())
    ]
    known = {"result": result, "checked": checked, "fewest": FEWEST_STEPS}
    return _text("warnings", found=found.warnings, in_logs=in_logs, **known)


def repeats(measurement: Measurement) -> Section:
    """The repeats and, of several ranks, the ranks."""
    result = measurement.result
    every = [rank for repeat in result.complete_repeats for rank in repeat.ranks]
    numbers = sorted({rank.rank for rank in every})
    ranks = {k: [rank for rank in every if rank.rank == k] for k in numbers}
    floor = noise_floor(result.throughputs)
    return _text("repeats", result=result, floor=floor, ranks=ranks)


def limits(measurement: Measurement) -> Section:
    """What limits the throughput: the diagnosis, and the share of the peaks."""
    result, c = measurement.result, measurement.result.config
    found, problem = _diagnosis(measurement)
    sheet, diagnose = datasheet(result), ""
    if not result.imported and c.input != "synthetic" and c.nodes == 1:
        diagnose = format.command(result).replace("perfkit run", "perfkit diagnose", 1)
    return _text(
        "limits",
        result=result,
        lines=diagnosis_lines(found, c) if found else [],
        problem=problem,
        diagnose=diagnose,
        used=utilization(result),
        sheet=sheet,
        share=sheet and share_of_datasheet(result, sheet),
    )


def telemetry(measurement: Measurement) -> Section:
    """Other load, clocks, temperatures and energy during each window."""
    return _text("telemetry", result=measurement.result)


def work_equivalence(measurement: Measurement) -> Section:
    """With which other frameworks this one was verified to do the same work."""
    result, unreadable = measurement.result, list[str]()
    found = work.compared(measurement.folder.parent, result, unreadable)
    verify = "" if result.imported else work.command(result.config)
    known = {"work": work, "found": found, "verify": verify, "unreadable": unreadable}
    return _text("equivalence", **known)


def parameters(measurement: Measurement) -> Section:
    """The command that runs it again, and every parameter with its meaning; of an imported
    measurement what is known, and from where."""
    result, c = measurement.result, measurement.result.config
    known = result.parameters | {"model": c.model}
    known |= {f"environment.{fact}": result.fact(fact) for fact in result.environment}
    facts = result.imported.facts if result.imported else {}
    return _text(
        "parameters",
        result=result,
        sampled=c.input != "synthetic" and c.data_dir == MODELS[c.model].data_dir,
        sources=[(name, str(known[name]), source) for name, source in facts.items()],
        values=config.parameter_values(c, result.protocol),
        meanings={
            name: known
            for name, known in config.parameters().items()
            if config.ABOUT[name].identifies
        },
    )


def effective_settings(measurement: Measurement) -> Section:
    """What the run really did, as read inside the workers."""
    code = presets.code(measurement.result.config.strategy)
    return _text("settings", result=measurement.result, code=code)


def environment(measurement: Measurement) -> Section:
    """Hardware, driver and versions, with the reason for what could not be read."""
    return environment_table(measurement.result.environment)


def environment_table(readings: dict[str, Reading]) -> Section:
    """Facts by their names, then those that could not be read, by the reason."""
    missing: dict[str, list[str]] = {}
    for name, reading in readings.items():
        if reading.missing:
            missing.setdefault(reading.missing, []).append(format.fact_name(name))
    known = {name: one.value for name, one in readings.items() if not one.missing}
    shown = _text("environment", known=known, missing=missing)
    return folded(_("%(count)d facts") % {"count": len(readings)}, shown)


def method(measurement: Measurement) -> Section:
    """How the number came about."""
    return _text("method", result=measurement.result)


def raw_files(measurement: Measurement) -> Section:
    """Links to the result and the raw files, and whether the numbers follow from them."""
    folder, problems = measurement.folder, read_steps(measurement).checks.disagreements
    files = [measurement.result_file, *measurement.raw_files(), *measurement.log_files()]
    files += sorted([*folder.glob(DIAGNOSIS), *folder.glob(f"{EVIDENCE}/*/*.jsonl")])
    sizes = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]
    checked = 0 if problems is None else len(measurement.result.complete_repeats)
    known = {"problems": problems, "checked": checked, "files": sizes}
    return _text("raw_files", **known)


def write_measurement(
    measurement: Measurement, *, notebook: bool = False, executed: Path | None = None
) -> None:
    """Write the measurement's page in every language and, if asked for, notebook.ipynb with
    its outputs. `executed` is a notebook of the user's own after its run: it becomes
    notebook.ipynb, and its cells are on the page too."""
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
            keep = notebook and language == "en" and pages.OWN not in source.metadata
            title, names = format.title(result), {"measurement": measurement}
            begun = _("Imported %(time)s") if result.imported else _("Started %(time)s")
            when = begun % {"time": format.minute(result.created)}
            pages.write_page(
                folder,
                pages.evaluated(source, names, values, png=keep, heading=title),
                outputs=folder.parent,
                files=[NOTEBOOK, RESULT],
                keep=keep,
                title=f"{title} · {result.id.rsplit('-', 1)[-1]}",
                made=f"{when} · {format.device(result)} · {format.framework_version(result)}",
                facts={"warnings": codes} if result.complete_repeats else {},
            )
