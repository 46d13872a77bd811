"""Where a measurement was made: hardware, driver, versions, the suite's own commit.

Only what is listed here is read, never an environment dump, so that no secret, no host name
and no home path gets into it. What can't be read says why. Nothing is imported that
trains: versions are read from the installed packages' files.
"""

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import pynvml

from perfkit.config import ROOT, portable
from perfkit.machine.gpus import NoDriverError, ask, visible_names
from perfkit.machine.packages import dali
from perfkit.nodes.start import FORWARDED
from perfkit.request.frameworks import FRAMEWORKS, Framework
from perfkit.results.schema import NOT_IDENTITY, Reading

Value = str | int | float | bool | list[str]

MEASURING = ["config.py", "statistics.py", "machine", "models", "training", "backends"]
MEASURING += ["inputs", "request", "results", "nodes", "worker", "driver"]
"""What a number depends on; the other rooms only show, compare or read."""


class UnreadableError(Exception):
    """A fact can't be read here; the message says why."""


def read_environment(framework: str, data_dir: Path) -> dict[str, Reading]:
    """Every fact of FACTS by name, and those of the framework; `data_dir` is where the input
    lies."""
    readers = FACTS | {"data_disk": lambda: _disk(data_dir)}
    facts = {name: _reading(read) for name, read in readers.items()}
    return facts | _framework(FRAMEWORKS[framework])


def identity(environment: dict[str, Reading]) -> dict[str, Any]:
    """The facts that must be alike for repeats to belong to one measurement."""
    return {k: v.value for k, v in sorted(environment.items()) if k not in NOT_IDENTITY}


def _reading(read: Callable[[], Value]) -> Reading:
    try:
        return Reading(value=read())
    except UnreadableError as reason:
        return Reading(value=None, missing=str(reason))
    except NoDriverError as error:
        return Reading(value=None, missing=f"no NVIDIA driver answers (NVML: {error})")
    except (OSError, subprocess.SubprocessError, PackageNotFoundError) as error:
        return Reading(value=None, missing=portable(f"{type(error).__name__}: {error}")[:200])


def cpu_vendor() -> str:
    return _cpuinfo("vendor_id")


def _cpuinfo(key: str) -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    raise UnreadableError(f"/proc/cpuinfo has no {key!r} on this machine")


def _cpu() -> str:
    details = f"family {_cpuinfo('cpu family')} model {_cpuinfo('model')}"
    return f"{_cpuinfo('model name')} ({details})"


def _cpu_cores() -> str:
    return f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"


def _cpu_features() -> list[str]:
    known = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_tile")
    flags = set(_cpuinfo("flags").split())
    return [name for name in known if name in flags]


def _memory() -> str:
    return f"{round(psutil.virtual_memory().total / 2**30)} GiB"


def _virtualization() -> str:
    return "yes" if "hypervisor" in _cpuinfo("flags").split() else "no"


def _os() -> str:
    return platform.freedesktop_os_release()["PRETTY_NAME"]


def _driver_cuda() -> str:
    number = pynvml.nvmlSystemGetCudaDriverVersion()
    return f"{number // 1000}.{number % 1000 // 10}"


def _gpu_topology() -> str:
    return _output(["nvidia-smi", "topo", "-m"])


def _interconnect() -> list[str]:
    adapters = sorted(Path("/sys/class/infiniband").glob("*"))
    if not adapters:
        raise UnreadableError("no InfiniBand or RoCE adapter under /sys/class/infiniband")
    return [f"{a.name}: {(a / 'ports/1/rate').read_text().strip()}" for a in adapters]


def _disk(path: Path) -> str:
    while not path.exists():
        path = path.parent
    mounts = [p for p in psutil.disk_partitions(all=True) if path.is_relative_to(p.mountpoint)]
    mount = max(mounts, key=lambda p: len(p.mountpoint))
    device = path.stat().st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for folder in (block, block.parent):
        rotational = folder / "queue/rotational"
        if rotational.exists():
            kind = (
                "rotating, or virtual"
                if rotational.read_text().strip() == "1"
                else "solid state"
            )
            return f"{mount.fstype} on {folder.name} ({kind})"
    return f"{mount.fstype} (no block device)"


def _framework(framework: Framework) -> dict[str, Reading]:
    """What is known of the framework that is installed."""
    missing = f"this {framework.name} is a CPU build" if framework.version else "not installed"
    return {
        name: Reading(value=value, missing=None if value else missing)
        for name, value in framework.build().items()
    }


def _dali() -> str:
    if found := dali():
        return found
    raise UnreadableError("DALI is not installed")


def _variables() -> list[str]:
    """Settings by which users steer the libraries; names by allow-list, paths shortened."""
    return [
        portable(f"{k}={v}") for k, v in sorted(os.environ.items()) if k.startswith(FORWARDED)
    ]


def _suite_commit() -> str:
    return _output(["git", "-C", str(ROOT), "rev-parse", "HEAD"])


def _suite_modified() -> bool:
    return bool(
        _output(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])
    )


def suite_source() -> str:
    """SHA-256 over the code that measures."""
    package = ROOT / "perfkit"
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] in MEASURING:
            digest.update(str(name).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError as error:
        raise UnreadableError(f"no {command[0]} on this machine") from error
    if done.returncode:
        reason = portable(" ".join(done.stderr.split()))[:200]
        raise UnreadableError(f"{command[0]} ended with {done.returncode}: {reason}")
    return done.stdout.strip()


FACTS: dict[str, Callable[[], Value]] = {
    "cpu": _cpu,
    "cpu_cores": _cpu_cores,
    "cpu_features": _cpu_features,
    "memory": _memory,
    "virtual_machine": _virtualization,
    "os": _os,
    "kernel": platform.release,
    "gpus": visible_names,
    "driver": lambda: ask(pynvml.nvmlSystemGetDriverVersion),
    "driver_cuda": lambda: ask(_driver_cuda),
    "gpu_topology": _gpu_topology,
    "interconnect": _interconnect,
    "python": platform.python_version,
    "dali": _dali,
    "h5py": lambda: version("h5py"),
    "pillow": lambda: version("pillow"),
    "variables": _variables,
    "numpy": lambda: version("numpy"),
    "suite": lambda: version("perfkit"),
    "suite_source": suite_source,
    "suite_commit": _suite_commit,
    "suite_modified": _suite_modified,
}
