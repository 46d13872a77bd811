"""Jobs: the configurations of a parameters file, validated together."""

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.core.command import run_command, with_absolute_paths
from perfkit.core.inputs.samples import SAMPLE_DATA
from perfkit.core.models import model_named
from perfkit.core.paths import resolved_path
from perfkit.core.request import RequestError
from perfkit.core.request.checks import CheckScope
from perfkit.core.request.plan import Plan, plan
from perfkit.core.results.schema import Result
from perfkit.sweep.matrix import GIVEN, Configuration, Problem, SweepError, read_sweep

LABEL_LENGTH = 60
SLURM_LAUNCHERS = ("local", "srun")
"""Launchers of nodes that work within a Slurm job."""
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
        """The words after `perfkit` of the command that measures only this job."""
        return run_command(self.model, with_absolute_paths(self.parameters))[1:]

    @property
    def command(self) -> str:
        """That command, for a shell in any folder."""
        return shlex.join(["perfkit", *self.words])

    @property
    def outputs(self) -> Path:
        return resolved_path(self.plan.config.outputs_dir)

    @property
    def digest(self) -> str:
        """A digest of the work and the place of its results, equal in every call and file."""
        text = f"{work(self.plan)} {self.outputs}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def log(self) -> Path:
        """The file with the output of the job's processes."""
        words = "-".join(dict.fromkeys([self.model, self.label]))
        safe = re.sub(r"[^A-Za-z0-9.-]+", "_", words)[:LABEL_LENGTH]
        return self.outputs / "sweeps" / f"{safe}-{self.digest}.log"

    @property
    def sample_file(self) -> Path | None:
        """The file from `perfkit samples`, if the job trains on sample data."""
        if self.parameters.get("data_dir") or self.plan.config.input == "synthetic":
            return None
        return self.plan.config.data_folder / SAMPLE_DATA[model_named(self.model).data].file

    @property
    def sample_options(self) -> list[str]:
        """The options with which `perfkit samples` makes that file."""
        options = ["--for", self.model]
        if model_named(self.model).data == "shards":
            options += ["--sequence-length", str(self.plan.config.sequence_length)]
        return options


def work(source: Plan | Result) -> str:
    """A key that is equal for the same configuration and protocol."""
    return json.dumps([source.config.identity, source.protocol.model_dump()])


def read_jobs(
    path: Path, given: Mapping[str, Any], *, on_slurm: bool = False
) -> list[SweepJob]:
    """Return the jobs of a parameters file, with the parameters `given` for all of them.

    What this machine lacks for a job is in its `missing`. On Slurm, the measuring machine is
    unknown, and nothing is missing. Raises SweepError with all other problems.
    """
    configurations, problems = read_sweep(path, given)
    is_valid_file = not problems
    configurations = [_with_hosts_for_its_nodes(each) for each in configurations]
    varied = _varied([each.parameters for each in configurations])
    jobs: dict[str, SweepJob] = {}
    outputs: set[Path] = set()
    for configuration in configurations:
        lines = configuration.lines
        try:
            job = _job(configuration, varied, on_slurm=on_slurm)
        except RequestError as error:
            for problem in error.problems:
                parameter = problem.partition(":")[0]
                problems.append(Problem(lines.get(parameter, 1), problem))
            continue
        outputs.add(job.outputs)
        same = jobs.setdefault(work(job.plan), job)
        if same is not job and is_valid_file:
            problem = f"the same configuration twice: {same.label}; and {job.label}"
            problems.append(Problem(max(lines.values()), problem))
    if len(outputs) > 1:
        problems.append(Problem(1, "outputs_dir: must be the same in all configurations"))
    if len({str(job.sample_options) for job in jobs.values() if job.sample_file}) > 1:
        problem = "sequence_length: sample data has one length; set data_dir"
        problems.append(Problem(1, problem))
    if problems:
        raise SweepError(_in_line_order(path, problems))
    return [*jobs.values()]


def _varied(requests: list[dict[str, Any]]) -> list[str]:
    """Names of the parameters that differ between configurations."""
    names = dict.fromkeys(name for parameters in requests for name in parameters)
    return [n for n in names if len({repr(p.get(n)) for p in requests}) > 1]


def _in_line_order(path: Path, problems: Iterable[Problem]) -> list[str]:
    """The problems as sentences, each once, with the number of configurations that have it."""
    counts = Counter(sorted(problems, key=lambda problem: problem.line))
    sentences = []
    for problem, count in counts.items():
        place = "-p" if problem.line == GIVEN else f"{path}:{problem.line}"
        concerned = f" ({count} configurations)" if count > 1 else ""
        sentences.append(f"{place}: {problem.message}{concerned}")
    return sentences


def _job(configuration: Configuration, varied: list[str], *, on_slurm: bool) -> SweepJob:
    """The job of a configuration. Raises RequestError if no machine could measure it."""
    model, parameters = configuration.model, configuration.parameters
    own = {name: parameters[name] for name in varied if name in parameters}
    label = ", ".join(f"{name} {value}" for name, value in own.items()) or model
    if on_slurm:
        planned = plan(model, parameters, ELSEWHERE)
        if planned.config.launcher not in SLURM_LAUNCHERS:
            allowed = ", ".join(SLURM_LAUNCHERS)
            problem = f"launcher: {planned.config.launcher} is not for a sweep on Slurm"
            raise RequestError([f"{problem}; allowed: {allowed}"])
        return SweepJob(label, model, parameters, planned)
    # Missing sample data will be made.
    not_checked: set[CheckScope] = set() if parameters.get("data_dir") else {"data"}
    try:
        return SweepJob(label, model, parameters, plan(model, parameters, not_checked))
    except RequestError as error:
        planned = plan(model, parameters, VALIDITY_ONLY)
        return SweepJob(label, model, parameters, planned, tuple(error.problems))


def _with_hosts_for_its_nodes(configuration: Configuration) -> Configuration:
    """Limit `hosts` to the configuration's nodes; a single node is this machine."""
    parameters = configuration.parameters
    nodes, hosts = parameters.get("nodes", 1), parameters.get("hosts")
    if parameters.get("launcher") != "ssh" or not hosts or not isinstance(nodes, int):
        return configuration
    if nodes == 1:
        parameters = {n: v for n, v in parameters.items() if n not in ("hosts", "launcher")}
    else:
        parameters = parameters | {"hosts": ",".join(str(hosts).split(",")[:nodes])}
    return configuration._replace(parameters=parameters)
