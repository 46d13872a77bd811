"""What real logs taught: facts beside the figures, many formats, files of all kinds."""

import gzip
import json
import lzma
import os
import re
import shlex
import time

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_log_formats import SUITES, clock, dllogger_text, paddleclas_static, tf_cnn

import perfkit
from perfkit import report
from perfkit.cli import main
from perfkit.logs import reader
from perfkit.logs.audit import read_audit
from perfkit.logs.auditing import AuditError, audit, audited
from perfkit.logs.claims import ClaimInput, cells_for, check_claim
from perfkit.logs.config_facts import TEXT
from perfkit.logs.formats import FORMATS, FormatError, user_format
from perfkit.logs.importing import import_logs
from perfkit.logs.log import LogError
from perfkit.logs.reader import read_logs
from perfkit.logs.recompute import figures_of, share_of
from perfkit.logs.wording import claim_state, explained_value
from perfkit.reference.cells import cells_of
from perfkit.report.measurement import write_measurement
from perfkit.request.errors import RequestError
from perfkit.text.format import command

STEADY = np.full(140, 0.5)


@pytest.fixture
def write(tmp_path):
    """Writes a file of this text or these bytes; its path."""

    def written(text, name="some.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


@pytest.fixture
def read(write):
    """The one log in a file of this text."""

    def one(text, name="some.log", form=None):
        (log,) = read_logs(write(text, name), form)
        return log

    return one


def facts(log):
    return {name: fact.value for name, fact in log.facts.items()}


def codes(log):
    return [finding.code for finding in audited(log, figures_of(log)).findings]


def claimed(text, log):
    figures = figures_of(log)
    return check_claim(ClaimInput(text, float(text), "--claim"), audited(log, figures), figures)


def figure(log, statistic, period):
    return audited(log, figures_of(log)).figure(statistic, period)


# Facts.


def ppcls(*lines):
    return "".join(f"[2026/03/02 00:00:00] ppcls INFO: {line}\n" for line in lines)


def test_amp_that_is_switched_off_is_fp32_whatever_its_level(read):
    config = ppcls("AMP : ", "    use_amp : False", "    level : O1")
    assert facts(read(config + paddleclas_static(STEADY)))["precision"] == "fp32"
    config = ppcls("AMP : ", "    scale_loss : 128.0", "    level : O1")
    assert facts(read(config + paddleclas_static(STEADY)))["precision"] == "amp"


def test_a_loss_scale_says_nothing_of_the_precision_beside_it(read):
    parameters = "PARAMETER arch : resnet50  mode : training_benchmark  batch_size : 128  "
    parameters += "precision : fp32  loss_scale : 256.0  use_tf_amp : False \n"
    text = f"DLL {clock(0)} - {parameters}"
    log = read(text + dllogger_text(SUITES["TensorFlow ConvNets"], np.ones(40), 1))
    assert facts(log)["precision"] == "fp32"


@pytest.mark.parametrize(
    ("name", "line", "gpu"),
    [
        ("h100/x.log", "", "H100"),
        ("x.log", "Device 0: NVIDIA H100 80GB HBM3\n", "H100"),
        ("2080ti-8_fp32.log", "", "2080TI"),
        ("V100_LOG/x.log", "", "V100"),
        ("x.log", "V100 or A100\n", None),
        ("t4/x.log", "", "T4"),
        ("x.log", "Tesla T4, layer l4\n", "T4"),
        ("x.log", "layer l4, block_t4\n", None),
    ],
)
def test_a_log_stands_beside_cells_of_its_own_gpu_alone(read, name, line, gpu):
    config = ppcls("    name : ResNet50") + "LAUNCH INFO 2026-03-02 00:00:00,000 nnodes: 1\n"
    config += "LAUNCH INFO 2026-03-02 00:00:00,000 devices: 0,1,2,3,4,5,6,7\n"
    config += ppcls("Arch : ", "    name : ResNet50", "DataLoader.Train.sampler.batch_size=256")
    log = read(line + config + paddleclas_static(STEADY), name)
    assert facts(log).get("gpu") == gpu
    cells = [c for c in cells_of(perfkit.published()) if c["table"] == "paddle-resnet50-report"]
    found = {
        cell["gpu"].split("-")[0]
        for some in cells_for(audited(log, figures_of(log)), cells)
        for cell in some
    }
    assert found == ({"V100", "A100"} if gpu is None else {gpu} & {"V100", "A100"})


def test_inference_is_no_training(read, tmp_path):
    log = read("\nModel:       resnet50\nMode:        forward only\n" + tf_cnn(STEADY))
    assert facts(log)["mode"] == "inference" and "not_training" in codes(log)
    assert [*cells_for(audited(log, figures_of(log)), cells_of(perfkit.published()))] == []
    with pytest.raises(RequestError, match="inference, no training"):
        import_logs([log.path], {}, tmp_path)


def test_losses_that_are_nan_from_the_first_print_are_found(read):
    log = read(tf_cnn(STEADY).replace("7.123", "nan"))
    assert "loss_not_finite" in codes(log)
    assert "loss_not_finite" not in codes(read(tf_cnn(STEADY).replace("\t7.123", "")))


def test_tf_cnn_tells_its_devices_and_the_batch_of_each(read):
    header = "\nBatch size:  448 global\n             56 per device\n"
    header += "Devices:     ['/gpu:0', '/gpu:1', '/gpu:2', '/gpu:3']\n"
    found = facts(read(header + tf_cnn(STEADY)))
    assert (found["ranks"], found["batch_size"], found["nodes"]) == (4, 56, 1)


def speedometer(rate, count=7, head="2026-03-02 00:00:00,000:INFO: "):
    return "".join(
        f"{head}Epoch[0] Batch [{20 * k}-{20 * k + 19}]\tSpeed: {rate} samples/sec\tLR: 0.1\n"
        for k in range(count)
    )


def two_trainings():
    heads = [
        f"INFO: Start with Namespace(amp=False, arch='resnetv15', batch_size={96 * n}, "
        f"gpus=[{', '.join(map(str, range(n)))}], kv_store='horovod', num_layers=50)\n"
        for n in (1, 8)
    ]
    table = "train.ips\n           |     96    |\n" + "-" * 24 + "\n"
    table += "     1     |   390.5   |\n     8     |   2990.5  |\n"
    dll = f"DLL {clock(0)} - Summary: train.ips : 1.5 images/s\n"
    return heads[0] + speedometer(390.25) + heads[1] + speedometer(2990.25) + dll + table


def test_trainings_of_different_configurations_in_one_file_are_told_apart(write, tmp_path):
    one, eight = read_logs(path := write(two_trainings()))
    assert (facts(one)["devices"], facts(eight)["devices"]) == (1, 8)
    assert (one.name, eight.name) == (f"{path}#1", f"{path}#2")
    assert facts(eight)["global_batch_size"] == 768
    assert set(one.windows["rate"]) == {390.25} and set(eight.windows["rate"]) == {2990.25}
    with pytest.raises(RequestError, match="2 trainings of different configurations"):
        import_logs([path], {}, tmp_path)


def test_every_row_of_a_closing_table_is_read(read):
    suite = dllogger_text(SUITES["MXNet ResNet-50"], np.ones(60), 20)
    table = two_trainings().partition("train.ips\n")
    log = read(suite + "".join(table[1:]))
    rows = [(one.text, one.ranks) for one in log.reported if "closing table" in one.name]
    assert rows == [("390.5", 1), ("2990.5", 8)]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_line_ends_lose_neither_batch_nor_model(read, end):
    config = ppcls("Arch : ", "    name : ResNet50", "use_dali : True")
    config += "-o DataLoader.Train.sampler.batch_size=256\n"
    log = read((config + paddleclas_static(STEADY)).replace("\n", end))
    found = facts(log)
    assert (found["model"], found["batch_size"], found["input"]) == ("resnet50", 256, "dali")
    assert len(log.windows) == 14


def test_a_logger_of_another_name_keeps_the_clock(read):
    log = read(paddleclas_static(STEADY).replace("ppcls INFO", "root INFO"))
    assert np.diff(log.windows["at"]).sum() == pytest.approx(65, abs=1)


def test_colours_and_progress_bars_are_no_text(read):
    bars = "  0%|   | 0/9 [00:00<?, ?it/s]\r 50%|███| 4/9 [00:01<00:01]\r"
    log = read(bars + paddleclas_static(STEADY).replace("epoch:", "\x1b[35mepoch:\x1b[0m", 3))
    assert len(log.windows) >= 11


# Claims.


def test_a_truncated_number_is_reproduced_and_says_so(read):
    line = f"DLL {clock(9)} -  training_sequences_per_second : 995.8885333 final_loss : 7.98 \n"
    step = f"DLL {clock(1)} - Training Epoch: 0 Training Iteration: 1  average_loss : 9.5 \n"
    log = read(step + line)
    claim = claimed("995.88", log)
    assert claim.state == "reproduced" and claim.explanations[0].truncated
    assert "truncated" in {one.code for one in claim.findings}
    assert claim_state(claim) == "reproduced, truncated"
    rounded = claimed("995.89", log)
    assert rounded.state == "reproduced" and not rounded.explanations[0].truncated
    assert claimed("995.87", log).state == "not reproduced"


def test_what_explains_a_claim_is_shown_to_its_digits(read):
    log = read(dllogger_text(SUITES["MXNet ResNet-50"], np.full(160, 0.3771), 20))
    claim = claimed("339.4", log)
    assert {explained_value(claim, one) for one in claim.explanations} == {"339.4"}


def cold_start():
    """20 steps a print: a first epoch that is slow, then six that are not."""
    lines = []
    for epoch in range(1, 8):
        seconds = 0.14 if epoch == 1 else 0.125
        for step in range(20, 401, 20):
            wait = seconds * (0.99 + 0.01 * (step % 60) / 60)
            lines.append(
                f"Train Pass {epoch}, batch {step}, rtime {wait:.4f}, time {seconds:.4f}, "
                f"speed {800 / seconds:.2f}\n"
            )
    sizes = '"key": "global_batch_size", "value": 800, "metadata": {}}'
    head = f':::MLLOG {{"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", {sizes}\n'
    return "export PADDLE_TRAINERS_NUM=8\n" + head + "".join(lines)


def test_the_waterfall_goes_from_the_claim_to_the_steady_steps(read):
    log = read(cold_start())
    steady, protocol = (
        figure(log, "samples/time", "steady"),
        figure(log, "samples/time", "protocol"),
    )
    assert steady.throughput == pytest.approx(6400) and steady.epochs == 6
    assert protocol.throughput == pytest.approx(800 / 0.14)
    claim = claimed("6400.00", log)
    assert [one.stage for one in claim.waterfall] == [
        "claimed",
        "explained",
        "protocol",
        "steady",
    ]
    assert claim.waterfall[2].difference == pytest.approx(0.125 / 0.14 - 1)
    assert claim.waterfall[3].difference == pytest.approx(0.14 / 0.125 - 1)
    assert "protocol_not_steady" in codes(log)


def test_a_wait_is_a_limit_only_where_steps_that_wait_less_are_faster(read):
    assert "input_wait" in codes(read(cold_start()))
    lines = []
    for k in range(40):
        wait = 0.1 + 0.002 * (k * 7 % 11)
        lines.append(
            f"[TRAIN] epoch: 1, iter: {10 * (k + 1)}/400, loss: {3 - k / 40:.4f}, lr: 0.01, "
            f"batch_cost: {0.3 + wait:.4f}, reader_cost: {wait:.5f}, ips: 20.0000 samples/sec\n"
        )
    assert "input_limit" in codes(read("".join(lines)))


def test_the_waterfall_stands_on_the_page_and_in_the_json(write, tmp_path):
    path = write(cold_start())
    done = CliRunner().invoke(
        main, ["audit", str(path), "--label", "cold", "--outputs", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    folder = tmp_path / "out" / "audits" / "cold"
    assert read_audit(folder).logs[0].steady.throughput == pytest.approx(6400)
    section = report.audit_waterfall(str(folder))
    assert "samples / time, steady steps" in section.html and "<svg" in section.html
    assert "5714.29" in section.html and "+12 %" in section.html
    page = (folder / "report.zh.html").read_text()
    assert "从公布值到稳态" in page


# DLLogger.


def record(step, at=0.0, zone="", **data):
    stamps = {"timestamp": "0", "datetime": clock(at) + zone, "type": "LOG", "step": step}
    return json.dumps({**stamps, "data": {k.replace("__", "."): v for k, v in data.items()}})


def convnets(prefix="DLLL ", zone="", batch=2048):
    """PyTorch ConvNets: each step in two lines; two micro-batches of 128 x 8 for an update."""
    sizes = {"batch_size": 128, "optimizer_batch_size": batch, "world_size": 8}
    lines = [record("PARAMETER", data="/imagenet", arch="resnet50", **sizes)]
    for step in range(10, 141, 10):
        at = step * 0.125
        rates = {"train__loss": 7 - step / 999, "train__total_ips": 8192.0}
        lines.append(record([0, step], at, zone, **rates))
        lines.append(record([0, step], at, zone, lr=0.1, train__data_time=0.025))
    return "".join(f"{prefix}{line}\n" for line in lines)


@pytest.mark.parametrize("prefix", ["DLLL ", ""])
@pytest.mark.parametrize("zone", ["", "+00:00", "+08:00"])
def test_json_lines_with_time_zones_are_read(read, prefix, zone):
    log = read(convnets(prefix, zone), "raport.json")
    assert "PyTorch ConvNets" in log.format
    assert np.diff(log.windows["at"]) == pytest.approx(1.25)


def test_the_second_line_of_a_step_tells_the_wait(read):
    log = read(convnets())
    assert len(log.windows) == 14
    assert log.windows["reader"].sum() / (140 * 0.125) == pytest.approx(0.2)


def test_micro_batches_do_not_double_a_number_by_the_clock(write, tmp_path):
    path = write(convnets())
    given = {"framework": "torch", "precision": "amp", "nodes": "1", "gpus": "8"}
    given |= {"device": "gpu", "input": "dali"}
    result = import_logs([path], given, tmp_path / "out").result
    assert result.config.accumulate == 2 and result.imported.basis == "clock"
    assert result.throughput.value == pytest.approx(128 * 8 / 0.125)
    with pytest.raises(RequestError, match="rates and times"):
        import_logs([path], given | {"batch_size": "256"}, tmp_path / "out")


@pytest.mark.parametrize(
    ("line", "name", "unit"),
    [
        (
            "Epoch: 0 Iteration: {k} glob_iter/iters_per_epoch : {k}/99 train_loss : 5.5 "
            "train_items_per_sec : 4000.0 items/s train_iter_time : 2.0 s",
            "Tacotron 2 and WaveGlow",
            "items/s",
        ),
        (
            "epoch    1 | iter {k}/140 | loss 20.5 | mel loss 9.1 |   4000.00 frames/s | took "
            "2.00 s | lrate 1.0e-03",
            "FastPitch",
            "frames/s",
        ),
        (
            "Epoch: 0 Iteration: {k}  step_loss : 5.5 learning_rate : 3e-05",
            "PyTorch BERT",
            "sequences/s",
        ),
        ("Epoch: 0 Iteration: {k} loss : 23.5", "SSD", "images/s"),
    ],
)
def test_suites_of_dllogger_have_their_own_units(read, line, name, unit):
    lines = [line.format(k=k) for k in range(1, 41)]
    log = read("".join(f"DLL {clock(2.0 * k)} - {one} \n" for k, one in enumerate(lines)))
    assert name in log.format and facts(log)["unit"] == unit
    assert len(log.windows) == 40
    if "4000" in line:
        assert figure(log, "samples/time", "all").throughput == pytest.approx(4000)


def test_closing_records_are_read_without_any_step(read):
    text = f"DLL {clock(1)} - Epoch: 0 train_throughput : 21000.5 validation : 0.5\n"
    text += f"DLL {clock(2)} - () best_train_throughput : 22000.25 avg_img/sec : 300.5 img/s\n"
    log = read(text)
    assert log.format == "NVIDIA DLLogger, summaries"
    assert [one.value for one in log.reported if one.unit] == [21000.5, 22000.25, 300.5]
    assert codes(log) == ["no_prints"]


# Formats.

PRINTS = {
    "PaddleClas, static graph of 2020": (
        "2020-12-16 19:05:51 INFO: epoch:0   train step:{i}   loss:  7.0989 top1: 0.0000 top5: "
        "0.0000 lr: 0.100000 elapse: 0.500s ips: 512.00000 images/sec.",
        512.0,
    ),
    "PaddleClas, static graph": (
        "2020-12-16 19:05:51 INFO: epoch:0   train step:{k}   top1: 0.0100 top5: 0.0200 loss: "
        "7.0989 lr: 0.100000 batch_cost: 0.50000 s, reader_cost: 0.00100 s, ips: 512.00000 "
        "images/sec.",
        512.0,
    ),
    "PaddleNLP BERT of 2020": (
        "global step {k}, epoch: 0, batch: {i}, loss: 11.126791, speed: 2.00 step/s, ips: "
        "512.00 sequences/s",
        512.0,
    ),
    "PaddleNLP Transformer, static graph": (
        "[2023-08-02 20:08:18,549] [    INFO] - step_idx: {i}, epoch: 0, batch: {i}, avg loss: "
        "8.05, normalized loss: 6.6, ppl: 3154.8, avg_speed: 2.00 step/s, batch_cost: 0.50000 "
        "sec, reader_cost: 0.00015 sec, tokens: 454782, ips: 512.00000 words/sec",
        512.0,
    ),
    "Paddle in MLPerf": (
        "Train Pass 1, batch {k}, rtime 0.1374, time 0.5000, speed 512.00",
        512.0,
    ),
    "PaddleSeg": (
        "2023-07-27 12:54:51 [INFO]\t[TRAIN] epoch: 1, iter: {k}/400, loss: 2.2545, lr: 0.009, "
        "batch_cost: 0.5000, reader_cost: 0.21506, ips: 512.0000 samples/sec | ETA 00:07:04",
        512.0,
    ),
    "PaddleDetection": (
        "[03/02 10:00:00] ppdet.engine INFO: Epoch: [0] [ {i}/916] learning_rate: 0.001 loss: "
        "2.5 eta: 1:00:00 batch_cost: 0.5000 data_cost: 0.0100 ips: 512.0000 images/s",
        512.0,
    ),
    "PaddleNLP Trainer": (
        "[2022-08-31 16:19:16,008] [    INFO] - loss: 3.25, learning_rate: 2.9e-05, "
        "global_step: {k}, interval_runtime: 5.0, epoch: 0.0265",
        None,
    ),
    "MXNet Speedometer": (
        "2026-03-02 10:00:00,000 Node[0] Epoch[0] Batch [{i}]\tSpeed: 512.00 samples/sec",
        512.0,
    ),
    "TensorFlow official models": (
        "I0826 17:46:24.366020 1 keras_utils.py:133] TimeHistory: 5.00 seconds, 512.00 "
        "examples/second between steps {before} and {k}",
        512.0,
    ),
    "mmcv": (
        "2022-02-10 06:19:58,449 - mmseg - INFO - Iter [{k}/400]\tlr: 9.1e-03, eta: 0:01:10, "
        "time: 0.500, data_time: 0.015, memory: 19355, decode.loss_ce: 2.7, loss: 3.7917",
        None,
    ),
    "mmcv, JSON lines": (
        '{{"mode": "train", "epoch": 1, "iter": {k}, "lr": 0.1, "data_time": 0.01, '
        '"loss": 3.5, "time": 0.5}}',
        None,
    ),
    "detectron2, JSON lines": (
        '{{"data_time": 0.01, "iteration": {i}, "lr": 0.1, "time": 0.5, "total_loss": 3.5}}',
        None,
    ),
    "Megatron-LM": (
        " [2026-03-02 10:00:00] iteration {k}/ 500 | consumed samples: 2560 | elapsed time per "
        "iteration (ms): 500.0 | learning rate: 1.0E-04 | global batch size: 256 | lm loss: "
        "1.0E+01 |",
        None,
    ),
    "timm": (
        "Train: 0 [ {i}/1251 (  1%)]  Loss: 6.97 (6.97)  Time: 0.500s,  512.00/s  (0.5s, "
        "512.0/s)  LR: 1.0e-05  Data: 0.010 (0.020)",
        512.0,
    ),
    "GNMT (NVIDIA)": (
        "0: TRAIN [0][{i}/3880]\tTime 0.500 (0.600)\tData 2.1e-04 (1.0e-03)\tTok/s 512 (500)\t"
        "Loss/tok 8.0 (9.0)\tLR 2.0e-03",
        512.0,
    ),
    "Transformer-XL": (
        "| epoch   1 step {k} | batches {k} / 99 | lr 1.0e-04 | ms/batch 500.0 | tok/s 512 | "
        "loss  6.50 | ppl 665.1",
        512.0,
    ),
}
"""Format -> a print of it every tenth step ({k} from 1, {i} from 0), 0.5 s a step; its rate."""


@pytest.mark.parametrize("name", PRINTS)
def test_the_prints_of_a_format_are_read_with_its_semantics(read, name):
    line, rate = PRINTS[name]
    form = next(one for one in FORMATS if one.name == name)
    every = 1 if form.semantics.covers == "step" else 10
    steps = range(every, 151, every)
    texts = [line.format(k=k, i=k - 1, before=k - every) for k in steps]
    # What counts from 0 and prints at multiples of its interval ends a step later.
    log = read("".join(f"{one}\n" for one in texts))
    assert log.format == name
    assert [*log.windows["last"]] == [*steps]
    seconds = log.windows["seconds"] / (log.windows["last"] - log.windows["first"] + 1)
    if np.isfinite(seconds).any():
        assert seconds[1:].to_numpy() == pytest.approx(0.5, rel=1e-6)
    if rate:
        assert log.windows["rate"].to_numpy() == pytest.approx(rate)


def test_a_print_that_says_where_it_begins_covers_its_steps_also_alone_or_after_a_lost_print(
    read,
):
    line, _rate = PRINTS["TensorFlow official models"]
    for ends in ([10], [10, 40]):
        texts = [line.format(before=k - 10, k=k) for k in ends]
        log = read("".join(f"{one}\n" for one in texts))
        assert [*log.windows["first"]] == [k - 9 for k in ends]
        assert [*log.windows["last"]] == ends
        assert log.windows["seconds"].to_numpy() == pytest.approx(5.0)


def test_every_format_of_lines_is_tried_by_a_test():
    folder = reader.Path(__file__).parent
    code = "".join(path.read_text() for path in folder.glob("test_log*.py"))
    names = [re.sub("^NVIDIA DLLogger('s file)?, (PyTorch )?", "", one.name) for one in FORMATS]
    assert [name for name in names if name not in code] == []


MLPERF = {
    "v0.5": ":::MLPv0.5.0 resnet {at:.3f} (train.py:1) {key}{value}",
    "v0.6": ':::MLL {at:.3f} {key}: {{"value": {json}, "metadata": {{"lineno": 1}}}}',
    "v1.1": ':::MLLOG {{"namespace": "", "time_ms": {ms}, "event_type": "POINT_IN_TIME", '
    '"key": "{key}", "value": {json}, "metadata": {{"epoch_num": 1}}}}',
}


@pytest.mark.parametrize("version", MLPERF)
def test_mlperf_tells_time_to_train_and_epochs_as_windows(read, version):
    events = [(0, "submission_benchmark", "resnet"), (1, "global_batch_size", 1000)]
    events += [(1, "train_samples", 40_000)] * (version != "v0.5")
    events += [(10, "run_start", None), (10, "block_start", None)]
    for epoch in range(4):
        events += [
            (12 + 10 * epoch, "epoch_start", None),
            (20 + 10 * epoch, "epoch_stop", None),
        ]
    events += [(52, "block_stop", None), (70, "run_stop", None)]
    lines = [
        MLPERF[version].format(
            at=at,
            ms=1000 * at,
            key=key,
            json=json.dumps(value),
            value=f": {value}" if value else "",
        )
        for at, key, value in events
    ]
    log = read("".join(f"{line}\n" for line in lines))
    shown = {one.name: one.value for one in log.reported}
    samples = 40_000 if version != "v0.5" else 1_281_167
    assert shown["time to train, minutes"] == pytest.approx(1.0)
    assert shown["samples / time of all blocks"] == pytest.approx(4 * samples / 42)
    assert shown["samples / time of all epochs"] == pytest.approx(4 * samples / 32)
    assert facts(log)["model"] == "resnet50" and len(log.windows) == 4
    assert log.windows["rate"].to_numpy() == pytest.approx(samples / 8)


def test_mlperf_events_that_every_process_logs_count_once(read):
    events = [(1, "train_samples", 1000), (1, "global_batch_size", 10), (10, "block_start", 0)]
    for epoch in range(2):
        events += [(10 + 10 * epoch, "epoch_start", 0), (20 + 10 * epoch, "epoch_stop", 0)]
    # The second block was not ended.
    events += [(30, "block_stop", 0), (30, "block_start", 0), (40, "epoch_stop", 0)]
    lines = [
        MLPERF["v1.1"].format(at=at, ms=1000 * at, key=key, json=value, value=value)
        for at, key, value in events
        for _process in range(8)
    ]
    shown = {one.name: one.value for one in read("\n".join(lines)).reported}
    assert shown["samples / time of all epochs"] == pytest.approx(100.0)
    assert shown["samples / time of all blocks"] == pytest.approx(100.0)


TRAINER = (
    "[2022-08-31 16:19:16,008] [ INFO] - loss: 3.2, global_step: {}, interval_runtime: {}\n"
)


def test_a_time_since_the_last_print_is_of_all_steps_since_then(read):
    prints = [(100, 10.0), (200, 10.0), (300, 10.0), (400, 10.0), (410, 1.0)]
    windows = read("".join(TRAINER.format(*one) for one in prints)).windows
    assert [*windows["last"] - windows["first"] + 1] == [100, 100, 100, 100, 10]
    assert windows["seconds"].sum() == 41.0
    # What an only print is since is unknown.
    assert read(TRAINER.format(1000, 10.0)).windows.empty


def test_waits_that_contradict_their_time_are_no_share():
    assert share_of(0.5, 2.0) == 0.25
    assert [share_of(*both) for both in ((2.0, 1.0), (-1.0, 1.0), (1.0, 0.0))] == [None] * 3


def test_a_file_of_more_lines_than_memory_has_room_for_is_refused(write, monkeypatch):
    monkeypatch.setattr(reader, "MOST_LINES", 10)
    with pytest.raises(LogError, match="has over 10 lines; give a part of it"):
        read_logs(write("\n" * 11))


@pytest.mark.parametrize(
    "text",
    [
        "model,train_samples_per_sec\nx\ry,5\n",
        ':::MLLOG {"time_ms": 1' + 400 * "0" + ', "key": "train_samples", "value": 1}\n',
        "model,train_samples_per_sec\nx,1e308\ny,1e-320\n",
        "10\timages/sec: 1e-308 +/- 0.0 (jitter = 0.0)\t7.1\n" * 3,
    ],
)
def test_numbers_that_no_training_has_end_no_audit(write, text, tmp_path):
    found = audit([write(text, "odd.log")])
    assert len(found.logs) + len(found.left_out) == 1
    assert type(found).model_validate_json(found.model_dump_json()) == found


def test_mlperfs_bert_is_bert_large_whatever_the_file_is_called(read):
    value = '"key": "submission_benchmark", "value": "bert", "metadata": {}}'
    events = (
        f':::MLLOG {{"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", {value}\n'
    )
    log = read(events + speedometer(100.5), "bert_8gpu.txt")
    assert facts(log)["model"] == "bert-large"


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        (
            "timm, CSV",
            "model,train_samples_per_sec,train_step_time,train_batch_size\n"
            "resnet50,800.5,320.1,256\nvgg16,400.25,640.2,256\n",
            [
                ("resnet50 train_samples_per_sec", 800.5),
                ("vgg16 train_samples_per_sec", 400.25),
            ],
        ),
        (
            "optimum-benchmark, CSV",
            "config.name,report.train.throughput.value,report.train.latency.mean\n"
            "x,120.5,0.06\n",
            [("report.train.throughput.value", 120.5)],
        ),
        (
            "optimum-benchmark",
            json.dumps(
                {
                    "run": {
                        "config": {"backend": {"name": "pytorch"}},
                        "report": {"train": {"throughput": {"value": 120.5}}},
                    }
                }
            ),
            [("train throughput", 120.5)],
        ),
        (
            "torchbench",
            json.dumps(
                {
                    "name": "x",
                    "environ": {},
                    "metrics": {"a, metric=latencies": 5.5, "b": "err"},
                }
            ),
            [("a, metric=latencies", 5.5)],
        ),
    ],
)
def test_tables_and_nested_reports_are_read(read, name, text, values):
    log = read(text, "x.csv")
    assert log.format == name
    assert [(one.name, one.value) for one in log.reported] == values


def test_a_file_that_reports_no_throughput_shows_what_it_reports(write):
    metrics = {"a, metric=latencies": 22.690467}
    path = write(json.dumps({"name": "x", "environ": {}, "metrics": metrics}), "bench.json")
    done = CliRunner().invoke(main, ["audit", str(path)])
    assert "22.690467" in " ".join(done.stdout.split())


# A format that the user gives.


def mine(count=15):
    return "".join(f"it {10 * k} | 25.0 ms | 1024.0 img/s\n" for k in range(1, count + 1))


def test_an_unknown_log_is_read_by_a_format_that_is_given(write):
    regex = r"it <step> \| <milliseconds> ms \| <rate> img/s"
    words = ["audit", str(write(mine())), "--format-regex", regex, "--format-options"]
    done = CliRunner().invoke(main, [*words, "rate_of=all reader=in unit=images/s"])
    assert done.exit_code == 0, done.output
    assert re.search(r"samples / time +steps 21–120, 10 lines +1024\.000", done.stdout)


def test_the_command_that_imports_a_log_again_has_the_format_that_was_given(write, tmp_path):
    regex, options = r"it <step> \| <milliseconds> ms \| <rate> img/s", "rate_of=all reader=in"
    known = {"model": "resnet50", "framework": "paddle", "precision": "fp32", "nodes": "1"}
    known |= {"accumulate": "1", "input": "dali", "device": "gpu"}
    known |= {"gpus": "1", "batch_size": "26"}
    path = write(mine())
    measurement = import_logs([path], known, tmp_path, user_format(regex, options))
    words = shlex.split(command(measurement.result))
    assert words[words.index("--format-regex") + 1] == regex
    assert words[words.index("--format-options") + 1] == options
    assert {words[k + 1]: words[k + 2] for k, w in enumerate(words) if w == "-p"} == known


def test_a_line_of_braces_takes_no_longer_than_another_line(write):
    path = write(("{" * 99_000 + '"data"\n') * 3)
    began = time.process_time()
    with pytest.raises(LogError):
        read_logs(path)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("regex", "options", "why"),
    [
        ("(", "", "--format-regex: "),
        ("<step> <speed>", "", "no group speed; there are rank, epoch, step"),
        ("<rate>", "rate_of=all", "needs a group `step`"),
        ("<step> <rate>", "", "whose is the rate"),
        ("<step> <rate>", "rate_of=me", "rate_of"),
        ("<step> <rate>", "speed=1", "there are rate_of, covers"),
    ],
)
def test_a_format_that_is_none_is_refused_with_what_is_allowed(regex, options, why):
    with pytest.raises(FormatError, match=re.escape(why)):
        user_format(regex, options)


# Files.


@pytest.mark.parametrize("packed", [gzip.compress, lzma.compress])
def test_packed_files_are_read(read, packed):
    assert len(read(packed(paddleclas_static(STEADY).encode()), "x.log.gz").windows) == 14


@pytest.mark.parametrize(
    ("head", "why"), [(b"PK\x03\x04", "a zip archive"), (b"BZh9", "compressed by bzip2")]
)
def test_archives_are_named(read, head, why):
    with pytest.raises(LogError, match=why):
        read(head + b"x" * 100)


def test_a_damaged_packed_file_is_an_error_that_names_it(read):
    with pytest.raises(LogError, match=r"some\.log"):
        read(gzip.compress(b"x" * 1000)[:-20])


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    for path in (tmp_path / "pipe", reader.Path("/dev/zero")):
        with pytest.raises(LogError, match="no regular file"):
            read_logs(path)
    assert time.monotonic() - began < 5


def test_a_claim_with_odd_commas_and_a_tolerance_that_is_none_are_refused(write):
    path = write(paddleclas_static(STEADY))
    for words, why in (
        (["--claim", "2602,629"], None),
        (["--claim", "2602,62"], "type it as it is printed"),
        (["--claim", "26,02,629"], "type it as it is printed"),
        (["--tolerance", "nan"], "nan"),
    ):
        done = CliRunner().invoke(main, ["audit", str(path), *words])
        assert done.exit_code == 2, words
        assert why is None or why in " ".join(done.stderr.split())
    with pytest.raises(AuditError, match="no share"):
        audit([path], tolerance=float("nan"))


def test_an_unknown_suite_is_told_all_that_are_known(write):
    done = CliRunner().invoke(main, ["audit", str(write("nothing that is known\n"))])
    said = " ".join(done.stdout.split())
    assert "tf_cnn_benchmarks" in said and "optimum-benchmark, CSV" in said


def test_a_log_that_begins_with_a_printed_dict_is_read(read):
    log = read("{'alpha': 0.6,\n 'batch_size': 5120}\n" + paddleclas_static(STEADY))
    assert len(log.windows) == 14


# Imported measurements.


def test_the_page_of_an_imported_measurement_has_the_findings(write, tmp_path):
    text = paddleclas_static(STEADY).replace("top5: -0.0039", "top5:  0.0039")
    path = write(text.replace("top1:  0.0000", "top1: -0.5000", 2), "x_bs32_fp32_DP_N1C8_log")
    given = {"model": "resnet50", "accumulate": "1", "device": "gpu", "input": "dali"}
    measurement = import_logs([path], given, tmp_path / "out")
    assert "negative_accuracy" in {one.code for one in measurement.result.imported.findings}
    write_measurement(measurement)
    page = (measurement.folder / "report.html").read_text()
    assert "printed accuracies are negative" in page
    assert "打印的准确率为负" in (measurement.folder / "report.zh.html").read_text()


# Damaged and hostile files.


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_in_a_file_is_read_or_named(tmp_path, data):
    prints = [
        line.format(k=k, i=k, before=k) for line, _rate in PRINTS.values() for k in (1, 2)
    ]
    pieces = [*prints, convnets(), two_trainings(), "{", "a,b\n1,2", "\r", "\0"]
    lines = data.draw(st.lists(st.sampled_from(pieces), max_size=12))
    text = "\n".join(lines)
    for _ in range(data.draw(st.integers(0, 3))):
        begin = data.draw(st.integers(0, len(text)))
        text = text[:begin] + data.draw(st.text(max_size=3)) + text[begin + 5 :]
    path = tmp_path / "x.log"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = audit([path], tables=["perf-resnet50"])
    assert len(found.logs) or len(found.left_out) == 1


# Speed.


def test_no_expression_takes_long_over_a_text_made_for_it():
    """What begins like a print, again and again without end."""
    texts = [
        "epoch:0 train step:1 " * 4000,
        "DLL 2026-03-02 00:00:00 - Epoch: 0 Iteration: 1 " * 2000,
        '{"data": {"step": ' * 4000,
        "Namespace(" * 8000,
        ":::MLLOG {" * 8000,
        "LAUNCH INFO " * 8000,
        "Epoch[0] Batch [0-19" * 4000,
    ]
    began = time.monotonic()
    for text in texts:
        for form in FORMATS:
            form.line.search(text)
        for pattern in TEXT:
            pattern.pattern.search(text)
    assert time.monotonic() - began < 20
