"""Real measurements: Paddle's launcher, workers and DALI; what survives when they fail."""

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
from fake_trainer import launcher_command
from made import forget_repeats

import perfkit
from perfkit.analysis.sanity import check
from perfkit.driver import workers as launch
from perfkit.models import training_flops
from perfkit.report import publish
from perfkit.results.store import Measurement, read_events
from perfkit.results.summarize import check_against_raw
from perfkit.text.messages import sentence

PLANTED = (
    IN_WORKER
    + """
    import os, signal, time
    import perfkit.inputs.synthetic as synthetic
    real = synthetic.batches

    def lose():
        import paddle
        from perfkit.frameworks.paddle.backend import Trainer
        nan = paddle.to_tensor(float("nan"))
        Trainer.backward = lambda self, batch, sync_gradients: nan

    def batches(config, rank):
        for number, batch in enumerate(real(config, rank)):
            {fault}
            yield batch

    synthetic.batches = batches
"""
)
"""A worker whose synthetic input does something bad; batch 0 is the one before training."""

RAISE_IN_STEP = """
    import perfkit.worker.loop

    def raise_in_step(*args):
        raise KeyError("planted")

    perfkit.worker.loop.StepTimer.stop = raise_in_step
"""
"""A worker whose first step raises, whatever its input."""

# Python leaves an interrupt ignored that what started the tests ignores, as a background job.
DRIVER = """
import json, signal, sys, perfkit
signal.signal(signal.SIGINT, signal.default_int_handler)
plan = perfkit.plan("resnet50", json.loads(sys.argv[1]))
print(perfkit.measure(plan.config, plan.protocol).result.status)
"""


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "what the test waited for did not happen"
        time.sleep(0.1)
    return found


def start_driver(parameters):
    """A driver in a process of its own; its output goes to a file beside the results."""
    log = Path(parameters["outputs_dir"]).with_name("driver.log")
    with log.open("w") as stream:
        command = [sys.executable, "-c", DRIVER, json.dumps(parameters)]
        return subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT), log


def started_steps(outputs):
    """The raw files under `outputs` that have at least one step."""
    return [f for f in outputs.glob("*/repeats/*/*.jsonl") if '"step"' in f.read_text()]


@pytest.fixture
def fake_trainer(processes, monkeypatch):
    """Every repeat of this process takes half a second instead of training."""
    monkeypatch.setattr(launch, "launcher_command", launcher_command(0.5))


@pytest.fixture(scope="module")
def trained(samples, processes, tmp_path_factory):
    """A measurement of two repeats with synthetic input, that tests take copies of."""
    outputs = tmp_path_factory.mktemp("trained")
    places = {"data_dir": str(samples), "outputs_dir": str(outputs)}
    plan = perfkit.plan("resnet50", SMALL | places | {"input": "synthetic", "repeats": 2})
    measurement = perfkit.measure(plan.config, plan.protocol)
    assert measurement.result.status == "complete"
    return measurement.folder


def half_of(trained, outputs):
    """A copy of it below `outputs` that was cut off after its first repeat."""
    folder = shutil.copytree(trained, Path(outputs) / trained.name)
    forget_repeats(folder, after=1)
    shutil.rmtree(folder / "repeats" / "2")
    return Measurement.read(folder)


def gone(worker_processes):
    wait_for(lambda: not worker_processes(), 15)
    return True


SHORT = """
import perfkit.inputs.synthetic as synthetic
whole = synthetic.batches
def batches(config, rank):
    for number, batch in enumerate(whole(config, rank)):
        yield tuple(part[:1] for part in batch) if number == 3 else batch
synthetic.batches = batches
"""


def test_a_short_batch_in_the_window_counts_as_what_it_is(plant, measure):
    plant(SHORT)
    measurement = measure(input="synthetic")
    (repeat,) = measurement.result.repeats
    # Two steps of two images each, of which the last step has one.
    assert repeat.ranks[0].samples == 3
    assert repeat.throughput == 3 / repeat.ranks[0].window_seconds
    assert "fewer_samples" in [one.code for one in check(measurement).warnings]


def test_a_measurement_is_stored_with_raw_steps_effective_precision_and_number(measure):
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
        after = ["window", "evaluation", "peak", "end"]
        assert kinds == ["start", "effective", *["step", "loss"] * 3, *after]
        window = next(event for event in events if event["event"] == "window")
        assert window["samples"] == 4
        assert repeat.throughput == window["samples"] / window["seconds"]
        measured = [e["seconds"] for e in events if e["event"] == "step"][1:]
        # But for once that the worker was not let run between its last step and the end.
        assert sum(measured) == pytest.approx(window["seconds"], abs=0.05)
        assert repeat.ranks[0].samples_seen == 6
        assert 0 <= repeat.evaluation.accuracy <= 1
        # The peak is no number of a machine that could not have made the steps.
        flops = training_flops(result.config)
        assert repeat.peak.matmul_flops_per_second > repeat.throughput * flops
        assert repeat.peak.copy_bytes_per_second > 1e8
    assert result.repeats[0].loss_first == result.repeats[1].loss_first
    steps = perfkit.load_steps(measurement.folder)
    assert len(steps) == 6
    assert steps["measured"].sum() == 4
    frame = perfkit.load(measurement.folder.parent)
    assert frame.loc[0, "throughput"] == result.throughput.value
    assert frame.loc[0, "batch_size"] == 2


def test_only_missing_repeats_are_run_again_and_a_label_starts_a_new_measurement(
    measure, fake_trainer
):
    first = measure(input="synthetic", repeats=2)
    kept = first.rank_file(1, 0).read_bytes()
    forget_repeats(first.folder, after=1)
    shutil.rmtree(first.folder / "repeats" / "2")
    second = measure(input="synthetic", repeats=2)
    assert second.folder == first.folder
    assert second.result.status == "complete"
    assert second.result.repeats[0] == first.result.repeats[0]
    assert second.rank_file(1, 0).read_bytes() == kept
    assert second.result.repeats[1] != first.result.repeats[1]
    third = measure(input="synthetic", repeats=2, label="again")
    assert third.folder != first.folder
    assert third.result.repeats[0].wall_seconds != first.result.repeats[0].wall_seconds


def test_a_peak_that_can_not_be_measured_costs_no_repeat(measure, plant):
    plant(
        IN_WORKER + "    import perfkit.worker.peak\n"
        "    def measure_peak(*_):\n"
        "        raise MemoryError('out of memory: planted')\n"
        "    perfkit.worker.peak.measure_peak = measure_peak\n"
    )
    measurement = measure()
    assert measurement.result.status == "complete"
    assert measurement.result.repeats[0].peak is None
    (event,) = [
        event for event in read_events(measurement.rank_file(1, 0)) if event["event"] == "peak"
    ]
    assert event["missing"] == "out of memory: planted"
    assert check_against_raw(measurement) == []


def test_a_loss_that_comes_to_nothing_with_the_last_step_is_told(measure, plant):
    plant(
        IN_WORKER + "    import perfkit.frameworks.paddle.backend as backend\n"
        "    backend.Trainer.evaluate = lambda *_: (float('nan'), 0.0)\n"
    )
    result = measure().result
    assert (result.status, result.failure.code) == ("failed", "loss_not_finite")
    assert "after the last step" in sentence(result.failure)


def test_a_trainer_of_known_step_time_is_measured_within_half_a_percent(measure, monkeypatch):
    monkeypatch.setattr(launch, "launcher_command", launcher_command(4))
    measurement = measure(input="synthetic", measured_steps=20)
    log = (measurement.folder / "logs" / "1-launcher.log").read_text()
    step_seconds = float(log.partition("step_seconds ")[2].split()[0])
    samples = measurement.result.config.batch_size
    assert measurement.result.throughput.value == pytest.approx(
        samples / step_seconds, rel=0.005
    )


def test_repeats_end_once_the_interval_is_narrow_or_the_budget_spent(measure, fake_trainer):
    narrow = measure(repeats="auto", interval_target=0.9, input="synthetic", measured_steps=300)
    assert (narrow.result.status, narrow.result.ended_by) == ("complete", "interval")
    # Seven are the fewest whose range is an interval of 98 %.
    assert 7 <= narrow.result.throughput.n < 100
    spent = measure(repeats="auto", budget=1, input="synthetic")
    assert (spent.result.status, spent.result.ended_by) == ("complete", "budget")
    assert 1 <= spent.result.throughput.n <= 3
    again = measure(repeats="auto", budget=1, input="synthetic")
    assert again.result == spent.result
    with pytest.raises(perfkit.RequestError, match="fewer than 7 repeats; -p repeats auto"):
        measure(repeats=2, interval_target=0.5, input="synthetic")


def test_a_complete_measurement_is_not_run_again(measure, fake_trainer):
    first = measure(input="synthetic")
    assert measure(input="synthetic").result == first.result


def test_a_complete_measurement_does_not_need_its_data_any_more(measure, samples, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(samples, data)
    first = measure(data_dir=str(data))
    shutil.rmtree(data / "train")
    assert measure(data_dir=str(data)).result == first.result


def test_a_terminal_that_is_closed_does_not_stop_the_measurement(
    measure, fake_trainer, monkeypatch
):
    class Closed(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("sys.stderr", Closed())
    assert measure(input="synthetic").result.status == "complete"


def orphaned_segments():
    """Segments of shared memory whose maker, named as `paddle_<pid>_…`, is no more."""
    names = {path.name for path in Path("/dev/shm").glob("*_*_*")}
    return {name for name in names if not psutil.pid_exists(int(name.split("_")[1]))}


def test_the_dataloader_leaves_nothing_in_shared_memory(measure, plant):
    before = orphaned_segments()
    assert measure(input="dataloader", dataloader_workers=2).result.status == "complete"
    plant(IN_WORKER + RAISE_IN_STEP)
    failed = measure(input="dataloader", dataloader_workers=2, label="raises")
    assert failed.result.failure.code == "worker_error"
    # Not at once: another measurement beside this one may have just ended.
    wait_for(lambda: orphaned_segments() <= before, 15)


def test_two_processes_train_together_and_the_slowest_window_counts(measure):
    result = measure(processes=2, input="synthetic").result
    assert result.status == "complete", result.failure
    (repeat,) = result.repeats
    assert [rank.rank for rank in repeat.ranks] == [0, 1]
    slowest = max(rank.window_seconds for rank in repeat.ranks)
    assert repeat.throughput == sum(rank.samples for rank in repeat.ranks) / slowest
    assert result.effective.variables["OMP_NUM_THREADS"] == str(
        max(1, len(os.sched_getaffinity(0)) // 2)
    )


def test_the_dataloader_static_execution_and_nhwc_run(measure):
    result = measure(
        input="dataloader", execution="static", layout="NHWC", dataloader_workers=2
    ).result
    assert result.status == "complete", result.failure


def test_without_cpu_tuning_the_workers_get_no_settings(measure, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    result = measure(input="synthetic", cpu_tuning=False).result
    variables = result.effective.variables
    assert (variables["OMP_NUM_THREADS"], variables["MKL_DEBUG_CPU_TYPE"]) == ("1", None)


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("number == 2 and lose()", "loss_not_finite", "at step 2"),
        (
            "number == 2 and os.kill(os.getpid(), signal.SIGKILL)",
            "worker_died",
            "without reporting an error",
        ),
        ("number == 2 and time.sleep(1000)", "timeout", "took over 20 s"),
        ("if number == 2: raise KeyError('planted')", "worker_error", "KeyError: 'planted'"),
    ],
    ids=["nan", "killed", "hung", "raises"],
)
def test_a_failing_worker_is_told_by_status_and_leaves_what_was_measured_and_no_process(
    measure, trained, plant, worker_processes, tmp_path, fault, code, told
):
    before = half_of(trained, tmp_path / "outputs")
    plant(PLANTED.format(fault=fault))
    after = measure(input="synthetic", repeats=2, timeout=20)
    assert after.folder == before.folder
    assert after.result.status == "partial"
    assert after.result.failure.code == code
    assert told in sentence(after.result.failure)
    assert after.result.repeats[0] == before.result.repeats[0]
    assert after.result.repeats[1].status == "failed"
    assert after.result.throughput.n == 1
    assert '"step":1,' in after.rank_file(2, 0).read_text()
    assert gone(worker_processes)


def test_memory_running_out_is_told_by_name(measure):
    result = measure(input="synthetic", batch_size=65536, image_size=1024).result
    assert (result.status, result.failure.code) == ("failed", "out_of_memory")
    assert "llocate" in sentence(result.failure)
    assert result.throughput is None


@pytest.mark.parametrize("kind", ["dali", "dataloader"])
def test_a_bad_file_behind_its_header_is_told_with_file_and_line(
    measure, samples, tmp_path, kind
):
    data = tmp_path / "data"
    shutil.copytree(samples, data)
    victim = data / "train/s05/s05_5.jpeg"
    victim.write_bytes(victim.read_bytes()[:30_000])
    result = measure(input=kind, data_dir=str(data), measured_steps=200).result
    assert (result.status, result.failure.code) == ("failed", "bad_input")
    assert "train_list.txt:6: " in sentence(result.failure)


def test_bad_input_is_told_before_any_worker_starts(measure, samples, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(samples, data)
    (data / "train/s05/s05_5.jpeg").unlink()
    measurement = measure(data_dir=str(data))
    assert measurement.result.failure.code == "bad_input"
    assert "train_list.txt:6: no such file" in sentence(measurement.result.failure)
    assert not (measurement.folder / "repeats").exists()


def test_a_full_disk_is_told_by_status_and_leaves_what_was_measured(
    measure, trained, plant, disk
):
    before = half_of(trained, disk.path)
    kept = before.rank_file(1, 0).read_bytes()
    fill = f"if number == 2: fill({str(disk.path / 'filled')!r})"
    plant(
        "def fill(path):\n    with open(path, 'wb', buffering=0) as stream:\n"
        "        while True:\n            stream.write(bytes(1000))\n"
        + PLANTED.format(fault=fill)
    )
    after = measure(input="synthetic", repeats=2, outputs_dir=str(disk.path))
    assert after.result.failure.code == "disk_full"
    assert after.result.status == "partial"
    assert Measurement.read(before.folder).result.repeats[0] == before.result.repeats[0]
    assert before.rank_file(1, 0).read_bytes() == kept


def test_kill_minus_9_of_the_driver_leaves_no_process_no_scratch_and_nothing_is_lost(
    small, tmp_path, worker_processes
):
    outputs, scratch = tmp_path / "outputs", tmp_path / "scratch"
    driver, _log = start_driver(small(input="synthetic", measured_steps=400))
    (raw,) = wait_for(lambda: started_steps(outputs))
    assert len(worker_processes()) >= 3
    assert list(scratch.iterdir())
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert gone(worker_processes)
    wait_for(lambda: not list(scratch.iterdir()))
    assert Measurement.read(raw.parents[2]).result.status == "partial"


@pytest.mark.slow
def test_a_rank_that_the_others_gave_up_waiting_for_is_named(measure, plant, worker_processes):
    # gloo itself gives up after half a minute, and the rank that waited reports that.
    plant(PLANTED.format(fault="if rank == 1 and number == 2: time.sleep(1000)"))
    failure = measure(input="synthetic", processes=2, measured_steps=50).result.failure
    assert failure.code == "worker_stalled"
    assert sentence(failure).startswith("rank 1 stalled after step 1; then rank 0")
    assert gone(worker_processes)


def test_kill_minus_9_of_the_supervisor_leaves_no_process(small, tmp_path, worker_processes):
    outputs = tmp_path / "outputs"
    driver, log = start_driver(small(input="synthetic", measured_steps=400))
    wait_for(lambda: started_steps(outputs))
    for process in worker_processes():
        if "perfkit.driver.supervisor" in process.cmdline():
            process.send_signal(signal.SIGKILL)
    driver.wait(30)
    assert log.read_text().split()[-1] == "failed"
    assert gone(worker_processes)


def test_an_interrupt_keeps_what_was_measured_and_leaves_no_process(
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


def test_a_result_that_cannot_be_read_is_not_overwritten(measure, fake_trainer):
    folder = measure(input="synthetic").folder
    (folder / "result.json").write_text('{"cut off')
    with pytest.raises(perfkit.RequestError, match=r"result\.json: not JSON.*label"):
        measure(input="synthetic")
    assert (folder / "result.json").read_text() == '{"cut off'


def test_of_two_runs_of_the_same_measurement_one_is_refused_by_name(small, measure, tmp_path):
    outputs = tmp_path / "outputs"
    parameters = small(input="synthetic", measured_steps=400)
    driver, _log = start_driver(parameters)
    (raw,) = wait_for(lambda: started_steps(outputs))
    with pytest.raises(perfkit.RequestError) as refused:
        measure(input="synthetic", measured_steps=400)
    assert raw.parents[2].name in str(refused.value)
    assert "is being measured by another process" in str(refused.value)
    driver.kill()
    driver.wait()


def test_results_hold_no_home_path_no_host_name_and_no_secret(
    measure, samples, monkeypatch, tmp_path
):
    home = tmp_path / "somebody-private"
    shutil.copytree(samples, home / "data")
    monkeypatch.setenv("SECRET_TOKEN", "hunter2-in-the-environment")
    monkeypatch.setenv("HOME", str(home))
    measurement = measure(data_dir=str(home / "data"))
    assert measurement.result.status == "complete"
    assert measurement.result.config.data_dir == "~/data"
    publish(measurement)
    for path in (tmp_path / "outputs").rglob("*"):
        text = path.read_text(errors="replace") if path.is_file() else ""
        for private in ("hunter2", "somebody-private"):
            assert private not in text, path


@pytest.mark.usefixtures("processes")
def test_the_driver_imports_no_framework(small):
    code = DRIVER + "print({'paddle', 'nvidia.dali', 'torch'} & set(sys.modules))"
    command = [sys.executable, "-c", code, json.dumps(small(input="synthetic"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["complete", "set()"]
