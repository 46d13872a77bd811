"""A diagnosis as text: on the page of its measurement and in the terminal."""

import shlex
from typing import Any

from perfkit.analysis.diagnosis.judge import LEVEL
from perfkit.analysis.diagnosis.statements import statements_of
from perfkit.analysis.diagnosis.stored import AnyDiagnosis, Limit
from perfkit.core.command import run_command
from perfkit.core.config import Config
from perfkit.core.request.resolve import resolve
from perfkit.core.results.schema import Result
from perfkit.core.script_config import SCRIPT, AnyConfig, ScriptConfig
from perfkit.core.statements import N_
from perfkit.core.statistics import fewest_values
from perfkit.report.elements import Text, code, joined
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _
from perfkit.report.text.terminal import wrapped

LIMITED_BY: dict[Limit, str] = {
    "input-bound": N_("input"),
    "training-bound": N_("training"),
    "mixed": N_("input and training"),
    "undecided": N_("can't tell"),
}
"""Verdict -> what limits the throughput."""
NOT_INTERLEAVED = ("label", "interval_target", "budget")
"""Parameters of a measurement that its diagnosis, which measures anew, does not take."""


def diagnosis_text(diagnosis: AnyDiagnosis, config: AnyConfig) -> str:
    """Return what the diagnosis of `config` says, in lines of at most 80 columns."""
    statements = statements_of(diagnosis, config)
    return "\n".join(wrapped(statement.text()) for statement in statements)


def obstacle(result: Result) -> Text:
    """Return why a measurement can't be diagnosed, and what to change; empty if nothing is in
    the way."""
    if result.config.nodes > 1:
        return _("A diagnosis needs a single node.")
    if isinstance(result.config, Config):
        if result.config.input == "synthetic":
            return _("Synthetic input takes no time, so there is nothing to diagnose.")
        return ""
    if not result.told:
        return _("The script told nothing: no repeat is complete.")
    if not result.told.counts_data_wait:
        advice = _("To diagnose it, read its batches through the timer and measure again:")
        return joined([advice, code("for batch in timer.batches(loader):")])
    return ""


def diagnose_command(result: Result) -> str:
    """Return the command that diagnoses the measurement on the same machine; empty if it can't
    be diagnosed."""
    config = result.config
    if obstacle(result):
        return ""
    if not isinstance(config, Config):
        return _script_command(result, config)
    return _as_diagnosis(run_command(config.model, _necessary_values(result, config)))


def command_without_options(config: AnyConfig) -> str:
    """Return the command that diagnoses a model or a script, without its options."""
    if isinstance(config, ScriptConfig):
        return _as_diagnosis(run_command(SCRIPT, {"script": config.script}))
    return _as_diagnosis(run_command(config.model, {}))


def _script_command(result: Result, config: ScriptConfig) -> str:
    """Return the command that diagnoses a script by the repeats that its folder has already."""
    values = names.requested(result) | {"script": config.script}
    if config.outputs_dir != ScriptConfig.model_fields["outputs_dir"].default:
        values["outputs_dir"] = config.outputs_dir
    return _as_diagnosis(run_command(SCRIPT, values))


def _as_diagnosis(run: list[str]) -> str:
    """Return the command of a measurement as that of its diagnosis."""
    return shlex.join(run).replace("perfkit run", "perfkit diagnose", 1)


def _necessary_values(result: Result, config: Config) -> dict[str, Any]:
    """Return the parameters of a model's diagnosis that do not follow from others."""
    identifying = {"model", "framework", "precision", "gpus"}
    usual = resolve(config.model_dump(include=identifying | {"device"})).model_dump()
    usual["device"] = "gpu" if result.fact("gpus") else "cpu"
    usual["protocol"] = "published" if config.accelerated else "quick"
    values = {}
    for name, value in names.requested(result).items():
        is_usual = name not in identifying and value == usual.get(name)
        if not is_usual and name not in NOT_INTERLEAVED:
            values[name] = value
    if result.protocol.repeats < fewest_values(LEVEL):
        values.pop("repeats", None)
    return values
