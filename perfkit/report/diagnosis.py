"""A diagnosis as text: on the page of its measurement and in the terminal."""

import shlex
from collections.abc import Iterable

from perfkit.analysis.diagnosis.judge import LEVEL
from perfkit.analysis.diagnosis.statements import DiagnosisStatement, statements_of
from perfkit.analysis.diagnosis.stored import Diagnosis, Limit
from perfkit.core.command import run_command
from perfkit.core.config import Config
from perfkit.core.request.resolve import resolve
from perfkit.core.results.schema import Result
from perfkit.core.statements import N_
from perfkit.core.statistics import fewest_values
from perfkit.report.text import names
from perfkit.report.text.statements import sentence
from perfkit.report.text.terminal import wrapped

LIMITED_BY: dict[Limit, str] = {
    "input-bound": N_("input"),
    "training-bound": N_("training"),
    "mixed": N_("input and training"),
    "undecided": N_("undecided"),
}
"""Verdict -> what limits the throughput."""
NOT_INTERLEAVED = ("label", "interval_target", "budget")
"""Parameters of a measurement that its diagnosis, which measures anew, does not take."""


def diagnosis_text(diagnosis: Diagnosis, config: Config) -> str:
    """Return what the diagnosis of `config` says, in lines of at most 80 columns."""
    return wrapped_statements(statements_of(diagnosis, config))


def wrapped_statements(statements: Iterable[DiagnosisStatement]) -> str:
    """Return the sentences of a diagnosis in lines of at most 80 columns."""
    return "\n".join(wrapped(sentence(statement)) for statement in statements)


def diagnose_command(result: Result) -> str:
    """Return the command that diagnoses the measurement on the same machine, without parameters
    that follow from others; empty if it can't be diagnosed."""
    config = result.config
    if not isinstance(config, Config):
        return ""
    if config.input == "synthetic" or config.nodes > 1:
        return ""
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
    run = shlex.join(run_command(config.model, values))
    return run.replace("perfkit run", "perfkit diagnose", 1)
