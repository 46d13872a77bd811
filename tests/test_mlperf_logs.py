"""MLPerf's logs: whatever their epochs and blocks count, samples are never guessed."""

import json

import pytest

from perfkit.audit.auditing import audit
from perfkit.audit.figure import first_figure


@pytest.fixture
def audited(write):
    """Returns the audit of a log with this text."""

    def audit_one(text):
        (log,) = audit([write(text)]).logs
        return log

    return audit_one


def event(at, key, value=None, **metadata):
    """Return the line of an event at a time in seconds."""
    record = {"namespace": "", "time_ms": round(1000 * at), "event_type": "POINT_IN_TIME"}
    record |= {"key": key, "value": value, "metadata": metadata | {"file": "train.py"}}
    return f":::MLLOG {json.dumps(record)}\n"


def spans(name, *numbers, seconds=100, gap=20, **metadata):
    """Return epochs or blocks of these numbers, the first at 10 s, with gaps between them."""
    text = ""
    for index, number in enumerate(numbers):
        begin = 10 + index * (seconds + gap)
        text += event(begin, f"{name}_start", first_epoch_num=number, **metadata)
        text += event(begin + seconds, f"{name}_stop", first_epoch_num=number)
    return text


def training(benchmark, *events, batch_size=16, **values):
    """Return the text of a run of 300 s of a benchmark."""
    text = event(0, "submission_benchmark", benchmark)
    text += event(0, "global_batch_size", batch_size)
    text += "".join(event(0, key, value) for key, value in values.items())
    return text + event(5, "run_start") + "".join(events) + event(305, "run_stop")


def codes(log):
    return {located.finding.code for located in log.findings}


def rate_of(log):
    """Return samples / time of all steps."""
    return first_figure(log.figures, ["samples/time"], "all").throughput


COUNTED = [
    event(10, "block_start", samples_count=0),
    event(110, "block_stop", samples_count=960),
    event(110, "eval_start", samples_count=960),
    event(130, "block_start", samples_count=960),
    event(160, "block_stop", samples_count=1280),
]
BY_LOSSES = [
    COUNTED[0],
    event(60, "train_loss", 2.5, samples_count=480),
    event(110, "tracked_stats", {"train_step_time": 0.9}, samples_count=960),
    event(110, "block_stop"),
    *COUNTED[2:],
]
OF_BLOCKS = [
    event(10, "block_start", samples_count=960, step=0),
    event(60, "tracked_stats", {"train_loss": 2.5}, samples_count=480, step=29.0),
    event(110, "block_stop", samples_count=960, step=60),
    event(130, "block_start", samples_count=320, step=60),
    event(160, "block_stop", samples_count=320, step=80),
]
WITH_EVALUATION = [
    event(10, "block_start", samples_count=0),
    event(50, "train_loss", 2.5, samples_count=640),
    event(50, "eval_start", samples_count=640),
    event(70, "eval_stop", samples_count=640),
    event(160, "block_stop", samples_count=1280),
]


@pytest.mark.parametrize(
    "events",
    [COUNTED, BY_LOSSES, OF_BLOCKS, WITH_EVALUATION],
    ids=["blocks", "losses", "of blocks", "evaluation"],
)
def test_events_that_count_samples_give_the_throughput_of_their_training(audited, events):
    log = audited(training("llama2_70b_lora", *events, train_samples=3901))
    assert rate_of(log) == pytest.approx(1280 / 130)
    assert "unknown_samples" not in codes(log)


@pytest.mark.parametrize("per_step", [1, 16])
def test_the_logged_throughput_tells_whether_steps_are_samples_or_batches(audited, per_step):
    events = [event(10, "block_start", step=0)]
    for at, samples in ((110, 960), (210, 1920)):
        step = samples // per_step
        events += [event(at, "tracked_stats", {"throughput": 9.7}, step=step)]
    log = audited(training("flux1", *events))
    assert rate_of(log) == pytest.approx(9.6)


def test_the_median_of_the_logged_statistics_is_reported(audited):
    events = [
        event(100 + index, "tracked_stats", {"train_step_time": seconds})
        for index, seconds in enumerate([9.0, 0.5, 0.7, 0.6, 2.0])
    ]
    reported = audited(training("flux1", *events)).reported
    assert reported["tracked_stats train_step_time (median of 5)"] == "0.7"
    assert reported["time to train, minutes"] == "5.000000"


def test_events_of_the_older_form_are_read(audited):
    text = ""
    for line in training("resnet", *COUNTED).splitlines():
        record = json.loads(line.removeprefix(":::MLLOG "))
        told = json.dumps({"value": record["value"], "metadata": record["metadata"]})
        text += f":::MLL {record['time_ms'] / 1000} {record['key']}: {told}\n"
    assert rate_of(audited(text)) == pytest.approx(1280 / 130)


def epochs(*events, train_samples=1600, benchmark="resnet"):
    """Return a training of two epochs of 100 s, and further events."""
    return training(benchmark, spans("epoch", 0, 1), *events, train_samples=train_samples)


def evaluation(begin, end):
    return event(begin, "eval_start", epoch_num=1) + 2 * event(end, "eval_stop", epoch_num=1)


@pytest.mark.parametrize(
    ("evaluations", "seconds"),
    [((evaluation(50, 60), evaluation(105, 110)), 185), ((evaluation(100, 125),), 200)],
    ids=["within", "beside"],
)
def test_only_evaluations_within_an_epoch_are_left_out(audited, evaluations, seconds):
    log = audited(epochs(*evaluations))
    assert rate_of(log) == pytest.approx(3200 / seconds)
    assert ("evaluations" in codes(log)) == (seconds == 185)


def test_overlapping_blocks_are_paired_by_their_first_epoch(audited):
    events = [
        event(9, "block_stop", first_epoch_num=7),
        event(10, "block_start", first_epoch_num=0, epoch_count=1),
        event(100, "block_start", first_epoch_num=1, epoch_count=1),
        event(110, "block_stop", first_epoch_num=0),
        event(200, "block_stop", first_epoch_num=1),
    ]
    log = audited(training("resnet", *events, train_samples=1600))
    assert rate_of(log) == pytest.approx(16.0)


@pytest.mark.parametrize("train_samples", [50, 800])
@pytest.mark.parametrize("statistic", [{"throughput": 8.1}, {"train_step_time": 2.0}])
def test_statistics_tell_whether_an_epoch_counts_samples_or_batches(
    audited, train_samples, statistic
):
    """Both trainings have 800 samples in an epoch of 50 batches."""
    logged = [event(at, "tracked_stats", statistic) for at in (110, 230)]
    log = audited(epochs(*logged, train_samples=train_samples, benchmark="retinanet"))
    assert rate_of(log) == pytest.approx(8.0)


def test_without_any_sign_no_samples_are_counted(audited):
    log = audited(epochs(train_samples=50, benchmark="retinanet"))
    assert "unknown_samples" in codes(log)
    assert log.reported == {"time to train, minutes": "5.000000"}


def test_bert_counts_an_epoch_by_its_samples(audited):
    events = [
        event(10, "epoch_start", epoch_num=0),
        event(60, "tracked_stats", {"throughput": 16.4}, epoch_num=800),
        event(110, "epoch_stop", epoch_num=1600),
        event(110, "train_samples", 1600),
    ]
    assert rate_of(audited(training("bert", *events))) == pytest.approx(16.0)


@pytest.mark.parametrize(
    ("n_gpu", "values", "ranks"), [(4, {}, 4), (1, {}, None), (1, {"local_batch_size": 2}, 8)]
)
def test_the_devices_are_those_that_the_log_tells(audited, n_gpu, values, ranks):
    """The number of one process is not that of all."""
    text = (
        f"device: cuda:1 n_gpu: {n_gpu}, distributed training: True, 16-bits training: True\n"
    )
    values |= {"gradient_accumulation_steps": 1}
    assert audited(text + training("retinanet", *COUNTED, **values)).fact("ranks") == ranks
