"""The sections of a measurement's page, each a piece of HTML that a notebook shows as well."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit import config
from perfkit.analysis import steady
from perfkit.analysis.sanity import counting, looked_at, warnings_of
from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.diagnosis.verdict import EVIDENCE, read_diagnosis
from perfkit.diagnosis.verdict import FILE as DIAGNOSIS
from perfkit.diagnosis.words import diagnosis_lines
from perfkit.models import MODELS
from perfkit.report.conditions_table import row
from perfkit.report.rendering import Section, render
from perfkit.report.step_chart import step_chart
from perfkit.request.plan import Plan
from perfkit.results.files import Measurement, ResultError
from perfkit.results.frames import STEP_COLUMNS, load_steps
from perfkit.results.numbers import disagreements
from perfkit.results.schema import Result
from perfkit.statistics import noise_floor
from perfkit.training import strategies
from perfkit.verification import words as work
from perfkit.words.language import current, file_name
from perfkit.words.language import gettext as _
from perfkit.words.wording import command, title

NO_STEPS = pd.DataFrame(columns=STEP_COLUMNS)


def plan(plan: Plan) -> Section:
    """What will be run, before it runs."""
    return render("plan.html.j2", plan=plan, steps=plan.protocol.repeats * plan.protocol.steps)


def headline(measurement: Measurement) -> Section:
    """The number with n and interval, or what went wrong."""
    result = measurement.result
    shares = [repeat.data_wait_share for repeat in result.complete_repeats]
    waits = [share for share in shares if share is not None]
    sample = MODELS[result.config.model].sample
    return render(
        "headline.html.j2",
        result=result,
        title=title(result),
        waits=waits,
        floor=noise_floor(result.throughputs),
        used=utilization(result),
        sample=sample,
    )


def warnings(measurement: Measurement) -> Section:
    """What speaks against believing the number, each by its name."""
    result = measurement.result
    try:
        courses = _courses(measurement)
    except ResultError:
        courses = []
    looked = looked_at(result, courses)
    return render(
        "warnings.html.j2",
        result=result,
        warnings=warnings_of(result, courses),
        judged=bool(result.complete_repeats),
        looked=[_(what) for what, told in looked.items() if told],
        unknown=[_(what) for what, told in looked.items() if not told],
        short=result.protocol.steps < steady.FEWEST_STEPS,
        fewest=steady.FEWEST_STEPS,
    )


def _steps(measurement: Measurement) -> pd.DataFrame:
    """The raw steps. Raises ResultError."""
    return _read(measurement.folder, _stamps(measurement))[0]


def _courses(measurement: Measurement) -> list[steady.Course]:
    """The course of each repeat that counts. Raises ResultError."""
    return counting(measurement.result, _read(measurement.folder, _stamps(measurement))[1])


def _stamps(measurement: Measurement) -> tuple[Any, ...]:
    """What changes with the raw files."""
    files = [path.stat() for path in sorted(measurement.folder.glob("repeats/*/rank*.jsonl"))]
    return tuple((file.st_mtime_ns, file.st_size) for file in files)


@lru_cache(maxsize=1)
def _read(folder: Path, _stamps: tuple[Any, ...]) -> tuple[pd.DataFrame, list[steady.Course]]:
    """Steps and courses, once for all sections and languages of a page."""
    steps = load_steps(folder)
    return steps, steady.courses(steps)


def limits(measurement: Measurement) -> Section:
    """What limited the throughput, and how near it came to what the devices can do."""
    result = measurement.result
    sheet = datasheet(result)
    try:
        found, unreadable = read_diagnosis(measurement.folder), ""
    except ResultError as error:
        found, unreadable = None, str(error)
    return render(
        "limits.html.j2",
        result=result,
        waits=[
            r.data_wait_share for r in result.complete_repeats if r.data_wait_share is not None
        ],
        used=utilization(result),
        sheet=sheet,
        of_sheet=share_of_datasheet(result, sheet) if sheet else None,
        diagnosis=diagnosis_lines(found, result.config) if found else [],
        unreadable=unreadable,
        synthetic=found.synthetic_id if found else "",
        page=file_name("report", current()),
        diagnose=_diagnose(result),
    )


def _diagnose(result: Result) -> str:
    """The command that says what limits this; empty where it would be refused."""
    if result.imported or result.config.input == "synthetic" or result.config.nodes > 1:
        return ""
    return command(result).replace("perfkit run", "perfkit diagnose", 1)


def same_work(measurement: Measurement) -> Section:
    """With which other frameworks this one was verified to do the same work."""
    result = measurement.result
    unreadable: list[str] = []
    found = work.compared(measurement.folder.parent, result, unreadable)
    return render(
        "same_work.html.j2",
        compared=found,
        command="" if result.imported else work.command(result.config),
        unreadable=unreadable,
        precisions=work.PRECISIONS,
        side_words=work.side_words,
        check_words=work.check_words,
        figures=work.figures,
    )


def parameters(measurement: Measurement) -> Section:
    """What was run, in the words of the parameters and as a command; of an imported
    measurement, what is known and who says it."""
    result = measurement.result
    if imported := result.imported:
        told = result.parameters | {"model": result.config.model}
        told |= {f"environment.{fact}": result.fact(fact) for fact in result.environment}
        said = [(name, told[name], by) for name, by in imported.facts.items()]
        return render("told.html.j2", rows=said, command=command(result))
    values = config.parameter_values(result.config, result.protocol)
    chosen: list[tuple[str, Any, str]] = []
    usual: list[tuple[str, Any, str]] = []
    for name, (default, meaning) in config.parameters().items():
        if name not in ("outputs_dir", "timeout"):
            rows = usual if values[name] == default else chosen
            rows.append((name, values[name], meaning))
    c, model = result.config, MODELS[result.config.model]
    sampled = c.input != "synthetic" and c.data_dir == model.data_dir
    return render(
        "parameters.html.j2",
        chosen=chosen,
        usual=usual,
        command=command(result),
        result=result,
        sampled=f"perfkit samples --for {c.model}" if sampled else "",
    )


def effective(measurement: Measurement) -> Section:
    """What the run really did, read from inside the workers."""
    result = measurement.result
    return render(
        "effective.html.j2",
        effective=result.effective,
        result=result,
        expected=MODELS[result.config.model].parameters,
        sample=MODELS[result.config.model].sample,
        code=strategies.code(result.config.strategy),
    )


def repeats(measurement: Measurement) -> Section:
    """The table of repeats and, with several ranks, of ranks."""
    result = measurement.result
    ranks = _ranks(result) if result.config.ranks > 1 and result.complete_repeats else []
    unit = MODELS[result.config.model].unit
    return render("repeats.html.j2", result=result, ranks=ranks, unit=unit)


def _ranks(result: Result) -> list[tuple[Any, ...]]:
    """What the repeats say of each rank: number, node, its windows, waits and times alone,
    in how many repeats it was the straggler, memory in GiB."""
    rows = []
    every = [rank for repeat in result.complete_repeats for rank in repeat.ranks]
    for number in sorted({rank.rank for rank in every}):
        seen = [rank for rank in every if rank.rank == number]
        memory = max((rank.memory_bytes or 0) for rank in seen) / 2**30
        rows.append(
            (
                number,
                _node_of(number, result),
                [rank.window_seconds for rank in seen],
                [rank.data_wait_seconds for rank in seen],
                [rank.alone_seconds for rank in seen if rank.alone_seconds is not None],
                sum(repeat.straggler == number for repeat in result.complete_repeats),
                memory or None,
            )
        )
    return rows


def _node_of(rank: int, result: Result) -> str:
    """Names of the nodes that a rank was on; of a single machine, that it is node 0."""
    node = rank // result.config.devices
    names = {r.nodes[node] for r in result.complete_repeats if node < len(r.nodes)}
    return ", ".join(sorted(names)) or str(node)


def step_times(measurement: Measurement) -> Section:
    """Every step of every repeat, warm-up shaded, with the time spent waiting for input."""
    try:
        steps, courses, unreadable = _steps(measurement), _courses(measurement), ""
    except ResultError as error:
        courses = []
        steps, unreadable = NO_STEPS, str(error).replace(f"{measurement.folder}/", "")
    protocol = measurement.result.protocol
    highest = steps["seconds"].max() if len(steps) else 0
    charts = [
        (index, step_chart(group, protocol.warmup_steps, highest))
        for index, group in steps.groupby("repeat")
    ]
    return render(
        "step_times.html.j2",
        charts=charts,
        courses=[course for course in courses if course.steadiness],
        result=measurement.result,
        unit=MODELS[measurement.result.config.model].unit,
        unreadable=unreadable,
    )


def conditions(measurement: Measurement) -> Section:
    """What the machine did in each window: other load, clocks, temperatures, energy."""
    result = measurement.result
    repeats = result.complete_repeats
    rows = [(r.index, row(r.conditions) if r.conditions else {}) for r in repeats]
    seen = result.conditions
    missing: dict[str, str] = {}
    for one in seen:
        missing |= one.missing
    return render(
        "conditions.html.j2",
        result=result,
        headings=list(dict.fromkeys(heading for _index, cells in rows for heading in cells)),
        rows=rows,
        cores=seen[0].cores if seen else None,
        energy=result.energy_joules_per_sample,
        missing=missing,
    )


def environment(measurement: Measurement) -> Section:
    """Hardware, driver and versions; what could not be read says why."""
    return render("environment.html.j2", environment=measurement.result.environment)


def method(measurement: Measurement) -> Section:
    """How the number came about."""
    if measurement.result.imported:
        return render("imported_method.html.j2", result=measurement.result)
    return render("method.html.j2", result=measurement.result)


def raw_files(measurement: Measurement) -> Section:
    """Links to the result and the raw files, relative to the measurement's folder."""
    folder = measurement.folder
    files = [folder / "result.json", *sorted(folder.glob("repeats/*/*.jsonl"), key=_by_number)]
    files += sorted(folder.glob("logs/*.log"), key=_by_number)
    files += sorted([*folder.glob(DIAGNOSIS), *folder.glob(f"{EVIDENCE}/*/*.jsonl")])
    rows = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]
    repeats = len(measurement.result.complete_repeats)
    # Of nodes that were started by hand, the first one alone has raw files.
    elsewhere = measurement.result.config.launcher == "manual" and len(rows) == 1
    trouble = [] if elsewhere else disagreements(measurement)
    checked = 0 if elsewhere else repeats
    return render("raw_files.html.j2", rows=rows, trouble=trouble, checked=checked)


def _by_number(path: Path) -> tuple[int, str]:
    """Repeats in their order: 2 before 10."""
    repeat = path.parent.name if path.suffix == ".jsonl" else path.name.split("-")[0]
    return (int(repeat) if repeat.isdigit() else 0, path.name)
