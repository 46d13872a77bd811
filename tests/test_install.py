"""What make and conda install, and where the lab listens."""

import ast
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import renew
from conftest import needs_frameworks
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.paths import ROOT
from perfkit.core.request.requirements import OF_INPUT, PIP_NAMES, WORKER

PYTHON = platform.python_version()

REPORT = "perfkit[report]"
"""What the frameworks' extras bring besides the framework."""


def would_run(target, *settings, **variables):
    """Return the commands of a make target on a fresh machine."""
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", target, *settings]
    environment = os.environ | variables
    output = subprocess.check_output(command, cwd=ROOT, text=True, env=environment)
    return output.replace("\\\n", " ").splitlines()


def test_the_lab_listens_only_locally_and_requires_its_token():
    (lab,) = [line for line in would_run("lab") if "jupyter lab" in line]
    assert "--ip 127.0.0.1" in lab
    assert "token" not in lab and "password" not in lab


@pytest.mark.parametrize(
    ("target", "program", "versions"),
    [(".venv/bin/pip", "Paddle", "3.11 to 3.13"), (".venv-mxnet/peer", "mxnet.txt", "3.11")],
)
def test_an_unsuitable_python_is_refused_before_an_environment_is_made(
    target, program, versions, tmp_path
):
    python = tmp_path / "python3.14"
    python.write_text(f'''#!/bin/sh
        exec {sys.executable} -c "import sys; sys.version_info = (3, 14, 0, 'final', 0); $2"''')
    python.chmod(0o700)
    for name in ("Makefile", "environments"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = ["make", f"PYTHON={python}", target]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{program} needs Python {versions}: make PYTHON=python3.11 …" in done.stdout
    assert not [*tmp_path.glob(".venv*")]


def test_make_clean_removes_only_environments():
    (clean,) = would_run("clean")
    command, option, *removed = clean.split()
    assert (command, option) == ("rm", "-rf")
    assert {name.partition("-")[0] for name in removed} == {".venv"}


@pytest.mark.parametrize("active", ["", "base", "perfkit"])
def test_make_gpu_uses_an_activated_conda_environment(active):
    folder = Path(sys.executable).parent
    commands = would_run("gpu", f"BIN={folder}", CONDA_DEFAULT_ENV=active)
    python = "python" if active == "perfkit" else f"{folder}/python"
    assert [command.split()[0] for command in commands] == [python, python]


def test_make_gpu_says_how_to_get_pytest(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "No module named pytest" >&2\nexit 1\n')
    python.chmod(0o700)
    command = ["make", "--no-print-directory", "gpu", f"BIN={tmp_path}", "CONDA_DEFAULT_ENV="]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [f"Type: {python} -m pip install pytest"]


@pytest.mark.parametrize(
    "name", ["environment.yml", "environment-cu11.yml", "environment-cu13.yml"]
)
def test_environments_for_gpus_have_the_pytest_of_make_gpu(name):
    environment = YAML(typ="safe").load(ROOT / name)
    assert "pytest>=8.3" in environment["dependencies"][-1]["pip"]


def pins(file):
    """Yield the requirement of each line in a file of pins, such as numpy==2.3.5 ; marker."""
    for line in (ROOT / file).read_text().splitlines():
        if line[0] not in "# ":
            yield Requirement(re.sub(r" +(#.*|\\)$", "", line))


def pinned(file, python=PYTHON):
    """Return the version of each package that a file of pins has for a version of Python."""
    on_linux = {"python_full_version": python, "sys_platform": "linux", "os_name": "posix"}
    versions = {}
    for pin in pins(file):
        if not pin.marker or pin.marker.evaluate(on_linux):
            (version,) = pin.specifier
            versions[canonicalize_name(pin.name)] = version.version
    return versions


@pytest.mark.parametrize("target", ["report", "check", "test", "lab", "lint", "bench", "docs"])
def test_make_installs_by_hashes_and_nothing_that_these_require(target):
    installs = [line for line in would_run(target) if "pip install" in line]
    assert installs
    for line in installs:
        words = line.split()
        by_hashes = "--require-hashes" in words and "--editable" not in words
        alone = {"--no-deps", "--no-build-isolation", "--editable"} <= {*words}
        assert by_hashes or alone, line


@pytest.mark.parametrize("name", renew.EXTRAS)
def test_a_file_with_hashes_has_the_versions_of_constraints_txt(name):
    file = f"requirements/{name}.txt"
    text = (ROOT / file).read_text()
    of_constraints = {(pin.name, pin.specifier) for pin in pins("constraints.txt")}
    assert {(pin.name, pin.specifier) for pin in pins(file)} <= of_constraints
    for pin in re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]:
        assert re.search(r"\n    --hash=sha256:[0-9a-f]{64}", pin), pin


@pytest.mark.parametrize("python", ["3.11.2", "3.12.1", "3.13.0"])
@pytest.mark.parametrize("name", renew.EXTRAS)
def test_a_file_with_hashes_has_what_its_extras_and_the_build_require(name, python):
    versions = pinned(f"requirements/{name}.txt", python)
    for requirement in required(renew.EXTRAS[name]) + building():
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


@needs_frameworks
@pytest.mark.parametrize("name", renew.EXTRAS)
def test_a_file_with_hashes_has_every_dependency(name):
    """Of the packages that are installed as pinned, as make installs all of them."""
    versions = pinned(f"requirements/{name}.txt")
    followed = set()
    waiting = required(renew.EXTRAS[name])
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        assert name in versions
        for extra in {"", *requirement.extras}:
            if (name, extra) not in followed:
                followed.add((name, extra))
                waiting += dependencies(name, versions[name], extra)


@pytest.mark.parametrize(
    "file", ["constraints.txt", *map("requirements/{}.txt".format, renew.EXTRAS)]
)
def test_files_of_pins_name_no_index(file):
    text = (ROOT / file).read_text()
    assert "://" not in text and "--index" not in text and "--extra-index" not in text


def test_renewing_names_each_package_that_has_a_newer_release():
    chosen = renew.pins_by_name(
        "# A comment.\n"
        "h5py==3.14.0  # via tensorflow-cpu\n"
        "jax==0.10.2 ; python_full_version < '3.12'  # via perfkit\n"
        "jax==0.12.0 ; python_full_version >= '3.12'  # via perfkit\n"
        "six==1.17.0              # via astunparse\n"
    )
    newest = renew.pins_by_name(
        "h5py==3.16.0\n"
        "jax==0.10.2 ; python_full_version < '3.12'\n"
        "jax==0.12.0 ; python_full_version >= '3.12'\n"
        "six==1.17.0\n"
    )
    assert [*renew.older_than_newest(chosen, newest)] == [
        "h5py 3.14.0, not 3.16.0; required by tensorflow-cpu",
        "jax 0.10.2 where python_full_version < '3.12'; elsewhere 0.12.0",
    ]


def building():
    """Return what builds perfkit, of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [*map(Requirement, project["build-system"]["requires"])]


def dependencies(name, pinned_version, extra):
    """Yield what a package requires here, with or for one of its extras, if the installed
    version is the pinned one."""
    is_pinned = metadata.version(name).partition("+")[0] == pinned_version
    for requirement in map(Requirement, (is_pinned and metadata.requires(name)) or ()):
        if not requirement.marker or requirement.marker.evaluate({"extra": extra}):
            yield requirement


@pytest.mark.parametrize("peer", ["paddle2", "mxnet", "torch-old"])
def test_a_peers_environment_has_what_workers_and_their_dataloader_import(peer):
    modules = (*WORKER, *OF_INPUT["dataloader"])
    needed = {PIP_NAMES.get(module, module) for module in modules}
    assert needed <= pinned(f"environments/{peer}.txt").keys()


def required(extras):
    """Return the requirements of pyproject.toml with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    texts = [*project["dependencies"]]
    for extra in extras:
        texts += optional[extra]
    if REPORT in texts:
        texts += optional["report"]
    return [Requirement(text) for text in texts if text != REPORT]


@pytest.mark.parametrize(
    ("file", "cuda", "extra"),
    [
        ("environment.yml", 12, "gpu-cu12"),
        ("environment-cu11.yml", 11, "gpu-cu11"),
        ("environment-cu13.yml", 13, "gpu-cu13"),
    ],
)
def test_a_conda_environment_uses_one_cuda_version(file, cuda, extra):
    environment = YAML(typ="safe").load(ROOT / file)
    *_conda, from_pip = environment["dependencies"]
    lines = from_pip["pip"]
    assert f"--editable .[{extra},lab]" in lines
    index, *_others = [line for line in lines if line.startswith("--extra-index-url")]
    assert re.search(r"/cu(\d\d)\d?/$", index)[1] == str(cuda)
    names = {requirement.name for requirement in required([extra])}
    assert f"nvidia-dali-cuda{cuda}0" in names


@pytest.mark.parametrize("capability", ["9.0", "12.0"])
def test_a_missing_paddle_comes_from_where_the_environment_for_gpus_has_it(capability):
    build = FRAMEWORKS["paddle"].build_for([capability])
    *_conda, from_pip = YAML(typ="safe").load(ROOT / build.environment)["dependencies"]
    assert f"--extra-index-url {build.package_index}" in from_pip["pip"]
    assert f"--editable .[{build.extra},lab]" in from_pip["pip"]


def test_gpu_extras_pin_a_dali_whose_nvimagecodec_crops_while_decoding():
    """nvImageCodec 0.9, required by DALI 2.3, does not on Hopper (nvImageCodec #55)."""
    for extra in ("gpu-cu12", "torch-cu12", "jax-cu12", "gpu-cu13", "torch-cu13"):
        (dali,) = [each for each in required([extra]) if "nvidia-dali" in each.name]
        assert dali.specifier.contains("2.2.0")
        assert not dali.specifier.contains("2.3.0")


def test_the_extra_with_a_build_for_gpus_requires_its_package():
    for framework in FRAMEWORKS.values():
        for build in filter(None, (framework.gpu_build, framework.blackwell_build)):
            package = Requirement(build.package)
            named = [(each.name, each.extras) for each in required([build.extra])]
            assert (package.name, package.extras) in named


def requirement_of(extra, name):
    """Return the requirement of a package in an extra."""
    (requirement,) = [each for each in required([extra]) if each.name == name]
    return requirement.specifier


def test_pytorch_on_pypi_is_built_for_the_cuda_version_of_its_extra():
    """For CUDA 13 from 2.11 on."""
    for_cuda_12 = requirement_of("torch-cu12", "torch")
    for_cuda_13 = requirement_of("torch-cu13", "torch")
    assert for_cuda_12.contains("2.10.0") and not for_cuda_12.contains("2.11.0")
    assert for_cuda_13.contains("2.11.0") and not for_cuda_13.contains("2.10.0")


@pytest.mark.parametrize("extra", ["gpu-cu11", "gpu-cu12", "gpu-cu13"])
def test_paddle_for_gpus_has_the_upper_bound_of_paddle_for_the_cpu(extra):
    tried = requirement_of("cpu", "paddlepaddle")
    for version in ("3.3.1", "3.4.0", "4.0.0"):
        for_gpus = requirement_of(extra, "paddlepaddle-gpu")
        assert for_gpus.contains(version) == tried.contains(version), version


def imported_modules(folder):
    """Return the top-level names of the modules that Python files below a folder import."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


def test_the_base_installation_has_what_core_imports():
    of_workers = {"nvidia", "threadpoolctl", "transformers", "IPython"}
    frameworks = {framework.module for framework in FRAMEWORKS.values()}
    needed = imported_modules(ROOT / "perfkit" / "core") - sys.stdlib_module_names
    # pydantic brings the last two.
    needed -= {"perfkit", "pydantic_core", "typing_extensions"} | of_workers | frameworks
    packages = {PIP_NAMES.get(module, module) for module in needed}
    renamed = {"PIL": "pillow", "pynvml": "nvidia-ml-py"}
    packages = {renamed.get(package, package) for package in packages}
    assert packages == {requirement.name for requirement in required([])}


@pytest.mark.usefixtures("processes")
def test_the_command_without_its_libraries_names_what_to_install(tmp_path):
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError('no click', name='click')")
    command = [sys.executable, "-c", "from perfkit.entry import main; main()"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "perfkit: the commands need click; to install: "
        f"{sys.executable} -m pip install 'perfkit[report]'\n"
    )


@pytest.mark.usefixtures("processes")
def test_a_folder_of_its_name_does_not_hide_the_package(tmp_path):
    (tmp_path / "perfkit").mkdir()
    command = [sys.executable, "-c", "import perfkit; print(perfkit.plan.__name__)"]
    environment = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    printed = subprocess.check_output(command, cwd=tmp_path, text=True, env=environment)
    assert printed == "plan\n"


@pytest.fixture(scope="module")
def without_checkout(processes, tmp_path_factory):
    """Runs Python in a working directory with an installed package, as from a wheel."""
    installed = tmp_path_factory.mktemp("site-packages")
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "perfkit", installed / "perfkit", ignore=left_out)
    work = tmp_path_factory.mktemp("work")
    (work / "outputs").mkdir()
    environment = os.environ | {"PYTHONPATH": str(installed)}
    pipes = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}

    def run(*words):
        command = [sys.executable, "-P", *words]
        return subprocess.run(command, cwd=work, env=environment, check=False, **pipes)

    return run


def test_without_a_checkout_relative_paths_start_in_the_working_directory(without_checkout):
    done = without_checkout("-c", "import perfkit; print(len(perfkit.load('outputs')))")
    assert done.stdout == "0\n", done.stderr


@pytest.mark.parametrize("words", [["run", "resnet50"], ["report", "outputs"]])
def test_a_command_that_needs_a_notebook_says_where_there_is_one(without_checkout, words):
    done = without_checkout("-m", "perfkit.cli", *words)
    assert done.returncode == 2, done.stderr
    assert "perfkit is installed without its notebooks" in done.stderr
    assert "install it from a checkout" in done.stderr
