"""What make and conda install, and what listens."""

import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perfkit.config import ROOT


def would_run(target):
    """The commands of a target of the Makefile, as on a machine where nothing is made yet."""
    command = ["make", "--dry-run", "--always-make", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.replace("\\\n", " ").splitlines()


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
    """What pyproject.toml wants with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for extra in extras for one in optional[extra])]
    return map(Requirement, wanted)


@pytest.mark.parametrize(
    ("file", "cuda", "extra"),
    [("environment.yml", 12, "gpu-cu12"), ("environment-cu11.yml", 11, "gpu-cu11")],
)
def test_a_conda_environment_uses_one_cuda_version(file, cuda, extra):
    (pip,) = (
        entry["pip"]
        for entry in yaml.safe_load((ROOT / file).read_text())["dependencies"]
        if isinstance(entry, dict)
    )
    assert f"--editable .[{extra},lab]" in pip
    indexes = [line for line in pip if line.startswith("--extra-index-url")]
    assert re.search(r"/cu(\d\d)\d?/$", indexes[0])[1] == str(cuda)
    wanted = {one.name: one.specifier for one in required([extra])}
    assert f"nvidia-dali-cuda{cuda}0" in wanted


def test_gpu_extras_pin_a_dali_whose_nvimagecodec_crops_while_decoding():
    """nvImageCodec 0.9, which DALI needs from 2.3 on, does not on Hopper (nvImageCodec #55)."""
    for extra in ("gpu-cu12", "torch-cu12"):
        (dali,) = (one for one in required([extra]) if one.name.startswith("nvidia-dali"))
        assert dali.specifier.contains("2.2.0")
        assert not dali.specifier.contains("2.3.0")
