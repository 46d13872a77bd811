"""Logs of other suites: what is read from them, and what becomes of broken ones."""

import gzip
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from perfkit.logs import config_facts, documents, mlperf, reader
from perfkit.logs.formats import FORMATS
from perfkit.logs.log import Log, LogError
from perfkit.logs.reader import read_logs
from perfkit.logs.wording import sentence
from perfkit.messages import Message

BATCH, RANKS = 32, 4
STEP_SECONDS = some.lists(some.floats(0.05, 5.0), min_size=25, max_size=80)
"""Long enough for prints every 10 steps, and for the means that begin at step 5."""
START = datetime(2026, 3, 1, 23, 59, 30, tzinfo=UTC).timestamp()


def clock(seconds: float, form: str = "%Y-%m-%d %H:%M:%S.%f") -> str:
    return datetime.fromtimestamp(START + seconds, UTC).strftime(form)


def printed(step_count: int, every: int) -> range:
    """The steps, counted from 1, after which a log prints."""
    return range(every, step_count + 1, every)


def paddleclas_static(seconds: np.ndarray, every: int = 10, epoch: int = 0) -> str:
    rows = []
    for step in printed(len(seconds), every):
        mean = seconds[4 if step > 4 else 0 : step].mean()
        rows.append(
            f"[{clock(seconds[:step].sum(), '%Y/%m/%d %H:%M:%S')}] ppcls INFO: "
            f"epoch:{epoch:<3d} train step:{step:<4d} lr: 0.100000, loss:  7.2072 "
            f"top1:  0.0000 top5: -0.0039 batch_cost: {mean:.5f} s, "
            f"reader_cost: {mean / 4:.5f} s, ips: {BATCH / mean:.5f} samples/sec."
        )
    return "\n".join(rows) + "\n"


def paddleclas_dynamic(
    seconds: np.ndarray, every: int = 10, epoch: int = 1, *, running: bool = False
) -> str:
    rows, begin = [], 0
    for step in range(1, len(seconds) + 1, every):
        begin = 5 if step > 5 and (running or begin < 5) else begin
        mean = seconds[begin:step].mean()
        rows.append(
            f"[{clock(seconds[:step].sum(), '%Y/%m/%d %H:%M:%S')}] ppcls INFO: [Train]"
            f"[Epoch {epoch}/8][Iter: {step - 1}/625]lr(Piecewise): 0.10000000, top1: 0.00000, "
            f"CELoss: 7.20720, loss: 7.20720, batch_cost: {mean:.5f}s, reader_cost: "
            f"{mean / 4:.5f}, ips: {BATCH / mean:.5f} samples/s, eta: 0:12:13"
        )
        begin = step if not running else begin
    return "\n".join(rows) + "\n"


def paddlenlp_bert(seconds: np.ndarray, every: int = 10, *, both: bool = False) -> str:
    rows = []
    for step in printed(len(seconds), every):
        mean = seconds[step - every : step].mean()
        reader = mean / (step % 7 + 3)
        rate = BATCH / (mean + reader if both else mean)
        rows.append(
            f"to{'b' if both else 't'}al step: {step}, epoch: 0, batch: {step - 1}, loss: "
            f"11.088567, avg_reader_cost: {reader:.5f} sec, avg_batch_cost: {mean:.5f} sec, "
            f"avg_samples: {BATCH:.5f}, ips: {rate:.5f} sequences/sec"
        )
    return "\n".join(rows) + "\n"


def paddle18(seconds: np.ndarray) -> str:
    return "".join(
        f"{clock(seconds[: step + 1].sum(), '%Y-%m-%d %H:%M:%S,%f')[:-3]}-INFO: [Pass 0, train "
        f"batch {step}] \tloss 7.08124, acc1 0.00000, acc5 0.00781, lr 0.10000, elapse "
        f"{seconds[step]:2.4f} sec\n"
        for step in range(len(seconds))
    )


def fleetx(seconds: np.ndarray) -> str:
    return "".join(
        f"epoch id: 0, step{step}, train_loss: 6.907755, total time cost = "
        f"{seconds[11 : step + 1].sum():f}, step per second: "
        f"{(step - 10) / seconds[11 : step + 1].sum():f}, speed: {1 / seconds[step]:f}\n"
        for step in range(11, len(seconds))
    )


def oneflow(seconds: np.ndarray, every: int = 10) -> str:
    return "".join(
        f"train: epoch 0, iter {step}, loss: 7.087004, top_1: 0.000000, top_k: 0.000000, "
        f"samples/s: {BATCH * RANKS * every / seconds[step - every : step].sum():.3f} "
        f"{START + seconds[:step].sum():.7f}\n"
        for step in printed(len(seconds), every)
    )


def tf_cnn(seconds: np.ndarray, every: int = 10) -> str:
    rows = [
        f"{step}\timages/sec: {BATCH * 1000 / seconds[:step].mean():.1f} +/- 1.2 (jitter = 3.4)"
        "\t7.123\n"
        for step in printed(len(seconds), every)
    ]
    return "".join(rows) + f"total images/sec: {BATCH * 1000 / seconds.mean():.2f}\n"


@dataclass(frozen=True)
class Suite:
    """How one of NVIDIA's scripts names a step in the text form and in the file form, and what
    it tells of it, where `rate` is of all ranks."""

    text: Callable[[int], str]
    step: Callable[[int], object]
    data: Callable[[float, float], dict[str, float]]
    every: int = 1


def in_epoch(step: int) -> str:
    return f"Epoch: 0 Iteration: {step} "


SUITES = {
    "PaddlePaddle ResNet-50": Suite(
        in_epoch,
        lambda step: [0, step],
        lambda rate, second: {
            "train.loss": 7.1,
            "train.top1": 0.0,
            "train.top5": 0.01,
            "train.data_time": second / 4,
            "train.compute_time": second * 3 / 4,
            "train.batch_time": second,
            "train.ips": rate,
            "train.lr": 0.1,
        },
    ),
    "PyTorch ConvNets": Suite(
        in_epoch,
        lambda step: [0, step],
        lambda rate, second: {
            "train.loss": 7.00134,
            "train.compute_ips": rate * 1.01,
            "train.total_ips": rate,
            "train.lr": 0.1,
        },
    ),
    "TensorFlow ConvNets": Suite(
        lambda step: f"(0, {step - 1})",
        lambda step: [0, step - 1],
        lambda rate, second: {"total_ips": rate},
    ),
    "MXNet ResNet-50": Suite(
        lambda step: in_epoch(step - 1),
        lambda step: [0, step - 1],
        lambda rate, second: {"train.loss": 6.9, "train.ips": rate, "train.lr": 0.48},
        every=20,
    ),
    "TensorFlow BERT": Suite(
        lambda step: f"Iteration: {step} ",
        lambda step: step,
        lambda rate, second: {
            "throughput_train": rate,
            "mlm_loss": 10.4,
            "nsp_loss": 0.7,
            "total_loss": 11.1,
            "learning_rate": 0.0,
        },
        every=5,
    ),
}


def dllogger_text(suite: Suite, seconds: np.ndarray, every: int) -> str:
    rows = []
    for step in printed(len(seconds), every):
        second = seconds[step - every : step].mean()
        data = suite.data(BATCH * RANKS / second, second)
        figures = " ".join(f"{name} : {value} " for name, value in data.items())
        rows.append(f"DLL {clock(seconds[:step].sum())} - {suite.text(step)} {figures}\n")
    return "".join(rows)


def dllogger_file(suite: Suite, seconds: np.ndarray, every: int) -> str:
    rows = []
    for step in printed(len(seconds), every):
        second = seconds[step - every : step].mean()
        record = {
            "timestamp": str(START + seconds[:step].sum()),
            "datetime": clock(seconds[:step].sum()),
            "elapsedtime": str(seconds[:step].sum()),
            "type": "LOG",
            "step": suite.step(step),
            "data": suite.data(BATCH * RANKS / second, second),
        }
        rows.append(f"DLLL {json.dumps(record)}\n")
    return "".join(rows)


def read(tmp_path: Path, text: str | bytes, name: str = "some.log") -> Log:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (log,) = read_logs(path)
    return log


def rows_of(log: Log) -> np.ndarray:
    return log.windows.to_records(index=False)


def steps_of(rows: np.ndarray) -> np.ndarray:
    return rows["last"] - rows["first"] + 1


def seconds_by_rates(rows: np.ndarray, samples: int) -> np.ndarray:
    return steps_of(rows) * samples / rows["own_rate"]


def true_seconds(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    return np.array([seconds[row["first"] - 1 : row["last"]].sum() for row in rows])


anything = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@anything
@given(STEP_SECONDS, some.integers(1, 10))
def test_windows_of_paddleclas_static_are_recovered_from_its_running_means(
    tmp_path: Path, times: list[float], every: int
) -> None:
    seconds = np.array(times)
    log = read(tmp_path, paddleclas_static(seconds, every))
    rows = rows_of(log)
    assert log.format == "PaddleClas, static graph"
    assert [*rows["last"]] == [*printed(len(seconds), every)]
    assert rows["first"][0] == (1 if every < 5 else 5)
    # The digits: each sum is its print's mean, to 5 places, times its steps.
    assert np.all(
        np.abs(rows["seconds"] - true_seconds(rows, seconds)) <= 1.01e-5 * rows["last"]
    )
    assert np.all(np.abs(rows["reader"] - rows["seconds"] / 4) <= 1.5e-5 * rows["last"])
    by_rates = seconds_by_rates(rows, BATCH)
    assert by_rates == pytest.approx(true_seconds(rows, seconds), abs=2e-6 * seconds.sum())


@anything
@given(STEP_SECONDS, some.integers(1, 10))
def test_windows_of_paddleclas_dynamic_come_back(
    tmp_path: Path, times: list[float], every: int
) -> None:
    seconds = np.array(times)
    log = read(tmp_path, paddleclas_dynamic(seconds, every))
    rows = rows_of(log)
    assert log.format == "PaddleClas, dynamic graph"
    assert (log.semantics.covers, log.semantics.since) == ("window", 6)
    assert rows["seconds"] == pytest.approx(true_seconds(rows, seconds), abs=0.51e-5 * every)


def test_the_clock_tells_whether_paddleclas_dynamic_begins_its_means_anew(
    tmp_path: Path,
) -> None:
    seconds = np.linspace(1.0, 3.0, 101)
    windowed = read(tmp_path, paddleclas_dynamic(seconds))
    assert windowed.semantics.covers == "window"
    running = read(tmp_path, paddleclas_dynamic(seconds, running=True))
    assert (running.semantics.covers, running.semantics.restarts) == ("running", False)
    for log in (windowed, running):
        rows = rows_of(log)
        assert [*rows["first"][:3]] == [1, 6, 12] and [*rows["last"][:3]] == [1, 11, 21]
        assert rows["seconds"] == pytest.approx(true_seconds(rows, seconds), abs=1e-3)


def test_a_mean_over_two_epochs_is_of_no_known_steps(tmp_path: Path) -> None:
    seconds = np.linspace(1.0, 3.0, 101)
    epochs = [paddleclas_dynamic(seconds, epoch=epoch, running=True) for epoch in (1, 2)]
    rows = rows_of(read(tmp_path, "".join(epochs)))
    assert [*rows[rows["epoch"] == 1]["last"][:2]] == [1, 11]
    assert [*rows[rows["epoch"] == 2]["last"][:2]] == [11, 21]


@anything
@given(STEP_SECONDS, some.integers(2, 10), some.booleans())
def test_windows_of_paddlenlp_come_back(
    tmp_path: Path, times: list[float], every: int, both: bool
) -> None:
    seconds = np.array(times)
    log = read(tmp_path, paddlenlp_bert(seconds, every, both=both))
    rows = rows_of(log)
    assert log.format == "PaddleNLP BERT, static graph" and log.semantics.step == "batch"
    assert log.semantics.reader == (None if both else "in")
    assert rows["seconds"] == pytest.approx(true_seconds(rows, seconds), abs=0.51e-5 * every)
    assert log.facts["batch_size"].value == BATCH


def test_a_new_file_of_paddlenlps_data_set_begins_new_means(tmp_path: Path) -> None:
    text = paddlenlp_bert(np.full(30, 0.5)).replace("batch: 19,", "batch: 3,")
    rows = rows_of(read(tmp_path, text))
    assert [(row["first"], row["last"]) for row in rows] == [(1, 10), (17, 20), (21, 30)]


@anything
@given(STEP_SECONDS)
def test_paddle_1_8_tells_of_the_last_step_alone(tmp_path: Path, times: list[float]) -> None:
    seconds = np.array(times)
    log = read(tmp_path, paddle18(seconds))
    rows = rows_of(log)
    assert log.format == "Paddle 1.8 (DLPerf)"
    assert [*rows["first"]] == [*rows["last"]] == [*range(1, len(seconds) + 1)]
    assert rows["seconds"] == pytest.approx(seconds, abs=0.51e-4)
    passed = rows["at"][-1] - rows["at"][0]
    assert passed == pytest.approx(seconds[1:].sum(), abs=2e-3)


@anything
@given(STEP_SECONDS)
def test_fleetx_tells_steps_per_second(tmp_path: Path, times: list[float]) -> None:
    seconds = np.array(times)
    log = read(tmp_path, fleetx(seconds))
    rows = rows_of(log)
    assert log.format == "FleetX trainer"
    assert [*rows["first"]] == [*rows["last"]] == [*range(12, len(seconds) + 1)]
    assert rows["seconds"] == pytest.approx(seconds[11:], rel=1e-5)
    assert np.isnan(rows["rate"]).all()


@anything
@given(STEP_SECONDS, some.integers(1, 10))
def test_windows_of_oneflow_come_back(tmp_path: Path, times: list[float], every: int) -> None:
    seconds = np.array(times)
    log = read(tmp_path, oneflow(seconds, every))
    rows = rows_of(log)
    assert log.format == "OneFlow (DLPerf)"
    by_rates = seconds_by_rates(rows, BATCH * RANKS)
    assert by_rates == pytest.approx(true_seconds(rows, seconds), rel=1e-4)
    passed = rows["at"][-1] - rows["at"][0]
    assert passed == pytest.approx(seconds[every : rows["last"][-1]].sum(), abs=1e-5)


@anything
@given(STEP_SECONDS, some.integers(1, 10))
def test_tf_cnn_benchmarks_tells_a_running_mean(
    tmp_path: Path, times: list[float], every: int
) -> None:
    seconds = np.array(times)
    log = read(tmp_path, tf_cnn(seconds, every))
    rows = rows_of(log)
    assert log.format == "tf_cnn_benchmarks"
    total = seconds_by_rates(rows, BATCH * 1000).sum()
    assert total == pytest.approx(seconds[: rows["last"][-1]].sum(), rel=1e-4)
    (told,) = log.reported
    assert (told.name, told.unit) == ("total images/sec", "samples/s")
    assert told.value == pytest.approx(BATCH * 1000 / seconds.mean(), abs=0.01)


@pytest.mark.parametrize("writes", [dllogger_text, dllogger_file])
@pytest.mark.parametrize("name", SUITES)
@anything
@given(times=STEP_SECONDS)
def test_rates_of_dllogger_come_back(
    tmp_path: Path,
    times: list[float],
    name: str,
    writes: Callable[[Suite, np.ndarray, int], str],
) -> None:
    seconds, suite = np.array(times), SUITES[name]
    log = read(tmp_path, writes(suite, seconds, suite.every))
    rows = rows_of(log)
    assert log.format.endswith(name) and log.semantics.rate_of == "all"
    assert [*rows["last"]] == [*printed(len(seconds), suite.every)]
    by_rates = seconds_by_rates(rows, BATCH * RANKS)
    assert by_rates == pytest.approx(true_seconds(rows, seconds))
    assert np.diff(rows["at"]) == pytest.approx(true_seconds(rows, seconds)[1:], abs=3e-6)
    assert not log.notes


def test_a_mean_of_the_rates_of_several_steps_gives_no_time(tmp_path: Path) -> None:
    """Its harmonic mean would be samples by time; its arithmetic one is not."""
    log = read(tmp_path, dllogger_text(SUITES["PyTorch ConvNets"], np.ones(40), 10))
    rows = rows_of(log)[1:]
    assert np.isnan(rows["own_rate"]).all() and np.isfinite(rows["rate"]).all()


def test_an_iteration_that_is_printed_again_is_a_step_more(tmp_path: Path) -> None:
    seconds, suite = np.arange(1.0, 7.0), SUITES["TensorFlow BERT"]
    text = dllogger_text(suite, seconds, 1)
    for step in (2, 3):
        text = text.replace(f"Iteration: {step} ", "Iteration: 1 ")
    rows = rows_of(read(tmp_path, text))
    assert [*rows["last"]] == [1, 2, 3, 6, 7, 8] and not rows["run"].any()
    assert [*steps_of(rows)] == [1] * 6


def test_pytorchs_bert_tells_steps_only_by_its_clock(tmp_path: Path) -> None:
    text = "".join(
        f"DLL {clock(10 * step)} - Training Epoch: 0 Training Iteration: {step}  "
        f"average_loss : {11 - step} learning_rate : 0.001\n"
        for step in range(1, 6)
    ) + (
        f"DLL {clock(70)} -  e2e_train_time : 61.5 s training_sequences_per_second : "
        "639.1604066135353 sequences/s final_loss : 8.557 None raw_train_time : 60.0 s\n"
    )
    log = read(tmp_path, text)
    rows = rows_of(log)
    assert np.diff(rows["at"]) == pytest.approx(10) and np.isnan(rows["rate"]).all()
    assert {told.name: (told.value, told.unit) for told in log.reported} == {
        "e2e_train_time": (61.5, "s"),
        "training_sequences_per_second": (639.1604066135353, "samples/s"),
        "final_loss": (8.557, ""),
        "raw_train_time": (60.0, "s"),
    }


def test_what_a_log_tells_itself_is_told(tmp_path: Path) -> None:
    suite = SUITES["MXNet ResNet-50"]
    text = "".join(
        f"[1,0]<stdout>:{line}\n"
        for line in [
            *dllogger_text(suite, np.ones(40), 20).splitlines(),
            f"DLL {clock(41)} - Epoch: 0  train.loss : 6.9  train.ips : 127.5 images/s",
            f"DLL {clock(42)} - Summary: train.ips : 127.25 images/s val.ips : 99.0 images/s",
        ]
    )
    text += "train.ips\n           |    128    |\n" + "-" * 24 + "\n     1     |   127.5   |\n"
    log = read(tmp_path, text)
    rates = [(told.name, told.text, told.line) for told in log.reported if told.unit]
    assert rates == [
        ("Epoch: 0 train.ips", "127.5", 3),
        ("Summary train.ips", "127.25", 4),
        ("closing table train.ips", "127.5", 8),
    ]
    assert set(rows_of(log)["rank"]) == {0}


def test_the_end_of_an_epoch_is_told(tmp_path: Path) -> None:
    text = paddleclas_static(np.ones(20)) + (
        "[2026/03/02 00:00:00] ppcls INFO: END epoch:0   train  loss:  5.6825 top1:  0.0565 "
        "batch_cost: 0.18677 s, reader_cost: 0.00070 s, batch_cost_sum: 163.42611 s,\n"
    )
    (told,) = read(tmp_path, text).reported
    assert told.name == "END epoch:0 batch_cost_sum"
    assert (told.value, told.text, told.line, told.unit) == (163.42611, "163.42611", 3, "s")


def test_mlperf_tells_figures_but_no_steps(tmp_path: Path) -> None:
    events = [
        (1000, "global_batch_size", 4096, {}),
        (2000, "run_start", None, {}),
        (9000, "tracked_stats", {"throughput": 21234.5}, {"step": 1000}),
        (9500, "run_stop", None, {"status": "success"}),
    ]
    text = "".join(
        ":::MLLOG "
        + json.dumps(
            {
                "namespace": "",
                "time_ms": time_ms,
                "event_type": "POINT_IN_TIME",
                "key": key,
                "value": value,
                "metadata": metadata,
            }
        )
        + "\n"
        for time_ms, key, value, metadata in events
    )
    log = read(tmp_path, text)
    assert log.format == "MLPerf training" and len(log.windows) == 0
    assert log.facts["global_batch_size"].value == 4096
    assert [(told.name, told.value) for told in log.reported] == [
        ("time to train, minutes", 0.125),
        ("tracked_stats throughput", 21234.5),
    ]


@anything
@given(STEP_SECONDS)
def test_every_step_of_optimum_benchmark_comes_back(tmp_path: Path, times: list[float]) -> None:
    latency = {"unit": "s", "values": times, "count": len(times), "total": sum(times)}
    part = {"latency": latency, "throughput": {"unit": "samples/s", "value": 12.5}}
    asked = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    document = {
        "config": {
            "scenario": {"training_arguments": asked},
            "backend": {"name": "pytorch"},
        },
        "report": {"overall": part, "warmup": part, "train": part},
    }
    log = read(tmp_path, json.dumps(document, indent=4), "benchmark.json")
    rows = rows_of(log)
    assert log.format == "optimum-benchmark"
    assert [*rows["seconds"]] == times and [*rows["first"]] == [*range(1, len(times) + 1)]
    assert {told.name for told in log.reported} == {
        "overall throughput",
        "warmup throughput",
        "train throughput",
    }
    assert (log.facts["batch_size"].value, log.facts["accumulate"].value) == (8, 2)
    assert log.facts["framework"].value == "torch"


def test_the_processes_of_optimum_benchmark_are_told_apart(tmp_path: Path) -> None:
    part = {"latency": {"unit": "s", "values": [1.0, 2.0, 3.0, 4.0]}}
    document = {
        "config": {"scenario": {"max_steps": 2}},
        "report": {"overall": part, "warmup": part, "train": part},
    }
    rows = rows_of(read(tmp_path, json.dumps(document)))
    places = [(row["rank"], row["last"], row["seconds"]) for row in rows]
    assert places == [(0, 1, 1.0), (0, 2, 2.0), (1, 1, 3.0), (1, 2, 4.0)]


def test_one_json_object_in_a_line_longer_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    part = {"latency": {"unit": "s", "values": [0.25] * 300_000}}
    text = json.dumps({"report": {"overall": part, "warmup": part, "train": part}})
    log = read(tmp_path, text)
    assert len(text) > 1 << 20 and len(log.windows) == 300_000
    assert "framework" not in log.facts


def test_torchbench_tells_metrics(tmp_path: Path) -> None:
    document = {
        "name": "test_bench",
        "environ": {"gpu": 1},
        "metrics": {"latency": 1.25, "x": "y"},
    }
    log = read(tmp_path, json.dumps(document))
    assert log.format == "torchbench" and len(log.windows) == 0
    assert [(told.name, told.value) for told in log.reported] == [("latency", 1.25)]


# Files as they are found


def test_several_epochs_each_begin_at_step_one(tmp_path: Path) -> None:
    texts = [paddleclas_static(np.full(30, epoch + 1.0), epoch=epoch) for epoch in range(3)]
    rows = rows_of(read(tmp_path, "".join(texts)))
    assert [*rows["epoch"]] == [0] * 3 + [1] * 3 + [2] * 3
    assert [*rows["first"]] == [5, 11, 21] * 3 and not rows["run"].any()
    assert rows["seconds"] == pytest.approx(steps_of(rows) * (rows["epoch"] + 1.0))


def test_a_restart_appended_to_a_file_is_another_run(tmp_path: Path) -> None:
    text = paddleclas_static(np.full(30, 1.0)) + paddleclas_static(np.full(20, 2.0))
    rows = rows_of(read(tmp_path, text))
    assert [*rows["run"]] == [0, 0, 0, 1, 1]
    assert [*rows["first"]] == [5, 11, 21, 5, 11]
    assert rows["seconds"] == pytest.approx([6, 10, 10, 12, 20])


def interleaved(prefixes: list[str], count: int = 40) -> str:
    logs = [oneflow(np.full(count, 1.0 + rank)).splitlines() for rank in range(len(prefixes))]
    together = [zip(prefixes, rows, strict=True) for rows in zip(*logs, strict=True)]
    # Ranks do not always print in the same order.
    return "".join(
        f"{prefix}{line}\n"
        for turn, pairs in enumerate(together)
        for prefix, line in sorted(pairs, reverse=turn % 2 == 1)
    )


@pytest.mark.parametrize("stamp", ["", "Tue Jun 14 15:39:05 2022"])
def test_interleaved_ranks_are_told_apart_by_what_mpirun_puts_before_them(
    tmp_path: Path, stamp: str
) -> None:
    text = interleaved([f"{stamp}[1,{rank}]<stdout>:" for rank in range(3)])
    rows = rows_of(read(tmp_path, text))
    for rank in range(3):
        of_rank = rows[rows["rank"] == rank]
        assert [*of_rank["first"]] == [1, 11, 21, 31] and not of_rank["run"].any()
        assert of_rank["rate"] == pytest.approx(BATCH * RANKS / (1 + rank), abs=1e-3)


def test_interleaved_ranks_without_a_name_are_told_apart(tmp_path: Path) -> None:
    text = interleaved([""] * 3) * 2
    rows = rows_of(read(tmp_path, text))
    assert set(rows["rank"]) == {-1, -2, -3}
    for rank in (-1, -2, -3):
        of_rank = rows[rows["rank"] == rank]
        assert [*of_rank["last"]] == [10, 20, 30, 40] * 2
        assert [*of_rank["first"]] == [1, 11, 21, 31] * 2
        assert [*of_rank["run"]] == [0] * 4 + [1] * 4


def test_a_lost_print_is_not_covered_by_the_next(tmp_path: Path) -> None:
    text = oneflow(np.full(60, 1.0)).replace("iter 30,", "iter \xff0,")
    rows = rows_of(read(tmp_path, text))
    assert [(row["first"], row["last"]) for row in rows] == [
        (1, 10),
        (11, 20),
        (31, 40),
        (41, 50),
        (51, 60),
    ]


def test_a_file_cut_off_at_its_head_claims_no_steps_that_are_not_there(tmp_path: Path) -> None:
    text = "".join(oneflow(np.full(60, 1.0)).splitlines(keepends=True)[3:])
    assert [*rows_of(read(tmp_path, text))["first"]] == [31, 41, 51]


def test_nul_bytes_are_left_out_and_noted(tmp_path: Path) -> None:
    text = paddleclas_static(np.ones(40))
    place = text.index("batch_cost") + 3
    log = read(tmp_path, text[:place] + "\0" * 5000 + text[place:])
    assert [*rows_of(log)["last"]] == [10, 20, 30, 40]
    assert log.notes == [(0, Message("nul_bytes", {"count": 5000}))]


def test_other_encodings_do_no_harm(tmp_path: Path) -> None:
    text = paddleclas_static(np.ones(20))
    noise = "训练开始\n".encode("gb18030") + b"\xff\xfe\x80\n"
    assert read(tmp_path, noise + text.encode() + noise).windows.shape[0] == 2
    assert read(tmp_path, text.encode("utf-16")).windows.shape[0] == 2
    assert read(tmp_path, text.replace("\n", "\r\n")).windows.shape[0] == 2


def test_a_last_line_cut_off_is_noted_and_not_read(tmp_path: Path) -> None:
    log = read(tmp_path, paddleclas_static(np.ones(30))[:-40])
    assert [*rows_of(log)["last"]] == [10, 20]
    assert log.notes == [(3, Message("no_line_end", {}))]


def test_a_number_that_is_none_becomes_nan(tmp_path: Path) -> None:
    text = paddleclas_static(np.ones(30)).replace("loss:  7.2072", "loss:  -.-e", 1)
    rows = rows_of(read(tmp_path, text.replace("2026/03/02", "2026/99/02")))
    assert np.isnan(rows["loss"][0]) and rows["loss"][1] == 7.2072
    assert np.isnan(rows["at"]).any() and rows["accuracy"][0] == -0.0039


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b"\0" * 10, "in no known format"),
        (b"epoch 1: all is well\n" * 1000, "; PaddleClas, static graph; "),
        (b'{"name": ', "begins like JSON, but is not"),
        (b'{"name": 1}', "in no known format"),
        (b"[" * 100_000, "in no known format"),
        (b'{"a":' * 100_000, "begins like JSON, but is not"),
    ],
)
def test_what_can_not_be_read_is_an_error_that_names_the_file(
    tmp_path: Path, text: bytes, said: str
) -> None:
    with pytest.raises(LogError, match=r"some\.log") as caught:
        read(tmp_path, text)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"none\.log: No such file"):
        read_logs(tmp_path / "none.log")
    with pytest.raises(LogError, match="Is a directory"):
        read_logs(tmp_path)


def test_a_line_without_end_is_cut_and_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LONGEST_LINE", 4096)
    text = paddleclas_static(np.ones(20)) + "x" * 50_000 + "\n"
    log = read(tmp_path, text + paddleclas_static(np.ones(20), epoch=1))
    rows = rows_of(log)
    assert [*rows["line"]] == [1, 2, 4, 5]
    assert log.notes == [(3, Message("line_too_long", {"characters": 4096}))]


def test_a_file_that_is_too_large_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LARGEST_BYTES", 2 << 20)
    text = paddleclas_static(np.ones(20)).encode() + b"x" * (3 << 20)
    for content in (text, gzip.compress(text)):
        with pytest.raises(LogError, match="larger than 2 MB"):
            read(tmp_path, content)


def test_no_repetition_in_an_expression_is_without_a_bound() -> None:
    """So that what begins like a print costs time in proportion to its length."""
    patterns = [form.line for form in FORMATS] + [one.pattern for one in config_facts.TEXT]
    for pattern in (*patterns, documents.RECORD, mlperf.MLLOG, mlperf.OLDER):
        bounded = re.sub(r"\\[+*]|\[[^]]*\]|\}\+", "", pattern.pattern)
        assert "*" not in bounded and "+" not in bounded, pattern.pattern


def test_numbers_of_json_that_are_none_or_too_large_do_no_harm(tmp_path: Path) -> None:
    part = {"latency": {"values": [1.5, "x", None, 10**400]}, "throughput": {"value": 10**400}}
    report = {"overall": part, "warmup": part, "train": part}
    document = {"config": {"scenario": {"max_steps": 10**30}}, "report": report}
    rows = rows_of(read(tmp_path, json.dumps(document)))
    assert rows["seconds"] == pytest.approx([1.5, np.nan, np.nan, np.inf], nan_ok=True)
    metrics = {"\ud800": 10**400, "much": True, "x" * 5000: 1.0}
    log = read(tmp_path, json.dumps({"name": "", "environ": {}, "metrics": metrics}))
    assert max(len(told.name) for told in log.reported) == 100
    deep = "DLLL " + '{"a": ' * 3000 + "}" * 3000 + "\n"
    suite = SUITES["TensorFlow ConvNets"]
    assert read(tmp_path, deep + dllogger_file(suite, np.ones(20), 1)).windows.shape[0] == 20


def test_a_fact_that_changes_without_end_is_noted_a_few_times(tmp_path: Path) -> None:
    text = "".join(f"batch_size_per_gpu : {size} \n" for size in range(1, 5000))
    log = read(tmp_path, text + paddleclas_static(np.ones(20)))
    assert log.facts["batch_size"].value == 1 and len(log.notes) == config_facts.CONTRADICTIONS


def test_escapes_and_markup_reach_no_fact(tmp_path: Path) -> None:
    text = "\x1b[31m<script>arch : <b>\x1b]0;x\x07 model = \x1b[2J\n" + paddleclas_static(
        np.ones(20)
    )
    log = read(tmp_path, text)
    assert "model" not in log.facts


# Facts


FLEET = """LAUNCH INFO 2023-07-28 07:14:19,033 devices: 0,1,2,3,4,5,6,7
LAUNCH INFO 2023-07-28 07:14:19,033 nnodes: 2
LAUNCH INFO 2023-07-28 07:14:19,034 training_script_args: ['-c', 'ppcls/configs/ResNet/\
ResNet50_amp_O2_ultra.yaml', '-o', 'DataLoader.Train.sampler.batch_size=256']
[2023/07/28 07:14:21] ppcls INFO:     use_dali : True
[2023/07/28 07:14:21] ppcls INFO: Arch : 
[2023/07/28 07:14:21] ppcls INFO:     name : ResNet50
"""


def said_by(log: Log, name: str) -> str:
    return sentence(log.facts[name].by)


def facts_of(log: Log) -> dict[str, int | str]:
    return {name: fact.value for name, fact in log.facts.items()}


def test_a_launcher_and_its_arguments_say_what_ran(tmp_path: Path) -> None:
    log = read(tmp_path, FLEET + paddleclas_static(np.ones(20)))
    assert facts_of(log) == {
        "framework": "paddle",
        "unit": "images/s",
        "devices": 8,
        "nodes": 2,
        "ranks": 16,
        "batch_size": 256,
        "precision": "pure_fp16",
        "input": "dali",
        "model": "resnet50",
    }
    assert said_by(log, "nodes") == "line 2"
    assert said_by(log, "ranks") == "nodes x devices"
    assert said_by(log, "framework") == "its format"


def test_what_a_file_does_not_tell_is_not_there(tmp_path: Path) -> None:
    log = read(tmp_path, paddleclas_static(np.ones(20)))
    assert facts_of(log) == {"framework": "paddle", "unit": "images/s"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "PaddleClas_ResNet50_bs256_pure_fp16_DP_N4C8_log",
            {
                "batch_size": 256,
                "precision": "pure_fp16",
                "nodes": 4,
                "devices": 8,
                "ranks": 32,
            },
        ),
        ("paddle_gpu32_fp32_bs128.txt", {"ranks": 32, "precision": "fp32", "batch_size": 128}),
        ("tf_bert_base_fp16_bs96_gpu8.log", {"ranks": 8, "batch_size": 96, "model": "bert"}),
        (
            "2n8g/r50_b128_amp_1.log",
            {"nodes": 2, "devices": 8, "ranks": 16, "batch_size": 128, "precision": "amp"},
        ),
    ],
)
def test_a_name_says_what_ran(tmp_path: Path, name: str, said: dict[str, int | str]) -> None:
    log = read(tmp_path, paddleclas_static(np.ones(20)), name)
    found = facts_of(log)
    assert said.items() <= found.items()
    assert "precision" in said or "precision" not in found
    assert said_by(log, "batch_size") == "its name"


def test_a_contradiction_is_noted_and_the_log_stands(tmp_path: Path) -> None:
    name = "PaddleClas_ResNet50_bs128_DP_N1C8_log"
    log = read(tmp_path, FLEET + paddleclas_static(np.ones(20)), name)
    assert (log.facts["batch_size"].value, log.facts["nodes"].value) == (256, 2)
    words = [sentence(message) for _line, message in log.notes]
    assert "batch_size is 128 by its name, but 256 by line 3." in words
    assert "nodes is 1 by its name, but 2 by line 2." in words


def test_parameters_say_what_ran_in_both_forms_of_dllogger(tmp_path: Path) -> None:
    suite, parameters = (
        SUITES["PyTorch ConvNets"],
        {
            "data": "/imagenet",
            "data_backend": "dali-cpu",
            "arch": "resnet50",
            "batch_size": 256,
            "amp": True,
            "world_size": 8,
        },
    )
    said = {
        "input": "dali",
        "model": "resnet50",
        "batch_size": 256,
        "precision": "amp",
        "ranks": 8,
    }
    figures = " ".join(f"{name} : {value} " for name, value in parameters.items())
    text = f"DLL {clock(0)} - PARAMETER {figures}\n"
    log = read(tmp_path, text + dllogger_text(suite, np.ones(20), 1))
    assert said.items() <= facts_of(log).items()
    record = {"datetime": clock(0), "type": "LOG", "step": "PARAMETER", "data": parameters}
    text = f"DLLL {json.dumps(record)}\n"
    log = read(tmp_path, text + dllogger_file(suite, np.ones(20), 1))
    assert said.items() <= facts_of(log).items()
    assert said_by(log, "ranks") == "line 1"


def test_a_batch_of_all_devices_is_divided_by_their_number(tmp_path: Path) -> None:
    suite = SUITES["MXNet ResNet-50"]
    text = (
        f"DLL {clock(0)} - PARAMETER arch : resnetv15  num_layers : 50  gpus : [0, 1]  "
        "kv_store : horovod  dtype : float16  amp : False  batch_size : 512  num_epochs : 3 \n"
    )
    log = read(tmp_path, text + dllogger_text(suite, np.ones(40), 20), "mxnet_gpu2_x.txt")
    found = facts_of(log)
    assert (found["global_batch_size"], found["batch_size"]) == (512, 256)
    assert (found["precision"], found["devices"], found["nodes"]) == ("pure_fp16", 2, 1)


def test_the_batch_of_training_is_told_from_that_of_evaluation(tmp_path: Path) -> None:
    said = [
        "DataLoader : ",
        "Eval : ",
        "sampler : ",
        "batch_size : 64",
        "Train : ",
        "dataset : ",
    ]
    said += ["name : ImageNetDataset", "sampler : ", "shuffle : True", "batch_size : 256"]
    text = "".join(f"[2026/03/02 00:00:00] ppcls INFO:     {line}\n" for line in said)
    log = read(tmp_path, text + paddleclas_static(np.ones(20)))
    assert (log.facts["batch_size"].value, said_by(log, "batch_size")) == (256, "line 10")
    assert not log.notes


def test_a_namespace_says_what_ran(tmp_path: Path) -> None:
    text = (
        "Namespace(adam_epsilon=1e-08, batch_size=32, device='gpu', gradient_merge_steps=88, "
        "model_name_or_path='bert-base-uncased', use_amp=True, use_pure_fp16=False)\n"
    ) + paddlenlp_bert(np.ones(20))
    text += (
        "python -m paddle.distributed.launch --log_dir=./mylog --gpus=0,1,2,3 run_pretrain.py\n"
    )
    found = facts_of(read(tmp_path, text))
    assert (found["batch_size"], found["accumulate"], found["precision"]) == (32, 88, "amp")
    assert (found["devices"], found["model"]) == (4, "bert")
    assert "nodes" not in found and "ranks" not in found


def test_the_header_of_oneflow_says_what_ran(tmp_path: Path) -> None:
    header = (
        "\nmodel = resnet50\nbatch_size_per_device = 128\ngpu_num_per_node = 8\nnum_nodes = 2\n"
    )
    found = facts_of(read(tmp_path, header + oneflow(np.ones(20))))
    assert (found["model"], found["batch_size"], found["ranks"]) == ("resnet50", 128, 16)


def test_a_hash_names_the_file_as_it_was(tmp_path: Path) -> None:
    text = paddleclas_static(np.ones(20)).encode() + b"\0"
    assert read(tmp_path, text).sha256 == hashlib.sha256(text).hexdigest()
