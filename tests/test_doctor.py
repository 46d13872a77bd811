"""Checks of `perfkit doctor` before a measurement."""

import os
import shutil
import subprocess
import sys
import time
from threading import Barrier
from types import SimpleNamespace

import pytest
from conftest import as_options, cli

import perfkit
from perfkit.core.driver import doctor, network
from perfkit.core.driver.doctor import SharedMemoryTooSmall, examine_plan
from perfkit.core.driver.node_files import PREFIX, Answer, NodeFacts, Reached, read, write

FACTS = NodeFacts(
    name="here", address="127.0.0.1", interface="lo", first_address="", gpus=0, facts={}
)
CLI = [sys.executable, "-c", "from perfkit.cli import main; main()"]


def examined_here(model="resnet50", **request):
    diagnostics = examine_plan(perfkit.plan(model, request))
    return {diagnostic.subject: diagnostic for diagnostic in diagnostics}


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
    assert (done.exit_code, done.stderr) == (1, "Not ready: resolve data.\n")
    printed = " ".join(done.stdout.split())
    assert "FAIL data: " in printed and "train_list.txt:1: no such file" in printed
    assert "\x1b]" not in done.stdout


def test_too_little_shared_memory_is_reported(small, monkeypatch):
    request = small(input="dataloader", batch_size=256, image_size=224, dataloader_workers=8)
    prefetched_batches = 2 * 8
    batch_bytes = 256 * 3 * 224 * 224 * 4
    needed = prefetched_batches * batch_bytes
    free = 64 * 2**20
    small_disk = SimpleNamespace(free=free)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: small_disk)
    diagnostic = examined_here(**request)["shared memory"]
    assert diagnostic == SharedMemoryTooSmall(free=free, needed=needed)
    expected = f"64 MiB free, {needed // 2**20:,} MiB needed; in a container: "
    assert diagnostic.text().startswith(expected)
    by_threads = request | {"framework": "tensorflow"}
    assert "shared memory" not in examined_here(**by_threads)


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
