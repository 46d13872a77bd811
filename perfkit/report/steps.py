"""Sections of a measurement's page about its repeats: warnings, repeats and ranks, telemetry,
raw files."""

from collections.abc import Mapping, Sequence

from perfkit.analysis.diagnosis import FILE as DIAGNOSIS
from perfkit.analysis.diagnosis import RAW_FOLDER
from perfkit.analysis.warnings import severity
from perfkit.measuring.format import number, percent, plain, spread
from perfkit.measuring.results.repeat import Rank, Repeat, TelemetrySummary
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.units import GIB
from perfkit.report.blocks import Inline, NumberHeading
from perfkit.report.checked import CheckedMeasurement
from perfkit.report.elements import (
    code,
    file_link,
    foreign,
    note,
    paragraph,
    severity_mark,
    table,
)
from perfkit.report.section import Section, folded
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext
from perfkit.report.text.names import stored_value
from perfkit.report.text.statements import sentence

MOST_OPEN_RANKS = 8
"""With more ranks, their table is folded."""


def warnings(page: CheckedMeasurement) -> Section:
    """The warnings, worst first; empty without any."""
    if not page.result.complete_repeats:
        return Section()
    rows = [
        [severity_mark(severity([warning.code])), code(warning.code), sentence(warning)]
        for warning in page.checks.warnings
    ]
    return table(rows, ["", _("Warning"), _("Meaning")], as_cards=True)


def repeats(measurement: Measurement) -> Section:
    """Tables of the repeats and, with several ranks, of the ranks."""
    result = measurement.result
    section = _repeat_table(result)
    ranks: dict[int, list[Rank]] = {}
    for repeat in result.complete_repeats:
        for rank in repeat.ranks:
            ranks.setdefault(rank.rank, []).append(rank)
    if len(ranks) > 1:
        section += _rank_table(result, ranks)
    return section


def _repeat_table(result: Result) -> Section:
    headings = (
        *(_("Repeat"), plain(result.counts.unit), _("Median step (s)")),
        *(NumberHeading(_("Data wait")), _("Loss, first and last")),
        *(_("Peak memory (GiB)"), _("To first step (s)"), _("Pauses (s)")),
        *(_("Failure"), _("Message")),
    )
    rows = [_repeat_row(repeat, result) for repeat in result.repeats]
    return table(rows, headings, as_cards=True)


def _repeat_row(repeat: Repeat, result: Result) -> list[str]:
    """Return a repeat's cells; those without a value are empty."""
    seconds, failure = repeat.step_seconds, repeat.failure
    wait = ""
    if repeat.data_wait_share is not None and result.input != "synthetic":
        wait = percent(repeat.data_wait_share)
    losses = [_optional(loss) for loss in (repeat.loss_first, repeat.loss_last)]
    if result.input == "synthetic":
        # The same batch again and again: the loss is not meaningful.
        losses = []
    memory, first_step = repeat.peak_memory_bytes, repeat.first_step
    return [
        f"{repeat.index:,}",
        _optional(repeat.throughput),
        number(seconds.median) if seconds else "",
        wait,
        " → ".join(filter(None, losses)),
        "" if memory is None else number(memory / GIB, 3),
        "" if first_step is None else number(first_step.seconds, 3),
        _optional(repeat.pauses_seconds or None),
        failure.code if failure else "",
        foreign(failure.reason) if failure else "",
    ]


def _optional(value: float | None) -> str:
    return "" if value is None else number(value)


def _rank_table(result: Result, ranks: Mapping[int, Sequence[Rank]]) -> Section:
    """Return a table of the ranks, each with its windows, and what it can show."""
    headings = (
        *(_("Rank"), _("Node"), NumberHeading(_("Slowest")), _("Window (s)")),
        _("Data wait (s)"),
        *(_("Computation (s)"), _("Memory (GiB)")),
    )
    rows = [_rank_row(result, rank, ranks[rank]) for rank in sorted(ranks)]
    section = table(rows, headings)
    if len(rows) > MOST_OPEN_RANKS:
        section = folded(_("%(count)s ranks") % {"count": len(rows)}, section)
    about_times = _about_ranks(result)
    if result.config.device == "cpu":
        about_memory = _("Memory is the peak of the process.")
    else:
        about_memory = _(
            "Memory is the peak allocated by the framework's allocator in the window; NVML's "
            "value under Telemetry, if any, includes the memory of CUDA and its libraries."
        )
    return section + note(about_times, about_memory)


def _about_ranks(result: Result) -> str:
    """Return what the times of the ranks can show."""
    if result.told or result.work.is_sharded:
        return _(
            "Ranks step together, so step times do not show which rank the others wait for. "
            "Values are ranges over the repeats."
        )
    return _(
        "Ranks step together, so step times do not show which rank the others wait for. "
        "Computation does: the time of a step's batches, forward and backward passes without "
        "waiting for other ranks, measured after the window. Values are ranges over the "
        "repeats."
    )


def _rank_row(result: Result, rank: int, windows: Sequence[Rank]) -> list[str | int]:
    """Return the cells of a rank with these windows."""
    complete = result.complete_repeats
    node = rank // result.config.devices
    hosts = sorted({repeat.nodes[node] for repeat in complete if len(repeat.nodes) > node})
    times_slowest = ""
    if result.work.is_sharded:
        times_slowest = _("unknown")
    elif any(window.compute_seconds is not None for window in windows):
        count = sum(repeat.straggler == rank for repeat in complete)
        times_slowest = f"{count} / {len(complete)}"
    return [
        rank,
        ", ".join(hosts) or node,
        times_slowest,
        spread(window.window_seconds for window in windows),
        spread(window.data_wait_seconds for window in windows),
        spread(window.compute_seconds for window in windows),
        spread((window.memory_bytes for window in windows), GIB),
    ]


def telemetry(measurement: Measurement) -> Section:
    """Other load, clocks, temperatures and energy during each window."""
    result = measurement.result
    headings = (
        *(_("Repeat"), _("Samples"), _("Process cores"), _("Other load (cores)")),
        *(_("Steal time"), _("Clock (MHz)"), _("Highest temperature (°C)")),
        *(_("Throttling (samples)"), _("Energy per sample (J)"), _("Memory in use (GiB)")),
    )
    rows = [
        [f"{repeat.index:,}", *_telemetry_cells(repeat.telemetry)]
        for repeat in result.complete_repeats
        if repeat.telemetry
    ]
    section = table(rows, headings)
    if result.telemetry:
        return section + note(*_telemetry_notes(result))
    if result.complete_repeats:
        return section + paragraph(_("No sample was taken before and after a window."))
    return section


def _telemetry_cells(telemetry: TelemetrySummary) -> list[str]:
    """Return the cells of a repeat; those without a value are empty."""
    steal = telemetry.steal_share
    memory = telemetry.memory_used_bytes.items()
    return [
        f"{telemetry.samples:,}",
        number(telemetry.process_cores),
        _optional(telemetry.other_load_cores),
        "" if steal is None else percent(steal),
        stored_value(telemetry.clock_mhz),
        stored_value(telemetry.temperature_celsius),
        stored_value(telemetry.throttled),
        _optional(telemetry.energy_joules_per_sample),
        "; ".join(f"{gpu} {number(used / GIB, 3)}" for gpu, used in memory),
    ]


def _telemetry_notes(result: Result) -> list[Inline]:
    """Return what the telemetry covers, and what is missing."""
    cores = max(summary.cores for summary in result.telemetry)
    words = _(
        "Sampled twice a second from outside the training, on the %(cores)s cores that the "
        "measurement may use. Other load is the load of all processes except the measurement's."
    )
    notes: list[Inline] = [words % {"cores": cores}]
    if result.config.nodes > 1:
        notes.append(_("Only the first node is monitored."))
    if result.energy_joules_per_sample and result.config.device == "gpu":
        notes.append(_("Energy covers the GPUs only."))
    elif result.energy_joules_per_sample:
        notes.append(
            _(
                "Energy covers whole processor packages and their memory, including other "
                "processes."
            )
        )
    return notes


def raw_files(measurement: CheckedMeasurement) -> Section:
    """Links to the result and the raw files, and whether one agrees with the other."""
    folder, section = measurement.folder, Section()
    if measurement.raw_files() and not measurement.checks.difference:
        section += _agreement(len(measurement.result.complete_repeats))
    files = [measurement.result_file, *measurement.raw_files(), *measurement.log_files()]
    files += sorted([*folder.glob(DIAGNOSIS), *folder.glob(f"{RAW_FOLDER}/*.jsonl")])
    rows = []
    for path in files:
        name = path.relative_to(folder).as_posix()
        rows.append([file_link(name), f"{path.stat().st_size:,}"])
    return (section + table(rows, [_("File"), _("Bytes")])).on_page_in(folder)


def _agreement(count: int) -> Section:
    """Return the statement that so many repeats agree with their raw files."""
    if not count:
        return Section()
    words = ngettext(
        "The result of the repeat was recomputed from its raw files and agrees.",
        "The results of the %(count)s repeats were recomputed from their raw files and agree.",
        count,
    )
    return paragraph(words % {"count": count})
