"""Cases from real logs: damaged files, several trainings in a file, facts beside figures."""

import gzip
import hashlib
import json
import lzma
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_writers import BATCH, SUITES, as_file, clock, paddleclas

from perfkit.logs import auditing, config_facts, reader
from perfkit.logs.auditing import audit
from perfkit.logs.formats import FORMATS
from perfkit.logs.log import LogError
from perfkit.logs.reader import read_logs
from perfkit.logs.recompute import Figures
from perfkit.logs.wording import sentence
from perfkit.messages import Message

STEADY = np.full(140, 0.5)
PRINTS = paddleclas(STEADY)
ONEFLOW = SUITES["OneFlow (DLPerf)"]
SPEEDOMETER = SUITES["MXNet Speedometer"]
CONVNETS = SUITES["NVIDIA DLLogger, PyTorch ConvNets"]
anything = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# Files.


def test_each_epoch_begins_at_step_1(read):
    text = "".join(paddleclas(np.full(30, epoch + 1.0), epoch=epoch) for epoch in range(3))
    rows = read(text).windows
    assert [*rows["epoch"]] == [0] * 3 + [1] * 3 + [2] * 3
    assert [*rows["first"]] == [5, 11, 21] * 3 and not rows["run"].any()
    assert rows["seconds"] == pytest.approx([6, 10, 10, 12, 20, 20, 18, 30, 30])


def test_an_appended_restart_is_another_run(read):
    rows = read(paddleclas(np.full(30, 1.0)) + paddleclas(np.full(20, 2.0))).windows
    assert [*rows["run"]] == [0, 0, 0, 1, 1]
    assert [*rows["first"]] == [5, 11, 21, 5, 11]
    assert rows["seconds"] == pytest.approx([6, 10, 10, 12, 20])


def test_a_training_without_windows_does_not_hide_the_next(read):
    line = "loss: 3.2, global_step: {}, interval_runtime: 10.0\n"
    windows = read("".join(line.format(step) for step in (500, 100, 200, 300))).windows
    assert [*windows["last"]] == [100, 200, 300] and not windows["run"].any()


def interleaved(prefixes):
    logs = [ONEFLOW.text(np.full(40, 1.0 + rank)).splitlines() for rank in range(3)]
    together = [zip(prefixes, rows, strict=True) for rows in zip(*logs, strict=True)]
    # The order of ranks alternates.
    return "".join(
        f"{prefix}{line}\n"
        for number, pairs in enumerate(together)
        for prefix, line in sorted(pairs, reverse=number % 2 == 1)
    )


@pytest.mark.parametrize("stamp", ["", "Tue Jun 14 15:39:05 2022"])
def test_interleaved_ranks_are_told_apart_by_mpiruns_prefix(read, stamp):
    rows = read(interleaved([f"{stamp}[1,{rank}]<stdout>:" for rank in range(3)])).windows
    for rank in range(3):
        of_rank = rows[rows["rank"] == rank]
        assert [*of_rank["first"]] == [1, 11, 21, 31] and not of_rank["run"].any()
        assert of_rank["rate"] == pytest.approx(BATCH / (1 + rank))


def test_interleaved_ranks_without_a_prefix_are_told_apart(read):
    rows = read(interleaved([""] * 3) * 2).windows
    assert set(rows["rank"]) == {-1, -2, -3}
    for rank in (-1, -2, -3):
        of_rank = rows[rows["rank"] == rank]
        assert [*of_rank["last"]] == [10, 20, 30, 40] * 2
        assert [*of_rank["first"]] == [1, 11, 21, 31] * 2
        assert [*of_rank["run"]] == [0] * 4 + [1] * 4


def trainings():
    """Return two trainings: on 1 device with one printing rank, and on 8 devices with two."""
    texts = [
        f"INFO: Start with Namespace(amp=False, arch='resnetv15', batch_size={96 * n}, "
        f"gpus=[{', '.join(map(str, range(n)))}], kv_store='horovod', num_layers=50)\n"
        f"hvd size {n}\n" + SPEEDOMETER.text(np.full(140, 1 / n))
        for n in (1, 8)
    ]
    return [
        "".join(f"[1,{rank}]<stdout>:{line}\n" for rank in ranks for line in text.splitlines())
        for text, ranks in zip(texts, [(0,), (0, 1)], strict=True)
    ]


def test_different_configurations_in_one_file_are_told_apart(write):
    table = "train.ips\n           |     96    |\n" + "-" * 24 + "\n"
    table += "     1     |   390.5   |\n     8     |   2990.5  |\n"
    one, eight = read_logs(path := write("".join(trainings()) + table))
    assert (one.number("devices"), eight.number("devices")) == (1, 8)
    assert (one.name, eight.name) == (f"{path}#1", f"{path}#2")
    assert eight.number("global_batch_size") == 768
    assert [sorted({*log.windows["rank"]}) for log in (one, eight)] == [[0], [0, 1]]
    assert {*one.windows["rate"]} == {BATCH} and {*eight.windows["rate"]} == {8 * BATCH}
    assert [figure.text for figure in one.reported] == ["390.5"]
    assert [figure.text for figure in eight.reported] == ["2990.5"]


def test_a_lost_print_is_not_covered_by_the_next_one(read):
    rows = read(ONEFLOW.text(np.ones(60)).replace("iter 30,", "iter \xff0,")).windows
    ends = [(1, 10), (11, 20), (31, 40), (41, 50), (51, 60)]
    assert rows[["first", "last"]].tolist() == ends


def test_a_file_without_its_head_claims_no_missing_steps(read):
    text = "".join(ONEFLOW.text(np.ones(60)).splitlines(keepends=True)[3:])
    assert [*read(text).windows["first"]] == [31, 41, 51]


def test_nul_bytes_are_removed_and_noted(read):
    log = read(PRINTS.replace("batch_cost", "bat" + "\0" * 5000 + "ch_cost", 1))
    assert len(log.windows) == 14
    assert log.notes == [(0, Message("nul_bytes", {"count": 5000}))]


def test_other_encodings_are_read(read):
    noise = "训练开始\n".encode("gb18030") + b"\xff\xfe\x80\n"
    assert len(read(noise + PRINTS.encode() + noise).windows) == 14
    assert len(read(PRINTS.encode("utf-16")).windows) == 14


def test_a_truncated_last_line_is_noted_and_ignored(read):
    log = read(paddleclas(np.ones(30))[:-40])
    assert [*log.windows["last"]] == [10, 20]
    assert log.notes == [(3, Message("no_line_end", {}))]


def test_an_invalid_number_becomes_nan(read):
    text = PRINTS.replace("loss:  7.2072", "loss:  -.-e", 1).replace("7.2072", "nan", 1)
    rows = read(text.replace("2026/03/02", "2026/99/02")).windows
    assert np.isnan(rows["loss"][0]) and [*rows["loss"][1:3]] == [np.inf, 7.2072]
    assert np.isnan(rows["at"]).any() and rows["accuracy"][0] == -0.0039


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty"),
        (b"\0" * 10, "in no known format"),
        (b"epoch 1: all is well\n" * 1000, "PaddleClas, static graph; "),
        (b"epoch 1: all is well\n" * 1000, "; optimum-benchmark, CSV"),
        (b'{"name": ', "is not valid JSON"),
        (b'{"name": 1}', "in no known format"),
        (b"[" * 100_000, "in no known format"),
        (b'{"a":' * 100_000, "is not valid JSON"),
        (b"PK\x03\x04" + b"x" * 100, "a zip archive"),
        (b"BZh9" + b"x" * 100, "compressed by bzip2"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-20], ""),
    ],
)
def test_an_unreadable_file_is_an_error_with_its_name(read, text, message):
    with pytest.raises(LogError, match=r"some\.log") as caught:
        read(text)
    assert message in str(caught.value)


def test_a_path_that_is_no_regular_file_is_rejected_at_once(tmp_path):
    with pytest.raises(LogError, match=r"none\.log: No such file"):
        read_logs(tmp_path / "none.log")
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(LogError, match="not a regular file"):
            read_logs(path)
    assert time.monotonic() - began < 5


def test_an_overlong_line_is_cut_and_noted(read, monkeypatch):
    monkeypatch.setattr(reader, "LONGEST_LINE", 4096)
    log = read(paddleclas(np.ones(20)) + "x" * 50_000 + "\n" + paddleclas(np.ones(20), epoch=1))
    assert [*log.windows["line"]] == [1, 2, 4, 5]
    assert log.notes == [(3, Message("line_too_long", {"characters": 4096}))]


def test_too_large_files_are_rejected_with_a_message(read, monkeypatch):
    monkeypatch.setattr(reader, "LARGEST_BYTES", 2 << 20)
    text = PRINTS.encode() + b"x" * (3 << 20)
    for content in (text, gzip.compress(text, mtime=0)):
        with pytest.raises(LogError, match="over 2 MB"):
            read(content)
    monkeypatch.setattr(reader, "MOST_LINES", 10)
    with pytest.raises(LogError, match="has over 10 lines; give only a part of it"):
        read("\n" * 11)


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
    ],
    ids=["crlf", "cr", "gzip", "xz", "progress bar", "colours", "other logger", "printed dict"],
)
def test_prints_are_read_despite_surrounding_text(read, text):
    log = read(text, "x.log.gz")
    known = np.isfinite(log.windows["at"])
    assert len(log.windows) == 14 and known.sum() >= 11
    assert np.diff(log.windows["at"][known])[-1] == 5.0


def test_the_hash_is_that_of_the_original_bytes(read):
    text = PRINTS.encode() + b"\0"
    assert read(text).sha256 == hashlib.sha256(text).hexdigest()


def test_losses_that_are_always_nan_are_a_finding(write):
    text = SUITES["tf_cnn_benchmarks"].text(STEADY)
    found = audit(
        [write(text.replace("7.123", "nan")), write(text.replace("\t7.123", ""), "b")]
    )
    codes = [{finding.code for finding in log.findings} for log in found.logs]
    assert "loss_not_finite" in codes[0] and "loss_not_finite" not in codes[1]


# Facts.


def ppcls(*lines):
    return "".join(f"[2026/03/02 00:00:00] ppcls INFO:     {line}\n" for line in lines)


def parameters(**given):
    """Yield logs with these parameters in both of DLLogger's formats."""
    pairs = " ".join(f"{name} : {value} " for name, value in given.items())
    record = {"datetime": clock(0), "type": "LOG", "step": "PARAMETER", "data": given}
    text = CONVNETS.text(np.ones(20), 1)
    yield f"DLL {clock(0)} - PARAMETER {pairs}\n{text}"
    yield f"DLLL {json.dumps(record)}\n{as_file(text)}"


FLEET = """LAUNCH INFO 2023-07-28 07:14:19,033 devices: 0,1,2,3,4,5,6,7
LAUNCH INFO 2023-07-28 07:14:19,033 nnodes: 2
LAUNCH INFO 2023-07-28 07:14:19,034 training_script_args: ['-c', 'ppcls/configs/ResNet/\
ResNet50_amp_O2_ultra.yaml', '-o', 'DataLoader.Train.sampler.batch_size=256']
[2023/07/28 07:14:21] ppcls INFO:     use_dali : True
[2023/07/28 07:14:21] ppcls INFO: Arch : 
[2023/07/28 07:14:21] ppcls INFO:     name : ResNet50
"""
OF_FLEET = {"devices": 8, "nodes": 2, "ranks": 16, "batch_size": 256, "precision": "pure_fp16"}
OF_FLEET |= {"input": "dali", "model": "resnet50"}
SAMPLERS = ["DataLoader : ", "Eval : ", "sampler : ", "batch_size : 64", "Train : "]
SAMPLERS += ["dataset : ", "name : ImageNetDataset", "sampler : ", "shuffle : True"]
SAMPLERS += ["batch_size : 256"]
NAMESPACE = (
    "Namespace(adam_epsilon=1e-08, batch_size=32, device='gpu', gradient_merge_steps=88, "
    "model_name_or_path='bert-base-uncased', use_amp=True, use_pure_fp16=False)\n"
    "python -m paddle.distributed.launch --log_dir=./mylog --gpus=0,1,2,3 run_pretrain.py\n"
)
AMP = {"data": "/imagenet", "data_backend": "dali-cpu", "arch": "resnet50", "batch_size": 256}
AMP |= {"amp": True, "world_size": 8}
OF_AMP = {"input": "dali", "model": "resnet50", "batch_size": 256, "precision": "amp"}
OF_AMP |= {"ranks": 8}
SCALED = {"arch": "resnet50", "mode": "training_benchmark", "batch_size": 128}
SCALED |= {"precision": "fp32", "loss_scale": 256.0, "use_tf_amp": False}
MXNET = {"arch": "resnetv15", "num_layers": 50, "gpus": [0, 1], "kv_store": "horovod"}
MXNET |= {"dtype": "float16", "amp": False, "batch_size": 512, "num_epochs": 3}
OF_MXNET = {"global_batch_size": 512, "batch_size": 256, "precision": "pure_fp16"}
ONEFLOW_HEAD = "\nmodel = resnet50\nbatch_size_per_device = 128\ngpu_num_per_node = 8\n"
TF_CNN = "\nBatch size:  448 global\n             56 per device\nModel:       resnet50\n"
TF_CNN += "Mode:        forward only\nDevices:     ['/gpu:0', '/gpu:1', '/gpu:2', '/gpu:3']\n"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (PRINTS, {"framework": "paddle", "unit": "images/s", "batch_size": None, "gpu": None}),
        (FLEET + PRINTS, OF_FLEET),
        ((FLEET + PRINTS).replace("\n", "\r"), OF_FLEET),
        (ppcls("AMP : ", "use_amp : False", "level : O1") + PRINTS, {"precision": "fp32"}),
        (ppcls("AMP : ", "scale_loss : 128.0", "level : O1") + PRINTS, {"precision": "amp"}),
        (ppcls(*SAMPLERS) + PRINTS, {"batch_size": 256}),
        (
            NAMESPACE + SUITES["PaddleNLP BERT, static graph"].text(np.ones(20)),
            {"batch_size": 32, "accumulate": 88, "precision": "amp", "devices": 4}
            | {"model": "bert", "nodes": None, "ranks": None},
        ),
        *((text, OF_AMP) for text in parameters(**AMP)),
        *((text, {"precision": "fp32"}) for text in parameters(**SCALED)),
        (
            "hvd size 2\n" + next(parameters(**MXNET)),
            OF_MXNET | {"devices": 2, "ranks": 2, "nodes": 1},
        ),
        (
            f"{ONEFLOW_HEAD}num_nodes = 2\n{ONEFLOW.text(np.ones(20))}",
            {"model": "resnet50", "batch_size": 128, "ranks": 16},
        ),
        (
            TF_CNN + SUITES["tf_cnn_benchmarks"].text(STEADY),
            {"ranks": 4, "batch_size": 56, "nodes": 1, "mode": "inference"},
        ),
        ("Device 0: NVIDIA H100 80GB HBM3\n" + PRINTS, {"gpu": "H100"}),
        ("V100 or A100\n" + PRINTS, {"gpu": None}),
        ("Tesla T4, layer l4\n" + PRINTS, {"gpu": "T4"}),
        ("layer l4, block_t4\n" + PRINTS, {"gpu": None}),
        (
            "\x1b[31m<script>arch : <b>\x1b]0;x\x07 model = \x1b[2J\n" + PRINTS,
            {"model": None},
        ),
    ],
)
def test_facts_are_read_from_the_text(read, text, facts):
    log = read(text)
    assert {name: log.fact(name) for name in facts} == facts


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (
            "PaddleClas_ResNet50_bs256_pure_fp16_DP_N4C8_log",
            {"batch_size": 256, "precision": "pure_fp16", "ranks": 32}
            | {"nodes": 4, "devices": 8},
        ),
        ("paddle_gpu32_fp32_bs128.txt", {"ranks": 32, "precision": "fp32", "batch_size": 128}),
        (
            "tf_bert_base_fp16_bs96_gpu8.log",
            {"ranks": 8, "batch_size": 96, "model": "bert", "precision": None},
        ),
        (
            "2n8g/r50_b128_amp_1.log",
            {"nodes": 2, "devices": 8, "ranks": 16, "batch_size": 128, "precision": "amp"},
        ),
        ("h100/x.log", {"gpu": "H100"}),
        ("2080ti-8_fp32.log", {"gpu": "2080TI"}),
        ("V100_LOG/x.log", {"gpu": "V100"}),
        ("t4/x.log", {"gpu": "T4"}),
    ],
)
def test_facts_are_read_from_the_name(read, name, facts):
    log = read(PRINTS, name)
    assert {fact: log.fact(fact) for fact in facts} == facts


def test_facts_have_sources_and_contradictions_are_noted(read):
    log = read(FLEET + PRINTS, "PaddleClas_ResNet50_bs128_DP_N1C8_log")
    sources = {"nodes": "line 2", "ranks": "nodes x devices", "framework": "the log format"}
    assert {name: sentence(log.facts[name].by) for name in sources} == sources
    words = [sentence(message) for _line, message in log.notes]
    assert "batch_size is 128 by the file name, but 256 by line 3." in words
    assert "nodes is 1 by the file name, but 2 by line 2." in words
    assert sentence(read(PRINTS, "x_bs256_log").facts["batch_size"].by) == "the file name"


def test_contradictions_are_noted_only_a_few_times(read):
    text = "".join(f"batch_size_per_gpu : {size} \n" for size in range(1, 5000))
    log = read(text + PRINTS)
    assert log.fact("batch_size") == 1 and len(log.notes) == config_facts.CONTRADICTIONS


# Damaged and hostile files.


@anything
@given(data=st.data())
def test_any_content_is_read_or_named(tmp_path, data):
    prints = [suite.text(np.ones(2), 1).strip() for suite in SUITES.values()]
    pieces = [*prints, *trainings(), *parameters(**AMP), "{", "a,b\n1,2", "\r", "\0"]
    text = "\n".join(data.draw(st.lists(st.sampled_from(pieces), max_size=12)))
    for _ in range(data.draw(st.integers(0, 3))):
        begin = data.draw(st.integers(0, len(text)))
        text = text[:begin] + data.draw(st.text(max_size=3)) + text[begin + 5 :]
    path = tmp_path / "x.log"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = audit([path], tables=["perf-resnet50"])
    assert len(found.logs) or len(found.left_out) == 1


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
ODD_NUMBERS = ["1e308", "-1e308", "1e-320", "1e999", "nan", "0", "-1", "9" * 12, "9" * 30]


def every_format():
    """Yield a text in each format, including documents and configurations."""
    yield from (suite.text(STEADY, 10) for suite in SUITES.values())
    sizes = ppcls("Arch : ", "    name : ResNet50", "DataLoader.Train.sampler.batch_size=256")
    sizes += " gradient_accumulation_steps=4\nDevices: ['/gpu:0', '/gpu:1']\nworld_size : 8\n"
    yield from (sizes + PRINTS, sizes + SUITES["tf_cnn_benchmarks"].text(STEADY))
    yield from ("".join(trainings()), *parameters(**AMP))
    part = {"latency": {"values": [0.25, 0.5]}, "throughput": {"value": 12.5}}
    arguments = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    config = {"scenario": {"max_steps": 2, "training_arguments": arguments}}
    yield json.dumps({"config": config, "report": {"overall": part, "train": part}})
    yield json.dumps({"name": "x", "environ": {}, "metrics": {"throughput": 5.5}})
    yield "model,train_samples_per_sec\nresnet50,800.5\nvgg16,400.25\n"


@anything
@given(data=st.data())
def test_odd_numbers_in_any_format_do_not_stop_an_audit(tmp_path, data):
    text = data.draw(st.sampled_from([*every_format()]))
    spots = data.draw(st.lists(st.sampled_from([*NUMBER.finditer(text)]), max_size=6))
    for match in sorted({*spots}, key=lambda match: -match.start()):
        odd = data.draw(st.sampled_from(ODD_NUMBERS))
        text = text[: match.start()] + odd + text[match.end() :]
    paths = [tmp_path / "x_bs32_N1C8_log", tmp_path / "sound_log"]
    paths[0].write_text(text)
    paths[1].write_text(PRINTS)
    found = audit(paths, tables=["perf-resnet50"])
    assert found.logs[-1].name.endswith("sound_log")
    assert not any("computed" in reason for reason in found.left_out)
    assert type(found).model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "text",
    [
        "model,train_samples_per_sec\nx\ry,5\n",
        ':::MLLOG {"time_ms": 1' + 400 * "0" + ', "key": "train_samples", "value": 1}\n',
        "model,train_samples_per_sec\nx,1e308\ny,1e-320\n",
        "10\timages/sec: 1e-308 +/- 0.0 (jitter = 0.0)\t7.1\n" * 3,
    ],
)
def test_impossible_numbers_do_not_stop_an_audit(write, text):
    found = audit([write(text, "odd.log")])
    assert len(found.logs) + len(found.left_out) == 1
    assert type(found).model_validate_json(found.model_dump_json()) == found


def test_a_log_whose_figures_fail_is_named_and_the_others_audited(write, monkeypatch):
    def figures(log):
        if log.path.name == "odd.log":
            raise OverflowError("too large")
        return Figures(log)

    monkeypatch.setattr(auditing, "Figures", figures)
    found = audit([write(PRINTS, name) for name in ("odd.log", "x.log")])
    assert [log.name.rpartition("/")[2] for log in found.logs] == ["x.log"]
    assert re.search(r"odd\.log: .* too large", *found.left_out)


@pytest.mark.slow
def test_no_pattern_is_slow_on_hostile_text(write):
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
    began = time.process_time()
    for text in texts:
        for form in FORMATS:
            form.line.search(text)
        for pattern in config_facts.TEXT:
            pattern.pattern.search(text)
    assert time.process_time() - began < 20
    path, began = write(("{" * 99_000 + '"data"\n') * 3), time.process_time()
    with pytest.raises(LogError):
        read_logs(path)
    assert time.process_time() - began < 2
