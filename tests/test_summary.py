"""The summary: rows and tables, the leading framework, and the charts."""

import re
from itertools import product

import pytest
from bs4 import BeautifulSoup
from made.results import measured, name_of, write_all
from matplotlib.collections import PathCollection

from perfkit.analysis.comparison.interleaved import judge_interleaved
from perfkit.analysis.comparison.interleaved_plan import InterleavedPlan
from perfkit.analysis.comparison.stored import write_comparison
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.statistics import ratio_interval
from perfkit.report.rankings import fastest
from perfkit.report.section import Picture
from perfkit.report.summarized import Summary
from perfkit.report.summary import page, ratios, scaling, throughput_by_batch
from perfkit.report.text.language import in_language

NODES = {"device": "gpu", "gpus": 8, "nodes": 2, "launcher": "srun"}
HOSTILE = '<script>alert(1)</script> --> $\\frac{1}{0}$ "& V100'
LATER = {"created": "2026-03-01T00:00:00+00:00"}


def read(outputs, *results):
    write_all(outputs, *results)
    return Summary.read(outputs)


def parsed(section):
    return BeautifulSoup(section.html, "html.parser")


def tables(section):
    """Return each table's caption and its rows as heading -> cell text."""
    captions_and_rows = []
    for table in parsed(section).find_all("table"):
        headings = table.thead.find_all("th")
        names = [heading.get_text() for heading in headings]
        rows = []
        for line in table("tr")[1:]:
            cells = [cell.get_text(" ") for cell in line.find_all("td")]
            row = dict(zip(names, cells, strict=True))
            rows.append(row)
        caption = ""
        if table.caption:
            caption = table.caption.get_text()
        captions_and_rows.append((caption, rows))
    return captions_and_rows


def rows_of(section):
    """Return the rows of the tables of frameworks by heading, without versions."""
    rows = [row for _caption, rows in tables(section) for row in rows]
    return [{name.split()[0]: text for name, text in row.items()} for row in rows]


def bold(section):
    """Return the numbers in bold."""
    cells = parsed(section).select("td + td strong")
    return [text.get_text().removesuffix(" images/s") for text in cells]


def answers(section):
    lines = parsed(section).find_all("li")
    return [line.get_text() for line in lines]


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
        label = line.get_label()
        if not label.startswith("_"):
            lines[label] = line
    heights = {}
    for label, line in lines.items():
        values = line.get_ydata().astype(float)
        heights[label] = values.round(6).tolist()
    return heights


def notes_of(axes):
    return [text.get_text() for text in axes.texts]


def compare(outputs, *folders, name="frameworks", created="2026-01-02"):
    """Store an interleaved comparison of the measurements in these folders, the base first."""
    measurements = []
    variants = {}
    for folder in folders:
        measurement = Measurement.read(outputs / folder)
        framework = measurement.result.config.framework
        measurements.append(measurement)
        variants[f"framework={framework}"] = {"framework": framework}
    request = InterleavedPlan("perfkit compare --live", variants, 0.95, 0.05, "", [])
    comparison = judge_interleaved(request, measurements)
    dated = comparison.model_copy(update={"created": f"{created}T00:00:00+00:00"})
    write_comparison(outputs / "comparisons" / name, dated)


def frameworks(outputs, *more, facts=None, **values):
    """Store an interleaved comparison with these repeats for each framework, the base first,
    and the other results `more`; return the summary."""
    results = []
    folders = []
    for number, (name, repeats) in enumerate(values.items()):
        layout = LAYOUTS[name]
        result = measured(repeats, framework=name, layout=layout, facts=facts)
        results.append(result)
        folders.append(name_of(result, number))
    write_all(outputs, *results, *more)
    compare(outputs, *folders)
    return Summary.read(outputs)


LAYOUTS = {"paddle": "NCHW", "torch": "NHWC", "jax": "NHWC"}
TORCH = {"framework": "torch", "layout": LAYOUTS["torch"]}
JAX = {"framework": "jax", "layout": LAYOUTS["jax"]}
SLOW = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5]
FAST = [value * 1.3 for value in SLOW]
FASTER = [value * 2 for value in SLOW]
UNSURE = [12.0, 9.0, 12.1, 9.1, 12.2, 12.3]
NEAR = [value * factor for value, factor in zip(FAST, [1.1, 0.9] * 3, strict=True)]
"""As fast as FAST within 10 %."""
ALIKE = [value * factor for value, factor in zip(SLOW, [1.02, 1.01, 0.98] * 2, strict=True)]


# The leader.


@pytest.mark.parametrize(
    ("values", "leader", "words"),
    [
        ({"paddle": SLOW, "torch": FAST}, ["13.32"], "PyTorch, 1.30 × Paddle (1.30 – 1.30)"),
        ({"paddle": SLOW, "torch": UNSURE}, [], "can't tell, PyTorch is 1.17 × Paddle"),
        (
            {"paddle": SLOW, "torch": FAST, "jax": NEAR},
            [],
            "JAX or PyTorch (can't tell which of them), faster than Paddle",
        ),
        ({"torch": FAST, "jax": FASTER, "paddle": SLOW}, ["20.50"], "JAX, 2.00 × Paddle"),
        (
            {"paddle": SLOW, "torch": ALIKE},
            [],
            "no difference over 5 %, PyTorch is 1.01 × Paddle (0.980 – 1.02)",
        ),
    ],
)
def test_the_leader_is_bold_with_its_ratio_to_paddle(tmp_path, values, leader, words):
    section = fastest(frameworks(tmp_path, **values))
    assert bold(section) == leader
    assert answers(section)[0].startswith(f"ResNet-50 fp32 batch 32: {words}")
    (row,) = rows_of(section)
    assert "×" not in row["Paddle"]
    for name in ("PyTorch", "JAX"):
        if name in row:
            assert "× Paddle" in row[name]


def test_a_leader_needs_the_highest_throughput_of_its_row(tmp_path):
    failed = measured([], **JAX)
    summary = frameworks(tmp_path / "failed", failed, paddle=SLOW, torch=FAST)
    beside_failed = fastest(summary)
    assert bold(beside_failed) == ["13.32"]
    higher = measured([99.0], **JAX)
    summary = frameworks(tmp_path / "high", higher, paddle=SLOW, torch=FAST)
    beside_higher = fastest(summary)
    assert bold(beside_higher) == []
    (beside,) = answers(beside_higher)
    assert "can't tell, PyTorch is 1.30 × Paddle" in beside


def test_frameworks_share_a_row_despite_layout_and_execution(tmp_path):
    eager = measured([2.0], execution="dynamic", **TORCH)
    static = measured([1.0], execution="static")
    one_each = fastest(read(tmp_path / "a", static, eager))
    (row,) = rows_of(one_each)
    assert row["Paddle"].startswith("1.000 ")
    assert row["PyTorch"].startswith("2.000 ")
    dynamic = measured([3.0], execution="dynamic")
    two_of_paddle = fastest(read(tmp_path / "b", static, eager, dynamic))
    named_static = ["static" in row["Configuration"] for row in rows_of(two_of_paddle)]
    assert sorted(named_static) == [False, True]


def test_every_compared_row_has_an_answer(tmp_path):
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
    summary = Summary.read(tmp_path)
    batch_4, batch_8 = answers(fastest(summary))
    assert batch_4 == "ResNet-50 fp32 batch 4: PyTorch, 1.30 × Paddle (1.30 – 1.30)"
    ratio = "PyTorch is 0.500 × Paddle (0.500 – 0.500)"
    assert batch_8 == f"ResNet-50 fp32 batch 8: Paddle, {ratio}"


def test_separate_runs_have_no_leader_and_no_ratio(tmp_path):
    paddle = measured(SLOW)
    torch = measured(FAST, **TORCH)
    section = fastest(read(tmp_path, paddle, torch))
    assert bold(section) == []
    (row,) = rows_of(section)
    assert "×" not in row["PyTorch"]
    assert "perfkit compare --live" in section.html


def test_a_cell_shows_the_compared_or_newest_measurement(tmp_path):
    later = measured([99.0], label="new").model_copy(update=LATER)
    summary = frameworks(tmp_path / "a", later, paddle=SLOW, torch=FAST)
    (compared,) = rows_of(fastest(summary))
    assert compared["Paddle"].startswith("10.25")
    old = measured([7.0, 8.0], batch_size=64)
    new = measured([1.0], batch_size=64).model_copy(update=LATER)
    section = fastest(read(tmp_path / "b", new, old))
    (newest,) = rows_of(section)
    assert newest["Paddle"].startswith("1.000")


# Rows and tables.


def test_frameworks_are_columns_and_batch_topology_and_input_are_rows(tmp_path):
    large = measured([2.0], batch_size=8, processes=2)
    paddle = measured([1.0], batch_size=4)
    torch = measured([1.5], batch_size=4, **TORCH)
    synthetic = measured([1.7], batch_size=4, input="synthetic")
    section = fastest(read(tmp_path, large, paddle, torch, synthetic))
    shown = []
    for row in rows_of(section):
        numbers = [row[name].split()[0] for name in ("Paddle", "PyTorch") if name in row]
        shown.append((row["Configuration"], *numbers))
    assert shown == [
        ("ResNet-50 · fp32 · batch 4 · 1x1 · dali", "1.000", "1.500"),
        ("ResNet-50 · batch 4 · 1x1 · synthetic", "1.700"),
        ("ResNet-50 · batch 8 · 1x2 · dali", "2.000"),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"facts": {"cpu": "Xeon"}}, "Xeon"),
        ({"facts": {"paddle": "2.6.2"}}, "2.6.2"),
        ({"protocol": "quick"}, "quick (2 + 5 steps or more, for 3 s)"),
    ],
)
def test_hardware_versions_and_protocols_have_separate_rows_that_name_them(
    tmp_path, change, words
):
    usual = [measured([1.0], batch_size=size) for size in (4, 8)]
    others = [measured([2.0], batch_size=size, **change) for size in (4, 8)]
    ((caption, rows),) = tables(fastest(read(tmp_path, *usual, *others)))
    texts = [" ".join(row.values()) for row in rows]
    assert len(texts) == 4
    assert [words in text for text in texts] == ["2.000 images/s" in text for text in texts]
    assert words not in caption


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"used": "bf16"}, "bf16"),
        ({"image_size": 32}, "32 px"),
        ({"dali_threads": 9}, "dali_threads 9"),
    ],
)
def test_different_work_has_a_separate_named_row(tmp_path, change, words):
    usual = measured([1.0])
    other = measured([2.0], **change)
    section = fastest(read(tmp_path, usual, other))
    first, second = [row["Configuration"] for row in rows_of(section)]
    assert (words in first) + (words in second) == 1


def test_interpreters_of_one_version_have_separate_named_rows(tmp_path):
    results = [measured([1.0], python=f"/opt/{name}/bin/python") for name in ("mkl", "blas")]
    two_of_paddle = fastest(read(tmp_path, *results))
    ends = {row["Configuration"].rpartition(" · ")[2] for row in rows_of(two_of_paddle)}
    assert ends == {"python /opt/mkl", "python /opt/blas"}


@pytest.mark.parametrize(
    "other",
    [{"label": "monday"}, {"facts": {"suite_commit": "1" * 40, "suite_modified": True}}],
)
def test_labels_and_suite_versions_share_a_row(tmp_path, other):
    first = measured([1.0])
    second = measured([3.0], **other)
    section = fastest(read(tmp_path, first, second))
    (row,) = rows_of(section)
    throughput = row["Paddle"].split()[0]
    assert throughput in ("1.000", "3.000"), "nothing is averaged"


def test_cells_show_failed_and_partial_measurements(tmp_path):
    result = measured([10.0, 12.0], batch_size=8)
    late = {"code": "timeout", "reason": "repeat 3 took over 9 s"}
    changes = {"status": "partial", "failure": late}
    changes["protocol"] = result.protocol.model_dump() | {"repeats": 7}
    partial = result.model_validate(result.model_dump() | changes)
    torch = measured([2.0], batch_size=4, **TORCH)
    failed = measured([], batch_size=64)
    section = fastest(read(tmp_path, torch, partial, failed))
    of_torch, of_partial, of_failed = rows_of(section)
    assert of_torch["Paddle"].strip() == "–"
    assert of_partial["Paddle"].endswith("partial: 2 of 7 repeats, timeout")
    assert of_failed["Paddle"].strip() == "failed: out_of_memory"
    for row in (of_torch, of_partial, of_failed):
        assert all(row.values())


def test_a_number_has_the_width_of_its_interval_beside_it(tmp_path):
    five = measured([10.0, 12.0, 11.0, 14.0, 13.0])
    section = fastest(read(tmp_path, five))
    assert '12.00 images/s <small data-column="±">± 17 %</small>' in section.html
    assert "93.75 %" in section.html


def test_rows_and_panels_beyond_the_limit_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("perfkit.report.rankings.MOST_ROWS", 2)
    monkeypatch.setattr("perfkit.report.curves.MOST_PANELS", 1)
    results = []
    for batch_size, processes in product((4, 8, 16), (1, 2)):
        result = measured([5.0], batch_size=batch_size, processes=processes)
        results.append(result)
    summary = read(tmp_path, *results)
    rows = fastest(summary)
    panels = throughput_by_batch(summary)
    curves = scaling(summary)
    assert len(rows_of(rows)) == 2
    assert "4 more: in the index and in results.csv." in rows.html
    assert "1 more: in the index and in results.csv." in panels.html
    assert "2 more: in the index and in results.csv." in curves.html


# The other sections.


def test_every_pair_is_in_the_chart_of_ratios(tmp_path):
    axes = only_axes(ratios(frameworks(tmp_path, paddle=SLOW, torch=FAST, jax=UNSURE)))
    names = [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]
    assert names == ["ResNet-50 · PyTorch / Paddle", "ResNet-50 · JAX / Paddle"]


def test_the_throughput_chart_starts_at_zero_with_all_repeats(tmp_path):
    small = measured([1032.0, 1033.0, 1035.0], batch_size=32)
    large = measured([1064.0, 1065.0, 1067.0], batch_size=64)
    torch = measured([900.0], **TORCH)
    summary = read(tmp_path, small, large, torch)
    axes = only_axes(throughput_by_batch(summary))
    lowest, highest = axes.get_ylim()
    assert lowest == 0
    assert highest > 1067
    assert axes.get_ylabel() == "images/s"
    assert lines_of(axes) == {"Paddle": [1033.0, 1065.0], "PyTorch": [900.0]}
    repeats = 0
    for dots in axes.collections:
        if isinstance(dots, PathCollection):
            repeats += len(dots.get_offsets())
    assert repeats == 7


def test_speedup_is_relative_to_the_fewest_devices(tmp_path):
    on_one = [90.0, 100.0, 110.0, 120.0]
    on_eight = [798.0] * 4
    fewest = measured(on_one, gpus=1, device="gpu", batch_size=48)
    eight = measured(on_eight, gpus=8, device="gpu", batch_size=48)
    sixteen = measured([1512.0], batch_size=48, **NODES)
    failed = measured([], gpus=4, device="gpu", batch_size=48)
    other_batch = measured([500.0], gpus=8, device="gpu", batch_size=64)
    summary = read(tmp_path, fewest, eight, sixteen, failed, other_batch)
    section = scaling(summary)
    axes = only_axes(section)
    assert lines_of(axes) == {"ideal": [1, 8, 16], "Paddle": [1, 7.6, 14.4]}
    assert notes_of(axes) == ["95 %", "90 %"]
    (paddle,) = [bars for bars in axes.containers if bars.get_label() == "Paddle"]
    error_bars = paddle.lines[2][0]
    _first, bar_of_eight, _last = error_bars.get_segments()
    ends = sorted(bar_of_eight[:, 1])
    expected = ratio_interval(on_eight, on_one)
    assert ends == pytest.approx([expected.low, expected.high])
    assert expected.high > expected.low, "the spread of both sides"
    words = "Paddle: 16 devices give 14.4 × the throughput of 1, 90 % of ideal"
    assert f"ResNet-50 · fp32 · batch 48 · dali, {words}" in section.html
    assert section.html.count("devices give") == 1


@pytest.mark.parametrize(("image_size", "drawn"), [(224, True), (32, False)])
def test_published_scaling_is_drawn_only_for_the_same_work(tmp_path, image_size, drawn):
    on_one = measured([2000.0], device="gpu", gpus=8, image_size=image_size)
    on_two = measured([3900.0], image_size=image_size, **NODES)
    summary = read(tmp_path, on_one, on_two)
    axes = only_axes(scaling(summary))
    lines = {bars.get_label(): bars.lines[0] for bars in axes.containers}
    assert ("Paddle, published" in lines) == drawn
    if drawn:
        assert lines["Paddle, published"].get_markerfacecolor() == "white"


def test_cpu_processes_have_a_speedup_without_an_ideal_line(tmp_path):
    one = measured([4.0])
    two_processes = measured([5.0], processes=2)
    two_nodes = measured([8.0], nodes=2, launcher="srun")
    summary = read(tmp_path, one, two_processes, two_nodes)
    section = scaling(summary)
    axes = only_axes(section)
    assert lines_of(axes) == {"Paddle": [1, 1.25, 2]}
    assert notes_of(axes) == []
    assert "No ideal line where the processes share the cores." in section.html


# All sections.


def everything(outputs, cpu="EPYC"):
    """Store measurements that fill every section and return the summary."""
    facts = {"cpu": cpu}
    more = [measured([2000.0], gpus=8, device="gpu")]
    for batch_size, processes in product((4, 8), (1, 2)):
        sizes = {"batch_size": batch_size, "processes": processes}
        more.append(measured([5.0, 6.0], facts=facts, **sizes))
    return frameworks(outputs, *more, facts=facts, paddle=SLOW, torch=FAST)


def test_untrusted_names_are_escaped_in_tables_and_figures(tmp_path):
    summary = everything(tmp_path, HOSTILE)
    frame = summary.measurements.assign(input=HOSTILE)
    hostile = Summary(summary.site, frame, summary.comparisons, [HOSTILE])
    html = page(hostile).html
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert not re.search(r"&(?!\w+;|#\d+;)", html)


@pytest.mark.usefixtures("processes")
def test_every_figure_has_resolved_colours_and_every_chinese_character(tmp_path):
    """A glyph missing from the font causes a warning, which is an error here."""
    svgs = []
    with in_language("zh"):
        summary = everything(tmp_path)
        for part in page(summary).parts:
            bundle = part.bundle(png=True)
            if "image/svg+xml" in bundle:
                svgs.append(bundle["image/svg+xml"])
    assert len(svgs) == 3
    for svg in svgs:
        colours = {*re.findall(r"#[0-9a-f]{6}", svg)}
        assert "var(--" not in svg
        assert len(colours) > 3
