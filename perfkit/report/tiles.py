"""The beginning of a measurement's page: the plan, and tiles with throughput, share of the
peak, and trust."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from perfkit.analysis.comparison.stored import comparisons_with
from perfkit.analysis.script_arguments import arguments_text
from perfkit.analysis.utilization import utilization
from perfkit.analysis.warnings import severity
from perfkit.measuring.config import Config
from perfkit.measuring.format import interval, number, percent, plain, rate_text
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request.plan import Plan
from perfkit.measuring.results.remedies import remedy
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement
from perfkit.report.blocks import Inline, plain_text
from perfkit.report.checked import CheckedMeasurement, stored_diagnosis
from perfkit.report.diagnosis import LIMITED_BY
from perfkit.report.elements import (
    alarm,
    code,
    foreign,
    joined,
    link,
    note,
    output,
    paragraph,
    severity_mark,
    strong,
    template,
    title,
)
from perfkit.report.references import most_alike
from perfkit.report.section import Section
from perfkit.report.text import names
from perfkit.report.text.language import enumerated, ngettext
from perfkit.report.text.language import gettext as _
from perfkit.report.text.statements import sentence
from perfkit.report.text.wording import long_title
from perfkit.report.told import timed_by_log
from perfkit.report.words import few_repeats
from perfkit.timing.failure import portable
from perfkit.training.frameworks import DISPLAY_NAMES

TILES = Markup(
    '<div class="tiles" style="display: flex; flex-wrap: wrap; gap: 0.8em; margin: 0.5em 0">\n'
    "%s\n</div>"
)
TILE = Markup(
    '<div class="tile" style="flex: 1 1 15em; border: 1px solid #8c959f80; '
    'border-radius: 8px; padding: 0.5em 1em">\n'
    '<div style="font-size: 85%%; opacity: 0.85">%s</div>\n'
    '<div style="font-size: 170%%; font-weight: 600; line-height: 1.3">%s</div>\n'
    "%s</div>"
)


@dataclass(frozen=True)
class Tile:
    """A value in large print, its name above it, and lines below it."""

    name: str
    value: Inline
    lines: Sequence[Inline] = ()


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
    name = long_title(work.name, values.get("model_size"))
    arguments = arguments_text(values.get("arguments") or values.get("flags") or "")
    name = " ".join(filter(None, [name, arguments]))
    framework = "" if work.launches_itself else DISPLAY_NAMES[config.framework]
    title = strong(enumerated([*filter(None, [name, framework, work.precision])]))
    facts = {"topology": config.topology, "device": config.device}
    parts = [_("topology %(topology)s on %(device)s") % facts]
    if work.batch_size:
        batch = _("batch %(size)s per device") % {"size": work.batch_size}
        batches = values.get("accumulate", 1)
        parts.append(f"{batch} × {batches}" if batches > 1 else batch)
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


def headline(page: CheckedMeasurement) -> Section:
    """The tiles (throughput, share of the peak, limit if it is known, trust) if a repeat is
    complete, the failure if any, and related pages."""
    result, difference = page.result, page.checks.difference
    section = title(names.title(result))
    if difference:
        warning = alarm(_("Do not use this result: it contradicts its raw files."))
        section += paragraph(warning, foreign(difference))
    if result.complete_repeats:
        tiles = [_throughput_tile(page), *_peak_tile(result), *_limit_tile(page)]
        tiles.append(_trust_tile(page))
        section += _tiles(tiles) + most_alike(page)
    if result.status != "complete":
        section += _unfinished(page)
    place = {"topology": result.config.topology, "device": names.device(result)}
    where = _("Topology %(topology)s on %(device)s.") % place
    protocol = _protocol(names.protocol_name(result.protocol), result.protocol)
    return section + note(protocol, _ended(result), where) + _related(page)


def _ended(result: Result) -> str:
    """Return that the interval or the budget ended the repeats; empty if their number did."""
    target = result.protocol.interval_target
    if not target or not result.throughput or result.ended_by not in ("interval", "budget"):
        return ""
    words = _(
        "Repeats ended after %(n)s, by an interval narrower than %(target)s of the median or "
        "by the time budget. Such a rule favours narrow intervals: by simulation, the printed "
        "interval then covers up to 2.5 points less."
    )
    return words % {"n": result.throughput.n, "target": percent(target, 2)}


def _tiles(tiles: Sequence[Tile]) -> Section:
    """Return the tiles beside each other; for terminals, a line for each."""
    parts = []
    for tile in tiles:
        lines = joined(Markup("<div>%s</div>\n") % line for line in tile.lines if line)
        parts.append(TILE % (tile.name, tile.value, lines))
    text = "\n".join(f"{tile.name}: {plain_text(tile.value)}" for tile in tiles)
    return template(TILES % joined(parts, "\n"), text)


def _throughput_tile(page: CheckedMeasurement) -> Tile:
    result = page.result
    throughput, config = result.throughput, result.config
    assert throughput
    unit, ends = plain(throughput.unit), throughput.interval or ()
    lines: list[Inline] = [_("no interval (n=1)")]
    if ends:
        level = percent(throughput.interval_level, 4)
        lines = [f"{interval(*ends)} ({level}, n={throughput.n})"]
    if config.device_count > 1:
        each = {"rate": number(result.throughput_per_device), "unit": unit}
        lines.append(_("%(rate)s %(unit)s per device") % each)
    steps = {
        "rate": number(throughput.steps_per_second),
        "size": f"{result.global_batch:,}",
    }
    words = _("%(rate)s steps/s, samples per step: %(size)s")
    if result.told and not result.told.log_format:
        words = _("%(rate)s steps/s, samples per step: %(size)s, as told by the script")
    lines.append(words % steps)
    if result.told and result.told.log_format:
        lines.append(timed_by_log(result.told))
    rate, _sign, width = rate_text(throughput.value, unit, *ends).partition("± ")
    value: Inline = rate
    if width:
        # In large print, a line must not begin with the percent sign.
        value = Markup('%s<span style="white-space: nowrap">± %s</span>') % (rate, width)
    return Tile(_("Throughput"), value, lines)


def _peak_tile(result: Result) -> list[Tile]:
    """Return the share of the measured peak; without one, the model's operations, if known."""
    used, tflops = utilization(result), result.tflops_per_device
    speed = ""
    if tflops:
        speed = _("%(tflops)s TFLOP/s per device") % {"tflops": number(tflops)}
    if used:
        details = link(f"#{_('Limits')}", _("what that is"))
        return [
            Tile(_("Share of measured peak"), names.peak_share(used.shares), [speed, details])
        ]
    return [Tile(_("Arithmetic"), speed)] if speed else []


def _limit_tile(page: CheckedMeasurement) -> list[Tile]:
    """Return what limits the throughput, if it was diagnosed."""
    diagnosis, _problem = stored_diagnosis(page)
    if not diagnosis:
        return []
    lines: list[Inline] = []
    wait = page.result.data_wait_share
    if wait is not None:
        share = {"share": percent(wait, 2)}
        lines.append(_("Data wait: up to %(share)s of a window") % share)
    speed = {"speed": number(diagnosis.speed, 3)}
    lines.append(_("Input alone: %(speed)s times as fast") % speed)
    return [Tile(_("Limited by"), _(LIMITED_BY[diagnosis.verdict]), lines)]


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
        return Tile(_("Trust"), value, [few, line])
    return Tile(_("Trust"), joined([mark, _("No warnings")]), [line])


def _unfinished(measurement: Measurement) -> Section:
    """Return the state of a measurement that is not complete, the reason, and what may
    help."""
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
        return section + output(failure.log)
    words = _("It is running or was interrupted; the same command continues it.")
    return paragraph(state, done, words)


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
