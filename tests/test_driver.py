"""Real measurements with Paddle's launcher, workers and DALI, and what survives failures."""

import contextlib
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import IN_WORKER, SMALL
from drivers import AT_BATCHES, DRIVER, faked, start_driver, started_steps
from fake_trainer import launcher_command
from made.clusters import wait_for
from made.results import forget_repeats

import perfkit
from perfkit.analysis.warnings import check
from perfkit.measuring.driver import workers as launch
from perfkit.measuring.results.store import Measurement, read_events
from perfkit.measuring.system.scratch import Scratch, lock
from perfkit.report.site import publish
from perfkit.training.models import training_flops

KILL_LOADER = """
    import psutil
    import perfkit.timing.recorder

    def kill_loader(*args):
        for child in psutil.Process().children(recursive=True):
            child.kill()
        raise KeyError("planted")

    perfkit.timing.recorder.StepRecorder.stop = kill_loader
"""
"""Kills the processes below a worker in its first step, which then raises."""


@pytest.fixture
def fake_trainer(processes, monkeypatch):
    """Makes repeats of this process take half a second instead of training."""
    monkeypatch.setattr(launch, "launcher_command", launcher_command(0.5))


@pytest.fixture(scope="module")
def begun(samples, processes, tmp_path_factory):
    """Copies a measurement of two repeats, interrupted after the first, into a folder."""
    outputs = tmp_path_factory.mktemp("begun")
    places = {"data_dir": str(samples), "outputs_dir": str(outputs)}
    plan = perfkit.plan("resnet50", SMALL | places | {"input": "synthetic", "repeats": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "launcher_command", launcher_command(0.5))
        whole = perfkit.measure(plan.config, plan.protocol)
    forget_repeats(whole.folder, after=1)
    shutil.rmtree(whole.raw_folder(2))

    def copy(folder):
        target = folder / whole.folder.name
        shutil.copytree(whole.folder, target)
        return Measurement.read(target)

    return copy


def gone(worker_processes):
    wait_for(lambda: not worker_processes(), 15)
    return True


@pytest.mark.slow
def test_a_measurement_stores_raw_steps_settings_and_throughput(measure):
    measurement = measure(repeats=2)
    result = measurement.result
    assert result.status == "complete"
    assert result.throughput.n == 2
    assert result.throughput.unit == "images/s"
    assert result.effective.precision == "fp32"
    assert result.effective.parameters == 25_557_032
    assert result.input_data.samples == 24
    for repeat in result.repeats:
        events = read_events(measurement.rank_file(repeat.index, 0))
        kinds = [event["event"] for event in events]
        steps = ["step", "loss"] * 3
        rest = ["window", "peak", "modules", "end"]
        assert kinds == ["start", "note", "told", *steps, *rest]
        (window,) = [event for event in events if event["event"] == "window"]
        assert window["samples"] == 4
        assert repeat.throughput == window["samples"] / window["seconds"]
        _warm_up, *measured = [e["seconds"] for e in events if e["event"] == "step"]
        # The worker may be descheduled between its last step and the end of the window.
        assert sum(measured) == pytest.approx(window["seconds"], abs=0.05)
        # The peak is high enough for the measured steps.
        flops = training_flops(result.built_in)
        assert repeat.peak.matmul_flops_per_second > repeat.throughput * flops
        assert repeat.peak.copy_bytes_per_second > 1e8
    assert result.repeats[0].loss_first == result.repeats[1].loss_first


@pytest.mark.slow
def test_only_missing_repeats_run_again_unless_the_label_is_new(measure, fake_trainer):
    first = measure(input="synthetic", repeats=2)
    raw_steps = first.rank_file(1, 0).read_bytes()
    forget_repeats(first.folder, after=1)
    shutil.rmtree(first.folder / "repeats" / "2")
    second = measure(input="synthetic", repeats=2)
    assert second.folder == first.folder
    assert second.result.status == "complete"
    assert second.result.repeats[0] == first.result.repeats[0]
    assert second.rank_file(1, 0).read_bytes() == raw_steps
    assert second.result.repeats[1] != first.result.repeats[1]
    third = measure(input="synthetic", repeats=2, label="again")
    assert third.folder != first.folder
    assert third.result.repeats[0].wall_seconds != first.result.repeats[0].wall_seconds


def test_a_known_step_time_is_measured_within_half_a_percent(measure, monkeypatch):
    monkeypatch.setattr(launch, "launcher_command", launcher_command(4))
    measurement = measure(input="synthetic", measured_steps=20)
    log = (measurement.folder / "logs" / "1-launcher.log").read_text()
    _before, _name, value = log.partition("step_seconds ")
    step_seconds = float(value.split()[0])
    expected = measurement.result.config.work.batch_size / step_seconds
    assert measurement.result.throughput.value == pytest.approx(expected, rel=0.005)


@pytest.mark.slow
def test_auto_repeats_end_at_the_target_interval_or_budget(measure, fake_trainer):
    narrow = measure(repeats="auto", interval_target=0.9, input="synthetic", measured_steps=300)
    assert narrow.result.status == "complete"
    assert narrow.result.ended_by == "interval"
    # At least seven repeats are needed for a 98 % interval.
    assert 7 <= narrow.result.throughput.n < 100
    spent = measure(repeats="auto", budget=1, input="synthetic")
    assert spent.result.status == "complete"
    assert spent.result.ended_by == "budget"
    assert 1 <= spent.result.throughput.n <= 3
    again = measure(repeats="auto", budget=1, input="synthetic")
    assert again.result == spent.result


def test_a_complete_measurement_is_reused_without_its_data(
    measure, fake_trainer, samples, tmp_path
):
    data = tmp_path / "data"
    shutil.copytree(samples, data)
    first = measure(data_dir=str(data))
    shutil.rmtree(data / "train")
    assert measure(data_dir=str(data)).result == first.result


def test_a_closed_terminal_does_not_stop_the_measurement(measure, fake_trainer, monkeypatch):
    class Closed(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("sys.stderr", Closed())
    assert measure(input="synthetic").result.status == "complete"


def orphaned_segments():
    """Return the segments of shared memory whose process is gone, `<framework>_<pid>_…`."""
    orphaned = set()
    for path in Path("/dev/shm").glob("*_[0-9]*_*"):
        _framework, pid, *_rest = path.name.split("_")
        if not psutil.pid_exists(int(pid)):
            orphaned.add(path.name)
    return orphaned


BY_NAME = """
    import torch
    torch.multiprocessing.set_sharing_strategy("file_system")
"""
"""With its default strategy, PyTorch leaves no names in shared memory."""


@pytest.mark.parametrize(
    ("framework", "setting"), [("paddle", ""), ("torch", BY_NAME)], ids=["paddle", "torch"]
)
@pytest.mark.slow
def test_a_killed_dataloader_leaves_nothing_in_shared_memory(
    measure, plant, framework, setting
):
    before = orphaned_segments()
    plant(IN_WORKER + setting + KILL_LOADER)
    loader = {"input": "dataloader", "dataloader_workers": 2, "framework": framework}
    assert measure(**loader).result.failure.code == "worker_error"
    # Wait, because a parallel measurement may have just ended.
    wait_for(lambda: orphaned_segments() <= before, 15)


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        ("lose()", "loss_not_finite", "at step 2"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "worker_died", "without reporting an error"),
        ("time.sleep(1000)", "timeout", "took over 20 s"),
        ("raise KeyError('planted')", "worker_error", "KeyError: 'planted'"),
    ],
    ids=["nan", "killed", "hung", "raises"],
)
@pytest.mark.slow
def test_a_failed_worker_keeps_finished_repeats_and_leaves_no_process(
    measure, begun, plant, worker_processes, tmp_path, fault, code, message
):
    before = begun(tmp_path / "outputs")
    plant(AT_BATCHES.format(fault=f"if number == 2: {fault}"))
    seconds = 20 if code == "timeout" else 120
    after = measure(input="synthetic", repeats=2, timeout=seconds)
    assert after.folder == before.folder
    assert after.result.status == "partial"
    assert after.result.failure.code == code
    assert message in after.result.failure.reason
    assert after.result.repeats[0] == before.result.repeats[0]
    assert after.result.repeats[1].status == "failed"
    assert after.result.throughput.n == 1
    assert '"step":1,' in after.rank_file(2, 0).read_text()
    assert gone(worker_processes)


@pytest.mark.parametrize("kind", ["dali", "dataloader"])
def test_a_corrupt_image_is_reported_with_file_and_line(
    measure, request, samples, tmp_path, kind
):
    if kind == "dali":  # which needs no framework
        request.getfixturevalue("fake_trainer")
    data = tmp_path / "data"
    shutil.copytree(samples, data)
    victim = data / "train/s05/s05_5.jpeg"
    victim.write_bytes(victim.read_bytes()[:30_000])
    result = measure(input=kind, data_dir=str(data), measured_steps=200).result
    assert result.status == "failed"
    assert result.failure.code == "bad_input"
    assert "train_list.txt:6: " in result.failure.reason


def test_input_lost_after_the_request_is_reported_before_any_worker_starts(
    small, samples, tmp_path
):
    data = tmp_path / "data"
    shutil.copytree(samples, data)
    plan = perfkit.plan("resnet50", small(data_dir=str(data)))
    (data / "train/s05/s05_5.jpeg").unlink()
    measurement = perfkit.measure(plan.config, plan.protocol)
    assert measurement.result.failure.code == "bad_input"
    assert "train_list.txt:6: no such file" in measurement.result.failure.reason
    assert not (measurement.folder / "repeats").exists()


@pytest.mark.slow
def test_sigkill_of_the_driver_leaves_no_process_and_no_scratch(
    small, tmp_path, worker_processes
):
    outputs, scratch = tmp_path / "outputs", tmp_path / "scratch"
    driver, _log = start_driver(small(input="synthetic", measured_steps=400))
    (raw,) = wait_for(lambda: started_steps(outputs))
    assert len(worker_processes()) >= 2
    assert list(scratch.iterdir())
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert gone(worker_processes)
    wait_for(lambda: not list(scratch.glob("perfkit-*")))
    assert Measurement.read(raw.parents[2]).result.status == "partial"


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_a_driver_stopped_during_the_window_gets_telemetry_gap(small, tmp_path):
    parameters = small(input="synthetic", measured_steps=100)
    command = [sys.executable, "-c", faked(10) + DRIVER, json.dumps(parameters)]
    with subprocess.Popen(command) as driver:
        (raw,) = wait_for(lambda: started_steps(tmp_path / "outputs"))
        driver.send_signal(signal.SIGSTOP)
        time.sleep(7)
        driver.send_signal(signal.SIGCONT)
    measurement = Measurement.read(raw.parents[2])
    assert measurement.result.status == "complete"
    (gap,) = [m for m in check(measurement).warnings if m.code == "telemetry_gap"]
    assert gap.repeats == [1]
    assert 5 < gap.seconds <= 10


@pytest.mark.slow
def test_a_stalled_rank_is_named(measure, plant, worker_processes):
    # gloo gives up after half a minute, which the waiting rank reports.
    plant(AT_BATCHES.format(fault="if rank == 1 and number == 2: time.sleep(1000)"))
    failure = measure(input="synthetic", processes=2, measured_steps=50).result.failure
    assert failure.code == "worker_stalled"
    assert failure.reason.startswith("rank 1 stalled after step 1")
    assert gone(worker_processes)


def kill_supervisor(worker_processes):
    """Kill the supervisor and wait until it has ended and released its lock."""
    for process in worker_processes():
        # A child may exit meanwhile.
        with contextlib.suppress(psutil.Error):
            if "perfkit.measuring.driver.supervisor" in process.cmdline():
                process.send_signal(signal.SIGKILL)
                wait_for(lambda killed=process: killed.status() == psutil.STATUS_ZOMBIE, 15)


def segments(scratch):
    """Return the shared memory of the processes registered in the scratch folder."""
    (folder,) = scratch.glob("perfkit-*")
    pids = [path.stem for path in folder.glob("*.pid")]
    return {path for pid in pids for path in Path("/dev/shm").glob(f"*_{pid}_*")}


@pytest.mark.slow
def test_sigkill_of_the_supervisor_leaves_nothing(small, tmp_path, worker_processes):
    outputs, scratch = tmp_path / "outputs", tmp_path / "scratch"
    driver, log = start_driver(small(input="dataloader", measured_steps=4000))
    # On a busy machine the DataLoader's queue may be empty for a moment.
    wait_for(lambda: started_steps(outputs) and segments(scratch))
    left = segments(scratch)
    assert left
    kill_supervisor(worker_processes)
    driver.wait(30)
    assert log.read_text().split()[-1] == "failed"
    assert gone(worker_processes)
    assert not any(path.exists() for path in left)
    assert not list(scratch.glob("perfkit-*"))


@pytest.mark.slow
def test_the_next_start_cleans_up_after_killed_drivers(small, tmp_path, worker_processes):
    outputs, scratch = tmp_path / "outputs", tmp_path / "scratch"
    driver, _log = start_driver(small(input="dataloader", measured_steps=4000))
    wait_for(lambda: started_steps(outputs) and segments(scratch))
    left = segments(scratch)
    assert left
    driver.send_signal(signal.SIGSTOP)
    kill_supervisor(worker_processes)
    driver.kill()
    driver.wait()
    assert list(scratch.glob("perfkit-*"))
    # Nothing of a live driver is removed.
    with Scratch() as other, Scratch():
        assert not any(path.exists() for path in left)
        assert gone(worker_processes)
        assert other.folder in scratch.iterdir()
        assert len(list(scratch.glob("perfkit-*"))) == 2
    assert not list(scratch.glob("perfkit-*"))


@pytest.mark.usefixtures("processes")
def test_a_process_with_the_number_of_an_ended_rank_is_left_alone():
    with subprocess.Popen(["sleep", "1000"]) as process:
        segment = Path(f"/dev/shm/torch_{process.pid}_of_a_test")
        segment.touch()
        # Until the kernel has set up the new program, it has no command line.
        wait_for(psutil.Process(process.pid).cmdline)
        try:
            with Scratch() as scratch:
                (scratch.folder / f"{process.pid}.pid").touch()
            assert segment.exists()
            assert process.poll() is None
            assert not scratch.folder.exists()
        finally:
            segment.unlink(missing_ok=True)
            process.kill()


@pytest.mark.usefixtures("processes")
def test_a_worker_started_after_the_driver_died_exits(tmp_path):
    code = "import sys; from pathlib import Path\n"
    code += "from perfkit.timing.rank_process import register\n"
    code += "register(Path(sys.argv[1])); print('begun')"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    held = lock(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == "begun\n"
    os.close(held)


@pytest.mark.slow
def test_no_launcher_file_holds_the_environment_while_a_worker_runs(
    small, tmp_path, worker_processes, monkeypatch
):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2-in-the-environment")
    outputs, scratch = tmp_path / "outputs", tmp_path / "scratch"
    driver, _log = start_driver(small(input="synthetic", processes=2, measured_steps=4000))
    wait_for(lambda: len(started_steps(outputs)) == 2)
    files = [path for path in scratch.rglob("*") if path.is_file()]
    assert {"workerlog.0", "workerlog.1", "job.json"} <= {path.name for path in files}
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []
    driver.send_signal(signal.SIGINT)
    driver.wait(30)


@pytest.mark.slow
def test_an_interrupt_keeps_finished_steps_and_leaves_no_process(
    small, tmp_path, worker_processes
):
    outputs = tmp_path / "outputs"
    driver, log = start_driver(small(input="synthetic", measured_steps=400))
    (raw,) = wait_for(lambda: started_steps(outputs))
    driver.send_signal(signal.SIGINT)
    driver.wait(30)
    assert "KeyboardInterrupt" in log.read_text()
    assert driver.returncode != 0
    assert Measurement.read(raw.parents[2]).result.failure.code == "interrupted"
    assert gone(worker_processes)


def test_an_unreadable_result_is_not_overwritten(measure, fake_trainer):
    folder = measure(input="synthetic").folder
    (folder / "result.json").write_text('{"cut off')
    with pytest.raises(perfkit.RequestError, match=r"result\.json: Invalid JSON.*label"):
        measure(input="synthetic")
    assert (folder / "result.json").read_text() == '{"cut off'


@pytest.mark.slow
def test_results_hold_no_home_path_and_no_secret(measure, samples, monkeypatch, tmp_path):
    home = tmp_path / "somebody-private"
    shutil.copytree(samples, home / "data")
    monkeypatch.setenv("SECRET_TOKEN", "hunter2-in-the-environment")
    monkeypatch.setenv("HOME", str(home))
    measurement = measure(data_dir=str(home / "data"))
    assert measurement.result.status == "complete"
    assert measurement.result.config.work.data_dir == "~/data"
    publish(measurement)
    for path in (tmp_path / "outputs").rglob("*"):
        text = path.read_text(errors="replace") if path.is_file() else ""
        for private in ("hunter2", "somebody-private"):
            assert private not in text, path


@pytest.mark.usefixtures("processes")
def test_the_driver_imports_no_framework(small):
    code = faked(0.5) + DRIVER
    code += "print({'paddle', 'nvidia.dali', 'torch'} & set(sys.modules))"
    command = [sys.executable, "-c", code, json.dumps(small(input="synthetic"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["complete", "set()"]
