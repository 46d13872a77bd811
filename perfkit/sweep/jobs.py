"""Jobs: configurations validated together, named, and matched with stored measurements."""

import hashlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perfkit.config import ROOT, run_command
from perfkit.inputs.data_set import digest
from perfkit.inputs.samples import SAMPLE_DATA
from perfkit.models import MODELS
from perfkit.request import RequestError, suggest
from perfkit.request.checks import Check, read_environment
from perfkit.request.plan import Plan, plan
from perfkit.results.schema import Result, identity
from perfkit.results.store import Measurement, ResultError, Store, folders
from perfkit.sweep.matrix import (
    Configuration,
    Position,
    Problem,
    SweepError,
    load_yaml,
    read_sweep,
)

PROFILES = ROOT / "workflow" / "profiles"
CANCELLED_SECONDS = 120.0


@dataclass(frozen=True)
class Profile:
    """A Snakemake profile: its folder, and the executor that runs the jobs."""

    folder: Path
    executor: str

    @property
    def remote(self) -> bool:
        """Whether the jobs run on other machines."""
        return self.executor != "local"

    @classmethod
    def named(cls, name: str) -> "Profile":
        """Read the profile `name` of workflow/profiles, or a folder. Raises SweepError."""
        folder = PROFILES / name if (PROFILES / name).is_dir() else Path(name).resolve()
        file = folder / "config.yaml"
        if not file.is_file():
            known = sorted(path.name for path in PROFILES.iterdir())
            allowed = f"allowed: {', '.join(known)}, or a folder with a config.yaml"
            raise SweepError([f"--profile: {name!r}: {allowed}{suggest(name, known)}"])
        content = load_yaml(file)
        if not isinstance(content, dict):
            raise SweepError([f"{file}: has no settings"])
        executor = str(content.get("executor", "local"))
        plugin = f"snakemake_executor_plugin_{executor}"
        if executor != "local" and not importlib.util.find_spec(plugin):
            how = f"to install it: pip install -e '.[{executor}]'"
            raise SweepError([f"--profile: no Snakemake plugin for {executor}; {how}"])
        return cls(folder, executor)

    def prepare(self, folder: Path) -> None:
        """Cancel the Slurm jobs of an earlier, killed call in `folder` and wait for their end;
        check the configuration of the Kubernetes cluster. Raises SweepError."""
        if self.executor == "slurm":
            try:
                _cancel_slurm_jobs(folder)
            except (OSError, subprocess.CalledProcessError) as error:
                reason = getattr(error, "stderr", None) or error
                raise SweepError([f"--profile: Slurm does not respond: {reason}"]) from None
        config = Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
        known = config.exists() or "KUBERNETES_SERVICE_HOST" in os.environ
        if self.executor == "kubernetes" and not known:
            problem = f"no Kubernetes cluster: {config} does not exist; test: kubectl get nodes"
            raise SweepError([f"--profile: {problem}"])


def _cancel_slurm_jobs(folder: Path) -> None:
    def slurm(*words: str) -> str:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    deadline = time.monotonic() + CANCELLED_SECONDS
    while True:
        listed = slurm("squeue", "--noheader", "--user", str(os.getuid()), "--format", "%A %Z")
        pairs = (line.split(maxsplit=1) for line in listed.splitlines())
        jobs = [job for job, where in pairs if Path(where).resolve() == folder.resolve()]
        if not jobs:
            return
        if time.monotonic() > deadline:
            problem = "Slurm has not cancelled the jobs of an earlier call"
            raise SweepError([f"{problem}: {', '.join(jobs)}"])
        slurm("scancel", *jobs)
        time.sleep(1.0)


NAME_LENGTH = 60
LAUNCHERS = {"local": ("local", "srun", "mpirun"), "slurm": ("local", "srun")}
HINTS = {
    "local": "for launcher=manual, type perfkit run on each host",
    "slurm": "each job is an allocation: srun",
    "kubernetes": "for several nodes: perfkit manifest",
}
"""How to start several nodes with each Snakemake executor."""
CLUSTER = (
    "nodes: several nodes need --profile slurm, or -p launcher mpirun -p hosts NODE1,NODE2"
)
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
    missing: str = ""

    @property
    def command(self) -> str:
        """The command that measures only this job."""
        return shlex.join(run_command(self.model, self.parameters))

    @property
    def sample_file(self) -> Path | None:
        """The file from `perfkit samples`, if the job trains on sample data."""
        if self.parameters.get("data_dir") or self.plan.config.input == "synthetic":
            return None
        return self.plan.config.data_folder / SAMPLE_DATA[MODELS[self.model].data].file


def read_jobs(
    path: Path, given: Mapping[str, Any], executor: str, *, listing: bool = False
) -> list[Job]:
    """Return the jobs of a parameters file for Snakemake's `executor`, with the parameters
    `given` for all of them. Raises SweepError with all problems. With `listing`, requirements
    that this machine does not meet are no problems, but set `missing` of a job."""
    configurations, wrong = read_sweep(path, given)
    counts, file = Counter(wrong), Position(0, str(path))
    planned: list[tuple[Configuration, dict[str, Any], Plan, str]] = []
    for configuration in configurations:
        parameters = _with_own_hosts(configuration.parameters)
        possible, lacking = _planned(configuration.model, parameters, executor)
        if possible and (listing or not lacking):
            planned.append((configuration, parameters, possible, "; ".join(lacking)))
        else:
            positions = (configuration.where.get(p.partition(":")[0], file) for p in lacking)
            counts.update(map(Problem, positions, lacking))
    all_parameters = [parameters for _configuration, parameters, *_rest in planned]
    names = dict.fromkeys(name for parameters in all_parameters for name in parameters)
    varied = [n for n in names if len({repr(p.get(n)) for p in all_parameters}) > 1]
    jobs: dict[str, Job] = {}
    for configuration, parameters, found, missing in planned:
        job = _job(configuration.model, parameters, found, missing, varied)
        same = jobs.setdefault(_work(job.plan), job)
        if same is not job and not wrong:
            last = max(configuration.where.values(), default=file)
            problem = f"the same configuration twice: {same.label}; and {job.label}"
            counts[Problem(last, problem)] = 1
    if len({found.config.outputs_dir for _configuration, _parameters, found, _ in planned}) > 1:
        counts[Problem(file, "outputs_dir: must be the same in all configurations")] = 1
    if counts:
        in_order = sorted(counts.items(), key=lambda counted: counted[0].position.line)
        raise SweepError([f"{p}{f' ({n} configurations)' * (n > 1)}" for p, n in in_order])
    return [*jobs.values()]


def _job(
    model: str, parameters: dict[str, Any], found: Plan, missing: str, varied: list[str]
) -> Job:
    """A job, named by the values of the parameters that vary in the sweep."""
    own = {name: parameters[name] for name in varied if name in parameters}
    label = ", ".join(f"{name} {value}" for name, value in own.items())
    words = re.sub(r"[^A-Za-z0-9.-]+", "_", "-".join([model, *map(str, own.values())]))
    request = json.dumps([model, parameters], sort_keys=True).encode()
    name = f"{words[:NAME_LENGTH]}-{hashlib.sha256(request).hexdigest()[:8]}"
    return Job(name, label or model, model, parameters, found, missing)


def _planned(
    model: str, parameters: dict[str, Any], executor: str
) -> tuple[Plan | None, list[str]]:
    """The plan of a configuration, None if impossible, and why this executor can't run it."""
    several = parameters.get("nodes", 1) not in (None, 1) and not parameters.get("launcher")
    here = executor == "local" and not (several and "SLURM_JOB_ID" not in os.environ)
    lacking = [CLUSTER] if executor == "local" and not here else []
    # Missing sample data will be generated.
    local: set[Check] = set() if parameters.get("data_dir") else {"data"}
    for skipped in (local, REMOTE) if here else (REMOTE,):
        try:
            found = plan(model, parameters, skipped)
            break
        except RequestError as error:
            lacking += [problem for problem in error.problems if problem not in lacking]
    else:
        return None, lacking
    launcher = found.config.launcher
    if launcher not in LAUNCHERS.get(executor, ("local",)):
        name = "launcher" if parameters.get("launcher") else "nodes"
        problem = f"{launcher} can't start {found.config.nodes} nodes with this profile"
        lacking.append(f"{name}: {problem}; {HINTS.get(executor, 'one node at a time')}")
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
    jobs: Iterable[Job], outputs: Path, *, remote: bool, is_new: Callable[[Path], bool]
) -> dict[str, Measurement]:
    """Return the latest measurement of each job under `outputs`, by job name, complete or not.
    Imported measurements are ignored. Local jobs only match a measurement that `is_new` or has
    the current environment and data, since any other would be measured anew."""
    stored: dict[str, list[Measurement]] = {}
    for folder in folders(outputs):
        found = _read(folder, written(folder))
        if found and not found.result.imported:
            stored.setdefault(_work(found.result), []).append(found)
    matched = {}
    for job in jobs:
        candidates = [
            found
            for found in stored.get(_work(job.plan), [])
            if remote or is_new(found.folder) or _made_here(job, found.result)
        ]
        if candidates:
            matched[job.name] = max(candidates, key=lambda found: written(found.folder))
    return matched


def _work(source: Plan | Result) -> str:
    """A key that is equal for the same configuration and protocol."""
    return json.dumps([source.config.identity, source.protocol.model_dump()])


def _made_here(job: Job, result: Result) -> bool:
    """Whether the result has the current environment and data."""
    config = job.plan.config
    here = _environment(config.framework, config.data_folder, config.interpreter)
    same_data = result.input_data is None or result.input_data.sha256 == digest(config)
    return same_data and identity(result.environment) == here


def written(folder: Path) -> int:
    """When the folder's result was last written, nanoseconds; 0 if it has been removed."""
    try:
        return Store(folder).result_file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


@cache
def _environment(framework: str, data_folder: Path, interpreter: str) -> dict[str, Any]:
    return identity(read_environment(framework, data_folder, interpreter))


@cache
def _read(folder: Path, _changed: int) -> Measurement | None:
    try:
        return Measurement.read(folder)
    except ResultError:
        return None


def for_snakemake(jobs: list[Job], outputs: Path, *, makes_samples: bool) -> dict[str, Any]:
    """The content of jobs.json, which workflow/Snakefile reads."""
    samples = {j.name: str(j.sample_file) for j in jobs if makes_samples and j.sample_file}
    return {
        "outputs": str(outputs),
        "samples": {samples[job.name]: job.model for job in jobs if job.name in samples},
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
