"""Jobs: the configurations of a parameters file, validated together."""

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfkit.measuring.command import run_command
from perfkit.measuring.parameters import with_absolute_paths
from perfkit.measuring.paths import OUTPUTS, ROOT, stored_path
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.checks import CheckScope
from perfkit.measuring.request.plan import Plan, plan
from perfkit.measuring.results.schema import Result
from perfkit.sweep.matrix import GIVEN, Configuration, read_sweep
from perfkit.sweep.sweep_file import Problem, SweepError

LABEL_LENGTH = 60
ELSEWHERE: set[CheckScope] = {"machine", "data"}
"""Checks of this machine, which are skipped if another one measures."""
VALIDITY_ONLY: set[CheckScope] = {"requirements", "data"}
"""Checks to skip in order to see whether any machine could measure the configuration."""


@dataclass(frozen=True)
class SweepJob:
    """A configuration of a sweep. `label` names the parameters in which it differs from the
    others, `missing` what this machine lacks for it."""

    label: str
    model: str
    parameters: dict[str, Any]
    plan: Plan
    missing: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """Return the words after `perfkit` of the command that measures only this job."""
        return run_command(self.model, self.parameters)[1:]

    @property
    def command(self) -> str:
        """Return that command, for a shell in any folder."""
        return shlex.join(["perfkit", *self.words])

    @property
    def outputs(self) -> Path:
        return stored_path(self.plan.config.outputs_dir)

    @property
    def working_folder(self) -> Path:
        """Return the folder in which the job runs: of a script, the one of this process, since
        its data may be relative to it."""
        return self.plan.config.work.working_folder or ROOT

    @property
    def digest(self) -> str:
        """Return a digest of the work and the place of its results, equal in every call."""
        text = f"{work(self.plan)} {self.outputs}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def log(self) -> Path:
        """Return the file with the output of the job's processes."""
        words = "-".join(dict.fromkeys([self.model, self.label]))
        safe = re.sub(r"[^A-Za-z0-9.-]+", "_", words)[:LABEL_LENGTH]
        return self.outputs / "sweeps" / f"{safe}-{self.digest}.log"


def work(source: Plan | Result) -> str:
    """Return a key that is equal for the same configuration and protocol."""
    return json.dumps([source.config.identity, source.protocol.model_dump()])


def missing(jobs: Iterable[SweepJob]) -> list[str]:
    """Return what this machine lacks for these jobs, each once."""
    reasons: dict[str, None] = {}
    for job in jobs:
        reasons |= dict.fromkeys(job.missing)
    return [*reasons]


def read_jobs(
    path: Path,
    given: Mapping[str, Any],
    *,
    elsewhere: bool = False,
    each_node: Sequence[str] = (),
) -> list[SweepJob]:
    """Return the jobs of a parameters file, with the parameters `given` for all of them; with
    `each_node`, each configuration once on every node of these names.

    What this machine lacks for a job is in its `missing`. `elsewhere`: other machines measure,
    as on Slurm, and nothing is missing. Raises SweepError with all other problems.
    """
    configurations, problems = read_sweep(path, given)
    is_valid_file = not problems
    if each_node:
        configurations = [*_on_each_node(configurations, each_node)]
    varied = _varied(configurations)
    jobs: list[SweepJob] = []
    different: dict[str, SweepJob] = {}
    for configuration in configurations:
        try:
            job = _job(configuration, varied, elsewhere=elsewhere)
        except RequestError as error:
            problems += _located(error, configuration.lines)
            continue
        jobs.append(job)
        same = different.setdefault(work(job.plan), job)
        if same is not job and is_valid_file:
            problem = f"the same configuration twice: {same.label}; and {job.label}"
            problems.append(Problem(max(configuration.lines.values()), problem))
    if len({job.outputs for job in jobs}) > 1:
        problems.append(Problem(1, "outputs_dir: must be the same in all configurations"))
    if problems:
        raise SweepError(_in_line_order(path, problems))
    return [*different.values()]


def _located(error: RequestError, lines: Mapping[str, int]) -> list[Problem]:
    """Return the problems of a configuration with the lines of their parameters."""
    problems = []
    for problem in error.problems:
        parameter, _colon, _rest = problem.partition(":")
        problems.append(Problem(lines.get(parameter, 1), problem))
    return problems


def _varied(configurations: list[Configuration]) -> list[str]:
    """Return the names of the parameters that differ between configurations, `model` first if
    it does."""
    requests = []
    for configuration in configurations:
        requests.append({"model": configuration.model, **configuration.parameters})
    values: dict[str, set[str]] = {}
    for parameters in requests:
        for name in parameters:
            values[name] = {repr(request.get(name)) for request in requests}
    return [name for name, different in values.items() if len(different) > 1]


def _in_line_order(path: Path, problems: Iterable[Problem]) -> list[str]:
    """Return the problems as sentences, each once, with the number of configurations that have
    it."""
    counts = Counter(sorted(problems, key=lambda problem: problem.line))
    sentences = []
    for problem, count in counts.items():
        place = "-p" if problem.line == GIVEN else f"{path}:{problem.line}"
        concerned = f" ({count} configurations)" if count > 1 else ""
        sentences.append(f"{place}: {problem.message}{concerned}")
    return sentences


def _job(configuration: Configuration, varied: list[str], *, elsewhere: bool) -> SweepJob:
    """Return the job of a configuration. Raises RequestError if no machine could measure it."""
    model, parameters = configuration.model, configuration.parameters
    settings = [model] if "model" in varied else []
    settings += [f"{name} {_word(parameters[name])}" for name in varied if name in parameters]
    label = ", ".join(settings) or model
    # The job's command may run in another folder.
    parameters = with_absolute_paths({"outputs_dir": OUTPUTS} | parameters)
    checks = ELSEWHERE if elsewhere else VALIDITY_ONLY
    job = SweepJob(label, model, parameters, plan(model, parameters, checks))
    if elsewhere:
        return job
    try:
        plan(model, parameters)
    except RequestError as error:
        return replace(job, missing=tuple(error.problems))
    return job


def _word(value: Any) -> str:
    """Return a value in a label, quoted as in a shell if it is empty or has several words."""
    text = str(value)
    return text if text and " " not in text else shlex.quote(text)


def _on_each_node(
    configurations: Iterable[Configuration], nodes: Sequence[str]
) -> Iterator[Configuration]:
    """Yield each configuration once for every node. The first configuration comes first on all
    nodes, so that nodes are compared early."""
    for configuration in configurations:
        for node in nodes:
            parameters = configuration.parameters | {"node": node}
            lines = configuration.lines | {"node": GIVEN}
            yield configuration._replace(parameters=parameters, lines=lines)
