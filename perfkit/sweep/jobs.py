"""Configurations as jobs: judged as a whole, named, and matched with what is measured."""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from perfkit.config import ROOT, resolved_path, run_command
from perfkit.inputs.data_set import digest
from perfkit.inputs.samples import SHARD
from perfkit.models import MODELS
from perfkit.request.checks import Check
from perfkit.request.environment import read_environment
from perfkit.request.errors import RequestError
from perfkit.request.plan import Plan, plan
from perfkit.results.schema import Result
from perfkit.results.store import Measurement, ResultError, Store, folders
from perfkit.sweep.file import Configuration, SweepError, read_sweep
from perfkit.system.environment import identity

NAME_LENGTH = 60
LAUNCHERS = {"local": ("local", "srun", "mpirun"), "slurm": ("local", "srun")}
WAYS = {
    "local": "manual is started by hand: perfkit run on each host",
    "slurm": "each job is an allocation: srun",
    "kubernetes": "for several nodes: perfkit manifest",
}
"""How several nodes are started where an executor of Snakemake's runs the jobs."""
CLUSTER = (
    "nodes: several need a cluster: --profile slurm, or -p launcher mpirun -p hosts NODE1,NODE2"
)


@dataclass(frozen=True)
class Job:
    """One configuration of a sweep, to be measured by one run of its model's notebook."""

    name: str
    label: str
    model: str
    parameters: dict[str, Any]
    plan: Plan

    @property
    def command(self) -> str:
        """The command that measures it alone."""
        return shlex.join(run_command(self.model, self.parameters))

    @property
    def sample_file(self) -> Path | None:
        """The file that `perfkit samples` makes for it, if it trains on sample data."""
        if self.parameters.get("data_dir") or self.plan.config.input == "synthetic":
            return None
        images = MODELS[self.model].sample == "image"
        return self.plan.config.data_folder / ("train_list.txt" if images else SHARD)


def read_jobs(path: Path, given: Mapping[str, Any], executor: str) -> list[Job]:
    """The jobs that a parameters file names, with the parameters `given` for all of them, for
    Snakemake's `executor` to run. Raises SweepError with all that is wrong."""
    elsewhere = executor != "local"
    configurations, wrong = read_sweep(path, given)
    told = dict.fromkeys(wrong, 1)
    planned = []
    for one in configurations:
        parameters = _with_own_hosts(one.parameters)
        # Sample data that is not there yet will be made.
        skipped: set[Check] = set() if parameters.get("data_dir") else {"data"}
        skipped |= {"machine", "data"} if elsewhere else set()
        if executor == "local" and _want_a_cluster(parameters):
            told[f"{one.where['nodes']}: {CLUSTER}"] = 1
            continue
        try:
            planned.append((one, parameters, plan(one.model, parameters, skipped)))
        except RequestError as error:
            for problem in error.problems:
                name = problem.partition(":")[0]
                line = f"{one.where.get(name, path)}: {problem}"
                if line not in wrong:
                    told[line] = told.get(line, 0) + 1
    problems = [
        f"{line}{f' ({n} configurations)' if n > 1 else ''}" for line, n in told.items()
    ]
    if not wrong:
        problems += _shared_problems(planned, path, executor)
    if problems:
        raise SweepError(problems)
    varied = _varied([parameters for _one, parameters, _plan in planned])
    return [_job(one.model, parameters, found, varied) for one, parameters, found in planned]


def _want_a_cluster(parameters: dict[str, Any]) -> bool:
    """Whether several nodes are asked for, nothing says how they are started, and this is no
    Slurm allocation."""
    several = "nodes" in parameters and parameters["nodes"] not in (None, 1)
    return several and not parameters.get("launcher") and "SLURM_JOB_ID" not in os.environ


def _with_own_hosts(parameters: dict[str, Any]) -> dict[str, Any]:
    """With as many of the hosts as the configuration has nodes; one node is this machine."""
    if parameters.get("launcher") != "mpirun" or not parameters.get("hosts"):
        return parameters
    nodes = parameters.get("nodes", 1)
    if not isinstance(nodes, int):
        return parameters
    if nodes == 1:
        return {n: v for n, v in parameters.items() if n not in ("hosts", "launcher")}
    return parameters | {"hosts": ",".join(str(parameters["hosts"]).split(",")[:nodes])}


def _shared_problems(
    planned: list[tuple[Configuration, dict[str, Any], Plan]], path: Path, executor: str
) -> list[str]:
    """What is wrong with the configurations taken together."""
    problems = []
    if len({found.config.outputs_dir for _one, _parameters, found in planned}) > 1:
        problems.append(f"{path}: outputs_dir: must be the same in all configurations")
    varied = _varied([parameters for _one, parameters, _plan in planned])
    first: dict[Any, str] = {}
    for one, parameters, found in planned:
        config = found.config
        if config.launcher not in LAUNCHERS.get(executor, ("local",)):
            name = "launcher" if "launcher" in one.where else "nodes"
            problems.append(
                f"{one.where.get(name, path)}: launcher: {config.launcher} can't be used for "
                f"nodes={config.nodes} here; {WAYS.get(executor, 'one node at a time')}"
            )
        work = _work(found)
        if work in first:
            place = max(one.where.values(), key=_line, default=path)
            both = f"{first[work]}; and {_label(parameters, varied)}"
            problems.append(f"{place}: the same configuration twice: {both}")
        first.setdefault(work, _label(parameters, varied))
    return list(dict.fromkeys(problems))


def _line(where: str) -> int:
    line = where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _varied(all_parameters: list[dict[str, Any]]) -> list[str]:
    """The parameters whose values tell the configurations apart."""
    names = dict.fromkeys(name for parameters in all_parameters for name in parameters)
    return [n for n in names if len({repr(p.get(n)) for p in all_parameters}) > 1]


def _job(model: str, parameters: dict[str, Any], planned: Plan, varied: list[str]) -> Job:
    told = {name: parameters[name] for name in varied if name in parameters}
    words = "-".join([model, *map(str, told.values())])
    words = re.sub(r"[^A-Za-z0-9.-]+", "_", words)[:NAME_LENGTH]
    hashed = hashlib.sha256(json.dumps([model, parameters], sort_keys=True).encode())
    label = _label(parameters, varied) or model
    return Job(f"{words}-{hashed.hexdigest()[:8]}", label, model, parameters, planned)


def _label(parameters: dict[str, Any], varied: list[str]) -> str:
    return ", ".join(f"{name} {parameters[name]}" for name in varied if name in parameters)


def measured(jobs: Iterable[Job], outputs: Path, *, elsewhere: bool) -> dict[str, Measurement]:
    """Job name -> the measurement of its configuration under `outputs`, complete or not, the
    one written last if there are several; what was imported is none. Unless it runs
    `elsewhere`, only one that was made in the environment and with the data of now: any other
    would be measured anew."""
    stored: dict[str, list[Measurement]] = {}
    for folder in folders(outputs):
        found = _read(folder, written(folder))
        if found and not found.result.imported:
            stored.setdefault(_work(found.result), []).append(found)
    matched = {}
    for job in jobs:
        config = job.plan.config
        candidates = stored.get(_work(job.plan), [])
        if not elsewhere and candidates:
            here = _environment(config.framework, config.data_folder)
            data = digest(config)
            candidates = [c for c in candidates if _made_here(c, here, data)]
        if candidates:
            matched[job.name] = max(candidates, key=lambda found: written(found.folder))
    return matched


def _work(asked: Plan | Result) -> str:
    """The same for two of which the second would not be measured anew."""
    return json.dumps([asked.config.identity, asked.protocol.model_dump()])


def _made_here(measurement: Measurement, here: dict[str, Any], data: str | None) -> bool:
    result = measurement.result
    same_data = result.input_data is None or result.input_data.sha256 == data
    return same_data and identity(result.environment) == here


def written(folder: Path) -> int:
    """When its result was written last, in nanoseconds; 0 if somebody has removed it."""
    try:
        return Store(folder).result_file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@lru_cache(None)
def _environment(framework: str, data_folder: Path) -> dict[str, Any]:
    return identity(read_environment(framework, data_folder))


@lru_cache(None)
def _read(folder: Path, _changed: int) -> Measurement | None:
    try:
        return Measurement.read(folder)
    except ResultError:
        return None


def for_snakemake(jobs: list[Job], outputs: Path, *, makes_samples: bool) -> dict[str, Any]:
    """What workflow/Snakefile is told."""
    samples = {job.name: job.sample_file for job in jobs if job.sample_file and makes_samples}
    return {
        "outputs": str(outputs),
        "samples": {str(samples[job.name]): job.model for job in jobs if job.name in samples},
        "jobs": [
            {
                "name": job.name,
                "notebook": str(ROOT / "notebooks" / f"{job.model}.ipynb"),
                "parameters": job.parameters,
                "samples": [str(samples[job.name])] if job.name in samples else [],
                "nodes": job.plan.config.nodes,
                "gpus": job.plan.config.gpus if job.plan.config.device == "gpu" else 0,
            }
            for job in jobs
        ],
    }


def outputs_of(jobs: list[Job]) -> Path:
    return resolved_path(jobs[0].plan.config.outputs_dir)
