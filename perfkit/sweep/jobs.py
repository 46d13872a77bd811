"""Jobs: configurations validated together, named, and matched with stored measurements."""

import hashlib
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perfkit.config import ROOT, run_command, with_absolute_paths
from perfkit.driver.measure import measurement_folder
from perfkit.inputs.samples import SAMPLE_DATA
from perfkit.models import MODELS
from perfkit.request import RequestError
from perfkit.request.checks import Check, read_environment
from perfkit.request.plan import Plan, plan
from perfkit.results.schema import Reading, Result
from perfkit.results.store import Measurement, ResultError, Store, folders
from perfkit.sweep.matrix import GIVEN, Problem, SweepError, read_sweep
from perfkit.system.software import InterpreterError

NAME_LENGTH = 60
LAUNCHERS = {"local": ("local", "srun", "mpirun"), "slurm": ("local", "srun")}
"""Launchers that a sweep's jobs can use, by Snakemake executor; others: only `local`."""
REMOTE: set[Check] = {"machine", "data"}
"""Checks of this machine, which remote jobs skip."""


@dataclass(frozen=True)
class Job:
    """A configuration of a sweep; `missing` names what this machine lacks for it."""

    name: str
    label: str
    model: str
    parameters: dict[str, Any]
    plan: Plan
    missing: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that measures only this job."""
        return shlex.join(run_command(self.model, with_absolute_paths(self.parameters)))

    @property
    def sample_file(self) -> Path | None:
        """The file from `perfkit samples`, if the job trains on sample data."""
        if self.parameters.get("data_dir") or self.plan.config.input == "synthetic":
            return None
        return self.plan.config.data_folder / SAMPLE_DATA[MODELS[self.model].data].file

    @property
    def sample_options(self) -> list[str]:
        """The options with which `perfkit samples` makes that file."""
        options = ["--for", self.model]
        if MODELS[self.model].data == "shards":
            options += ["--sequence-length", str(self.plan.config.sequence_length)]
        return options


def read_jobs(
    path: Path, given: Mapping[str, Any], executor: str, *, listing: bool = False
) -> list[Job]:
    """Return the jobs of a parameters file for Snakemake's `executor`, with the parameters
    `given` for all of them. Raises SweepError with all problems. With `listing`, requirements
    that this machine does not meet are no problems, but set `missing` of a job."""
    configurations, problems = read_sweep(path, given)
    requests = [_with_own_hosts(c.parameters) for c in configurations]
    names = dict.fromkeys(name for parameters in requests for name in parameters)
    varied = [n for n in names if len({repr(p.get(n)) for p in requests}) > 1]
    is_valid_file = not problems
    jobs: dict[str, Job] = {}
    outputs: set[str] = set()
    for (model, _parameters, lines), parameters in zip(configurations, requests, strict=True):
        found, lacking = _planned(model, parameters, executor)
        if not found or (lacking and not listing):
            problems += [Problem(lines.get(p.partition(":")[0], 1), p) for p in lacking]
            continue
        outputs.add(found.config.outputs_dir)
        own = {name: parameters[name] for name in varied if name in parameters}
        label = ", ".join(f"{name} {value}" for name, value in own.items()) or model
        words = re.sub(r"[^A-Za-z0-9.-]+", "_", "-".join([model, *map(str, own.values())]))
        request = json.dumps([model, parameters], sort_keys=True).encode()
        name = f"{words[:NAME_LENGTH]}-{hashlib.sha256(request).hexdigest()[:8]}"
        job = Job(name, label, model, parameters, found, tuple(lacking))
        same = jobs.setdefault(_work(found), job)
        if same is not job and is_valid_file:
            problem = f"the same configuration twice: {same.label}; and {label}"
            problems.append(Problem(max(lines.values()), problem))
    if len(outputs) > 1:
        problems.append(Problem(1, "outputs_dir: must be the same in all configurations"))
    if len({str(job.sample_options) for job in jobs.values() if job.sample_file}) > 1:
        problem = "sequence_length: sample data has one length; set data_dir"
        problems.append(Problem(1, problem))
    if problems:
        counts = Counter(sorted(problems, key=lambda problem: problem.line))
        raise SweepError(
            [
                f"{'-p' if line == GIVEN else f'{path}:{line}'}: {message}"
                + f" ({count} configurations)" * (count > 1)
                for (line, message), count in counts.items()
            ]
        )
    return [*jobs.values()]


def _planned(
    model: str, parameters: dict[str, Any], executor: str
) -> tuple[Plan | None, list[str]]:
    """The plan of a configuration, None if impossible, and why this executor can't run it."""
    lacking: list[str] = []
    # Missing sample data will be generated.
    local: set[Check] = set() if parameters.get("data_dir") else {"data"}
    for skipped in (local, REMOTE) if executor == "local" else (REMOTE,):
        try:
            found = plan(model, parameters, skipped)
            break
        except RequestError as error:
            # The second plan checks less, and its other problems follow from that.
            lacking = lacking or error.problems
    else:
        return None, lacking
    launcher, allowed = found.config.launcher, LAUNCHERS.get(executor, ("local",))
    if launcher not in allowed:
        problem = f"launcher: {launcher} is not available in a sweep with this profile"
        lacking.append(f"{problem}; allowed: {', '.join(allowed)} (docs/clusters.md)")
    return found, lacking


def _with_own_hosts(parameters: dict[str, Any]) -> dict[str, Any]:
    """Limit `hosts` to the configuration's nodes; a single node runs on this machine."""
    nodes, hosts = parameters.get("nodes", 1), parameters.get("hosts")
    if parameters.get("launcher") != "mpirun" or not hosts or not isinstance(nodes, int):
        return parameters
    if nodes == 1:
        return {n: v for n, v in parameters.items() if n not in ("hosts", "launcher")}
    return parameters | {"hosts": ",".join(str(hosts).split(",")[:nodes])}


def measured(
    jobs: Iterable[Job], outputs: Path, *, remote: bool, began: int | None
) -> dict[str, Measurement]:
    """Return the stored measurement of each job under `outputs`, by job name, complete or not.

    A local job's has the id of its configuration with the current environment and data. Unless
    it is complete, the latest measurement of the configuration counts that was written since
    the sweep `began` (nanoseconds): code or packages may have changed since. The environment of
    `remote` jobs is unknown: the latest of all counts. Imported ones never count."""
    since = 0 if remote else began or math.inf
    latest: dict[str, Measurement] = {}
    for folder in sorted(folders(outputs), key=written):
        found = _read(folder, written(folder)) if written(folder) >= since else None
        if found and not found.result.imported:
            latest[_work(found.result)] = found
    matched = {}
    for job in jobs:
        own = None
        # A dry run also lists jobs whose interpreter is missing.
        with suppress(InterpreterError):
            own = None if remote else _read(folder := _folder(job), written(folder))
        is_complete = own and own.result.status == "complete"
        if found := own if is_complete else latest.get(_work(job.plan), own):
            matched[job.name] = found
    return matched


def _folder(job: Job) -> Path:
    config = job.plan.config
    environment = _environment(config.framework, config.data_folder, config.interpreter)
    return measurement_folder(config, job.plan.protocol, environment)


def _work(source: Plan | Result) -> str:
    """A key that is equal for the same configuration and protocol."""
    return json.dumps([source.config.identity, source.protocol.model_dump()])


def written(folder: Path) -> int:
    """When the folder's result was last written, nanoseconds; 0 without a result."""
    try:
        return Store(folder).result_file.stat().st_mtime_ns
    except OSError:
        return 0


@cache
def _environment(framework: str, data_folder: Path, interpreter: str) -> dict[str, Reading]:
    return read_environment(framework, data_folder, interpreter)


@cache
def _read(folder: Path, _changed: int) -> Measurement | None:
    try:
        return Measurement.read(folder)
    except ResultError:
        return None


def for_snakemake(jobs: list[Job], *, makes_samples: bool) -> dict[str, Any]:
    """The content of jobs.json, which workflow/Snakefile reads."""
    samples = {j.name: str(j.sample_file) for j in jobs if makes_samples and j.sample_file}
    return {
        "samples": {samples[j.name]: j.sample_options for j in jobs if j.name in samples},
        "jobs": [
            {
                "name": job.name,
                "notebook": str(ROOT / "notebooks" / f"{job.model}.ipynb"),
                "parameters": job.parameters,
                "samples": [samples[job.name]] if job.name in samples else [],
                "nodes": job.plan.config.nodes,
                "gpus": job.plan.config.gpus if job.plan.config.accelerated else 0,
            }
            for job in jobs
        ],
    }
