"""What may stand in one table stands there; what differs stands apart, and is named."""

import pytest
from made import measured, write_all

import perfkit
from perfkit.report.grid import Entry, batch_by_topology, speedup_by_topology
from perfkit.report.summary import (
    Summary,
    measured_charts,
    measured_tables,
    published_tables,
    speedups,
)
from perfkit.tables.series import series_of

GPU = {"device": "gpu", "gpus": 1}


def series(tmp_path, *results):
    return series_of(perfkit.load(write_all(tmp_path, *results)))


def texts(grid):
    """The grid's cells by row and column, each as the texts of its entries."""
    return {
        (label, column): [entry.text for entry in cell]
        for label, cells in grid.rows
        for column, cell in zip(grid.columns, cells, strict=True)
    }


def test_batch_sizes_and_topologies_of_one_environment_are_one_series(tmp_path):
    (one,) = series(
        tmp_path,
        measured([2.0], batch_size=8, processes=2),
        measured([1.0], batch_size=4),
        measured([1.5], batch_size=8),
    )
    assert [(row["batch_size"], row["topology"]) for row in one.rows] == [
        (4, "1x1"),
        (8, "1x1"),
        (8, "1x2"),
    ]
    assert one.differs == {}
    assert texts(batch_by_topology(one)) == {
        ("4", "1x1"): ["1.000"],
        ("4", "1x2"): ["not run"],
        ("8", "1x1"): ["1.500"],
        ("8", "1x2"): ["2.000"],
    }


@pytest.mark.parametrize(
    ("change", "key", "values"),
    [
        (
            {"facts": {"cpu": "Xeon"}},
            "environment.cpu",
            ["AMD EPYC (family 25 model 17)", "Xeon"],
        ),
        ({"facts": {"driver": "550"}}, "environment.driver", [None, "550"]),
        ({"facts": {"paddle": "2.6.2"}}, "environment.paddle", ["2.6.2", "3.3.1"]),
        ({"used": "bf16"}, "effective.precision", ["bf16", "fp32"]),
        ({"input": "synthetic"}, "input", ["dali", "synthetic"]),
        ({"protocol": "quick"}, "protocol", ["published", "quick"]),
        ({"label": "monday"}, "label", ["", "monday"]),
        ({"strategy": "fleetx-fp32"}, "strategy", ["fleetx-fp32", "none"]),
        ({"seed": 7}, "seed", [0, 7]),
    ],
)
def test_what_differs_is_never_in_one_table_and_is_named(tmp_path, change, key, values):
    found = series(tmp_path, measured([1.0]), measured([2.0], **change))
    assert [len(one.rows) for one in found] == [1, 1]
    assert sorted((one.differs[key] for one in found), key=str) == sorted(values, key=str)
    assert len({one.name for one in found}) == 2


def test_gpus_that_differ_are_two_series_named_by_their_names(tmp_path):
    a100 = {"gpus": ["NVIDIA A100-SXM4-40GB, 40 GiB"] * 2}
    found = series(tmp_path, measured([1.0], **GPU), measured([2.0], facts=a100, **GPU))
    assert [one.name for one in found] == [
        "Paddle, fp32, dali, 2 × NVIDIA A100-SXM4-40GB",
        "Paddle, fp32, dali, 8 × Tesla V100-SXM2-32GB",
    ]


def test_the_commit_of_the_suite_alone_keeps_nothing_apart(tmp_path):
    other = {"suite_commit": "1" * 40, "suite_modified": True}
    assert len(series(tmp_path, measured([1.0]), measured([2.0], facts=other))) == 1


def test_a_measurement_that_failed_before_it_showed_anything_stands_with_the_others(tmp_path):
    (one,) = series(tmp_path, measured([1.0]), measured([], batch_size=64))
    assert texts(batch_by_topology(one)) == {
        ("32", "1x1"): ["1.000"],
        ("64", "1x1"): ["failed: out_of_memory"],
    }


def test_two_measurements_of_one_cell_stand_side_by_side(tmp_path):
    two = {"nodes": 2, "launcher": "srun"}
    other = {"nodes": 2, "launcher": "mpirun", "hosts": "a,b"}
    (one,) = series(tmp_path, measured([1.0], **two), measured([3.0], **other))
    ((entry, second),) = (cell for _label, row in batch_by_topology(one).rows for cell in row)
    assert {entry.text: entry.notes[-2:], second.text: second.notes[-2:]} == {
        "1.000": ["launcher srun", "hosts None"],
        "3.000": ["launcher mpirun", "hosts a,b"],
    }


def test_series_that_few_words_do_not_tell_apart_are_numbered_and_differ_in_full(tmp_path):
    long = "OMP_NUM_THREADS=1 " * 9
    results = [measured([1.0], facts={"variables": long + end}) for end in ("A=1", "A=2")]
    found = series(tmp_path, *results)
    assert [one.name[-4:] for one in found] == [" (1)", " (2)"]
    assert [one.differs["environment.variables"][-3:] for one in found] == ["A=1", "A=2"]


def test_what_is_empty_is_no_part_of_a_name(tmp_path):
    found = series(
        tmp_path, measured([1.0]), measured([2.0], label="monday"), measured([], **GPU)
    )
    assert sorted(one.name for one in found) == [
        "Paddle, fp32, dali, cpu",
        "Paddle, fp32, dali, cpu, label monday",
        "Paddle, fp32, dali, gpu",
    ]


def test_nodes_that_differ_keep_a_measurement_apart(tmp_path):
    alike = measured([1.0], nodes=2, launcher="srun")
    node = {"node": 1, "name": "b", "interface": "eth0", "differs": {"gpus": "A100"}}
    mixed = alike.model_validate(alike.model_dump() | {"nodes": [node]})
    found = series(tmp_path, alike, mixed)
    assert {one.differs["nodes_differ"] for one in found} == {None, "gpus: A100"}


def test_a_failure_before_the_input_was_read_stands_with_those_that_read_it(tmp_path):
    assert len(series(tmp_path, measured([1.0]), measured([], batch_size=64))) == 1


def test_a_number_comes_with_its_interval_its_level_and_n(tmp_path):
    (one,) = series(tmp_path, measured([10.0, 12.0, 11.0, 14.0, 13.0]))
    ((entry,),) = (cell for _label, cells in batch_by_topology(one).rows for cell in cells)
    assert entry.text == "12.00"
    assert entry.notes == ["10.00 – 14.00 (93.75 %, n=5)"]


def test_a_partial_measurement_says_so_beside_its_number(tmp_path):
    result = measured([10.0, 12.0])
    failure = {"code": "time_out", "message": "repeat 3 took over 9 s"}
    partial = result.model_validate(
        result.model_dump()
        | {"status": "partial", "failure": failure}
        | {"protocol": result.protocol.model_dump() | {"repeats": 7}}
    )
    (one,) = series(tmp_path, partial)
    ((entry,),) = (cell for _label, cells in batch_by_topology(one).rows for cell in cells)
    assert entry.notes[-1] == "partial: 2 of 7 repeats time_out"


def test_speed_up_is_over_the_fewest_devices_at_the_same_batch_size(tmp_path):
    (one,) = series(
        tmp_path,
        measured([100.0], gpus=1, device="gpu"),
        measured([760.0], gpus=8, device="gpu"),
        measured([1440.0], gpus=8, nodes=2, device="gpu", launcher="srun"),
        measured([500.0], gpus=8, device="gpu", batch_size=64),
    )
    grid = speedup_by_topology(one)
    assert grid.rows[0][1][1][0].notes == ["the base"]
    assert [(label, [cell[0].text for cell in cells]) for label, cells in grid.rows] == [
        ("32, 1x1", ["100.0", "1.00", "100 %"]),
        ("32, 1x8", ["760.0", "7.60", "95 %"]),
        ("32, 2x8", ["1440", "14.40", "90 %"]),
    ]


def test_processes_that_share_the_cores_have_a_speed_up_and_no_efficiency(tmp_path):
    (one,) = series(
        tmp_path,
        measured([4.0]),
        measured([5.0], processes=2),
        measured([8.0], nodes=2, launcher="srun"),
    )
    grid = speedup_by_topology(one)
    assert {label: [cell[0].text for cell in cells[1:]] for label, cells in grid.rows} == {
        "32, 1x1": ["1.00", "100 %"],
        "32, 1x2": ["1.25", "the same cores"],
        "32, 2x1": ["2.00", "100 %"],
    }


def test_without_a_second_topology_there_is_no_speed_up(tmp_path):
    (one,) = series(tmp_path, measured([1.0]), measured([2.0], batch_size=64))
    assert speedup_by_topology(one) is None


def test_a_failed_topology_is_no_base_of_a_speed_up(tmp_path):
    (one,) = series(tmp_path, measured([], **GPU), measured([2.0], device="gpu", gpus=2))
    assert speedup_by_topology(one) is None


def test_the_order_of_measurements_never_changes_a_byte_of_the_tables(tmp_path):
    results = [
        measured([float(batch)] * repeats, batch_size=batch, input=input, **where)
        for batch in (32, 64)
        for repeats, input in ((1, "dali"), (2, "synthetic"))
        for where in ({"processes": 1}, {"processes": 2}, GPU)
    ]
    frame = perfkit.load(write_all(tmp_path, *results, measured([]), measured([])))
    shown = set()
    for seed in range(10):
        shuffled = frame.sample(frac=1, random_state=seed)
        shuffled.attrs = frame.attrs
        summary = Summary(tmp_path, shuffled)
        sections = (measured_tables, speedups, published_tables)
        shown.add("".join(section(summary).html for section in sections))
    assert len(shown) == 1


def test_the_order_of_measurements_never_changes_a_byte_of_the_charts(tmp_path):
    results = [
        measured([1.0 * b, 2.0], batch_size=b, processes=p) for b in (4, 8) for p in (1, 2)
    ]
    frame = perfkit.load(write_all(tmp_path, *results))
    shown = set()
    for seed in range(4):
        shuffled = frame.sample(frac=1, random_state=seed)
        shuffled.attrs = frame.attrs
        shown.add(measured_charts(Summary(tmp_path, shuffled)).html)
    assert len(shown) == 1


def test_no_cell_of_a_table_is_ever_empty(tmp_path):
    results = [measured([1.0], batch_size=4), measured([2.0], batch_size=8, processes=3)]
    (one,) = series(tmp_path, *results)
    cells = [cell for _label, row in batch_by_topology(one).rows for cell in row]
    assert len(cells) == 4
    assert all(cell and all(entry.text for entry in cell) for cell in cells)
    assert cells.count([Entry("not run", kind="absent")]) == 2


def test_more_than_linear_scaling_is_warned_of_unless_the_intervals_allow_it(tmp_path):
    base = measured([100.0, 101.0], device="gpu", gpus=1)
    for values, notes in (([210.0, 211.0], ["warning: above linear"]), ([201.0, 300.0], [])):
        outputs = tmp_path / str(len(notes))
        (one,) = series(outputs, base, measured(values, device="gpu", gpus=2))
        *_others, (_label, line) = speedup_by_topology(one).rows
        assert line[-1][0].notes == notes
