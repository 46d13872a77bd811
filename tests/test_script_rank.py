"""One rank of a user's script, run as `python -m perfkit.timing.rank JOB SCRIPT`."""

import json
import os
import signal
import time

import pytest
from script_rank import LIMIT_SECONDS, ScriptRank

from perfkit.timing.raw_file import steady_file
from perfkit.timing.training import samples_of_steps, usual_rows

pytestmark = pytest.mark.usefixtures("processes")

MODEL = """
import time
import torch
import perfkit

model = torch.nn.Linear(4, 1)


def train(rows):
    loss = model(rows).square().mean()
    loss.backward()
    for weights in model.parameters():
        weights.data -= 0.01 * weights.grad
    model.zero_grad()
    return loss
"""
"""Without torch.optim, whose import of PyTorch's compiler takes as long as all else."""
METHODS = ["fork", pytest.param("spawn", marks=pytest.mark.slow)]
TRAINING = (
    MODEL
    + """
timer = perfkit.StepTimer(samples_per_step=8, unit="rows")
for _ in range(100):
    timer.step(train(torch.randn(8, 4)))
"""
)


@pytest.fixture
def rank(tmp_path):
    """Returns a rank that runs a script."""
    return lambda code, **changes: ScriptRank(tmp_path, code, **changes)


def test_a_script_is_timed_and_ended_after_the_window(rank):
    ran = (
        rank(
            MODEL
            + """
timer = perfkit.StepTimer(
    samples_per_step=8, unit="rows", flops_per_sample=48, parameters=5, precision="fp32"
)
for step in range(100):
    loss = train(torch.randn(8, 4))
    time.sleep(0.05)
    timer.step(loss)
print("after the loop")
"""
        )
        .run()
        .ended()
    )
    assert ran.stdout == ""
    assert ran.stderr == ""
    losses = ["step", "loss"] * 6
    assert ran.kinds() == ["start", "told", *losses, "window", "peak", "modules", "end"]
    (start,), (window,) = ran.of_kind("start"), ran.of_kind("window")
    assert 0.05 < window["began"] - start["began"] < LIMIT_SECONDS
    (told,) = ran.of_kind("told")
    assert told | {"framework_version": ""} == {
        "event": "told",
        "samples_per_step": 8,
        "unit": "rows",
        "flops_per_sample": 48.0,
        "parameters": 5,
        "precision": "fp32",
        "framework": "torch",
        "framework_version": "",
        "device": "cpu",
        "device_name": None,
        "step_clock": "host",
        "counts_data_wait": False,
    }
    steps = ran.of_kind("step")
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert all(step["seconds"] >= 0.05 for step in steps)
    assert not any("data_wait_seconds" in step for step in steps)
    (window,) = ran.of_kind("window")
    assert window["samples"] == 4 * 8
    assert window["seconds"] == pytest.approx(
        sum(step["seconds"] for step in steps[2:]), rel=0.02
    )
    (peak,) = ran.of_kind("peak")
    assert peak["matmul_flops_per_second"] > 1e8
    (end,) = ran.of_kind("end")
    assert end["memory_bytes"] > 1e7


def test_batches_through_the_timer_tell_the_wait_for_data_and_short_batches(rank):
    ran = (
        rank(
            MODEL
            + """
data = torch.utils.data.TensorDataset(torch.randn(20, 4))


class Slow(torch.utils.data.DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            time.sleep(0.02)
            yield batch


loader = Slow(data, 8)
timer = perfkit.StepTimer(samples_per_step=8, unit="rows")
batches = timer.batches(loader)
assert len(batches) == 3 and batches.batch_size == 8
while True:
    for (rows,) in batches:
        timer.step(train(rows))
"""
        )
        .run()
        .ended()
    )
    (told,) = ran.of_kind("told")
    assert told["counts_data_wait"]
    assert all(step["data_wait_seconds"] >= 0.02 for step in ran.of_kind("step"))
    # The steps 3 and 6 have the four rows that are left of the data.
    (window,) = ran.of_kind("window")
    assert window["samples"] == 4 + 8 + 8 + 4


def test_a_loop_that_reads_ahead_counts_all_its_samples(rank):
    ran = (
        rank(
            MODEL
            + """
timer = perfkit.StepTimer(samples_per_step=8 * 16, unit="tokens")
batches = iter(timer.batches(torch.utils.data.DataLoader(torch.randn(1000, 4), 8)))
following = next(batches)
while True:
    current, following = following, next(batches)
    timer.step(train(current))
"""
        )
        .run()
        .ended()
    )
    (window,) = ran.of_kind("window")
    assert window["samples"] == 4 * 8 * 16
    assert window["rows"] == [8, 8]
    assert window["batches"] == 4


def test_batches_that_pass_the_timer_by_leave_the_wait_unknown(rank):
    ran = (
        rank(
            MODEL
            + """
timer = perfkit.StepTimer(samples_per_step=8)
loader = torch.utils.data.DataLoader(torch.randn(24, 4), 8)
for rows in timer.batches(loader):
    timer.step(train(rows))
while True:
    for rows in loader:
        timer.step(train(rows))
"""
        )
        .run()
        .ended()
    )
    waits = ["data_wait_seconds" in step for step in ran.of_kind("step")]
    assert waits == [True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("rows", "usual", "samples"),
    [
        ([8, 8, 8, 4], 8, 28),  # a short batch
        ([16, 8, 8, 8], 8, 24),  # the first step read ahead
        ([8, 8, 16, 8], 8, 24),  # and a later one, at the begin of an epoch
        ([8, 5, 8, 5, 8, 5, 8, 5], 8, 52),  # two batches an epoch
        ([30, 17, 21, 25], None, 24),  # padded batches, whose first axis is their length
    ],
)
def test_rows_tell_short_batches_only_if_the_others_have_one_size(rows, usual, samples):
    assert usual_rows(rows) == usual
    assert samples_of_steps(rows if rows[-1] in (4, 5) else rows[1:], usual, 8) == samples


def test_a_rank_runs_on_the_cores_of_its_job(rank):
    core = min(os.sched_getaffinity(0))
    code = "import os; print(os.sched_getaffinity(0))"
    ran = rank(code, task="run", cores=[[core]]).run().ended()
    assert ran.stdout == f"{{{core}}}\n"
    assert ran.of_kind("note")[0]["values"] == {"cores": [core]}


def test_the_script_runs_as_python_runs_it(rank, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "beside.py").write_text("")
    started = rank(
        """
        import json, os, sys
        import beside
        print(json.dumps([sys.argv, __name__, __file__, os.getcwd(), sys.path[0]]))
        assert sys.modules["__main__"].__dict__ is globals()
        """,
        name="below/train.py",
        arguments=["--lr", "0.1", "two words"],
    )
    ran = started.run()
    script = str(started.script)
    arguments = [script, "--lr", "0.1", "two words"]
    folder = str(tmp_path)
    expected = [arguments, "__main__", script, folder, str(tmp_path / "below")]
    assert json.loads(ran.stdout) == expected
    assert ran.failure() == (
        "timer_unused",
        "the script ended and never called timer.step; make timer = perfkit.StepTimer("
        "samples_per_step=N) before the training, and call timer.step(loss) after each step of "
        "the optimizer",
    )
    assert ran.status == 1


ENDS = {
    "exits with a text": (
        "raise SystemExit('no data in\\n/x')",
        ("script_exit", "the script exited with status 1 after step 0: no data in /x"),
    ),
    "raises": (
        "raise ValueError('of the script')",
        ("worker_error", "train.py, line 1: ValueError: of the script"),
    ),
    "lacks memory": (
        "raise RuntimeError('CUDA out of memory')",
        ("out_of_memory", "CUDA out of memory"),
    ),
}


@pytest.mark.parametrize("way", ENDS)
def test_a_script_that_ends_otherwise_has_a_code(rank, way):
    code, failure = ENDS[way]
    ran = rank(code).run()
    assert ran.failure() == failure
    assert ran.status == 1


def test_an_error_of_the_timer_is_the_failure_even_if_the_script_catches_it(rank):
    code = TRAINING.replace(
        "    timer.step(train(torch.randn(8, 4)))",
        """
    loss = train(torch.randn(8, 4))
    try:
        timer.step(loss if _ < 3 else loss * float("nan"))
    except ArithmeticError:
        print("caught")
""",
    )
    ran = rank(code).run()
    assert ran.failure() == ("loss_not_finite", "the loss is nan at step 4")
    assert ran.stdout == "caught\n" * 97


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"device": "gpu"}, "the script trains on the device cpu"),
        ({"framework": "jax"}, "the script has not imported jax"),
    ],
)
def test_a_training_that_is_not_the_requested_one_is_refused(rank, changes, detail):
    failed_with, message = rank(TRAINING, **changes).run().failure()
    assert failed_with == "config_mismatch"
    assert detail in message


def test_a_timer_for_each_epoch_is_refused(rank):
    code = (
        MODEL
        + """
for epoch in range(100):
    timer = perfkit.StepTimer(samples_per_step=8)
    for _ in range(2):
        timer.step(train(torch.randn(8, 4)))
"""
    )
    failed_with, message = rank(code).run().failure()
    assert failed_with == "worker_error"
    assert "make one timer, before the first epoch" in message


def test_an_automatic_warm_up_ends_after_the_step_that_the_driver_names(rank):
    auto = {"ranks": 2, "warmup_steps": 1, "warmup_limit": 50, "warmup_seconds": 60}
    code = TRAINING.replace("timer.step(", "time.sleep(0.05); timer.step(")
    started = rank(code, **auto)
    steady_file(started.raw_folder).write_text("7 4")
    ran = started.run().ended()
    (warmup,) = ran.of_kind("warmup")
    assert warmup["steps"] == 7
    assert warmup["ended_by"] == "steady"
    of_warmup = [step["seconds"] for step in ran.of_kind("step")[:7]]
    assert warmup["seconds"] == pytest.approx(sum(of_warmup), rel=0.05)
    assert len(ran.of_kind("step")) == 7 + 4


def test_a_rank_that_is_past_the_named_step_fails(rank):
    code = TRAINING.replace("timer.step(", "time.sleep(0.05); timer.step(")
    started = rank(code, ranks=2, warmup_steps=5, warmup_limit=50)
    steady_file(started.raw_folder).write_text("3 4")
    assert started.run().failure() == (
        "late_warmup",
        "it had already taken step 5 when it learned that the warm-up ends after step 3; fix "
        "the length of the warm-up: -p warmup_steps NUMBER -p measured_seconds 0",
    )


def test_modules_that_no_import_statement_names_are_reported(rank, tmp_path):
    (tmp_path / "seen.py").write_text("")
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "small.py").write_text("")
    installed = tmp_path / "env" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "library.py").write_text("")
    code = f"""
import importlib, sys
import seen
sys.path.append({str(installed)!r})
import library
importlib.import_module("settings.small")
"""
    ran = rank(code + TRAINING, static_modules=["seen"]).run().ended()
    (modules,) = ran.of_kind("modules")
    assert modules["late"] == ["settings.small"]


def test_packages_of_other_folders_on_the_path_are_reported(rank, tmp_path):
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "loop.py").write_text("")
    code = f"""
import sys
sys.path.append({str(tmp_path)!r})
import json, trainer.loop
"""
    ran = rank(code + TRAINING, name="tools/train.py").run().ended()
    (modules,) = ran.of_kind("modules")
    assert modules["late"] == ["trainer"]


@pytest.mark.parametrize("method", METHODS)
def test_processes_of_the_script_are_not_measured(rank, method):
    """The data loader's processes, which run the script again if they are spawned."""
    ran = rank(
        MODEL
        + f"""
def main():
    data = torch.utils.data.TensorDataset(torch.randn(64, 4))
    loader = torch.utils.data.DataLoader(
        data, 8, num_workers=2, multiprocessing_context={method!r}
    )
    for epoch in range(10):
        for (rows,) in timer.batches(loader):
            timer.step(train(rows))


timer = perfkit.StepTimer(samples_per_step=8)
if __name__ == "__main__":
    main()
"""
    ).run()
    assert len(ran.ended().of_kind("step")) == 6
    assert len(ran.of_kind("start")) == 1
    # Python itself may warn of leaked semaphores: a race when a spawned process is ended.
    assert "perfkit" not in ran.stderr


@pytest.mark.parametrize("method", METHODS)
def test_a_script_that_starts_its_own_ranks_is_told_how_to_be_measured(rank, method):
    ran = rank(
        MODEL
        + f"""
import torch.multiprocessing


def main(rank):
    timer = perfkit.StepTimer(samples_per_step=8)
    for _ in range(100):
        timer.step(train(torch.randn(8, 4)))


if __name__ == "__main__":
    torch.multiprocessing.start_processes(main, nprocs=2, start_method={method!r})
"""
    ).run()
    failed_with, message = ran.failure()
    assert failed_with == "worker_error"
    assert "ProcessRaisedException" in message
    assert "starts one process for each rank itself" in ran.stderr
    assert not ran.of_kind("step")


def test_a_hanging_script_shows_its_stacks_on_a_signal(rank):
    started = rank("import time\nprint('ready', flush=True)\ntime.sleep(60)")
    process = started.start()
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.5)
    process.kill()
    ran = started.finish(process)
    assert 'train.py", line 3 in <module>' in ran.stderr


@pytest.mark.slow
def test_the_input_alone_is_read_at_full_speed(rank):
    ran = rank(
        MODEL
        + """
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.zeros(4)


timer = perfkit.StepTimer(samples_per_step=8)
loader = timer.batches(torch.utils.data.DataLoader(Slow(), 8))
print(len(loader))
for rows in loader:
    print("trains")
""",
        task="read_input",
    ).run()
    assert ran.ended().stdout == "5\n"
    assert ran.kinds() == ["start", "input", "end"]
    (read,) = ran.of_kind("input")
    assert len(read["intervals"]) >= 12
    assert all(seconds >= 8 * 0.02 for seconds in read["intervals"])
    assert sum(read["intervals"]) >= 3.0


def test_a_generator_that_ends_early_has_no_speed_and_is_told_what_to_pass(rank):
    code = MODEL + "\nfor _ in perfkit.StepTimer(8).batches(iter(range(9))): pass\n"
    failed_with, message = rank(code, task="read_input").run().failure()
    assert failed_with == "worker_error"
    assert "pass an object that can be iterated over again, such as a Data" in message
