"""Checks of `perfkit doctor` before a measurement."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import as_options, cli

import perfkit
from perfkit.driver import doctor
from perfkit.driver.doctor import examine_plan

CLI = [sys.executable, "-c", "from perfkit.cli import main; main()"]


def checks(model="resnet50", **given):
    return {c.subject: c for c in examine_plan(perfkit.plan(model, given))}


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
    needed = 2 * 8 * 256 * 3 * 224 * 224 * 4 // 2**20
    small_disk = SimpleNamespace(free=64 * 2**20)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: small_disk)
    found = checks(**request)["shared memory"]
    assert not found.well
    assert found.seen.startswith(f"64 MiB free, {needed:,} MiB needed; in a container: ")
    assert "shared memory" not in checks(**request | {"framework": "tensorflow"})


def examined(pair, parameters, count, before=()):
    """Run doctor on the first `count` nodes and return their outputs and exit statuses."""
    hosts = ",".join(node.address for node in pair.nodes)
    options = as_options(parameters | {"nodes": 2, "launcher": "manual", "hosts": hosts})
    drivers = [
        subprocess.Popen(
            node.command([*before, *CLI, "doctor", *options]),
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PERFKIT_SECRET": "the secret"},
        )
        for node in pair.nodes[:count]
    ]
    return [(driver.communicate(timeout=60)[0], driver.returncode) for driver in drivers]


def test_two_equal_connected_nodes_pass(pair, small):
    (first, status), (second, other_status) = examined(pair, small(input="dali"), 2)
    assert (status, other_status) == (0, 0), first
    assert f"ok    node 1 ({pair.nodes[1].address}): connected by interface wire" in first
    assert "ok    network: all nodes reach each other; ports are free" in first
    assert f"this is node 1; {pair.nodes[0].address} prints the findings" in second


def test_a_missing_node_is_named(pair, small):
    ((output, status),) = examined(pair, small(input="synthetic", timeout=2), 1)
    assert status == 1
    assert f"FAIL  node timeout: node 1 ({pair.nodes[1].address}) did not connect" in output


def test_a_taken_worker_port_is_named(pair, small):
    address = pair.nodes[0].address
    listen = f"import socket, sys; taken = socket.create_server(({address!r}, 29951))"
    words = [sys.executable, "-c", f"{listen}; print(flush=True); sys.stdin.read()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(pair.nodes[0].command(words), **pipes) as holder:
        holder.stdout.readline()
        (output, status), _other = examined(pair, small(input="synthetic", port=29950), 2)
        holder.stdin.close()
    assert status == 1
    assert f"FAIL  port taken: port 29951 of {address} on node 0" in output.replace("\n", " ")


def test_unreachable_nodes_are_named(pair, small):
    """Node 1 accepts no connections, as behind a firewall."""
    if not shutil.which("nft"):
        pytest.skip("nft is not installed")
    first, second = pair.nodes
    wall = (
        "add table inet wall; add chain inet wall in { type filter hook input priority 0; };"
        "add rule inet wall in tcp flags & (syn | ack) == syn drop"
    )
    subprocess.run(second.command(["nft", wall]), check=True)
    (output, status), _other = examined(pair, small(input="synthetic"), 2)
    subprocess.run(second.command(["nft", "delete table inet wall"]), check=True)
    assert status == 1
    who = f"FAIL  network: node 0 ({first.address}) can't reach node 1 ({second.address})"
    assert who in output.replace("\n", " ")
