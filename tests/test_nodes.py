"""Multi-node runs over network namespaces, ssh and Slurm, and their failures."""

import contextlib
import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import psutil
import pytest
from clusters import (
    namespaces_missing,
    slurm_cluster,
    slurm_missing,
    ssh_between,
    ssh_missing,
    two_namespaces,
)
from conftest import MODULES, SMALL
from made import forget_repeats, measured
from perfkit.driver.connection import (
    MESSAGE_BYTES,
    Hello,
    InvalidMessageError,
    RejectedError,
    connect,
    shared_secret,
)
from test_driver import AT_BATCHES, DRIVER, faked, started_steps, wait_for

import perfkit
from perfkit.driver.cluster import ClusterLauncher, NodeError
from perfkit.driver.measure import measurement_folder
from perfkit.request.hosts import own_index
from perfkit.results.frames import load_steps
from perfkit.results.store import Measurement, read_result
from perfkit.system.environment import package_source
from perfkit.text.messages import sentence

HELLO = {"type": "hello", "node": 1, "source": package_source()}


@pytest.fixture
def request_of(small):
    """Return the parameters of a small, manually started measurement on two namespaces."""

    def parameters(namespaces, **changes):
        hosts = ",".join(node.address for node in namespaces.nodes)
        by_hand = {"nodes": 2, "launcher": "manual", "hosts": hosts, "input": "synthetic"}
        return small(**by_hand | changes)

    return parameters


def start(node, request, before=(), driver=DRIVER, **environment):
    """Start perfkit.measure in a separate process on `node`."""
    return subprocess.Popen(
        node.command([*before, sys.executable, "-c", driver, json.dumps(request)]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PERFKIT_SECRET": "the secret"} | environment,
    )


def end(*drivers):
    """Wait for the drivers and return their output."""
    return [driver.communicate(timeout=120)[0] for driver in drivers]


def result_of(request):
    (path,) = Path(request["outputs_dir"]).glob("*/result.json")
    return Measurement.read(path.parent).result


def processes_on(*nodes):
    """Return the command lines of the live processes in these namespaces, sshd left out."""
    found = []
    for node in nodes:
        listed = subprocess.run(
            ["ip", "netns", "pids", node.name], capture_output=True, text=True, check=True
        )
        for pid in listed.stdout.split():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(int(pid))
                command = " ".join(process.cmdline())
                if process.status() != psutil.STATUS_ZOMBIE and "[listener]" not in command:
                    found.append(command)
    return found


def wait_until_empty(nodes):
    """Wait until the namespaces have no process, and fail with those that are left."""
    with contextlib.suppress(AssertionError):
        wait_for(lambda: not processes_on(*nodes), 20)
    assert not processes_on(*nodes)


def wait_for_steps(request):
    wait_for(lambda: started_steps(Path(request["outputs_dir"])), 120)


@pytest.fixture(scope="module")
def by_hand(pair, tmp_path_factory):
    """Two nodes that share the printed secret, and the output without it or with another."""
    hosts = ",".join(node.address for node in pair.nodes)
    fixed = SMALL | {"nodes": 2, "launcher": "manual", "hosts": hosts, "input": "synthetic"}
    outputs = [tmp_path_factory.mktemp(f"outputs{node}") for node in (0, 1)]
    first_request, second_request = (fixed | {"outputs_dir": str(folder)} for folder in outputs)
    first = start(pair.nodes[0], first_request, PERFKIT_SECRET="")
    while "PERFKIT_SECRET=" not in (line := first.stdout.readline()):
        assert line
    secret = line.partition("=")[2].split()[0]
    refused = []
    for given in ("", "guessed"):
        other = start(pair.nodes[1], second_request, PERFKIT_SECRET=given)
        refused += end(other)
        assert other.returncode
    second = start(pair.nodes[1], second_request, PERFKIT_SECRET=secret)
    output = end(first, second)
    assert (first.returncode, second.returncode) == (0, 0), output
    results = [result_of(request) for request in (first_request, second_request)]
    return SimpleNamespace(
        line=line, secret=secret, refused=refused, outputs=outputs, results=results
    )


def test_two_manually_started_nodes_train_and_both_store_the_result(pair, by_hand):
    result, other = by_hand.results
    assert result == other
    assert (result.status, result.config.topology) == ("complete", "2x1")
    assert [node.interface for node in result.nodes] == ["wire", "wire"]
    (repeat,) = result.repeats
    assert [rank.rank for rank in repeat.ranks] == [0, 1]
    samples = sum(rank.samples for rank in repeat.ranks)
    assert repeat.throughput == samples / max(rank.window_seconds for rank in repeat.ranks)
    assert all(rank.compute_seconds > 0 for rank in repeat.ranks)
    assert repeat.telemetry.process_cores > 0
    assert {*load_steps(by_hand.outputs[0] / result.id)["rank"]} == {0, 1}
    logs = {path.name for path in by_hand.outputs[0].rglob("*.log")}
    assert {"1-rank0.log", "1-rank1.log", "1-launcher-node1.log"} <= logs
    wait_until_empty(pair.nodes)


def test_manual_nodes_need_the_secret_that_the_first_host_prints(pair, by_hand):
    assert by_hand.line.endswith(" <the same command>\n")
    assert len(by_hand.secret) == 32
    without, with_another = by_hand.refused
    address = pair.nodes[0].address
    assert f"PERFKIT_SECRET is not set. Type what {address} shows: PERFKIT_SECRET=…" in without
    expected = f"hosts: {address} closed the connection: PERFKIT_SECRET differs"
    assert expected in with_another
    stored = [path for folder in by_hand.outputs for path in folder.rglob("*")]
    texts = [path.read_text() for path in stored if path.is_file()]
    assert texts and not any(by_hand.secret in text for text in texts)


@pytest.mark.slow
def test_each_node_resolves_the_interpreter_path_itself(
    pair, request_of, new_environment, tmp_path
):
    for number in (0, 1):
        new_environment(f"home{number}/own", h5py=f"0.0.{number}")
    request = request_of(pair, python="~/own/bin/python")
    drivers = [
        start(node, request, HOME=str(tmp_path / f"home{number}"))
        for number, node in enumerate(pair.nodes)
    ]
    output = end(*drivers)
    result = result_of(request)
    assert result.status == "complete", output
    assert result.fact("h5py") == "0.0.0"
    assert result.nodes[1].differs == {"h5py": "0.0.1"}


def test_the_secret_is_prompted_for_on_a_terminal(monkeypatch):
    monkeypatch.setenv("PERFKIT_SECRET", "")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", lambda question: f"typed at {question}\n")
    assert shared_secret(["node1", "node2"], 1) == (
        "typed at PERFKIT_SECRET, as node1 shows it:"
    )


@pytest.mark.slow
def test_mpirun_starts_the_workers_over_ssh(pair, request_of):
    if reason := ssh_missing():
        pytest.skip(reason)
    request = request_of(pair, launcher="mpirun", repeats=2)
    with ssh_between(pair) as environment:
        driver = start(pair.nodes[0], request, **environment)
        (output,) = end(driver)
        assert driver.returncode == 0, output
    result = result_of(request)
    assert (result.status, len(result.complete_repeats)) == ("complete", 2)
    assert all(repeat.telemetry.process_cores > 0 for repeat in result.repeats)
    assert result.nodes[1].name == f"node 1 ({pair.nodes[1].address})"


@pytest.fixture
def batch(processes, tmp_path):
    """Return a function that submits a driver as a Slurm batch job on two nodes of `cluster`;
    it returns a function that waits for the job and returns its exit status and output."""
    if reason := slurm_missing():
        pytest.skip(reason)
    job, output, status = (tmp_path / name for name in ("job", "said", "status"))

    def submit(cluster, request):
        words = shlex.join([sys.executable, "-c", DRIVER, json.dumps(request)])
        job.write_text(f"#!/bin/bash\n{words}\necho $? > {status}\n")
        options = ["--nodes", "2", "--exclusive", "--no-requeue", "--output", str(output)]
        environment = os.environ | cluster.environment
        subprocess.run(["sbatch", *options, str(job)], env=environment, check=True)

        def wait():
            # sbatch --wait polls only twice a minute.
            wait_for(status.exists, 100)
            return status.read_text().strip(), output.read_text()

        return wait

    return submit


@pytest.mark.slow
def test_srun_starts_the_workers_in_a_slurm_allocation(batch, small):
    request = small(nodes=2, input="synthetic")
    with slurm_cluster(4) as cluster:
        status, output = batch(cluster, request)()
        assert status == "0", output
    result = result_of(request)
    assert result.status == "complete"
    assert result.repeats[0].nodes == ["node 0 (node1)", "node 1 (node2)"]
    assert result.repeats[0].telemetry.process_cores > 0


@pytest.mark.slow
def test_a_frozen_node_is_lost_and_killed_through_slurm(batch, small):
    request = small(nodes=2, input="synthetic", measured_steps=4000)
    with slurm_cluster(2) as cluster:
        wait = batch(cluster, request)
        wait_for_steps(request)
        for process in measuring(cluster):
            if (
                "perfkit.driver.node_agent" in process.cmdline()
                and process.environ()["SLURM_NODEID"] == "1"
            ):
                process.suspend()
        wait()
        failure = result_of(request).failure
        assert (failure.code, sentence(failure)[:14]) == ("node_lost", "node 1 (node2)")
        wait_for(lambda: not measuring(cluster), 20)


def measuring(cluster):
    """Return the node, supervisor and worker processes in the cluster's jobs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            modules = MODULES | {"perfkit.driver.node_agent"}
            configured = process.environ().get("SLURM_CONF")
            if configured == cluster.environment["SLURM_CONF"] and modules & {
                *process.cmdline()
            }:
                found.append(process)
    return found


@pytest.mark.parametrize(
    ("fault", "code", "expected"),
    [
        ("raise KeyError('planted')", "worker_error", "KeyError: 'planted'"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "worker_died", "without reporting an error"),
    ],
    ids=["raises", "killed"],
)
@pytest.mark.slow
def test_a_failed_rank_ends_the_run_and_is_named_with_its_node(
    pair, request_of, plant, fault, code, expected
):
    plant(AT_BATCHES.format(fault=f"if rank == 1 and number == 2: {fault}"))
    request = request_of(pair, measured_steps=400)
    drivers = [start(node, request) for node in pair.nodes]
    end(*drivers)
    result = result_of(request)
    assert result.failure.code == code, result.failure
    assert sentence(result.failure).startswith(f"rank 1 on node 1 ({pair.nodes[1].address})")
    assert expected in sentence(result.failure)
    wait_until_empty(pair.nodes)


@pytest.mark.slow
def test_a_hanging_rank_is_named_at_the_timeout_with_its_stack_in_the_log(
    pair, request_of, plant, tmp_path
):
    plant(AT_BATCHES.format(fault="rank == 1 and number == 2 and time.sleep(1000)"))
    request = request_of(pair, measured_steps=400, timeout=30)
    began = time.monotonic()
    drivers = [start(node, request) for node in pair.nodes]
    end(*drivers)
    assert time.monotonic() - began < request["timeout"] + 20  # Python starts take 10 s
    failure = result_of(request).failure
    assert failure.code == "timeout"
    who = f"furthest behind: rank 1 on node 1 ({pair.nodes[1].address}) after step 1"
    assert who in sentence(failure)
    (log,) = (tmp_path / "outputs").glob("*/logs/1-rank1.log")
    assert "sitecustomize.py" in log.read_text()
    wait_until_empty(pair.nodes)


def test_a_missing_node_is_named_at_the_timeout(pair, request_of):
    request = request_of(pair, timeout=5)
    driver = start(pair.nodes[0], request)
    end(driver)
    failure = result_of(request).failure
    assert failure.code == "node_timeout"
    who = f"node 1 ({pair.nodes[1].address}) did not connect within 5 s"
    assert sentence(failure) == who
    wait_until_empty(pair.nodes)


@pytest.fixture
def cut_off(processes, request_of):
    """Return a function that ends a two-node run by cutting its link with `cut` and returns the
    first node's failure sentence without the node's name."""

    def ended(cut):
        with two_namespaces() as namespaces:
            request = request_of(namespaces, measured_steps=4000, timeout=120)
            code = faked(1000) + DRIVER
            drivers = [start(node, request, driver=code) for node in namespaces.nodes]
            wait_for_steps(request)
            cut(namespaces)
            began = time.monotonic()
            end(*drivers)
            assert time.monotonic() - began < 60
            wait_until_empty(namespaces.nodes)
        failure, who = result_of(request).failure, f"node 1 ({namespaces.nodes[1].address}): "
        assert failure.code == "node_lost" and sentence(failure).startswith(who)
        return sentence(failure).removeprefix(who)

    return ended


@pytest.mark.slow
def test_a_link_failure_ends_the_run_on_both_nodes(cut_off):
    if reason := namespaces_missing():
        pytest.skip(reason)
    assert cut_off(lambda namespaces: namespaces.cut()).startswith("no answer for")


@pytest.mark.slow
@pytest.mark.parametrize("silent", [0, 1])
def test_a_one_way_link_failure_ends_the_run_on_both_nodes(cut_off, silent):
    if reason := namespaces_missing("nft"):
        pytest.skip(reason)
    assert cut_off(lambda namespaces: namespaces.lose(silent, 100))


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("percent", [5, 30])
def test_packet_loss_ends_in_completion_or_a_named_failure(request_of, percent):
    if reason := namespaces_missing("nft"):
        pytest.skip(reason)
    with two_namespaces() as namespaces:
        for node in (0, 1):
            namespaces.lose(node, percent)
        request = request_of(namespaces, timeout=80)
        end(*(start(node, request) for node in namespaces.nodes))
        result = result_of(request)
        output = sentence(result.failure) if result.failure else "complete"
        print(f"{percent} % lost: {len(result.complete_repeats)} repeats, {output}")
        assert result.status == "complete" or result.failure.code in (
            *("node_lost", "node_timeout", "worker_error", "worker_died", "worker_stalled"),
            "timeout",
        )
        wait_until_empty(namespaces.nodes)


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("launcher", ["manual", "mpirun"])
def test_sigkill_of_the_driver_leaves_no_process_on_any_node(request_of, launcher):
    if reason := ssh_missing():
        pytest.skip(reason)
    with two_namespaces() as namespaces, ssh_between(namespaces) as environment:
        request = request_of(namespaces, measured_steps=4000, launcher=launcher)
        nodes = namespaces.nodes if launcher == "manual" else namespaces.nodes[:1]
        drivers = [start(node, request, **environment) for node in nodes]
        wait_for_steps(request)
        assert len(processes_on(*namespaces.nodes)) > 6
        drivers[0].send_signal(signal.SIGKILL)
        end(*drivers)
        assert all(driver.returncode for driver in drivers)
        wait_until_empty(namespaces.nodes)


def test_a_port_in_use_is_reported_with_the_port_option(pair, request_of):
    """Check the nodes' rendezvous port and the workers' port, which follows it."""
    listen = (
        "import socket, sys, time; s = socket.create_server((sys.argv[1], int(sys.argv[2])));"
        "print('taken', flush=True); time.sleep(1000)"
    )
    for port, asked in ((29700, 29700), (29801, 29800)):
        words = [sys.executable, "-c", listen, pair.nodes[0].address, str(port)]
        with subprocess.Popen(pair.nodes[0].command(words), stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline() == b"taken\n"
            request = request_of(pair, port=asked, timeout=30, label=f"port{asked}")
            drivers = [start(node, request) for node in pair.nodes[: 1 + (port != asked)]]
            end(*drivers)
            (path,) = Path(request["outputs_dir"]).glob(f"*port{asked}*/result.json")
            failure = Measurement.read(path.parent).result.failure
            assert failure.code == "port_taken"
            assert f"port {port}" in sentence(failure)
            assert "-p port NUMBER" in sentence(failure)
            holder.kill()


def test_requests_that_differ_between_nodes_are_reported(pair, request_of, tmp_path):
    outputs = [str(tmp_path / f"outputs{n}") for n in (0, 1)]
    first = request_of(pair, outputs_dir=outputs[0])
    second = request_of(pair, outputs_dir=outputs[1], batch_size=3)
    end(*map(start, pair.nodes, (first, second)))
    failure = result_of(first).failure
    assert failure.code == "nodes_differ"
    assert sentence(failure) == (
        f"batch_size: 2 requested here, 3 on node 1 ({pair.nodes[1].address})"
    )


def test_data_that_differs_between_nodes_is_reported_before_training(
    pair, request_of, samples, tmp_path
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "train_list.txt").write_text("train/one.jpeg 0\n")
    request = request_of(pair, input="dali", data_dir=str(tmp_path / "data"))
    (tmp_path / "data").symlink_to(samples)
    mount = f'mount --bind {other} {samples} && exec "$@"'
    unshared = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    end(start(pair.nodes[0], request), start(pair.nodes[1], request, unshared))
    failure = result_of(request).failure
    assert failure.code == "nodes_differ"
    assert sentence(failure).startswith("data: ")


@pytest.fixture(scope="module")
def mpirun_launcher(processes, tmp_path_factory):
    """A driver's launcher whose mpirun starts nothing: tests act as the nodes."""
    mpirun = tmp_path_factory.mktemp("bin") / "mpirun"
    mpirun.write_text("#!/bin/sh\nexec sleep 1000\n")
    mpirun.chmod(0o755)
    hosts = {"nodes": 2, "launcher": "mpirun", "hosts": "127.0.0.1,localhost"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(mpirun.parent), prepend=os.pathsep)
        patch.setenv("PERFKIT_SECRET", "the secret")
        patch.setattr("perfkit.request.hosts.own_index", lambda _hosts: 0)
        plan = perfkit.plan("resnet50", SMALL | {"input": "synthetic"} | hosts)
        opened = ClusterLauncher(plan.config, plan.protocol)
    with opened:
        yield opened


def test_a_driver_without_a_scratch_folder_has_its_own_code(
    mpirun_launcher, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(NodeError) as error:
        ClusterLauncher(mpirun_launcher.config, mpirun_launcher.protocol)
    assert error.value.failure.code == "io_error"


def reset(launcher):
    """Remove the state of earlier nodes from the launcher and return it."""
    launcher.nodes.clear()
    launcher.refused = launcher.workers = None
    launcher.listener.rejected.clear()
    while not launcher.inbox.empty():
        launcher.inbox.get()
    return launcher


@pytest.fixture
def by_mpirun(mpirun_launcher):
    return reset(mpirun_launcher)


def raw_connection(launcher):
    """Open a connection to the driver's port without sending anything."""
    return socket.create_connection(("127.0.0.1", launcher.listener.port))


def node(launcher, *messages, secret=b"the secret"):
    connection = Client(("127.0.0.1", launcher.listener.port), authkey=secret)
    for message in messages:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        connection.send_bytes(content)
    return connection


def is_closed(connection, seconds=10):
    """Return whether the driver closes this connection, skipping its messages."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(OSError, EOFError):
        while time.monotonic() < deadline:
            if connection.poll(0.1):
                connection.recv_bytes()
        return False
    return True


def read_to_end(connection):
    """Read until the driver closes the connection, or for ten seconds (TimeoutError)."""
    connection.settimeout(10)
    with contextlib.suppress(ConnectionError):
        while connection.recv(2**10):
            continue


def poll(launcher, count=10):
    for _ in range(count):
        launcher.poll(0.1)


def test_unauthenticated_connections_are_closed(by_mpirun, monkeypatch):
    monkeypatch.setattr("perfkit.driver.connection.IDLE_SECONDS", 1)
    sent = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b"\xff\xff\xff\xff" * 3,
        struct.pack("!i", 4) + b"none",
        struct.pack("!i", -7),
        struct.pack("!i", 256) + b"x" * 255,
        b"x" * 2**21,
    ]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(raw_connection(by_mpirun)) for _ in sent]
        for connection, text in zip(connections, sent, strict=True):
            with contextlib.suppress(ConnectionError):
                connection.sendall(text)
        for connection in connections:
            read_to_end(connection)
    wait_for(lambda: not by_mpirun.listener.unauthenticated, 10)
    poll(by_mpirun, 2)
    assert not by_mpirun.nodes


def test_a_wrong_secret_is_rejected_and_the_address_recorded(by_mpirun):
    with pytest.raises(AuthenticationError):
        node(by_mpirun, secret=b"guessed")
    wait_for(lambda: by_mpirun.listener.rejected == {"127.0.0.1"})
    assert not by_mpirun.listener.unauthenticated
    poll(by_mpirun, 2)
    assert not by_mpirun.nodes


def test_both_sides_prove_the_secret_without_sending_it(monkeypatch):
    sent = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen():
            stream, _address = server.accept()
            connection = Connection(stream.detach())
            connection.send_bytes(b"#CHALLENGE#" + b"x" * 20)
            sent.append(connection.recv_bytes())
            connection.send_bytes(b"#WELCOME#")
            sent.append(connection.recv_bytes())
            connection.send_bytes(b"guessed")
            with contextlib.suppress(EOFError, OSError):
                sent.append(connection.recv_bytes())
                sent.append(connection.recv_bytes())

        listening = threading.Thread(target=listen)
        listening.start()
        with pytest.raises(RejectedError):
            connect("127.0.0.1", server.getsockname()[1], "the secret", 0, Queue())
        listening.join(10)
    assert len(sent) == 3
    assert b"the secret" not in b"".join(sent)


def test_authenticated_connections_that_send_no_valid_hello_are_closed(by_mpirun):
    sent = [
        {"type": "hello", "node": 2},
        {"type": "hello", "node": "0"},
        {"type": "hello", "node": True},
        {"type": "ready", "node": 0},
        {"type": "hello", "node": 0, "config": 1},
        {"type": 1},
        [],
        b"no JSON",
        b"",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"type": "hello", "node": "\\ud800"}',
    ]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(node(by_mpirun, message)) for message in sent]
        poll(by_mpirun, len(sent))
        assert all(map(is_closed, connections))
    assert not by_mpirun.nodes


def test_silent_and_slow_connections_are_closed_without_delaying_nodes(by_mpirun, monkeypatch):
    monkeypatch.setattr("perfkit.driver.connection.IDLE_SECONDS", 2)
    with raw_connection(by_mpirun), raw_connection(by_mpirun) as slow:
        wait_for(lambda: len(by_mpirun.listener.unauthenticated) == 2)
        with node(by_mpirun, HELLO):
            poll(by_mpirun)
            assert [*by_mpirun.nodes] == [1]
            assert len(by_mpirun.listener.unauthenticated) == 2
        slow.sendall(struct.pack("!i", 100))
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while by_mpirun.listener.unauthenticated and time.monotonic() < began + 10:
                slow.sendall(b"x")
                time.sleep(0.3)
        wait_for(lambda: not by_mpirun.listener.unauthenticated, 5)


def reset_connection(connection):
    linger = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.close()


def recorded(launcher):
    """Return the bytes that a node with the secret sends during the handshake."""
    sent = []
    with socket.create_server(("127.0.0.1", 0)) as relay, raw_connection(launcher) as driver:
        arguments = (*relay.getsockname(), "the secret", 0, Queue())
        connecting = threading.Thread(target=connect, args=arguments)
        connecting.start()
        client, _address = relay.accept()
        driver.settimeout(0.5)
        with client, contextlib.suppress(TimeoutError):
            while True:
                client.sendall(driver.recv(2**10))
                sent.append(client.recv(2**10))
                driver.sendall(sent[-1])
        connecting.join()
    return b"".join(sent)


def test_a_reset_at_any_byte_of_the_handshake_delays_no_node(by_mpirun):
    handshake = recorded(by_mpirun)
    assert len(handshake) > 40
    for count in range(len(handshake) + 1):
        with raw_connection(by_mpirun) as connection:
            connection.sendall(handshake[:count])
            reset_connection(connection)
    wait_for(lambda: not by_mpirun.listener.unauthenticated, 10)
    with node(by_mpirun, HELLO):
        wait_for(lambda: by_mpirun.poll(0.1) or [*by_mpirun.nodes] == [1])
    assert not by_mpirun.error


def test_a_replayed_handshake_is_rejected(by_mpirun):
    handshake = recorded(by_mpirun)
    with raw_connection(by_mpirun) as connection:
        connection.sendall(handshake + struct.pack("!i", 2) + b"{}")
        read_to_end(connection)
    wait_for(lambda: "127.0.0.1" in by_mpirun.listener.rejected)
    poll(by_mpirun, 2)
    assert not by_mpirun.nodes


def test_a_node_is_accepted_during_a_connection_flood(by_mpirun):
    flooding = threading.Event()

    def flood():
        while not flooding.is_set():
            with contextlib.suppress(OSError):
                reset_connection(raw_connection(by_mpirun))

    floods = [threading.Thread(target=flood) for _ in range(4)]
    for thread in floods:
        thread.start()
    port = by_mpirun.listener.port
    channel = connect("127.0.0.1", port, "the secret", 30, Queue())
    channel.send(Hello(node=1, source=package_source()))
    wait_for(lambda: by_mpirun.poll(0.1) or [*by_mpirun.nodes] == [1], 30)
    flooding.set()
    for thread in floods:
        thread.join()
    wait_for(lambda: not by_mpirun.listener.unauthenticated, 20)
    assert not by_mpirun.error
    channel.close()


def test_the_oldest_unauthenticated_connections_are_closed_at_the_limit(by_mpirun):
    with contextlib.ExitStack() as stack:
        limit = by_mpirun.listener.limit
        connections = [stack.enter_context(raw_connection(by_mpirun)) for _ in range(limit + 3)]
        for oldest in connections[:3]:
            read_to_end(oldest)
        wait_for(lambda: len(by_mpirun.listener.unauthenticated) == limit, 5)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (struct.pack("!i", MESSAGE_BYTES + 1), "a message of over 64 MiB"),
        (struct.pack("!i", 2) + b"[]", "invalid message"),
        (struct.pack("!i", 20) + b'{"type"', "no answer for"),
        (b"", "no answer for"),
    ],
    ids=["oversized", "malformed", "half", "silent"],
)
def test_an_oversized_malformed_or_partial_message_loses_only_its_node(
    by_mpirun, monkeypatch, sent, expected
):
    monkeypatch.setattr("perfkit.driver.connection.IDLE_SECONDS", 2)
    with node(by_mpirun, HELLO | {"node": 0}) as good, node(by_mpirun, HELLO) as bad:
        wait_for(lambda: by_mpirun.poll(0.1) or {*by_mpirun.nodes} == {0, 1})
        os.write(bad.fileno(), sent)

        def is_lost():
            good.send_bytes(b'{"type": "alive"}')
            by_mpirun.poll(0.1)
            return by_mpirun.nodes[1].lost

        assert expected in str(wait_for(is_lost, 10))
        assert by_mpirun.nodes[0].lost is None
        assert is_closed(bad)
        expected = "node_error" if sent.endswith(b"[]") else "node_lost"
        assert by_mpirun.error.failure.code == expected
        assert str(by_mpirun.error).startswith("node 1 (localhost)")


def test_the_first_difference_between_nodes_is_reported(by_mpirun):
    with contextlib.ExitStack() as stack:
        for hello in (HELLO | {"node": 0, "source": "other"}, HELLO):
            stack.enter_context(node(by_mpirun, hello))
            poll(by_mpirun, 2)
        with pytest.raises(NodeError, match=r"perfkit differs from perfkit on node 0"):
            by_mpirun.wait_for_nodes(lambda _text: None)


def test_a_host_name_may_resolve_to_a_loopback_address(monkeypatch):
    known = {"there": "192.0.2.1", "here": "127.0.1.1"}
    monkeypatch.setattr("perfkit.request.hosts.socket.gethostbyname", known.__getitem__)
    monkeypatch.setattr("perfkit.request.hosts.own_addresses", dict)
    assert own_index(["there", "here"]) == 1
    assert own_index(["there"]) is None


@pytest.mark.slow
def test_repeats_of_different_nodes_are_not_combined(pair, request_of):
    request = request_of(pair, repeats=2)
    end(*(start(node, request) for node in pair.nodes))
    (path,) = Path(request["outputs_dir"]).glob("*/result.json")
    nodes = read_result(path).nodes
    nodes[1] = nodes[1].model_copy(update={"differs": {"cpu": "another"}})
    forget_repeats(path.parent, after=1, nodes=nodes)
    end(*(start(node, request) for node in pair.nodes))
    result = result_of(request)
    assert result.failure.code == "nodes_differ"
    assert "-p label NAME" in sentence(result.failure)
    assert len(result.repeats) == 1


@pytest.fixture
def second_host(small, monkeypatch):
    """`perfkit.measure` on the second of two hosts: `given` runs it with a changed result from
    the first host; `plan`, `measured_at` and `folder` describe the expected result."""
    hosts = {"nodes": 2, "launcher": "manual", "hosts": "127.0.0.2,127.0.0.1"}
    plan = perfkit.plan("resnet50", small(input="synthetic", **hosts))
    monkeypatch.setattr("perfkit.driver.measure.own_index", lambda _hosts: 1)
    same = ("batch_size", "accumulate", "processes", "nodes", "launcher", "hosts", "input")
    work = {"config": plan.config, "protocol": plan.protocol}

    def measured_at(throughput):
        asked = {name: getattr(plan.config, name) for name in same}
        steps = {"measured_steps": plan.protocol.measured_steps}
        values = [throughput] * plan.protocol.repeats
        return measured(values, **asked, **steps).model_copy(update=work)

    result = measured_at(1.0)
    folder = measurement_folder(plan.config, plan.protocol, result.environment)

    def given(**changes):
        content = json.loads(result.model_dump_json()) | {"id": folder.name} | changes
        monkeypatch.setattr("perfkit.driver.measure.join", lambda *_: json.dumps(content))
        return perfkit.measure(plan.config, plan.protocol)

    return SimpleNamespace(given=given, plan=plan, measured_at=measured_at, folder=folder)


@pytest.mark.parametrize("id_", ["../elsewhere", "/dev/null/elsewhere", "..", "a/b", "", "ab"])
def test_a_result_with_a_different_id_is_rejected(id_, second_host, tmp_path):
    before = {*tmp_path.iterdir()}
    with pytest.raises(InvalidMessageError, match=r"bye\.result: differs from the request"):
        second_host.given(id=id_)
    assert {*tmp_path.iterdir()} == before


def test_a_result_of_a_different_request_is_rejected_even_with_the_right_id(second_host):
    config = second_host.plan.config.model_copy(update={"seed": 3})
    with pytest.raises(InvalidMessageError, match=r"bye\.result: differs from the request"):
        second_host.given(config=config.model_dump())
    with pytest.raises(InvalidMessageError, match=r"bye\.result"):
        second_host.given(repeats=7)
    assert not second_host.folder.exists()


def test_a_stored_result_is_not_replaced_by_one_without_its_repeats(second_host):
    stored = second_host.given()
    assert stored.folder == second_host.folder
    assert second_host.given() == stored
    other = second_host.measured_at(2.0)
    changes = {"repeats": other.repeats, "throughput": other.throughput}
    content = json.loads(other.model_copy(update=changes).model_dump_json(include={*changes}))
    with pytest.raises(InvalidMessageError, match="lacks a repeat that is stored on this node"):
        second_host.given(**content)
    assert Measurement.read(stored.folder) == stored
