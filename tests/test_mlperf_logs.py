"""MLPerf's logs: whatever their epochs and blocks count, samples are never guessed."""

import json

import numpy as np
import pytest
from made_logs import by_statistic

from perfkit.audit.statements import EvaluationTime


def event(at, key, value=None, **metadata):
    """Return the line of an event at a time in seconds."""
    record = {"namespace": "", "time_ms": round(1000 * at), "event_type": "POINT_IN_TIME"}
    record |= {"key": key, "value": value, "metadata": metadata | {"file": "train.py"}}
    return f":::MLLOG {json.dumps(record)}\n"


def training(benchmark, *events, batch_size=16, **values):
    """Return the text of a run of a benchmark."""
    text = event(0, "submission_benchmark", benchmark)
    text += event(0, "global_batch_size", batch_size)
    for key, value in values.items():
        text += event(0, key, value)
    return text + event(5, "run_start") + "".join(events) + event(305, "run_stop")


def reported(log):
    return {figure.name: figure.value for figure in log.reported}


def codes(log):
    return [finding.code for finding, _line in log.notes]


COUNTED = [
    event(10, "block_start", samples_count=0),
    event(110, "block_stop", samples_count=960),
    event(110, "eval_start", samples_count=960),
    event(130, "block_start", samples_count=960),
    event(160, "block_stop", samples_count=1280),
]


def test_blocks_that_count_samples_give_their_throughput(read):
    log = read(training("llama2_70b_lora", *COUNTED, train_samples=3901))
    assert reported(log)["samples / time of all blocks"] == pytest.approx(1280 / 130, rel=1e-5)
    assert [*log.windows["first"]] == [1, 61]
    assert [*log.windows["last"]] == [60, 80]
    assert log.windows["seconds"].to_numpy() == pytest.approx([100, 30])
    assert codes(log) == []


def test_the_time_of_evaluations_is_in_no_block(read):
    log = read(training("llama2_70b_lora", *COUNTED))
    figures = by_statistic(log)
    assert figures["samples/time", "all"].throughput == pytest.approx(1280 / 130)
    assert ("clock", "all") not in figures


def test_evaluations_within_an_epoch_are_left_out(read):
    events = [
        event(10, "epoch_start", epoch_num=0),
        event(50, "eval_start", epoch_num=1),
        event(60, "eval_stop", epoch_num=1),
        event(60, "eval_stop", epoch_num=1),
        event(105, "eval_start", epoch_num=2),
        event(110, "eval_stop", epoch_num=2),
        event(110, "epoch_stop", epoch_num=0),
    ]
    log = read(training("resnet", *events, train_samples=1600))
    assert [*log.windows["seconds"]] == pytest.approx([85])
    figures = reported(log)
    assert figures["samples / time of all epochs"] == pytest.approx(1600 / 100, rel=1e-5)
    rate = by_statistic(log)["samples/time", "all"].throughput
    assert rate == pytest.approx(1600 / 85, rel=0.01)
    assert figures["time to train, minutes"] == pytest.approx(5.0)
    finding = EvaluationTime(spans="epochs", seconds=15.0)
    assert log.notes == [(finding, 6)]


def test_an_evaluation_within_a_block_is_left_out_where_losses_divide_it(read):
    events = [
        event(10, "block_start", samples_count=0),
        event(40, "train_loss", 2.5, samples_count=320),
        event(50, "eval_start", samples_count=320),
        event(60, "eval_stop", samples_count=320),
        event(80, "block_stop", samples_count=640),
    ]
    log = read(training("llama31_8b", *events))
    assert [*log.windows["seconds"]] == pytest.approx([30, 30])


def test_an_evaluation_beside_the_training_is_not_left_out(read):
    events = [
        event(10, "epoch_start", epoch_num=0),
        event(110, "epoch_stop", epoch_num=0),
        event(110, "eval_start", epoch_num=1),
        event(120, "epoch_start", epoch_num=1),
        event(130, "eval_stop", epoch_num=1),
        event(220, "epoch_stop", epoch_num=1),
    ]
    log = read(training("resnet", *events, train_samples=1600))
    assert [*log.windows["seconds"]] == pytest.approx([100, 100])
    assert codes(log) == []


@pytest.mark.parametrize(("delay", "expected"), [(0.001, ["evaluations"]), (7, [])])
def test_a_result_right_at_the_end_of_a_block_tells_an_evaluation_in_it(read, delay, expected):
    events = [
        event(10, "block_start", samples_count=0),
        event(110, "block_stop", samples_count=960),
        event(110 + delay, "eval_accuracy", 0.5, samples_count=960),
        event(130, "block_start", samples_count=960),
        event(160, "block_stop", samples_count=1280),
    ]
    log = read(training("gpt3", *events))
    assert codes(log) == expected
    assert [*log.windows["seconds"]] == pytest.approx([100, 30])


def test_losses_that_count_samples_divide_a_block(read):
    losses = [
        event(40, "train_loss", 2.5, samples_count=320),
        event(70, "train_loss", 2.0, samples_count=640),
    ]
    text = training("llama31_8b", COUNTED[0], *losses, *COUNTED[1:])
    windows = read(text).windows
    assert [*windows["last"]] == [20, 40, 60, 80]
    assert windows["seconds"].to_numpy() == pytest.approx([30, 30, 40, 30])


def test_overlapping_blocks_are_paired_by_their_first_epoch(read):
    events = [
        event(10, "block_start", first_epoch_num=0, epoch_count=1),
        event(100, "block_start", first_epoch_num=1, epoch_count=1),
        event(110, "block_stop", first_epoch_num=0),
        event(200, "block_stop", first_epoch_num=1),
    ]
    log = read(training("resnet", *events, train_samples=1600))
    assert log.windows["seconds"].to_numpy() == pytest.approx([100, 100])


def test_a_block_whose_start_is_lost_is_left_out(read):
    events = [
        event(10, "block_stop", first_epoch_num=0),
        event(10, "block_start", first_epoch_num=1, epoch_count=1),
        event(60, "block_stop", first_epoch_num=1),
    ]
    log = read(training("resnet", *events, train_samples=1600))
    assert log.windows["seconds"].to_numpy() == pytest.approx([50])


def test_gpt_counts_tokens(read):
    tokens = 16 * 2048 * 30
    events = []
    for number in range(3):
        begin, first = 10 + 60 * number, tokens * number
        events.append(event(begin, "block_start", first_epoch_num=first, epoch_count=tokens))
        events.append(event(begin + 50, "block_stop", first_epoch_num=first))
    text = training("gpt3", *events, max_sequence_length=2048, train_samples=3 * tokens)
    log = read(text)
    assert [*log.windows["last"]] == [30, 60, 90]
    rate = by_statistic(log)["samples/time", "all"].throughput
    assert rate == pytest.approx(16 * 30 / 50)


def epochs_of(train_samples, *further):
    """Return two epochs of 100 s, and further events."""
    events = []
    for number in range(2):
        begin = 10 + 120 * number
        events.append(event(begin, "epoch_start", epoch_num=number))
        events.append(event(begin + 100, "epoch_stop", epoch_num=number))
    return training("retinanet", *events, *further, train_samples=train_samples)


@pytest.mark.parametrize("train_samples", [50, 800])
def test_a_logged_throughput_tells_whether_samples_or_batches_are_counted(read, train_samples):
    """Both trainings have 800 samples in an epoch of 50 batches."""
    stats = [
        event(110, "tracked_stats", {"throughput": 8.1}, step=1),
        event(230, "tracked_stats", {"throughput": 8.2}, step=2),
    ]
    log = read(epochs_of(train_samples, *stats))
    assert [*log.windows["last"]] == [50, 50]
    rate = by_statistic(log)["samples/time", "all"].throughput
    assert rate == pytest.approx(8.0)


def test_a_logged_step_time_tells_what_is_counted(read):
    stats = event(110, "tracked_stats", {"train_step_time": 2.0}, step=1)
    log = read(epochs_of(50, stats))
    assert [*log.windows["rate"]] == pytest.approx([8.0])


def test_without_any_sign_no_samples_are_counted(read):
    log = read(epochs_of(50))
    assert not len(log.windows)
    assert codes(log) == ["unknown_samples"]
    assert reported(log) == {"time to train, minutes": pytest.approx(5.0)}


def test_an_epoch_that_was_broken_off_is_left_out(read):
    stats = [event(at, "tracked_stats", {"throughput": 8.0}, step=1) for at in (110, 230, 255)]
    broken = [
        event(250, "epoch_start", epoch_num=2),
        event(254.5, "epoch_stop", epoch_num=2),
    ]
    log = read(epochs_of(800, *broken, *stats))
    assert [*log.windows["epoch"]] == [1, 2]
    figures = reported(log)
    assert figures["samples / time of 2 epochs"] == pytest.approx(8.0)


def test_bert_counts_an_epoch_by_its_samples(read):
    events = [
        event(10, "epoch_start", epoch_num=0),
        *[event(at, "tracked_stats", {"throughput": 16.4}, epoch_num=at) for at in (60, 110)],
        event(110, "epoch_stop", epoch_num=1600),
        event(110, "train_samples", 1600),
    ]
    log = read(training("bert", *events))
    assert [*log.windows["last"]] == [100]
    assert [*log.windows["rate"]] == pytest.approx([16.0])


def test_the_devices_are_those_that_the_log_names(read):
    text = "device: cuda:1 n_gpu: 4, distributed training: True, 16-bits training: True\n"
    values = {"d_batch_size": 2, "gradient_accumulation_steps": 1}
    log = read(text + training("llama2_70b_lora", *COUNTED, **values))
    assert log.fact("ranks") == 4
    figure = by_statistic(log)["samples/time", "all"]
    assert figure.per_device == pytest.approx(1280 / 130 / 4)


def test_a_batch_of_a_device_tells_their_number(read):
    values = {"local_batch_size": 2, "gradient_accumulation_steps": 1}
    log = read(training("retinanet", *COUNTED, **values))
    assert log.fact("ranks") == 8


def test_the_number_of_one_process_is_not_that_of_all(read):
    text = "device: cuda:1 n_gpu: 1, distributed training: True, 16-bits training: True\n"
    log = read(text + training("llama2_70b_lora", *COUNTED))
    assert log.fact("ranks") is None
    assert np.isfinite(by_statistic(log)["samples/time", "all"].throughput)
