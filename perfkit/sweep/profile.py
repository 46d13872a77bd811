"""Who runs the jobs of a sweep, and where: a folder of Snakemake's settings, and what has to be
seen to there before Snakemake begins."""

import importlib.util
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from perfkit.config import ROOT
from perfkit.request.errors import suggest
from perfkit.sweep.matrix import SweepError, load_yaml

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
