"""Which nodes of a fleet are slow: verdicts from repeats, explanations, files and page."""

import csv
import json
import re
from dataclasses import replace

import pytest
import simulations
from conftest import cli
from made import keep, measured, script_measured

from perfkit.analysis.fleet.explanations import explanations, state_of
from perfkit.analysis.fleet.fleet import judge_fleet
from perfkit.analysis.fleet.judgement import NodeRepeats, Rules, critical_values, judge
from perfkit.analysis.fleet.stored import Fleet
from perfkit.core.results.outputs import measurements
from perfkit.core.results.repeat import Peak, TelemetrySummary
from perfkit.report.fleet import heat_map

REPEATS = (100.0, 100.2, 99.8, 100.1, 99.9)
"""Throughputs with a standard deviation of 0.16 %."""


def nodes(*factors, repeats=REPEATS):
    """Return a node for each factor, whose repeats are multiplied by it."""
    return [
        NodeRepeats(f"node{number}", [factor * value for value in repeats])
        for number, factor in enumerate(factors, 1)
    ]


def verdicts(column):
    return [node.verdict for node in column.nodes]


# Judgement.


def test_a_node_below_the_others_is_slow():
    column = judge(nodes(1.0, 1.001, 0.95, 0.999, 1.0005, 0.9995), Rules())
    assert verdicts(column) == ["ok", "ok", "slow", "ok", "ok", "ok"]
    slow = column.nodes[2]
    assert slow.ratio == pytest.approx(0.95, rel=1e-3)
    assert slow.low < 0.95 < slow.high < 0.98


def test_a_faster_node_is_ok():
    column = judge(nodes(1.0, 1.001, 1.08, 0.999, 1.0005, 0.9995), Rules())
    assert verdicts(column) == ["ok"] * 6


def test_several_slow_nodes_do_not_hide_each_other():
    column = judge(nodes(0.9, 0.95, 1.0, 1.001, 0.999, 1.0005, 0.9995, 0.93), Rules())
    assert verdicts(column) == ["slow", "slow", "ok", "ok", "ok", "ok", "ok", "slow"]


def test_a_slowness_within_the_threshold_is_ok():
    fleet = nodes(1.0, 1.001, 0.97, 0.999, 1.0005, 0.9995)
    assert verdicts(judge(fleet, Rules(threshold=0.05))) == ["ok"] * 6
    assert verdicts(judge(fleet, Rules(threshold=0.02)))[2] == "slow"


def test_a_node_that_differs_no_more_than_good_nodes_do_is_undecided():
    column = judge(nodes(1.03, 0.97, 1.01, 0.99, 1.02, 0.98), Rules())
    lowest = column.nodes[1]
    assert (lowest.verdict, lowest.doubt) == ("undecided", "spread")
    assert lowest.repeats is None
    assert column.limit > 0.05


def test_noisy_repeats_leave_a_node_undecided_and_say_how_many_would_decide():
    noisy = (100.0, 104.0, 96.0, 102.0, 98.0)
    column = judge(nodes(1.0, 1.001, 0.95, 0.999, 1.0005, 0.9995, repeats=noisy), Rules())
    slow = column.nodes[2]
    assert (slow.verdict, slow.doubt) == ("undecided", "noise")
    many = noisy * -(-slow.repeats // len(noisy))
    decided = judge(nodes(1.0, 1.001, 0.95, 0.999, 1.0005, 0.9995, repeats=many), Rules())
    assert decided.nodes[2].verdict == "slow"


def test_the_noise_of_one_node_does_not_hide_another():
    fleet = nodes(1.0, 1.001, 0.95, 0.999, 1.0005)
    fleet.append(NodeRepeats("noisy", [80.0, 120.0, 100.0, 90.0, 110.0]))
    assert verdicts(judge(fleet, Rules())) == ["ok", "ok", "slow", "ok", "ok", "undecided"]


def test_intervals_widen_with_the_number_of_nodes_and_columns():
    few = critical_values((5,) * 4, 0.95)
    many = critical_values((5,) * 64, 0.95)
    several_columns = critical_values((5,) * 64, 1 - 0.05 / 4)
    assert few.interval < many.interval < several_columns.interval
    assert many.outlier < several_columns.outlier


def test_a_node_exactly_at_the_threshold_is_undecided():
    fleet = nodes(1.0, 1.0, 0.75, repeats=(100.0, 100.0, 100.0))
    column = judge(fleet, Rules(threshold=0.25))
    assert verdicts(column) == ["ok", "ok", "undecided"]


def test_equal_numbers_of_equal_nodes_are_ok():
    assert verdicts(judge(nodes(1.0, 1.0, 1.0, repeats=(100.0, 100.0)), Rules())) == ["ok"] * 3


def test_repeats_are_recommended_only_if_good_nodes_differ_less():
    """The noise and the spread leave the node open: more repeats don't reduce the spread."""
    noisy = (100.0, 104.0, 96.0, 102.0, 98.0)
    alike = judge(nodes(1.0, 1.001, 0.95, 0.999, 1.002, 0.998, repeats=noisy), Rules())
    differing = judge(nodes(1.03, 1.04, 0.95, 0.96, 1.02, 0.97, repeats=noisy), Rules())
    assert alike.nodes[2].doubt == differing.nodes[2].doubt == "noise"
    assert alike.nodes[2].repeats
    assert differing.nodes[2].repeats is None


# Short simulations; `benchmarks/simulations.py` runs more.


@pytest.mark.parametrize("repeats", [3, 5])
def test_intervals_hold_at_the_same_time_where_nodes_differ(repeats):
    """At the stated 95 %, fewer than 93 % of 1000 fleets would be a chance of 0.3 %."""
    simulated = simulations.SimulatedFleet(5, repeats, 0.003, between=0.05, simulations=1000)
    assert simulations.intervals_hold(simulated) >= 0.93


def test_the_recommended_repeats_decide_with_the_power_asked_for():
    simulated = simulations.SimulatedFleet(16, 5, 0.01, slow=1, by=0.04, simulations=200)
    decided, _recommended = simulations.decided_as_advised(simulated)
    assert decided >= 0.9


@pytest.mark.parametrize("values", [(5, 5), (5, 5, 1)])
def test_too_few_nodes_or_repeats_are_refused(values):
    fleet = [NodeRepeats(str(number), [1.0] * count) for number, count in enumerate(values)]
    with pytest.raises(ValueError, match="nodes with"):
        judge(fleet, Rules())


@pytest.mark.parametrize("count, noise, between", [(4, 0.01, 0.005), (64, 0.003, 0.01)])
def test_good_nodes_are_rarely_called_slow(count, noise, between):
    """At the stated 5 % per fleet, more than 12 of 100 fleets would be a chance of 0.2 %."""
    simulated = simulations.SimulatedFleet(count, 3, noise, between=between, simulations=100)
    assert simulations.false_alarms_of_fleets(simulated) <= 0.12


# Stored measurements.


def store(outputs, node, throughputs, number=0, model="resnet50", created=None, **changes):
    """Store a measurement of a node; `changes` are of `measured`, `peaks` of its repeats."""
    peak = changes.pop("peak", None)
    parameters = {"device": "gpu", "gpus": 1, "input": "synthetic", "node": node}
    result = measured(throughputs, model=model, **(parameters | changes))
    repeats = []
    for repeat in result.repeats:
        repeats.append(repeat.model_copy(update={"peak": peak}))
    update = {"repeats": repeats}
    if created:
        update["created"] = created
    return keep(outputs / f"{result.id}-{node}-{number}", result.model_copy(update=update))


def made_fleet(outputs, factors, **changes):
    for number, factor in enumerate(factors, 1):
        throughputs = [factor * value for value in REPEATS]
        store(outputs, f"node{number}", throughputs, **changes)
    return outputs


def read(outputs):
    return [*measurements(outputs, [])]


def test_each_workload_and_each_peak_is_a_column(tmp_path):
    peak = Peak(
        matmul_flops_per_second=2e12,
        copy_bytes_per_second=2e9,
        sustained_matmul_flops_per_second=1e12,
        sustained_copy_bytes_per_second=1e9,
    )
    made_fleet(tmp_path, [1, 1.001, 0.999], peak=peak)
    made_fleet(tmp_path, [1, 1.001, 0.999], model="vgg16", number=1, peak=peak)
    fleet = judge_fleet(read(tmp_path))
    quantities = [column.quantity for column in fleet.columns]
    assert quantities == ["throughput", "throughput", "matmul", "copy"]
    units = [(column.median, column.unit) for column in fleet.columns[2:]]
    assert units == [(pytest.approx(1), "TFLOP/s"), (pytest.approx(1), "GB/s")]


def test_a_node_on_which_a_workload_failed_has_the_peaks_of_another(tmp_path):
    peak = Peak(
        matmul_flops_per_second=2e12,
        copy_bytes_per_second=2e9,
        sustained_matmul_flops_per_second=1e12,
        sustained_copy_bytes_per_second=1e9,
    )
    made_fleet(tmp_path, [1, 1.001, 0.999], model="bert", peak=peak)
    made_fleet(tmp_path, [1, 1.001, 0.999, 1], number=1, peak=peak)
    matmul = judge_fleet(read(tmp_path)).columns[-2]
    assert (matmul.quantity, len(matmul.cells)) == ("matmul", 4)


def made_script_fleet(outputs, factors, peaks, **told):
    """Store a script's measurement of a node for each factor, with such a peak."""
    for number, (factor, tera_flops) in enumerate(zip(factors, peaks, strict=True), 1):
        values = [factor * value for value in REPEATS]
        peak = Peak(
            matmul_flops_per_second=2e12,
            copy_bytes_per_second=2e9,
            sustained_matmul_flops_per_second=tera_flops * 1e12,
            sustained_copy_bytes_per_second=1e9,
        )
        result = script_measured(values, told=told, repeat={"peak": peak}, node=f"node{number}")
        keep(outputs / f"{result.id}-{told['precision']}-{number}", result)


def test_the_peaks_of_scripts_are_compared_in_the_precision_that_they_told(tmp_path):
    made_script_fleet(tmp_path, [1, 1.001, 1, 0.999, 1], [1, 1, 0.9, 1, 1], precision="bf16")
    made_fleet(tmp_path, [1, 1.001, 0.999, 1, 1])
    fleet = judge_fleet(read(tmp_path))
    quantities = [column.quantity for column in fleet.columns]
    assert quantities == ["throughput", "throughput", "matmul", "copy"]
    assert fleet.columns[-2].name == "matrix product · PyTorch · bf16 · 1x1"
    assert fleet.named("slow") == ["node3"]
    (reason,) = fleet.nodes[0].explanations
    assert reason.code == "peak_lower"


def test_scripts_that_told_different_precisions_are_compared_apart(tmp_path):
    for precision, rate in {"bf16": 4, "tf32": 1}.items():
        made_script_fleet(tmp_path, [1] * 3, [rate] * 3, precision=precision)
    peaks = judge_fleet(read(tmp_path)).columns[2:]
    medians = {column.name: column.median for column in peaks if column.quantity == "matmul"}
    assert medians == {
        "matrix product · PyTorch · bf16 · 1x1": pytest.approx(4),
        "matrix product · PyTorch · tf32 · 1x1": pytest.approx(1),
    }


def test_nodes_with_other_hardware_are_judged_apart(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999])
    for number in range(4, 7):
        faster = [2 * value for value in REPEATS]
        store(tmp_path, f"node{number}", faster, facts={"gpus": ["NVIDIA H200, 141 GiB"]})
    fleet = judge_fleet(read(tmp_path))
    assert [len(column.cells) for column in fleet.columns] == [3, 3]
    assert fleet.counts == {"ok": 6}


def test_measurements_without_a_node_are_not_of_a_fleet(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999])
    keep(tmp_path / "alone", measured(REPEATS, device="gpu", gpus=1, input="synthetic"))
    fleet = judge_fleet(read(tmp_path))
    assert len(fleet.nodes) == 3


def test_fewer_than_three_nodes_are_not_judged_and_said_to_be_too_few(tmp_path):
    made_fleet(tmp_path, [1, 0.9])
    fleet = judge_fleet(read(tmp_path))
    assert not fleet.columns
    (reason,) = fleet.not_judged
    problem = "nodes with two complete repeats: 2, at least 3 are compared: node1, node2"
    assert reason.endswith(problem)


def gaps(fleet, node):
    """Return a node's verdict, and the codes of its gaps."""
    (judged,) = [each for each in fleet.nodes if each.node == node]
    return judged.verdict, [gap.code for gap in judged.gaps]


def test_a_node_on_which_a_workload_failed_is_not_ok(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1])
    made_fleet(tmp_path, [1, 1.001, 0.999], model="vgg16", number=1)
    store(tmp_path, "node4", (), model="vgg16", number=1)
    fleet = judge_fleet(read(tmp_path))
    assert gaps(fleet, "node4") == ("undecided", ["workload_failed"])
    assert fleet.named("ok") == ["node1", "node2", "node3"]
    (gap,) = fleet.nodes[0].gaps
    assert gap.text().startswith("failed (out_of_memory): VGG-16")


def test_a_node_on_which_a_workload_failed_is_not_ok_if_few_others_completed_it(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1])
    made_fleet(tmp_path, [1, 1.001], model="vgg16", number=1)
    store(tmp_path, "node4", (), model="vgg16", number=1)
    fleet = judge_fleet(read(tmp_path))
    assert gaps(fleet, "node4") == ("undecided", ["workload_failed"])
    assert fleet.named("ok") == ["node1", "node2", "node3"]


def test_a_workload_that_failed_on_all_nodes_is_a_gap_of_every_node(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999])
    for number in range(1, 4):
        store(tmp_path, f"node{number}", (), model="vgg16", number=1)
    fleet = judge_fleet(read(tmp_path))
    texts = [gap.text() for node in fleet.nodes for gap in node.gaps]
    failure = "failed (out_of_memory): VGG-16 · Paddle · fp32 · batch 32 · 1x1 · synthetic"
    assert texts == [failure] * 3
    assert fleet.counts == {"undecided": 3}


def test_the_terminal_and_the_page_name_failures_if_nothing_else_was_measured(tmp_path):
    for number in range(1, 4):
        store(tmp_path, f"node{number}", ())
    done = cli("fleet", tmp_path)
    page = (tmp_path / "fleet" / "report.html").read_text()
    for text in (done.stdout, page):
        assert text.count("failed (out_of_memory): ResNet-50") == 3


def test_a_node_whose_newest_measurement_failed_is_not_ok(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1])
    store(tmp_path, "node4", (), created="2026-01-02T00:00:00+00:00", number=1, label="again")
    assert gaps(judge_fleet(read(tmp_path)), "node4") == ("undecided", ["workload_failed"])


def test_a_node_on_which_all_workloads_failed_is_a_node_of_the_fleet(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999])
    store(tmp_path, "dead", ())
    fleet = judge_fleet(read(tmp_path))
    assert gaps(fleet, "dead") == ("undecided", ["workload_failed"])
    assert fleet.nodes[0].lowest is None


def test_a_node_without_a_workload_that_most_nodes_have_is_not_ok(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1])
    made_fleet(tmp_path, [1, 1.001, 0.999], model="vgg16", number=1)
    assert gaps(judge_fleet(read(tmp_path)), "node4") == ("undecided", ["not_measured"])


def test_a_workload_tried_on_a_few_nodes_leaves_nothing_open(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1, 1, 1, 1])
    made_fleet(tmp_path, [1, 1.001, 0.999], model="vgg16", number=1)
    made_fleet(tmp_path, [1], model="bert", number=2)
    assert judge_fleet(read(tmp_path)).counts == {"ok": 7}


def test_a_node_with_one_complete_repeat_does_not_keep_others_from_being_judged(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.9, 1, 1])
    store(tmp_path, "short", [100.0])
    fleet = judge_fleet(read(tmp_path))
    assert fleet.named("slow") == ["node3"]
    assert gaps(fleet, "short") == ("undecided", ["few_repeats"])


def test_a_node_of_a_kind_of_its_own_is_named(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999])
    store(tmp_path, "other", REPEATS, facts={"gpus": ["NVIDIA H200, 141 GiB"]})
    fleet = judge_fleet(read(tmp_path))
    assert gaps(fleet, "other") == ("undecided", ["few_nodes"])
    (reason,) = fleet.not_judged
    assert reason.endswith("nodes with two complete repeats: 1, at least 3 are compared: other")


def test_a_node_that_was_not_measured_anew_is_not_compared_with_those_that_were(tmp_path):
    """The software may have become faster on the others."""
    last_week, this_week = "2026-01-01T00:00:00+00:00", "2026-01-08T00:00:00+00:00"
    made_fleet(tmp_path, [1, 1.001, 0.999, 1, 1], created=last_week, label="week1")
    made_fleet(tmp_path, [1.1, 1.101, 1.099, 1.1], created=this_week, label="week2", number=1)
    fleet = judge_fleet(read(tmp_path))
    assert gaps(fleet, "node5") == ("undecided", ["outdated"])
    assert fleet.named("ok") == ["node1", "node2", "node3", "node4"]


def test_a_node_that_was_measured_again_alone_is_compared_with_the_others(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1, 0.9])
    later = "2026-01-08T00:00:00+00:00"
    store(tmp_path, "node5", REPEATS, created=later, label="repaired", number=1)
    assert judge_fleet(read(tmp_path)).counts == {"ok": 5}


def test_earlier_ratios_are_to_all_nodes_that_were_measured_then(tmp_path):
    """Also to nodes that were not measured anew."""
    last_week, this_week = "2026-01-01T00:00:00+00:00", "2026-01-08T00:00:00+00:00"
    made_fleet(tmp_path, [1, 0.9, 1, 1, 1], created=last_week, label="week1")
    made_fleet(tmp_path, [1, 1], created=this_week, label="week2", number=1)
    fleet = judge_fleet(read(tmp_path))
    cell = next(cell for cell in fleet.columns[0].cells if cell.node == "node2")
    assert [past.ratio for past in cell.past] == [pytest.approx(0.9)]


def test_an_earlier_ratio_is_of_means_as_the_newest_is(tmp_path):
    last_week, this_week = "2026-01-01T00:00:00+00:00", "2026-01-08T00:00:00+00:00"
    made_fleet(tmp_path, [1, 1, 1], created=last_week, label="week1")
    store(tmp_path, "skewed", [100.0, 100.0, 90.0], created=last_week, label="week1")
    made_fleet(tmp_path, [1, 1, 1], created=this_week, label="week2", number=1)
    store(tmp_path, "skewed", REPEATS, created=this_week, label="week2", number=1)
    (column,) = judge_fleet(read(tmp_path)).columns
    (cell,) = [cell for cell in column.cells if cell.node == "skewed"]
    (past,) = cell.past
    assert past.ratio == pytest.approx(290 / 300)


def test_a_value_over_the_median_is_the_ratio(tmp_path):
    made_fleet(tmp_path, [1, 1.01, 0.99])
    store(tmp_path, "skewed", [100.0, 100.0, 90.0])
    (column,) = judge_fleet(read(tmp_path)).columns
    for cell in column.cells:
        assert cell.value / column.median == pytest.approx(cell.ratio)


def test_nodes_are_in_the_order_of_their_numbers(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1, 1, 1, 1, 1, 1, 1])
    assert judge_fleet(read(tmp_path)).named("ok")[-3:] == ["node8", "node9", "node10"]


def test_a_result_with_a_name_that_is_no_host_name_is_left_out(tmp_path):
    """Names are in lists for a shell and on pages."""
    made_fleet(tmp_path, [1, 1.001, 0.9, 1])
    for number, name in enumerate(["$(reboot)", "a,b", "a\nb", "<b>", "-x"]):
        path = store(tmp_path, "evil", REPEATS, number=number).result_file
        path.write_text(path.read_text().replace('"evil"', json.dumps(name)))
    done = cli("fleet", tmp_path)
    assert done.stderr.count("left out:") == 5
    assert (tmp_path / "slow-nodes.txt").read_text() == "node3\n"
    assert (tmp_path / "ok-nodes.txt").read_text() == "node1,node2,node4\n"


def test_the_newest_measurement_counts_and_earlier_ones_are_its_past(tmp_path):
    for number, factor in enumerate([1, 1.001, 0.999, 1.0], 1):
        for week, slow in ((1, 1.0), (2, 0.9)):
            node_factor = factor * (slow if number == 2 else 1)
            values = [node_factor * value for value in REPEATS]
            created = f"2026-01-0{week}T00:00:00+00:00"
            label = f"week{week}"
            store(tmp_path, f"node{number}", values, created=created, label=label)
    fleet = judge_fleet(read(tmp_path))
    assert fleet.named("slow") == ["node2"]
    cell = next(cell for cell in fleet.columns[0].cells if cell.node == "node2")
    (before,) = cell.past
    assert before.label == "week1"
    assert before.ratio == pytest.approx(1, abs=0.002)
    assert cell.ratio == pytest.approx(0.9, abs=0.002)


TELEMETRY = {
    "samples": 5,
    "cores": 8,
    "process_cores": 1.0,
    "other_load_cores": 0.0,
    "steal_share": 0.0,
    "clock_mhz": {"gpu 0": (1900, 1980)},
    "temperature_celsius": {"gpu 0": 60.0},
    "throttled": {},
    "energy_joules": {},
    "energy_joules_per_sample": None,
    "memory_used_bytes": {},
    "missing": {},
}


def state(facts=None, **telemetry):
    """Return the state of a node with this telemetry in all repeats."""
    result = measured(REPEATS, device="gpu", gpus=1, input="synthetic", facts=facts)
    return state_of([observed(result, **telemetry)])


def observed(result, **telemetry):
    """Return the result with this telemetry in all repeats."""
    summary = TelemetrySummary(**TELEMETRY | telemetry)
    repeats = [each.model_copy(update={"telemetry": summary}) for each in result.repeats]
    return result.model_copy(update={"repeats": repeats})


def differences(node):
    """Return the explanations of a node among three usual ones, by code."""
    statements = explanations(node, [state(), state(), state()])
    return {statement.code: statement.text() for statement in statements}


def test_a_slow_node_without_a_difference_has_no_explanation():
    assert differences(state()) == {}


@pytest.mark.parametrize(
    "telemetry, code, sentence",
    [
        (
            {"clock_mhz": {"gpu 0": (1200, 1980)}},
            "clock_lower",
            "clock of 1,200 MHz; other nodes at least 1,900 MHz",
        ),
        ({"throttled": {"gpu 0": {"thermal": 3}}}, "throttled", "clocks lowered: thermal"),
        (
            {"temperature_celsius": {"gpu 0": 88.0}},
            "hotter",
            "88.0 °C; other nodes at most 60.0 °C",
        ),
        (
            {"other_load_cores": 1.5},
            "more_other_load",
            "other programs use 1.5 cores; on other nodes at most 0.0",
        ),
        ({"steal_share": 0.2}, "more_steal", "steal time of 20 %; on other nodes at most 0 %"),
    ],
)
def test_what_telemetry_tells_explains_a_slow_node(telemetry, code, sentence):
    assert differences(state(**telemetry)) == {code: sentence}


def test_a_fact_in_which_a_slow_node_differs_from_most_others_explains_it():
    texts = differences(state(facts={"driver": "535.2"}))
    assert texts == {"fact_differs": "driver: 535.2; most other nodes: 525.60"}


def test_slow_nodes_are_compared_with_good_ones(tmp_path):
    """Two throttled nodes would otherwise hide each other's clocks."""
    made_fleet(tmp_path, [1, 0.9, 0.9, 1.001, 0.999, 1, 1])
    fleet = []
    for measurement in read(tmp_path):
        lowest = 1200 if measurement.result.config.node in ("node2", "node3") else 1900
        result = observed(measurement.result, clock_mhz={"gpu 0": (lowest, 1980)})
        fleet.append(replace(measurement, result=result))
    texts = []
    for node in judge_fleet(fleet).nodes[:2]:
        texts += [statement.text() for statement in node.explanations]
    assert texts == ["clock of 1,200 MHz; other nodes at least 1,900 MHz"] * 2


def test_a_slow_node_is_stored_with_its_explanations(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1.0])
    slow = [0.9 * value for value in REPEATS]
    store(tmp_path, "slow", slow, facts={"driver": "535.2"})
    fleet = judge_fleet(read(tmp_path))
    (statement,) = fleet.nodes[0].explanations
    assert statement.code == "fact_differs"
    assert Fleet.model_validate_json(fleet.model_dump_json()) == fleet


# The chart.


def drawn(outputs):
    """Return the colours' range and the names of nodes under the lines of the heat map."""
    (*lines, bar) = heat_map(judge_fleet(read(outputs))).axes
    names = []
    for line in lines:
        names.append([label.get_text() for label in line.get_xticklabels()])
    return bar.get_ylim(), names


def test_a_very_slow_node_leaves_differences_between_the_others_visible(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.5, 0.999, 1])
    ends, names = drawn(tmp_path)
    assert ends == (pytest.approx(0.9), pytest.approx(1.1))
    assert names == [["node1", "node2", "node3", "node4", "node5"]]


def test_of_many_nodes_the_slow_ones_are_named_and_ends_that_are_not_near(tmp_path):
    factors = [1.0] * 70
    factors[1] = factors[40] = 0.9
    made_fleet(tmp_path, factors)
    _ends, names = drawn(tmp_path)
    assert names == [["node2", "node41", "node64"], [f"node{each}" for each in range(65, 71)]]


# The command.


def test_the_command_names_slow_nodes_and_writes_lists_for_slurm(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.9, 0.999, 0.93, 1.0])
    done = cli("fleet", tmp_path, "--json", tmp_path / "fleet.json")
    assert done.exit_code == 1
    assert done.stdout.startswith("2 of 6 nodes are slow: node3, node5.\n")
    assert (tmp_path / "slow-nodes.txt").read_text() == "node3,node5\n"
    assert (tmp_path / "ok-nodes.txt").read_text() == "node1,node2,node4,node6\n"
    assert (tmp_path / "fleet" / "report.html").exists()
    stored = json.loads((tmp_path / "fleet.json").read_text())
    assert stored["nodes"][0]["node"] == "node3"
    rows = [*csv.DictReader((tmp_path / "fleet.csv").read_text().splitlines())]
    assert [row["verdict"] for row in rows].count("slow") == 2


def test_the_page_has_the_verdicts_of_the_command(tmp_path):
    """By the options that were given, and without results that contradict their raw files."""
    made_fleet(tmp_path, [1, 1.001, 0.97, 0.999, 1.0])
    page = tmp_path / "fleet" / "report.html"
    assert cli("fleet", tmp_path).exit_code == 1
    assert "Slow nodes: 1 of 5." in page.read_text()
    assert cli("fleet", tmp_path, "--threshold", "10").exit_code == 0
    assert "Slow nodes: 0 of 5." in page.read_text()
    raw = next(tmp_path.glob("*-node3-*/repeats/1/rank0.jsonl"))
    raw.write_text("")
    cli("fleet", tmp_path)
    assert "Slow nodes: 0 of 4." in page.read_text()


def test_the_advice_has_a_whole_number_of_repeats(tmp_path):
    noisy = (100.0, 104.0, 96.0, 102.0, 98.0)
    for number, factor in enumerate([1, 1.001, 0.95, 0.999, 1.002, 0.998], 1):
        store(tmp_path, f"node{number}", [factor * value for value in noisy])
    done = cli("fleet", tmp_path)
    advice = r"\n\d+ repeats on every node would decide each node that"
    assert re.search(advice, done.stdout)
    page = (tmp_path / "fleet" / "report.html").read_text()
    assert re.search(r"\b(?<!\.)\d+ repeats on every node", page)


def test_the_command_exits_with_0_if_no_node_is_slow(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1.0])
    done = cli("fleet", tmp_path)
    assert done.exit_code == 0
    assert done.stdout.startswith("None of 4 nodes is slow.\n")


def test_the_terminal_and_the_page_tell_since_when_a_node_is_slow_and_what_failed(tmp_path):
    for week, factor in ((1, 1.0), (2, 0.9)):
        created = f"2026-01-0{week}T00:00:00+00:00"
        factors = [1, 1.001, factor, 0.999, 1]
        made_fleet(tmp_path, factors, created=created, label=f"week{week}", number=week)
    store(tmp_path, "dead", (), number=3)
    done = cli("fleet", tmp_path)
    assert "  earlier: 1.00 (week1)" in done.stdout.splitlines()
    assert "dead: failed (out_of_memory): ResNet-50" in done.stdout
    page = (tmp_path / "fleet" / "report.html").read_text()
    assert "1.00 (week1)" in page
    assert "failed (out_of_memory): ResNet-50" in page


def test_lines_of_the_terminal_have_at_most_80_columns(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.9, *[0.999] * 20])
    done = cli("fleet", tmp_path)
    *text, _page = done.stdout.splitlines()
    assert max(map(len, text)) <= 80


def test_results_without_a_node_are_refused_with_the_commands_for_a_fleet(tmp_path):
    keep(tmp_path / "alone", measured(REPEATS))
    done = cli("fleet", tmp_path)
    assert done.exit_code == 2
    assert "no measurement names a node" in done.stderr
    assert "perfkit sweep parameters/fleet.yaml --slurm --each-node\n" in done.stderr
    assert "perfkit sweep parameters/fleet.yaml -p node NAME\n" in done.stderr
