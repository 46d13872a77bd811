"""The summary: what may stand in one row or table, who leads, and what its charts show."""

import re
import warnings
from itertools import pairwise
from statistics import median

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from made import measured, write_all
from matplotlib.collections import PathCollection
from test_diagnosis import made as diagnosis

from perfkit.comparison.live.stored import (
    JudgedInTurn,
    LiveComparison,
    LiveSide,
    Turn,
    write_comparison,
)
from perfkit.comparison.verdict import Number
from perfkit.config import ROOT
from perfkit.diagnosis.verdict import FILE
from perfkit.report import summary as sections
from perfkit.report.section import Picture
from perfkit.report.summary import Summary
from perfkit.results.frames import load
from perfkit.results.store import ResultError
from perfkit.statistics import median_estimate, ratio_interval
from perfkit.text.language import in_language

GPU = {"device": "gpu", "gpus": 1}
SECTIONS = [
    sections.fastest,
    sections.ratios,
    sections.throughput_by_batch,
    sections.scaling,
    sections.bottlenecks,
    sections.beside_published,
    sections.left_out,
]
HOSTILE = '<script>alert(1)</script> --> $\\frac{1}{0}$ "& V100'


def read(outputs, *results):
    return Summary.read(write_all(outputs, *results))


def tables(section):
    """Each table as its caption and its rows, which are heading -> text of the cell."""
    found = []
    for table in BeautifulSoup(section.html, "html.parser").find_all("table"):
        names = [heading.get_text() for heading in table.thead.find_all("th")]
        lines = [[cell.get_text(" ") for cell in row.find_all("td")] for row in table("tr")[1:]]
        caption = table.caption.get_text() if table.caption else ""
        rows = [dict(zip(names, line, strict=True)) for line in lines]
        found.append((caption, rows))
    return found


def only_table(section):
    ((_caption, rows),) = tables(section)
    return rows


def bold(section):
    cells = BeautifulSoup(section.html, "html.parser").select("td strong")
    return [text.get_text() for text in cells]


def figures(section):
    return [part.figure for part in section.parts if isinstance(part, Picture)]


def lines_of(axes):
    """Label -> y values of each line in the legend."""
    bars = {bar.get_label(): bar.lines[0].get_ydata() for bar in axes.containers}
    bars |= {line.get_label(): line.get_ydata() for line in axes.lines}
    named = {name: ys for name, ys in bars.items() if not name.startswith("_")}
    return {name: [round(float(y), 6) for y in ys] for name, ys in named.items()}


def notes_of(axes):
    return [text.get_text() for text in axes.texts]


def compare(outputs, values, name="frameworks", key="framework", created="2026-01-02"):
    """Store an interleaved comparison: folder of each variant, the base first, and its
    throughputs, of a variant whose `key` is the second word of its folder."""
    (base, a), *others = values.items()
    pairs = []
    for side, b in others:
        turns = [
            Turn(repeat=k, a=x, b=y, a_began=None, b_began=None, in_turn=True)
            for k, (x, y) in enumerate(zip(a, b, strict=True), 1)
        ]
        found = median_estimate([turn.ratio for turn in turns])
        numbers = [
            Number(name=n, value=median(v), unit="images/s") for n, v in ((base, a), (side, b))
        ]
        pairs.append(
            JudgedInTurn(
                keys={},
                a=numbers[0],
                b=numbers[1],
                ratio=found.value,
                interval=(found.low, found.high),
                interval_level=found.level,
                verdict="faster",
                regressed=False,
                across={},
                differs={},
                turns=turns,
            )
        )
    stored = load(outputs).set_index("folder")
    sides = [
        LiveSide(
            name=f"{key}={stored[key][side]}",
            values={key: stored[key][side]},
            id=side,
            number=None,
            failure=None,
            differs={},
            matmul_flops_per_second=None,
            of_own_peak=None,
            of_highest_peak=None,
        )
        for side in values
    ]
    comparison = LiveComparison(
        schema_version=2,
        created=f"{created}T00:00:00+00:00",
        command="perfkit compare --live",
        model="resnet50",
        named=[key],
        repeats=len(a),
        level=0.95,
        threshold=0.05,
        sides=sides,
        pairs=pairs,
        regressed=False,
    )
    write_comparison(outputs / "comparisons" / name, comparison)


def frameworks(outputs, *more, paddle, torch, jax=None, **changes):
    """Measurements of one row, compared in turn: the repeats of each framework. `more` are
    other results."""
    values = {"paddle": paddle, "torch": torch} | ({"jax": jax} if jax else {})
    layouts = {"paddle": "NCHW", "torch": "NHWC", "jax": "NHWC"}
    results = [
        measured(repeats, framework=name, layout=layouts[name], **changes)
        for name, repeats in values.items()
    ]
    write_all(outputs, *results, *more)
    folders = [f"{result.id}-{k}" for k, result in enumerate(results)]
    compare(outputs, dict(zip(folders, values.values(), strict=True)))
    return Summary.read(outputs)


def with_pages(outputs, *folders):
    """Let there be pages in these folders."""
    for folder in folders:
        (outputs / folder).mkdir(exist_ok=True)
        for page in ("report.html", "report.zh.html"):
            (outputs / folder / page).touch()


SLOW = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5]
FAST = [value * 1.3 for value in SLOW]
UNSURE = [12.0, 9.0, 12.1, 9.1, 12.2, 12.3]


# Who leads.


def test_the_leader_is_bold_and_named_with_its_ratio_where_the_interval_excludes_1(tmp_path):
    section = sections.fastest(frameworks(tmp_path, paddle=SLOW, torch=FAST))
    assert bold(section) == ["13.32"]
    (row,) = only_table(section)
    assert "1.30 × Paddle (1.30 – 1.30)" in row["PyTorch"]
    first = BeautifulSoup(section.html, "html.parser").p.strong.get_text()
    assert first == "Fastest: ResNet-50 fp32 batch 32: PyTorch, 1.30 × Paddle (1.30 – 1.30)."


def test_no_leader_is_bold_where_an_interval_includes_1(tmp_path):
    section = sections.fastest(frameworks(tmp_path, paddle=SLOW, torch=UNSURE))
    assert bold(section) == []
    assert "ResNet-50 fp32 batch 32: undecided, PyTorch is 1.17 × Paddle" in section.html


def test_a_base_that_all_variants_are_slower_than_leads(tmp_path):
    section = sections.fastest(frameworks(tmp_path, paddle=FAST, torch=SLOW, jax=SLOW))
    assert bold(section) == ["13.32"]
    assert "ResNet-50 fp32 batch 32: Paddle, PyTorch is 0.769 × Paddle" in section.html


def test_frameworks_share_a_row_though_each_does_the_work_in_its_own_way(tmp_path):
    eager = measured([2.0], framework="torch", layout="NHWC", execution="dynamic")
    static = measured([1.0], execution="static")
    (row,) = only_table(sections.fastest(read(tmp_path / "a", static, eager)))
    assert row["Paddle"].endswith("static") and "static" not in row["PyTorch"]
    both = read(tmp_path / "b", static, eager, measured([3.0], execution="dynamic"))
    rows = only_table(sections.fastest(both))
    assert sorted("static" in row["Input"] for row in rows) == [False, True]


def test_a_leader_has_to_be_ahead_of_every_framework_that_was_compared(tmp_path):
    near = [value * 1.3 * factor for value, factor in zip(SLOW, [1.1, 0.9] * 3, strict=True)]
    undecided = frameworks(tmp_path / "near", paddle=SLOW, torch=FAST, jax=near)
    assert bold(sections.fastest(undecided)) == []
    words = "batch 32: JAX or PyTorch (undecided between them), both faster than Paddle."
    assert words in sections.fastest(undecided).html
    ahead = frameworks(tmp_path / "ahead", paddle=SLOW, torch=FAST, jax=SLOW)
    assert bold(sections.fastest(ahead)) == ["13.32"]


def test_each_row_that_was_compared_has_an_answer_of_its_own(tmp_path):
    sizes = {4: SLOW, 8: [value * 2 for value in SLOW]}
    results = []
    for size, paddle in sizes.items():
        results.append(measured(paddle, batch_size=size))
        torch = [value * (1.3 if size == 4 else 0.5) for value in paddle]
        results.append(measured(torch, batch_size=size, framework="torch", layout="NHWC"))
    write_all(tmp_path, *results)
    for k, size in enumerate(sizes):
        pair = {f"{r.id}-{n}": r for n, r in enumerate(results) if r.config.batch_size == size}
        values = {n: [one.throughput for one in r.repeats] for n, r in pair.items()}
        compare(tmp_path, values, name=f"b{size}", created=f"2026-01-0{k + 2}")
    first = BeautifulSoup(sections.fastest(Summary.read(tmp_path)).html, "html.parser").p
    assert first.get_text() == (
        "Fastest: ResNet-50 fp32 batch 4: PyTorch, 1.30 × Paddle (1.30 – 1.30); "
        "ResNet-50 fp32 batch 8: Paddle, PyTorch is 0.500 × Paddle (0.500 – 0.500)."
    )


def test_answers_beyond_the_most_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "MOST_ANSWERS", 0)
    html = sections.fastest(frameworks(tmp_path, paddle=SLOW, torch=FAST)).html
    assert "1 more: in the tables below." in html


def test_ratios_are_to_paddle_though_the_base_is_another_framework(tmp_path):
    values = {"torch": FAST, "jax": [value * 2 for value in SLOW], "paddle": SLOW}
    layouts = {"paddle": "NCHW", "torch": "NHWC", "jax": "NHWC"}
    results = [measured(v, framework=n, layout=layouts[n]) for n, v in values.items()]
    write_all(tmp_path, *results)
    folders = [f"{result.id}-{k}" for k, result in enumerate(results)]
    compare(tmp_path, dict(zip(folders, values.values(), strict=True)))
    section = sections.fastest(Summary.read(tmp_path))
    (row,) = only_table(section)
    assert "1.30 × Paddle (1.30 – 1.30)" in row["PyTorch"]
    assert "2.00 × Paddle (2.00 – 2.00)" in row["JAX"]
    assert "≈" not in section.html and "×" not in row["Paddle"]
    assert "ResNet-50 fp32 batch 32: JAX, 2.00 × Paddle" in section.html


def test_without_an_interval_the_notes_say_nothing_of_its_level(tmp_path):
    html = sections.fastest(read(tmp_path, measured([1.0]))).html
    assert "nan" not in html and "Median of n repeats." in html


def test_a_framework_that_failed_keeps_none_from_leading(tmp_path):
    failed = measured([], framework="jax", layout="NHWC")
    section = sections.fastest(frameworks(tmp_path, failed, paddle=SLOW, torch=FAST))
    assert bold(section) == ["13.32"]


def test_a_framework_that_is_higher_in_a_run_of_its_own_leaves_it_undecided(tmp_path):
    other = measured([99.0], framework="jax", layout="NHWC")
    section = sections.fastest(frameworks(tmp_path, other, paddle=SLOW, torch=FAST))
    assert bold(section) == [] and "undecided, PyTorch is 1.30 × Paddle" in section.html


def test_so_few_pairs_that_no_interval_has_the_level_decide_nothing(tmp_path):
    section = sections.fastest(frameworks(tmp_path, paddle=SLOW[:3], torch=FAST[:3]))
    assert bold(section) == []
    assert "undecided" in section.html


def test_the_highest_of_separate_runs_is_not_bold_and_its_ratio_is_marked(tmp_path):
    results = [measured(SLOW), measured(FAST, framework="torch", layout="NHWC")]
    section = sections.fastest(read(tmp_path, *results))
    assert bold(section) == []
    (row,) = only_table(section)
    assert "≈ 1.30 × Paddle" in row["PyTorch"] and "≈: ratio" in section.html
    assert "perfkit compare --live" in section.html


def test_of_a_cell_the_compared_measurement_is_shown_else_the_newest(tmp_path):
    later = measured([99.0], label="new")
    later = later.model_copy(update={"created": "2026-03-01T00:00:00+00:00"})
    summary = frameworks(tmp_path / "a", later, paddle=SLOW, torch=FAST)
    (row,) = only_table(sections.fastest(summary))
    assert row["Paddle"].startswith("10.25") and "1 of 2 measurements" in row["Paddle"]
    old = measured([1.0], batch_size=64)
    new = old.model_copy(update={"created": "2026-03-01T00:00:00+00:00"})
    both = read(tmp_path / "b", new, measured([7.0, 8.0], batch_size=64))
    (row,) = only_table(sections.fastest(both))
    assert row["Paddle"].startswith("1.000")


# What may stand together.


def test_frameworks_are_columns_and_batch_topology_and_input_are_rows(tmp_path):
    summary = read(
        tmp_path,
        measured([2.0], batch_size=8, processes=2),
        measured([1.0], batch_size=4),
        measured([1.5], batch_size=4, framework="torch", layout="NHWC"),
        measured([1.7], batch_size=4, input="synthetic"),
    )
    rows = only_table(sections.fastest(summary))
    names = ("Batch", "Topology", "Input", "Paddle", "PyTorch")
    assert [[row[name].split()[0] for name in names] for row in rows] == [
        ["4", "1x1", "dali", "1.000", "1.500"],
        ["4", "1x1", "synthetic", "1.700", "–"],
        ["8", "1x2", "dali", "2.000", "–"],
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"facts": {"cpu": "Xeon"}}, "Xeon"),
        ({"facts": {"driver": "550"}}, "driver 550"),
        ({"facts": {"memory": "8 GiB"}}, "memory 8 GiB"),
        ({"facts": {"paddle": "2.6.2"}}, "Paddle 2.6.2"),
        ({"facts": {"variables": "MKL=1 " * 20}}, "variables MKL=1"),
        ({"protocol": "quick"}, "quick (2 + 5 steps)"),
        ({"measured_steps": 50}, "published (20 + 50 steps)"),
    ],
)
def test_what_differs_in_hardware_versions_or_protocol_never_shares_a_table(
    tmp_path, change, words
):
    found = tables(sections.fastest(read(tmp_path, measured([1.0]), measured([2.0], **change))))
    assert [len(rows) for _caption, rows in found] == [1, 1]
    assert sum(words in caption for caption, _rows in found) == 1
    assert found[0][0] != found[1][0]


def test_gpus_and_nodes_that_differ_are_tables_named_by_them(tmp_path):
    a100 = {"gpus": ["NVIDIA A100-SXM4-40GB, 40 GiB"] * 2}
    alike = measured([1.0], nodes=2, launcher="srun", **GPU)
    node = {"node": 1, "name": "b", "interface": "eth0", "differs": {"gpus": "A100"}}
    mixed = alike.model_validate(alike.model_dump() | {"nodes": [node]})
    other = measured([2.0], facts=a100, **GPU)
    captions = [c for c, _rows in tables(sections.fastest(read(tmp_path, alike, mixed, other)))]
    assert sum(caption.startswith("2 × NVIDIA A100-SXM4-40GB") for caption in captions) == 1
    assert sum("nodes_differ gpus: A100" in caption for caption in captions) == 1
    assert len({*captions}) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"used": "bf16"}, "bf16"),
        ({"strategy": "fleetx-fp32"}, "fleetx-fp32"),
        ({"execution": "static"}, "static"),
        ({"accumulate": 4}, "accumulate 4"),
        ({"image_size": 32}, "32 px"),
        ({"seed": 7}, "seed 7"),
        ({"dali_threads": 9}, "dali_threads 9"),
    ],
)
def test_what_differs_in_the_work_is_another_row_and_is_named(tmp_path, change, words):
    summary = read(tmp_path, measured([1.0]), measured([2.0], **change))
    rows = only_table(sections.fastest(summary))
    assert sorted(words in f"{row['Precision']} {row['Input']}" for row in rows) == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"label": "monday"},
        {"facts": {"suite_commit": "1" * 40, "suite_modified": True}},
        {"facts": {"suite_source": "changed"}},
    ],
)
def test_labels_and_the_suites_own_version_make_neither_a_table_nor_a_row(tmp_path, change):
    (row,) = only_table(
        sections.fastest(read(tmp_path, measured([1.0]), measured([2.0], **change)))
    )
    assert "1 of 2 measurements" in row["Paddle"]


def test_measurements_of_one_cell_are_counted_and_nothing_is_averaged(tmp_path):
    two = measured([1.0], nodes=2, launcher="srun")
    other = measured([3.0], nodes=2, launcher="mpirun", hosts="a,b")
    (row,) = only_table(sections.fastest(read(tmp_path, two, other)))
    assert row["Paddle"].split()[0] in ("1.000", "3.000")
    assert "1 of 2 measurements" in row["Paddle"]


def test_imported_measurements_never_share_a_table_with_measured_ones(tmp_path):
    summary = read(tmp_path, measured([1.0]), measured([2.0], batch_size=64))
    frame = summary.measurements.copy()
    frame.loc[1, "imported"] = "mlperf"
    found = tables(sections.fastest(Summary(tmp_path, frame)))
    assert [len(rows) for _caption, rows in found] == [1, 1]
    assert "imported from mlperf" in " ".join(caption for caption, _rows in found)


def test_a_failure_before_anything_was_shown_stands_in_its_row_with_its_code(tmp_path):
    summary = read(tmp_path, measured([1.0]), measured([], batch_size=64))
    rows = only_table(sections.fastest(summary))
    assert [row["Paddle"] for row in rows][1].strip() == "failed: out_of_memory"


def test_a_number_comes_with_interval_and_n_on_lines_of_their_own(tmp_path):
    section = sections.fastest(read(tmp_path, measured([10.0, 12.0, 11.0, 14.0, 13.0])))
    assert '12.00 <br><small data-column="Interval">10.00 – 14.00 (n=5)</small>' in section.html
    assert "93.75 %" in section.html
    assert "12.00 10.00" in " ".join(repr(section).split())


def test_a_partial_measurement_says_so_beside_its_number(tmp_path):
    result = measured([10.0, 12.0])
    changes = {
        "status": "partial",
        "failure": {"code": "timeout", "params": {"detail": "over 9 s"}},
    }
    changes["protocol"] = result.protocol.model_dump() | {"repeats": 7}
    partial = result.model_validate(result.model_dump() | changes)
    (row,) = only_table(sections.fastest(read(tmp_path, partial)))
    assert row["Paddle"].endswith("partial: 2 of 7 repeats, timeout")


def test_each_number_links_to_its_page_in_the_language_shown(tmp_path):
    summary = read(tmp_path, measured([1.0]))
    assert "<a" not in sections.fastest(summary).html
    assert "<a" not in sections.beside_published(summary).html
    with_pages(tmp_path, "resnet50-fp32-1x1-b32-0", "published")
    assert 'href="../published/report.html"' in sections.beside_published(summary).html
    assert 'href="../resnet50-fp32-1x1-b32-0/report.html"' in sections.fastest(summary).html
    with in_language("zh"):
        assert "/report.zh.html" in sections.fastest(summary).html


def test_no_cell_of_a_table_is_ever_empty(tmp_path):
    results = [measured([1.0], batch_size=4), measured([2.0], batch_size=8, framework="torch")]
    for row in only_table(sections.fastest(read(tmp_path, *results))):
        assert all(row.values())


def test_rows_beyond_the_most_are_counted_and_it_says_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "MOST_ROWS", 2)
    summary = read(tmp_path, *(measured([1.0], batch_size=2**k) for k in range(5)))
    section = sections.fastest(summary)
    assert len(only_table(section)) == 2
    assert "3 more: in the index and in results.csv." in section.html


def test_panels_and_bars_beyond_the_most_are_counted_too(tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "MOST_PANELS", 1)
    monkeypatch.setattr(sections, "MOST_BARS", 1)
    sizes = [(b, p) for b in (4, 8, 16) for p in (1, 2)]
    results = [measured([5.0], batch_size=b, processes=p) for b, p in sizes]
    summary = read(tmp_path, *results)
    for folder in summary.measurements["folder"]:
        (tmp_path / folder / FILE).write_text(diagnosis().model_dump_json())
    shown = {
        sections.throughput_by_batch: 1,
        sections.scaling: 2,
        sections.bottlenecks: 5,
    }
    for section, count in shown.items():
        html = section(Summary.read(tmp_path)).html
        assert f'<p class="note" style="font-size: 90%; opacity: 0.8">{count} more' in html
    summary = frameworks(tmp_path / "pairs", paddle=SLOW, torch=FAST, jax=UNSURE)
    assert "1 more: in the table below." in sections.ratios(summary).html


# The other sections.


def test_every_pair_is_in_the_forest_plot_and_links_to_its_comparison(tmp_path):
    summary = frameworks(tmp_path, paddle=SLOW, torch=FAST, jax=UNSURE)
    assert "<a" not in sections.ratios(summary).html
    with_pages(tmp_path, "comparisons/frameworks")
    section = sections.ratios(summary)
    assert [row["Variants"] for row in only_table(section)] == [
        "PyTorch / Paddle",
        "JAX / Paddle",
    ]
    assert 'href="../comparisons/frameworks/report.html"' in section.html
    (figure,) = figures(section)
    assert figure.axes[0].get_xscale() == "log"


def test_variants_of_other_parameters_are_compared_by_what_they_set(tmp_path):
    outputs = write_all(tmp_path, measured(SLOW, batch_size=4), measured(FAST, batch_size=8))
    folders = ["resnet50-fp32-1x1-b4-0", "resnet50-fp32-1x1-b8-1"]
    compare(outputs, dict(zip(folders, (SLOW, FAST), strict=True)), key="batch_size")
    summary = Summary.read(outputs)
    assert only_table(sections.ratios(summary))[0]["Variants"] == "batch_size=8 / batch_size=4"
    assert "Not decided" in sections.fastest(summary).html


def test_one_batch_size_gives_the_command_of_a_sweep(tmp_path):
    section = sections.throughput_by_batch(read(tmp_path, measured([1.0])))
    assert "perfkit sweep" in section.html and not figures(section)


def test_throughput_begins_at_zero_with_every_repeat_and_a_line_for_each_framework(tmp_path):
    results = [measured([1000.0 + b, 1001.0 + b, 1003.0 + b], batch_size=b) for b in (32, 64)]
    torch = measured([900.0], framework="torch", layout="NHWC")
    (figure,) = figures(sections.throughput_by_batch(read(tmp_path, *results, torch)))
    (axes,) = figure.axes
    assert axes.get_ylim()[0] == 0 and axes.get_ylim()[1] > 1067
    assert axes.get_ylabel() == "images/s"
    assert lines_of(axes) == {"Paddle": [1033.0, 1065.0], "PyTorch": [900.0]}
    repeats = [dots for dots in axes.collections if isinstance(dots, PathCollection)]
    assert sum(len(dots.get_offsets()) for dots in repeats) == 7


def test_lines_of_other_hardware_are_in_another_figure(tmp_path):
    results = [
        measured([float(b)], batch_size=b, facts={"cpu": cpu})
        for b in (32, 64)
        for cpu in ("Xeon", "EPYC")
    ]
    assert len(figures(sections.throughput_by_batch(read(tmp_path, *results)))) == 2


def test_speed_up_is_over_the_fewest_devices_beside_the_ideal(tmp_path):
    results = [
        measured([100.0], gpus=1, device="gpu", batch_size=48),
        measured([760.0], gpus=8, device="gpu", batch_size=48),
        measured([1440.0], gpus=8, nodes=2, device="gpu", launcher="srun", batch_size=48),
        measured([], gpus=4, device="gpu", batch_size=48),
        measured([500.0], gpus=8, device="gpu", batch_size=64),
    ]
    (figure,) = figures(sections.scaling(read(tmp_path, *results)))
    (axes,) = figure.axes
    assert lines_of(axes) == {"ideal": [1, 8, 16], "Paddle": [1, 7.6, 14.4]}
    assert notes_of(axes) == ["95 %", "90 %"]


def test_the_interval_of_a_speed_up_has_the_spread_of_both_sides(tmp_path):
    one, eight = [90.0, 100.0, 110.0, 120.0], [800.0] * 4
    results = [measured(one, gpus=1, device="gpu", batch_size=48)]
    results.append(measured(eight, gpus=8, device="gpu", batch_size=48))
    (figure,) = figures(sections.scaling(read(tmp_path, *results)))
    named = {bar.get_label(): bar for bar in figure.axes[0].containers}
    _first, last = named["Paddle"].lines[2][0].get_segments()
    expected = ratio_interval(eight, one)
    assert sorted(last[:, 1]) == pytest.approx([expected.low, expected.high])
    assert expected.high > expected.low


def test_published_scaling_of_the_same_work_is_drawn_hollow(tmp_path):
    results = [measured([2000.0], batch_size=32, device="gpu", gpus=8)]
    results.append(
        measured([3900.0], batch_size=32, device="gpu", gpus=8, nodes=2, launcher="srun")
    )
    (figure,) = figures(sections.scaling(read(tmp_path, *results)))
    (axes,) = figure.axes
    names = [bar.get_label() for bar in axes.containers]
    assert "Paddle, published" in names
    hollow = axes.containers[names.index("Paddle, published")].lines[0]
    assert hollow.get_markerfacecolor() == "white"


def test_published_scaling_of_other_work_is_not_drawn(tmp_path):
    shared = {"batch_size": 32, "device": "gpu", "gpus": 8, "image_size": 32}
    results = [measured([2000.0], **shared)]
    results.append(measured([3900.0], nodes=2, launcher="srun", **shared))
    (figure,) = figures(sections.scaling(read(tmp_path, *results)))
    assert {*lines_of(figure.axes[0])} == {"ideal", "Paddle"}


def test_a_sentence_says_what_the_most_devices_give(tmp_path):
    results = [
        measured([100.0 * n * share], gpus=n, device="gpu", batch_size=48)
        for n, share in ((1, 1), (4, 0.95), (8, 0.9))
    ]
    html = sections.scaling(read(tmp_path, *results)).html
    words = "Paddle: 8 devices give 7.20 × the throughput of 1, 90 % of ideal"
    assert f"ResNet-50 · fp32 · batch 48 · dali, {words}" in html
    assert html.count("devices give") == 1


def test_processes_that_share_the_cores_have_a_speed_up_and_no_ideal(tmp_path):
    results = [measured([4.0]), measured([5.0], processes=2)]
    results.append(measured([8.0], nodes=2, launcher="srun"))
    shown = sections.scaling(read(tmp_path, *results))
    (figure,) = figures(shown)
    assert lines_of(figure.axes[0]) == {"Paddle": [1, 1.25, 2]}
    assert notes_of(figure.axes[0]) == []
    assert "No ideal line where the processes share the cores." in shown.html


def test_without_a_second_topology_that_ended_there_is_no_speed_up(tmp_path):
    summary = read(tmp_path, measured([], **GPU), measured([2.0], device="gpu", gpus=2))
    assert not figures(sections.scaling(summary))
    assert "single topology" in sections.scaling(summary).html


def test_what_limits_a_measurement_is_a_bar_of_its_step_with_the_verdict(tmp_path):
    write_all(tmp_path, measured([50.0]))
    (tmp_path / "resnet50-fp32-1x1-b32-0" / FILE).write_text(diagnosis().model_dump_json())
    section = sections.bottlenecks(Summary.read(tmp_path))
    (row,) = only_table(section)
    assert row["Limited by"] == "input" and "50 %" in row.values()
    (figure,) = figures(section)
    widths = sum(patch.get_width() for patch in figure.axes[0].patches)
    assert widths == pytest.approx(1)
    assert figure.axes[0].get_xlim()[0] == 0


def parts_of(outputs, waits, device="cpu", **changes):
    """The parts in the chart of one diagnosed measurement: label -> width, and -> colour."""
    result = measured([50.0], device=device, gpus=int(device == "gpu"))
    repeats = [one.model_copy(update={"data_wait_share": waits}) for one in result.repeats]
    folder = f"{result.id}-0"
    write_all(outputs, result.model_copy(update={"repeats": repeats}))
    step = diagnosis().step_parts.model_copy(update=changes)
    (outputs / folder / FILE).write_text(diagnosis(step_parts=step).model_dump_json())
    (figure,) = figures(sections.bottlenecks(Summary.read(outputs)))
    bars = {bar.get_label(): bar.patches[0] for bar in figure.axes[0].containers}
    widths = {name: round(bar.get_width(), 6) for name, bar in bars.items()}
    return widths, {name: bar.get_facecolor() for name, bar in bars.items()}


def test_the_wait_for_the_input_is_a_part_of_the_profiled_step(tmp_path):
    times = {"step": 2.0, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    widths, _colours = parts_of(tmp_path / "whole", 0.5, **times, communication=0.0)
    assert widths.pop("communication, not overlapped") == widths.pop("other") == 0
    assert widths == {"forward": 0.15, "backward": 0.3, "optimizer": 0.05, "data wait": 0.5}
    widths, _colours = parts_of(tmp_path / "gpu", 0.4, "gpu", **times, communication=0.1)
    assert widths["host wait for input"] == 0.4 and "data wait" not in widths
    assert widths["communication, not overlapped"] == widths["other"] == 0.05
    unknown = times | {"forward": None, "backward": None, "communication": None}
    widths, _colours = parts_of(tmp_path / "jax", 0.5, **unknown)
    assert widths["forward + backward"] == 0.45 and widths["data wait"] == 0.5
    assert not {"forward", "backward", "other"} & {*widths}


def test_the_parts_beside_each_other_differ_in_greyscale(tmp_path):
    times = {"step": 2.0, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    _widths, colours = parts_of(tmp_path, 0.4, **times, communication=0.1)
    greys = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b, _alpha in colours.values()]
    apart = [abs(one - other) for one, other in pairwise(greys)]
    assert len(greys) == 6 and min(apart) > 0.1


def test_only_published_numbers_beside_which_something_was_measured_are_shown(tmp_path):
    assert (
        "Nothing was measured"
        in sections.beside_published(read(tmp_path / "a", measured([1.0]))).html
    )
    facts = {"execution": "static", "device": "gpu", "gpus": 8}
    summary = read(tmp_path / "b", measured([2097.20 * 1.1] * 7, batch_size=32, **facts))
    (row,) = only_table(sections.beside_published(summary))
    assert row["Published"] == "2097.20" and row["Measured / published"] == "1.10"


def test_files_that_can_not_be_read_are_named_with_the_reason(tmp_path):
    write_all(tmp_path, measured([1.0]))
    for name in ("broken/result.json", "comparisons/odd/comparison.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("<b>")
    (tmp_path / "resnet50-fp32-1x1-b32-0" / FILE).write_text("{}")
    rows = only_table(sections.left_out(Summary.read(tmp_path)))
    found = " ".join(row["Left out"] for row in rows)
    assert len(rows) == 3 and str(tmp_path) not in found
    assert all(name in found for name in ("broken/result.json", "comparison.json", FILE))


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ResultError, match="typo"):
        Summary.read(tmp_path / "typo")


def test_the_explore_notebook_without_any_measurement_says_how_to_make_one(monkeypatch):
    monkeypatch.setattr("perfkit.load", lambda _place: pd.DataFrame({"throughput": []}))
    monkeypatch.setattr("itables.init_notebook_mode", lambda: None)
    cells = nbformat.read(ROOT / "notebooks" / "explore.ipynb", 4).cells
    (source,) = [cell.source for cell in cells if "perfkit.load(" in cell.source]
    with pytest.raises(AssertionError, match="perfkit run resnet50"):
        exec(source, {"outputs_dir": "outputs"})


# All of them.


def everything(outputs, cpu="EPYC"):
    """Measurements that fill every section, on this CPU."""
    shared = {"facts": {"cpu": cpu}}
    frameworks(outputs, paddle=SLOW, torch=FAST, **shared)
    results = [
        measured([5.0, 6.0], batch_size=b, processes=p, **shared)
        for b in (4, 8)
        for p in (1, 2)
    ]
    more = write_all(outputs / "more", *results, measured([2000.0], gpus=8, device="gpu"))
    for folder in [path for path in more.iterdir() if (path / "result.json").exists()]:
        folder.rename(outputs / folder.name)
    (outputs / "resnet50-fp32-1x1-b32-0" / FILE).write_text(diagnosis().model_dump_json())
    return Summary.read(outputs)


def test_without_a_measurement_every_section_says_what_to_do(tmp_path):
    texts = [section(Summary.read(tmp_path)).html for section in SECTIONS]
    assert all(text.startswith("<p") for text in texts)
    commands = ("run resnet50", "compare --live", "sweep", "diagnose")
    assert all(f"perfkit {command}" in " ".join(texts) for command in commands)


def test_the_order_of_measurements_never_changes_a_byte(tmp_path):
    summary = everything(tmp_path)
    shown = set()
    for seed in range(3):
        frame = summary.measurements.sample(frac=1, random_state=seed)
        other = Summary(tmp_path, frame, summary.comparisons, summary.diagnoses)
        shown.add("".join(section(other).html for section in SECTIONS))
    assert len(shown) == 1


def test_foreign_names_are_escaped_in_tables_and_figures(tmp_path):
    summary = everything(tmp_path, HOSTILE)
    frame = summary.measurements.assign(input=HOSTILE)
    hostile = Summary(tmp_path, frame, summary.comparisons, summary.diagnoses, [HOSTILE])
    for section in SECTIONS:
        html = section(hostile).html
        assert "<script" not in html
        assert not re.search(r"&(?!\w+;|#\d+;)", html)
    assert "&lt;script&gt;" in sections.fastest(hostile).html


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_figure_is_drawn_with_its_own_colours_in_both_languages(tmp_path, language):
    """A glyph that the font lacks is a warning, which is an error here."""
    with in_language(language), warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = [section(everything(tmp_path)) for section in SECTIONS[:1]]
        shown += [section(Summary.read(tmp_path)) for section in SECTIONS[1:]]
        bundles = [part.bundle(png=True) for section in shown for part in section.parts]
    svgs = [bundle["image/svg+xml"] for bundle in bundles if "image/svg+xml" in bundle]
    assert len(svgs) >= 4
    for svg in svgs:
        assert "var(--" not in svg
        assert len({*re.findall(r"#[0-9a-f]{6}", svg)}) > 3
