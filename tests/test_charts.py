"""Charts: every repeat a dot, intervals where there are any, text drawn and never markup."""

import re

import pandas as pd
import pytest
from made import measured, write_all

import perfkit
from perfkit.report import charts, pictures
from perfkit.tables.cells import cells_of
from perfkit.tables.matches import match
from perfkit.tables.series import series_of
from perfkit.words.language import spoken

GPU = {"device": "gpu", "gpus": 8}


def drawn(tmp_path, *results):
    """The pictures of the one series that the results are."""
    (series,) = series_of(perfkit.load(write_all(tmp_path, *results)))
    return pictures.of_series(series)


def points(*rows):
    return pd.DataFrame(rows, columns=charts.POINTS)


def marks(chart):
    """Dots and markers; ticks and letters are such too."""
    return chart.count("<use ")


def test_every_repeat_is_a_dot_of_its_own():
    few = charts.throughput_by_batch(
        points(("1x1", 4, 10.0, 9.0, 11.0, (9.0, 10.0, 11.0))), "u"
    )
    many = (9.0, 9.5, 10.0, 10.5, 11.0)
    more = charts.throughput_by_batch(points(("1x1", 4, 10.0, 9.0, 11.0, many)), "u")
    assert marks(more) == marks(few) + 2


def test_an_interval_is_drawn_where_there_is_one_only():
    def line(low, high):
        chart = charts.throughput_by_batch(points(("1x1", 4, 10.0, low, high, ())), "u")
        return chart.count("<path ")

    assert line(9.0, 11.0) == line(None, None) + 1


@pytest.fixture
def axes(monkeypatch):
    """The axes of each picture drawn."""
    seen = []
    finished = charts._finished

    def remember(figure, axes, legend):
        seen.append(axes)
        return finished(figure, axes, legend)

    monkeypatch.setattr(charts, "_finished", remember)
    return seen


def test_the_axis_of_throughput_begins_at_zero(axes):
    rows = [("1x1", batch, 1000.0 + batch, None, None, ()) for batch in (32, 64)]
    charts.throughput_by_batch(points(*rows), "images/s")
    assert axes[0].get_ylim()[0] == 0
    assert axes[0].get_ylabel() == "images/s"


def test_of_many_batch_sizes_as_many_are_named_as_have_room(axes):
    rows = [("1x1", 2**k, 1.0, None, None, ()) for k in range(14)]
    charts.throughput_by_batch(points(*rows), "images/s")
    ticks = axes[0].get_xticks()
    assert 5 < len(ticks) < 14
    assert ticks[0] == 1


def test_the_ideal_is_a_line_at_a_hundred_percent_and_the_first_point_is_on_it(axes):
    rows = [
        ("32", where, value, None, None, ()) for where, value in (("1x1", 50), ("1x8", 300))
    ]
    charts.efficiency_by_topology(points(*rows), "batch")
    ideal, line = axes[0].get_lines()
    assert set(ideal.get_ydata()) == {100}
    assert list(line.get_ydata()) == [100, 75]


def test_topologies_of_as_many_devices_stand_apart_and_nothing_is_averaged(axes):
    rows = [
        ("32", "1x1", 100.0),
        ("32", "1x8", 400.0),
        ("32", "2x4", 800.0),
        ("32", "2x4", 600.0),
    ]
    charts.efficiency_by_topology(points(*((*row, None, None, ()) for row in rows)), "batch")
    _ideal, line = axes[0].get_lines()
    assert [text.get_text() for text in axes[0].get_xticklabels()] == ["1x1", "1x8", "2x4"]
    assert list(line.get_xydata().ravel()) == [0, 100, 1, 50, 2, 100, 2, 75]


def many(count):
    """Points of that many topologies and batch sizes."""
    return points(
        *(
            (f"{line}x{2**line}", 2 + batch * batch, 100.0 + line, None, None, ())
            for line in range(1, count + 1)
            for batch in range(count)
        )
    )


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_text_of_a_picture_covers_another(monkeypatch, count, language):
    seen = []
    monkeypatch.setattr(charts, "svg", seen.append)
    with spoken(language):
        charts.throughput_by_batch(many(count), "images/s")
        charts.efficiency_by_topology(
            many(count).assign(x=[f"1x{2**k}" for k in range(count)] * count),
            "batch per device",
        )
        names = ["NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-32GB", "H100"]
        rows = [
            (n, f"4x8, {batch}, FP32", 1.0, 0.9, 1.1, ()) for batch in range(20) for n in names
        ]
        charts.dots(points(*rows), "images/s per GPU")
    for figure in seen:
        figure.draw_without_rendering()
        (plot,), (legend,) = figure.axes, figure.legends
        ticks = [
            tick.label1
            for axis in (plot.xaxis, plot.yaxis)
            for tick in axis.get_major_ticks()
            if min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        ]
        texts = [*ticks, plot.xaxis.label, plot.yaxis.label, legend]
        extents = [text.get_window_extent() for text in texts]
        boxes = [box for box in extents if box.width and box.height]
        page = figure.bbox.padded(1)
        for i, box in enumerate(boxes):
            assert all(map(page.contains, *zip(box.min, box.max, strict=True)))
            assert box.count_overlaps(boxes[i + 1 :]) == 0


def test_findings_say_where_it_is_highest_and_what_more_devices_gave(tmp_path):
    highest, scaling = drawn(
        tmp_path,
        measured([100.0], device="gpu", gpus=1),
        measured([720.0], **GPU),
        measured([800.0], batch_size=64, **GPU),
    )
    assert highest.finding == "800.0 images/s at batch 64 on 1x8, the highest of 3"
    assert scaling.finding == (
        "1x8 gives up to 7.20 times 1x1, of 8 ideally: 90 % (batch per device: 32)"
    )
    assert "32: 100.0 images/s (1x1)" in scaling.subject


def test_processes_on_the_same_cores_have_no_ideal_to_be_drawn_against(tmp_path):
    (only,) = drawn(tmp_path, measured([4.0]), measured([5.0], processes=2))
    assert "highest of 2" in only.finding


def test_one_gpu_that_its_source_calls_no_base_is_no_base():
    cells = cells_of(perfkit.published())
    auto = pictures.of_fleetx("fleetx-vgg16", cells)[-1]
    assert auto.finding.startswith("4x8 gives up to 3.85 times 1x8")


def test_the_highest_framework_is_counted_at_one_batch_size_and_without_ties():
    cells = cells_of(perfkit.published())
    findings = [
        picture.finding.split(": ")[1]
        for table in ("perf-resnet50", "perf-bert", "paddle-resnet50-report")
        for picture in pictures.of_frameworks(table, cells, [])
    ]
    assert findings == [
        "TensorFlow (3)",
        "MXNet (2), TensorFlow (2), Paddle (1)",
        "Paddle (6), TensorFlow (2)",
        "Paddle (4), PyTorch (2), TensorFlow (1)",
        "TensorFlow (3)",
        "Paddle (2), MXNet (1)",
        "MXNet (2)",
        "MXNet (2)",
    ]


def test_one_measurement_makes_one_picture(tmp_path):
    (only,) = drawn(tmp_path, measured([4.0]))
    assert only.finding == "4.000 images/s at batch 32 on 1x1"


def test_a_series_in_which_all_failed_makes_none(tmp_path):
    assert drawn(tmp_path, measured([])) == []


def test_a_picture_is_the_same_bytes_each_time(tmp_path):
    write_all(tmp_path, measured([4.0, 5.0], processes=2), measured([3.0, 2.0]))
    found = {
        tuple(
            picture.chart
            for one in series_of(perfkit.load(tmp_path))
            for picture in pictures.of_series(one)
        )
        for _time in range(2)
    }
    assert len(found) == 1


def test_names_from_elsewhere_are_drawn_and_are_never_markup(tmp_path):
    hostile = '<script>alert(1)</script> --> $\\frac{1}{0}$ "& V100'
    facts = {"gpus": [hostile]}
    results = [measured([2550.0] * 7, facts=facts, batch_size=128, execution="static", **GPU)]
    (series,) = series_of(perfkit.load(write_all(tmp_path, *results)))
    found = match(cells_of(perfkit.published()), series.rows)
    of_ratios = pictures.of_ratios(found)
    assert of_ratios
    for picture in [*pictures.of_series(series), *of_ratios]:
        tags = set(re.findall(r"<([^\s/>]+)", picture.chart))
        assert tags <= {"svg", "defs", "style", "g", "path", "use", "clipPath", "rect"}


def test_pictures_together_define_what_they_share_once_and_miss_nothing(tmp_path):
    alone = drawn(tmp_path, measured([4.0]), measured([5.0], nodes=2, launcher="srun"))
    assert len(alone) == 2
    together = charts.with_shapes_once("".join(picture.chart for picture in alone))
    defined = re.findall(r'<path id="([^"]+)"', together)
    used = re.findall(r'<use xlink:href="#([^"]+)"', together)
    assert len(defined) == len(set(defined))
    assert set(used) == set(defined)


def test_the_pages_colours_stand_in_the_picture_and_no_others(tmp_path):
    for picture in drawn(tmp_path, measured([4.0]), measured([5.0], processes=2)):
        colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", picture.chart))
        assert colours <= {"none", "currentColor", "var(--line)", "var(--faint)"} | {
            f"var(--c{n})" for n in range(1, 7)
        }


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_published_picture_can_be_drawn_in_both_languages(language):
    """A glyph that the font lacks is a warning, which is an error here."""
    cells = cells_of(perfkit.published())
    with spoken(language):
        found = [
            *pictures.of_fleetx("fleetx-resnet50", cells),
            *pictures.of_dlperf(cells),
            *pictures.of_frameworks("perf-bert", cells, []),
        ]
    assert len(found) == 9
    assert all(picture.finding for picture in found)


def test_measured_against_published_says_the_range_of_the_ratios(tmp_path):
    results = [
        measured([2097.20 * 1.1] * 7, batch_size=32, **GPU),
        measured([2386.88 * 0.9] * 7, batch_size=64, **GPU),
        measured([1.0] * 7, batch_size=128, used="bf16", **GPU),
        measured([1.0] * 7, batch_size=128, facts={"gpus": ["NVIDIA H100"]}, **GPU),
    ]
    frame = perfkit.load(write_all(tmp_path, *results))
    rows = [row for one in series_of(frame) for row in one.rows]
    found = pictures.of_ratios(match(cells_of(perfkit.published()), rows))
    assert [picture.finding for picture in found] == [
        "Measured is 0.900 to 1.10 times what was published; cells: 2"
    ]


def test_a_measured_number_joins_the_frameworks_of_its_gpu_and_no_other(tmp_path):
    result = measured([1438.5] * 7, batch_size=256, precision="pure_fp16", device="gpu", gpus=1)
    cells = cells_of(perfkit.published())
    frame = perfkit.load(write_all(tmp_path, result))
    found = match(cells, [row for one in series_of(frame) for row in one.rows])
    without = pictures.of_frameworks("paddle-resnet50-report", cells, [])
    within = pictures.of_frameworks("paddle-resnet50-report", cells, found)
    changed = [a.chart != b.chart for a, b in zip(without, within, strict=True)]
    assert changed == [False, True, False, False]
    assert "every repeat" in within[1].key and "every repeat" not in within[0].key
