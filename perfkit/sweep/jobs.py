"""Configurations as jobs: judged as a whole, named, and matched with what is measured."""

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
    """Who runs the jobs, and where: a folder of Snakemake's."""

    folder: Path
    executor: str

    @property
    def elsewhere(self) -> bool:
        """Whether the jobs run on other machines than this one."""
        return self.executor != "local"

    @classmethod
    def named(cls, name: str) -> "Profile":
        """The profile of workflow/profiles, or in the folder `name`. Raises SweepError."""
        folder = PROFILES / name if (PROFILES / name).is_dir() else Path(name).resolve()
        file = folder / "config.yaml"
        if not file.is_file():
            known = sorted(path.name for path in PROFILES.iterdir())
            allowed = f"allowed: {', '.join(known)}, or a folder with a config.yaml"
            raise SweepError([f"--profile: {name!r}: {allowed}{suggest(name, known)}"])
        content = load_yaml(file)
        if not isinstance(content, dict):
            raise SweepError([f"{file}: no settings in it"])
        executor = str(content.get("executor", "local"))
        plugin = f"snakemake_executor_plugin_{executor}"
        if executor != "local" and not importlib.util.find_spec(plugin):
            how = f"to add it: pip install -e '.[{executor}]'"
            raise SweepError([f"--profile: Snakemake can't use {executor} yet; {how}"])
        return cls(folder, executor)

    def prepare(self, folder: Path) -> None:
        """Cancel the Slurm jobs that an earlier, killed call has left in `folder`, and wait for
        their end; find the Kubernetes cluster. Raises SweepError."""
        if self.executor == "slurm":
            try:
                _cancel_slurm_jobs(folder)
            except (OSError, subprocess.CalledProcessError) as error:
                reason = getattr(error, "stderr", None) or error
                raise SweepError([f"--profile: Slurm does not answer here: {reason}"]) from None
        config = Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
        known = config.exists() or "KUBERNETES_SERVICE_HOST" in os.environ
        if self.executor == "kubernetes" and not known:
            problem = f"no Kubernetes cluster is known here, no {config}: kubectl get nodes"
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
            what = "Slurm has not ended the jobs of an earlier call"
            raise SweepError([f"{what}: {', '.join(jobs)}"])
        slurm("scancel", *jobs)
        time.sleep(1.0)


NAME_LENGTH = 60
LAUNCHERS = {"local": ("local", "srun", "mpirun"), "slurm": ("local", "srun")}
HINTS = {
    "local": "manual is started by hand: perfkit run on each host",
    "slurm": "each job is an allocation: srun",
    "kubernetes": "for several nodes: perfkit manifest",
}
"""How several nodes are started where an executor of Snakemake's runs the jobs."""
CLUSTER = (
    "nodes: several need a cluster: --profile slurm, or -p launcher mpirun -p hosts NODE1,NODE2"
)
ELSEWHERE: set[Check] = {"machine", "data"}
"""Checks that say nothing of jobs on other machines."""


@dataclass(frozen=True)
class Job:
    """One configuration of a sweep, to be measured by one run of its model's notebook; what
    this machine lacks for it is `missing`."""

    name: str
    label: str
    model: str
    parameters: dict[str, Any]
    plan: Plan
    missing: str = ""

    @property
    def command(self) -> str:
        """The command that measures it alone."""
        return shlex.join(run_command(self.model, self.parameters))

    @property
    def sample_file(self) -> Path | None:
        """The file that `perfkit samples` makes for it, if it trains on sample data."""
        if self.parameters.get("data_dir") or self.plan.config.input == "synthetic":
            return None
        return self.plan.config.data_folder / SAMPLE_DATA[MODELS[self.model].data].file


def read_jobs(
    path: Path, given: Mapping[str, Any], executor: str, *, listing: bool = False
) -> list[Job]:
    """The jobs that a parameters file names, with the parameters `given` for all of them, for
    Snakemake's `executor` to run. Raises SweepError with all that is wrong. To list them, what
    this machine lacks is not wrong, but `missing` in a job."""
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
        raise SweepError([f"{one}{f' ({n} configurations)' * (n > 1)}" for one, n in in_order])
    return [*jobs.values()]


def _job(
    model: str, parameters: dict[str, Any], found: Plan, missing: str, varied: list[str]
) -> Job:
    """The job, named by what tells it apart from the others, the parameters `varied`."""
    own = {name: parameters[name] for name in varied if name in parameters}
    label = ", ".join(f"{name} {value}" for name, value in own.items())
    words = re.sub(r"[^A-Za-z0-9.-]+", "_", "-".join([model, *map(str, own.values())]))
    asked = json.dumps([model, parameters], sort_keys=True).encode()
    name = f"{words[:NAME_LENGTH]}-{hashlib.sha256(asked).hexdigest()[:8]}"
    return Job(name, label or model, model, parameters, found, missing)


def _planned(
    model: str, parameters: dict[str, Any], executor: str
) -> tuple[Plan | None, list[str]]:
    """The plan of a configuration, None if no machine can measure it, and what keeps it from
    being measured by this executor."""
    several = parameters.get("nodes", 1) not in (None, 1) and not parameters.get("launcher")
    here = executor == "local" and not (several and "SLURM_JOB_ID" not in os.environ)
    lacking = [CLUSTER] if executor == "local" and not here else []
    # Sample data that is not there yet will be made.
    own: set[Check] = set() if parameters.get("data_dir") else {"data"}
    for skipped in (own, ELSEWHERE) if here else (ELSEWHERE,):
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
        problem = f"{launcher} can't start {found.config.nodes} nodes here"
        lacking.append(f"{name}: {problem}; {HINTS.get(executor, 'one node at a time')}")
    return found, lacking


def _with_own_hosts(parameters: dict[str, Any]) -> dict[str, Any]:
    """With as many of the hosts as the configuration has nodes; one node is this machine."""
    nodes, hosts = parameters.get("nodes", 1), parameters.get("hosts")
    if parameters.get("launcher") != "mpirun" or not hosts or not isinstance(nodes, int):
        return parameters
    if nodes == 1:
        return {n: v for n, v in parameters.items() if n not in ("hosts", "launcher")}
    return parameters | {"hosts": ",".join(str(hosts).split(",")[:nodes])}


def measured(
    jobs: Iterable[Job], outputs: Path, *, elsewhere: bool, is_new: Callable[[Path], bool]
) -> dict[str, Measurement]:
    """Job name -> the measurement of its configuration under `outputs`, complete or not, the
    one written last if there are several; what was imported is none. Unless it runs
    `elsewhere`, only one that was made in the environment and with the data of now, since any
    other would be measured anew, or one that `is_new`."""
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
            if elsewhere or is_new(found.folder) or _made_here(job, found.result)
        ]
        if candidates:
            matched[job.name] = max(candidates, key=lambda found: written(found.folder))
    return matched


def _work(asked: Plan | Result) -> str:
    """The same for two of which the second would not be measured anew."""
    return json.dumps([asked.config.identity, asked.protocol.model_dump()])


def _made_here(job: Job, result: Result) -> bool:
    """Whether the environment and the data of now are those of the result."""
    config = job.plan.config
    here = _environment(config.framework, config.data_folder, config.interpreter)
    same_data = result.input_data is None or result.input_data.sha256 == digest(config)
    return same_data and identity(result.environment) == here


def written(folder: Path) -> int:
    """When its result was written last, in nanoseconds; 0 if somebody has removed it."""
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
