"""Log formats: prints written in each format are read back."""

import json
import re
from math import gcd

import numpy as np
import pytest
from conftest import cli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made.logs import BATCH, SUITES, clock

from perfkit.audit import config_facts, mlperf
from perfkit.audit.auditing import audit
from perfkit.audit.custom_format import user_format
from perfkit.audit.formats import FORMATS, REPORTED
from perfkit.audit.recompute import Figures
from perfkit.measuring.request import RequestError

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


def test_every_print_format_has_a_writer():
    named = {form.name for form in FORMATS if form.has_steps}
    assert named - {"MetricLogger", "MindSpore"} == {*SUITES}


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


def test_a_line_before_the_print_belongs_to_it(read):
    """As Megatron-Bridge prints the utilization of an iteration."""
    text = ""
    for step, line in enumerate(megatron([336] * 30).splitlines(True), 1):
        text += f"Step Time : 1.00s GPU utilization: {600 + step}.5MODEL_TFLOP/s/GPU\n{line}"
    log = read(text)
    (column,) = (q.column for q in log.printed if q.name == "MODEL_TFLOP/s/GPU")
    assert [*log.windows[column]] == [600.5 + step for step in range(1, 31)]


def test_validation_lines_of_torchtitan_are_no_prints(read):
    text = SUITES["torchtitan"].text(np.ones(100))
    validation = text.replace("step: ", "validate step: ").replace("32.0", "99.0")
    assert [*read(text + validation).windows["rate"]] == [BATCH] * 10


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


@pytest.mark.parametrize(("prefix", "zone"), [("DLLL ", ""), ("", "+08:00")])
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


def test_a_state_of_a_bar_that_is_shown_again_is_no_print_of_another_rank(read):
    lines = []
    for step in range(1, 101):
        # Only every tenth step is shown again, and the two last ones of nine are not shown.
        times = 2 if step % 10 == 0 else int(step % 10 < 8)
        lines += [f" 50%|5  | {step}/900 [0:{step // 4:02}<00:09, 4.00it/s]\n"] * times
    windows = read("".join(lines)).windows
    assert len(windows) == 80
    assert windows["rank"].nunique() == 1


def test_the_samples_of_steps_are_summed(write):
    text = "".join(
        f"step:{k} - timing_s/step:{2.0 + k} - perf/total_num_tokens:{1000 * k}.000\n"
        for k in range(1, 5)
    )
    (log,) = audit([write(text)]).logs
    assert log.answer.tokens.of_all == pytest.approx((1000 + 2000 + 3000 + 4000) / 18)


def test_printed_samples_of_one_device_count_for_each(write):
    text = SUITES["PaddleOCR"].text(np.full(40, 0.5), 1)
    (log,) = audit([write(text)], stated={"ranks": 8}).logs
    assert log.answer.samples.per_device == pytest.approx(32 / 0.5)
    assert log.answer.samples.of_all == pytest.approx(8 * 32 / 0.5)


def test_deepspeed_chats_own_lines_come_first_and_their_rates_are_checked(write):
    timer = SUITES["DeepSpeed"].text(np.ones(40), 1)
    chat = SUITES["DeepSpeed-Chat"].text(np.full(40, 4.0), 1)
    (log,) = audit([write(timer + chat)], stated={"global_batch_size": 64}).logs
    assert log.answer.samples.of_all == pytest.approx(64 / 4.0)
    notes = [note.finding for note in log.findings if note.code == "rate_contradicts_batch"]
    ratios = {finding.name: finding.ratio for finding in notes}
    assert ratios["CurSamplesPerSec"] == pytest.approx(59.62 / 16)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("step {k}: loss 2.5", "a step and a loss in 40 lines, but no time"),
        ("batch took: 0.5 s, batch_time: 0.5 s", "times of 40 steps, but no step number"),
    ],
)
def test_a_file_left_out_is_told_by_what_was_seen_in_it(write, line, reason):
    audited = audit([write("".join(line.format(k=k) + "\n" for k in range(40)))])
    assert reason in audited.left_out[0]
    assert "perfkit audit --formats" in audited.left_out[0]


def test_a_given_format_is_answered_by_the_time_stamps_in_front_where_its_rates_differ(write):
    lines = [f"2026-03-02 00:00:{k:02} | it {k} | 9 img/s\n" for k in range(1, 31)]
    words = ["--format-regex", r"it <step> \| <rate> img/s", "--format-options", "rate_of=all"]
    done = cli(
        "audit", write("".join(lines)), *words, "-p", "global_batch_size=18", "--json", "-"
    )
    (log,) = json.loads(done.stdout)["logs"]
    assert log["answer"]["basis"] == "clock"
    assert log["answer"]["seconds_per_step"] == pytest.approx(1.0)
    assert log["findings"][0]["finding"]["code"] == "clock_differs"


# Given formats.

REGEX, OPTIONS = r"it <step> \| <milliseconds> ms \| <rate> (im|i)g/s", "rate_of=all reader=in"


@pytest.fixture
def mine(write):
    """A log in an unknown format."""
    return write("".join(f"it {k} | 25.0 ms | 1024.0 img/s\n" for k in range(10, 151, 10)))


@pytest.mark.parametrize(("of", "rate"), [("all", "1024.000"), ("device", "2048.000")])
def test_an_unknown_log_is_read_with_a_given_format(mine, of, rate):
    options = "--format-options", f"rate_of={of} reader=in unit=images/s", "-p", "devices=2"
    done = cli("audit", mine, "--all", "--format-regex", REGEX, *options)
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    range_and_rate = f"Range: steps 21–120, 10 lines All devices (images/s): {rate}"
    assert f"samples / time {range_and_rate}" in text


def test_a_regex_that_matches_no_line_is_told_so(mine):
    regex = REGEX.replace("(im|i)g/s", "images/s")
    done = cli("audit", mine, "--format-regex", regex, "--format-options", OPTIONS)
    assert done.exit_code == 1
    assert "no line matches --format-regex" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("regex", "options", "why"),
    [
        ("it <step> (<rate>", "rate_of=all", "position 10"),
        ("<step> <speed>", "", "unknown group speed"),
        ("<rate>", "rate_of=all", "put <step> where"),
        ("<step> <rate>", "", "add rate_of=device or rate_of=all"),
    ],
)
def test_an_invalid_format_is_refused_with_what_is_allowed(regex, options, why):
    with pytest.raises(RequestError, match=re.escape(why)):
        user_format(regex, options)


TIMED = "".join(f"it {step} at {1_700_000_000.5 + step}\n" for step in range(1, 131))


def test_unix_timestamps_are_a_clock(read):
    form = user_format(r"it (?P<step>\d+) at (?P<at>\S+)", "")
    assert np.diff(read(TIMED, form=form).windows["at"]) == pytest.approx(np.ones(129))


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
