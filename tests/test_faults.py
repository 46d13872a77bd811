"""Faults of the machine around a measurement: what was measured stays, nothing else counts."""

import errno
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from itertools import count, pairwise
from pathlib import Path

import pytest
from conftest import IN_WORKER, as_options
from fake_trainer import launcher_command, planted
from made import forget_repeats
from test_driver import wait_for

import perfkit
from perfkit.analysis.sanity import window_disagrees
from perfkit.report import publish
from perfkit.results.store import Measurement
from perfkit.results.summarize import check_against_raw

REPEATS = 2
AT_BATCH_2 = (
    IN_WORKER
    + """
    import resource, time
    import perfkit.inputs.synthetic as synthetic
    real = synthetic.batches

    def diverge():
        # The loss itself: of images or weights that are NaN, Paddle's kernels on a CPU make
        # zeros, and the loss stays finite.
        from perfkit.frameworks.paddle.backend import Trainer
        backward = Trainer.backward
        Trainer.backward = lambda *args, **how: backward(*args, **how) * float("nan")

    def batches(config, rank):
        for number, batch in enumerate(real(config, rank)):
            if number == 2:
                {fault}
            yield batch

    synthetic.batches = batches
"""
)
"""A worker to which something happens before its second step."""
DIVERGES = AT_BATCH_2.format(fault="diverge()")
NO_MORE_MEMORY = AT_BATCH_2.format(
    fault="resource.setrlimit(resource.RLIMIT_AS, (2**20, resource.RLIM_INFINITY))"
)


@pytest.fixture
def request_of(small):
    """Parameters of two repeats of 60 steps, without data."""

    def parameters(outputs, **changes):
        fixed = {"input": "synthetic", "repeats": REPEATS, "measured_steps": 60}
        return small(**fixed | {"outputs_dir": str(outputs)} | changes)

    return parameters


@pytest.fixture
def fake_measure(processes, request_of, monkeypatch):
    """Measure with a fake trainer, whose steps perfkit's own worker writes."""
    monkeypatch.setattr("perfkit.driver.workers.launcher_command", launcher_command(0.1))

    def run(outputs, **changes):
        plan = perfkit.plan("resnet50", request_of(outputs, **changes))
        return perfkit.measure(plan.config, plan.protocol)

    return run


def perfkit_run(request):
    """`perfkit run resnet50`, to its end."""
    perfkit_command = Path(sys.executable).with_name("perfkit")
    return subprocess.run(
        [perfkit_command, "run", "resnet50", *as_options(request)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def contents(folder):
    """Path below `folder` -> bytes, of all files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def outcome(measure, outputs):
    """How a measurement ended that may have come to the end of the disk: refused, with an
    OSError raised, or its status."""
    try:
        measured = measure(outputs)
    except perfkit.RequestError as refused:
        assert "No space left on device" in str(refused)
        return "refused"
    except OSError as error:
        assert error.errno == errno.ENOSPC
        return "raised"
    result = measured.result
    if result.status == "complete":
        assert result.failure is None
        assert len(result.complete_repeats) == REPEATS
        assert check_against_raw(measured) == []
        logs = {path.name for path in (measured.folder / "logs").iterdir()}
        assert logs == {f"{k}-launcher.log" for k in range(1, REPEATS + 1)}
    else:
        assert result.failure.code == "disk_full"
    return result.status


@pytest.mark.parametrize("what", ["pages", pytest.param("files", marks=pytest.mark.slow)])
def test_a_disk_full_at_any_write_of_a_measurement_is_told_and_costs_nothing_else(
    fake_measure, disk, what
):
    outputs = disk.path / "outputs"
    earlier = fake_measure(outputs, label="earlier").folder
    kept = contents(earlier)
    seen = []
    while "complete" not in seen:
        disk.leave(**{what: len(seen)})
        seen.append(outcome(fake_measure, outputs))
        assert contents(earlier) == kept
        assert not list(outputs.rglob("*.partial"))
        frame = perfkit.load(outputs)
        assert frame.attrs["unreadable"] == []
        statuses = dict(zip(frame["label"], frame["status"], strict=True))
        assert statuses in ({"earlier": "complete"}, {"earlier": "complete", "": seen[-1]})
        if seen[-1] == "partial":
            disk.leave()
            assert outcome(fake_measure, outputs) == "complete"
        for folder in {*outputs.iterdir()} - {earlier}:
            shutil.rmtree(folder)
    assert {"raised", "failed", "partial"} < {*seen}


def test_a_disk_full_at_any_write_of_a_page_leaves_the_old_one_or_the_new(fake_measure, disk):
    measurement = fake_measure(disk.path / "outputs")
    outputs = measurement.folder.parent
    before, written = contents(outputs), []
    for pages in count():
        disk.leave(pages=pages)
        try:
            publish(measurement)
            break
        except OSError as error:
            assert error.errno == errno.ENOSPC
        now = contents(outputs)
        assert now.items() >= before.items()
        new = now.keys() - before.keys()
        assert all(now[name].endswith(b"</html>") for name in new if name.endswith("html"))
        assert not list(outputs.rglob("*.partial"))
        written.append(len(new))
        for name in new:
            (outputs / name).unlink()
    assert {*written} == {*range(7)}
    assert len(contents(outputs)) == len(before) + 7


@pytest.mark.parametrize("pages", [0, 30])
def test_perfkit_run_on_a_full_disk_ends_with_1_and_says_so(request_of, plant, disk, pages):
    plant(planted(0.1))
    outputs = disk.path / "outputs"
    outputs.mkdir()
    disk.leave(pages=pages)
    done = perfkit_run(request_of(outputs))
    assert done.returncode == 1
    assert "disk_full: [Errno 28] No space left on device" in done.stderr


@pytest.fixture
def taken_port():
    """A port of this machine that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("code", "fault", "changes"),
    [
        ("loss_not_finite", DIVERGES, {}),
        ("out_of_memory", NO_MORE_MEMORY, {}),
        ("timeout", planted(1000), {"timeout": 3}),
        ("port_taken", "", {"nodes": 2, "launcher": "manual"}),
    ],
)
def test_a_fault_ends_perfkit_run_with_1_and_a_code_of_its_own_and_nothing_else_changes(
    fake_measure, request_of, plant, taken_port, tmp_path, code, fault, changes
):
    outputs = tmp_path / "outputs"
    other = fake_measure(outputs, label="other").folder
    begun = fake_measure(outputs)
    forget_repeats(begun.folder, after=1)
    kept = contents(other), begun.rank_file(1, 0).read_bytes(), begun.result.repeats[0]
    if code == "port_taken":
        changes = changes | {"hosts": "127.0.0.1,127.0.0.2", "port": taken_port}
    plant(fault)
    done = perfkit_run(request_of(outputs, **changes))
    assert done.returncode == 1
    assert f": {code}: " in done.stderr
    begun = Measurement.read(begun.folder)
    now = contents(other), begun.rank_file(1, 0).read_bytes(), begun.result.repeats[0]
    assert now == kept
    frame = perfkit.load(outputs).set_index("failure")
    row = frame.loc[code]
    assert row["status"] == ("failed" if "nodes" in changes else "partial")
    assert len(row["repeat_throughputs"]) == ("nodes" not in changes)
    assert list(frame.loc[frame["status"] == "complete", "label"]) == ["other"]
    assert check_against_raw(begun) == []


@pytest.mark.usefixtures("processes")
def test_of_two_that_start_the_same_measurement_at_one_moment_one_measures(
    request_of, tmp_path
):
    """In every other race the second one starts within a second. Four races, or RACES of them:
    RACES=100 pytest tests/test_faults.py -k one_moment --timeout 1800"""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance, ended = random.Random(seed), Counter()
    for race in range(int(os.environ.get("RACES", "4"))):
        outputs = tmp_path / str(race)
        request = request_of(outputs, repeats=1)
        command = [sys.executable, Path(__file__).with_name("racer.py"), json.dumps(request)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with (
            subprocess.Popen(command, text=True, **pipes) as first,
            subprocess.Popen(command, text=True, **pipes) as second,
        ):
            for racer in (first, second):
                assert racer.stdout.readline() == "ready\n"
            for racer, delay in ((first, 0.0), (second, chance.random() * (race % 2))):
                time.sleep(delay)
                racer.stdin.write("go\n")
                racer.stdin.flush()
            said = [racer.communicate() for racer in (first, second)]
        assert "".join(out for out, _ in said) == "started\n"
        (folder,) = outputs.iterdir()
        for racer, (_, err) in zip((first, second), said, strict=True):
            ended[racer.returncode] += 1
            if racer.returncode:
                assert racer.returncode == 2
                assert f"{folder.name} is being measured by another process" in err
        measurement = Measurement.read(folder)
        assert measurement.result.status == "complete"
        assert check_against_raw(measurement) == []
    print(f"{ended[0]} measured or were shown what was, {ended[2]} were refused")
    assert ended[2] > 0


FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
DRIVER = """
import json, sys, time, perfkit
plan = perfkit.plan("resnet50", json.loads(sys.argv[1]))
measurement = perfkit.measure(plan.config, plan.protocol)
print(measurement.folder, time.time())
"""
TELLS_THE_TIME = """
import select, time
# libfaketime 0.9.10 has the kernel refuse the sleep that Python makes.
time.sleep = lambda seconds: select.select([], [], [], seconds)
""" + AT_BATCH_2.format(fault="pass").replace(
    "yield batch", "print('it is', time.time(), flush=True); time.sleep(0.02); yield batch"
)


def test_the_wall_clock_set_by_an_hour_during_a_run_changes_nothing(
    request_of, plant, tmp_path
):
    """Of driver, launcher and workers, forward and then back; the monotonic clock goes on, as
    it does on a machine whose clock is set."""
    if not FAKETIME:
        pytest.skip("no libfaketime: apt-get install faketime")
    plant(TELLS_THE_TIME)
    clock = tmp_path / "clock"
    clock.write_text("+0")
    faked = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock)}
    faked |= {"FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
    request = request_of(tmp_path / "outputs", repeats=1, measured_steps=30)
    planned = perfkit.plan("resnet50", request)
    began, began_at = time.monotonic(), time.time()
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(request)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | faked,
    ) as driver:
        (raw,) = wait_for(lambda: [*tmp_path.glob("outputs/*/repeats/1/rank0.jsonl")])
        for step, offset in ((5, "+1h"), (15, "-1h")):
            wait_for(lambda step=step: f'"step":{step},' in raw.read_text())
            clock.write_text(offset)
            with pytest.raises(perfkit.RequestError, match="measured by another process"):
                perfkit.measure(planned.config, planned.protocol)
        folder, told = driver.communicate()[0].split()
    elapsed = time.monotonic() - began
    assert float(told) - time.time() == pytest.approx(-3600, abs=60)
    measurement = Measurement.read(Path(folder))
    log = (measurement.folder / "logs" / "1-rank0.log").read_text()
    times = [float(line.split()[-1]) for line in log.splitlines() if line.startswith("it is")]
    jumps = [later - earlier for earlier, later in pairwise(times)]
    assert (max(jumps), min(jumps)) == pytest.approx((3600, -7200), abs=60)
    result = measurement.result
    assert (result.status, result.failure) == ("complete", None)
    assert check_against_raw(measurement) == []
    (repeat,) = result.repeats
    window = repeat.ranks[0].window_seconds
    assert repeat.throughput == 2 * 30 / window
    assert window < repeat.wall_seconds < elapsed
    steps = perfkit.load_steps(measurement.folder)
    assert steps["seconds"].min() > 0
    assert not window_disagrees(window, list(steps[steps["measured"]]["seconds"]))
    created = datetime.fromisoformat(result.created).timestamp()
    assert created == pytest.approx(began_at, abs=60)
