"""Sections of a measurement's page about its setup: command, parameters, settings,
environment."""

import shlex
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from perfkit.measuring import parameters as notebook
from perfkit.measuring.results.effective import Effective
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement
from perfkit.report import elements
from perfkit.report.blocks import Inline
from perfkit.report.elements import code, note, paragraph, table
from perfkit.report.section import Section, folded
from perfkit.report.text import names
from perfkit.report.text.language import enumerated
from perfkit.report.text.language import gettext as _
from perfkit.report.text.wording import fact_name
from perfkit.report.told import CLOCKS

DALI_SETTINGS = ("dali_threads", "dali_prefetch")
"""Parameters of which 0 stands for a number by the machine's cores, which ranks note."""


def command(measurement: Measurement) -> Section:
    """The command that repeats the measurement, and what else a repetition needs."""
    result = measurement.result
    return elements.command(names.command(result)) + note(*_about_command(result))


def parameters(measurement: Measurement) -> Section:
    """Every parameter that has an effect, those with another value than the default first."""
    result = measurement.result
    changed: list[list[str]] = []
    unchanged: list[list[str]] = []
    described = notebook.parameters(type(result.work))
    for name, value in names.taken_parameters(result).items():
        about = notebook.ABOUT[name]
        if about.identifies and about.is_for("input", result.work.input):
            rows = unchanged if value == described[name].default else changed
            rows.append([name, str(value)])
    headings = [_("Parameter"), _("Value")]
    words = _("Defaults:") if unchanged else ""
    return table(changed, headings) + paragraph(words) + table(unchanged, headings)


def _about_command(result: Result) -> list[Inline]:
    """Return the version of the suite, and what else a repetition needs."""
    texts: list[Inline] = []
    commit = result.fact("suite_commit")
    if commit:
        texts.append(_("perfkit at commit %(commit)s.") % {"commit": str(commit)[:12]})
        if result.fact("suite_modified"):
            texts.append(Markup("<em>%s</em>") % _("There were uncommitted changes."))
    if result.status == "complete":
        label = code("-p label NAME") + "."
        texts += [_("To measure again and keep these results:"), label]
    work = result.work
    if not work.facts:
        return texts
    if work.input != "synthetic" and work.has_sample_data:
        samples = code(f"perfkit samples --for {work.name}")
        texts += [_("The input was sample data:"), samples]
    texts += [_("The same training by its script alone:"), _script(result)]
    return texts


def _script(result: Result) -> Markup:
    """Return the command line of a built-in model's training script."""
    config, effective = result.config, result.effective
    words = ["python", "-m", f"perfkit.training.{config.framework}.train"]
    settings = effective.settings if effective else {}
    dali = {}
    for name in DALI_SETTINGS:
        if settings.get(name, "").isdecimal():
            dali[name] = int(settings[name])
    words += result.built_in.model_copy(update=dali).training_arguments(config)
    variables = effective.variables if effective else {}
    assigned = [f"{name}={value}" for name, value in variables.items() if value is not None]
    return code(shlex.join([*assigned, *words]))


def effective_settings(measurement: Measurement) -> Section:
    """Effective settings as read inside the workers; of a script, only how its nodes are
    connected."""
    result = measurement.result
    effective = result.effective
    section = Section()
    if effective:
        section = _settings(result, effective) + _strategy(result, effective)
    elif result.work.facts and result.complete_repeats:
        section = paragraph(_("Unknown: no worker reached its first batch."))
    section += _facts({_("Network that NCCL chose"): result.nccl_network})
    rows = [[n.name, n.interface, names.stored_value(n.differs)] for n in result.nodes]
    return section + table(
        rows, [_("Node"), _("Network interface"), _("Differs from node 0 in")]
    )


def _settings(result: Result, effective: Effective) -> Section:
    """Return tables of the settings, the input data and the environment variables."""
    skipped, clock = None, effective.step_clock
    if effective.loss_scaling:
        skipped = [repeat.skipped_steps for repeat in result.complete_repeats]
    expected = result.counts.parameters
    section = _facts(
        {
            _("Precision"): names.precision(result),
            _("Layers by output type"): effective.dtypes,
            "TF32": effective.tf32,
            _("Attention kernel"): effective.attention,
            _("Initial loss scale"): effective.loss_scaling,
            _("Skipped steps by repeat"): skipped,
            _("Device"): effective.device,
            _("Step times"): clock and _(CLOCKS[clock]),
            _("Optimizer and loss"): effective.optimizer_settings,
            _("Trainable parameters"): effective.parameters,
            _("Expected parameters"): None if effective.parameters == expected else expected,
            _("Thread pools"): effective.threads,
            _("Tuning"): effective.settings or None,
        }
    )
    data = result.input_data
    if data:
        section += _facts({_("Input samples"): data.samples, _("Input SHA-256"): data.sha256})
    variables = [
        [name, _("not set") if value is None else value]
        for name, value in effective.variables.items()
    ]
    headings = [_("Variable"), _("Value")]
    return section + folded(_("Environment variables"), table(variables, headings))


def _facts(values: Mapping[str, Any]) -> Section:
    """Return a table of the facts that have a value."""
    rows = [
        [name, names.stored_value(value)]
        for name, value in values.items()
        if value not in (None, "")
    ]
    return table(rows, [_("Fact"), _("Value")])


def _strategy(result: Result, effective: Effective) -> Section:
    """Return a table of the strategy's options; empty without a strategy."""
    if not effective.strategy:
        return Section()
    words = _("Options of the strategy %(name)s and their effect in this framework:")
    rows = [
        [name, str(option.value), _(option.state), option.how]
        for name, option in effective.strategy.items()
    ]
    headings = [_("Option"), _("Value"), _("State"), _("How")]
    return paragraph(words % {"name": result.built_in.strategy}) + table(rows, headings)


def environment(measurement: Measurement) -> Section:
    """Hardware, driver and versions, with reasons for facts that could not be read."""
    readings = measurement.result.environment
    rows: list[list[Inline]] = []
    unread: dict[str, list[str]] = {}
    for name, reading in readings.items():
        if reading.missing:
            unread.setdefault(reading.missing, []).append(fact_name(name))
        else:
            value: Inline = _fact_value(name, reading.value) or _("none")
            if "\n" in value:
                value = Markup("<pre>%s</pre>") % value
            rows.append([fact_name(name), value])
    for reason, facts in unread.items():
        rows.append([enumerated(facts), f"{_('not read')} ({reason})"])
    return table(rows, [_("Fact"), _("Value")])


def _fact_value(name: str, value: Any) -> str:
    """Return the value of a fact as text: that of several equal GPUs once, and how many have
    it."""
    if not isinstance(value, list) or len(value) < 2 or len({*value}) > 1:
        return names.stored_value(value)
    once = names.stored_value(value[0])
    return f"{len(value)} × {once}" if name == "gpus" else once
