"""Facts of this machine: hardware, driver, versions, settings, the suite's own commit.

Only the facts listed here are read, never the whole environment: they contain no secret, host
name or home path. A fact that can't be read has a reason instead of a value.
"""

import ast
import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import pynvml

from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.base import Reading
from perfkit.measuring.system import gpus
from perfkit.measuring.system.software import PACKAGES, Software
from perfkit.timing.failure import portable

FactValue = str | int | float | bool | list[str]

LIBRARY_VARIABLES = (
    *("NCCL_", "GLOO_", "UCX_", "FI_", "NVIDIA_", "TORCH_"),
    *("FLAGS_", "OMP_", "MKL_", "KMP_", "DALI_"),
)
"""Prefixes of environment variables that configure the libraries, and so can change a number:
they are recorded, and passed on to other nodes."""
SECRET = re.compile(r"API_?KEY|ACCESS_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""Parts of the names of variables that hold a secret, such as NVIDIA_API_KEY; unlike
NCCL_IB_PKEY, which is a number."""
UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
CPU_FEATURES = ["avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_tile"]
PACKAGE = ROOT / "perfkit"
MEASURING = (
    "inputs/**/*.py",
    "timing/**/*.py",
    "training/**/*.py",
    "measuring/work.py",
    "measuring/driver/rank_job.py",
    "measuring/driver/workers.py",
    "measuring/driver/settings.py",
    "measuring/system/devices.py",
    "measuring/system/gpus.py",
)
"""Code that affects a measured number, besides the resolved configuration."""


class MissingError(LookupError):
    """This machine does not have a fact or a sensor; the message says why."""


UNAVAILABLE = (
    *(MissingError, OSError, ValueError, IndexError, psutil.Error, pynvml.NVMLError),
    *(subprocess.SubprocessError, PackageNotFoundError),
)
"""Errors of facts and sensors that this machine does not have."""


def reason(error: Exception) -> str:
    """Return why a fact or a reading is missing, without home and checkout paths."""
    match error:
        case MissingError():
            text = str(error)
        case pynvml.NVMLError():
            text = f"NVML: {error}"
        case OSError(filename=str(path), strerror=str(problem)):
            text = f"{path}: {problem}"
        case _:
            text = f"{type(error).__name__}: {error}"
    return portable(text)[:200]


def read_facts(data_dir: Path | None, software: Software) -> dict[str, Reading]:
    """Return by name the facts of FACTS and `software`, and the disk of the data set."""
    readers = MACHINE | {"data_disk": partial(_file_system, data_dir)}
    facts = {}
    for name, read in readers.items():
        try:
            facts[name] = Reading(value=read())
        except UNAVAILABLE as error:
            facts[name] = Reading(value=None, missing=reason(error))
    for name, installed in {"python": software.python, **software.versions}.items():
        missing = None if installed else "not installed"
        facts[name] = Reading(value=installed, missing=missing)
    return facts


def cpu_vendor() -> str:
    """Return the kernel's name of the CPU vendor; empty if it has none, as on ARM."""
    try:
        return _cpuinfo("vendor_id")
    except MissingError:
        return ""


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use at once: those it is bound to, or
    fewer if its control group or a parent has a CPU quota, as a container with a limit has."""
    bound = float(len(os.sched_getaffinity(0)))
    return max(1, int(min([bound, *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas of this process's control groups and their parents, in cores."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _hierarchy, controllers, group = line.split(":", 2)
        if not controllers:
            top, files = root / "sys/fs/cgroup", ["cpu.max"]
        elif "cpu" in controllers.split(","):
            # The first version of control groups.
            top, files = root / "sys/fs/cgroup/cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        folder = top / group.lstrip("/")
        for parent in (folder, *folder.parents):
            if parent.is_relative_to(top):
                words = " ".join(_text(parent / name) for name in files).split()
                # Without a quota, the first word is `max` or -1.
                if len(words) == 2 and words[0].isdigit():
                    yield int(words[0]) / int(words[1])


def _text(path: Path) -> str:
    """Return the text of a file; empty if it can't be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def suite_source() -> str:
    """Return a digest of the code that affects a number, without comments and docstrings."""
    files: list[Path] = []
    for pattern in MEASURING:
        files += PACKAGE.glob(pattern)
    return _digest(files, lambda path: _statements(path.read_bytes()))


def package_source() -> str:
    """Return a digest of all code of the suite, which must be equal on all nodes."""
    return _digest(PACKAGE.rglob("*.py"), Path.read_bytes)


def _digest(files: Iterable[Path], read: Callable[[Path], bytes]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(PACKAGE)}\0".encode() + read(path) + b"\0")
    return digest.hexdigest()[:16]


@cache
def _statements(source: bytes) -> bytes:
    """Return the AST dump of a module. Parsing all modules takes a tenth of a second."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [part for part in node.body if not _is_docstring(part)]
    return ast.dump(tree).encode()


def _is_docstring(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring of a module, class, function or attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _cpuinfo(key: str) -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    raise MissingError(f"/proc/cpuinfo has no {key!r} on this machine")


def _cpu() -> str:
    family, model = _cpuinfo("cpu family"), _cpuinfo("model")
    return f"{_cpuinfo('model name')} (family {family} model {model})"


def _cpu_features() -> list[str]:
    flags = _cpuinfo("flags").split()
    return [feature for feature in CPU_FEATURES if feature in flags]


def _memory() -> str:
    gibibytes = round(psutil.virtual_memory().total / 2**30)
    return f"{gibibytes} GiB"


def _virtual_machine() -> str:
    return "yes" if "hypervisor" in _cpuinfo("flags").split() else "no"


def _interconnect() -> list[str]:
    rates = []
    for adapter in sorted(Path("/sys/class/infiniband").glob("*")):
        rate = (adapter / "ports/1/rate").read_text().strip()
        rates.append(f"{adapter.name}: {rate}")
    if not rates:
        raise MissingError("no InfiniBand or RoCE adapter under /sys/class/infiniband")
    return rates


def _file_system(path: Path | None) -> str:
    """Return the type of the file system of a folder, which need not exist yet."""
    if path is None:
        raise MissingError("a script reads its own data")
    path = path.resolve()
    mounts = psutil.disk_partitions(all=True)
    around = [mount for mount in mounts if path.is_relative_to(mount.mountpoint)]
    # If several are mounted at one place, the last is visible.
    around.reverse()
    return max(around, key=lambda mount: len(mount.mountpoint)).fstype


def _variables() -> list[str]:
    """Return the settings of the libraries in the environment, without those that belong to one
    job: FI_PSM3_UUID must be equal on its nodes, and another job has another."""
    settings = []
    for name, value in sorted(os.environ.items()):
        is_of_library = name.startswith(LIBRARY_VARIABLES) and is_setting(name, value)
        if is_of_library and not UUID.search(value):
            settings.append(portable(f"{name}={value}"))
    return settings


def is_setting(name: str, value: str) -> bool:
    """Return whether a variable with one of these prefixes sets something that may be
    published: it is no secret, and does not contain the UUID of a GPU, as a container's
    NVIDIA_VISIBLE_DEVICES does, which tells two equal machines apart."""
    names_a_gpu = re.search(r"\b(GPU|MIG)-[0-9A-Fa-f]", value)
    return not SECRET.search(name) and not names_a_gpu


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError as error:
        raise MissingError(f"no {command[0]} on this machine") from error
    if done.returncode:
        printed = " ".join(done.stderr.split())
        status = f"{command[0]} exited with status {done.returncode}"
        raise MissingError(f"{status}: {portable(printed)[:200]}")
    return done.stdout.rstrip()


# Not the repository around an unpacked archive of perfkit.
_git = partial(_output, "git", f"--git-dir={ROOT / '.git'}", f"--work-tree={ROOT}")

MACHINE: dict[str, Callable[[], FactValue]] = {
    "cpu": _cpu,
    "cpu_cores": lambda: f"{usable_cores()} usable of {os.cpu_count()}",
    "cpu_features": _cpu_features,
    "memory": _memory,
    "virtual_machine": _virtual_machine,
    "os": lambda: platform.freedesktop_os_release()["PRETTY_NAME"],
    "kernel": platform.release,
    "gpus": gpus.visible_names,
    "compute_capability": gpus.compute_capabilities,
    "driver": gpus.driver,
    "gpu_topology": lambda: gpus.topology(_output("nvidia-smi", "topo", "-m")),
    "interconnect": _interconnect,
    "variables": _variables,
    "suite": lambda: version("perfkit"),
    "suite_source": suite_source,
    "suite_commit": lambda: _git("rev-parse", "HEAD"),
    "suite_modified": lambda: bool(_git("status", "--porcelain", "--untracked-files=no")),
}

FACTS = (*MACHINE, "python", *PACKAGES)
"""Names of the facts, besides those of the framework and the disk of the data set."""
