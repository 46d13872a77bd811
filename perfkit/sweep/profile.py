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
from perfkit.sweep.file import SweepError
from perfkit.sweep.yaml_file import YamlError, read_yaml

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
            raise SweepError(
                [
                    f"--profile: {name!r}: allowed: {', '.join(known)}, or a folder with a "
                    f"config.yaml{suggest(name, known)}"
                ]
            )
        try:
            content, _lines = read_yaml(file)
            if not isinstance(content, dict):
                raise YamlError("no settings in it")
        except YamlError as error:
            raise SweepError([f"{file}: {error}"]) from None
        executor = str(content.get("executor", "local"))
        plugin = f"snakemake_executor_plugin_{executor}"
        if executor != "local" and not importlib.util.find_spec(plugin):
            how = f"to add it: pip install -e '.[{executor}]'"
            raise SweepError([f"--profile: Snakemake can't use {executor} yet; {how}"])
        return cls(folder, executor)


def cancel_slurm_jobs(folder: Path) -> None:
    """Cancel the Slurm jobs that an earlier, killed call has left, and wait for their end.
    Raises SweepError."""

    def slurm(*words: str) -> str:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def left() -> list[str]:
        user = str(os.getuid())
        listed = slurm("squeue", "--noheader", "--user", user, "--format", "%A %Z")
        pairs = (line.split(maxsplit=1) for line in listed.splitlines())
        return [number for number, where in pairs if Path(where).resolve() == folder.resolve()]

    deadline = time.monotonic() + CANCELLED_SECONDS
    try:
        while jobs := left():
            if time.monotonic() > deadline:
                names = ", ".join(jobs)
                raise SweepError([f"Slurm has not ended the jobs of an earlier call: {names}"])
            slurm("scancel", *jobs)
            time.sleep(1.0)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        raise SweepError([f"--profile: Slurm does not answer here: {said}"]) from None


def find_kubernetes() -> None:
    """Raises SweepError if nothing here says where a Kubernetes cluster is."""
    config = Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
    if not config.exists() and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise SweepError(
            [f"--profile: no Kubernetes cluster is known here, no {config}: kubectl get nodes"]
        )
