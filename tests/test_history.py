"""Series of measurements: where their level changes, without false alarms from noise."""

import json
import re
import shutil
from functools import partial
from itertools import chain, pairwise
from random import Random

import pytest
import simulations
from bs4 import BeautifulSoup
from conftest import cli
from made import forget_repeats, measured, with_start, write_all

from perfkit.analysis.comparison.history import history
from perfkit.analysis.series import segment
from perfkit.core.results.outputs import load
from perfkit.core.results.store import RESULT, read_result
from perfkit.core.statistics import ratio_interval
from perfkit.report.history import chart, history_overview, history_series
from perfkit.report.history_text import history_text
from perfkit.report.site import write_summary
from perfkit.report.summary import Summary


def series(levels, seed=0, *, facts=None, labels=None, **parameters):
    """Return daily results at these levels, each of 7 repeats with 0.5 % noise."""
    random = Random(seed)
    results = []
    for day, level in enumerate(levels):
        values = noisy(random, level, 0.005 * level, repeats=7)
        if labels:
            parameters["label"] = labels[day]
        if facts:
            parameters["facts"] = facts[day]
        result = measured(values, **parameters)
        created = f"2026-01-{day + 1:02}T00:00:00+00:00"
        results.append(result.model_copy(update={"created": created}))
    return results


def noisy(random, level, deviation, repeats):
    return [random.gauss(level, deviation) for _repeat in range(repeats)]


def history_of(tmp_path, *results):
    outputs = write_all(tmp_path / "outputs", *results)
    return history(load(outputs))


def only_series(tmp_path, *results):
    (only,) = history_of(tmp_path, *results).series
    return only


def history_page(outputs):
    """Write the pages of the summary and return the page of the history."""
    write_summary(Summary.read(outputs), "en")
    path = outputs / "history" / "report.html"
    return path.read_text()


def test_the_measurements_of_a_series_tell_memory_and_the_time_to_the_first_step(tmp_path):
    results = series([100.0] * 4)
    with_times = [with_start(result, 3 * 2**30, 12.5) for result in results[1:]]
    outputs = write_all(tmp_path / "outputs", results[0], *with_times)
    (only,) = history(load(outputs)).series
    assert [point.peak_memory_bytes for point in only.points] == [None, *[3 * 2**30] * 3]
    first, *others = [point.first_step_seconds for point in only.points]
    assert first is None
    assert others == pytest.approx([12.5] * 3)
    page = BeautifulSoup(history_series(Summary.read(outputs)).html, "html.parser")
    (points,) = (table for table in page("table") if "To first step (s)" in table.get_text())
    cells = [cell.get_text() for cell in points("tr")[2]("td")]
    assert cells[4:6] == ["3.00", "12.5"]


# Short simulations; `benchmarks/simulations.py` runs more.


@pytest.mark.parametrize("noise", simulations.NOISE)
def test_noise_alone_is_no_change(noise):
    assert simulations.false_changes(noise, simulations=25) <= 0.05


@pytest.mark.parametrize("noise", simulations.NOISE)
def test_a_drop_of_three_times_the_noise_is_found_within_two_measurements(noise):
    assert simulations.found_changes(noise, simulations=20) >= 0.9


def test_several_changes_are_located():
    random = Random(1)
    levels = [100.0] * 6 + [90.0] * 5 + [105.0] * 8
    repeats = [noisy(random, level, 0.5, repeats=7) for level in levels]
    segmentation = segment(repeats)
    first, second = segmentation.change_points
    assert first.start == 6
    assert second.start == 11
    assert first.ratio.value == pytest.approx(0.9, rel=0.01)
    assert segmentation.test_level == pytest.approx(0.05 / (20 * 19 * 18 / 6))


def test_the_repeats_nearest_to_a_change_are_tested():
    random = Random(2)
    levels = [100.0] * 8 + [90.0] * 8
    repeats = [noisy(random, level, 0.5, repeats=20) for level in levels]
    (change,) = segment(repeats).change_points
    assert change.start == 8
    before = [*chain(*repeats[1:8])]
    after = [*chain(*repeats[8:15])]
    assert change.ratio == ratio_interval(after, before)


@pytest.mark.parametrize("repeats", [[[100.0], [100.1], [50.0]], [[100.0] * 7] * 10])
def test_too_few_repeats_and_equal_throughputs_show_no_change(repeats):
    assert segment(repeats).change_points == []


def test_a_series_joins_versions_but_not_configurations_or_hardware(tmp_path):
    facts = [{"paddle": "3.2.0"}, {"paddle": "3.3.0"}, {"paddle": "3.3.1"}]
    results = series([100] * 3, facts=facts, labels=["a", "b", "c"])
    results += series([100] * 3, batch_size=64)
    results += series([100] * 3, facts=[{"cpu": "another"}] * 3)
    results += series([100] * 2, model="vgg16")
    judged = history_of(tmp_path, *results)
    names = set()
    for joined in judged.series:
        assert len(joined.points) == 3
        names.add(joined.name)
    assert len(names) == 3
    assert len(judged.series) == 3
    on_another = [name for name in names if "another" in name]
    assert len(on_another) == 1
    assert judged.left_out == 2
    assert "2 measurements in series of fewer than three" in history_text(judged)


def test_a_series_is_named_by_what_differs_from_the_defaults(tmp_path):
    results = series([100] * 3, image_size=64, accumulate=2)
    only = only_series(tmp_path, *results)
    assert only.name.endswith(" · accumulate 2 · 64 px")


def test_a_series_joins_worker_environments_and_names_their_changes(tmp_path):
    facts = [{"paddle": "2.6.2"}] * 5 + [{"paddle": "3.3.1"}] * 5
    results = series([100] * 5 + [94] * 5, facts=facts)
    for number, result in enumerate(results[:5]):
        config = result.config.model_copy(update={"python": ".venv-paddle2/bin/python"})
        results[number] = result.model_copy(update={"config": config})
    only = only_series(tmp_path, *results)
    (change,) = only.changes
    low, high = change.interval
    assert change.start == 5
    assert low < 0.94 < high
    assert only.points[5].changes == {"paddle": ("2.6.2", "3.3.1")}
    for point in only.points[:5] + only.points[6:]:
        assert not point.changes


@pytest.mark.parametrize(
    ("levels", "regressed", "lower"),
    [
        ([100] * 8 + [94], True, False),
        ([100] * 8 + [94] * 2, True, False),
        ([100] * 8 + [94] * 3, False, True),
        ([100] * 8 + [94] * 4 + [100] * 4, False, False),
        ([100] * 6 + [90, 92], True, False),
        ([100] * 6 + [90] * 2 + [92], False, True),
        ([100] * 8 + [106], False, False),
        ([100] * 9, False, False),
    ],
)
def test_a_regression_is_a_drop_within_the_last_two_measurements(
    tmp_path, monkeypatch, levels, regressed, lower
):
    monkeypatch.setattr("perfkit.report.site.SUMMARY_PAGES", ["history"])
    results = series(levels)
    judged = history_of(tmp_path, *results)
    assert judged.regressed == regressed
    assert judged.series[0].regressed == regressed
    # An older drop is no regression, but it is not called well either.
    page = history_page(tmp_path / "outputs")
    for text in (history_text(judged), page):
        sentence = re.search(r"a lower level .× 0.9\d+. began 3 meas", text)
        assert bool(sentence) == lower
    assert (">▲<" in page) == lower


def test_the_newest_measurement_is_compared_with_the_previous_one(tmp_path):
    results = series([100] * 3 + [90])
    newest = only_series(tmp_path, *results).newest
    low, high = newest.interval
    assert newest.verdict == "slower"
    assert low < 0.9 < high


run = partial(cli, "history")


def test_check_exits_with_1_for_a_regression(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([100] * 8 + [94]))
    unchecked = run(outputs)
    assert unchecked.exit_code == 0
    checked = run(outputs, "--check")
    assert checked.exit_code == 1
    assert "REGRESSED" in checked.output
    assert "1 series, 1 regressed" in checked.output
    for line in checked.output.splitlines():
        assert len(line) <= 80
    tolerant = run(outputs, "--check", "--threshold", "10")
    assert tolerant.exit_code == 0


def test_a_folder_without_series_says_what_is_needed(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([1.0]))
    assert "measured three times" in run(outputs).output
    missing = run(tmp_path / "nowhere")
    assert missing.exit_code == 2
    assert "nowhere: no folder" in " ".join(missing.output.split())


def test_a_series_may_span_folders_and_copies_count_once(tmp_path):
    first = write_all(tmp_path / "first", *series([100] * 8 + [94]))
    second = tmp_path / "second"
    copied, *others = sorted(path.parent for path in first.glob("*/result.json"))
    shutil.copytree(copied, second / copied.name)
    for moved in others[:4]:
        shutil.move(moved, second / moved.name)
    file = tmp_path / "history.json"
    checked = run(first, second, "--check", "--json", file)
    assert checked.exit_code == 1
    assert "newest of 9" in checked.output
    content = json.loads(file.read_text())
    assert content["regressed"]
    (only,) = content["series"]
    (change,) = only["changes"]
    assert change["start"] == 8
    in_first = [point["folder"].startswith(f"{first}/") for point in only["points"]]
    assert in_first == [True] + [False] * 4 + [True] * 4


@pytest.mark.parametrize("reverse", [False, True])
def test_the_copy_with_the_most_repeats_counts(tmp_path, reverse):
    whole = write_all(tmp_path / "whole", *series([100] * 8 + [94]))
    folder = newest_in(whole)
    copy = tmp_path / "early" / folder.name
    shutil.copytree(folder, copy)
    forget_repeats(copy, after=0)
    folders = [whole, copy.parent]
    if reverse:
        folders.reverse()
    assert "newest of 9" in run(*folders).output


def newest_in(outputs):
    """Return the folder of the newest measurement."""
    return max(outputs.iterdir(), key=lambda folder: read_result(folder / RESULT).created)


def test_an_unreadable_result_is_named(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([100] * 3))
    (outputs / "broken").mkdir()
    (outputs / "broken" / "result.json").write_text("{")
    done = run(outputs)
    assert done.exit_code == 0
    assert "left out: broken" in done.stderr
    assert "1 series" in done.stdout


def test_a_result_contradicting_its_raw_files_is_not_judged(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([100, 100, 100, 90]))
    newest = newest_in(outputs)
    (newest / "repeats" / "1" / "rank0.jsonl").write_text("")
    done = run(outputs, "--check")
    assert f"left out: {newest.name}: contradicts its raw files" in done.stderr
    assert done.exit_code == 0
    assert "1 series" in done.stdout
    summary = Summary.read(outputs, check=True)
    (only,) = summary.history.series
    assert len(only.points) == 3
    assert only.regressed is False
    assert f"{newest.name}: contradicts its raw files" in history_overview(summary).html


def chart_of(tmp_path, count):
    """Return the axes of the chart of so many measurements, each with another kernel."""
    results = []
    for day in range(count):
        created = f"2026-{1 + day // 28:02}-{1 + day % 28:02}T10:00:00+00:00"
        result = measured([10.0, 10.1], facts={"kernel": f"6.{day}"})
        results.append(result.model_copy(update={"created": created}))
    (axes,) = chart(only_series(tmp_path, *results)).axes
    return axes


@pytest.mark.parametrize("count", [5, 40])
def test_names_in_the_chart_do_not_overlap_each_other_or_the_points(tmp_path, count):
    axes = chart_of(tmp_path, count)
    dates = [tick.get_text() for tick in axes.get_xticklabels()]
    assert len(dates) <= 12
    assert dates[0] == "2026-01-01"
    assert {tick.get_rotation() for tick in axes.get_xticklabels()} == {45}
    axes.figure.canvas.draw()
    width_of_a_measurement = axes.get_window_extent().width / count
    height_of_a_line = axes.texts[0].get_fontsize() * axes.figure.dpi / 72
    places = [text.get_position() for text in axes.texts]
    assert places[0][0] == 0.5
    assert all(height > 1 for _x, height in places), "above the axes"
    between = min(after[0] - before[0] for before, after in pairwise(places))
    # Lines of text at 45° are as far from each other as the places' distance / √2.
    assert between * width_of_a_measurement / 2**0.5 > height_of_a_line


def test_the_page_shows_series_and_changes_with_escaped_names(tmp_path, monkeypatch):
    monkeypatch.setattr("perfkit.report.site.SUMMARY_PAGES", ["history"])
    facts = [{"paddle": "1"}] * 8 + [{"paddle": "<b>\x1b[31m"}]
    outputs = write_all(tmp_path / "outputs", *series([100] * 8 + [94], facts=facts))
    page = history_page(outputs)
    assert "1 of 1 series regressed" in page
    assert page.count("<svg") == 1
    assert "× 0.94" in page
    assert "&lt;b&gt;" in page
    assert "<b>\x1b" not in page
    assert "\x1b" not in run(outputs).output
