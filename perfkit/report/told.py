"""The section of a script's page on what ran and what the script told the timer."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

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
}
"""Source of step times -> its name."""


def script(measurement: Measurement) -> Section:
    """The script's file, digest, modules and arguments, and what it told the timer, with a mark
    at what the suite can't check. Empty for a built-in model."""
    result = measurement.result
    if result.work.facts:
        return Section()
    headings = [_("Fact"), _("Value")]
    section = table(_content(result.work.model_dump()), headings)
    if not result.told:
        return section + paragraph(_("The script told nothing: no repeat is complete."))
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


def _content(work: Mapping[str, Any]) -> list[list[Inline]]:
    """Return the rows on the script's file and arguments, which are untrusted text."""
    modules = ", ".join(work["modules"])
    rows: list[list[Inline]] = [
        [_("Script"), _untrusted(work["script"])],
        [_("Arguments"), _untrusted(work["arguments"]) or _("none")],
        [_("Local modules"), _untrusted(modules) or _("none")],
        [_("SHA-256 of script and modules"), code(work["script_sha256"])],
    ]
    return rows


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
