"""The beginning of a measurement's page: the plan, and three tiles with throughput, limit and
trust."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from perfkit.analysis.comparison.stored import comparisons_with
from perfkit.analysis.diagnosis import Diagnosis
from perfkit.analysis.utilization import utilization
from perfkit.analysis.verdicts import few_repeats
from perfkit.analysis.warnings import severity
from perfkit.analysis.wording import arguments_text, long_title
from perfkit.measuring.config import Config
from perfkit.measuring.format import change, interval, number, percent, plain, rate_text
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request.plan import Plan
from perfkit.measuring.results.remedies import remedy
from perfkit.measuring.results.schema import Result, Throughput
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.steady import PUBLISHED_STEPS, published_throughput
from perfkit.report.diagnosis import LIMITED_BY, obstacle
from perfkit.report.elements import (
    Text,
    alarm,
    code,
    file_link,
    foreign,
    joined,
    link,
    note,
    output,
    paragraph,
    severity_mark,
    strong,
)
from perfkit.report.measurement import CheckedMeasurement, checked, stored_diagnosis
from perfkit.report.rendering import render
from perfkit.report.section import Section
from perfkit.report.style import COLOURS
from perfkit.report.text import names
from perfkit.report.text.language import enumerated, ngettext, translations
from perfkit.report.text.language import gettext as _
from perfkit.report.text.statements import sentence
from perfkit.timing.failure import portable
from perfkit.training.frameworks import DISPLAY_NAMES

MOST_LOGS = 8
"""Logs beside a failure, at most; the section of raw files has all."""


@dataclass(frozen=True)
class Tile:
    """A value in large print, its name above it, and lines below it."""

    name: str
    value: Text
    lines: Sequence[Text] = ()


@dataclass(frozen=True)
class DotChart:
    """A small chart with a dot per repeat, the first at the top, and the median with its
    interval; positions are in pixels."""

    colour: str
    dots: Sequence[tuple[float, float]]
    """x and y of each repeat"""
    median: float
    """x of the median"""
    interval: tuple[float, float] | None
    """x and width of the interval; None without one"""


def plan(plan: Plan) -> Section:
    """The configuration and protocol of a planned measurement."""
    config = plan.config
    folder = code(f"{config.outputs_dir}/")
    words = _protocol(plan.protocol.name, plan.protocol)
    section = paragraph(_work(config), words, _("Results:"), folder)
    if notice := plan.notice:
        section += paragraph(notice)
    return section


def _work(config: Config) -> Markup:
    """Return the work and how it runs, in words."""
    work = config.work
    values = config.values
    name = long_title(work.name, values.get("model_size"), translations())
    name = " ".join(filter(None, [name, arguments_text(values.get("arguments", ""))]))
    framework = DISPLAY_NAMES[config.framework]
    title = strong(enumerated([*filter(None, [name, framework, work.precision])]))
    facts = {"topology": config.topology, "device": config.device}
    parts = [_("topology %(topology)s on %(device)s") % facts]
    if work.batch_size:
        batch = _("batch %(size)s per device") % {"size": work.batch_size}
        parts.append(f"{batch} × {values['accumulate']}" if values["accumulate"] > 1 else batch)
    if work.input:
        parts.append(_("input %(input)s") % {"input": work.input})
    return Markup("%s: %s.") % (title, enumerated(parts))


def _protocol(name: str, protocol: Protocol) -> str:
    """Return the protocol in words, with the name as given."""
    repeats = str(protocol.repeats)
    words = ngettext(
        "Protocol %(name)s: %(repeats)s repeat of %(warmup)s warm-up and %(measured)s "
        "measured steps.",
        "Protocol %(name)s: %(repeats)s repeats of %(warmup)s warm-up and %(measured)s "
        "measured steps.",
        protocol.repeats,
    )
    return words % {
        "name": name,
        "repeats": f"≤ {repeats}" if protocol.interval_target else repeats,
        "warmup": protocol.warmup_words,
        "measured": protocol.measured_words,
    }


def headline(measurement: Measurement) -> Section:
    """Three tiles (throughput, limit, trust) if a repeat is complete, the failure if any, and
    related pages."""
    page = checked(measurement)
    result, difference = page.result, page.checks.difference
    diagnosis, problem = stored_diagnosis(page)
    section = render("measurement", "title", None, names.title(result))
    if difference:
        warning = alarm(_("Do not use this result: it contradicts its raw files."))
        section += paragraph(warning, foreign(difference))
    if result.complete_repeats:
        limit = _limit_tile(result, diagnosis, problem)
        tiles = [_throughput_tile(page), limit, _trust_tile(page)]
        section += render("measurement", "tiles", page.folder, tiles)
    if result.status != "complete":
        section += _unfinished(page)
    place = {"topology": result.config.topology, "device": names.device(result)}
    where = _("Topology %(topology)s on %(device)s.") % place
    section += note(_protocol(names.protocol_name(result.protocol), result.protocol), where)
    return section + _related(page)


def _throughput_tile(page: CheckedMeasurement) -> Tile:
    result = page.result
    throughput, config = result.throughput, result.config
    assert throughput
    unit, ends = plain(throughput.unit), throughput.interval or ()
    lines: list[Text] = [_("no interval (n=1)")]
    if ends:
        level = percent(throughput.interval_level, 4)
        lines = [f"{interval(*ends)} ({level}, n={throughput.n})"]
    if config.ranks > 1:
        each = {"rate": number(result.throughput_per_device), "unit": unit}
        lines.append(_("%(rate)s %(unit)s per device") % each)
    if result.tflops_per_device:
        tflops = number(result.tflops_per_device)
        lines.append(_("%(tflops)s TFLOP/s per device") % {"tflops": tflops})
    steps = {
        "rate": number(throughput.steps_per_second),
        "size": f"{result.global_batch:,}",
    }
    words = _("%(rate)s steps/s, samples per step: %(size)s")
    if result.told:
        words = _("%(rate)s steps/s, samples per step: %(size)s, as told by the script")
    lines.append(words % steps)
    published = published_throughput(page.checks.profiles)
    if result.protocol.warmup_limit and published:
        lines.append(_published_steps(published, throughput))
    chart = render("measurement", "dots", None, dot_chart(result))
    lines.append(Markup(chart.html))
    return Tile(_("Throughput"), rate_text(throughput.value, unit, *ends), lines)


def _published_steps(published: float, throughput: Throughput) -> str:
    """Return the throughput of the published protocol's steps in the same repeats, in words."""
    first, last = PUBLISHED_STEPS
    words = _("Published protocol, steps %(first)s to %(last)s: %(value)s (%(change)s)")
    difference = change(published / throughput.value - 1)
    value = number(published)
    return words % {"first": first, "last": last, "value": value, "change": difference}


def dot_chart(result: Result) -> DotChart:
    """Return the chart of a measurement's repeats."""
    throughput, values = result.throughput, result.throughputs
    assert throughput
    lowest, highest = min(values), max(values)

    def across(value: float) -> float:
        if lowest == highest:
            return 125.0
        return round(13 + 224 * (value - lowest) / (highest - lowest), 1)

    between = 28 / max(len(values) - 1, 1)
    dots = [(across(value), round(10 + between * k, 1)) for k, value in enumerate(values)]
    interval = None
    if throughput.interval:
        start, end = map(across, throughput.interval)
        interval = (start, round(end - start, 1))
    colour = COLOURS[DISPLAY_NAMES[result.config.framework]]
    return DotChart(colour, dots, across(throughput.value), interval)


def _limit_tile(result: Result, diagnosis: Diagnosis | None, problem: str) -> Tile:
    """Return what limits the throughput, or why that is unknown; `problem` is the reason why a
    stored diagnosis can't be read."""
    value, lines = _("not diagnosed"), list[Text]()
    if diagnosis:
        value = _(LIMITED_BY[diagnosis.verdict])
        speed = {"speed": number(diagnosis.speed, 3)}
        lines.append(_("Input alone: %(speed)s times as fast") % speed)
    elif problem:
        lines.append(joined([_("The diagnosis can't be read:"), foreign(problem)]))
    else:
        lines.append(obstacle(result) or link(f"#{_('Limits')}", _("how to diagnose it")))
    wait, used = result.data_wait_share, utilization(result)
    if wait is not None:
        share = {"share": percent(wait, 2)}
        lines.append(_("Data wait: up to %(share)s of a window") % share)
    elif result.told:
        lines.append(_("Data wait: unknown, since the script does not tell it"))
    if used:
        share = {"share": names.peak_share(used.shares)}
        lines.append(_("Share of measured peak: %(share)s") % share)
    return Tile(_("Limited by"), value, lines)


def _trust_tile(page: CheckedMeasurement) -> Tile:
    result, checks = page.result, page.checks
    mark = severity_mark(severity([warning.code for warning in checks.warnings]))
    if checks.warnings:
        count = len(checks.warnings)
        words = ngettext("%(num)d warning", "%(num)d warnings", count) % {"num": count}
        return Tile(_("Trust"), joined([mark, words]), [sentence(checks.warnings[0])])
    unchecked = [_(name) for name, is_checked in checks.aspects.items() if not is_checked]
    line = _("All checks passed.")
    if unchecked:
        line = _("Not checked: %(what)s.") % {"what": enumerated(unchecked)}
    few = few_repeats(len(result.complete_repeats))
    if few:
        value = joined([severity_mark("undecided"), _("Can't tell")])
        return Tile(_("Trust"), value, [sentence(few), line])
    return Tile(_("Trust"), joined([mark, _("No warnings")]), [line])


def _unfinished(measurement: Measurement) -> Section:
    """Return the state of a measurement that is not complete, the reason, what may help, and
    the logs of the last repeat."""
    result = measurement.result
    counts = {"done": len(result.complete_repeats), "all": result.protocol.repeats}
    state = Markup("%s:") % alarm(_(result.status))
    words = ngettext(
        "%(done)s of %(all)s repeat is complete.",
        "%(done)s of %(all)s repeats are complete.",
        result.protocol.repeats,
    )
    done = words % counts
    if result.failure:
        failure = result.failure
        section = paragraph(state, done, code(failure.code), foreign(failure.reason))
        help_against = remedy(failure, result.config)
        if help_against:
            # The page may be published; the remedy of a missing module has paths of this
            # machine.
            section += paragraph(_("Remedy:"), foreign(portable(help_against)))
        section += output(failure.log)
        return section + _last_logs(measurement)
    words = _("It is running or was interrupted; the same command continues it.")
    return paragraph(state, done, words) + _last_logs(measurement)


def _last_logs(measurement: Measurement) -> Section:
    """Return links to some logs of the last repeat, that of the failed rank first; empty
    without any log."""
    logs = measurement.log_files()
    if not logs:
        return Section()
    last, _between, _name = logs[-1].name.partition("-")
    of_last = [log for log in logs if log.name.startswith(f"{last}-")]
    failure = measurement.result.failure
    of_failed = f"{last}-rank{failure.rank}.log" if failure else ""
    of_last.sort(key=lambda log: log.name != of_failed)
    paths = [f"{log.parent.name}/{log.name}" for log in of_last]
    shown: list[Text] = [file_link(path) for path in paths[:MOST_LOGS]]
    left_out = len(paths) - len(shown)
    if left_out:
        shown.append(_("and %(count)s more") % {"count": left_out})
    heading = _("Logs of the last repeat:") if len(logs) > len(paths) else _("Logs:")
    return paragraph(heading, joined(shown, " · ")).on_page_in(measurement.folder)


def _related(page: CheckedMeasurement) -> Section:
    """Return links to comparisons with the measurement."""
    site, links = page.site, []
    for folder, comparison in comparisons_with(site.outputs, page.result.id):
        variants = {"name": " · ".join(names.variant_names(comparison))}
        name = _("Interleaved comparison: %(name)s") % variants
        if address := site.address(folder):
            links.append(link(address, name))
    if not links:
        return Section()
    return paragraph(_("Related:"), joined(links, " · ")).on_page_in(page.folder)
