"""Files of records: JSON lines, tables and documents are read as their suites mean them."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.audit.auditing import audit
from perfkit.audit.records import FORMATS
from perfkit.audit.rolling import windows_of_means

_DATA = tomllib.loads(Path(__file__).with_name("record_cases.toml").read_text())
CASES = _DATA["case"]


def having(key):
    """Return the cases with a key, as parameters named by their formats."""
    return [pytest.param(case, id=case["format"]) for case in CASES if key in case]


def windows_in(log, times):
    """Return first step, last step and time of each window of a log."""
    return np.column_stack([log.windows["first"], log.windows["last"], times])


def test_every_record_format_has_a_case():
    assert {form.name for form in FORMATS} == {case["format"] for case in CASES}


@pytest.mark.parametrize("case", having("windows"))
def test_printed_times_are_those_of_their_steps(read, case):
    log = read(case["log"])
    assert log.format == case["format"]
    assert windows_in(log, log.windows["seconds"]) == pytest.approx(np.array(case["windows"]))


@pytest.mark.parametrize("case", having("clock"))
def test_times_since_the_start_are_a_clock(read, case):
    log = read(case["log"])
    assert log.format == case["format"]
    since_print_before = np.diff(log.windows["at"], prepend=log.windows["at"][0])
    assert windows_in(log, since_print_before) == pytest.approx(np.array(case["clock"]))


@pytest.mark.parametrize("case", having("reported"))
def test_the_logs_own_figures_are_reported(read, case):
    log = read(case["log"])
    assert log.format == case["format"]
    figures = [[figure.name, figure.value, figure.is_rate] for figure in log.reported]
    for figure in case["reported"]:
        assert figure in figures
    assert not any("eval" in figure.name for figure in log.reported)


@pytest.mark.parametrize("case", having("answer"))
def test_the_answer_is_the_time_of_a_step(write, case):
    (audited,) = audit([write(case["log"])]).logs
    answer = audited.answer
    seconds, *steps = case["answer"]
    assert answer.seconds_per_step == pytest.approx(seconds)
    assert [answer.first, answer.last] == steps


# What a figure of a record is not.


def codes_of(text, write):
    (audited,) = audit([write(text)]).logs
    return {finding.code for finding in audited.findings}


def case_of(name):
    return next(case["log"] for case in CASES if case["format"] == name)


def test_a_measurement_of_perfkit_is_left_out_with_where_its_throughput_is(write):
    result = {"schema_version": 1, "config": {}, "protocol": {}, "repeats": []}
    audited = audit([write(json.dumps(result, indent=1), "result.json")])
    assert "its page has its throughput, and perfkit compare compares it" in audited.left_out[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("epoch,step,train_loss,val_loss\n0,49,2.5,\n0,99,2.25,\n", "but no time"),
        ('{"global_step": 5, "log_history": [{"loss": 2.5, "step": 5}]}', "but no time"),
    ],
    ids=["table", "history"],
)
def test_records_without_times_are_left_out_with_what_was_seen(write, text, reason):
    assert reason in audit([write(text)]).left_out[0]


def test_a_table_of_an_unknown_suite_is_read_by_the_names_of_its_columns(write):
    rows = "".join(f"{step},2.5,0.25\n" for step in range(40))
    (log,) = audit([write(f"step,loss,step_time\n{rows}")]).logs
    assert log.answer.seconds_per_step == 0.25
    assert log.answer.last == 40


def test_no_one_of_several_models_is_the_answer(write):
    (audited,) = audit([write(case_of("SuperBench, results"))]).logs
    assert audited.of_several
    assert audited.answer is None


def test_a_log_resumed_in_the_same_file_has_no_time_across_the_restart(write):
    text = ""
    for step, minutes in [(10, 10), (20, 20), (30, 30), (40, 5), (50, 15)]:
        record = {"current_steps": step, "total_steps": 90, "loss": 1.0}
        record["elapsed_time"] = f"0:{minutes:02}:00"
        text += json.dumps(record) + "\n"
    (audited,) = audit([write(text)]).logs
    (whole,) = [time for time in audited.step_times if time.period == "all"]
    assert whole.mean_seconds == pytest.approx(60.0)
    assert whole.steps == 30


IMAGENET = "Epoch: [0][{step}/500]\tTime 9.5 ( {mean})\tData 0.0 ( 0.5)\tLoss 6.9 (6.9)\n"


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("every", [1, 10])
def test_the_printed_steps_tell_whether_they_count_from_0_or_1(read, first, every):
    """The example prints the first step and each tenth after it; since 2022, it counts from 1.
    Running means of 2 s and 1.5 s after 1 and 11 steps leave 14.5 s for steps 2 to 11."""
    means = [2.0, 1.5, 1.5]
    text = ""
    for index, mean in enumerate(means):
        text += IMAGENET.format(step=first + every * index, mean=mean)
    windows = read(text).windows
    assert [*windows["last"]] == [1, 1 + every, 1 + 2 * every]
    assert windows["seconds"][1] == pytest.approx(1.5 * (1 + every) - 2.0)


def test_a_count_of_devices_in_a_files_name_is_the_last_resort(write):
    line = "epoch: [48/100], iter: 253, loss: 4.2, batch_cost: 2.5 s, samples: 48, ips: 19.5\n"
    (audited,) = audit([write(line, "rec_8gpu.log")]).logs
    assert audited.figure("all").throughput == pytest.approx(8 * 19.5)
    assert audited.facts["ranks"].by.code == "by_name"


PADDLEOCR = (
    "[2026/03/02 10:00:00] ppocr INFO: epoch: [1/10], global_step: 4, loss: 1.5, "
    "avg_reader_cost: 0.5 s, avg_batch_cost: 0.7 s, avg_samples: 8.0, ips: 11.5 samples/s\n"
)
LOADERS = """[2026/03/02 10:00:00] ppocr INFO: Eval : 
[2026/03/02 10:00:00] ppocr INFO:     loader : 
[2026/03/02 10:00:00] ppocr INFO:         batch_size_per_card : 128
[2026/03/02 10:00:00] ppocr INFO: Train : 
[2026/03/02 10:00:00] ppocr INFO:     dataset : 
[2026/03/02 10:00:00] ppocr INFO:     loader : 
[2026/03/02 10:00:00] ppocr INFO:         batch_size_per_card : 20
"""
DATALOADERS = """val_dataloader = dict(
    batch_size=8)
train_dataloader = dict(
    batch_sampler=dict(type='Aspect', batch_size=3),
    batch_size=2,
    dataset=dict(batch_size=9))
"""


def test_the_batch_size_is_that_of_the_training(read):
    assert read(LOADERS + PADDLEOCR).fact("batch_size") == 20
    mmengine = MMENGINE.format(epoch=1, step=1, mean=1.0)
    assert read(DATALOADERS + mmengine).fact("batch_size") == 2


# Means over the log's own window.


@settings(max_examples=30, deadline=None)
@given(
    seconds=st.lists(st.floats(0.01, 9.0), min_size=30, max_size=150).map(np.array),
    window=st.sampled_from([5, 10, 20, 50]),
    every=st.sampled_from([1, 5]),
)
def test_the_times_of_steps_follow_from_means_over_a_window(seconds, window, every):
    steps = np.arange(every, len(seconds) + 1, every)
    means = np.array([seconds[max(0, step - window) : step].mean() for step in steps])
    windows = windows_of_means(steps, np.zeros(len(steps)), means, window)
    assert [*windows.first] == [*(steps - every + 1)]
    sums = [seconds[step - every : step].sum() for step in steps]
    assert windows.sums == pytest.approx(np.array(sums), rel=1e-6, abs=1e-9)


MMENGINE = (
    "2026/03/02 10:00:00 - mmengine - INFO - Epoch(train)  [{epoch}][{step}/4]  lr: 1.0e-02  "
    "eta: 0:01:00  time: {mean:.4f}  data_time: 0.0100  loss: 1.5\n"
)
CONFIGURATION = """log_processor = dict(
    by_epoch=True,
    custom_cfg=[
        dict(data_src='loss', method_name='mean', window_size=7),
    ],
    type='LogProcessor',
    {window})
model = dict(window_size=3)
"""


@pytest.mark.parametrize(("window", "length"), [("window_size=5", 5), ("num_digits=4", 10)])
def test_mmengines_window_is_that_of_its_configuration(read, window, length):
    """Steps count over epochs of four steps, and the means reach into the epoch before."""
    seconds = np.arange(1.0, 13.0)
    text = CONFIGURATION.format(window=window)
    for index in range(12):
        mean = seconds[max(0, index + 1 - length) : index + 1].mean()
        text += MMENGINE.format(epoch=index // 4 + 1, step=index % 4 + 1, mean=mean)
    log = read(text)
    assert log.semantics.window == length
    assert [*log.windows["last"]] == [*range(1, 13)]
    assert log.windows["seconds"].to_numpy() == pytest.approx(seconds, abs=0.01)


def test_means_over_an_unknown_window_are_told(read, write):
    text = MMENGINE.format(epoch=1, step=1, mean=1.0) + MMENGINE.format(
        epoch=1, step=2, mean=1.0
    )
    assert read(text).semantics.window == 0
    assert "lagging_means" in codes_of(text, write)
    assert "lagging_means" in codes_of(case_of("mmengine, scalars.json"), write)


# Untrusted files.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)
untrusted = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def audited_or_left_out(path):
    """Audit a file; it may be left out, but not raise anything."""
    audited = audit([path])
    assert len(audited.logs) + len(audited.left_out) >= 1
    audited.model_dump_json()


@pytest.mark.parametrize("case", [pytest.param(case, id=case["format"]) for case in CASES])
@untrusted
@given(data=st.data())
def test_damaged_records_are_read_or_left_out(write, case, data):
    """A value of any type stands in place of another, and the file is cut off."""
    lines = case["log"].splitlines()
    index = data.draw(st.integers(0, len(lines) - 1))
    value = data.draw(JSON)
    if lines[index].startswith("{") and lines[index].endswith("}"):
        record = json.loads(lines[index])
        record[data.draw(st.sampled_from([*record]))] = value
        lines[index] = json.dumps(record)
    else:
        cells = lines[index].split(",")
        cells[data.draw(st.integers(0, len(cells) - 1))] = str(value)
        lines[index] = ",".join(cells)
    text = "\n".join(lines) + "\n"
    audited_or_left_out(write(text))
    audited_or_left_out(write(text[: data.draw(st.integers(1, len(text)))]))


COLUMNS_AND_ROWS = {
    "10,000 columns": "epoch,time,lr/pg0,"
    + ",".join(f"c{n}" for n in range(10_000))
    + "\n1,2,3\n",
    "nested too deep": '{"train_runtime": ' + '{"a": ' * 5000 + "1" + "}" * 5001,
    "brackets without an end": "[" * 100_000,
    "a number of 5,000 digits": '{"train_runtime": ' + "9" * 5000 + ', "step": 1}',
    "a number of 400 digits": '{"train_runtime": 1' + "0" * 400 + ', "step": 1}',
    "a step of 400 digits": '{"train_runtime": 1.5, "step": 1' + "0" * 400 + "}",
    "a negative step": '{"train_runtime": 1.5, "step": -5}',
    "infinity": '{"train_runtime": Infinity, "step": 5, "train_samples_per_second": NaN}',
    "a quote without an end": 'epoch,time,lr/pg0\n1,"2' + "x" * 200_000,
    "many empty lines": "{}\n" * 100_000,
    "a list of numbers": "[" + "1," * 100_000 + "1]",
    "a far step of a rolling mean": MMENGINE.format(epoch=10**9, step=10**9, mean=1.0),
}


@pytest.mark.parametrize("name", COLUMNS_AND_ROWS)
def test_an_odd_file_is_read_or_left_out(write, name):
    audited_or_left_out(write(COLUMNS_AND_ROWS[name]))
