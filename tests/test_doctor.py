"""Checks of `perfkit doctor` before a measurement."""

import re
import shutil
from types import SimpleNamespace

import pytest
from conftest import as_options, cli, needs_frameworks

import perfkit
from perfkit.measuring.request import RequestError, requirements


def test_a_healthy_machine_passes(small, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = cli("doctor", *as_options(small(input="dali")))
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("ok    data: 24 images in ") for line in lines)
    assert max(map(len, lines[:-1])) <= 80
    # A CPU build of Paddle has and needs no NCCL.
    assert any(line.startswith("-     nccl: ") for line in lines)
    verdict, command = lines[-1].split(": ")
    assert verdict == "Ready. To measure"
    assert command.startswith("perfkit run resnet50 -p device cpu -p batch_size 2 ")
    # A quoted ~ would be no home folder.
    assert f"-p outputs_dir {tmp_path}/outputs" in command


def test_unreadable_data_is_reported_with_file_and_line(small, samples, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train_list.txt").write_text("train/none\x1b]0;x\x07.jpeg 0\n")
    options = as_options(small(input="dali", data_dir=str(tmp_path / "data")))
    done = cli("doctor", *options)
    assert done.exit_code == 2
    assert "data_dir: " in done.stderr and "train_list.txt:1: no such file" in done.stderr
    assert done.stderr.endswith("Not ready: resolve the problems above.\n")
    assert "\x1b]" not in done.stderr


BATCH_BYTES = 256 * 3 * 224 * 224 * 4


def have_shared_memory(monkeypatch, free):
    """Give /dev/shm so many free bytes; other folders keep theirs."""
    usage = shutil.disk_usage

    def disk_usage(path):
        return SimpleNamespace(free=free) if path == requirements.SHARED_MEMORY else usage(path)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)


@pytest.fixture
def large_batches(small, samples, tmp_path):
    """A request with batches of 256 images in 8 processes."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "train").symlink_to(samples / "train")
    lines = (samples / "train_list.txt").read_text()
    (data / "train_list.txt").write_text(lines * 11)
    batches = {"batch_size": 256, "image_size": 224, "dataloader_workers": 8}
    return small(input="dataloader", data_dir=str(data), **batches)


@needs_frameworks
def test_a_dataloader_that_would_fill_the_shared_memory_is_refused(large_batches, monkeypatch):
    """Docker's default is 64 MiB; each of 8 processes prepares two batches."""
    have_shared_memory(monkeypatch, 64 * 2**20)
    with pytest.raises(RequestError) as refused:
        perfkit.plan("resnet50", large_batches)
    assert refused.value.problems == [
        "dataloader_workers: the processes of the DataLoader need 2,352 MiB in /dev/shm, for "
        "two batches each; free: 64 MiB. In a container: docker run --shm-size 3g; or fewer "
        "processes: -p dataloader_workers N"
    ]
    have_shared_memory(monkeypatch, 2 * 8 * BATCH_BYTES)
    assert perfkit.plan("resnet50", large_batches)
    have_shared_memory(monkeypatch, 0)
    assert perfkit.plan("resnet50", large_batches | {"framework": "tensorflow"})


def test_several_nodes_are_named_and_nothing_is_started_there(small, ssh_here, tmp_path):
    ssh_here(f"touch {tmp_path}/started\n")
    hosts = {"nodes": 2, "launcher": "ssh", "hosts": "127.0.0.1,localhost"}
    done = cli("doctor", *as_options(small(input="synthetic", **hosts)))
    assert done.exit_code == 0, done.stderr
    assert "ok    nodes: 127.0.0.1,localhost; that they start " in done.stdout
    assert not (tmp_path / "started").exists()


def gpu_lines(small, monkeypatch):
    """Return what doctor tells of each GPU."""
    monkeypatch.setattr("perfkit.measuring.request.checks.lacking", lambda _config: [])
    done = cli("doctor", *as_options(small(input="synthetic", device="gpu", gpus=1)))
    assert done.exit_code == 0, done.stderr
    joined = re.sub(r"\n {6,}", " ", done.stdout)
    return [line for line in joined.splitlines() if re.match(r".{6}gpu \d", line)]


def test_each_gpu_is_told_with_what_limits_its_speed(small, nvml, monkeypatch):
    nvml("power_limit.0=500", "throttled.1=0", "persistence.1=1", "ecc.1=0")
    assert gpu_lines(small, monkeypatch) == [
        "-     gpu 0: power limit 500 W, default 700 W; SM clock 1000 of 1980 MHz; ECC on; "
        "persistence mode off; throttled by power_cap",
        "ok    gpu 1: power limit 700 W; SM clock 1001 of 1980 MHz; ECC off; persistence mode "
        "on; throttled by nothing",
    ]


def test_a_fact_that_nvml_does_not_tell_is_left_out(small, nvml, monkeypatch):
    not_supported = 3
    functions = ["EccMode", "PowerManagementDefaultLimit", "CurrentClocksThrottleReasons"]
    nvml("gpus=1", *(f"nvmlDeviceGet{name}={not_supported}" for name in functions))
    assert gpu_lines(small, monkeypatch) == [
        "ok    gpu 0: power limit 700 W; SM clock 1000 of 1980 MHz; persistence mode off"
    ]
