"""The published tables in their sources' shapes: every number, and what was measured beside."""

import re
from collections import Counter

import pytest
from made import measured, write_all

import perfkit
from perfkit.report.published_grids import grids
from perfkit.report.summary import Summary, published_tables
from perfkit.tables.cells import SHAPES, cells_of
from perfkit.tables.matches import match
from perfkit.tables.series import series_of

FLEETX = {
    "device": "gpu",
    "gpus": 8,
    "batch_size": 128,
    "strategy": "fleetx-fp32",
    "execution": "static",
}
"""What the FleetX ResNet-50 page measured to be 2506.47 images/s."""


@pytest.fixture(scope="module")
def cells():
    return cells_of(perfkit.published())


def tables(cells, name, matches=()):
    """The table's parts: their captions, columns, rows, and texts of the cells."""
    return [
        (
            grid.caption,
            grid.columns,
            {label: [[e.text for e in cell] for cell in row] for label, row in grid.rows},
        )
        for grid in grids(name, cells, list(matches))
    ]


def matched(cells, tmp_path, *results):
    frame = perfkit.load(write_all(tmp_path, *results))
    return match(cells, [row for one in series_of(frame) for row in one.rows])


def test_every_published_number_stands_in_its_table_to_the_digits_of_its_source(cells):
    for name in SHAPES:
        shown = Counter(
            entry.text
            for grid in grids(name, cells, [])
            for _label, row in grid.rows
            for cell in row
            for entry in cell
            if entry.kind == "published"
        )
        own = [cell["printed"] for cell in cells if cell["table"] == name]
        assert shown == Counter(text for text in own if text)


def test_what_was_not_published_and_what_has_a_dash_are_told_apart(cells):
    entries = [
        cell[0].text
        for name in SHAPES
        for grid in grids(name, cells, [])
        for _label, row in grid.rows
        for cell in row
    ]
    assert entries.count("not published") == 24
    assert entries.count("– (a dash)") == 21


def test_the_fleetx_tables_are_batch_by_topology_for_each_precision(cells):
    parts = tables(cells, "fleetx-resnet50")
    assert [caption for caption, _columns, _rows in parts] == [
        "V100, FP32",
        "V100, AMP",
        "V100, auto",
    ]
    for _caption, columns, rows in parts:
        assert columns == ["1x1", "1x8", "2x8", "4x8", "8x8"]
        assert [*rows] == ["32", "64", "128", "256"]
    assert parts[2][2]["32"] == [
        ["not published", "not run"],
        ["4796.12", "not run"],
        ["9466.25", "not run"],
        ["– (a dash)", "not run"],
        ["30607.08", "not run"],
    ]


def test_dlperfs_table_has_speed_up_and_efficiency_beside_each_framework(cells):
    ((_caption, columns, rows),) = tables(cells, "dlperf-resnet50")
    assert columns == ["OneFlow", "speed-up", "efficiency", "Paddle", "speed-up", "efficiency"]
    assert [*rows] == ["1x1", "1x4", "1x8", "2x8", "4x8"]
    assert [cell[0] for cell in rows["4x8"]] == [
        "11548.45",
        "30.09",
        "94 %",
        "9311.85",
        "26.44",
        "82.6 %",
    ]


def test_a_printed_speed_up_that_does_not_follow_from_the_throughputs_is_shown(cells):
    notes = {
        label: row[4][0].notes
        for grid in grids("dlperf-resnet50", cells, [])
        for label, row in grid.rows
    }
    assert notes == {
        "1x1": [],
        "1x4": ["printed: 3.87"],
        "1x8": ["printed: 7.47"],
        "2x8": [],
        "4x8": ["printed: 26.55"],
    }


def test_the_printed_summarys_extra_topology_has_its_speed_up_over_the_tables_one_gpu(cells):
    ((_caption, _columns, rows),) = tables(cells, "dlperf-resnet50-log")
    assert rows == {"1x2": [["633.65", "not run"], ["1.80"], ["89.9 %"]]}


def test_dlperfs_runs_are_in_order(cells):
    ((_caption, columns, rows),) = tables(cells, "dlperf-resnet50-run")
    assert columns == [f"run {n}" for n in range(1, 7)]
    assert [*rows] == ["1x1", "1x2", "1x4", "1x8", "2x8", "4x8"]
    assert [cell[0] for cell in rows["1x1"]] == [
        "353.77", "354.28", "352.5", "350.54", "350.77", "351.55"
    ]  # fmt: skip


def test_the_readmes_rows_are_gpus_and_batch_and_mark_a_smaller_batch(cells):
    fp32, amp = grids("perf-resnet50", cells, [])
    assert fp32.columns == ["Paddle", "TensorFlow", "PyTorch", "MXNet"]
    assert [label for label, _row in fp32.rows] == [
        f"GPU={count}, BS=128" for count in (1, 8, 32)
    ]
    assert [label for label, _row in amp.rows] == [
        f"GPU={count}, BS={batch}" for count in (1, 8, 32) for batch in (128, 256)
    ]
    paddle = fp32.rows[0][1][0][0]
    assert (paddle.text, paddle.notes) == ("383", ["BS=96"])


def test_accumulation_is_part_of_a_rows_name(cells):
    fp32, _amp = grids("perf-bert", cells, [])
    assert [label for label, _row in fp32.rows][-2:] == [
        "GPU=32, BS=32, without gradient accumulation",
        "GPU=32, BS=48, without gradient accumulation",
    ]


def test_the_report_is_by_gpu_and_precision_and_marks_what_is_pure_fp16(cells):
    parts = grids("paddle-resnet50-report", cells, [])
    captions = ["V100, FP32", "V100, AMP", "A100, FP32", "A100, AMP"]
    assert [part.caption for part in parts] == captions
    assert parts[1].rows[0][1][0][0].notes == ["O2 (pure FP16)"]


def test_the_summary_without_a_measurement_has_every_published_number(tmp_path, cells):
    html = published_tables(Summary.of(tmp_path)).html
    words = Counter(re.findall(r">([\d.]+)<", html))
    for printed, count in Counter(cell["printed"] for cell in cells if cell["printed"]).items():
        assert words[printed] >= count, printed


def test_a_measurement_stands_below_the_published_number_with_ratio_and_differences(
    cells, tmp_path
):
    found = matched(cells, tmp_path, measured([2600.0, 2500.0, 2550.0], **FLEETX))
    entry = next(
        cell[1]
        for grid in grids("fleetx-resnet50", cells, found)
        for label, row in grid.rows
        for cell in row
        if label == "128" and cell[0].text == "2506.47"
    )
    assert entry.text == "2550"
    assert entry.notes == [
        "1.02 of published",
        "2500 – 2600 (75 %, n=3)",
        "median of 3 runs; each the mean of steps 21-120; "
        "published: median of 7 runs; each the mean of steps 21-120",
    ]


def test_the_published_protocol_on_the_published_gpu_differs_in_nothing(cells, tmp_path):
    found = matched(cells, tmp_path, measured([2550.0] * 7, **FLEETX))
    here = {one.cell["table"]: one.differs for one in found}
    assert here["fleetx-resnet50"] == {}
    # A 32 GB card is not the 16 GB one of the other report, which prints no strategy.
    assert {*here["dlperf-resnet50"]} == {"gpu", "strategy", "statistic"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"facts": {"gpus": ["NVIDIA H100 80GB HBM3, 80 GiB"]}},
            "on NVIDIA H100 80GB HBM3; published: V100",
        ),
        ({"used": "bf16"}, "really bf16"),
        ({"tf32_used": True}, "really fp32 (TF32)"),
        ({"layout": "NHWC"}, "layout NHWC"),
        ({"execution": "dynamic"}, "execution dynamic"),
        ({"strategy": "none"}, "strategy none"),
    ],
)
def test_in_what_a_measurement_differs_from_the_published_is_told(
    cells, tmp_path, change, told
):
    found = matched(cells, tmp_path, measured([2550.0] * 7, **FLEETX | change))
    differs = next(m.differs for m in found if m.cell["table"] == "fleetx-resnet50")
    assert [*differs.values()] == [told]


def test_tf32_that_was_asked_for_and_not_used_is_no_difference(cells, tmp_path):
    found = matched(cells, tmp_path, measured([1.0], tf32=True, tf32_used=False, **FLEETX))
    assert not any("precision" in one.differs for one in found)


def test_another_input_than_the_published_is_told(cells, tmp_path):
    fp32 = {"device": "gpu", "gpus": 1, "batch_size": 256, "input": "synthetic"}
    found = matched(cells, tmp_path, measured([393.0] * 7, **fp32))
    (differs,) = (m.differs for m in found if m.cell["printed"] == "393.561")
    assert differs["input"] == "input synthetic; published: dali/xla"


@pytest.mark.parametrize(
    "other",
    [
        {"device": "cpu", "gpus": None, "processes": 8},
        {"gpus": 4},
        {"nodes": 2, "launcher": "srun"},
        {"batch_size": 127},
        {"precision": "amp"},
        {"accumulate": 2},
        {"model": "vgg16"},
        {"image_size": 32},
    ],
)
def test_a_measurement_of_other_work_is_not_beside_that_number(cells, tmp_path, other):
    fp32 = {"device": "gpu", "gpus": 8, "batch_size": 128}
    found = matched(cells, tmp_path, measured([1.0], **fp32 | other))
    assert "2506.47" not in {one.cell["printed"] for one in found}


def test_a_failed_measurement_stands_in_its_cell_with_its_code(cells, tmp_path):
    found = matched(cells, tmp_path, measured([], device="gpu", gpus=8, batch_size=128))
    shown = [
        cell
        for _part, _columns, rows in tables(cells, "fleetx-resnet50", found)
        for row in rows.values()
        for cell in row
    ]
    assert ["2506.47", "failed: out_of_memory"] in shown
    assert all(one.ratio is None for one in found)


def test_what_was_measured_where_nothing_was_published_has_no_ratio(cells, tmp_path):
    found = matched(cells, tmp_path, measured([350.0], device="gpu", gpus=1, batch_size=32))
    (one,) = found
    assert (one.cell["status"], one.ratio) == ("not_published", None)
