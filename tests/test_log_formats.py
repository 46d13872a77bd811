"""Log formats: prints written in each format are read back."""

import json
import re
from dataclasses import replace
from math import gcd

import numpy as np
import pytest
from conftest import cli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_writers import BATCH, IN_FILES, SUITES, as_file, clock

from perfkit.audit import config_facts, mlperf
from perfkit.audit.auditing import audit
from perfkit.audit.custom_format import user_format
from perfkit.audit.formats import FORMATS, REPORTED
from perfkit.audit.recompute import Figures
from perfkit.core.request import RequestError

STEP_SECONDS = st.lists(st.floats(0.05, 5.0), min_size=25, max_size=80).map(np.array)
"""Enough steps for prints every 10 steps and for means that begin at step 5."""
anything = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def ends(windows):
    """Return the first and the last step of each window."""
    return [*zip(windows["first"], windows["last"], strict=True)]


def steps_of(windows):
    return windows["last"] - windows["first"] + 1


def check(log, name, seconds, every=1):
    """Assert that the windows of a log match the suite's prints of these steps."""
    line, windows = SUITES[name].line, log.windows
    assert log.format == name
    assert log.notes == []
    assert [*windows["last"]] == [*range(every, len(seconds) + 1, every)]
    printed = np.array([seconds[first - 1 : last].sum() for first, last in ends(windows)])
    expected = pytest.approx(printed, rel=1e-6, abs=1e-6)
    if re.search("{(mean|ms|inverse|total)", line):
        assert windows["seconds"].to_numpy() == expected
    if "{rate" in line:
        by_rates = steps_of(windows) * BATCH / windows["own_rate"]
        assert by_rates.to_numpy() == expected
    if "{wait" in line:
        assert 4 * windows["reader"].to_numpy() == expected
    if re.search("%f|{(unix|elapsed|hours|duration)", line):
        assert np.diff(windows["at"]) == pytest.approx(printed[1:], abs=3e-6)


COUNTED_AS_PRINTED = "PyTorch ImageNet example"
"""The format whose printed steps tell whether they count from 0 or 1."""


@pytest.mark.parametrize("name", SUITES)
@anything
@given(seconds=STEP_SECONDS, every=st.integers(1, 10))
def test_written_prints_are_read_back(read, name, seconds, every):
    suite = SUITES[name]
    if suite.covers == "step":
        every = 1
    if suite.covers == "rolling":
        every = gcd(every, suite.window)
    if name == COUNTED_AS_PRINTED:
        every = 1
    check(read(suite.text(seconds, every)), name, seconds, every)


@pytest.mark.parametrize("name", IN_FILES)
@anything
@given(seconds=STEP_SECONDS)
def test_dlloggers_file_is_read_like_its_prints(read, name, seconds):
    check(read(as_file(SUITES[name].text(seconds, 1))), name, seconds)


def test_every_print_format_has_a_writer():
    named = {form.name for form in FORMATS if form.has_steps}
    assert named - {"MetricLogger", "MindSpore"} == {*SUITES}


def test_printed_rates_show_whether_times_include_the_wait(read):
    suite = SUITES["PaddleNLP BERT, static graph"]
    with_wait_apart = replace(suite, line=suite.line.replace("{rate", "{both"))
    assert read(suite.text(np.ones(40))).semantics.reader == "in"
    assert read(with_wait_apart.text(np.ones(40))).semantics.reader is None


def test_paddlenlps_means_restart_with_each_data_file(read):
    text = SUITES["PaddleNLP BERT, static graph"].text(np.full(30, 0.5))
    windows = read(text.replace("batch: 19,", "batch: 3,")).windows
    assert ends(windows) == [(1, 10), (17, 20), (21, 30)]


def test_a_mean_of_rates_gives_no_time(read):
    """Only the harmonic mean of rates is samples over time; the arithmetic mean is not."""
    windows = read(SUITES["NVIDIA DLLogger, PyTorch ConvNets"].text(np.ones(40))).windows
    assert np.isnan(windows["own_rate"]).all()
    assert np.isfinite(windows["rate"]).all()


def test_a_repeated_iteration_number_counts_as_another_step(read):
    text = SUITES["NVIDIA DLLogger, TensorFlow BERT"].text(np.arange(1.0, 7.0), 1)
    windows = read(re.sub("Iteration: [23] ", "Iteration: 1 ", text)).windows
    assert [*windows["last"]] == [1, 2, 3, 6, 7, 8]
    assert not windows["run"].any()
    assert [*steps_of(windows)] == [1] * 6


@pytest.mark.parametrize(
    ("lines", "expected"), [([0], [(1, 10)]), ([0, 3], [(1, 10), (31, 40)])]
)
def test_a_print_with_its_first_step_covers_only_its_steps(read, lines, expected):
    prints = SUITES["TensorFlow official models"].text(np.full(40, 0.5)).splitlines(True)
    windows = read("".join(prints[line] for line in lines)).windows
    assert ends(windows) == expected
    assert windows["seconds"].to_numpy() == pytest.approx(5.0)


def test_a_time_since_the_last_print_covers_all_steps_since(read):
    line = "loss: 3.2, global_step: {}, interval_runtime: {}\n"
    prints = [(100, 10.0), (200, 10.0), (300, 10.0), (400, 10.0), (410, 1.0)]
    windows = read("".join(line.format(*values) for values in prints)).windows
    assert [*steps_of(windows)] == [100, 100, 100, 100, 10]
    assert windows["seconds"].sum() == 41.0


def test_a_single_print_of_a_time_since_the_last_print_covers_unknown_steps(read):
    assert not len(read("loss: 3.2, global_step: 1000, interval_runtime: 10.0\n").windows)


# Language models.


def megatron(batch_sizes, every=1):
    """Return prints of Megatron-LM with these global batch sizes."""
    text, consumed = "", 0
    for index, batch_size in enumerate(batch_sizes, 1):
        consumed += every * batch_size
        text += (
            f" [2026-05-22 02:{index // 60:02}:{index % 60:02}.500000] iteration "
            f"{index * every:8d}/ 5000 | consumed samples: {consumed:12d} | elapsed time per "
            f"iteration (ms): {1000 / every:.1f} | throughput per GPU (TFLOP/s/GPU): "
            f"{300 + index}.0 | learning rate: 5.1E-05 | global batch size: {batch_size:5d} | "
            f"lm loss: {3 - index / 100:.6E} | number of nan iterations:   0 |\n"
        )
    return text


def test_the_global_batch_of_each_print_is_a_fact_with_its_line(read):
    log = read("starting\n" + megatron([336] * 40))
    assert log.fact("global_batch_size") == 336
    assert log.facts["global_batch_size"].by.line == 2


def test_consumed_samples_give_the_global_batch(read):
    without_batch = re.sub(r"global batch size: +\d+ \| ", "", megatron([48] * 40, every=5))
    assert read(without_batch).fact("global_batch_size") == 48


def test_primus_prints_are_read_without_their_running_means(read):
    head = "[20251121 12:10:29][rank-31/32][INFO ] [--------trainer.py:2488] : "
    text = re.sub(r"\[2026.*?\]", head, megatron([336] * 40))
    text = re.sub(r"(\(ms\): [0-9.]+|GPU\): [0-9.]+)", r"\1/999.9", text)
    log = read(text)
    assert log.windows["seconds"].to_numpy() == pytest.approx(1.0)
    assert [*log.windows["printed0"]] == [300 + step for step in range(1, 41)]


def test_a_line_before_the_print_belongs_to_it(read):
    """As Megatron-Bridge prints the utilization of an iteration."""
    text = ""
    for step, line in enumerate(megatron([336] * 30).splitlines(True), 1):
        text += f"Step Time : 1.00s GPU utilization: {600 + step}.5MODEL_TFLOP/s/GPU\n{line}"
    log = read(text)
    (column,) = (q.column for q in log.printed if q.name == "MODEL_TFLOP/s/GPU")
    assert [*log.windows[column]] == [600.5 + step for step in range(1, 31)]


def test_a_record_of_step_0_is_the_first_print(read):
    text = SUITES["NeMo, DLLogger"].text(np.ones(20), 1)
    records = []
    for line in text.splitlines():
        at, step, timing = re.fullmatch(
            r"DLL (\S+ \S+) - Iteration: (\d+) .* in s : (\S+)", line
        ).groups()
        data = {"reduced_train_loss": 11.0, "train_step_timing in s": float(timing)}
        record = {"datetime": at, "type": "LOG", "step": int(step), "data": data}
        records.append(f"DLLL {json.dumps(record)}\n")
    log = read("".join(records), "dllogger.json")
    assert [*log.windows["last"]] == [*range(1, 21)]
    assert np.diff(log.windows["at"]) == pytest.approx(1.0)
    assert not log.reported


def test_validation_lines_of_torchtitan_are_no_prints(read):
    lines = SUITES["torchtitan"].text(np.ones(100)).splitlines(True)
    validation = lines[4].replace("step: ", "validate step: ").replace("32.0", "99.0")
    log = read("".join([*lines[:5], validation, *lines[5:]]))
    assert [*log.windows["last"]] == [*range(10, 101, 10)]
    assert log.windows["rate"].max() == BATCH


def test_ranks_of_torchtitan_are_told_apart(read):
    lines = SUITES["torchtitan"].text(np.ones(100)).splitlines(True)
    text = "".join(line + line.replace("[rank0]", "[rank1]") for line in lines)
    windows = read(text).windows
    assert sorted(set(windows["rank"])) == [0, 1]
    assert not windows["run"].any()


def test_a_progress_bar_is_ignored_beside_another_format(read):
    bar = "  5%|5         | 5/100 [00:05<01:35,  1.00it/s]\n{'loss': 2.1}\n"
    log = read(bar * 3000 + SUITES["torchtitan"].text(np.ones(100)))
    assert log.format == "torchtitan"
    assert log.notes == []


def test_a_step_of_several_lines_has_what_each_says(read):
    text = SUITES["Composer"].text(np.full(40, 3.6))
    log = read(text)
    assert [*log.windows["loss"]] == [8.462] * 4
    assert [*log.windows["printed0"]] == [7785.3322] * 4
    assert np.diff(log.windows["at"]) == pytest.approx(36.0)


def test_prints_without_a_step_are_counted(read):
    form = replace(
        user_format("it <step> <seconds>"), line=re.compile("took (?P<seconds>\\S+)")
    )
    log = read("took 0.25\n" * 40, form=form)
    assert [*log.windows["last"]] == [*range(1, 41)]


def test_a_trainers_closing_figures_are_reported(read):
    closing = "{'train_runtime': 'N', 'train_samples_per_second': 'N', 'train_loss': '2.1'}\n"
    closing = closing.replace("N", "3.902")
    metrics = "  train_runtime            =  0:12:34.56\n  train_samples_per_second =  3.902\n"
    for text in (closing, closing.replace("'3.902'", "3.902"), metrics):
        log = read(text)
        assert log.format == "Hugging Face Trainer"
        assert reported(log) == {"train_samples_per_second": 3.902}


# DLLogger's other records.


def convnets(prefix="DLLL ", zone="", batch=2048):
    """Return a PyTorch ConvNets log: two lines per step, two micro-batches of 8 x 128 per
    update."""
    sizes = {"batch_size": 128, "optimizer_batch_size": batch, "world_size": 8}
    records = [(0.0, "PARAMETER", {"data": "/imagenet", "arch": "resnet50", **sizes})]
    for step in range(10, 141, 10):
        rates = {"train.loss": 7 - step / 999, "train.total_ips": 8192.0}
        further = {"lr": 0.1, "train.data_time": 0.0250000000000000014}
        records += [(step * 0.125, [0, step], data) for data in (rates, further)]
    lines = []
    for at, step, data in records:
        record = {"timestamp": "0", "datetime": clock(at) + zone, "type": "LOG"}
        record |= {"step": step, "data": data}
        lines.append(f"{prefix}{json.dumps(record)}\n")
    return "".join(lines)


@pytest.mark.parametrize("prefix", ["DLLL ", ""])
@pytest.mark.parametrize("zone", ["", "+00:00", "+08:00"])
def test_json_lines_with_time_zones_and_split_steps_are_read(read, prefix, zone):
    log = read(convnets(prefix, zone), "raport.json")
    assert "PyTorch ConvNets" in log.format
    assert len(log.windows) == 14
    assert np.diff(log.windows["at"]) == pytest.approx(1.25)
    assert log.windows["reader"].sum() / (140 * 0.125) == pytest.approx(0.2)


def test_micro_batches_do_not_double_a_throughput_by_timestamps(read):
    log = read(convnets(), "raport.json")
    assert log.number("accumulate") == 2
    figure = Figures(log).find("clock", "protocol")
    assert figure.throughput == pytest.approx(128 * 8 / 0.125)


# MLPerf.

MLPERF = {
    "v0.6": ':::MLL {at:.3f} {key}: {{"value": {json}, "metadata": {{"lineno": 1}}}}',
    "v1.1": ':::MLLOG {{"namespace": "", "time_ms": {ms}, "event_type": "POINT_IN_TIME", '
    '"key": "{key}", "value": {json}, "metadata": {{"epoch_num": 1}}}}',
}


def mlperf_text(version, *events, processes=1):
    """Return the lines of events: time in seconds, key, value."""
    lines = []
    for at, key, value in events:
        line = MLPERF[version].format(at=at, ms=1000 * at, key=key, json=json.dumps(value))
        lines += [f"{line}\n"] * processes
    return "".join(lines)


def reported(log):
    """Return the values of a log's reported figures by name."""
    return {figure.name: figure.value for figure in log.reported}


def mlperf_training(version):
    """Return a training of four epochs in one block, and its samples per epoch."""
    samples = 40_000
    events = [(0, "submission_benchmark", "resnet"), (1, "global_batch_size", 1000)]
    events.append((1, "train_samples", samples))
    events += [(10, "run_start", None), (10, "block_start", None)]
    for epoch in range(4):
        begin = 12 + 10 * epoch
        events += [(begin, "epoch_start", None), (begin + 8, "epoch_stop", None)]
    events += [(52, "block_stop", None), (70, "run_stop", None)]
    return mlperf_text(version, *events), samples


@pytest.mark.parametrize("version", MLPERF)
def test_mlperf_gives_time_to_train_and_throughputs(read, version):
    text, samples = mlperf_training(version)
    assert reported(read(text)) == {
        "time to train, minutes": pytest.approx(1.0),
        "samples / time of all blocks": pytest.approx(4 * samples / 42),
    }


@pytest.mark.parametrize("version", MLPERF)
def test_mlperf_gives_epochs_as_windows(read, version):
    text, samples = mlperf_training(version)
    log = read(text)
    assert log.fact("model") == "resnet50"
    assert len(log.windows) == 4
    assert log.windows["rate"].to_numpy() == pytest.approx(samples / 8)


def test_mlperf_without_epochs_gives_figures_but_no_steps(read):
    events = [(1, "global_batch_size", 4096), (2, "run_start", None)]
    events += [(9, "tracked_stats", {"throughput": 21234.5}), (9.5, "run_stop", None)]
    log = read(mlperf_text("v1.1", *events))
    assert log.format == "MLPerf training"
    assert not len(log.windows)
    assert log.fact("global_batch_size") == 4096
    figures = {"time to train, minutes": 0.125, "tracked_stats throughput": 21234.5}
    assert reported(log) == figures


def test_mlperf_events_logged_by_every_process_count_once(read):
    events = [(1, "train_samples", 1000), (1, "global_batch_size", 10), (10, "block_start", 0)]
    for begin in (10, 20):
        events += [(begin, "epoch_start", 0), (begin + 10, "epoch_stop", 0)]
    # The second block does not end.
    events += [(30, "block_stop", 0), (30, "block_start", 0), (40, "epoch_stop", 0)]
    log = read(mlperf_text("v1.1", *events, processes=8))
    assert reported(log) == {
        "samples / time of all blocks": pytest.approx(100.0),
    }


# Everyday lines, which no known suite writes.

EVERYDAY = {
    "names and values": "step: {k}, loss: 2.5, dt: 250 ms",
    "equal signs": "iter={k} loss=2.5 batch_time=0.25 data_time=0.05",
    "a rate of named samples": "step {k} | loss 2.5 | tokens/s 128.0 | walltime {clock}",
    "a dictionary behind a time stamp": "2026-03-02T00:00:{clock:05.2f}0000000Z {{'loss': 2.5, "
    "'global_step/max_steps': '{k}/99', 'elapsed_time': '1m 3s'}}",
    "JSON lines": '{{"loss": 2.5, "step": {k}, "step_time": 0.25}}',
    "a time since the start": "[train] Iteration {k} loss: 2.5 time: {clock:.2f}s",
    "a time of a step behind the number": "batch {k}/99: 0.25 s/it, loss 2.5",
    "a logger's time stamp alone": "2026-03-02 00:00:{clock:05.2f} INFO step {k} loss 2.5",
    "a bar with a name of its own": "(Runner pid=7) Training Progress:  1%|# | {k}/99 "
    "[00:{clock:02.0f}<01:00,  1.0s/it]",
    "a bar without a graphic": "[rank0]:  5% {k}/99 [00:{clock:02.0f}<01:00,  9.0it/s]",
}


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_lines_tell_the_time_of_a_step(write, name):
    prints = [EVERYDAY[name].format(k=k, clock=0.25 * k) for k in range(4, 81, 4)]
    text = "\n".join(["starting", *prints, ""])
    (log,) = audit([write(text)], stated={"batch_size": 32}).logs
    assert log.answer.seconds_per_step == pytest.approx(0.25)
    assert log.answer.last == 80


@pytest.mark.parametrize(
    ("state", "seconds"),
    [("20/20 [00:05<00:00,  3.80it/s, v_num=0]", 1 / 3.8), ("20/40 [00:05<?, 9.9it/s]", 0.25)],
    ids=["finished", "stopped"],
)
def test_the_last_state_of_a_bar_tells_the_time_of_its_steps(write, state, seconds):
    """A finished bar shows its mean rate, another one an exponential mean."""
    (log,) = audit([write(f"Epoch 3: 100%|##########| {state}\n")]).logs
    assert log.answer.seconds_per_step == pytest.approx(seconds)
    assert log.printed[0].first in (3.8, 9.9)


@pytest.mark.parametrize(
    "name", ["Validation: ", "Map: ", "Loading checkpoint shards: ", "eval ", ""]
)
def test_the_longest_bar_of_no_preparation_and_no_evaluation_is_the_training(read, name):
    bars = SUITES["progress bar"].text(np.ones(100))
    seconds = 9 if not name else 999
    other = ""
    for step in range(1, 9):
        minutes, rest = divmod(step * seconds, 60)
        other += f"{name} 50%|5  | {step}00/90000 [{minutes}:{rest:02}<00:09, 99.00it/s]\n"
    assert [*read(other + bars).windows["last"]] == [*range(10, 101, 10)]


METRIC_LOGGER = """Namespace(batch_size=2, lr=0.0001)
Epoch: [0]  [ 0/20]  eta: 0:09:02  loss: 69.9484 (69.9484)  time: 4.2370  data: 2.7519
Epoch: [0]  [19/20]  eta: 0:00:00  loss: 40.9484 (60.9484)  time: 0.4000  data: 0.0200
Epoch: [0] Total time: 0:00:12 (0.6000 s / it)
Test: Total time: 0:00:04 (1.1486 s / it)
Epoch: [1]  [ 0/20]  eta: 0:09:02  loss: 39.9484 (39.9484)  time: 2.2370  data: 1.7519
Epoch: [1]  [19/20]  eta: 0:00:00  loss: 30.9484 (35.9484)  time: 0.3900  data: 0.0200
Epoch: [1] Total time: 0:00:10 (0.5000 s / it)
"""
MINDSPORE = """epoch: 1 step: 100, loss is 2.5
Train epoch time: 60000.0 ms, per step time: 600.0 ms
epoch: 2 step: 100, loss is 2.0
Train epoch time: 50000.0 ms, per step time: 500.0 ms
"""


@pytest.mark.parametrize(("text", "steps"), [(METRIC_LOGGER, 20), (MINDSPORE, 100)])
def test_the_time_of_an_epoch_is_that_of_all_its_steps(read, text, steps):
    windows = read(text).windows
    assert ends(windows) == [(1, steps)] * 2
    assert windows["seconds"].to_numpy() == pytest.approx([0.6 * steps, 0.5 * steps])
    assert not windows["run"].any()


def test_the_samples_of_steps_are_summed(read):
    text = "".join(
        f"step:{k} - timing_s/step:{2.0 + k} - perf/total_num_tokens:{1000 * k}.000\n"
        for k in range(1, 5)
    )
    log = read(text)
    assert log.semantics.samples_vary
    assert [*log.windows["samples"]] == [1000, 2000, 3000, 4000]
    paddleocr = read(SUITES["PaddleOCR"].text(np.ones(30))).windows
    assert [*paddleocr["samples"]] == [320.0] * 3
    assert paddleocr["reader"].to_numpy() == pytest.approx(2.5)


def test_deepspeed_chats_own_lines_come_before_deepspeeds_timer(read):
    timer = SUITES["DeepSpeed"].text(np.ones(40), 1)
    chat = SUITES["DeepSpeed-Chat"].text(np.full(40, 4.0), 1)
    log = read(timer + chat)
    assert log.format == "DeepSpeed-Chat"
    assert {*log.windows["seconds"]} == {4.0}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("step {k}: loss 2.5", "a step and a loss in 40 lines, but no time"),
        ("batch took: 0.5 s, batch_time: 0.5 s", "times of 40 steps, but no step number"),
        ("all is well", "no known format, or cut off"),
    ],
)
def test_a_file_left_out_is_told_by_what_was_seen_in_it(write, line, reason):
    audited = audit([write("".join(line.format(k=k) + "\n" for k in range(40)))])
    assert reason in audited.left_out[0]
    assert "perfkit audit --formats" in audited.left_out[0]


def test_a_time_stamp_in_front_is_the_clock_of_a_given_format(read):
    lines = [f"2026-03-02 00:00:{k:02} | it {k} | 9 img/s\n" for k in range(1, 31)]
    form = user_format(r"it <step> \| <rate> img/s", "rate_of=all")
    assert np.diff(read("".join(lines), form=form).windows["at"]) == pytest.approx(1.0)


def test_a_time_stamp_without_a_year_is_a_clock(read):
    text = SUITES["PaddleDetection"].text(np.ones(30))
    for index, line in enumerate(text.splitlines()):
        text = text.replace(line, line.replace("10:00:00", f"10:00:{10 * index:02}"))
    assert np.diff(read(text).windows["at"]) == pytest.approx(10.0)


# Given formats.

REGEX, OPTIONS = r"it <step> \| <milliseconds> ms \| <rate> (im|i)g/s", "rate_of=all reader=in"


@pytest.fixture
def mine(write):
    """A log in an unknown format."""
    return write("".join(f"it {k} | 25.0 ms | 1024.0 img/s\n" for k in range(10, 151, 10)))


def test_an_unknown_log_is_read_with_a_given_format(mine):
    options = "--format-options", f"{OPTIONS} unit=images/s"
    done = cli("audit", mine, "--all", "--format-regex", REGEX, *options)
    assert done.exit_code == 0, done.output
    assert re.search(r"samples / time +steps 21–120, 10 lines +1024\.000", done.stdout)


def test_files_without_a_line_of_the_given_format_are_left_out(mine):
    regex = REGEX.replace("it", "iter")
    done = cli("audit", mine, "--format-regex", regex, "--format-options", OPTIONS)
    assert done.exit_code == 1
    assert "no line matches --format-regex" in " ".join(done.output.split())


def test_a_regex_that_matches_no_line_tells_how_far_it_matches(mine):
    regex = REGEX.replace("(im|i)g/s", "images/s")
    done = cli("audit", mine, "--format-regex", regex, "--format-options", OPTIONS)
    assert done.exit_code == 1
    assert "no line matches --format-regex; line 1 matches up to" in " ".join(
        done.output.split()
    )
    assert "then has 'img/s'" in " ".join(done.output.split())


def test_the_command_of_an_audit_keeps_the_blanks_of_the_format(write, tmp_path):
    text = "".join(f"it  {k}  25.0 ms\n" for k in range(10, 151, 10))
    words = ["--format-regex", "it  <step>  <milliseconds> ms", "--json", str(tmp_path / "j")]
    done = cli("audit", write(text), *words)
    assert done.exit_code == 0, done.output
    command = json.loads((tmp_path / "j").read_text())["command"]
    assert "'it  <step>  <milliseconds> ms'" in command


def test_options_of_a_format_need_its_regex(mine):
    done = cli("audit", mine, "--format-options", "rate_of=all")
    assert done.exit_code == 2 and "groups of --format-regex" in done.stderr


@pytest.mark.parametrize(
    ("regex", "options", "why"),
    [
        ("it <step> (<rate>", "rate_of=all", "position 10"),
        ("<step> <speed>", "", "unknown group speed"),
        ("<step> (?P<time>x)", "", "did you mean seconds?"),
        ("<rate>", "rate_of=all", "put <step> where"),
        ("<step>", "", "put one of these where the speed of a step is: seconds,"),
        ("<step> <rate>", "", "add rate_of=device or rate_of=all"),
        ("<step> <rate>", "rate_of=all since=0", "known: rate_of, covers"),
    ],
)
def test_an_invalid_format_is_refused_with_what_is_allowed(regex, options, why):
    with pytest.raises(RequestError, match=re.escape(why)):
        user_format(regex, options)


TIMED = "".join(f"it {step} at {1_700_000_000.5 + step}\n" for step in range(1, 131))


def test_unix_timestamps_are_a_clock(read):
    form = user_format(r"it (?P<step>\d+) at (?P<at>\S+)", "")
    assert np.diff(read(TIMED, form=form).windows["at"]) == pytest.approx(np.ones(129))


def test_a_deeply_nested_record_is_harmless(read):
    deep = "DLLL " + '{"a": ' * 3000 + "}" * 3000 + "\n"
    text = as_file(SUITES["NVIDIA DLLogger, TensorFlow ConvNets"].text(np.ones(20), 1))
    assert len(read(deep + text).windows) == 20


def test_every_repetition_in_a_pattern_is_bounded():
    """So that text resembling a print takes time proportional to its length."""
    patterns = [mlperf.MLLOG, mlperf.OLDER]
    patterns += [form.line for form in FORMATS]
    patterns += [fact.pattern for fact in config_facts.TEXT]
    for _key, head, figure in REPORTED:
        patterns += [head, figure]
    for pattern in patterns:
        repetitions = re.sub(r"\\[+*]|\[[^]]*\]|\}\+", "", pattern.pattern)
        assert "*" not in repetitions, pattern.pattern
        assert "+" not in repetitions, pattern.pattern
