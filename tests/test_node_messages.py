"""Fuzz messages of authenticated nodes and drivers.

The example number is the random seed. FIRST=n sets the first number, EXAMPLES=n the count, and
FUZZ_SECONDS=600 the minimum duration.
"""

# ruff: noqa: F401, F811 - fixtures of test_nodes
import contextlib
import copy
import json
import os
import random
import tempfile
import threading
import time
from pathlib import Path
from queue import Queue

import pytest
from clusters import wait_for
from fake_trainer import launcher_command
from test_nodes import by_mpirun, mpirun_launcher, node, reset

import perfkit
from perfkit.driver.cluster import ClusterWorkers, NodeError
from perfkit.driver.connection import Hello, Job, Listener, LostError, Ready, Report
from perfkit.driver.node_agent import NodeAgent
from perfkit.driver.progress import Progress
from perfkit.driver.repeat import run_repeat
from perfkit.results.store import Store
from perfkit.system.environment import package_source

pytestmark = pytest.mark.timeout(3000)
VALUES = [
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63, 10**30, 1.0, -0.5, 1e308, 1e-320),
    *("", "8", "x", "../../x", "/dev/null", "-x", "\ud800", "\x00", "x" * 10_000, "1e999"),
    *([], {}, [0], [[]], [None] * 100, {"": None}, {"type": "ready"}, {"x": [{}]}),
    *(float("nan"), float("inf"), [float("-inf")], ["8"], {"0": "x"}, {"-1": "", "x": 1}),
]
"""Replacement values of mutated fields."""
LONGEST_SECONDS = 10
HELLO = {"type": "hello", "node": 1, "source": package_source(), "config": {}, "protocol": {}}
READY = {"type": "ready", "address": "127.0.0.1", "interface": "lo", "port": 29400, "name": "b"}
READY |= {"gpus": 1, "facts": {"python": "3.11", "numpy": None, "gpus": ["one", "two"]}}
EXITED = {"type": "report", "raw": {}, "exited": [1]}
ENDED = {"type": "ended", "status": 0, "killed_for_memory": False, "free_bytes": 10**9}
ENDED |= {"logs": {"rank1": "done", "launcher-node1": ""}}
OTHERS = [
    {"type": "refused", "code": "port_taken", "detail": "in use", "port": 1, "address": "a"},
    {"type": "reached", "errors": {"0": "refused"}},
]
"""Messages that a node does not send during a repeat."""


def test_the_matrix_of_a_large_machine_is_a_valid_fact():
    facts = {"gpu_topology": "NODE\t" * 2000}
    assert Ready(**READY | {"facts": facts}).facts == facts


def examples(default):
    """Yield the random generator of each example; each must finish in LONGEST_SECONDS."""
    first, count = int(os.environ.get("FIRST", "0")), int(os.environ.get("EXAMPLES", default))
    seconds, began = float(os.environ.get("FUZZ_SECONDS", "0")), time.monotonic()
    number = first
    while number < first + count or time.monotonic() < began + seconds:
        example_began = time.monotonic()
        yield random.Random(number)
        assert time.monotonic() - example_began < LONGEST_SECONDS, f"example {number}"
        number += 1
    print(f"{number - first} examples in {time.monotonic() - began:.0f} s")


def field_paths(value, path=()):
    """Yield the path of each field in a JSON value."""
    items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else items:
        yield (*path, key)
        yield from field_paths(inner, (*path, key))


def mutated(chance, value):
    """Return a copy with one field replaced, removed or added."""
    value = copy.deepcopy(value)
    *path, key = chance.choice([*field_paths(value)])
    inner = value
    for part in path:
        inner = inner[part]
    kind = chance.random()
    if kind < 0.1:
        del inner[key]
    elif kind < 0.2 and isinstance(inner, dict):
        inner["more"] = chance.choice(VALUES)
    else:
        inner[key] = chance.choice(VALUES)
    return value


def as_json(chance, message):
    """Return the message as bytes, sometimes truncated or deeply nested."""
    text = json.dumps(message).encode()
    if chance.random() < 0.02:
        return text[: chance.randrange(len(text))]
    return text if chance.random() < 0.98 else text[:-1] + b',"more":' + b"[" * 100_000


@pytest.fixture
def events(processes, small, monkeypatch, tmp_path):
    monkeypatch.setattr("perfkit.driver.workers.launcher_command", launcher_command(0.1))
    outputs = str(tmp_path / "single")
    plan = perfkit.plan("resnet50", small(input="synthetic", outputs_dir=outputs))
    measurement = perfkit.measure(plan.config, plan.protocol)
    lines = measurement.rank_file(1, 0).read_text().splitlines()
    return [json.loads(line) for line in lines]


def raw(rank, events):
    text = "".join(json.dumps(e) + "\n" for e in events)
    return {"type": "report", "raw": {rank: text}, "exited": []}


def script(events):
    """Return the messages a node sends before and after it is instructed to run a repeat."""
    return [HELLO, READY], [raw(1, events), EXITED, ENDED]


@contextlib.contextmanager
def playing(launcher, before, then):

    def answer():
        with contextlib.suppress(OSError, EOFError):
            while json.loads(connection.recv_bytes())["type"] != "run":
                continue
            for message in then:
                connection.send_bytes(message)
            while True:
                connection.recv_bytes()

    connection = node(launcher)
    with contextlib.suppress(OSError):
        for message in before:
            connection.send_bytes(message)
    answering = threading.Thread(target=answer)
    answering.start()
    try:
        yield
    finally:
        for entered in launcher.nodes.values():
            entered.channel.close()
        answering.join(LONGEST_SECONDS)
        connection.close()


def play(launcher, store, events, before, then):
    """Return the repeat or the NodeError when node 1 sends these messages; node 0 is valid."""
    reset(launcher)
    logs = {"rank0": "", "launcher-node0": ""}
    valid = [HELLO | {"node": 0}, READY], [raw(0, events), ENDED | {"logs": logs}]
    valid = [[json.dumps(message).encode() for message in part] for part in valid]
    # Node 0 connects first: its port and address are used.
    with playing(launcher, *valid), playing(launcher, before, then):
        try:
            launcher.wait_for_nodes(lambda _text: None)
            with Progress(1, 3, "images/s", None) as progress:
                return run_repeat(launcher, store, 1, progress)[0]
        except NodeError as error:
            return error


@pytest.mark.slow
def test_every_mutated_node_message_ends_in_a_known_code(
    by_mpirun, events, tmp_path, monkeypatch
):
    config = by_mpirun.config.model_copy(update={"timeout": 1})
    monkeypatch.setattr(by_mpirun, "config", config)
    store = Store(tmp_path / "measurement")
    as_sent = [[json.dumps(m).encode() for m in part] for part in script(events)]
    assert play(by_mpirun, store, events, *as_sent).failure is None
    codes = {}
    for chance in examples(60):
        before, then = script(events)
        part = chance.choice([before, then, then])
        number = chance.randrange(len(part))
        if part is then and number == 0 and chance.random() < 0.8:
            part[0] = raw(1, mutated(chance, events))
        elif chance.random() < 0.1:
            part.insert(number, chance.choice([*OTHERS, *map(dict, before + then)]))
        else:
            part[number] = mutated(chance, part[number])
        sent = [[as_json(chance, message) for message in part] for part in (before, then)]
        outcome = play(by_mpirun, store, events, *sent)
        code = outcome.failure.code if outcome.failure else outcome.status
        codes[code] = codes.get(code, 0) + 1
    print(codes)
    assert codes.keys() <= {
        *("complete", "node_error", "node_lost", "node_timeout", "nodes_differ", "port_taken"),
        *("worker_error", "worker_died", "out_of_memory", "disk_full", "timeout"),
        *("bad_input", "loss_not_finite", "config_mismatch", "worker_stalled"),
    }
    assert codes["node_error"] > 5


@contextlib.contextmanager
def two_nodes(launcher, tmp_path):
    """Yield the connection of node 1 while a repeat runs with both nodes ready."""
    first = HELLO | {"node": 0}
    with node(launcher, first, READY), node(launcher, HELLO, READY) as second:
        wait_for(lambda: launcher.poll(0.05) or launcher._all(lambda entered: entered.ready))
        launcher.workers = ClusterWorkers(launcher, tmp_path)
        yield second


@pytest.mark.timeout(60)
def test_a_flood_of_node_messages_does_not_block_the_timeout(by_mpirun, tmp_path, monkeypatch):
    receive = by_mpirun._receive

    def send_another(*received):
        receive(*received)
        by_mpirun.inbox.put(received)

    with two_nodes(by_mpirun, tmp_path):
        monkeypatch.setattr(by_mpirun, "_receive", send_another)
        by_mpirun.inbox.put((by_mpirun.nodes[1].channel, Report(raw={}, exited=[1])))
        by_mpirun.poll(0.1)
    assert [*by_mpirun.workers.exited_at] == [1]


def test_an_invalid_node_message_is_a_node_error_naming_the_field(by_mpirun, tmp_path):
    before = {*tmp_path.rglob("*")}
    for message, field in [
        (READY | {"facts": []}, "ready.facts"),
        (READY | {"gpus": "8"}, "ready.gpus"),
        (READY | {"address": "here:1"}, "ready.address"),
        (READY | {"more": 1}, "ready.more"),
        (ENDED | {"free_bytes": "x"}, "ended.free_bytes"),
        (ENDED | {"logs": {"rank0": ""}}, "ended.logs"),
        (ENDED | {"logs": {"/../../elsewhere": "text"}}, "ended.logs"),
        (HELLO | {"node": 1.0}, "hello.node"),
        (HELLO | {"node": 0}, "hello"),
        (EXITED | {"exited": [0]}, "report.exited"),
        (EXITED | {"raw": {"0": ""}}, "report.raw"),
        ({"type": "unheard"}, "message"),
        ([], "message"),
    ]:
        reset(by_mpirun)
        with two_nodes(by_mpirun, tmp_path) as bad:
            bad.send_bytes(json.dumps(message).encode())
            failure = wait_for(lambda: by_mpirun.poll(0.05) or by_mpirun.error).failure
        assert (failure.code, failure.params["field"]) == ("node_error", field)
        assert failure.params["node"] == "node 1 (localhost)"
        assert by_mpirun.workers.exits == {} and {*tmp_path.rglob("*")} == before


@pytest.fixture
def served(processes, small, monkeypatch, tmp_path):
    """Return a function that serves a manual node with these messages and returns its outcome:
    the LostError, or what `NodeAgent.serve` returns. The scratch folder must end up empty."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr("perfkit.driver.workers.launcher_command", lambda *_: ["true"])
    hosts = {"nodes": 2, "launcher": "mpirun", "hosts": "127.0.0.1,localhost"}
    monkeypatch.setattr("perfkit.request.hosts.own_index", lambda _hosts: 0)
    plan = perfkit.plan("resnet50", small(input="synthetic", **hosts))
    job, inbox = Job(config=plan.config, protocol=plan.protocol), Queue()
    listener = Listener("127.0.0.1", 0, 2, "the secret", inbox)

    def serve(*sent):
        outcomes = []

        def be_node():
            agent = NodeAgent(1, "127.0.0.1", listener.port, "the secret", 5)
            try:
                outcomes.append(agent.serve(job))
            except LostError as error:
                outcomes.append(error)

        thread = threading.Thread(target=be_node)
        thread.start()
        # The error of an earlier connection may follow its end.
        received = iter(lambda: inbox.get(timeout=10), None)
        channel = next(sender for sender, message in received if isinstance(message, Hello))
        with contextlib.suppress(OSError):
            for message in sent:
                with channel.sending:
                    channel.connection.send_bytes(message)
        thread.join(LONGEST_SECONDS)
        assert not thread.is_alive()
        channel.close()
        while not inbox.empty():
            inbox.get()
        assert [*scratch.iterdir()] == []
        return outcomes[0]

    serve.job = job.model_dump()
    yield serve
    listener.close()


RUN = {"type": "run", "repeat": 1, "job": "job-1", "address": "127.0.0.1", "port": 29400}
BYE = {"type": "bye", "result": None, "reason": None}


def test_mutated_driver_messages_never_write_outside_the_scratch_folder(served, tmp_path):
    valid = [served.job, RUN, {"type": "steady"}, {"type": "end", "dump_stacks": False}]
    valid += [{"type": "reach", "ports": {"0": ["127.0.0.1", 9]}}]
    assert served(*(json.dumps(message).encode() for message in [*valid, BYE])) is None
    before = {*tmp_path.rglob("*")}
    lost = 0
    for chance in examples(20):
        messages = [*map(dict, valid)]
        number = chance.choice([0, 0, 1, 1, 1, 2, 3, 4])
        messages[number] = mutated(chance, messages[number])
        outcome = served(*(as_json(chance, message) for message in [*messages, BYE]))
        lost += isinstance(outcome, LostError)
        assert {*tmp_path.rglob("*")} == before
    assert lost > 5


def test_a_node_rejects_invalid_driver_messages(served):
    for message, field in [
        (RUN | {"repeat": "../../x"}, "run.repeat"),
        (RUN | {"repeat": 2}, "run.repeat"),
        (RUN | {"job": "../../x"}, "run.job"),
        (RUN | {"job": "-x"}, "run.job"),
        (RUN | {"address": "-x"}, "run.address"),
        ({"type": "reach", "ports": {"0": ["x" * 100, 9]}}, "reach.ports.0.0"),
        ({"type": "end"}, "end.dump_stacks"),
    ]:
        outcome = served(json.dumps(served.job).encode(), json.dumps(message).encode())
        assert isinstance(outcome, LostError)
        assert f"invalid message: {field}: " in str(outcome)


def test_a_node_rejects_a_different_configuration(served):
    for changes in ({"batch_size": 3}, {"data_dir": "/"}, {"outputs_dir": "/"}):
        job = served.job | {"config": served.job["config"] | changes}
        outcome = served(json.dumps(job).encode(), json.dumps(BYE).encode())
        refused = "invalid message: job: differs from the request on this node"
        assert (outcome and str(outcome)) == (None if "outputs_dir" in changes else refused)


def test_a_node_leaves_no_files_when_the_driver_is_lost(served):
    sent = [json.dumps(served.job).encode(), json.dumps(RUN).encode(), b"{"]
    assert isinstance(served(*sent), LostError)
    assert not list(Path(tempfile.gettempdir()).glob("*"))
