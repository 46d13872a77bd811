"""The summary: rows and tables, the leading framework, and the charts."""

import re
import shutil
from operator import itemgetter

import nbformat
import pandas as pd
import pytest
import seaborn
from bs4 import BeautifulSoup
from made import measured, name_of, write_all
from matplotlib.collections import PathCollection

import perfkit
from perfkit import report
from perfkit.analysis.comparison.interleaved import judge_interleaved
from perfkit.analysis.comparison.interleaved_plan import InterleavedPlan
from perfkit.analysis.comparison.stored import write_comparison
from perfkit.core.paths import ROOT
from perfkit.core.results.store import Measurement, ResultError
from perfkit.core.statistics import ratio_interval
from perfkit.report import exploring
from perfkit.report.section import Picture
from perfkit.report.summary import Summary
from perfkit.report.text.language import in_language

GPU = {"device": "gpu", "gpus": 1}
NODES = {"device": "gpu", "gpus": 8, "nodes": 2, "launcher": "srun"}
SECTIONS = [
    report.fastest,
    report.ratios,
    report.throughput_by_batch,
    report.scaling,
    report.beside_published,
    report.left_out,
]
HOSTILE = '<script>alert(1)</script> --> $\\frac{1}{0}$ "& V100'
LATER = {"created": "2026-03-01T00:00:00+00:00"}


def read(outputs, *results):
    return Summary.read(write_all(outputs, *results))


def fastest(outputs, *results):
    return report.fastest(read(outputs, *results))


def tables(section):
    """Return each table's caption and its rows as heading -> cell text."""
    captions_and_rows = []
    for table in BeautifulSoup(section.html, "html.parser").find_all("table"):
        names = [heading.get_text() for heading in table.thead.find_all("th")]
        rows = []
        for line in table("tr")[1:]:
            cells = [cell.get_text(" ") for cell in line.find_all("td")]
            rows.append(dict(zip(names, cells, strict=True)))
        caption = table.caption.get_text() if table.caption else ""
        captions_and_rows.append((caption, rows))
    return captions_and_rows


def only_table(section):
    ((_caption, rows),) = tables(section)
    return rows


def bold(section):
    cells = BeautifulSoup(section.html, "html.parser").select("td strong")
    return [text.get_text() for text in cells]


def answers(section):
    return [line.get_text() for line in BeautifulSoup(section.html, "html.parser")("li")]


def figures(section):
    return [part.figure for part in section.parts if isinstance(part, Picture)]


def only_axes(section):
    (figure,) = figures(section)
    (axes,) = figure.axes
    return axes


def lines_of(axes):
    """Return label -> y values of each line in the legend."""
    lines = {bars.get_label(): bars.lines[0] for bars in axes.containers}
    for line in axes.lines:
        if not line.get_label().startswith("_"):
            lines[line.get_label()] = line
    return {
        name: line.get_ydata().astype(float).round(6).tolist() for name, line in lines.items()
    }


def notes_of(axes):
    return [text.get_text() for text in axes.texts]


def compare(outputs, *folders, name="frameworks", key="framework", created="2026-01-02"):
    """Store an interleaved comparison of the measurements in these folders, the base first."""
    measurements = [Measurement.read(outputs / folder) for folder in folders]
    values = [{key: one.result.parameters[key]} for one in measurements]
    variants = {f"{key}={value[key]}": value for value in values}
    asked = InterleavedPlan("perfkit compare --live", variants, 0.95, 0.05, "", [])
    found = judge_interleaved(asked, measurements)
    found = found.model_copy(update={"created": f"{created}T00:00:00+00:00"})
    write_comparison(outputs / "comparisons" / name, found)


def frameworks(outputs, *more, changes=None, **values):
    """Store an interleaved comparison with these repeats for each framework, the base first,
    and the other results `more`; return the summary."""
    results = [
        measured(repeats, framework=name, **OWN[name], **(changes or {}))
        for name, repeats in values.items()
    ]
    write_all(outputs, *results, *more)
    compare(outputs, *(name_of(result, k) for k, result in enumerate(results)))
    return Summary.read(outputs)


def with_pages(outputs, *folders):
    for folder in folders:
        (outputs / folder).mkdir(exist_ok=True)
        for page in ("report.html", "report.zh.html"):
            (outputs / folder / page).touch()


OWN = {"paddle": {"layout": "NCHW"}, "torch": {"layout": "NHWC"}, "jax": {"layout": "NHWC"}}
TORCH = {"framework": "torch"} | OWN["torch"]
JAX = {"framework": "jax"} | OWN["jax"]
SLOW = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5]
FAST = [value * 1.3 for value in SLOW]
FASTER = [value * 2 for value in SLOW]
UNSURE = [12.0, 9.0, 12.1, 9.1, 12.2, 12.3]
NEAR = [value * 1.3 * factor for value, factor in zip(SLOW, [1.1, 0.9] * 3, strict=True)]


# The leader.


@pytest.mark.parametrize(
    ("values", "leader", "words"),
    [
        ({"paddle": SLOW, "torch": FAST}, ["13.32"], "PyTorch, 1.30 × Paddle (1.30 – 1.30)"),
        ({"paddle": SLOW, "torch": UNSURE}, [], "undecided, PyTorch is 1.17 × Paddle"),
        (
            {"paddle": FAST, "torch": SLOW, "jax": SLOW},
            ["13.32"],
            "Paddle, PyTorch is 0.769 × Paddle",
        ),
        (
            {"paddle": SLOW, "torch": FAST, "jax": NEAR},
            [],
            "JAX or PyTorch (undecided between them), faster than Paddle",
        ),
        ({"paddle": SLOW, "torch": FAST, "jax": SLOW}, ["13.32"], "PyTorch, 1.30 × Paddle"),
        ({"torch": FAST, "jax": FASTER, "paddle": SLOW}, ["20.50"], "JAX, 2.00 × Paddle"),
        # Too few pairs for an interval at the level.
        ({"paddle": SLOW[:3], "torch": FAST[:3]}, [], "undecided, PyTorch is 1.30 × Paddle"),
    ],
)
def test_the_leader_is_bold_with_its_ratio_to_paddle(tmp_path, values, leader, words):
    section = report.fastest(frameworks(tmp_path, **values))
    assert bold(section) == leader
    assert answers(section)[0].startswith(f"ResNet-50 fp32 batch 32: {words}")
    (row,) = only_table(section)
    assert "≈" not in section.html and "×" not in row["Paddle"]
    assert all("× Paddle" in row[name] for name in ("PyTorch", "JAX") if name in row)


def test_a_leader_needs_the_highest_throughput_of_its_row(tmp_path):
    both = {"paddle": SLOW, "torch": FAST}
    failed = report.fastest(frameworks(tmp_path / "failed", measured([], **JAX), **both))
    assert bold(failed) == ["13.32"]
    higher = report.fastest(frameworks(tmp_path / "high", measured([99.0], **JAX), **both))
    assert bold(higher) == [] and "undecided, PyTorch is 1.30 × Paddle" in higher.html


def test_frameworks_share_a_row_despite_layout_and_execution(tmp_path):
    eager = measured([2.0], execution="dynamic", **TORCH)
    static = measured([1.0], execution="static")
    (row,) = only_table(fastest(tmp_path / "a", static, eager))
    assert row["Paddle"].endswith("static") and "static" not in row["PyTorch"]
    both = fastest(tmp_path / "b", static, eager, measured([3.0], execution="dynamic"))
    assert sorted("static" in row["Input"] for row in only_table(both)) == [False, True]


def test_every_compared_row_has_an_answer(tmp_path, monkeypatch):
    results = [
        measured(SLOW, batch_size=4),
        measured(FAST, batch_size=4, **TORCH),
        measured(FASTER, batch_size=8),
        measured(SLOW, batch_size=8, **TORCH),
    ]
    write_all(tmp_path, *results)
    folders = [name_of(result, number) for number, result in enumerate(results)]
    compare(tmp_path, *folders[:2], name="b4")
    compare(tmp_path, *folders[2:], name="b8", created="2026-01-03")
    assert answers(report.fastest(Summary.read(tmp_path))) == [
        "ResNet-50 fp32 batch 4: PyTorch, 1.30 × Paddle (1.30 – 1.30)",
        "ResNet-50 fp32 batch 8: Paddle, PyTorch is 0.500 × Paddle (0.500 – 0.500)",
    ]
    monkeypatch.setattr("perfkit.report.rankings.MOST_ANSWERS", 1)
    html = report.fastest(Summary.read(tmp_path)).html
    assert "1 more: in the tables below." in html


def test_separate_runs_have_no_leader_and_marked_ratios(tmp_path):
    section = fastest(tmp_path, measured(SLOW), measured(FAST, **TORCH))
    assert bold(section) == []
    (row,) = only_table(section)
    assert "≈ 1.30 × Paddle" in row["PyTorch"] and "≈: ratio" in section.html
    assert "perfkit compare --live" in section.html


def test_a_cell_shows_the_compared_or_newest_measurement(tmp_path):
    later = measured([99.0], label="new").model_copy(update=LATER)
    summary = frameworks(tmp_path / "a", later, paddle=SLOW, torch=FAST)
    (row,) = only_table(report.fastest(summary))
    assert row["Paddle"].startswith("10.25") and "1 of 2 measurements" in row["Paddle"]
    new = measured([1.0], batch_size=64).model_copy(update=LATER)
    (row,) = only_table(fastest(tmp_path / "b", new, measured([7.0, 8.0], batch_size=64)))
    assert row["Paddle"].startswith("1.000")


# Rows and tables.


def test_frameworks_are_columns_and_batch_topology_and_input_are_rows(tmp_path):
    section = fastest(
        tmp_path,
        measured([2.0], batch_size=8, processes=2),
        measured([1.0], batch_size=4),
        measured([1.5], batch_size=4, **TORCH),
        measured([1.7], batch_size=4, input="synthetic"),
    )
    first_words = []
    for row in only_table(section):
        cells = itemgetter("Batch", "Topology", "Input", "Paddle", "PyTorch")(row)
        first_words.append([cell.split()[0] for cell in cells])
    assert first_words == [
        ["4", "1x1", "dali", "1.000", "1.500"],
        ["4", "1x1", "synthetic", "1.700", "–"],
        ["8", "1x2", "dali", "2.000", "–"],
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"facts": {"cpu": "Xeon"}}, "Xeon"),
        ({"device": "npu", "gpus": 1}, "NPU · "),
        ({"facts": {"driver": "550"}}, "driver 550"),
        ({"facts": {"memory": "8 GiB"}}, "memory 8 GiB"),
        ({"facts": {"paddle": "2.6.2"}}, "Paddle 2.6.2"),
        ({"facts": {"variables": "MKL=1 " * 20}}, "variables MKL=1"),
        ({"protocol": "quick"}, "quick (2 + 5 steps)"),
        ({"measured_steps": 50}, "published (20 + 50 steps)"),
    ],
)
def test_hardware_versions_and_protocols_have_separate_tables(tmp_path, change, words):
    found = tables(fastest(tmp_path, measured([1.0]), measured([2.0], **change)))
    assert [len(rows) for _caption, rows in found] == [1, 1]
    assert sum(words in caption for caption, _rows in found) == 1
    assert found[0][0] != found[1][0]


def test_tables_are_named_by_gpus_and_node_differences(tmp_path):
    alike = measured([1.0], **NODES | GPU)
    node = {"node": 1, "name": "b", "interface": "eth0", "differs": {"gpus": "A100"}}
    mixed = alike.model_validate(alike.model_dump() | {"nodes": [node]})
    other = measured([2.0], facts={"gpus": ["NVIDIA A100-SXM4-40GB, 40 GiB"] * 2}, **GPU)
    captions = [caption for caption, _rows in tables(fastest(tmp_path, alike, mixed, other))]
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
def test_different_work_has_a_separate_named_row(tmp_path, change, words):
    rows = only_table(fastest(tmp_path, measured([1.0]), measured([2.0], **change)))
    named = [words in f"{row['Precision']} {row['Input']}" for row in rows]
    assert sorted(named) == [False, True]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"label": "monday"}),
        ({}, {"facts": {"suite_commit": "1" * 40, "suite_modified": True}}),
        ({}, {"facts": {"suite_source": "changed"}}),
        (NODES, NODES | {"launcher": "ssh", "hosts": "a,b"}),
    ],
)
def test_labels_launchers_and_suite_versions_share_a_row(tmp_path, one, other):
    (row,) = only_table(fastest(tmp_path, measured([1.0], **one), measured([3.0], **other)))
    assert row["Paddle"].split()[0] in ("1.000", "3.000"), "nothing is averaged"
    assert "1 of 2 measurements" in row["Paddle"]


def test_cells_show_failed_and_partial_measurements(tmp_path):
    result = measured([10.0, 12.0], batch_size=8)
    late = {"code": "timeout", "params": {"repeat": 3, "seconds": 9}}
    changes = {"status": "partial", "failure": late}
    changes["protocol"] = result.protocol.model_dump() | {"repeats": 7}
    partial = result.model_validate(result.model_dump() | changes)
    torch = measured([2.0], batch_size=4, **TORCH)
    rows = only_table(fastest(tmp_path, torch, partial, measured([], batch_size=64)))
    assert [row["Paddle"].strip() for row in rows][::2] == ["–", "failed: out_of_memory"]
    assert rows[1]["Paddle"].endswith("partial: 2 of 7 repeats, timeout")
    assert all(cell for row in rows for cell in row.values())


def test_interval_and_n_are_on_a_separate_line(tmp_path):
    section = fastest(tmp_path / "a", measured([10.0, 12.0, 11.0, 14.0, 13.0]))
    assert '12.00 <br><small data-column="Interval">10.00 – 14.00 (n=5)</small>' in section.html
    assert "93.75 %" in section.html
    assert "12.00 10.00" in " ".join(repr(section).split())
    html = fastest(tmp_path / "b", measured([1.0])).html
    assert "nan" not in html and "Median of n repeats." in html


def test_numbers_link_to_their_page_in_the_same_language(tmp_path):
    result = measured([1.0])
    summary, name = read(tmp_path, result), name_of(result)
    assert "<a" not in report.fastest(summary).html
    assert "<a" not in report.beside_published(summary).html
    with_pages(tmp_path, name, "published")
    assert 'href="../published/report.html"' in report.beside_published(summary).html
    assert f'href="../{name}/report.html"' in report.fastest(summary).html
    with in_language("zh"):
        assert "/report.zh.html" in report.fastest(summary).html


def test_rows_panels_and_bars_beyond_the_limit_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("perfkit.report.rankings.MOST_ROWS", 2)
    monkeypatch.setattr("perfkit.report.curves.MOST_PANELS", 1)
    monkeypatch.setattr("perfkit.report.summary.MOST_BARS", 1)
    sizes = [(b, p) for b in (4, 8, 16) for p in (1, 2)]
    results = [measured([5.0], batch_size=b, processes=p) for b, p in sizes]
    read(tmp_path, *results)
    shown = {
        report.fastest: 4,
        report.throughput_by_batch: 1,
        report.scaling: 2,
    }
    for section, count in shown.items():
        html = section(Summary.read(tmp_path)).html
        assert f"{count} more: in the index and in results.csv." in html
    assert len(only_table(report.fastest(Summary.read(tmp_path)))) == 2
    summary = frameworks(tmp_path / "pairs", paddle=SLOW, torch=FAST, jax=UNSURE)
    assert "1 more: in the table below." in report.ratios(summary).html


# The other sections.


def test_every_pair_is_plotted_and_links_to_its_comparison(tmp_path):
    summary = frameworks(tmp_path, paddle=SLOW, torch=FAST, jax=UNSURE)
    assert "<a" not in report.ratios(summary).html
    with_pages(tmp_path, "comparisons/frameworks")
    section = report.ratios(summary)
    names = [row["Variants"] for row in only_table(section)]
    assert names == ["PyTorch / Paddle", "JAX / Paddle"]
    assert 'href="../comparisons/frameworks/report.html"' in section.html
    axes = only_axes(section)
    assert axes.get_xscale() == "log"
    assert [tick.get_text().split(" · ")[-1] for tick in axes.get_yticklabels()] == names
    drawn = [[*line.get_xdata()] for line in axes.lines]
    assert all(pair.ratios in drawn for _name, found in summary.newest for pair in found.pairs)


def test_variants_are_named_by_their_parameters(tmp_path):
    results = [measured(SLOW, batch_size=4), measured(FAST, batch_size=8)]
    write_all(tmp_path, *results)
    compare(tmp_path, *(name_of(r, k) for k, r in enumerate(results)), key="batch_size")
    summary = Summary.read(tmp_path)
    assert only_table(report.ratios(summary))[0]["Variants"] == "batch_size=8 / batch_size=4"
    assert "No interleaved comparison shows which" in report.fastest(summary).html


def test_the_throughput_chart_starts_at_zero_with_all_repeats(tmp_path):
    results = [measured([1000.0 + b, 1001.0 + b, 1003.0 + b], batch_size=b) for b in (32, 64)]
    summary = read(tmp_path, *results, measured([900.0], **TORCH))
    axes = only_axes(report.throughput_by_batch(summary))
    assert axes.get_ylim()[0] == 0 and axes.get_ylim()[1] > 1067
    assert axes.get_ylabel() == "images/s"
    assert lines_of(axes) == {"Paddle": [1033.0, 1065.0], "PyTorch": [900.0]}
    repeats = [dots for dots in axes.collections if isinstance(dots, PathCollection)]
    assert sum(len(dots.get_offsets()) for dots in repeats) == 7


def test_different_hardware_has_a_separate_figure(tmp_path):
    results = []
    for cpu in ("Xeon", "EPYC"):
        results.append(measured([32.0], batch_size=32, facts={"cpu": cpu}))
        results.append(measured([64.0], batch_size=64, facts={"cpu": cpu}))
    section = report.throughput_by_batch(read(tmp_path, *results))
    assert len(figures(section)) == 2


def test_speedup_is_relative_to_the_fewest_devices(tmp_path):
    on_one, on_eight = [90.0, 100.0, 110.0, 120.0], [798.0] * 4
    results = [
        measured(on_one, gpus=1, device="gpu", batch_size=48),
        measured(on_eight, gpus=8, device="gpu", batch_size=48),
        measured([1512.0], batch_size=48, **NODES),
        measured([], gpus=4, device="gpu", batch_size=48),
        measured([500.0], gpus=8, device="gpu", batch_size=64),
    ]
    section = report.scaling(read(tmp_path, *results))
    axes = only_axes(section)
    assert lines_of(axes) == {"ideal": [1, 8, 16], "Paddle": [1, 7.6, 14.4]}
    assert notes_of(axes) == ["95 %", "90 %"]
    (paddle,) = [bars for bars in axes.containers if bars.get_label() == "Paddle"]
    error_bars = paddle.lines[2][0]
    _first, eight, _last = error_bars.get_segments()
    expected = ratio_interval(on_eight, on_one)
    assert sorted(eight[:, 1]) == pytest.approx([expected.low, expected.high])
    assert expected.high > expected.low, "the spread of both sides"
    words = "Paddle: 16 devices give 14.4 × the throughput of 1, 90 % of ideal"
    assert f"ResNet-50 · fp32 · batch 48 · dali, {words}" in section.html
    assert section.html.count("devices give") == 1


@pytest.mark.parametrize(("image_size", "drawn"), [(224, True), (32, False)])
def test_published_scaling_is_drawn_only_for_the_same_work(tmp_path, image_size, drawn):
    shared = {"batch_size": 32, "image_size": image_size}
    results = [measured([2000.0], device="gpu", gpus=8, **shared)]
    results.append(measured([3900.0], **NODES, **shared))
    axes = only_axes(report.scaling(read(tmp_path, *results)))
    found = {bar.get_label(): bar.lines[0] for bar in axes.containers}
    assert ("Paddle, published" in found) == drawn
    assert not drawn or found["Paddle, published"].get_markerfacecolor() == "white"


def test_cpu_processes_have_a_speedup_without_an_ideal_line(tmp_path):
    results = [measured([4.0]), measured([5.0], processes=2)]
    results.append(measured([8.0], nodes=2, launcher="srun"))
    shown = report.scaling(read(tmp_path, *results))
    assert lines_of(only_axes(shown)) == {"Paddle": [1, 1.25, 2]}
    assert notes_of(only_axes(shown)) == []
    assert "No ideal line where the processes share the cores." in shown.html


def test_a_single_topology_has_no_speedup(tmp_path):
    summary = read(tmp_path, measured([], **GPU), measured([2.0], device="gpu", gpus=2))
    assert not figures(report.scaling(summary))
    assert "differ in the topology alone" in report.scaling(summary).html


def test_only_published_numbers_with_a_measurement_are_shown(tmp_path):
    other = report.beside_published(read(tmp_path / "a", measured([1.0])))
    assert "No measurement matches a published number" in other.html
    same = measured([2097.20 * 1.1] * 7, batch_size=32, device="gpu", gpus=8)
    (row,) = only_table(report.beside_published(read(tmp_path / "b", same)))
    assert row["Source"].endswith(" · 32 · 1x8 · V100, FP32")
    assert row["Published"] == "2097.20" and row["Measured / published"] == "1.10"


def test_unreadable_files_are_listed_with_the_reason(tmp_path):
    write_all(tmp_path, measured([1.0]))
    for name in ("broken/result.json", "comparisons/odd/comparison.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("<b>")
    rows = only_table(report.left_out(Summary.read(tmp_path)))
    found = " ".join(row["Left out"] for row in rows)
    assert len(rows) == 2 and str(tmp_path) not in found
    assert all(name in found for name in ("broken/result.json", "comparison.json"))
    with pytest.raises(ResultError, match="typo"):
        Summary.read(tmp_path / "typo")


def test_exploring_without_measurements_names_the_command(monkeypatch):
    monkeypatch.setattr("perfkit.load", lambda _place: pd.DataFrame({"throughput": []}))
    with pytest.raises(AssertionError, match="perfkit run resnet50"):
        exploring.load_any("outputs")


def test_the_explore_notebook_runs_without_raw_steps(tmp_path):
    outputs = write_all(tmp_path, measured([1.0]))
    one = perfkit.load(outputs).assign(panel="", name="")
    shutil.rmtree(outputs / one["folder"][0] / "repeats")
    cells = nbformat.read(ROOT / "notebooks" / "explore.ipynb", 4).cells
    (source,) = [cell.source for cell in cells if "load_steps(" in cell.source]
    names = {"perfkit": perfkit, "seaborn": seaborn, "chosen": one, "folder": outputs}
    exec(source, names)
    assert names["raw"].empty and "grid" not in names


# All sections.


def everything(outputs, cpu="EPYC"):
    """Store measurements that fill every section and return the summary."""
    facts = {"facts": {"cpu": cpu}}
    more = [
        measured([5.0, 6.0], batch_size=b, processes=p, **facts) for b in (4, 8) for p in (1, 2)
    ]
    more.append(measured([2000.0], gpus=8, device="gpu"))
    return frameworks(outputs, *more, changes=facts, paddle=SLOW, torch=FAST)


def test_empty_sections_name_the_command_to_run(tmp_path):
    texts = [section(Summary.read(tmp_path)).html for section in SECTIONS]
    assert all(text.startswith("<p") for text in texts)
    commands = ("run resnet50", "compare --live", "sweep")
    assert all(f"perfkit {command}" in " ".join(texts) for command in commands)


@pytest.mark.usefixtures("processes")
def test_output_does_not_depend_on_the_order_of_measurements(tmp_path):
    summary = everything(tmp_path)
    shown = set()
    for seed in range(2):
        frame = summary.measurements.sample(frac=1, random_state=seed)
        other = Summary(summary.site, frame, summary.comparisons)
        shown.add("".join(section(other).html for section in SECTIONS))
    assert len(shown) == 1


def test_untrusted_names_are_escaped_in_tables_and_figures(tmp_path):
    summary = everything(tmp_path, HOSTILE)
    frame = summary.measurements.assign(input=HOSTILE)
    hostile = Summary(summary.site, frame, summary.comparisons, [HOSTILE])
    html = "".join(section(hostile).html for section in SECTIONS)
    assert "<script" not in html and "&lt;script&gt;" in html
    assert not re.search(r"&(?!\w+;|#\d+;)", html)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_figure_has_resolved_colours_in_every_language(tmp_path, language):
    """A glyph missing from the font causes a warning, which is an error here."""
    with in_language(language):
        summary = everything(tmp_path)
        parts = [part for section in SECTIONS for part in section(summary).parts]
        bundles = [part.bundle(png=True) for part in parts]
    svgs = [bundle["image/svg+xml"] for bundle in bundles if "image/svg+xml" in bundle]
    assert len(svgs) >= 3
    for svg in svgs:
        assert "var(--" not in svg
        assert len({*re.findall(r"#[0-9a-f]{6}", svg)}) > 3
