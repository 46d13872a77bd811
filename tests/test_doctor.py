"""Checks of `perfkit doctor` before a measurement."""

import os
import shutil
import subprocess
import sys
import time
from threading import Barrier
from types import SimpleNamespace

import pytest
from conftest import as_options, cli, needs_frameworks

import perfkit
from perfkit.core.driver import network
from perfkit.core.driver.node_files import PREFIX, Answer, NodeFacts, Reached, read, write
from perfkit.core.request import RequestError, requirements

FACTS = NodeFacts(
    name="here", address="127.0.0.1", interface="lo", first_address="", gpus=0, facts={}
)
CLI = [sys.executable, "-c", "from perfkit.cli import main; main()"]


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


def test_an_invalid_request_exits_with_2():
    done = cli("doctor", "-p", "batch_size", "0")
    assert done.exit_code == 2 and "batch_size" in done.stderr
    assert done.stderr.endswith("Not ready: resolve the problems above.\n")


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


def examined(nodes, **parameters):
    """Run doctor on the first node; return its exit status and its output on one line."""
    options = as_options(nodes.request(**parameters))
    driver = nodes.start_program([*CLI, "doctor", *options])
    output = " ".join(driver.wait(60).split())
    return driver.status(), output


def test_two_equal_connected_nodes_pass(over_ssh, samples):
    status, output = examined(over_ssh, input="dali", data_dir=str(samples))
    assert status == 0, output
    assert f"ok {over_ssh.names[1]}: connected by interface wire" in output
    assert "ok network: all nodes reach each other; ports are free" in output
    over_ssh.assert_nothing_left()


def test_a_missing_node_is_named(over_ssh):
    over_ssh.ssh.stop_server(1)
    status, output = examined(over_ssh)
    assert status == 1
    assert f"FAIL node lost: {over_ssh.names[1]}" in output
    assert "Connection refused" in output


def test_the_folder_of_a_killed_check_is_removed_an_hour_later(over_ssh):
    old, new = [over_ssh.outputs / f"{PREFIX}{name}" for name in ("old", "new")]
    old.mkdir()
    new.mkdir()
    os.utime(old, (time.time() - 4000,) * 2)
    over_ssh.ssh.stop_server(1)
    assert examined(over_ssh)[0] == 1
    assert [*over_ssh.outputs.iterdir()] == [new]


def test_a_taken_worker_port_is_named(over_ssh):
    with over_ssh.listening(29950) as address:
        status, output = examined(over_ssh, port=29950)
    assert status == 1
    assert f"FAIL port taken: port 29950 of {address}" in output


def test_unreachable_nodes_are_named(over_ssh):
    """Node 1 accepts no connections but those of ssh, as behind a firewall."""
    if not shutil.which("nft"):
        pytest.skip("nft is not installed")
    first, second = over_ssh.namespaces.nodes
    wall = (
        "add table inet wall; add chain inet wall in { type filter hook input priority 0; };"
        "add rule inet wall in tcp dport != 2222 tcp flags & (syn | ack) == syn drop"
    )
    subprocess.run(second.command(["nft", wall]), check=True)
    status, output = examined(over_ssh)
    assert status == 1
    who = f"node 0 ({first.address}) can't reach node 1 ({second.address})"
    assert f"FAIL network: {who}" in output


def test_many_unreachable_nodes_take_no_longer_than_one(tmp_path, monkeypatch):
    count = 100
    for node in range(count):
        write(tmp_path, f"facts-{node}.json", Answer())
    all_at_once = Barrier(count, timeout=60)

    def connection_error(_facts):
        all_at_once.wait()
        return "No route to host"

    monkeypatch.setattr(network, "_connection_error", connection_error)
    monkeypatch.setattr(network, "LISTENING_SECONDS", 0.0)
    network.try_each_other(tmp_path, 0, FACTS, count, time.monotonic())
    errors = read(tmp_path, "reached-0.json", Reached).errors
    assert errors == dict.fromkeys(range(count), "No route to host")
