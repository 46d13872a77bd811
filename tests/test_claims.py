"""Claimed numbers: explained by figures of a log, and matched with logs."""

import numpy as np
import pytest
from made_logs import (
    FACTS,
    by_statistic,
    claimed,
    codes,
    cold_epoch,
    make_log,
    recomputed,
    windows,
)

import perfkit
from perfkit.analysis.published.cells import cells_of
from perfkit.audit import claims
from perfkit.audit.audit import ClaimedNumber
from perfkit.audit.claims import check_claim
from perfkit.audit.log import ReportedFigure
from perfkit.audit.matching import cells_for, claims_of_tables, differences
from perfkit.audit.quantity import claimed_quantity
from perfkit.audit.quantity_claims import check_quantity
from perfkit.core.format import number
from perfkit.report.audit_text import (
    claim_counts,
    explained_value,
    explanation_text,
    state_text,
)

BERT = {"model": "bert", "framework": "torch", "nodes": 4, "ranks": 32, "batch_size": 48}
NO_COUNT = {"model": "resnet50"}
"""Facts without a number of devices."""


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
    log = make_log(windows(12, rate=rates), covers="running", since=5)
    claim = claimed(f"{8 * rates[4:].mean():.3f}", log)
    figure = claim.explanations[0].figure
    assert (figure.statistic, figure.skipped) == ("mean after skipping", 4)
    assert "mean_of_running" in codes(claim.findings)
    assert claim.chance < 0.1


def test_an_unexplained_claim_reports_the_closest_figure():
    claim = claimed("2500", make_log(windows(12, rate=300.0)))
    assert claim.state == "not reproduced"
    assert claim.explanations == []
    assert claim.difference == pytest.approx(2400 / 2500 - 1)


@pytest.mark.parametrize(("tolerance", "state"), [(0.05, "near"), (0.03, "not reproduced")])
def test_a_figure_within_the_tolerance_is_near(tolerance, state):
    log = make_log(windows(12, rate=300.0))
    assert claimed("2500", log, tolerance).state == state


def test_a_log_without_figures_has_no_number():
    assert claimed("2500", make_log()).state == "no number"


def test_a_claim_for_another_device_count_is_not_reproduced():
    claim = claimed("4812.5", make_log(windows(12, rate=300.78125)))
    best = claim.explanations[0]
    assert best.devices == 16
    assert best.value == pytest.approx(4812.5)
    assert claim.state == "not reproduced"
    assert codes(claim.findings) == {"other_count"}


def test_the_figure_of_one_device_reproduces_a_number_of_the_command_line():
    rates = [250.0, *[300.78125] * 11]
    claim = claimed(f"{np.mean(rates):.6f}", make_log(windows(12, rate=rates)))
    assert claim.state == "reproduced"
    (located,) = claim.findings
    assert located.finding.reference == pytest.approx(300.78125)
    assert explanation_text(claim.explanations[0]).endswith("of one device")
    (protocol,) = [stage for stage in claim.waterfall if stage.stage == "protocol"]
    assert protocol.value == pytest.approx(protocol.figure.per_device)


def test_the_figure_of_one_device_does_not_reproduce_a_published_number():
    number = ClaimedNumber(text="300.78125", value=300.78125, place="table", table="table")
    claim = check_claim(number, recomputed(make_log(windows(12, rate=300.78125))))
    assert claim.state == "not reproduced"
    assert "other_count" in codes(claim.findings)


def test_a_claim_for_some_device_count_is_reproduced_if_the_log_has_none():
    log = make_log(windows(12, rate=300.78125), facts=NO_COUNT)
    assert claimed("4812.5", log).state == "reproduced"


def test_the_closest_figure_without_a_device_count_is_of_one_device():
    log = make_log(windows(12, rate=250.25), facts=NO_COUNT)
    claim = claimed("2002.5", log, tolerance=0.05)
    assert claim.difference == pytest.approx(250.25 / 2002.5 - 1)
    assert "other_count" not in codes(claim.findings)


def test_a_log_without_the_first_steps_has_no_warm_up_inside():
    late = windows(12, after=31, rate=np.linspace(300, 310, 12))
    whole = late.assign(first=late["first"] - 31, last=late["last"] - 31)
    text = f"{8 * late['rate'].mean():.4f}"
    assert "warm_up_inside" in codes(claimed(text, make_log(whole)).findings)
    assert "warm_up_inside" not in codes(claimed(text, make_log(late)).findings)


@pytest.fixture
def sequences():
    """A log that reports its throughput with many digits."""
    figure = ReportedFigure("sequences", 995.8885333, "995.8885333", 9, is_rate=True)
    return make_log(reported=[figure], rate_of="all")


def test_a_truncated_number_is_reproduced_with_a_finding(sequences):
    claim = claimed("995.88", sequences)
    best = claim.explanations[0]
    assert claim.state == "reproduced"
    assert best.truncated
    assert "truncated" in codes(claim.findings)
    assert state_text(claim) == "reproduced, truncated"
    assert explained_value(claim, best) == "995.88853"


def test_a_rounded_number_is_not_truncated(sequences):
    claim = claimed("995.89", sequences)
    best = claim.explanations[0]
    assert claim.state == "reproduced"
    assert not best.truncated
    assert explained_value(claim, best) == "995.89"


def test_a_number_below_the_truncated_digits_is_not_reproduced(sequences):
    assert claimed("995.87", sequences).state == "not reproduced"


def test_the_steady_figure_of_a_log_leaves_out_its_cold_epoch():
    steady = by_statistic(make_log(cold_epoch()))["samples/time", "steady"]
    assert steady.throughput == pytest.approx(8 * 256 / 0.125)
    assert steady.epochs == 6


def test_the_waterfall_leads_from_the_claim_to_steady_steps():
    stages = claimed("16384.00", make_log(cold_epoch())).waterfall
    assert [row.stage for row in stages] == ["claimed", "explained", "protocol", "steady"]
    _claimed, _explained, protocol, steady = stages
    assert protocol.difference == pytest.approx(0.125 / 0.14 - 1)
    assert steady.difference == pytest.approx(0.14 / 0.125 - 1)


def test_a_claim_with_few_digits_may_match_by_chance():
    rates = np.linspace(300, 306, 40)
    log = make_log(windows(40, rate=rates))
    few_digits, many_digits = claimed("2424", log), claimed(f"{8 * rates.mean():.4f}", log)
    assert few_digits.chance > 0.2
    assert "by_chance" in codes(few_digits.findings)
    chance = number(few_digits.chance, 2)
    text = f"reproduced, but {chance} such matches are expected by chance"
    assert state_text(few_digits) == text
    assert many_digits.chance < 0.1
    assert "by_chance" not in codes(many_digits.findings)
    assert state_text(many_digits) == "reproduced"
    counts = claim_counts([few_digits, many_digits, claimed("1", log)])
    assert counts == ["2 reproduced (1 perhaps by chance)", "1 not reproduced"]


def test_a_number_that_the_log_tells_itself_is_no_match_by_chance():
    reported = ReportedFigure("train throughput", 31.1, "31.1", 1, is_rate=True)
    log = make_log(facts={}, reported=[reported] * 2)
    own, times_two = claimed("31.1", log), claimed("62.2", log)
    assert own.chance > 0.2
    assert "by_chance" not in codes(own.findings)
    assert state_text(own) == "reproduced"
    assert state_text(times_two) != "reproduced"
    rates = np.linspace(300, 306, 40)
    printing = make_log(windows(40, rate=rates), facts=FACTS | {"ranks": 1})
    for text, is_weak in (("306", False), ("3e2", True)):
        unit = claimed_quantity(f"{text} images/s")
        with_unit = check_quantity(unit, recomputed(printing))
        for claim in (claimed(text, printing), with_unit):
            assert claim.chance > 0.2
            assert ("by_chance" in codes(claim.findings)) == is_weak


def test_the_closest_of_few_figures_is_no_match_by_chance(monkeypatch):
    log = make_log(windows(40, rate=np.linspace(300, 306, 40)))
    tried = claimed("2424", log).tried
    monkeypatch.setattr(claims, "FEWEST_TRIED", tried + 1)
    assert "by_chance" not in codes(claimed("2424", log).findings)


def test_a_claim_of_the_highest_print_is_a_finding():
    claim = claimed("2642", make_log(windows(12, rate=[*[300.0] * 11, 330.25])))
    assert claim.explanations[0].figure.statistic in ("last print", "maximum")
    findings = {located.code: located.finding for located in claim.findings}
    difference = findings["other_statistic"].difference
    assert difference == pytest.approx(claim.reference_difference)
    assert -0.1 < difference < -0.05


@pytest.mark.parametrize(
    ("text", "rate"),
    [("2400.04", 2400.037), ("250", 250.32), ("25.31", 25.31), ("1.1e4", 10988.1)],
)
def test_the_logs_own_figure_explains_a_claim_to_its_digits(text, rate):
    reported = ReportedFigure("total images/sec", rate, str(rate), 99, is_rate=True)
    log = make_log(windows(12, rate=rate), reported=[reported], rate_of="all")
    claim = claimed(text, log)
    assert claim.state == "reproduced"
    assert claim.explanations[0].figure.line == 99


# Published tables.


@pytest.fixture(scope="module")
def cells():
    return cells_of(perfkit.published())


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
    log = recomputed(make_log(windows(), facts=FACTS | facts)).log
    tables = ("paddle-resnet50-report", "perf-bert")
    matching = []
    for group in cells_for(log, [cell for cell in cells if cell.table in tables]):
        matching += [cell.printed for cell in group if not differences(log, cell)]
    assert matching == printed


def matching_claims(cells, log):
    """Return the claims of a published table that match a log."""
    table = [cell for cell in cells if cell.table == "paddle-resnet50-report"]
    claims = claims_of_tables(table, [recomputed(log)], 0.0)
    return [claim for claim in claims if claim.log]


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
