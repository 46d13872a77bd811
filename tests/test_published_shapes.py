"""The page of published tables: every number in its source's layout, what was measured beside
it, and charts that show what the sources' pages do."""

import re
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from made import measured, write_all
from matplotlib.figure import Figure

import perfkit
from perfkit.reference.cells import RUNS, SHAPES, cells_of, labels
from perfkit.reference.matches import difference_words, match
from perfkit.report.published import published_tables, scaling
from perfkit.report.section import Html, Picture
from perfkit.results.frames import records
from perfkit.text.language import LANGUAGES, in_language

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


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    """The page when nothing was measured."""
    return shown(tmp_path_factory.mktemp("empty"))


def shown(outputs, *results):
    frame = perfkit.load(write_all(outputs, *results))
    return published_tables(SimpleNamespace(measurements=frame, outputs=Path("nowhere")))


def texts(section):
    """All but the figures, as HTML."""
    return "\n".join(part.html for part in section.parts if isinstance(part, Html))


def tables(section, table):
    """The parts of a published table: their captions, columns, and rows of cells' lines."""
    names = [name for name in SHAPES for _part in dict.fromkeys(parts(name))]
    found = BeautifulSoup(texts(section), "html.parser").find_all("table")
    found = [one for one in found if one.caption]
    assert len(found) == len(names)
    return [read(one) for one, name in zip(found, names, strict=True) if name == table]


def parts(table):
    return [
        labels(cell)["part"] for cell in cells_of(perfkit.published()) if cell["table"] == table
    ]


def read(table):
    for line in table.find_all("br"):
        line.replace_with("|")
    (_corner, *columns), *rows = (
        [re.split(r"\s*\|\s*", cell.get_text().strip()) for cell in row.find_all(["th", "td"])]
        for row in table.find_all("tr")
    )
    columns = [name for (name,) in columns]
    named = {label: dict(zip(columns, row, strict=True)) for (label,), *row in rows}
    return table.caption.get_text(), columns, named


def matched(cells, tmp_path, *results):
    return match(cells, records(perfkit.load(write_all(tmp_path, *results))))


def test_every_published_number_stands_in_its_table_to_the_digits_of_its_source(section, cells):
    for name in SHAPES:
        found = Counter(
            lines[0]
            for _caption, _columns, rows in tables(section, name)
            for row in rows.values()
            for column, lines in row.items()
            if not column.endswith(("speed-up", "efficiency")) and lines[0] not in ("", "–")
        )
        assert found == Counter(
            c["printed"] for c in cells if c["table"] == name and c["printed"]
        )


def test_what_was_not_published_is_blank_and_counted_and_a_dash_stays_a_dash(section):
    found = [
        lines[0]
        for name in set(SHAPES) - {"dlperf-resnet50-log"}
        for _caption, _columns, rows in tables(section, name)
        for row in rows.values()
        for lines in row.values()
    ]
    assert (found.count(""), found.count("–")) == (24, 21)
    blank = "Cells that are blank because nothing was published: %d."
    counts = {count: texts(section).count(blank % count) for count in (24, 0)}
    assert counts == {24: 1, 0: 4}
    assert "not run</" not in texts(section)


def test_what_was_not_run_is_counted_once_for_each_source(section, tmp_path):
    def not_run(section):
        return [int(n) for n in re.findall(r"of which not run: (\d+)", texts(section))]

    # DLPerf's 36 single runs stand beside no measurement.
    assert not_run(section) == [26, 44, 11, 77, 36]
    assert not_run(shown(tmp_path, measured([2550.0], **FLEETX))) == [25, 44, 10, 77, 36]


def test_each_source_has_its_heading_and_a_link_to_where_it_was_published(section, cells):
    page = BeautifulSoup(texts(section), "html.parser")
    sources = dict.fromkeys(cell["source"] for cell in cells)
    assert [heading.get_text() for heading in page.find_all("h2")] == [*sources]
    links = [heading.find_next("a")["href"] for heading in page.find_all("h2", id=True)]
    assert len({*links}) == len(sources)
    assert all(link.startswith("https://github.com/") for link in links)


def test_every_published_table_has_a_layout(cells):
    assert [*SHAPES] == [*dict.fromkeys(cell["table"] for cell in cells)]


def test_the_fleetx_tables_are_batch_by_topology_for_each_precision(section):
    found = tables(section, "fleetx-resnet50")
    assert [caption for caption, _columns, _rows in found] == [
        f"ResNet-50, V100, {precision}" for precision in ("FP32", "AMP", "auto")
    ]
    for _caption, columns, rows in found:
        assert columns == ["1x1", "1x8", "2x8", "4x8", "8x8"]
        assert [*rows] == ["32", "64", "128", "256"]
    first = [*found[2][2]["32"].values()]
    assert first == [[""], ["4796.12"], ["9466.25"], ["–"], ["30607.08"]]


def test_dlperfs_table_has_speed_up_and_efficiency_beside_each_framework(section):
    ((_caption, columns, rows),) = tables(section, "dlperf-resnet50")
    assert columns == [
        f"{framework}{more}"
        for framework in ("OneFlow", "Paddle")
        for more in ("", ": speed-up", ": efficiency")
    ]
    assert [*rows] == ["1x1", "1x4", "1x8", "2x8", "4x8"]
    assert [lines[0] for lines in rows["4x8"].values()] == [
        "11548.45",
        "30.09",
        "94 %",
        "9311.85",
        "26.44",
        "82.6 %",
    ]


def test_a_printed_speed_up_that_does_not_follow_from_the_throughputs_is_shown(section):
    ((_caption, _columns, rows),) = tables(section, "dlperf-resnet50")
    notes = {label: row["Paddle: speed-up"][1:] for label, row in rows.items()}
    assert notes == {
        "1x1": [],
        "1x4": ["printed: 3.87"],
        "1x8": ["printed: 7.47"],
        "2x8": [],
        "4x8": ["printed: 26.55"],
    }


def test_the_printed_summarys_extra_topology_has_its_speed_up_over_the_tables_one_gpu(section):
    ((_caption, _columns, rows),) = tables(section, "dlperf-resnet50-log")
    assert [lines[0] for lines in rows["1x2"].values()] == ["633.65", "1.80", "89.9 %"]


def test_dlperfs_runs_are_in_order(section):
    ((_caption, columns, rows),) = tables(section, RUNS)
    assert columns == [f"run {n}" for n in range(1, 7)]
    assert [*rows] == ["1x1", "1x2", "1x4", "1x8", "2x8", "4x8"]
    assert [lines[0] for lines in rows["1x1"].values()] == [
        "353.77", "354.28", "352.5", "350.54", "350.77", "351.55"
    ]  # fmt: skip


def test_the_readmes_rows_are_gpus_and_batch_and_mark_a_smaller_batch(section):
    (_fp32, columns, rows), (_amp, _columns, amp_rows) = tables(section, "perf-resnet50")
    assert columns == ["Paddle", "TensorFlow", "PyTorch", "MXNet"]
    assert [*rows] == [f"GPU={count}, BS=128" for count in (1, 8, 32)]
    assert [*amp_rows] == [
        f"GPU={count}, BS={batch}" for count in (1, 8, 32) for batch in (128, 256)
    ]
    assert rows["GPU=1, BS=128"]["Paddle"] == ["383", "BS=96"]


def test_accumulation_is_part_of_a_rows_name(section):
    (_caption, _columns, rows), _amp = tables(section, "perf-bert")
    assert [*rows][-2:] == [
        "GPU=32, BS=32, without gradient accumulation",
        "GPU=32, BS=48, without gradient accumulation",
    ]


def test_the_report_is_by_gpu_and_precision_and_marks_what_is_pure_fp16(section):
    found = tables(section, "paddle-resnet50-report")
    captions = ["V100, FP32", "V100, AMP", "A100, FP32", "A100, AMP"]
    assert [caption for caption, *_rest in found] == [f"ResNet-50, {name}" for name in captions]
    assert next(iter(found[1][2].values()))["Paddle"][1:] == ["O2 (pure FP16)"]


def test_a_measurement_stands_below_the_published_number_with_ratio_and_differences(tmp_path):
    section = shown(tmp_path, measured([2600.0, 2500.0, 2550.0], **FLEETX))
    _caption, _columns, rows = tables(section, "fleetx-resnet50")[0]
    assert rows["128"]["1x8"] == ["2506.47", "2550 (1.02×)"]
    beside = BeautifulSoup(texts(section), "html.parser").find("details")
    cells = [cell.get_text() for cell in beside.find_all("td")]
    assert cells == [
        "fleetx-resnet50 · 128 · 1x8 · V100, FP32",
        "2506.47",
        "2550 (1.02×)",
        "2500 – 2600 (75 %, n=3)",
        "complete",
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
    ("change", "words"),
    [
        (
            {"facts": {"gpus": ["NVIDIA H100 80GB HBM3, 80 GiB"]}},
            "GPU NVIDIA H100 80GB HBM3; published: V100",
        ),
        ({"used": "bf16"}, "effective precision bf16; published: fp32"),
        ({"tf32_used": True}, "effective precision fp32 (TF32); published: fp32"),
        ({"layout": "NHWC"}, "layout NHWC"),
        ({"execution": "dynamic"}, "execution dynamic"),
        ({"strategy": "none"}, "strategy none"),
    ],
)
def test_in_what_a_measurement_differs_from_the_published_is_stated(
    cells, tmp_path, change, words
):
    found = matched(cells, tmp_path, measured([2550.0] * 7, **FLEETX | change))
    differs = next(m.differs for m in found if m.cell["table"] == "fleetx-resnet50")
    assert difference_words(differs) == [words]


def test_tf32_that_was_asked_for_and_not_used_is_no_difference(cells, tmp_path):
    found = matched(cells, tmp_path, measured([1.0], tf32=True, tf32_used=False, **FLEETX))
    assert not any("precision" in one.differs for one in found)


def test_another_input_than_the_published_is_stated(cells, tmp_path):
    fp32 = {"device": "gpu", "gpus": 1, "batch_size": 256, "input": "synthetic"}
    found = matched(cells, tmp_path, measured([393.0] * 7, **fp32))
    (differs,) = (m.differs for m in found if m.cell["printed"] == "393.561")
    assert differs["input"] == ("dali/xla", "synthetic")
    assert "input synthetic; published: dali/xla" in difference_words(differs)


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


def test_of_many_measurements_at_a_place_the_cell_has_the_newest_and_the_list_has_all(tmp_path):
    results = [
        measured([2500.0 + day], **FLEETX).model_copy(
            update={"created": f"2026-01-0{day}T00:00:00+00:00"}
        )
        for day in (1, 3, 5, 2, 4)
    ]
    section = shown(tmp_path, *results)
    _caption, _columns, rows = tables(section, "fleetx-resnet50")[0]
    lines = [line.split(" (")[0] for line in rows["128"]["1x8"]]
    assert lines == ["2506.47", "2505", "2504", "2503", "and 2 more"]
    beside = BeautifulSoup(texts(section), "html.parser").find("details")
    assert len(beside.find_all("tr")) == 1 + 5


def test_a_failed_measurement_stands_in_its_cell_with_its_code(tmp_path):
    section = shown(tmp_path, measured([], device="gpu", gpus=8, batch_size=128))
    _caption, _columns, rows = tables(section, "fleetx-resnet50")[0]
    assert rows["128"]["1x8"] == ["2506.47", "failed: out_of_memory"]


def test_what_was_measured_where_nothing_was_published_has_no_ratio(cells, tmp_path):
    found = matched(cells, tmp_path, measured([350.0], device="gpu", gpus=1, batch_size=32))
    (one,) = found
    assert (one.cell["status"], one.ratio) == ("not_published", None)


def findings(section, table):
    """What the charts of a table's parts show, in sentences."""
    page = BeautifulSoup(texts(section), "html.parser")
    captions = [name for name in SHAPES for _part in dict.fromkeys(parts(name))]
    found, tables_seen = [], -1
    for element in page.find_all(["caption", "strong"]):
        tables_seen += element.name == "caption"
        if element.name == "strong" and captions[tables_seen] == table:
            found.append(element.get_text())
    return found


def test_findings_say_where_throughput_is_highest_and_what_more_gpus_give(section):
    assert findings(section, "fleetx-resnet50")[:2] == [
        "4913 images/s at batch 128 on 2x8, the highest of 6",
        "2x8 reaches up to 1.96 × 1x8, 98 % of ideal (batch per device: 128)",
    ]
    assert findings(section, "dlperf-resnet50") == [
        "4x8 reaches up to 30.1 × 1x1, 94 % of ideal (framework: OneFlow)"
    ]


def test_scaling_is_over_the_fewest_gpus_of_a_line():
    rows = [("1x1", 1, 32, 100.0), ("1x8", 8, 32, 720.0), ("1x8", 8, 64, 800.0)]
    cells = pd.DataFrame(rows, columns=["topology", "gpus", "batch_per_gpu", "throughput"])
    cells = cells.assign(name="Paddle", note=None, nodes=1)
    axes = Figure().subplots()
    finding = scaling(axes, cells, cells.iloc[:0])
    assert finding == ("1x8 reaches up to 7.20 × 1x1, 90 % of ideal (batch per device: 32)")
    (ideal,) = (line for line in axes.get_lines() if line.get_linestyle() == "--")
    assert {*ideal.get_ydata()} == {100}
    assert axes.get_ylim()[0] == 0


def test_one_gpu_that_its_source_calls_no_base_is_no_base(section):
    assert findings(section, "fleetx-vgg16")[-1].startswith("4x8 reaches up to 3.85 × 1x8")


def test_the_fastest_framework_is_counted_at_one_batch_size_and_without_ties(section):
    assert [
        finding.split(": ")[1]
        for table in ("perf-resnet50", "perf-bert", "paddle-resnet50-report")
        for finding in findings(section, table)
    ] == [
        "TensorFlow (3)",
        "MXNet (2), TensorFlow (2), Paddle (1)",
        "Paddle (6), TensorFlow (2)",
        "Paddle (4), PyTorch (2), TensorFlow (1)",
        "TensorFlow (3)",
        "Paddle (2), MXNet (1)",
        "MXNet (2)",
        "MXNet (2)",
    ]


def legends(section):
    """The texts in the legend of each figure's last panel."""
    return [
        [text.get_text() for text in part.figure.axes[-1].get_legend().get_texts()]
        for part in section.parts
        if isinstance(part, Picture)
    ]


def test_a_measured_number_joins_the_frameworks_of_its_gpu_and_no_other(section, tmp_path):
    result = measured([1438.5] * 7, batch_size=256, precision="pure_fp16", device="gpu", gpus=1)
    found = legends(shown(tmp_path / "same", result))
    changed = [new for new, old in zip(found, legends(section), strict=True) if new != old]
    assert changed == [["Paddle", "TensorFlow", "PyTorch", "MXNet", "Paddle, measured"]]
    assert found[-3] == changed[0]
    other = measured(
        [1438.5] * 7,
        batch_size=256,
        precision="pure_fp16",
        device="gpu",
        gpus=1,
        facts={"gpus": ["NVIDIA H100"]},
    )
    assert legends(shown(tmp_path / "other", other)) == legends(section)


def test_single_runs_are_dots_of_dlperfs_chart(section):
    (chart,) = (
        part.figure.axes[0]
        for part in section.parts
        if isinstance(part, Picture) and "OneFlow" in part.alt
    )
    dots = chart.collections[0].get_offsets()
    # Six runs at each of the five topologies of the table.
    assert len(dots) == 30


def test_names_from_elsewhere_are_never_markup(tmp_path):
    hostile = '<script>alert(1)</script> --> $\\frac{1}{0}$ %(used)s "& H100'
    facts = {"facts": {"gpus": [hostile]}}
    html = shown(tmp_path, measured([2550.0] * 7, **FLEETX | facts)).html
    assert "GPU &lt;script&gt;alert(1)&lt;/script&gt; --&gt;" in html
    assert "<script" not in html


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_chart_can_be_drawn_in_each_language(tmp_path, language):
    """A glyph that the fonts lack is a warning."""
    with in_language(language), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [part for part in shown(tmp_path).parts if isinstance(part, Picture)]
        assert len(found) == 15
        for part in found:
            assert part.alt and part.bundle(png=False)["image/svg+xml"]
            part.figure.draw_without_rendering()


def test_the_page_is_the_same_bytes_each_time(section, tmp_path):
    assert section.html == shown(tmp_path).html
