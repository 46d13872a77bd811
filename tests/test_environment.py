"""Facts of the machine, read by allow-list: each has a value or a reason."""

import os
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from made.results import change

from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.results.identity import identity
from perfkit.measuring.system.environment import (
    MACHINE,
    MEASURING,
    PACKAGE,
    MissingError,
    package_source,
    suite_source,
    usable_cores,
)


@pytest.fixture(scope="module")
def environment():
    return read_environment("paddle", Path("/"))


def test_every_fact_of_the_published_tables_has_a_value_or_a_reason(environment):
    published = "cpu memory os driver cuda cudnn nccl dali paddle paddle_commit gpus"
    published += " interconnect gpu_topology data_disk python suite_commit suite_modified"
    assert {*published.split()} <= environment.keys()
    for name, reading in environment.items():
        if reading.value is None:
            assert reading.missing, name
        else:
            assert reading.missing is None, name


def test_versions_are_those_of_the_installed_packages(environment):
    assert environment["paddle"].value == version("paddlepaddle")
    assert environment["dali"].value.startswith(version("nvidia-dali-cuda120"))
    assert len(environment["paddle_commit"].value) == 40


def test_no_host_name_secret_or_home_path_is_read(monkeypatch):
    monkeypatch.setenv("API_TOKEN", "hunter2")
    monkeypatch.setenv("NCCL_TOPO_FILE", f"{Path.home()}/topology.xml")
    environment = read_environment("paddle", Path("/"))
    text = " ".join(str(reading.value) for reading in environment.values())
    assert "hunter2" not in text
    assert f"{Path.home()}/" not in text
    assert "NCCL_TOPO_FILE=~/topology.xml" in text
    assert os.uname().nodename not in re.findall(r"[\w.-]+", text)


def test_a_failed_reader_gives_its_reason(monkeypatch):
    def covered():
        raise MissingError("the sensor is covered")

    def absent():
        raise FileNotFoundError(2, "No such file", "/proc/nothing")

    monkeypatch.setitem(MACHINE, "cpu", covered)
    monkeypatch.setitem(MACHINE, "memory", absent)
    facts = read_environment("paddle", Path("/"))
    assert facts["cpu"].missing == "the sensor is covered"
    assert facts["memory"].missing == "/proc/nothing: No such file"


def test_identity_includes_library_settings_and_the_measuring_source_but_no_commit(
    environment, monkeypatch
):
    facts = identity(environment)
    assert "suite_source" in facts and "suite_commit" not in facts
    monkeypatch.setenv("FLAGS_cudnn_deterministic", "1")
    assert identity(read_environment("paddle", Path("/"))) != facts


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package that replaces it for the digests."""
    copy = tmp_path / "perfkit"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("perfkit.measuring.system.environment.PACKAGE", copy)
    return copy


def add_code(path):
    path.write_text(f"{path.read_text()}\nADDED = 1\n")


def test_comments_docstrings_and_pages_do_not_change_the_identity(package):
    before, everywhere = suite_source(), package_source()
    code = package / "timing" / "recorder.py"
    code.write_text(f"# A comment.\n{code.read_text()}")
    change(code, '"""', '"""In other words: ')
    change(package / "inputs" / "__init__.py", '"""', '"""In other words: ')
    add_code(package / "report" / "pages.py")
    add_code(package / "measuring" / "driver" / "measure.py")
    assert suite_source() == before
    assert package_source() != everywhere


def test_measuring_code_changes_the_identity(package):
    digests = {suite_source()}
    for code in MEASURING:
        *_others, path = sorted(package.glob(code))
        add_code(path)
        digests.add(suite_source())
    assert len(digests) == 1 + len(MEASURING)


@pytest.mark.parametrize(
    ("line", "files", "cores"),
    [
        ("0::/", {"cpu.max": "250000 100000"}, 2),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        (
            "4:cpu,cpuacct:/docker/1",
            {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"},
            4,
        ),
    ],
)
def test_a_cpu_quota_of_a_control_group_limits_the_usable_cores(
    tmp_path, monkeypatch, line, files, cores
):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {*range(8)})
    contents = {tmp_path / "proc/self/cgroup": f"3:cpuset:/else\n{line}"}
    for name, text in files.items():
        contents[tmp_path / "sys/fs/cgroup" / name] = text
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert usable_cores(tmp_path) == cores


def test_the_disk_of_a_missing_folder_is_known(tmp_path):
    assert read_environment("paddle", tmp_path / "not" / "yet")["data_disk"].value


def test_no_secret_among_the_libraries_variables_is_recorded(monkeypatch):
    for name in ("NVIDIA_API_KEY", "NVIDIA_NGC_TOKEN", "TORCH_HUB_PASSWORD"):
        monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("NCCL_IB_PKEY", "1")
    variables = MACHINE["variables"]()
    assert "NCCL_IB_PKEY=1" in variables
    assert not any("planted" in variable for variable in variables)


def test_no_variable_that_names_a_gpu_or_a_job_is_recorded(monkeypatch):
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "GPU-1ab2c3d4-0000")
    monkeypatch.setenv("FI_PSM3_UUID", "0f5a1f9e-13f6-4f0e-9f43-8d2d5c1b7a10")
    monkeypatch.setenv("UCX_TLS", "rc,cuda_copy")
    variables = MACHINE["variables"]()
    assert "UCX_TLS=rc,cuda_copy" in variables
    assert not any("GPU-" in variable or "UUID" in variable for variable in variables)
