"""Which nodes of a fleet are slow: the rule, stored measurements, differences, the command."""

import json
from dataclasses import replace

import pytest
import simulations
from conftest import cli
from made.results import keep, measured, script_measured

from perfkit.analysis.fleet.differences import differences, state_of
from perfkit.analysis.fleet.fleet import judge_fleet
from perfkit.analysis.fleet.rule import NodeRepeats, Rules, judge
from perfkit.analysis.fleet.stored import Fleet
from perfkit.measuring.results.outputs import measurements
from perfkit.measuring.results.repeat import Peak, TelemetrySummary
from perfkit.report.summarized import Summary

REPEATS = (100.0, 100.2, 99.8, 100.1, 99.9)
"""Throughputs with a standard deviation of 0.16 %."""


def nodes(*factors):
    """Return a node for each factor, whose repeats are multiplied by it."""
    return [
        NodeRepeats(f"node{number}", "", [factor * value for value in REPEATS])
        for number, factor in enumerate(factors, 1)
    ]


def verdicts(judgement):
    return [cell.verdict for cell in judgement.cells]


# The rule.


def test_a_node_below_the_others_is_slow():
    column = judge(nodes(1.0, 1.001, 0.95, 0.999, 1.0005, 0.9995), Rules())
    assert verdicts(column) == ["ok", "ok", "slow", "ok", "ok", "ok"]
    slow = column.cells[2]
    assert slow.ratio == pytest.approx(0.95, rel=1e-3)
    assert slow.low < 0.95 < slow.high < 0.98


def test_a_ratio_is_to_the_median_of_the_other_nodes():
    cells = judge(nodes(1.0, 1.01, 1.02, 0.9), Rules()).cells
    ratios = [1 / 1.01, 1.01, 1.02, 0.9 / 1.01]
    assert [cell.ratio for cell in cells] == pytest.approx(ratios)


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
    lowest = column.cells[1]
    assert lowest.verdict == "undecided"
    assert lowest.high < 0.98
    assert lowest.ratio > column.limit


def test_the_noise_of_one_node_does_not_hide_another():
    fleet = nodes(1.0, 1.001, 0.95, 0.999, 1.0005)
    fleet.append(NodeRepeats("noisy", "", [80.0, 120.0, 100.0, 90.0, 110.0]))
    assert verdicts(judge(fleet, Rules())) == ["ok", "ok", "slow", "ok", "ok", "undecided"]


def test_with_more_columns_a_node_must_be_slower_to_be_called_slow():
    fleet = nodes(1.001, 1.0, 0.999, 0.96)
    assert verdicts(judge(fleet, Rules(columns=1)))[3] == "slow"
    assert verdicts(judge(fleet, Rules(columns=100)))[3] == "undecided"


# Short simulations; `benchmarks/simulations.py` runs more.


@pytest.mark.parametrize("count, noise, between", [(4, 0.01, 0.003), (64, 0.003, 0.01)])
def test_good_nodes_are_rarely_called_slow(count, noise, between):
    """At the stated 5 % per fleet, more than 12 of 100 fleets would be a chance of 0.2 %."""
    simulated = simulations.SimulatedFleet(count, 3, noise, between)
    assert simulations.false_alarms_of_fleets(simulated, 100) <= 0.12


def test_a_node_slow_by_5_percent_is_found():
    """Of 16 nodes. At 80 %, fewer than 68 of 100 would be a chance of 0.2 %."""
    simulated = simulations.SimulatedFleet(16, 5, 0.01, slow=1, by=0.05)
    assert simulations.slow_nodes_found(simulated, 100) >= 0.68


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
    assert fleet.columns[-2].workload.values["used"] == "bf16"
    assert "matrix product · PyTorch · bf16 · 1x1" in cli("fleet", tmp_path).stdout
    assert fleet.named("slow") == ["node3"]


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


def test_fewer_than_three_nodes_are_not_judged(tmp_path):
    made_fleet(tmp_path, [1, 0.9])
    done = cli("fleet", tmp_path)
    assert done.exit_code == 0
    assert done.stdout.startswith("No workload was completed on at least three nodes.\n")


def lacking(outputs, node):
    """Return a node's verdict, and the failures of the workloads that it lacks by name."""
    fleet = judge_fleet(read(outputs))
    (judged,) = [each for each in fleet.nodes if each.node == node]
    return judged.verdict, {
        each.workload.values["model"]: each.failure for each in judged.missing
    }


def test_a_node_on_which_a_workload_failed_is_not_ok(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1])
    made_fleet(tmp_path, [1, 1.001, 0.999], model="vgg16", number=1)
    store(tmp_path, "node4", (), model="vgg16", number=1)
    assert lacking(tmp_path, "node4") == ("no measurement", {"vgg16": "out_of_memory"})
    assert judge_fleet(read(tmp_path)).named("ok") == ["node1", "node2", "node3"]


def test_a_node_whose_newest_measurement_failed_is_not_ok(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1])
    store(tmp_path, "node4", (), created="2026-01-02T00:00:00+00:00", number=1, label="again")
    assert lacking(tmp_path, "node4") == ("no measurement", {"resnet50": "out_of_memory"})


def test_a_node_without_a_workload_that_most_nodes_have_is_not_ok(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1])
    made_fleet(tmp_path, [1, 1.001, 0.999], model="vgg16", number=1)
    assert lacking(tmp_path, "node4") == ("no measurement", {"vgg16": ""})


def test_a_slow_node_is_slow_whatever_it_lacks(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1, 0.9])
    store(tmp_path, "node5", (), model="vgg16", number=1)
    assert lacking(tmp_path, "node5") == ("slow", {"vgg16": "out_of_memory"})


def test_the_command_names_what_failed_if_nothing_else_was_measured(tmp_path):
    for number in range(1, 4):
        store(tmp_path, f"node{number}", ())
    assert cli("fleet", tmp_path).stdout.count("(out_of_memory)") == 3


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
    assert lacking(tmp_path, "short") == ("no measurement", {"resnet50": ""})


def test_a_node_of_a_kind_of_its_own_is_undecided(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999])
    store(tmp_path, "other", REPEATS, facts={"gpus": ["NVIDIA H200, 141 GiB"]})
    fleet = judge_fleet(read(tmp_path))
    assert fleet.named("undecided") == ["other"]
    (workload,) = fleet.too_few
    assert "H200" in workload.values["environment.gpus"]


def test_a_node_that_was_measured_again_alone_is_compared_with_the_others(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1, 0.9])
    later = "2026-01-08T00:00:00+00:00"
    store(tmp_path, "node5", REPEATS, created=later, label="repaired", number=1)
    assert judge_fleet(read(tmp_path)).counts == {"ok": 5}


def test_a_result_with_a_name_that_is_no_host_name_is_left_out(tmp_path):
    """Names are in lists for a shell and on pages."""
    made_fleet(tmp_path, [1, 1.001, 0.9, 1])
    for number, name in enumerate(["$(reboot)", "a,b"]):
        path = store(tmp_path, "evil", REPEATS, number=number).result_file
        path.write_text(path.read_text().replace('"evil"', json.dumps(name)))
    done = cli("fleet", tmp_path)
    assert done.stderr.count("left out:") == 2
    assert (tmp_path / "slow-nodes.txt").read_text() == "node3\n"
    assert (tmp_path / "ok-nodes.txt").read_text() == "node1,node2,node4\n"


# Differences.


TELEMETRY = {
    "samples": 5,
    "cores": 8,
    "process_cores": 1.0,
    "other_load_cores": 0.0,
    "steal_share": 0.0,
    "clock_mhz": {"gpu 0": (1900, 1980)},
    "temperature_celsius": {"gpu 0": 60.0},
    "throttled": {},
    "energy_joules_per_sample": None,
    "memory_used_bytes": {},
    "missing": {},
}


def state(facts=None, **telemetry):
    """Return the state of a node with this telemetry in all repeats."""
    result = measured(REPEATS, device="gpu", gpus=1, input="synthetic", facts=facts)
    return state_of([observed(result, **telemetry)])


def found(node):
    """Return in what a node differs from three usual ones."""
    usual = [state(), state(), state()]
    return [(each.fact, each.value, each.others) for each in differences(node, usual)]


def test_a_node_like_the_others_has_no_differences():
    assert found(state()) == []


@pytest.mark.parametrize(
    "telemetry, difference",
    [
        ({"clock_mhz": {"gpu 0": (1200, 1980)}}, ("clock_mhz", "1,200", "1,900")),
        ({"throttled": {"gpu 0": {"thermal": 3}}}, ("throttled", "thermal", "–")),
        ({"temperature_celsius": {"gpu 0": 88.0}}, ("celsius", "88.00", "60.00")),
    ],
)
def test_a_slow_node_s_clock_throttling_and_temperature_are_told(telemetry, difference):
    assert found(state(**telemetry)) == [difference]


def observed(result, **telemetry):
    """Return the result with this telemetry in all repeats."""
    summary = TelemetrySummary(**TELEMETRY | telemetry)
    repeats = [each.model_copy(update={"telemetry": summary}) for each in result.repeats]
    return result.model_copy(update={"repeats": repeats})


def test_slow_nodes_are_compared_with_good_ones(tmp_path):
    """Two throttled nodes would otherwise hide each other's clocks."""
    made_fleet(tmp_path, [1, 0.9, 0.9, 1.001, 0.999, 1, 1])
    fleet = []
    for measurement in read(tmp_path):
        lowest = 1200 if measurement.result.config.node in ("node2", "node3") else 1900
        result = observed(measurement.result, clock_mhz={"gpu 0": (lowest, 1980)})
        fleet.append(replace(measurement, result=result))
    slow = [node for node in judge_fleet(fleet).nodes if node.verdict == "slow"]
    clocks = [(each.value, each.others) for node in slow for each in node.differences]
    assert clocks == [("1,200", "1,900")] * 2


# The command.


def test_the_command_names_slow_nodes_and_writes_lists_for_slurm(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.9, 0.999, 0.93, 1.0])
    done = cli("fleet", tmp_path, "--json", tmp_path / "fleet.json")
    assert done.exit_code == 1
    first, _blank, _headings, *rows = done.stdout.splitlines()
    assert first == "Slow nodes: 2 of 6 (node3, node5)."
    assert [row.split()[:3] for row in rows[:2]] == [["■", "node3", "A"], ["■", "node5", "A"]]
    assert (tmp_path / "slow-nodes.txt").read_text() == "node3,node5\n"
    assert (tmp_path / "ok-nodes.txt").read_text() == "node1,node2,node4,node6\n"
    assert (tmp_path / "fleet" / "report.html").exists()
    stored = Fleet.model_validate_json((tmp_path / "fleet.json").read_text())
    assert stored.named("slow") == ["node3", "node5"]


def test_the_command_tells_in_what_a_slow_node_differs(tmp_path):
    made_fleet(tmp_path, [1, 1.001, 0.999, 1.0])
    slow = [0.9 * value for value in REPEATS]
    store(tmp_path, "slow", slow, facts={"driver": "535.2"})
    assert "driver: 535.2 (other nodes: 525.60)" in cli("fleet", tmp_path).stdout


def test_the_page_has_the_verdicts_of_the_command(tmp_path):
    """By the options that were given, and without results that contradict their raw files."""
    made_fleet(tmp_path, [1, 1.001, 0.97, 0.999, 1.0])
    page = tmp_path / "fleet" / "report.html"
    assert cli("fleet", tmp_path).exit_code == 1
    assert "Slow nodes: 1 of 5 (node3)." in page.read_text()
    assert cli("fleet", tmp_path, "--threshold", "10").exit_code == 0
    assert "Slow nodes: 0 of 5." in page.read_text()
    # As perfkit report reads it.
    assert Summary.read(tmp_path).fleet.named("slow") == []
    raw = next(tmp_path.glob("*-node3-*/repeats/1/rank0.jsonl"))
    raw.write_text("")
    cli("fleet", tmp_path)
    assert "Slow nodes: 0 of 4." in page.read_text()


def test_results_without_a_node_are_refused_with_the_commands_for_a_fleet(tmp_path):
    keep(tmp_path / "alone", measured(REPEATS))
    done = cli("fleet", tmp_path)
    assert done.exit_code == 2
    assert "no measurement names a node" in done.stderr
    assert "perfkit sweep parameters/fleet.yaml --slurm --each-node\n" in done.stderr
    assert "perfkit sweep parameters/fleet.yaml -p node NAME\n" in done.stderr
