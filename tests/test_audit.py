"""Audits: throughputs recomputed from logs, explained claims, findings."""

import json
import re
import shutil
from functools import partial
from html import unescape
from pathlib import Path
from statistics import harmonic_mean, mean, median

import numpy as np
import pandas as pd
import pytest
from conftest import cli
from hypothesis import given, settings
from hypothesis import strategies as st
from log_writers import BATCH, SUITES, paddleclas

import perfkit
from perfkit import report
from perfkit.analysis.published.cells import cells_of
from perfkit.audit import dlperf
from perfkit.audit.audit import Audit, Case, ClaimedNumber, read_audit, write_audit
from perfkit.audit.auditing import audited_log
from perfkit.audit.claims import LogFigures, check_claim
from perfkit.audit.formats import Semantics
from perfkit.audit.joint_findings import joint_findings
from perfkit.audit.log import WINDOW, Log, ReportedFigure
from perfkit.audit.matching import cells_for, claims_of_tables, differences, number_in_cell
from perfkit.audit.recompute import Figures, half_of, half_unit
from perfkit.audit.statements import ByLine, Note, NulBytes, SameFile, SourcedFact
from perfkit.core.format import changes
from perfkit.core.results.store import ResultError
from perfkit.report.audit_text import (
    difference_text,
    explained_value,
    finding_text,
    state_text,
    steps_text,
)
from perfkit.report.site import write_site
from perfkit.report.text.language import file_name

FACTS = {
    "model": "resnet50",
    "framework": "paddle",
    "precision": "fp32",
    "nodes": 1,
    "devices": 8,
    "ranks": 8,
    "batch_size": 256,
}
BERT = {"model": "bert", "framework": "torch", "nodes": 4, "ranks": 32, "batch_size": 48}


def windows(count=12, each=10, after=0, **columns):
    """Return `count` consecutive prints of `each` steps in one epoch."""
    last = after + each * np.arange(1, count + 1)
    known = {"rank": -1, "epoch": 0, "run": 0, "line": np.arange(1, count + 1)}
    known |= {"first": last - each + 1, "last": last} | columns
    rows = pd.DataFrame({name: known.get(name, np.nan) for name in WINDOW}, range(count))
    rows = rows.astype(WINDOW)
    rows["printed_seconds"] = rows["seconds"] / (rows["last"] - rows["first"] + 1)
    rows["own_rate"] = rows["rate"]
    return rows


def make_log(*rows, facts=FACTS, reported=(), notes=(), name="x.log", sha="a", **semantics):
    """Return a log with these prints, as if it had been read."""
    known = {"rate_of": "device", "reader": "in", "source": "this test"}
    return Log(
        path=Path(name),
        format="made by hand",
        sha256=sha,
        semantics=Semantics(**(known | semantics)),
        windows=pd.concat(rows or [windows(0)], ignore_index=True),
        facts={
            key: SourcedFact(value=value, by=ByLine(line=1)) for key, value in facts.items()
        },
        reported=[*reported],
        notes=[*notes],
    )


def by_statistic(log):
    """Return the figures of a log, or of a Figures, by statistic and period."""
    figures = log if isinstance(log, Figures) else Figures(log)
    return {(figure.statistic, figure.period): figure for figure in figures.shown}


def recomputed(log):
    """Return an audit's record of a log, and all figures."""
    figures = Figures(log)
    return LogFigures(audited_log(figures), figures)


def findings_of(log):
    """Return the findings of a log by code."""
    return {finding.code: finding for finding in recomputed(log)[0].findings}


def claimed(text, log, tolerance=0.0):
    number = ClaimedNumber(text=text, value=float(text), place="--claim")
    return check_claim(number, recomputed(log), tolerance)


def codes(findings):
    return {finding.code for finding in findings}


# Figures.


def test_samples_over_time_covers_the_protocols_steps():
    seconds = np.array([9.0, 8.0, *[2.0] * 10, *[4.0] * 3])
    figures = by_statistic(make_log(windows(15, seconds=seconds)))
    right = figures["samples/time", "protocol"]
    assert (right.first, right.last, right.steps, right.prints) == (21, 120, 100, 10)
    assert right.throughput == pytest.approx(8 * 256 * 100 / 20)
    per_device = {"protocol": 100 / 20, "all": 150 / 49, "warm": 130 / 32}
    for period, steps_per_second in per_device.items():
        figure = figures["samples/time", period]
        assert figure.per_device == pytest.approx(256 * steps_per_second)


def test_a_warm_period_of_the_protocols_steps_is_shown_once():
    figures = by_statistic(make_log(windows(10, seconds=2.0)))
    assert {period for _statistic, period in figures} == {"all", "protocol"}


@settings(max_examples=40, deadline=None)
@given(
    rates=st.lists(st.floats(1, 1e5), min_size=1, max_size=40),
    each=st.integers(1, 12),
)
def test_every_statistic_matches_its_definition(rates, each):
    figures = Figures(make_log(windows(len(rates), each, rate=rates), rate_of="all"))
    by = by_statistic(figures)
    expected = {
        "samples/time": harmonic_mean(rates),
        "mean of rates": mean(rates),
        "harmonic mean": harmonic_mean(rates),
        "median": median(rates),
        "last print": rates[-1],
        "first print": rates[0],
        "maximum": max(rates),
    }
    for statistic, value in expected.items():
        assert by[statistic, "all"].throughput == pytest.approx(value, rel=1e-12)
        assert by[statistic, "all"].per_device == pytest.approx(value / 8, rel=1e-12)
    for figure in figures.skipping:
        assert figure.throughput == pytest.approx(mean(rates[figure.skipped :]), rel=1e-9)
    assert [figure.skipped for figure in figures.skipping] == [*range(1, len(rates))]


def test_rates_of_windows_are_weighted_by_their_steps():
    rows = windows(2, rate=[100.0, 50.0])
    rows["first"], rows["last"] = [1, 11], [10, 40]
    figures = by_statistic(make_log(rows))
    samples_over_time = figures["samples/time", "all"]
    assert samples_over_time.per_device == pytest.approx(40 / (10 / 100 + 30 / 50))
    assert figures["harmonic mean", "all"].per_device == pytest.approx(2 / (1 / 100 + 1 / 50))


def test_the_first_epoch_with_all_steps_or_the_longest_is_used():
    short, long = windows(6, seconds=2.0), windows(13, seconds=4.0, epoch=1)
    right = by_statistic(make_log(short, long))["samples/time", "protocol"]
    assert (right.first, right.last, right.per_device) == (21, 120, 640.0)
    again = windows(6, seconds=2.0, run=1)
    right = by_statistic(make_log(short, windows(7, seconds=4.0, epoch=1), again))
    right = right["samples/time", "protocol"]
    assert (right.first, right.last, right.steps, right.per_device) == (21, 70, 50, 640.0)


def test_unknown_facts_are_not_guessed():
    figures = by_statistic(make_log(windows(rate=100.0, seconds=2.0), facts={}))
    assert figures["mean of rates", "all"].throughput is None
    assert figures["mean of rates", "all"].per_device == 100.0
    assert ("clock", "all") not in figures
    of_all = by_statistic(make_log(windows(rate=100.0), facts={}, rate_of="all"))
    assert of_all["mean of rates", "all"].per_device is None
    late = by_statistic(make_log(windows(after=200, rate=100.0)))
    assert ("samples/time", "protocol") not in late


def test_a_figure_has_the_rounding_error_of_the_printed_digits():
    true = 0.187163
    printed = round(true, 5)
    rows = windows(12, seconds=10 * printed)
    right = by_statistic(make_log(rows))["samples/time", "all"]
    exact = 8 * 256 / true
    assert 0 < abs(right.throughput - exact) <= right.rounding * exact < 1e-3 * exact
    assert half_of("387.1") == pytest.approx(0.05) and half_of("10336") == 0.5
    assert half_unit(np.array([1.25, 3.5])) == pytest.approx(0.005)


def test_epochs_are_counted_across_restarts():
    rows = [windows(4, rate=1.0, run=run, epoch=epoch) for run in (0, 1) for epoch in (0, 1)]
    figures = by_statistic(make_log(*rows))
    assert figures["mean of rates", "all"].epochs == 4
    warm = figures["mean of rates", "warm"]
    assert (warm.epochs, warm.prints) == (4, 12)


def test_the_slowest_of_the_ranks_with_most_steps_is_used():
    longest = [windows(12, seconds=2.0 * rank, rank=rank) for rank in (1, 2)]
    figures = Figures(make_log(windows(9, seconds=9.0, rank=3), *longest))
    assert figures.rank == 2
    assert by_statistic(figures)["samples/time", "all"].per_device == 640.0


def test_data_wait_is_a_share_of_the_time_including_it():
    rows = windows(12, seconds=2.0, reader=0.5)
    assert Figures(make_log(rows)).input_share == pytest.approx(0.25)
    apart = make_log(rows, reader="apart")
    assert Figures(apart).input_share == pytest.approx(0.2)
    assert by_statistic(apart)["samples/time", "all"].per_device == pytest.approx(1024.0)
    assert Figures(make_log(windows(12, seconds=2.0))).input_share is None
    contradicting = windows(12, seconds=2.0, reader=3.0)
    assert Figures(make_log(contradicting)).input_share is None


def test_ambiguous_data_waits_give_no_step_time():
    rows = windows(12, seconds=2.0, reader=1.0, rate=256 * 10 / 3.0)
    figures = by_statistic(make_log(rows, reader=None))
    assert figures["samples/time", "all"].per_device == pytest.approx(256 * 10 / 3.0)


def test_timestamps_of_sequences_need_the_accumulation():
    rows = windows(12, at=np.arange(12.0))
    facts = {name: FACTS[name] for name in ("ranks", "batch_size")}
    assert Figures(make_log(rows, facts=facts | {"unit": "sequences/s"})).shown == []
    assert Figures(make_log(rows, facts=facts | {"unit": "images/s"})).shown


def test_tokens_are_counted_by_the_sequence_length():
    facts = FACTS | {"model": "gpt", "batch_size": 4, "sequence_length": 64}
    figures = by_statistic(make_log(windows(12, seconds=5.0), facts=facts))
    right = figures["samples/time", "protocol"]
    assert right.per_device == pytest.approx(4 * 64 / 0.5)
    assert right.throughput == pytest.approx(8 * 4 * 64 / 0.5)
    del facts["sequence_length"]
    assert by_statistic(make_log(windows(12, seconds=5.0), facts=facts)) == {}


# Claims.


def test_the_simplest_matching_statistic_comes_first():
    rows = windows(12, rate=[10.0, *[300.125] * 11])
    claim = claimed("300.125", make_log(rows, facts=FACTS | {"ranks": 1}))
    figures = [explanation.figure for explanation in claim.explanations]
    matches = [(figure.statistic, figure.period) for figure in figures]
    assert claim.state == "reproduced"
    assert matches[:2] == [("median", "all"), ("last print", "all")]
    assert ("samples/time", "protocol") in matches
    assert matches[-1][0] == "mean after skipping"


def test_a_mean_that_skips_warm_up_prints_is_found():
    rates = 370 + np.array([31.5, 12.25, 7.75, 5.5, 4.125, 3.0, 2.5, 2.25, 2.0, 1.9, 1.8, 1.7])
    text = f"{8 * rates[4:].mean():.3f}"
    claim = claimed(text, make_log(windows(12, rate=rates), covers="running", since=5))
    best = claim.explanations[0]
    assert (best.figure.statistic, best.figure.skipped) == ("mean after skipping", 4)
    assert codes(claim.findings) >= {"mean_of_running"}
    assert claim.chance < 0.1


def test_an_unexplained_claim_reports_the_closest_figure():
    log = make_log(windows(12, rate=300.0))
    claim = claimed("2500", log)
    assert claim.state == "not reproduced" and claim.explanations == []
    assert claim.difference == pytest.approx(2400 / 2500 - 1)
    assert claimed("2500", log, 0.05).state == "near"
    assert claimed("2500", log, 0.03).state == "not reproduced"
    assert claimed("2500", make_log()).state == "no number"


def test_a_claim_for_another_device_count_is_not_reproduced():
    claim = claimed("4812.5", make_log(windows(12, rate=300.78125)))
    best = claim.explanations[0]
    assert best.devices == 16 and best.value == pytest.approx(4812.5)
    assert claim.state == "not reproduced" and codes(claim.findings) == {"other_count"}
    unknown = make_log(windows(12, rate=300.78125), facts={"model": "resnet50"})
    assert claimed("4812.5", unknown).state == "reproduced"


def test_the_closest_figure_without_a_device_count_is_of_one_device():
    unknown = make_log(windows(12, rate=250.25), facts={"model": "resnet50"})
    claim = claimed("2002.5", unknown, tolerance=0.05)
    assert claim.difference == pytest.approx(250.25 / 2002.5 - 1)
    assert "other_count" not in codes(claim.findings)


def test_a_log_without_the_first_steps_has_no_warm_up_inside():
    rows = windows(12, after=31, rate=np.linspace(300, 310, 12))
    text = f"{8 * rows['rate'].mean():.4f}"
    whole = rows.assign(first=rows["first"] - 31, last=rows["last"] - 31)
    assert "warm_up_inside" in codes(claimed(text, make_log(whole)).findings)
    assert "warm_up_inside" not in codes(claimed(text, make_log(rows)).findings)


def test_a_truncated_number_is_reproduced_with_a_finding():
    reported = [ReportedFigure("sequences", 995.8885333, "995.8885333", 9, is_rate=True)]
    log = make_log(reported=reported, rate_of="all")
    claim = claimed("995.88", log)
    assert claim.state == "reproduced" and claim.explanations[0].truncated
    assert "truncated" in codes(claim.findings)
    assert state_text(claim) == "reproduced, truncated"
    assert explained_value(claim, claim.explanations[0]) == "995.88853"
    rounded = claimed("995.89", log)
    assert rounded.state == "reproduced" and not rounded.explanations[0].truncated
    assert explained_value(rounded, rounded.explanations[0]) == "995.89"
    assert claimed("995.87", log).state == "not reproduced"


def test_the_waterfall_leads_from_the_claim_to_steady_steps():
    log = make_log(COLD)
    steady = by_statistic(log)["samples/time", "steady"]
    assert steady.throughput == pytest.approx(8 * 256 / 0.125) and steady.epochs == 6
    stages = _claimed, _explained, protocol, steady = claimed("16384.00", log).waterfall
    assert [part.stage for part in stages] == ["claimed", "explained", "protocol", "steady"]
    assert protocol.difference == pytest.approx(0.125 / 0.14 - 1)
    assert steady.difference == pytest.approx(0.14 / 0.125 - 1)


def test_a_claim_with_few_digits_may_match_by_chance():
    rates = np.linspace(300, 306, 40)
    log = make_log(windows(40, rate=rates))
    few_digits, many_digits = claimed("2424", log), claimed(f"{8 * rates.mean():.4f}", log)
    assert few_digits.chance > 0.2 and "by_chance" in codes(few_digits.findings)
    assert many_digits.chance < 0.1 and "by_chance" not in codes(many_digits.findings)


def test_a_claim_of_the_highest_print_is_a_finding():
    claim = claimed("2642", make_log(windows(12, rate=[*[300.0] * 11, 330.25])))
    assert claim.explanations[0].figure.statistic in ("last print", "maximum")
    (finding,) = [found for found in claim.findings if found.code == "other_statistic"]
    assert finding.finding.difference == pytest.approx(claim.reference_difference)
    assert -0.1 < claim.reference_difference < -0.05


@pytest.mark.parametrize(
    ("text", "rate"),
    [("2400.04", 2400.037), ("250", 250.32), ("25.31", 25.31), ("1.1e4", 10988.1)],
)
def test_the_logs_own_figure_explains_a_claim_to_its_digits(text, rate):
    reported = [ReportedFigure("total images/sec", rate, str(rate), 99, "samples/s")]
    log = make_log(windows(12, rate=rate), reported=reported, rate_of="all")
    claim = claimed(text, log)
    assert claim.state == "reproduced" and claim.explanations[0].figure.line == 99


@pytest.fixture(scope="module")
def cells():
    return cells_of(perfkit.published())


def matching_cells(cells, **facts):
    """Return the printed numbers of the cells that match a log with these facts."""
    audit = recomputed(make_log(windows(), facts=FACTS | facts))[0]
    tables = ("paddle-resnet50-report", "perf-bert")
    groups = cells_for(audit, [cell for cell in cells if cell.table in tables])
    return [c.printed for group in groups for c in group if not differences(audit, c)]


@pytest.mark.parametrize(
    ("facts", "printed"),
    [
        ({"gpu": "V100"}, ["3019.361"]),
        ({}, ["3019.361", "5333.558"]),
        ({"precision": "pure_fp16", "gpu": "A100"}, ["17587.654"]),
        ({"gpu": "H100"}, []),
        ({"mode": "inference"}, []),
        (BERT | {"accumulate": 2}, ["3973.97"]),
        (BERT | {"accumulate": 1}, ["3179.96"]),
        (BERT, ["3973.97", "3179.96"]),
        ({"model": "vgg16"}, []),
    ],
)
def test_a_log_is_matched_to_the_cells_of_its_facts(cells, facts, printed):
    assert matching_cells(cells, **facts) == printed


def matching_claims(cells, log):
    """Return the claims of a published table that match a log."""
    table = [cell for cell in cells if cell.table == "paddle-resnet50-report"]
    return [claim for claim in claims_of_tables(table, [recomputed(log)], 0.0) if claim.log]


@pytest.mark.parametrize(
    ("key", "facts", "rate", "texts"),
    [
        ("batch_size", {"batch_size": 128}, 2957.8, ["2957.8"]),
        ("batch_size", {"batch_size": 128}, 2900.8, []),
        ("precision", {"precision": "pure_fp16"}, 10336.0, ["10336"]),
    ],
)
def test_other_work_matches_only_if_the_number_does(cells, key, facts, rate, texts):
    facts = FACTS | {"framework": "mxnet"} | facts
    log = make_log(windows(rate=rate), facts=facts, name="V100/x", rate_of="all")
    claims = matching_claims(cells, log)
    assert [claim.text for claim in claims if claim.state == "reproduced"] == texts
    assert [claim.findings[0].finding.key for claim in claims] == [key] * len(texts)


@pytest.mark.parametrize(
    ("rate", "texts"), [(3019.361 / 8, ["3019.361"]), (300.0, ["3019.361", "5333.558"])]
)
def test_an_ambiguous_log_is_matched_by_its_number(cells, rate, texts):
    claims = matching_claims(cells, make_log(windows(rate=rate)))
    assert all("ambiguous" in codes(claim.findings) for claim in claims)
    assert [claim.text for claim in claims] == texts


# Findings.

FALLING = np.linspace(7, 6, 12)
WAITS = 10 * (0.1 + 0.002 * (7 * np.arange(40) % 11))
COLD = pd.concat(
    [
        windows(20, 20, seconds=20 * time, rate=256 / time, epoch=epoch)
        for epoch, time in enumerate([0.14, *[0.125] * 6])
    ]
)
"""A slow first epoch and six faster ones."""


@pytest.mark.parametrize(
    ("name", "rows", "figures"),
    [
        (
            "negative_accuracy",
            windows(accuracy=[0.1, -0.0156, -0.5, *[0.1] * 9]),
            {"count": 2, "lowest": -0.5, "line": 2},
        ),
        ("loss_not_finite", windows(loss=[*FALLING[:8], *[np.inf] * 4]), {"line": 9}),
        ("nul_bytes", windows(), {"count": 3, "line": 7}),
        ("constant_loss", windows(loss=6.9), {"count": 12}),
        ("loss_not_falling", windows(loss=FALLING[::-1]), {}),
        ("first_loss", windows(loss=FALLING / 2), {}),
        ("last_loss", windows(loss=[7, *[11] * 11]), {}),
        ("input_wait", windows(seconds=2.0, reader=0.3), {"share": 0.15}),
        ("input_wait", windows(40, seconds=6.0, reader=WAITS), {}),
        ("input_limit", windows(40, seconds=3 + WAITS, reader=WAITS), {}),
        ("protocol_not_steady", COLD, {"difference": 0.125 / 0.14 - 1}),
        ("odd_rates", windows(rate=[0.0, -1.0, np.inf, *[300.0] * 9]), {"count": 3}),
        ("mean_of_rates", windows(rate=[200.0, 400.0] * 6), {}),
        (
            "clock_differs",
            windows(15, seconds=1.8, at=3.6 * np.arange(15)),
            {"first": 21, "last": 120, "difference": -0.5},
        ),
        (
            "slow_print",
            windows(seconds=[2.0] * 11 + [20.0], line=np.arange(5, 17)),
            {"share": 20 / 38, "steps": 10, "of": 100},
        ),
        ("fewer_steps", windows(6, seconds=2.0), {"steps": 40}),
        ("restarts", windows(run=[0] * 6 + [1] * 6), {"count": 1}),
    ],
)
def test_findings_have_their_figures(name, rows, figures):
    notes = [Note(NulBytes(count=3), 7)]
    finding = findings_of(make_log(rows, notes=notes))[name]
    assert finding.file == "x.log"
    for key, value in figures.items():
        assert (finding.finding.fields() | {"line": finding.line})[key] == pytest.approx(value)
    assert finding.finding.text()


def test_a_sound_log_has_no_findings():
    # A step that loss scaling skips has no printed loss.
    losses = [*np.linspace(7, 6, 13), np.nan]
    rows = windows(14, seconds=2.0, rate=1280.0, reader=0.01, loss=losses)
    assert findings_of(make_log(rows)) == {}


def test_lines_of_single_steps_say_nothing_about_steps_without_a_line():
    sampled = windows(20, rate=[200.0, 400.0] * 10).assign(first=lambda rows: rows["last"])
    log = make_log(sampled, covers="step")
    reference = recomputed(log)[0].reference
    assert steps_text(reference) == "steps 30–120, 10 printed steps"
    assert "mean_of_rates" not in findings_of(log)
    assert "other_statistic" not in codes(claimed("2400.00", log).findings)


def test_a_log_without_rates_and_batch_size_says_so(write):
    done = run(write(SUITES["mmcv"].text(np.full(130, 0.5))))
    assert re.findall(r"^    (\w+):", done.stdout, re.M) == ["no_batch_size", "constant_loss"]
    assert "one device" not in done.stdout and "train_bs32.log" in done.stdout


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


def joint(code, *logs, claims=()):
    """Return the fields of the logs' joint findings with this code."""
    findings = joint_findings([recomputed(log).log for log in logs], [*claims])
    return [located.finding.fields() for located in findings if located.code == code]


def test_duplicate_files_are_a_finding():
    rows = windows(loss=FALLING)
    logs = make_log(rows, name="a#1.log"), make_log(rows, name="a#2.log")
    assert joint("same_file", *logs) == [{"files": ["a#1.log", "a#2.log"]}]
    same_file = SameFile(files=["../b/a.log", "a.log"])
    assert "../b/a.log, x/a.log" in finding_text(same_file, {"a.log": "x/a.log"})


@pytest.mark.parametrize(
    ("seconds", "missing", "is_found"),
    [(1.9, "", True), (2.1, "", False), (1.9, "model", False), (1.9, "batch_size", False)],
)
def test_super_linear_scaling_is_a_finding(seconds, missing, is_found):
    facts = {name: value for name, value in FACTS.items() if name != missing}
    alone = facts | {"devices": 1, "ranks": 1}
    logs = [
        make_log(windows(13, seconds=time, rate=2560 / time), facts=known, name=name)
        for name, time, known in (("1", 2.0, alone), ("8", seconds, facts))
    ]
    found = joint("super_linear", *logs)
    assert [(params["file"], params["ranks"], params["of"]) for params in found] == (
        [("8", 8, 1)] * is_found
    )
    assert not found or found[0]["share"] == pytest.approx(2 / 1.9 - 1)


def test_a_speed_up_of_different_statistics_is_a_finding(cells):
    sides = [cell for cell in cells if cell.table == "paddle-resnet50-report"][0:5:4]
    values = np.array([250.125, 301.5, 302.25, 303.75, 308.875])
    texts = [(f"{values.mean():.4f}", 1), (f"{8 * values[2:].mean():.4f}", 8)]
    claims = []
    for cell, (text, devices) in zip(sides, texts, strict=True):
        facts = FACTS | {"devices": devices, "ranks": devices}
        log = recomputed(make_log(windows(5, rate=values), facts=facts))
        claim = {"text": text, "value": float(text), "place": f"{devices} devices"}
        number = number_in_cell(cell).model_copy(update=claim)
        claims.append(check_claim(number, log))
    (found,) = joint("mixed_statistics", claims=claims)
    assert [*found["figures"]] == ["1x1, 256", "1x8, 256"]
    same = [claims[0], claims[0].model_copy(update={"place": "elsewhere"})]
    assert joint("mixed_statistics", claims=same) == []
    assert joint("one_for_two", claims=same)[0]["places"] == ["1 devices", "elsewhere"]


# DLPerf's layout.


PUBLISHED = {
    "1n1g": (352.23, 1.0),
    "1n2g": (633.65, 1.8),
    "1n4g": (1357.45, 3.87),
    "1n8g": (2621.2, 7.47),
    "2n8g": (4890.44, 13.88),
    "4n8g": (9311.85, 26.55),
}


def test_dlperfs_published_summary_is_reproduced():
    table = perfkit.published().query("table == 'dlperf-resnet50-run'")
    cases = [
        Case(model="r50", case=f"{n}n{d}g", batch_size=128, speeds=dict(enumerate(runs)))
        for (n, d), runs in table.groupby(["nodes", "gpus_per_node"])["throughput"]
    ]
    summary = dlperf.summary(cases, "mean")["r50"]
    assert summary["1n1g"] == {
        "average_speed": 352.23,
        "batch_size_per_device": 128,
        "speedup": 1.0,
    }
    # DLPerf's speed-ups have two bases: the mean of the runs on one device, and the last run.
    for case, (speed, speed_up) in PUBLISHED.items():
        assert summary[case]["average_speed"] == speed
        assert speed_up in (summary[case]["speedup"], round(speed / 350.77, 2))
    changed = [case for case in PUBLISHED if summary[case]["speedup"] != PUBLISHED[case][1]]
    assert changed == ["1n4g", "1n8g", "4n8g"]
    middle = dlperf.summary(cases, "median")["r50"]["1n8g"]
    assert middle["middle_speed"] == 2619.94 and middle["speedup"] == 7.44
    still = Case(model="r50", case="1n1g", batch_size=128, speeds={1: 0.001})
    for others in (cases[1:], [still, *cases[1:]]):
        assert dlperf.summary(others, "mean")["r50"]["1n8g"]["speedup"] is None


def test_only_ambiguous_models_of_dlperf_get_long_names():
    rows = windows(13, at=1000.0 + 3.5 * np.arange(13))
    names = [f"logs/1n1g/r50_b128_{kind}_1.log" for kind in ("fp32", "amp")]
    logs = [recomputed(make_log(rows, name=name))[0] for name in names]
    assert [case.model for case in dlperf.cases(logs[:1])] == ["r50"]
    models = [case.model for case in dlperf.cases(logs)]
    assert models == ["r50_b128_amp", "r50_b128_fp32"]


def test_relative_and_absolute_paths_get_short_names(tmp_path, monkeypatch):
    for folder in ("a", "b"):
        written(tmp_path / folder, "x.log")
    monkeypatch.chdir(tmp_path)
    done = run("a/x.log", tmp_path / "b" / "x.log")
    assert "a/x.log" in done.stdout and "b/x.log" in done.stdout
    assert str(tmp_path) not in done.stdout
    run("a/x.log", tmp_path / "b" / "x.log", "--label", "two", "--outputs", tmp_path)
    page = next(tmp_path.glob("audits/*/report.html")).read_text()
    headings = re.findall(r"<h3 [^>]*><a [^>]*>([^<]*)", page)
    assert headings == ["a/x.log", "b/x.log"]


# The command.


def written(folder, name="PaddleClas_ResNet50_bs256_fp32_DP_N1C8_log", every=10):
    """Write a log whose steps took COSTS seconds and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(paddleclas(COSTS, every))
    return path


run = partial(cli, "audit")
COSTS = 0.65 + 0.05 * np.exp(-np.arange(140) / 5)


def test_audit_exits_with_0_only_for_a_reproduced_claim(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(Path("logs"))
    rates = [BATCH / COSTS[4:step].mean() for step in range(10, 141, 10)]
    text = f"{8 * np.mean(rates[5:]):.3f}"
    done = run(path, "--claim", text)
    assert done.exit_code == 0 and f"{text}  reproduced" in done.stdout
    assert "without the first 5" in " ".join(done.stdout.split())
    exact = re.search(r"samples / time +steps 21–120, 10 lines +([\d.]+)", done.stdout)
    assert float(exact[1]) == pytest.approx(8 * 256 * 100 / COSTS[20:120].sum(), rel=1e-4)
    assert max(map(len, done.stdout.splitlines())) <= 80
    done = run(path, "--claim", "3500.5")
    assert done.exit_code == 1 and "not reproduced" in done.stdout
    assert run(path, "--claim", "395.5", "--tolerance", "5").exit_code == 0


def test_tiny_differences_are_shown_without_an_exponent():
    shown = [difference_text(share) for share in (-4e-07, 4e-07, -1e-05, 2e-06, 0.1)]
    assert shown == ["< 0.0001 %", "< 0.0001 %", "-0.001 %", "+0.0002 %", "+10 %"]
    assert changes([-4e-07, 4e-07, 2e-06]) == "< 0.0001 %, < 0.0001 %, +0.0002 %"


def test_a_published_table_is_compared_cell_by_cell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(Path("V100"))
    written(Path("V100"), "PaddleClas_ResNet50_bs256_fp32_DP_N1C1_log")
    file = tmp_path / "out.json"
    done = run("V100", "--published", "paddle-resnet50-report", "--json", file)
    audit = Audit.model_validate_json(file.read_text())
    assert done.exit_code == 1 and audit.failed
    states = {claim.text: claim.state for claim in audit.claims if claim.log}
    assert states == {"393.561": "not reproduced", "3019.361": "not reproduced"}
    assert sum(claim.state == "no log" for claim in audit.claims) == 34
    assert max(map(len, done.stdout.splitlines())) <= 80
    again = run("V100", "--json", "-")
    assert json.loads(again.stdout)["logs"][0]["figures"] and "2 logs" in again.stderr


def test_unreadable_files_are_named_and_the_others_audited(tmp_path):
    good = written(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_bytes(b"nothing\x1b[2J that is known\n" * 3)
    done = run(tmp_path)
    assert done.exit_code == 0 and str(good.name) in done.stdout
    left_out = " ".join(done.stdout.partition("left out")[2].split())
    assert "empty" in left_out and "other" in left_out
    nothing = run(tmp_path / "empty", tmp_path / "other")
    assert nothing.exit_code == 1 and "\x1b" not in nothing.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--published", "paddle-resnet50-reprot"], "paddle-resnet50-report"),
        (["--claim", "fast"], "type it as printed"),
        (["--claim", "-3"], "type it as printed"),
        (["--claim", "2602,62"], "type it as printed"),
        (["--claim", "26,02,629"], "type it as printed"),
        (["--tolerance", "nan"], "nan"),
        (["--label", "../x"], "letters, digits"),
        (["nowhere"], "no file or folder nowhere"),
        (["empty"], "no file in"),
    ],
)
def test_an_invalid_request_is_explained(words, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    paths = [] if words[0] == "empty" else [written(tmp_path / "logs")]
    done = run(*paths, *words)
    assert done.exit_code == 2 and done.stdout == ""
    assert why in " ".join(done.stderr.split())


def test_a_claim_needs_exactly_one_log(tmp_path):
    logs, other = [written(tmp_path, name) for name in ("a_log", "b_log")], tmp_path / "other"
    other.write_text("no log")
    for paths, why in (
        (logs, "b_log are logs; give one alone"),
        ([other], "but no file is one"),
    ):
        done = run(*paths, "--claim", "300")
        assert done.exit_code == 2 and why in " ".join(done.stderr.split())
    assert run(logs[0], other, "--claim", "300").stdout.startswith("The claim:\n  300  ")


def test_control_characters_in_a_name_are_escaped(tmp_path):
    done = run(written(tmp_path, "log\x1b[31m[bold]\x07_bs256"))
    assert not re.search(r"\x1b|\x07", done.stdout) and "[bold]" in done.stdout


def test_a_folder_in_dlperfs_layout_prints_its_summary(tmp_path):
    for case, cost in (("1n1g", 0.35), ("16n8g", 0.4)):
        for number in (1, 2):
            path = tmp_path / case / f"r50_b128_fp32_{number}.log"
            path.parent.mkdir(exist_ok=True)
            path.write_text(SUITES["Paddle 1.8 (DLPerf)"].text(np.full(140, cost), 1))
    shutil.copy(path, tmp_path / "other.log")
    done = run(tmp_path)
    assert "DLPerf's summary (mean)" in done.stdout
    assert "{'r50': {'16n8g': {'average_speed': 40960.0," in done.stdout
    assert "'speedup': 112.0" in done.stdout and "'middle_speed': 365.71" in done.stdout


# The page.


@pytest.fixture(scope="module")
def kept_once(tmp_path_factory):
    """A stored audit with claims, a log without a claim, an unreadable file and findings."""
    folder = tmp_path_factory.mktemp("kept")
    written(folder / "logs" / "V100")
    written(folder / "logs", "PaddleClas_VGG16_bs32_fp32_DP_N1C8_log", 1)
    (folder / "logs" / "empty").touch()
    done = run(
        *(folder / "logs", "--published", "paddle-resnet50-report"),
        *("--label", "paddle", "--outputs", folder / "outputs"),
    )
    assert done.exit_code == 1
    return folder / "outputs"


@pytest.fixture
def kept(kept_once, tmp_path):
    """The folder of a copy of that audit."""
    return shutil.copytree(kept_once, tmp_path / "outputs") / "audits" / "paddle"


def page(folder, language="en"):
    return unescape((folder / file_name("report", language)).read_text())


def test_an_audit_is_stored_as_linked_pages_in_both_languages(kept):
    command = read_audit(kept).command
    assert command.startswith("perfkit audit ") and "--label paddle" in command
    english, chinese = page(kept), page(kept, "zh")
    assert "3019.361" in english and "not reproduced" in english and "steps 21–120" in english
    assert "3019.361" in chinese and "未能重现" in chinese and "第 21–120 步" in chinese
    assert "empty" in english and 'href="audit.json"' in english
    waterfall = report.audit_waterfall(str(kept)).html
    assert "samples / time, steady steps" in waterfall and "<svg" in waterfall
    assert "PaddleClas_VGG16" in waterfall and "从公布值到稳态" in chinese
    for name in ("index.html", "index.zh.html"):
        assert 'href="audits/paddle/report' in (kept.parent.parent / name).read_text()


def test_the_site_is_rebuilt_from_stored_audits(kept, without_summary):
    before = page(kept).partition("<main")[2]
    (kept / "report.html").unlink()
    audit = read_audit(kept)
    hostile = "<script>alert(1)</script>"
    log = audit.logs[0].model_copy(update={"name": hostile, "format": hostile})
    changed = audit.model_copy(update={"logs": [log], "command": hostile})
    write_audit(other := kept.parent / "other", changed.model_copy(update={"label": "other"}))
    assert write_site(kept.parent.parent, lambda _done: None)[1] == []
    assert page(kept).partition("<main")[2] == before
    assert "<script>alert" not in (other / "report.html").read_text()
    content = json.loads((kept / "audit.json").read_text())
    (kept / "audit.json").write_text(json.dumps(content | {"schema_version": 9}))
    with pytest.raises(ResultError, match="schema_version is 9"):
        read_audit(kept)
    left_out = write_site(kept.parent.parent, lambda _done: None)[1]
    assert len(left_out) == 1 and "schema_version is 9" in page(kept)


def test_the_audit_notebook_runs_with_papermill(kept, run_notebook):
    done, out = run_notebook("audit", "folder", kept)
    assert done.returncode == 0, done.stderr
    assert "3019.361" in out.read_text()
