"""Shared fixtures: sample data, small requests, injected faults."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from disks import SmallDisk, small_disk
from made.clusters import (
    Nodes,
    NodesInSlurm,
    NodesOverSsh,
    nodes_in_slurm,
    nodes_over_ssh,
    slurm_missing,
    ssh_missing,
)

import perfkit
from perfkit.cli import main
from perfkit.inputs.samples import make_images
from perfkit.measuring.paths import ROOT
from perfkit.report.text.language import file_name

# Triton, of PyTorch, and TensorFlow each have an LLVM. A process that loads TensorFlow's first
# is aborted once PyTorch loads Triton's.
if find_spec("triton"):
    import_module("triton._C.libtriton")

# Has its own pytest.ini, for machines without the packages of these tests: make gpu.
collect_ignore = ["gpu"]
pytest_plugins = ["fake_nvml", "accelerator.fake", "made.logs", "quick"]
os.environ["JUPYTER_PLATFORM_DIRS"] = "1"
for variable in ("SLURM_JOB_NUM_NODES", "SLURMD_NODENAME"):  # also within a Slurm allocation
    os.environ.pop(variable, None)
# Waiting PyTorch and Paddle threads would otherwise spin on cores that parallel tests need.
os.environ |= {"GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
# Tests compile many small programs of JAX and run each for a few steps: without optimizing the
# machine code, which takes half of the time.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
# The processes that PyTorch would start to compile in take longer to start than they save.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

SMALL = {
    "device": "cpu",
    "batch_size": 2,
    "image_size": 32,
    "warmup_steps": 1,
    "measured_steps": 2,
    "measured_seconds": 0,
    "repeats": 1,
    "timeout": 120,
}
"""A measurement of a few seconds, mostly Paddle's import."""
MODULES = {
    "perfkit.measuring.driver.supervisor",
    "paddle.distributed.launch",
    "perfkit.timing.rank",
}
MODULES |= {str(Path(__file__).with_name("fake_trainer.py"))}
RUN_HERE = 'for command; do :; done\nexec sh -c "$command"\n'
IN_WORKER = "import sys\nif 'perfkit.timing.rank' in sys.orig_argv:\n"
"""Prefix of code for `plant` that runs only in workers."""
needs_frameworks = pytest.mark.skipif(
    not all(map(find_spec, ("torch", "jax", "tensorflow"))),
    reason="needs PyTorch, JAX and TensorFlow: make .venv/test",
)


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of 24 sample images in the published layout."""
    folder = tmp_path_factory.mktemp("samples")
    assert len(list(make_images(folder, 24))) == 24
    return folder


@pytest.fixture
def small(samples: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Parameters of a small request with results in tmp_path/outputs."""

    def parameters(**changes: Any) -> dict[str, Any]:
        places = {"data_dir": str(samples), "outputs_dir": str(tmp_path / "outputs")}
        return SMALL | places | changes

    return parameters


@pytest.fixture
def measure(
    processes: None, small: Callable[..., dict[str, Any]]
) -> Callable[..., perfkit.Measurement]:
    """Measures ResNet-50 with a small request and changes."""

    def run(**changes: Any) -> perfkit.Measurement:
        plan = perfkit.plan("resnet50", small(**changes))
        return perfkit.measure(plan.config, plan.protocol)

    return run


@pytest.fixture
def plant(
    processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Makes every Python process started from now on run `code` first, to inject a fault."""

    def planted(code: str) -> None:
        folder = tmp_path / "planted"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")

    return planted


@pytest.fixture
def ssh_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces ssh by a shell script with these lines, by default one that runs ssh's last
    argument, the command, on this machine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def replaced(lines: str = RUN_HERE) -> None:
        script = folder / "ssh"
        script.write_text(f"#!/bin/sh\n{lines}")
        script.chmod(0o755)

    return replaced


@pytest.fixture
def new_environment(processes: None, tmp_path: Path) -> Callable[..., str]:
    """Creates a Python environment and returns the path of its interpreter. It has this
    environment's packages, unless `empty`, and packages of the given versions without files."""

    def make(name: str = "other", *, empty: bool = False, **versions: str) -> str:
        venv.create(tmp_path / name, symlinks=True)
        (packages,) = (tmp_path / name).glob("lib/python*/site-packages")
        if not empty:
            (packages / "these.pth").write_text(sysconfig.get_path("purelib"))
        for package, version in versions.items():
            folder = packages / f"{package}-{version}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
        return str(tmp_path / name / "bin" / "python")

    return make


@pytest.fixture
def worker_processes(
    processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[psutil.Process]]:
    """Finds the supervisors, launchers and workers of this test's measurements.

    Their command lines contain a module of MODULES and the scratch folder below tmp_path.
    """
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def find() -> list[psutil.Process]:
        workers = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if str(scratch) in " ".join(words) and MODULES & {*words}:
                workers.append(process)
        return workers

    return find


@pytest.fixture
def over_ssh(processes: None, tmp_path: Path) -> Iterator[NodesOverSsh]:
    """Two nodes with ssh between them."""
    if reason := ssh_missing():
        pytest.skip(reason)
    with nodes_over_ssh(tmp_path) as nodes:
        yield nodes


@pytest.fixture
def in_slurm(processes: None, tmp_path: Path) -> Iterator[NodesInSlurm]:
    """Two nodes of Slurm jobs."""
    if reason := slurm_missing():
        pytest.skip(reason)
    with nodes_in_slurm(tmp_path) as nodes:
        yield nodes


@pytest.fixture(params=["ssh", "srun"])
def nodes(request: pytest.FixtureRequest) -> Nodes:
    """Two nodes by each launcher."""
    fixture = {"ssh": "over_ssh", "srun": "in_slurm"}[request.param]
    return request.getfixturevalue(fixture)


@pytest.fixture
def disk(processes: None, tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture
def gpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed framework answers like a build for CUDA 12.6."""
    monkeypatch.setattr(
        "perfkit.measuring.system.software.constants", lambda *_: {"cuda_version": "12.6"}
    )


@pytest.fixture(scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """JAX finds again what an earlier test of this process has compiled."""
    jax = pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("compiled")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


@pytest.fixture(scope="module")
def browser(processes: None) -> Iterator[Any]:
    """Chromium driven by playwright; ends with the module, as its event loop blocks others."""
    from playwright.sync_api import sync_playwright

    if not (chromium := shutil.which("chromium")):
        pytest.skip("Debian's chromium is not installed")
    options = ["--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        chosen = {"executable_path": chromium, "chromium_sandbox": False, "args": options}
        started = playwright.chromium.launch(**chosen)
        yield started
        started.close()


@pytest.fixture
def papermill(processes: None, tmp_path: Path) -> list[str]:
    """The first words of a papermill command for the ResNet-50 notebook."""
    notebook = ROOT / "notebooks" / "resnet50.ipynb"
    return [sys.executable, "-m", "papermill", str(notebook), str(tmp_path / "executed.ipynb")]


@pytest.fixture
def run_notebook(processes: None, tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """Runs a notebook by papermill; returns the finished process and the executed notebook."""

    def run(name: str, *options: Any) -> tuple[Any, Path]:
        notebook = ROOT / "notebooks" / f"{name}.ipynb"
        executed = tmp_path / "out.ipynb"
        command = [sys.executable, "-m", "papermill", str(notebook), str(executed), "-p"]
        command += map(str, options)
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
        done = subprocess.run(command, cwd=tmp_path, text=True, check=False, **pipes)
        return done, executed

    return run


def no_summary(summary: Any, language: str) -> None:
    """Write empty pages as link targets."""
    for name in ("summary", "published", "history"):
        (summary.outputs / name).mkdir(exist_ok=True)
        (summary.outputs / name / file_name("report", language)).touch()


@pytest.fixture
def without_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips the summary, which takes most of a site's time."""
    monkeypatch.setattr("perfkit.report.site.write_summary", no_summary)


@pytest.fixture
def slurm_command(processes, tmp_path, monkeypatch):
    """Replaces a command of Slurm by a shell script with these lines."""

    def replaced(name, lines):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return replaced


def cli(*words: Any) -> Result:
    """Run perfkit with these arguments in this process."""
    done = CliRunner().invoke(main, [*map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done


def as_options(parameters: dict[str, Any]) -> list[str]:
    """Return parameters as `-p` options of papermill and perfkit."""
    options = []
    for name, value in parameters.items():
        options += ["-p", name, str(value)]
    return options


def cell_sources(notebook: Path) -> list[str]:
    """Return the source of each cell of a stored notebook."""
    cells = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells]
