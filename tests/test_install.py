"""What make and conda install, and where the lab listens."""

import re
import subprocess
import tomllib
from itertools import chain

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perfkit.config import ROOT


def would_run(target):
    """Return the commands of a make target on a fresh machine."""
    command = ["make", "--dry-run", "--always-make", target]
    output = subprocess.check_output(command, cwd=ROOT, text=True)
    return output.replace("\\\n", " ").splitlines()


def test_the_lab_listens_only_locally_and_requires_its_token():
    (lab,) = [line for line in would_run("lab") if "jupyter lab" in line]
    assert "--ip 127.0.0.1" in lab
    assert "token" not in lab and "password" not in lab


def pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("target", ["report", "test", "lab", "lint", "bench", "docs"])
def test_make_installs_only_the_versions_in_constraints_txt(target):
    installs = [line for line in would_run(target) if "pip install" in line]
    assert installs
    versions = pinned()
    for line in installs:
        assert "--constraint constraints.txt" in line
        for wanted in required(re.search(r"\.\[([\w,]+)\]", line)[1].split(",")):
            assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted


def required(extras):
    """Return the requirements of pyproject.toml with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["optional-dependencies"][extra] for extra in extras]
    return map(Requirement, chain(project["dependencies"], *lists))


@pytest.mark.parametrize(
    ("file", "cuda", "extra"),
    [("environment.yml", 12, "gpu-cu12"), ("environment-cu11.yml", 11, "gpu-cu11")],
)
def test_a_conda_environment_uses_one_cuda_version(file, cuda, extra):
    dependencies = yaml.safe_load((ROOT / file).read_text())["dependencies"]
    (pip,) = (entry["pip"] for entry in dependencies if isinstance(entry, dict))
    assert f"--editable .[{extra},lab]" in pip
    indexes = [line for line in pip if line.startswith("--extra-index-url")]
    assert re.search(r"/cu(\d\d)\d?/$", indexes[0])[1] == str(cuda)
    assert f"nvidia-dali-cuda{cuda}0" in {wanted.name for wanted in required([extra])}


def test_gpu_extras_pin_a_dali_whose_nvimagecodec_crops_while_decoding():
    """nvImageCodec 0.9, required by DALI 2.3, does not on Hopper (nvImageCodec #55)."""
    for extra in ("gpu-cu12", "torch-cu12"):
        (dali,) = (wanted for wanted in required([extra]) if "nvidia-dali" in wanted.name)
        assert dali.specifier.contains("2.2.0")
        assert not dali.specifier.contains("2.3.0")
