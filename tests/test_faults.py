"""Faults around a measurement: finished repeats are kept, and nothing else counts."""

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
from conftest import IN_WORKER, SMALL, as_options
from drivers import AT_BATCHES, DRIVER, faked
from fake_trainer import launcher_command, planted
from made.clusters import wait_for
from made.results import forget_repeats

import perfkit
from perfkit.analysis.warnings import window_disagrees
from perfkit.measuring.results.frames import records
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.report.site import publish

OWN_GROUPS = Path("/proc/self/cgroup")
RUN = [Path(sys.executable).with_name("perfkit"), "run", "resnet50"]
REPEATS = 2
FIXED = {"input": "synthetic", "repeats": REPEATS, "measured_steps": 60}
DIVERGES = AT_BATCHES.format(fault="number == 2 and lose()")
NO_MORE_MEMORY = "import resource\n" + AT_BATCHES.format(
    fault="number == 2 and resource.setrlimit(resource.RLIMIT_AS, (2**20, -1))"
)


@pytest.fixture
def request_of(small):
    """Parameters of two repeats of 60 steps with synthetic input."""

    def parameters(outputs, **changes):
        return small(**FIXED | {"outputs_dir": str(outputs)} | changes)

    return parameters


@pytest.fixture
def fake_measure(processes, request_of, monkeypatch):
    """Measures with a fake trainer, whose steps perfkit's own worker writes."""
    monkeypatch.setattr(
        "perfkit.measuring.driver.workers.launcher_command", launcher_command(0.1)
    )

    def run(outputs, **changes):
        plan = perfkit.plan("resnet50", request_of(outputs, **changes))
        return perfkit.measure(plan.config, plan.protocol)

    return run


def perfkit_run(request):
    pipes = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    return subprocess.run([*RUN, *as_options(request)], check=False, **pipes)


def contents(folder):
    """Return the bytes of all files by their path below `folder`."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


FULL = "No space left on device"


def outcome(measure, outputs):
    """Measure on a disk that may be full and return "refused", "raised" or the status."""
    try:
        measured = measure(outputs)
    except perfkit.RequestError as error:
        assert FULL in str(error)
        return "refused"
    except OSError as error:
        assert error.errno == errno.ENOSPC
        return "raised"
    result = measured.result
    if result.status != "complete":
        assert FULL in result.failure.reason
        return result.status
    assert result.failure is None
    assert len(result.complete_repeats) == REPEATS
    assert check_against_raw(measured) == ""
    logs = {path.name for path in measured.log_files()}
    assert logs == {f"{repeat}-launcher.log" for repeat in range(1, REPEATS + 1)}
    return result.status


@pytest.mark.slow
def test_a_full_disk_at_any_write_of_a_measurement_is_reported(fake_measure, disk):
    outputs = disk.path / "outputs"
    earlier = fake_measure(outputs, label="earlier").folder
    before = contents(earlier)
    outcomes, finished = [], []
    while "complete" not in outcomes:
        disk.leave(pages=len(outcomes))
        outcomes.append(outcome(fake_measure, outputs))
        assert contents(earlier) == before
        assert not list(outputs.rglob("*.partial"))
        frame = perfkit.load(outputs)
        assert frame.attrs["unreadable"] == []
        (kept,) = records(frame[frame["label"] == "earlier"])
        assert kept["status"] == "complete"
        for stored in records(frame[frame["label"] == ""]):
            finished.append(len(stored["repeat_throughputs"]))
        if finished and finished[-1] == 1:
            disk.leave()
            assert outcome(fake_measure, outputs) == "complete"
        remove_others(earlier)
    assert "raised" in outcomes
    assert {*finished} == {0, 1, REPEATS}


def remove_others(folder):
    """Remove the folders beside this one."""
    for other in {*folder.parent.iterdir()} - {folder}:
        shutil.rmtree(other)


@pytest.mark.slow
def test_a_full_disk_at_any_write_leaves_the_old_or_the_new_page(fake_measure, disk):
    measurement = fake_measure(disk.path / "outputs")
    outputs = measurement.folder.parent
    before = contents(outputs)
    written = []
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
        for name in new:
            if name.endswith("html"):
                assert now[name].endswith(b"</html>")
        assert not list(outputs.rglob("*.partial"))
        written.append(len(new))
        for name in new:
            (outputs / name).unlink()
    assert {*written} == {*range(7)}
    assert len(contents(outputs)) == len(before) + 7


@pytest.mark.parametrize("pages", [0, 30])
@pytest.mark.slow
def test_perfkit_run_on_a_full_disk_exits_with_1(request_of, plant, disk, pages):
    plant(planted(0.1))
    outputs = disk.path / "outputs"
    outputs.mkdir()
    disk.leave(pages=pages)
    done = perfkit_run(request_of(outputs))
    assert done.returncode == 1
    assert f"The disk is full: [Errno 28] {FULL}" in done.stderr


@pytest.mark.slow
def test_a_write_error_at_any_write_of_the_driver_is_reported(
    fake_measure, tmp_path, monkeypatch
):
    """Injects faults below the store's only write function."""
    outputs = tmp_path / "outputs"
    earlier = fake_measure(outputs, label="earlier").folder
    before = contents(earlier)
    outcomes = []
    while "complete" not in outcomes:
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", failing_after(len(outcomes), os.fsync))
            try:
                result = fake_measure(outputs).result
                assert result.status == "complete" or result.failure.code == "io_error"
                outcomes.append(result.status)
            except OSError as error:
                assert error.errno == errno.EIO
                assert error.filename
                outcomes.append("raised")
        assert contents(earlier) == before
        frame = perfkit.load(outputs)
        assert frame.attrs["unreadable"] == []
        assert "earlier" in [*frame["label"]]
        remove_others(earlier)
    assert "raised" in outcomes


def failing_after(calls, function):
    """Return a function that fails with an input/output error after so many calls."""
    numbers = count()

    def failing(argument):
        if next(numbers) >= calls:
            raise OSError(errno.EIO, "Input/output error")
        return function(argument)

    return failing


@pytest.fixture(scope="module")
def earlier(samples, processes, tmp_path_factory):
    """Folders of a complete measurement, `other`, and one interrupted after a repeat."""
    places = {"data_dir": str(samples), "outputs_dir": str(tmp_path_factory.mktemp("earlier"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "perfkit.measuring.driver.workers.launcher_command", launcher_command(0.1)
        )
        folders = []
        for named in ({"label": "other"}, {}):
            plan = perfkit.plan("resnet50", SMALL | FIXED | places | named)
            folders.append(perfkit.measure(plan.config, plan.protocol).folder)
    forget_repeats(folders[1], after=1)
    return folders


@pytest.fixture
def taken_port():
    """A port of this machine in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("code", "fault", "changes"),
    [
        ("loss_not_finite", DIVERGES, {}),
        ("out_of_memory", NO_MORE_MEMORY, {}),
        ("timeout", planted(1000), {"timeout": 3}),
        ("port_taken", "", {"nodes": 2, "launcher": "ssh"}),
    ],
)
@pytest.mark.slow
def test_a_fault_ends_perfkit_run_with_1_and_its_own_code(
    earlier, request_of, plant, taken_port, ssh_here, tmp_path, code, fault, changes
):
    outputs = tmp_path / "outputs"
    complete, interrupted = (outputs / folder.name for folder in earlier)
    shutil.copytree(earlier[0].parent, outputs)

    def to_keep():
        measurement = Measurement.read(interrupted)
        raw = measurement.rank_file(1, 0).read_bytes()
        return contents(complete), raw, measurement.result.repeats[0]

    before = to_keep()
    if code == "port_taken":
        ssh_here()
        changes = changes | {"hosts": "127.0.0.1,127.0.0.2", "port": taken_port}
    plant(fault)
    done = perfkit_run(request_of(outputs, **changes))
    assert done.returncode == 1
    assert f"\n  {code}: " in done.stderr
    if code == "port_taken":
        assert "-p port NUMBER" in " ".join(done.stderr.split())
    assert to_keep() == before
    frame = perfkit.load(outputs)
    (row,) = records(frame[frame["failure"] == code])
    # On two nodes it is another measurement, without earlier repeats.
    status, repeats = ("failed", 0) if "nodes" in changes else ("partial", 1)
    assert row["status"] == status
    assert len(row["repeat_throughputs"]) == repeats
    assert list(frame[frame["status"] == "complete"]["label"]) == ["other"]
    assert check_against_raw(Measurement.read(interrupted)) == ""


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_only_one_of_two_simultaneous_starts_measures(request_of, tmp_path):
    """In every other race, the second process starts up to a second later. For more races:
    RACES=100 pytest tests/test_faults.py -k simultaneous --timeout 1800"""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ended = Counter()
    for race in range(int(os.environ.get("RACES", "4"))):
        outputs = tmp_path / str(race)
        delay = chance.random() if race % 2 else 0.0
        racers = race_of_two(request_of(outputs, repeats=1), delay)
        assert "".join(racer.stdout for racer in racers) == "started\n"
        (folder,) = outputs.iterdir()
        for racer in racers:
            ended[racer.returncode] += 1
            if racer.returncode:
                assert racer.returncode == 2
                assert f"{folder.name} is being measured by another process" in racer.stderr
        measurement = Measurement.read(folder)
        assert measurement.result.status == "complete"
        assert check_against_raw(measurement) == ""
    print(f"{ended[0]} measured or reused the result, {ended[2]} were rejected")
    assert ended[2] > 0


def race_of_two(request, delay):
    """Start the same measurement in two processes, the second `delay` seconds later; return
    the completed processes."""
    command = [sys.executable, Path(__file__).with_name("racer.py"), json.dumps(request)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with (
        subprocess.Popen(command, text=True, **pipes) as first,
        subprocess.Popen(command, text=True, **pipes) as second,
    ):
        for racer in (first, second):
            assert racer.stdout.readline() == "ready\n"
        start(first)
        time.sleep(delay)
        start(second)
        return [completed(first), completed(second)]


def start(racer):
    racer.stdin.write("go\n")
    racer.stdin.flush()


def completed(process):
    output, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


EAT = "kept = []\nwhile True: kept.append(bytearray(10**7))"


@pytest.fixture
def memory_group(processes):
    """The folder of a control group limited to 600 MB, below this process's group."""
    group_of_process = ""
    for line in OWN_GROUPS.read_text().splitlines():
        _number, controllers, group = line.split(":")
        if controllers == "memory":
            group_of_process = group
    folder = Path(f"/sys/fs/cgroup/memory{group_of_process}/perfkit-{os.getpid()}")
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(600 * 10**6))
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made: {error}")
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def entering(group, command):
    """Return a command that runs `command` in a control group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]


@pytest.mark.parametrize("killed", [True, False])
def test_only_an_oom_killed_worker_is_out_of_memory(
    request_of, plant, memory_group, tmp_path, killed
):
    request = request_of(tmp_path / "outputs", repeats=1)
    command = [sys.executable, "-c", faked(0.5) + DRIVER, json.dumps(request)]
    if killed:
        fault = "exec(EAT)"
        command = entering(memory_group, command)
    else:
        eating = entering(memory_group, [sys.executable, "-c", EAT])
        fault = f"subprocess.run({eating!r}); os.kill(os.getpid(), 9)"
    code = AT_BATCHES.format(fault=f"if number == 2: {fault}")
    in_fake = "import sys\nif sys.orig_argv[1].endswith('fake_trainer.py'):\n"
    code = code.replace(IN_WORKER, in_fake)
    plant(f"import subprocess\nEAT = {EAT!r}\n{code}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["failed"], done.stderr
    (path,) = (tmp_path / "outputs").glob("*/result.json")
    failure = Measurement.read(path.parent).result.failure
    assert failure.code == ("out_of_memory" if killed else "worker_died")


FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
PRINT_TIME = """
import select, time
# With libfaketime 0.9.10, the kernel rejects Python's sleep.
time.sleep = lambda seconds: select.select([], [], [], seconds)
""" + AT_BATCHES.format(fault="print('it is', time.time(), flush=True); time.sleep(0.02)")


@pytest.mark.slow
def test_setting_the_wall_clock_during_a_run_changes_nothing(request_of, plant, tmp_path):
    """The clock of driver, launcher and workers is set forward by an hour, then back by two.
    The monotonic clock continues, as on a machine whose clock is set."""
    if not FAKETIME:
        pytest.skip("no libfaketime: apt-get install faketime")
    plant(PRINT_TIME)
    clock = tmp_path / "clock"
    clock.write_text("+0")
    request = request_of(tmp_path / "outputs", repeats=1, measured_steps=30)
    planned = perfkit.plan("resnet50", request)
    began, began_at = time.monotonic(), time.time()
    with start_with_clock(clock, request) as driver:
        (raw,) = wait_for(lambda: [*tmp_path.glob("outputs/*/repeats/1/rank0.jsonl")])
        for step, offset in ((5, "+1h"), (15, "-1h")):
            wait_for(lambda step=step: f'"step":{step},' in raw.read_text())
            clock.write_text(offset)
            with pytest.raises(perfkit.RequestError, match="measured by another process"):
                perfkit.measure(planned.config, planned.protocol)
        printed, _errors = driver.communicate()
    elapsed = time.monotonic() - began
    _status, driver_time = printed.split()
    assert float(driver_time) - time.time() == pytest.approx(-3600, abs=60)
    measurement = Measurement.read(raw.parents[2])
    jumps = clock_jumps(measurement.log_file(1, "launcher"))
    assert max(jumps) == pytest.approx(3600, abs=60)
    assert min(jumps) == pytest.approx(-7200, abs=60)
    result = measurement.result
    assert result.status == "complete"
    assert result.failure is None
    created = datetime.fromisoformat(result.created).timestamp()
    assert created == pytest.approx(began_at, abs=60)
    assert check_against_raw(measurement) == ""
    (repeat,) = result.repeats
    window = repeat.ranks[0].window_seconds
    assert repeat.throughput == 2 * 30 / window
    assert window < repeat.wall_seconds < elapsed
    steps = perfkit.load_steps(measurement.folder)
    assert steps["seconds"].min() > 0
    assert not window_disagrees(window, [*steps[steps["measured"]]["seconds"]])


def start_with_clock(clock, request):
    """Start a driver whose clock has the offset in a file; it prints its time at the end."""
    settings = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    code = f"{DRIVER}import time; print(time.time())"
    command = [sys.executable, "-c", code, json.dumps(request)]
    environment = os.environ | settings
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def clock_jumps(log):
    """Return the differences of the times that a worker has printed."""
    times = []
    for line in log.read_text().splitlines():
        if line.startswith("it is"):
            *_words, seconds = line.split()
            times.append(float(seconds))
    return [later - earlier for earlier, later in pairwise(times)]
