"""The section of a script's page on what ran and what the script told the timer."""

from collections.abc import Iterator
from typing import NamedTuple

from markupsafe import Markup

from perfkit.measuring.format import number, plain, shortened
from perfkit.measuring.results.effective import Told
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.statements import N_
from perfkit.measuring.units import GIGA
from perfkit.report.blocks import Inline
from perfkit.report.elements import code, foreign, note, paragraph, strong, table
from perfkit.report.section import Section
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _
from perfkit.training.frameworks import DISPLAY_NAMES

MOST_CHARACTERS = 1000
"""Longest text of a script that is shown whole."""
CLOCKS = {
    "host": N_("the host's clock"),
    "device": N_("events of the device"),
    "watcher": N_("the host's clock, when the result of a step was ready"),
    "printed": N_("the printed times"),
    "arrival": N_("the arrival of its lines"),
}
"""Source of step times -> its name."""
LABELS = {
    "script": N_("Script"),
    "arguments": N_("Arguments"),
    "modules": N_("Local modules"),
    "script_sha256": N_("SHA-256 of script and modules"),
    "command": N_("Command"),
    "flags": N_("Flags"),
    "directory": N_("Working directory"),
    "commit": N_("Commit"),
    "dirty": N_("Uncommitted changes"),
    "files_sha256": N_("SHA-256 of the files that it names"),
}
"""Field of a script or a command -> its name."""


def script(measurement: Measurement) -> Section:
    """What a script, or a command, is and told, with a mark at what the suite can't check.
    Empty for a built-in model."""
    result = measurement.result
    if result.work.facts:
        return Section()
    headings = [_("Fact"), _("Value")]
    rows: list[list[Inline]] = []
    for name, value in result.work.model_dump(include={*LABELS}).items():
        rows.append([_(LABELS[name]), _untrusted(names.stored_value(value)) or _("none")])
    section = table(rows, headings)
    if not result.told:
        return section + paragraph(_("It told nothing: no repeat is complete."))
    if result.told.log_format:
        return section
    rows = []
    for fact in _facts(result, result.told):
        rows.append([fact.name, fact.value or _("not told"), _source(fact)])
    section += table(rows, [*headings, _("Source")])
    return section + note(
        _(
            "The suite can't check what the script tells. The throughput is wrong by the same "
            "factor as the samples per step, the share of a peak as the FLOPs per sample."
        )
    )


def timed_by_log(told: Told) -> str:
    """Return how the log of a command gives its throughput."""
    per_step = {"count": f"{told.samples_per_step:,}", "unit": plain(told.unit)}
    counted = _("%(count)s %(unit)s per step") % per_step
    if told.log_rate:
        counted = plain(told.log_rate)
    words = _(
        "Timed by its own log (%(format)s: %(counted)s; printed every %(steps)s steps), by "
        "%(clock)s."
    )
    if told.print_steps == 1:
        words = _(
            "Timed by its own log (%(format)s: %(counted)s; printed every step), by %(clock)s."
        )
    values = {"format": plain(told.log_format), "counted": counted, "steps": told.print_steps}
    return words % (values | {"clock": _(CLOCKS[told.step_clock])})


def _untrusted(text: str) -> Markup:
    """Return text of the user's as code on one line; empty without text."""
    return foreign(code(shortened(plain(text), MOST_CHARACTERS))) if text else Markup()


class ToldFact(NamedTuple):
    """A fact that the script told, or that the timer recognized; its value is None if the
    script did not tell it."""

    name: str
    value: Inline | None
    is_checked: bool


def _facts(result: Result, told: Told) -> Iterator[ToldFact]:
    size = names.told_batch(result)
    yield ToldFact(_("Samples of a step, per rank"), foreign(size), is_checked=False)
    precision = foreign(plain(told.precision)) if told.precision else None
    yield ToldFact(_("Precision"), precision, is_checked=False)
    parameters = f"{told.parameters:,}" if told.parameters else None
    yield ToldFact(_("Trainable parameters"), parameters, is_checked=False)
    flops = number(told.flops_per_sample / GIGA) if told.flops_per_sample else None
    yield ToldFact(_("GFLOP per sample, forward and backward"), flops, is_checked=False)
    version = plain(f"{DISPLAY_NAMES[told.framework]} {told.framework_version or ''}")
    yield ToldFact(_("Framework"), foreign(version), is_checked=True)
    device = plain(" ".join(filter(None, [told.device, told.device_name])))
    yield ToldFact(_("Device"), foreign(device), is_checked=True)
    yield ToldFact(_("Step times"), _(CLOCKS[told.step_clock]), is_checked=True)
    wait = _("through timer.batches") if told.counts_data_wait else _("unknown")
    yield ToldFact(_("Wait for data"), wait, is_checked=True)


def _source(fact: ToldFact) -> Inline:
    """Return where a fact comes from; empty if the script did not tell it."""
    if fact.value is None:
        return ""
    if fact.is_checked:
        return _("recognized by the timer")
    return strong(_("told by the script"))
