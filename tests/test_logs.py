"""Cases from real logs: damaged files, several trainings in a file, facts beside figures."""

import gzip
import hashlib
import lzma
import os
import re
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made.logs import BATCH, SUITES, paddleclas

from perfkit.audit import config_facts, reader
from perfkit.audit.auditing import audit
from perfkit.audit.formats import FORMATS
from perfkit.audit.log import LogError
from perfkit.audit.reader import read_logs

STEADY = np.full(140, 0.5)
PRINTS = paddleclas(STEADY)
ONEFLOW = SUITES["OneFlow (DLPerf)"]
CASES = tomllib.loads(Path(__file__).with_name("log_cases.toml").read_text())
"""What is read of logs: `fact` and `figure`."""
RECORDS = tomllib.loads(Path(__file__).with_name("record_cases.toml").read_text())["case"]
anything = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# Files.


def interleaved(prefixes):
    """Return the prints of three ranks, whose order alternates, with these prefixes."""
    logs = [ONEFLOW.text(np.full(40, 1.0 + rank)).splitlines() for rank in range(3)]
    lines = []
    for number, prints in enumerate(zip(*logs, strict=True)):
        ranks = [*zip(prefixes, prints, strict=True)]
        ranks.sort(reverse=number % 2 == 1)
        lines += [f"{prefix}{line}\n" for prefix, line in ranks]
    return "".join(lines)


@pytest.mark.parametrize(
    ("prefix", "ranks"),
    [
        ("[1,{}]<stdout>:", [0, 1, 2]),
        ("Tue Jun 14 15:39:05 2022[1,{}]<stdout>:", [0, 1, 2]),
        ("", [-3, -2, -1]),
    ],
)
def test_interleaved_ranks_are_told_apart(read, prefix, ranks):
    prefixes = [prefix.format(number) for number in range(3)]
    windows = read(interleaved(prefixes)).windows
    assert not windows["run"].any()
    for rank, of_rank in windows.groupby("rank"):
        assert [*of_rank["first"]] == [1, 11, 21, 31]
        if prefix:
            assert of_rank["rate"].to_numpy() == pytest.approx(BATCH / (1 + rank))
    assert sorted({*windows["rank"]}) == ranks


def training(devices, ranks):
    """Return a training on some devices, printed by some ranks."""
    gpus = ", ".join(str(gpu) for gpu in range(devices))
    text = (
        f"INFO: Start with Namespace(amp=False, arch='resnetv15', batch_size={96 * devices}, "
        f"gpus=[{gpus}], kv_store='horovod', num_layers=50)\nhvd size {devices}\n"
    )
    text += SUITES["MXNet Speedometer"].text(np.full(140, 1 / devices))
    lines = []
    for rank in ranks:
        lines += [f"[1,{rank}]<stdout>:{line}\n" for line in text.splitlines()]
    return "".join(lines)


TWO_TRAININGS = training(1, ranks=[0]) + training(8, ranks=[0, 1])
CLOSING_TABLE = """train.ips
           |     96    |
------------------------
     1     |   390.5   |
     8     |   2990.5  |
"""


def test_different_configurations_in_one_file_are_told_apart(write):
    one, eight = read_logs(write(TWO_TRAININGS + CLOSING_TABLE))
    assert (one.number("devices"), eight.number("devices")) == (1, 8)
    assert (one.name, eight.name) == (f"{one.path}#1", f"{one.path}#2")
    assert eight.number("global_batch_size") == 768
    assert ({*one.windows["rank"]}, {*eight.windows["rank"]}) == ({0}, {0, 1})
    assert ({*one.windows["rate"]}, {*eight.windows["rate"]}) == ({BATCH}, {8 * BATCH})
    assert [figure.text for figure in one.reported] == ["390.5"]
    assert [figure.text for figure in eight.reported] == ["2990.5"]


def test_a_lost_print_is_not_covered_by_the_next_print(read):
    text = ONEFLOW.text(np.ones(60)).replace("iter 30,", "iter \xff0,")
    windows = read(text).windows
    assert [*windows["first"]] == [1, 11, 31, 41, 51]
    assert [*windows["last"]] == [10, 20, 40, 50, 60]


def test_nul_bytes_are_removed(read):
    log = read(PRINTS.replace("batch_cost", "bat" + "\0" * 5000 + "ch_cost", 1))
    assert len(log.windows) == 14


def test_a_truncated_last_line_is_ignored(read):
    log = read(paddleclas(np.ones(30))[:-40])
    assert [*log.windows["last"]] == [10, 20]


def test_an_invalid_number_becomes_nan(read):
    text = PRINTS.replace("loss:  7.2072", "loss:  -.-e", 1).replace("7.2072", "nan", 1)
    windows = read(text.replace("2026/03/02", "2026/99/02")).windows
    assert np.isnan(windows["loss"][0])
    assert [*windows["loss"][1:3]] == [np.inf, 7.2072]
    assert np.isnan(windows["at"]).any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "empty"),
        (b"epoch 1: all is well\n" * 1000, "--format-regex reads others"),
        (b"[" * 100_000, "no known format"),
        (b"PK\x03\x04" + b"x" * 100, "a zip archive"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-20], "Compressed file ended"),
    ],
)
def test_an_unreadable_file_is_an_error_with_its_reason(read, text, message):
    with pytest.raises(LogError, match=message):
        read(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [".", "pipe", "/dev/zero"])
def test_a_path_that_is_no_regular_file_is_rejected_at_once(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LogError, match="not a regular file"):
        read_logs(tmp_path / name)


LARGE = PRINTS.encode() + b"x" * (3 << 20)


@pytest.mark.parametrize("content", [LARGE, gzip.compress(LARGE, mtime=0)], ids=len)
def test_too_large_files_are_rejected_with_a_message(read, monkeypatch, content):
    monkeypatch.setattr(reader, "LARGEST_BYTES", 2 << 20)
    with pytest.raises(LogError, match="over 2 MB"):
        read(content)


NOISE = "训练开始\n".encode("gb18030") + b"\xff\xfe\x80\n"


@pytest.mark.parametrize(
    "text",
    [
        PRINTS.replace("\n", "\r\n"),
        PRINTS.replace("\n", "\r"),
        gzip.compress(PRINTS.encode()),
        lzma.compress(PRINTS.encode()),
        "  0%|   | 0/9 [00:00<?, ?it/s]\r 50%|███| 4/9 [00:01<00:01]\r" + PRINTS,
        PRINTS.replace("epoch:", "\x1b[35mepoch:\x1b[0m", 3),
        PRINTS.replace("ppcls INFO", "root INFO"),
        "{'alpha': 0.6,\n 'batch_size': 5120}\n" + PRINTS,
        NOISE + PRINTS.encode() + NOISE,
        PRINTS.encode("utf-16"),
    ],
    ids=["crlf", "cr", "gzip", "xz", "bar", "colours", "logger", "dict", "gb18030", "utf-16"],
)
def test_prints_are_read_despite_surrounding_text(read, text):
    windows = read(text, "x.log.gz").windows
    at = windows["at"].dropna()
    assert len(windows) == 14
    assert len(at) >= 11
    assert at.diff().iloc[-1] == 5.0


def test_the_hash_is_that_of_the_original_bytes(read):
    text = PRINTS.encode() + b"\0"
    assert read(text).sha256 == hashlib.sha256(text).hexdigest()


TF_CNN = SUITES["tf_cnn_benchmarks"].text(STEADY)


def test_a_clock_behind_the_accuracies_of_tf_cnn_benchmarks_is_read(read):
    text = TF_CNN.replace("7.123", "7.123\t0.031\t0.072 1599437635.5")
    windows = read(text).windows
    assert {*windows["at"]} == {1599437635.5}


# Facts.


def text_of(case):
    """Return the text of a case in log_cases.toml, with its prints."""
    text = case.get("log", "")
    suite = case.get("prints", "PaddleClas, static graph")
    if suite:
        text += SUITES[suite].text(np.ones(20), 1)
    return text


@pytest.mark.parametrize("case", CASES["fact"])
def test_facts_are_read_from_text_and_name(read, case):
    log = read(text_of(case), case.get("name", "some.log"))
    assert {name: log.fact(name) or "" for name in case["facts"]} == case["facts"]


@pytest.mark.parametrize("case", CASES["figure"])
def test_reported_figures_are_read(read, case):
    log = read(text_of(case))
    assert log.format == case.get("format", case.get("prints", "PaddleClas, static graph"))
    figures = []
    for figure in log.reported:
        figures.append([figure.name, figure.text, figure.line, figure.is_rate])
        assert figure.value == float(figure.text)
    assert figures == case["figures"]


FLEET = CASES["fact"][1]["log"]


def test_contradictions_are_noted(read):
    log = read(FLEET + PRINTS, "PaddleClas_ResNet50_bs128_DP_N1C8_log")
    texts = [finding.text() for finding, _line in log.notes]
    assert "batch_size is 256 by line 3, but 128 by the file name: 256 is used." in texts
    assert "nodes is 2 by line 2, but 1 by the file name: 2 is used." in texts


# Damaged and hostile files.


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
ODD_NUMBERS = ["1e308", "-1e308", "1e-320", "1e999", "nan", "0", "-1", "9" * 12, "9" * 30]


@pytest.fixture(scope="module")
def every_format():
    """A text in each format, including records and configurations."""
    texts = [suite.text(STEADY, 10) for suite in SUITES.values()]
    texts += [text_of(case) for case in CASES["fact"] + CASES["figure"]]
    texts += [TWO_TRAININGS, FLEET + TF_CNN]
    return [*texts, *(case["log"] for case in RECORDS)]


def assert_storable(audited):
    assert type(audited).model_validate_json(audited.model_dump_json()) == audited


@anything
@given(data=st.data())
def test_odd_numbers_in_any_format_do_not_stop_an_audit(tmp_path, every_format, data):
    text = data.draw(st.sampled_from(every_format))
    numbers = [*NUMBER.finditer(text)]
    chosen = data.draw(st.sets(st.integers(0, len(numbers) - 1), max_size=6))
    # From the end, so that the positions before stay.
    for index in sorted(chosen, reverse=True):
        match, odd = numbers[index], data.draw(st.sampled_from(ODD_NUMBERS))
        text = text[: match.start()] + odd + text[match.end() :]
    odd_log, sound_log = tmp_path / "x_bs32_N1C8_log", tmp_path / "sound_log"
    odd_log.write_text(text)
    sound_log.write_text(PRINTS)
    audited = audit([odd_log, sound_log], tables=["perf-resnet50"])
    assert audited.logs[-1].name.endswith("sound_log")
    assert not any("computed" in reason for reason in audited.left_out)
    assert_storable(audited)


@pytest.mark.slow
def test_no_pattern_is_slow_on_hostile_text():
    """Repeats the beginnings of prints many times."""
    texts = [
        "epoch:0 train step:1 " * 4000,
        "DLL 2026-03-02 00:00:00 - Epoch: 0 Iteration: 1 " * 2000,
        '{"data": {"step": ' * 4000,
        "Namespace(" * 8000,
        ":::MLLOG {" * 8000,
        "LAUNCH INFO " * 8000,
        "Epoch[0] Batch [0-19" * 4000,
    ]
    patterns = [form.line for form in FORMATS]
    patterns += [config_facts.KEY, *(fact.pattern for fact in config_facts.TEXT)]
    began = time.process_time()
    for text in texts:
        for pattern in patterns:
            pattern.search(text)
    assert time.process_time() - began < 20
