"""Sections of a measurement's page about its setup: parameters, settings, environment, work
equivalence, method."""

import shlex
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from perfkit.measuring import parameters as notebook
from perfkit.measuring.format import percent
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.effective import Effective
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement
from perfkit.report import elements
from perfkit.report.blocks import Inline
from perfkit.report.elements import bullets, code, note, paragraph, table
from perfkit.report.section import Section, folded
from perfkit.report.text import names
from perfkit.report.text.language import enumerated
from perfkit.report.text.language import gettext as _
from perfkit.report.text.wording import fact_name
from perfkit.report.told import CLOCKS
from perfkit.timing.warmup import WARMUP_SHARE

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
    skipped = None
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


def method(measurement: Measurement) -> Section:
    """How the throughput is measured."""
    result = measurement.result
    items = [_about_repeat(result), _about_throughput(result)]
    if result.told and result.told.log_format:
        return bullets([*items, _about_log(), _about_interval(result)])
    if not result.work.facts:
        items.append(_about_script())
    noted = result.told or result.effective
    clock = noted.step_clock if noted else None
    is_asynchronous = result.config.accelerated or clock == "watcher"
    items.append(_about_device(clock or "device") if is_asynchronous else _about_cpu())
    is_known = not result.told or result.told.counts_data_wait
    if is_known and result.input != "synthetic":
        items.append(_about_wait(is_asynchronous=is_asynchronous))
    items.append(_about_interval(result))
    return bullets(items)


def _about_repeat(result: Result) -> str:
    """Return the course of a repeat, in words."""
    protocol, text = result.protocol, _about_steps(result.protocol)
    if not protocol.measured_seconds:
        return text
    words = _(
        "The warm-up takes at least %(warmup).3g s, and the window has as many steps as take "
        "%(window)g s, by the last second of the warm-up."
    )
    seconds = protocol.measured_seconds
    return f"{text} {words % {'warmup': WARMUP_SHARE * seconds, 'window': seconds}}"


def _about_steps(protocol: Protocol) -> str:
    if not protocol.warmup_limit:
        words = _(
            "A repeat starts fresh worker processes, one per device. It runs %(warmup)s "
            "warm-up steps, which are dropped, and a window of %(measured)s measured steps."
        )
        return words % {
            "warmup": protocol.warmup_words,
            "measured": protocol.measured_words,
        }
    words = _(
        "A repeat starts fresh worker processes, one per device. Its warm-up, which is "
        "dropped, ends when the last %(measured)s steps are at one level, that is, a "
        "difference of over %(little)s between their first and second half is excluded, or "
        "after %(limit)s steps. A window of %(measured)s measured steps follows. A first pass "
        "through the data set within this limit belongs to the warm-up."
    )
    text = words % {
        "measured": protocol.measured_steps,
        "little": "1 %",
        "limit": protocol.warmup_limit,
    }
    if not protocol.warmup_seconds:
        return text
    ends = _("After %(seconds)s s the warm-up ends in any case.")
    return f"{text} {ends % {'seconds': protocol.warmup_seconds}}"


def _about_throughput(result: Result) -> str:
    words = _(
        "Throughput of a repeat: samples of all ranks in the window / wall time of the window "
        "on the slowest rank. It is not a mean of rates."
    )
    if result.counts.unit != "tokens/s":
        return words
    if result.told:
        return words
    counted = _("A sample counts as %(count)s tokens.")
    return f"{words} {counted % {'count': result.built_in.sequence_length}}"


def _about_script() -> str:
    return _(
        "The script runs its own training loop: a step ends with its call of timer.step, and "
        "one process per device starts the script anew in each repeat. Pauses within "
        "timer.pause belong to no step and not to the window."
    )


def _about_log() -> str:
    return _(
        "The command starts its own processes and is ended after the window. Its log is read "
        "as perfkit audit reads it: a print covers the steps since the one before, by the "
        "printed times, or by the arrival of its lines if there are none, or if they "
        "contradict it."
    )


def _about_device(clock: str) -> str:
    """Return how steps are timed on a device that executes work asynchronously."""
    words = _(
        "The device is synchronized at the start of the window; the window ends when the "
        "device has completed the last step. Without further synchronization, steps are timed "
        "by %(clock)s."
    )
    return words % {"clock": _(CLOCKS[clock])}


def _about_cpu() -> str:
    return _(
        "On a CPU, a step ends when its call returns. Steps are timed by a monotonic clock and "
        "add up to the window, except for a rank's wait at the end of the window."
    )


def _about_wait(*, is_asynchronous: bool) -> str:
    if is_asynchronous:
        return _(
            "Data wait: host time from requesting a batch to receiving it. The device may "
            "still be busy with earlier steps, so it is not necessarily lost time."
        )
    return _("Data wait: time from requesting a batch to receiving it. It is part of the step.")


def _about_interval(result: Result) -> str:
    words = _(
        "The result is the median of the repeats. Its interval lies between two order "
        "statistics and covers the median with exactly the level printed, for any distribution "
        "of independent repeats."
    )
    target = result.protocol.interval_target
    if not target or not result.throughput or result.ended_by not in ("interval", "budget"):
        return words
    ended = _(
        "Repeats ended after %(n)s, by an interval narrower than %(target)s of the median or "
        "by the time budget. Such a rule favours narrow intervals: by simulation, the printed "
        "interval then covers up to 2.5 points less."
    )
    return f"{words} {ended % {'n': result.throughput.n, 'target': percent(target, 2)}}"
