"""Diagnoses: what limits the throughput, the page, the commands."""

import re
import shlex
from html import unescape

import pytest
from conftest import as_options, cli
from made.results import diagnosis, keep, measured, script_measured, stored

from perfkit.analysis import diagnosis as diagnosing
from perfkit.analysis.comparison.interleaved_plan import plan_interleaved
from perfkit.analysis.diagnosis import FILE, limit_of, read_diagnosis
from perfkit.measuring.format import number
from perfkit.measuring.request.plan import plan, typed
from perfkit.measuring.results.store import Measurement, ResultError
from perfkit.report.checked import checked
from perfkit.report.diagnosis import diagnose_command, diagnosis_section, exact_command
from perfkit.report.peaks import limits
from perfkit.report.steps import raw_files
from perfkit.report.tiles import headline

COUNTING = {"counts_data_wait": True}
"""What a script told the timer that reads its batches through it."""
MODEL = measured([100.0, 101.0])
SCRIPT = script_measured([100.0, 101.0], told=COUNTING)


def text_of(html):
    """Return the text of a page or section without its elements."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def tile_of(measurement):
    """Return the text of the page's tile on what limits the throughput."""
    text = text_of(headline(checked(measurement)).html)
    return text.partition("Limited by")[2].partition("Trust")[0]


def options_of(command):
    """Return the words of a command before its -p options, and the values of these."""
    words, *pairs = command.split(" -p ")
    named = [pair.split(" ", 1) for pair in pairs]
    return shlex.split(words), {name: typed(name, value) for name, value in named}


# The judgement.


@pytest.mark.parametrize(
    ("data_wait_share", "speed", "limit"),
    [
        (0.05, 1.0, "training-bound"),
        (0.06, 1.05, "input-bound"),
        (0.9, 0.8, "input-bound"),
        (0.06, 1.06, "undecided"),
    ],
)
def test_the_wait_for_data_and_the_input_alone_say_what_limits(data_wait_share, speed, limit):
    assert limit_of(data_wait_share, speed) == limit


@pytest.mark.parametrize(("batches", "alone"), [(1, 12.5), (2, 6.25)])
def test_the_input_alone_is_that_of_the_slowest_rank_for_all_batches_of_a_step(
    tmp_path, monkeypatch, batches, alone
):
    # A step of two ranks with 4 samples each, or 8 in two batches, takes a second.
    work = {"batch_size": 4 // batches, "accumulate": batches, "processes": 2}
    measurement = keep(tmp_path / "m", measured([8.0], **work))

    def read(*_task):
        by_rank = [[0.5, 0.7], [0.6, 0.68]]
        return [[{"event": "input", "intervals": intervals}] for intervals in by_rank]

    monkeypatch.setattr(diagnosing, "perform", read)
    made = diagnosing.diagnose(measurement, print)
    assert made.input_alone == pytest.approx(alone)
    assert made.training == 8.0
    assert read_diagnosis(measurement) == made


# The page.


@pytest.mark.parametrize("result", [MODEL, SCRIPT], ids=["model", "script"])
def test_a_page_shows_answer_and_numbers_of_its_diagnosis(tmp_path, result):
    measurement = keep(tmp_path / result.id, result)
    (measurement.folder / FILE).write_text(diagnosis().model_dump_json())
    unit = result.counts.unit
    assert text_of(limits(measurement).html).startswith(
        "The input limits: alone, it is no faster than the training. Data wait: up to 90 % of "
        f"a window Input alone: 51.00 {unit}, 1.02 times the training's 50.00 "
    )
    lines = "Data wait: up to 1 % of a window Input alone: 1.02 times as fast"
    assert tile_of(measurement) == f" input {lines} "
    assert FILE in raw_files(checked(measurement)).html


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"input-bound"', '"<b>fine</b>"', "verdict"),
        ('"schema_version":5', '"schema_version":4', "reads 5"),
    ],
)
def test_an_unreadable_diagnosis_is_named_on_the_page(tmp_path, old, new, why):
    measurement = stored(tmp_path / "m")
    file = measurement.folder / FILE
    file.write_text(diagnosis().model_dump_json().replace(old, new))
    with pytest.raises(ResultError, match=why):
        read_diagnosis(measurement)
    page = limits(measurement).html
    assert "The diagnosis can't be read" in text_of(page)
    assert why in page
    assert "<b>fine" not in page


def test_a_page_without_a_diagnosis_has_the_command_for_one(tmp_path):
    measurement = keep(tmp_path / MODEL.id, MODEL)
    command = diagnose_command(MODEL)
    advice = f"To find out what limits the throughput: {command}"
    assert advice in text_of(limits(measurement).html)


def test_the_command_for_a_diagnosis_continues_the_measurement():
    request = {"device": "cpu", "framework": "torch", "label": "monday", "outputs_dir": "o"}
    planned = plan("resnet50", request, skip_checks={"data", "machine"})
    result = measured([4.0], **planned.config.values)
    words, values = options_of(diagnose_command(result))
    assert words == ["perfkit", "diagnose", "resnet50"]
    again = plan("resnet50", values, skip_checks={"data", "machine"})
    assert again.config == planned.config
    of_script = diagnose_command(script_measured([4.0], arguments="--lr 0.1"))
    assert of_script.startswith("perfkit diagnose train.py ")
    assert of_script.endswith(" -- --lr 0.1")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (measured([4.0], input="synthetic"), "there is nothing to diagnose."),
        (
            measured([4.0], device="gpu", gpus=8, nodes=2, launcher="srun"),
            "A diagnosis needs a single node.",
        ),
        (
            script_measured([4.0], told={"counts_data_wait": False}),
            "measure again: for batch in timer.batches(loader):",
        ),
    ],
    ids=["synthetic", "nodes", "past the timer"],
)
def test_a_measurement_that_can_not_be_diagnosed_says_why(tmp_path, result, reason):
    measurement = keep(tmp_path / result.id, result)
    text = text_of(limits(measurement).html)
    assert reason in text
    assert "perfkit diagnose" not in text


def test_a_diagnosis_names_the_comparison_that_is_exact(small):
    given = small(dali_threads=2, label="mine")
    planned = plan("resnet50", given)
    result = measured([4.0], **planned.config.values)
    command = exact_command(result)
    assert command in repr(diagnosis_section(diagnosis(), result)).splitlines()[-1]
    words, values = options_of(command)
    assert words[:4] == ["perfkit", "compare", "--live", "resnet50"]
    comparison = plan_interleaved("resnet50", words[4:], values)
    inputs = [each.config.work.input for each in comparison.plans]
    assert inputs == ["dali", "synthetic"]
    assert comparison.plans[0].config.work.dali_threads == 2
    assert exact_command(SCRIPT) == ""


# The command.


def test_synthetic_input_is_refused(small):
    refused = cli("diagnose", "resnet50", *as_options(small(input="synthetic")))
    assert refused.exit_code == 2
    assert "input: synthetic input takes no time" in refused.stderr


TRAINING = """
import time
from pathlib import Path

import torch
import perfkit

torch.set_num_threads(1)
torch.manual_seed(0)
weights = torch.zeros(8, requires_grad=True)


def slow_batches():
    while True:
        if Path(__file__).with_name("no-data").exists():
            raise OSError("planted: no data")
        time.sleep(0.1)
        yield torch.ones(4, 8)


timer = perfkit.StepTimer(samples_per_step=4, unit="rows")
for batch in {batches}:
    loss = (batch * weights - 1).pow(2).sum()
    loss.backward()
    weights.data -= 0.01 * weights.grad
    weights.grad = None
    timer.step(loss)
"""
"""A training that waits for its batches for almost all of its time."""


@pytest.fixture
def diagnose(tmp_path, processes):
    """Run `perfkit diagnose` of a script that reads `batches`."""
    script = tmp_path / "train.py"
    protocol = {"warmup_steps": 2, "measured_steps": 3, "repeats": 2}
    values = {"device": "cpu", "outputs_dir": str(tmp_path / "outputs")} | protocol

    def run(batches="timer.batches(slow_batches())"):
        script.write_text(TRAINING.format(batches=batches))
        return cli("diagnose", script, *as_options(values))

    return run


def only_measurement(outputs):
    (file,) = outputs.glob("*/result.json")
    return Measurement.read(file.parent)


@pytest.mark.slow
def test_the_diagnosis_of_a_script_is_stored_and_shown_until_its_input_fails(
    diagnose, tmp_path
):
    outputs = tmp_path / "outputs"
    done = diagnose()
    assert done.exit_code == 0, done.stderr
    measurement = only_measurement(outputs)
    first = read_diagnosis(measurement)
    # On a busy machine, the training itself may take long, too.
    assert first.verdict in ("input-bound", "undecided")
    assert first.input_alone <= 4 / 0.1
    *lines, page = done.stdout.splitlines()
    assert page == str(measurement.page_file)
    assert "Data wait: up to" in " ".join(lines)
    (raw_file,) = measurement.folder.glob("diagnosis/*")
    assert raw_file.name == "rank0.jsonl"
    assert measurement.result.id in (outputs / "index.html").read_text()
    assert "Input alone:" in measurement.page_file.read_text()

    (tmp_path / "no-data").touch()
    done = diagnose()
    assert done.exit_code == 1
    assert "planted: no data" in done.stderr
    same = only_measurement(outputs)
    assert same.result == measurement.result
    assert read_diagnosis(same) is None
    assert "Limited by" not in same.page_file.read_text()


@pytest.mark.slow
def test_a_script_that_reads_past_the_timer_is_refused_and_its_page_says_so(diagnose, tmp_path):
    done = diagnose(batches="slow_batches()")
    assert done.exit_code == 2
    assert "through the timer" in " ".join(done.stderr.split())
    measurement = only_measurement(tmp_path / "outputs")
    text = text_of(measurement.page_file.read_text())
    assert "To diagnose it, read its batches through the timer" in text


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_the_diagnosis_of_a_model_is_shown_on_its_page(small, tmp_path):
    values = small(repeats=2, dali_threads=2, batch_size=4)
    done = cli("diagnose", "resnet50", *as_options(values))
    assert done.exit_code == 0, done.stderr
    measurement = only_measurement(tmp_path / "outputs")
    made = read_diagnosis(measurement)
    assert made.training == measurement.result.throughput.value
    page = text_of(measurement.page_file.read_text())
    assert f"times the training's {number(made.training)}" in page
