"""Findings about logs, and about several logs or claims together."""

import re

import numpy as np
import pytest
from conftest import cli
from log_writers import SUITES
from made_logs import (
    FACTS,
    FALLING,
    claimed,
    codes,
    cold_epoch,
    findings_of,
    make_log,
    recomputed,
    windows,
)

import perfkit
from perfkit.analysis.published.cells import cells_of
from perfkit.audit.claims import check_claim
from perfkit.audit.joint_findings import joint_findings
from perfkit.audit.log import ReportedFigure
from perfkit.audit.matching import number_in_cell
from perfkit.audit.statements import Finding, Note, NulBytes, ProtocolNotSteady, SameFile
from perfkit.report.audit_text import finding_text, steps_text

WAITS = 10 * (0.1 + 0.002 * (7 * np.arange(40) % 11))
RATES = np.array([250.125, 301.5, 302.25, 303.75, 308.875])


# One log.


@pytest.mark.parametrize(
    ("code", "rows", "fields"),
    [
        (
            "negative_accuracy",
            windows(accuracy=[0.1, -0.0156, -0.5, *[0.1] * 9]),
            {"count": 2, "lowest": -0.5},
        ),
        ("loss_not_finite", windows(loss=[*FALLING[:8], *[np.inf] * 4]), {}),
        ("constant_loss", windows(loss=6.9), {"count": 12}),
        ("loss_not_falling", windows(loss=FALLING[::-1]), {}),
        ("first_loss", windows(loss=FALLING / 2), {}),
        ("last_loss", windows(loss=[7, *[11] * 11]), {}),
        ("input_wait", windows(seconds=2.0, reader=0.3), {"share": 0.15}),
        ("input_wait", windows(40, seconds=6.0, reader=WAITS), {}),
        ("input_limit", windows(40, seconds=3 + WAITS, reader=WAITS), {}),
        ("protocol_not_steady", cold_epoch(), {"difference": 0.125 / 0.14 - 1}),
        ("odd_rates", windows(rate=[0.0, -1.0, np.inf, *[300.0] * 9]), {"count": 3}),
        ("mean_of_rates", windows(rate=[200.0, 400.0] * 6), {}),
        (
            "clock_differs",
            windows(15, seconds=1.8, at=3.6 * np.arange(15)),
            {"first": 21, "last": 120, "difference": -0.5},
        ),
        (
            "slow_print",
            windows(7, 20, seconds=[4.0] * 5 + [40.0] * 2, line=np.arange(5, 12)),
            {"share": 40 / 56, "steps": 20, "of": 100},
        ),
        ("fewer_steps", windows(6, seconds=2.0), {"steps": 40}),
    ],
)
def test_findings_have_their_figures(code, rows, fields):
    located = findings_of(make_log(rows))[code]
    stated = located.finding.fields()
    assert located.file == "x.log"
    assert {name: stated[name] for name in fields} == pytest.approx(fields)
    assert located.finding.text()


@pytest.mark.parametrize(
    ("code", "rows", "line"),
    [
        ("negative_accuracy", windows(accuracy=[0.1, -0.0156, -0.5, *[0.1] * 9]), 2),
        ("loss_not_finite", windows(loss=[*FALLING[:8], *[np.inf] * 4]), 9),
        ("pauses", windows(seconds=[2.0] * 11 + [20.0], line=np.arange(5, 17)), 16),
    ],
)
def test_findings_have_their_lines(code, rows, line):
    assert findings_of(make_log(rows))[code].line == line


OF_RATES = {
    "mean_of_rates": windows(rate=[200.0, 400.0] * 6),
    "clock_differs": windows(15, seconds=1.8, at=3.6 * np.arange(15)),
    "protocol_not_steady": cold_epoch(),
}
"""Code of a finding about throughputs -> a log with it."""
ONE_DEVICE = {name: FACTS[name] for name in ("model", "framework", "batch_size")}


@pytest.mark.parametrize("code", OF_RATES)
@pytest.mark.parametrize(
    ("facts", "unit"), [(FACTS, "images/s"), (ONE_DEVICE, "images/s/device")]
)
def test_findings_about_throughputs_name_their_unit(code, facts, unit):
    finding = findings_of(make_log(OF_RATES[code], facts=facts))[code].finding
    assert len(re.findall(rf"\d {unit}[,. ]", finding.text())) == 2


def test_rates_of_one_device_are_compared_with_the_throughput_of_one_device():
    """The printed rates are of one device, whose number is unknown; the times are of all."""
    of_all = ONE_DEVICE | {"global_batch_size": 512}
    facts = of_all | {"accumulate": 1}
    rates = np.array([200.0, 400.0] * 6)
    rows = windows(rate=rates, seconds=10 * 256 / rates)
    text = findings_of(make_log(rows, facts=facts))["mean_of_rates"].finding.text()
    assert "rates is 300.000 images/s/device, 12.5 % higher" in text
    assert "time, 266.667 images/s/device." in text
    assert "mean_of_rates" not in findings_of(make_log(rows, facts=of_all))


def test_findings_about_a_claim_name_the_unit_of_a_throughput():
    claim = claimed("2642", make_log(windows(12, rate=[*[300.0] * 11, 330.25])))
    findings = {located.code: located.finding for located in claim.findings}
    assert re.search(r"\d images/s, ", findings["other_statistic"].text())


def test_a_finding_of_an_older_audit_has_no_unit():
    fields = {"mean": 300.5, "reference": 290.25, "share": 0.035, "first": 21, "last": 120}
    stored = {"code": "mean_of_rates", "params": fields}
    assert Finding.model_validate(stored).text() == (
        "Over steps 21 to 120, the mean of the printed rates is 300.500, 3.5 % higher than "
        "samples / time, 290.250."
    )


def test_pauses_are_told_first_with_the_answer_without_them():
    rows = windows(30, seconds=[5.05] * 14 + [65.05] + [5.05] * 15)
    findings = recomputed(make_log(rows)).log.findings
    pauses = findings[0].finding
    assert (pauses.code, pauses.count, pauses.places) == ("pauses", 1, ["141–150"])
    assert pauses.share == pytest.approx(60 / (300 * 0.505 + 60))
    assert pauses.without == pytest.approx(8 * 256 / 0.505)
    assert codes(findings).isdisjoint({"slow_print", "protocol_not_steady"})


def test_ordinary_noise_and_regular_slow_steps_are_no_pauses():
    noise = np.random.default_rng(0).lognormal(0, 0.1, 300)
    every_fourth = np.tile([1.0, 1.0, 1.0, 2.5], 75)
    for seconds in (noise, every_fourth):
        assert "pauses" not in findings_of(make_log(windows(300, 1, seconds=seconds)))


def test_a_short_log_tells_its_answer_without_the_slow_first_step():
    rows = windows(12, 1, seconds=[16.0] + [8.0] * 11)
    first = findings_of(make_log(rows))["first_steps_included"].finding
    assert (first.steps, first.times) == (1, 2.0)
    assert first.without == 256.0
    even = windows(12, 1, seconds=8.0)
    assert "first_steps_included" not in findings_of(make_log(even))


@pytest.mark.parametrize(
    ("seconds", "steps"),
    [
        ([40.0, 0.25] + [8.0] * 10, 2),
        ([40.0, 24.0, 0.25] + [8.0] * 9, 3),
        ([40.0, 8.0, 0.25] + [8.0] * 9, 1),
        ([40.0] + [8.0] * 10 + [0.25], 1),
    ],
)
def test_steps_right_behind_a_slow_first_one_may_be_too_fast(seconds, steps):
    """Steps that are dispatched asynchronously have times that are not theirs at first."""
    log = make_log(windows(12, 1, seconds=seconds))
    first = findings_of(log)["first_steps_included"].finding
    rest = seconds[steps:]
    assert first.steps == steps
    assert first.without == pytest.approx(8 * 256 * len(rest) / sum(rest))


@pytest.mark.parametrize(
    "seconds", [[0.25] + [8.0] * 11, [11.2, *[3.2] * 3] + [8.0] * 8, [24.0, 0.25] + [12.0] * 10]
)
def test_first_steps_that_are_fast_together_are_no_warm_up(seconds):
    rows = windows(12, 1, seconds=seconds)
    assert "first_steps_included" not in findings_of(make_log(rows))


def test_a_finding_about_few_steps_reads_well():
    few = findings_of(make_log(windows(12, 1, seconds=8.0)))["fewer_steps"].finding
    assert few.text().startswith("No printed line is of the steps 21 to 120 alone")


def test_unsteady_steps_by_the_clock_name_the_clock():
    figures = {"protocol": 171.6, "steady": 167.8, "difference": 0.02, "first": 1, "last": 2}
    finding = ProtocolNotSteady(**figures, basis="clock")
    assert finding.text().startswith("By the timestamps of the lines")


def test_what_the_reader_noticed_is_a_finding():
    log = make_log(windows(), notes=[Note(NulBytes(count=3), 7)])
    located = findings_of(log)["nul_bytes"]
    assert located.finding == NulBytes(count=3)
    assert (located.file, located.line) == ("x.log", 7)


def test_a_sound_log_has_no_findings():
    # A step that loss scaling skips has no printed loss.
    losses = [*np.linspace(7, 6, 13), np.nan]
    rows = windows(14, seconds=2.0, rate=1280.0, reader=0.01, loss=losses)
    assert findings_of(make_log(rows)) == {}


def test_lines_of_single_steps_say_nothing_about_steps_without_a_line():
    rows = windows(20, rate=[200.0, 400.0] * 10)
    log = make_log(rows.assign(first=rows["last"]), covers="step")
    reference = recomputed(log).log.reference
    assert steps_text(reference) == "steps 30–120, 10 printed steps"
    assert "mean_of_rates" not in findings_of(log)
    assert "other_statistic" not in codes(claimed("2400.00", log).findings)


def test_a_log_without_rates_and_batch_size_says_so(write):
    output = cli("audit", write(SUITES["mmcv"].text(np.full(130, 0.5)))).stdout
    assert re.findall(r"^  (\w+):", output, re.M) == ["no_batch_size", "constant_loss"]
    assert "one device" not in output
    assert "-p batch_size N" in output


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "batch size, with BERT also accumulation) are unknown"),
        (
            {"batch_size": 480, "unit": "tokens/s"},
            "the tokens of its batch of 480 sequences are unknown: give their length by -p "
            "sequence_length N.",
        ),
        (
            {"batch_size": 480, "model": "bert", "step": "update"},
            "how many batches of 480 make a step is unknown",
        ),
        (
            {"global_batch_size": 480, "unit": "frames/s"},
            "how many of its units a batch of 480 has is unknown",
        ),
    ],
)
def test_what_is_unknown_of_a_step_does_not_contradict_its_batch_size(facts, expected):
    step = facts.pop("step", "batch")
    log = make_log(windows(20), facts=facts, step=step)
    finding = findings_of(log)["no_batch_size"].finding
    assert expected in finding.text()


@pytest.mark.parametrize(
    ("batch", "is_checked"),
    [({"batch_size": 15}, False), ({"batch_size": 8, "accumulate": 2}, True), ({}, True)],
)
def test_the_first_loss_of_few_predictions_is_no_finding(batch, is_checked):
    log = make_log(windows(loss=FALLING / 2), facts={"model": "resnet50"} | batch)
    assert ("first_loss" in findings_of(log)) == is_checked


def test_a_log_without_prints_is_a_finding():
    name = "training_sequences_per_second"
    log = make_log(reported=[ReportedFigure(name, 639.16, "639.16", 9, is_rate=True)])
    assert [*findings_of(log)] == ["no_prints"]
    assert claimed("639.16", log).state == "reproduced"


# Several logs or claims.


def joint(code, *logs, claims=()):
    """Return the logs' joint findings with this code."""
    located = joint_findings([recomputed(log).log for log in logs], [*claims])
    return [each.finding for each in located if each.code == code]


def test_duplicate_files_are_a_finding():
    rows = windows(loss=FALLING)
    first, second = make_log(rows, name="a#1.log"), make_log(rows, name="a#2.log")
    assert joint("same_file", first, second) == [SameFile(files=["a#1.log", "a#2.log"])]


def test_a_finding_names_logs_by_their_short_names():
    same_file = SameFile(files=["../b/a.log", "a.log"])
    assert "../b/a.log, x/a.log" in finding_text(same_file, {"a.log": "x/a.log"})


def one_and_eight(seconds, facts=FACTS):
    """Return a log of one device and one of eight, whose prints took these seconds."""
    alone = facts | {"devices": 1, "ranks": 1}
    one = make_log(windows(13, seconds=2.0, rate=1280.0), facts=alone, name="1")
    rows = windows(13, seconds=seconds, rate=2560 / seconds)
    return one, make_log(rows, facts=facts, name="8")


def test_super_linear_scaling_is_a_finding():
    (finding,) = joint("super_linear", *one_and_eight(1.9))
    assert (finding.file, finding.ranks, finding.of) == ("8", 8, 1)
    assert finding.share == pytest.approx(2 / 1.9 - 1)


def test_sub_linear_scaling_is_no_finding():
    assert joint("super_linear", *one_and_eight(2.1)) == []


@pytest.mark.parametrize("missing", ["model", "batch_size"])
def test_scaling_of_unknown_work_is_no_finding(missing):
    facts = {name: value for name, value in FACTS.items() if name != missing}
    assert joint("super_linear", *one_and_eight(1.9, facts)) == []


@pytest.fixture
def claim_of():
    """Makes a claim for a published cell of a table, with this text, of a log of devices."""
    cells = cells_of(perfkit.published())
    table = [cell for cell in cells if cell.table == "paddle-resnet50-report"]

    def make(cell, value, devices):
        facts = FACTS | {"devices": devices, "ranks": devices}
        log = recomputed(make_log(windows(5, rate=RATES), facts=facts))
        text = f"{value:.4f}"
        changes = {"text": text, "value": float(text), "place": f"{devices} devices"}
        return check_claim(number_in_cell(table[cell]).model_copy(update=changes), log)

    return make


def test_a_speed_up_of_different_statistics_is_a_finding(claim_of):
    one = claim_of(0, RATES.mean(), 1)
    eight = claim_of(4, 8 * RATES[2:].mean(), 8)
    (finding,) = joint("mixed_statistics", claims=[one, eight])
    assert [*finding.figures] == ["1x1, 256", "1x8, 256"]


def test_a_log_that_explains_several_numbers_is_a_finding(claim_of):
    claim = claim_of(0, RATES.mean(), 1)
    claims = [claim, claim.model_copy(update={"place": "elsewhere"})]
    assert joint("mixed_statistics", claims=claims) == []
    (finding,) = joint("one_for_two", claims=claims)
    assert finding.places == ["1 devices", "elsewhere"]
