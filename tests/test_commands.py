"""Training commands that nothing was changed in, measured by their own logs."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from command_logs import TRAINERS, by_log_and_timer
from conftest import cli
from made.clusters import skip_if, slurm_cluster, slurm_missing

import perfkit
from perfkit.analysis.comparison.interleaved_plan import plan_interleaved
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.command_files import files_of, read_command
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.report.measurement import page

pytestmark = pytest.mark.usefixtures("processes")
STEP_SECONDS = 0.02
TRAINER = """
import argparse, signal, time
from pathlib import Path

options = argparse.ArgumentParser()
options.add_argument("--every", type=int, default=1)
options.add_argument("--steps", type=int, default=100_000)
options.add_argument("--slower", type=float, default=0.0)
options.add_argument("--too-short", action="store_true")
options.add_argument("--line", default="step {step} loss: 2.5 step time: {seconds:.6f} s")
options.add_argument("--log")
options.add_argument("--mode", default="a")
options.add_argument("--epoch", type=int, default=10**9)
options.add_argument("--batch-size", type=int)
given = options.parse_args()
if given.batch_size:
    print(f"Namespace(every=1, steps=100, batch_size={given.batch_size}, seed=1)")
def save(*_):
    time.sleep(0.5)
    Path("saved").touch()
    raise SystemExit
signal.signal(signal.SIGTERM, save)
log = open(given.log, given.mode) if given.log else None
due = printed = time.monotonic()
for step in range(1, given.steps + 1):
    due += 0.02 * (1 + given.slower)
    if step % given.epoch == 1:
        due += 0.1
    time.sleep(max(0.0, due - time.monotonic()))
    if step % given.every == 0:
        now = time.monotonic()
        seconds = (now - printed) / given.every / (2 if given.too_short else 1)
        epoch, of_epoch = divmod(step - 1, given.epoch)
        line = given.line.format(step=of_epoch + 1, epoch=epoch, seconds=seconds)
        print(line, file=log, flush=True)
        printed = now
Path("ended").touch()
"""
"""A trainer that sleeps, and prints as many do."""
REQUEST = {
    "device": "cpu",
    "warmup_steps": 3,
    "measured_steps": 20,
    "measured_seconds": 0,
    "repeats": 1,
    "timeout": 60,
    "batch_size": 4,
}


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """The path of TRAINER, in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(TRAINER)
    return path


@pytest.fixture
def request_of(trainer, tmp_path):
    """Returns the request that measures the trainer with some options, and with changes."""

    def requested(options="", **changes):
        command = {"command": f"{sys.executable} train.py {options}"}
        return REQUEST | {"outputs_dir": str(tmp_path / "outputs")} | command | changes

    return requested


@pytest.fixture
def measure(request_of):
    """Measures the trainer."""

    def measured(options="", **changes):
        plan = perfkit.plan("command", request_of(options, **changes))
        return perfkit.measure(plan.config, plan.protocol)

    return measured


def failure_of(measurement):
    assert measurement.result.failure, "the measurement is complete"
    return measurement.result.failure.code, measurement.result.failure.reason


def test_a_command_is_measured_by_the_lines_that_it_prints(measure):
    measurement = measure()
    result = measurement.result
    assert result.status == "complete", result.failure
    assert result.throughput.value == pytest.approx(4 / STEP_SECONDS, rel=0.1)
    assert result.counts.unit == "samples/s"
    assert result.told.step_clock == "printed"
    (repeat,) = result.repeats
    assert (repeat.warmup.steps, repeat.measured_steps) == (3, 20)
    assert check_against_raw(measurement) == ""
    sentence = (
        "Timed by its own log (lines with named values: 4 samples per step; printed every "
        "step), by the printed times."
    )
    assert sentence in page(measurement).html
    assert not Path("ended").exists()


def test_a_print_of_several_steps_counts_with_all_of_them(measure):
    measurement = measure("--every 5")
    (repeat,) = measurement.result.repeats
    assert (repeat.warmup.steps, repeat.measured_steps) == (5, 25)
    assert repeat.step_seconds.median == pytest.approx(STEP_SECONDS, rel=0.1)
    steps = perfkit.load_steps(measurement.folder)
    assert steps["step"].tolist() == [5, 10, 15, 20, 25, 30]
    assert {*steps["steps"]} == {5}
    assert {*steps["samples"]} == {5 * 4}
    assert measurement.result.told.print_steps == 5


def test_a_command_can_train_until_its_end(measure):
    assert measure("--steps 60", until="end").result.status == "complete"
    assert Path("ended").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["a", "w"])
def test_of_a_log_file_what_a_repeat_appends_or_writes_anew_counts(measure, mode):
    Path("train.log").write_text("step 900 loss: 2.5 step time: 9.0 s\n" * 100)
    measurement = measure(f"--log train.log --mode {mode}", log_file="train.log", repeats=2)
    assert check_against_raw(measurement) == ""
    for throughput in measurement.result.throughputs:
        assert throughput == pytest.approx(4 / STEP_SECONDS, rel=0.1)


def test_a_document_that_is_written_at_the_end_is_read_then(measure):
    line = (
        'DLLL {"type": "LOG", "step": [0, %d], "data": {"loss": 2.0, "step_time": 0.02134}}\n'
    )
    lines = "".join(line % step for step in range(1, 31))
    code = f"import pathlib; pathlib.Path('end.json').write_text({lines!r})"
    command = shlex.join([sys.executable, "-c", code])
    result = measure(command=command, log_file="end.json", until="end").result
    assert result.throughput.value == pytest.approx(4 / 0.02134)
    assert result.told.step_clock == "printed"


def test_lines_with_steps_but_no_times_are_timed_by_their_arrival(measure):
    result = measure("--line 'step {step} loss: 2.5'").result
    assert result.told.step_clock == "arrival"
    assert result.throughput.value == pytest.approx(4 / STEP_SECONDS, rel=0.1)


@pytest.mark.slow
def test_printed_times_that_contradict_the_arrival_are_a_caution(measure):
    measurement = measure("--too-short", repeats=2)
    assert check_against_raw(measurement) == ""
    told = measurement.result.told
    assert told.step_clock == "arrival"
    assert told.printed_difference == pytest.approx(-0.5, abs=0.1)
    assert measurement.result.throughput.value == pytest.approx(4 / STEP_SECONDS, rel=0.1)
    assert "printed_times_differ" in page(measurement).html


def test_flags_take_their_place_in_the_command(request_of):
    def words(**changes):
        return perfkit.plan("command", request_of(**changes)).config.work.words[2:]

    assert words(flags="--every 5") == ["--every", "5"]
    command = f"{sys.executable} train.py {{flags}} --steps 9"
    assert words(command=command, flags="--every 5") == ["--every", "5", "--steps", "9"]


def test_the_devices_of_a_command_are_those_that_it_launches(request_of):
    command = f"{sys.executable} train.py --nnodes 2 --nproc_per_node 2"
    config = perfkit.plan("command", request_of(command=command)).config
    assert (config.topology, config.ranks) == ("2x2", 1)


def test_a_window_of_several_epochs_leaves_out_what_is_between_them(measure):
    measurement = measure("--epoch 10 --line 'epoch {epoch} step {step} loss 2.5'")
    result = measurement.result
    assert result.status == "complete", result.failure
    assert result.throughput.value == pytest.approx(4 / STEP_SECONDS, rel=0.1)


def test_a_command_has_time_to_save_after_its_window(measure):
    Path("train.sh").write_text(f"{sys.executable} train.py\nexit\n")
    assert measure(command="sh train.sh").result.status == "complete"
    assert Path("saved").exists()


def test_a_loss_that_is_no_number_is_a_failure(measure):
    code, reason = failure_of(measure("--line 'step {step} loss: nan dt: {seconds:.6f} s'"))
    assert code == "loss_not_finite", reason


def test_a_stated_batch_that_the_log_contradicts_is_a_failure(measure):
    code, reason = failure_of(measure("--batch-size 8"))
    assert code == "config_mismatch"
    assert "batch_size is 4 by the request, but 8 by the log" in reason


def test_an_unknown_batch_is_told_after_the_first_repeat(measure):
    code, reason = failure_of(measure(batch_size=None, repeats=7))
    assert code == "batch_unknown"
    assert reason.endswith(
        "state the samples of one device in an optimizer update, before the command: "
        "-p batch_size NUMBER"
    )


def test_a_command_that_ends_too_early_is_told(measure):
    code, reason = failure_of(measure("--steps 12"))
    assert code == "ended_early"
    assert "the log ends after step 12, in 1" in reason


def test_a_command_that_fails_is_told_with_its_last_lines(measure):
    measurement = measure("--wrong")
    assert failure_of(measurement)[0] == "script_exit"
    assert "unrecognized arguments: --wrong" in measurement.result.failure.log


@pytest.mark.slow
def test_a_command_that_never_prints_a_step_ends_with_its_time(measure):
    code, reason = failure_of(measure("--line 'still training'", timeout=4))
    assert code == "timeout"
    assert reason.startswith("repeat 1 took over 4 s without a line of a format")


@pytest.mark.slow
def test_a_command_that_becomes_a_daemon_ends_with_its_time(measure, trainer):
    command = f"sh -c '{sys.executable} {trainer} --line busy & exit 0'"
    assert failure_of(measure(command=command, timeout=4))[0] == "timeout"
    assert not _processes_with(str(trainer))


def _processes_with(word):
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if word in " ".join(process.info["cmdline"] or []):
            found.append(process)
    return found


@pytest.mark.slow
def test_sigkill_of_the_driver_leaves_nothing_of_the_tree(request_of, trainer, tmp_path):
    command = f"sh -c 'setsid {sys.executable} {trainer} & wait'"
    values = json.dumps(request_of(command=command, measured_steps=10_000))
    code = (
        "import json, sys, perfkit\n"
        "plan = perfkit.plan('command', json.loads(sys.argv[1]))\n"
        "perfkit.measure(plan.config, plan.protocol)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code, values])
    try:
        deadline = time.monotonic() + 30
        while not _printed(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert _processes_with(str(trainer))
    finally:
        driver.kill()
        driver.wait()
    deadline = time.monotonic() + 10
    while _processes_with(str(trainer)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _processes_with(str(trainer))


def _printed(outputs):
    raw_files = [*outputs.glob("outputs/*/repeats/*/rank0.jsonl")]
    return any('"print"' in path.read_text() for path in raw_files)


def test_changed_files_of_a_command_are_another_measurement(request_of, trainer):
    config = perfkit.plan("command", request_of()).config
    assert config.work.change() is None
    trainer.write_text(TRAINER + "# changed\n")
    assert config.work.change().code == "script_changed"
    later = perfkit.plan("command", request_of()).config
    assert later.identity != config.identity


def test_a_file_that_a_command_writes_does_not_change_it(request_of):
    config = perfkit.plan("command", request_of("--line metrics.json")).config
    Path("metrics.json").write_text("{}")
    assert config.work.change() is None


def test_the_commit_of_a_command_is_stored_with_whether_it_is_dirty(tmp_path):
    if not shutil.which("git"):
        pytest.skip("needs git")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "train.sh").write_text("exit 0\n")
    (tmp_path / "model.py").write_text("")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *words], check=True)
    words = ["sh", "train.sh"]
    files = files_of(words, tmp_path, None)
    clean = read_command(words, files, tmp_path)
    assert len(clean.commit) == 40 and not clean.dirty
    (tmp_path / "model.py").write_text("changed = True\n")
    dirty = read_command(words, files, tmp_path)
    assert dirty.dirty
    # Other code is other work, also where the command does not name it.
    assert dirty.files_sha256 != clean.files_sha256


def test_a_request_without_a_command_or_its_program_is_refused(request_of):
    with pytest.raises(RequestError, match="names no command"):
        perfkit.plan("command", request_of(command=None))
    with pytest.raises(RequestError, match="there is no program nosuch"):
        perfkit.plan("command", request_of(command="nosuch train.sh"))


def test_everything_after_the_dashes_is_a_command_if_no_work_is_named(request_of):
    request = request_of()
    words = request.pop("command").split()
    options = [word for name, value in request.items() for word in ("-p", name, value)]
    done = cli("doctor", *options, "--", *words, "--every", "5")
    assert done.exit_code == 0, done.output
    typed = done.output.replace("\n", " ")
    assert f"-- {sys.executable} train.py --every 5" in " ".join(typed.split())


def test_a_command_and_its_flags_are_compared_live(request_of):
    request = request_of(repeats=6)
    words = [f"command={request.pop('command')}", "flags=", "flags=--every 5,--slower 0"]
    found = plan_interleaved("command", words[1:], request | {"command": words[0][8:]})
    assert [plan.config.work.flags for plan in found.plans] == ["", "--every 5,--slower 0"]
    assert found.command.startswith(shlex.join(["perfkit", "compare", "--live", *words]))
    assert [*map(len, found.variants.values())] == [1, 1]


@pytest.mark.slow
def test_a_flag_that_slows_a_command_is_found_as_a_regression(request_of):
    request = request_of(repeats=6)
    command = request.pop("command")
    options = [word for name, value in request.items() for word in ("-p", name, value)]
    variants = ["flags=", "flags=--slower 1"]
    done = cli("compare", "--live", f"command={command}", *variants, *options)
    assert done.exit_code == 1, done.output
    assert "slower: a regression" in " ".join(done.output.split())


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_log_of_a_public_trainer_tells_what_its_step_timer_does(trainer):
    package, _samples, everies = TRAINERS[trainer]
    pytest.importorskip(package)
    by_log, by_timer = by_log_and_timer(trainer, everies[-1])
    # Prints have up to 10 steps, and steps up to 64 samples: counted wrong, the two would
    # differ by more. How equal they are on an idle machine shows benchmarks/command_logs.py. On
    # a busy one Keras takes seconds between two epochs, which its log leaves out.
    assert 0.2 < by_log / by_timer < 5


@pytest.mark.slow
def test_a_sweep_on_slurm_runs_a_command_once_on_the_first_of_its_nodes(
    request_of, tmp_path, monkeypatch
):
    skip_if(slurm_missing())
    monkeypatch.delenv("TMPDIR", raising=False)
    train = f"{sys.executable} train.py"
    command = f"srun -N2 sh -c 'if [ $SLURM_PROCID = 0 ]; then {train}; else sleep 999; fi'"
    file = tmp_path / "sweep.yaml"
    parameters = request_of(command=command, nodes=2)
    file.write_text(json.dumps({"notebook": "command", "parameters": parameters}))
    with slurm_cluster(2) as cluster:
        words = [sys.executable, "-m", "perfkit.cli", "sweep", str(file), "--slurm"]
        subprocess.run(words, check=True, env=os.environ | cluster.environment)
        cluster.wait_idle()
    (result,) = perfkit.load(tmp_path / "outputs").to_dict("records")
    assert (result["status"], result["topology"]) == ("complete", "2x1")
    assert result["throughput"] == pytest.approx(2 * 4 / STEP_SECONDS, rel=0.1)
