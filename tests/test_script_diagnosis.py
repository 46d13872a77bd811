"""What limits a script, and commands that do not know scripts."""

import re
from html import unescape

import pytest
from conftest import as_options, cli
from made import diagnosis, keep, script_diagnosis, script_measured

from perfkit import report
from perfkit.analysis.diagnosis.judge import limit_of_script
from perfkit.analysis.diagnosis.statements import statements_of, verdict_of
from perfkit.analysis.diagnosis.stored import FILE, read_diagnosis
from perfkit.audit.reader import read_logs
from perfkit.core.results.store import Measurement
from perfkit.report.diagnosis import LIMITED_BY, diagnose_command
from perfkit.report.text import names

COUNTING = {"counts_data_wait": True}
"""What a script told the timer that reads its batches through it."""


def kept(folder, told=COUNTING, **changes):
    result = script_measured([100.0, 101.0, 102.0], told=told, **changes)
    return keep(folder / result.id, result)


def store(measurement, stored_diagnosis):
    """Store a diagnosis beside the measurement; return its file."""
    file = measurement.folder / FILE
    file.write_text(stored_diagnosis.model_dump_json())
    return file


def text_of(html):
    """Return the text of a page or section without its elements."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


# The judgement.


@pytest.mark.parametrize(
    ("wait_shares", "input_seconds", "limit"),
    [
        ([0.01, 0.04], 0.01, "training-bound"),
        ([0.01, 0.2], 0.01, "undecided"),
        ([0.8, 0.9], 0.1, "input-bound"),
        ([0.8, 0.9], 0.094, "mixed"),
        ([0.3, 0.4], 0.01, "mixed"),
    ],
)
def test_the_wait_for_data_and_the_input_alone_say_what_limits_a_script(
    wait_shares, input_seconds, limit
):
    verdict = limit_of_script(wait_shares, input_seconds, 0.1, is_accelerated=False)
    assert verdict == limit


def test_a_wait_on_an_accelerator_is_not_called_lost_time():
    assert limit_of_script([0.3, 0.4], 0.01, 0.1, is_accelerated=True) == "undecided"


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"verdict": "training-bound", "wait_shares": [0.01]}, []),
        ({"verdict": "input-bound"}, []),
        ({"verdict": "mixed", "batch_seconds": 0.05}, ["shared_cores"]),
        ({"verdict": "undecided", "wait_shares": [0.01, 0.2]}, ["more_repeats"]),
        ({"verdict": "undecided"}, ["device_may_compute"]),
    ],
)
def test_every_verdict_on_a_script_has_its_own_advice(changes, advice):
    config = script_measured([100.0]).config
    codes = [found.code for found in statements_of(script_diagnosis(**changes), config)]
    verdict = f"script-{changes['verdict']}"
    assert codes == [verdict, *advice, "script_input", "script_step"]


@pytest.mark.parametrize(("loading", "hidden"), [(0.08, "0.0200"), (0.02, "0.0200")])
def test_a_loader_without_prefetching_is_told_to_load_ahead(loading, hidden):
    # A step loads two batches, then computes for the rest of 0.1 s.
    times = {"batch_seconds": loading / 2, "batches_per_step": 2.0, "step_seconds": 0.1}
    share = loading / 0.1
    in_turn = script_diagnosis(verdict="mixed", wait_shares=[share] * 3, **times)
    verdict, advice, *_evidence = statements_of(in_turn, script_measured([100.0]).config)
    assert verdict.text() == (
        "Limited by input and training, one after the other: training waits for data for "
        f"{100 * share:.0f} % of its time, as long as the input alone takes."
    )
    assert f"can hide up to {hidden} s of a step" in advice.text()


@pytest.mark.parametrize("wait", [0.8, 1.2])
def test_a_wait_unlike_the_time_of_the_input_alone_is_not_told_to_load_ahead(wait):
    times = {"batch_seconds": 0.04, "step_seconds": 0.1}
    other = script_diagnosis(verdict="mixed", wait_shares=[0.4 * wait] * 3, **times)
    verdict, advice, *_evidence = statements_of(other, script_measured([100.0]).config)
    assert "though the input alone is faster" in verdict.text()
    assert advice.code == "shared_cores"


def test_a_diagnosis_of_a_script_begins_with_its_wait_for_data():
    several = script_diagnosis(wait_shares=[0.8, 0.9, 0.85])
    assert verdict_of(several).text() == (
        "Input-bound: training waits for data for 80 % – 90 % of its time, and runs at the "
        "speed of the input."
    )
    single = script_diagnosis(verdict="training-bound", wait_shares=[0.0123])
    assert verdict_of(single).text() == (
        "Training-bound: training waits for data for 1.2 % of its time."
    )


# The page.


def test_the_page_of_a_script_shows_its_stored_diagnosis(tmp_path):
    measurement = kept(tmp_path)
    store(measurement, script_diagnosis())
    tile = "Limited by input Input-bound: training waits for data for 80 % – 90 %"
    assert tile in text_of(report.headline(measurement).html)
    limits = report.limits(measurement).html
    assert "Input alone: a batch every 0.1000 s." in limits
    assert "<strong>Input-bound: training waits for data for" in limits
    assert "perfkit diagnose" not in limits
    assert FILE in report.raw_files(measurement).html


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (lambda: script_diagnosis().model_copy(update={"verdict": "<b>fine</b>"}), "verdict"),
        (lambda: script_diagnosis().model_copy(update={"schema_version": 3}), "older"),
        (lambda: script_diagnosis().model_copy(update={"wait_shares": []}), "wait_shares"),
        (diagnosis, "wait_shares"),
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_an_unreadable_diagnosis_of_a_script_is_named_on_its_page(tmp_path, changed, why):
    measurement = kept(tmp_path)
    store(measurement, changed())
    html = report.limits(measurement).html
    text = text_of(html)
    assert "The diagnosis can't be read" in text
    assert why in text
    assert "<b>fine" not in html


def test_a_script_without_a_diagnosis_has_the_command_for_one(tmp_path):
    measurement = kept(tmp_path, arguments="--lr 0.1", label="monday")
    command = diagnose_command(measurement.result)
    assert command.startswith("perfkit diagnose train.py -p ")
    assert "-p label monday" in command
    assert command.endswith(" -- --lr 0.1")
    measured_by = names.command(measurement.result)
    assert command.replace("diagnose", "run", 1) == measured_by
    headline = report.headline(measurement).html
    assert "not diagnosed perfkit diagnose train.py ( its options" in text_of(headline)
    assert '<a href="#Limits">its options are under Limits</a>' in headline
    advice = f"To find out what limits the throughput, with these repeats: {command}"
    assert advice in text_of(report.limits(measurement).html)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"told": {"counts_data_wait": False}},
            "To diagnose it, read its batches through the timer and measure again: "
            "for batch in timer.batches(loader):",
        ),
        ({"nodes": 2}, "A diagnosis needs a single node."),
    ],
)
def test_a_script_that_can_not_be_diagnosed_says_why_and_what_to_change(
    tmp_path, changes, reason
):
    measurement = kept(tmp_path, **changes)
    assert f"not diagnosed {reason}" in text_of(report.headline(measurement).html)
    limits = text_of(report.limits(measurement).html)
    assert limits.startswith(reason)
    assert "perfkit diagnose" not in limits


def test_the_command_for_a_diagnosis_continues_in_the_folder_of_the_repeats():
    result = script_measured([100.0], told=COUNTING, outputs_dir="results")
    assert " -p outputs_dir results" in diagnose_command(result)
    usual = script_measured([100.0], told=COUNTING)
    assert "outputs_dir" not in diagnose_command(usual)


def test_a_failed_script_that_told_nothing_has_no_command_for_a_diagnosis():
    assert diagnose_command(script_measured([])) == ""


# The command.


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


def test_the_diagnosis_of_a_script_is_stored_and_shown_until_its_input_fails(
    diagnose, tmp_path
):
    outputs = tmp_path / "outputs"
    done = diagnose()
    assert done.exit_code == 0, done.stderr
    measurement = only_measurement(outputs)
    first = read_diagnosis(measurement)
    # On a busy machine, the training itself may take long, too.
    assert first.verdict in ("input-bound", "mixed")
    assert first.batch_seconds >= 0.1
    assert first.batches_per_step == 1
    assert len(first.wait_shares) == 2
    *lines, page = done.stdout.splitlines()
    assert page == str(measurement.page_file)
    verdict = verdict_of(first).text()
    assert " ".join(lines).startswith(verdict.partition(",")[0])
    text = text_of(measurement.page_file.read_text())
    assert verdict in text
    assert f"Limited by {LIMITED_BY[first.verdict]} {verdict}" in text
    (raw_file,) = measurement.folder.glob("diagnosis/*/rank0.jsonl")
    assert raw_file.parent.name == "read_input-script"
    assert measurement.result.id in (outputs / "index.html").read_text()
    assert measurement.result.id in (outputs / "results.csv").read_text()

    (tmp_path / "no-data").touch()
    done = diagnose()
    assert done.exit_code == 1
    assert "planted: no data" in done.stderr
    same = only_measurement(outputs)
    assert same.result == measurement.result
    assert read_diagnosis(same) is None
    text = text_of(same.page_file.read_text())
    assert "Limited by not diagnosed perfkit diagnose" in text


def test_a_script_that_reads_past_the_timer_is_refused_and_its_page_says_so(diagnose, tmp_path):
    done = diagnose(batches="slow_batches()")
    assert done.exit_code == 2
    assert "past the timer" in " ".join(done.stderr.split())
    measurement = only_measurement(tmp_path / "outputs")
    text = text_of(measurement.page_file.read_text())
    assert "not diagnosed To diagnose it, read its batches through the timer" in text


# Commands that do not know scripts.


def test_verify_says_that_it_knows_no_scripts():
    result = cli("verify", "train.py")
    assert result.exit_code == 2
    assert "train.py: verify compares the frameworks' built-in models" in result.output


def test_the_section_on_work_equivalence_says_that_a_script_has_none(tmp_path):
    measurement = keep(tmp_path / "script", script_measured([100.0]))
    (part,) = report.work_equivalence(measurement).parts
    assert "not a script" in part.html


def test_an_audit_reads_the_steps_of_a_script(tmp_path):
    measurement = keep(tmp_path / "script", script_measured([100.0, 101.0, 102.0]))
    (log,) = read_logs(measurement.result_file)
    assert log.facts["batch_size"].value == 64
    assert "model" not in log.facts
