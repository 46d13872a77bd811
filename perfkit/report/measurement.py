"""The sections of a measurement's page. Their text is in templates/prose.html.j2."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from perfkit import config
from perfkit.analysis.sanity import looked_at
from perfkit.analysis.steady import FEWEST_STEPS
from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.comparison.live.stored import comparisons_of
from perfkit.diagnosis.verdict import EVIDENCE, Diagnosis, read_diagnosis
from perfkit.diagnosis.verdict import FILE as DIAGNOSIS
from perfkit.diagnosis.words import VERDICTS, diagnosis_lines
from perfkit.logs.wording import sentence as found_in_log
from perfkit.models import MODELS
from perfkit.report import pages
from perfkit.report.section import (
    Section,
    facts_table,
    folded,
    inline_image,
    severity_mark,
)
from perfkit.report.steps import read_steps
from perfkit.request.plan import Plan
from perfkit.results.files import Measurement, ResultError
from perfkit.results.schema import Reading
from perfkit.statistics import median, noise_floor
from perfkit.text import format, messages
from perfkit.text.format import fact_name, interval, number, percent, stored_value
from perfkit.text.language import LANGUAGES, current, file_name, in_language
from perfkit.text.language import gettext as _
from perfkit.training import strategies
from perfkit.verification import words as work


def plan(plan: Plan) -> Section:
    """What will be measured, before it runs."""
    c = plan.config
    name = f"{MODELS[c.model].name}, {format.FRAMEWORK_NAMES[c.framework]}, {c.precision}"
    return pages.prose("plan", c=c, p=plan.protocol, name=name)


def headline(measurement: Measurement) -> Section:
    """Three tiles: the throughput, what limits it, and whether it can be trusted; then what
    went wrong, and the pages that the measurement belongs to."""
    result, stored = measurement.result, measurement.result.throughput
    diagnosis, used = _diagnosis(measurement)[0], utilization(result)
    steps = read_steps(measurement)
    low, high = (stored and stored.interval) or (None, None)
    share = result.data_wait_share
    wait = "" if share is None else percent(share, 2)
    missing = [_(what) for what, known in looked_at(result, steps.courses).items() if not known]
    return pages.render(
        "headline.html.j2",
        title=format.title(result),
        protocol=format.protocol_name(result.protocol),
        device=format.device(result),
        result=result,
        number=stored,
        value=stored and f"{number(stored.value)} {stored.unit}",
        rate=stored and number(stored.steps_per_second),
        interval=stored and format.interval_words(low, high, stored.interval_level, stored.n),
        dots=stored and inline_image(steps.dots, _("Throughput of each repeat")),
        verdict=_(VERDICTS[diagnosis.verdict]) if diagnosis else _("not diagnosed"),
        wait=wait and _("Data wait: up to %(share)s of a window") % {"share": wait},
        peak=used and _("Share of measured peak: %(share)s") % {"share": _of_peak(used.shares)},
        judged=bool(result.complete_repeats),
        mark=severity_mark(messages.severity(warning.code for warning in steps.warnings)),
        warnings=[messages.sentence(warning) for warning in steps.warnings],
        not_recorded=missing and _("Not checked: %(what)s.") % {"what": ", ".join(missing)},
        links=_related(measurement, diagnosis),
    )


def _of_peak(shares: Sequence[float]) -> str:
    """The median share of the peak; above 100 % in any repeat, that it is unreliable."""
    return format.peak_share(max(shares) if max(shares) > 1 else median(shares))


def _diagnosis(measurement: Measurement) -> tuple[Diagnosis | None, str]:
    """The diagnosis, if there is one; why it can't be read."""
    try:
        return read_diagnosis(measurement.folder), ""
    except ResultError as error:
        return None, str(error).replace(f"{measurement.folder}/", "")


def _related(measurement: Measurement, diagnosis: Diagnosis | None) -> list[tuple[str, str]]:
    """Names and addresses of the pages that this one belongs to."""
    outputs, page = measurement.folder.parent, file_name("report", current())
    links = [
        (_("Interleaved comparison: %(name)s") % {"name": name}, f"../{quote(folder)}/{page}")
        for folder, name in comparisons_of(outputs).get(measurement.result.id, [])
        if pages.has_page(outputs / folder)
    ]
    if diagnosis and pages.has_page(outputs / diagnosis.synthetic_id):
        address = f"../{quote(diagnosis.synthetic_id)}/{page}"
        links.append((_("Same configuration, synthetic input"), address))
    if measurement.result.config.input == "synthetic":
        for file in outputs.glob(f"*/{DIAGNOSIS}"):
            with suppress(ResultError):
                other = read_diagnosis(file.parent)
                used = other is not None and other.synthetic_id == measurement.result.id
                if used and pages.has_page(file.parent):
                    address = f"../{quote(file.parent.name)}/{page}"
                    links.append((_("Diagnosis with this measurement"), address))
    return links


def step_times(measurement: Measurement) -> Section:
    """Every step: all repeats overlaid, then one after another, and where they are steady."""
    result, steps = measurement.result, read_steps(measurement)
    if not steps.charts.parts:
        return pages.prose("no_steps", result=result, problem=steps.problem)
    known = [course for course in steps.courses if course.steadiness]
    unit = MODELS[result.config.model].unit
    steady = pages.prose("steady", known=known, unit=unit, fewest=FEWEST_STEPS)
    return steps.charts + folded(_("Steady state"), steady)


def warnings(measurement: Measurement) -> Section:
    """The warnings with their sentences, the worst first, and what was checked."""
    result, steps = measurement.result, read_steps(measurement)
    rows = [
        (
            severity_mark(messages.severity([warning.code])),
            Markup("<code>%s</code>") % warning.code,
            messages.sentence(warning),
        )
        for warning in steps.warnings
        if result.complete_repeats
    ]
    rows += [
        (
            severity_mark("caution"),
            Markup("<code>%s</code>") % finding.code,
            ", ".join(filter(None, (finding.file, str(finding.line or ""))))
            + f": {found_in_log(finding)}",
        )
        for finding in (result.imported.findings if result.imported else ())
    ]
    checked = looked_at(result, steps.courses)
    return pages.prose(
        "warnings", result=result, rows=rows, checked=checked, fewest=FEWEST_STEPS
    )


def repeats(measurement: Measurement) -> Section:
    """The repeats and, of several ranks, the ranks."""
    result, unit = measurement.result, MODELS[measurement.result.config.model].unit
    floor = noise_floor(result.throughputs)
    section = pages.prose(
        "repeats", result=result, unit=unit, floor=floor and percent(floor, 2)
    )
    every = [(repeat, rank) for repeat in result.complete_repeats for rank in repeat.ranks]
    by_rank = sorted({rank.rank for _repeat, rank in every})
    if len(by_rank) < 2:
        return section
    rows = []
    for index in by_rank:
        seen = [rank for _repeat, rank in every if rank.rank == index]
        node = index // result.config.devices
        names = {repeat.nodes[node] for repeat, _rank in every if node < len(repeat.nodes)}
        slowest = sum(repeat.straggler == index for repeat in result.complete_repeats)
        rows.append(
            (
                str(index),
                ", ".join(sorted(names)) or str(node),
                f"{slowest} / {len(result.complete_repeats)}",
                _range([rank.window_seconds for rank in seen]),
                _range([rank.data_wait_seconds for rank in seen]),
                _range([rank.alone_seconds for rank in seen]),
                _range([rank.memory_bytes for rank in seen], 2**30),
            )
        )
    return section + pages.prose("ranks", rows=rows)


def _range(values: Sequence[float | None], unit: float = 1, sign: str = "") -> str:
    known = [value / unit for value in values if value is not None]
    return f"{interval(min(known), max(known), 3)}{sign}" if known else ""


def limits(measurement: Measurement) -> Section:
    """What limits the throughput: the diagnosis, and the share of the peaks."""
    result = measurement.result
    found, problem = _diagnosis(measurement)
    c, used, sheet = result.config, utilization(result), datasheet(result)
    diagnose = ""
    if not result.imported and c.input != "synthetic" and c.nodes == 1:
        diagnose = format.command(result).replace("perfkit run", "perfkit diagnose", 1)
    rows: list[tuple[str, str, str]] = []
    if used:
        shares = "" if max(used.shares) > 1 else _range(used.shares, 0.01, " %")
        measured = (
            (_("Measured peak, matrix product (TFLOP/s)"), used.ceilings, 1e12, ""),
            (_("Measured memory copy, read and written (GB/s)"), used.copies, 1e9, ""),
        )
        rows += [
            (name, f"{number(median(values) / unit, 3)}{sign}", _range(values, unit, sign))
            for name, values, unit, sign in measured
        ]
        rows.insert(1, (_("Share of measured peak"), _of_peak(used.shares), shares))
    if sheet:
        flops, memory = sheet.flops_per_second * c.ranks, sheet.bytes_per_second * c.ranks
        name, share = f"{_('Datasheet')}, {c.ranks} × {sheet.gpu}", _("Share of its peak")
        rows += [
            (f"{name} (TFLOP/s)", number(flops / 1e12), sheet.source),
            (share, percent(share_of_datasheet(result, sheet)), ""),
            (f"{name} (GB/s)", number(memory / 1e9), sheet.source),
        ]
    return pages.prose(
        "limits",
        result=result,
        lines=diagnosis_lines(found, c) if found else [],
        problem=problem,
        diagnose=diagnose,
        rows=rows,
        used=used,
        flops=used and number(used.flops / 1e9),
    )


def telemetry(measurement: Measurement) -> Section:
    """Other load, clocks, temperatures and energy during each window."""
    result = measurement.result
    seen = [repeat for repeat in result.complete_repeats if repeat.conditions]
    cores = max((one.cores for one in result.conditions), default=None)
    missing = {fact_name(k): why for one in result.conditions for k, why in one.missing.items()}
    return pages.prose("telemetry", result=result, seen=seen, cores=cores, missing=missing)


def work_equivalence(measurement: Measurement) -> Section:
    """With which other frameworks this one was verified to do the same work."""
    result = measurement.result
    unreadable: list[str] = []
    found = work.compared(measurement.folder.parent, result, unreadable)
    verify = "" if result.imported else work.command(result.config)
    return pages.prose(
        "equivalence", work=work, found=found, verify=verify, unreadable=unreadable
    )


def parameters(measurement: Measurement) -> Section:
    """The command that runs it again, and every parameter with its meaning; of an imported
    measurement what is known, and from where."""
    result, c = measurement.result, measurement.result.config
    sampled = c.input != "synthetic" and c.data_dir == MODELS[c.model].data_dir
    known = result.parameters | {"model": c.model}
    known |= {f"environment.{fact}": result.fact(fact) for fact in result.environment}
    facts = result.imported.facts if result.imported else {}
    values = config.parameter_values(c, result.protocol)
    rows = [
        (name, str(values[name]), _(meaning), values[name] != default)
        for name, (default, meaning) in config.parameters().items()
        if name not in ("outputs_dir", "timeout")
    ]
    return pages.prose(
        "parameters",
        result=result,
        command=format.command(result),
        sampled=f"perfkit samples --for {c.model}" if sampled else "",
        sources=[(name, str(known[name]), source) for name, source in facts.items()],
        changed=[row[:3] for row in rows if row[3]],
        usual=[row[:3] for row in rows if not row[3]],
    )


def effective_settings(measurement: Measurement) -> Section:
    """What the run really did, as read inside the workers."""
    result = measurement.result
    return pages.prose(
        "settings",
        result=result,
        precision=format.precision(result),
        expected=MODELS[result.config.model].parameters,
        code=strategies.code(result.config.strategy),
        skipped=[repeat.skipped_steps for repeat in result.complete_repeats],
    )


def environment(measurement: Measurement) -> Section:
    """Hardware, driver and versions, with the reason for what could not be read."""
    return environment_table(measurement.result.environment)


def environment_table(readings: dict[str, Reading]) -> Section:
    """Facts by their names, then those that could not be read, by the reason."""
    values: dict[str, Any] = {}
    missing: dict[str, list[str]] = {}
    for name, reading in readings.items():
        text = stored_value("", reading.value) or _("none")
        if reading.missing:
            missing.setdefault(reading.missing, []).append(fact_name(name))
        else:
            values[fact_name(name)] = Markup("<pre>%s</pre>") % text if "\n" in text else text
    for reason, names in missing.items():
        values[", ".join(names)] = f"{_('not read')} ({reason})"
    return folded(_("%(count)d facts") % {"count": len(readings)}, facts_table(values))


def method(measurement: Measurement) -> Section:
    """How the number came about."""
    target = percent(measurement.result.protocol.interval_target, 2)
    return pages.prose("method", result=measurement.result, target=target)


def raw_files(measurement: Measurement) -> Section:
    """Links to the result and the raw files, and whether the numbers follow from them."""
    folder, result = measurement.folder, measurement.result
    files = [folder / "result.json", *sorted(folder.glob("repeats/*/*.jsonl"), key=_by_repeat)]
    files += sorted(folder.glob("logs/*.log"), key=_by_repeat)
    files += sorted([*folder.glob(DIAGNOSIS), *folder.glob(f"{EVIDENCE}/*/*.jsonl")])
    names = [path.relative_to(folder).as_posix() for path in files]
    rows = [
        (Markup('<a href="%s">%s</a>') % (quote(name), name), f"{path.stat().st_size:,}")
        for name, path in zip(names, files, strict=True)
    ]
    problems = read_steps(measurement).disagreements
    checked = 0 if problems is None else len(result.complete_repeats)
    return pages.prose("raw_files", problems=problems, checked=checked, rows=rows)


def _by_repeat(path: Path) -> tuple[int, str]:
    """Repeats in their order: 2 before 10."""
    repeat = path.parent.name if path.suffix == ".jsonl" else path.name.split("-")[0]
    return (int(repeat) if repeat.isdigit() else 0, path.name)


def write_measurement(
    measurement: Measurement, *, notebook: bool = False, executed: Path | None = None
) -> list[str]:
    """Write the measurement's page in every language and, if asked for, notebook.ipynb with
    its outputs. `executed` is a notebook of the user's own after its run: it becomes
    notebook.ipynb, and its cells are on the page too. The codes of the page's warnings."""
    result, folder = measurement.result, measurement.folder
    source = pages.source_notebook(executed or folder / pages.NOTEBOOK, result.config.model)
    own = executed is not None or pages.is_own(source)
    values = result.parameters
    if result.imported:
        values = {name: value for name, value in values.items() if value is not None}
    codes = [warning.code for warning in read_steps(measurement).warnings]
    for language in LANGUAGES:
        with in_language(language):
            keep = notebook and language == "en" and not own
            title, names = format.title(result), {"measurement": measurement}
            begun = _("Imported %(time)s") if result.imported else _("Started %(time)s")
            when = begun % {"time": format.minute(result.created)}
            pages.write_page(
                folder,
                pages.evaluated(source, names, values, png=keep, heading=title),
                outputs=folder.parent,
                title=f"{title} · {result.id.rsplit('-', 1)[-1]}",
                made=f"{when} · {format.device(result)} · {format.framework_version(result)}",
                files=["notebook.ipynb", "result.json"],
                keep=keep,
                facts={"warnings": " ".join(codes)} if result.complete_repeats else {},
            )
    if executed:
        pages.keep_own_notebook(executed, folder)
    return codes
