"""Series of measurements: where their level changes, without false alarms from noise."""

import json
import shutil
from functools import partial
from itertools import chain, pairwise
from random import Random

import click
import pytest
import simulations
from bs4 import BeautifulSoup
from conftest import cli
from made import forget_repeats, measured, with_start, write_all

from perfkit.analysis.comparison.history import history
from perfkit.analysis.series import level_changes, level_starts, newest_drop
from perfkit.analysis.verdicts import THRESHOLD
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


run = partial(cli, "history")


def on_one_line(text):
    """Return a text on one line, without colours."""
    return " ".join(click.unstyle(text).split())


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
@pytest.mark.parametrize("measurements", simulations.MEASUREMENTS)
def test_noise_alone_is_no_regression_and_a_drop_of_5_percent_is_one(noise, measurements):
    figures = (noise, 50, measurements, 0.005)
    assert simulations.called_regressed(*figures) <= 0.02
    assert simulations.called_regressed(*figures, drop=0.05) >= 0.85


def test_noise_alone_is_no_change():
    assert simulations.false_changes("normal", 50, measurements=50, session=0.005) <= 0.05


def test_several_changes_are_located():
    random = Random(1)
    levels = [100.0] * 6 + [90.0] * 5 + [105.0] * 8
    repeats = [noisy(random, level, 0.5, repeats=7) for level in levels]
    starts = level_starts(repeats, THRESHOLD)
    assert starts == [0, 6, 11]
    first, second = level_changes(repeats, starts)
    assert (first.start, second.start) == (6, 11)
    assert first.ratio.value == pytest.approx(0.9, rel=0.01)
    assert second.ratio == ratio_interval([*chain(*repeats[11:])], [*chain(*repeats[6:11])])


def test_the_ratio_of_a_change_is_that_of_the_measurements_nearest_to_it():
    random = Random(2)
    levels = [100.0] * 12 + [90.0] * 12
    repeats = [noisy(random, level, 0.5, repeats=3) for level in levels]
    (change,) = level_changes(repeats, [0, 12])
    before = [*chain(*repeats[2:12])]
    after = [*chain(*repeats[12:22])]
    assert change.ratio == ratio_interval(after, before)


@pytest.mark.parametrize("threshold", [0.0, 0.02])
def test_equal_throughputs_are_one_level(threshold):
    assert level_starts([[100.0] * 7] * 10, threshold) == [0]


def test_a_change_that_the_repeats_do_not_show_is_none():
    """The medians change by more than they scatter, the repeats vary by more."""
    noisy_repeats = [[0.5 * level, level, 1.5 * level] for level in [100.0] * 5 + [90.0]]
    assert level_starts(noisy_repeats, THRESHOLD) == [0]


def test_a_level_that_falls_slowly_has_not_dropped():
    """Its last measurements are slower than its first, from which ratios of levels follow."""
    falling = [noisy(Random(day), 100.0 - day / 5, 0.01, repeats=7) for day in range(30)]
    assert newest_drop(falling, [0], 0, THRESHOLD) is None


def test_a_change_within_the_threshold_is_no_level():
    quiet = [[level, 1.0001 * level] for level in [100.0] * 5 + [99.0]]
    assert level_starts(quiet, 0.02) == [0]
    assert level_starts(quiet, 0.005) == [0, 5]


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
    assert only.points[5].changes == {
        "paddle": ("2.6.2", "3.3.1"),
        "interpreter": (".venv-paddle2/bin/python", None),
    }
    for point in only.points[:5] + only.points[6:]:
        assert not point.changes


def with_worker(result, python, threads):
    """Return the result as if this interpreter had measured it with these thread pools."""
    config = result.config.model_copy(update={"python": python})
    effective = result.effective.model_copy(update={"threads": threads})
    return result.model_copy(update={"config": config, "effective": effective})


def page_text(outputs):
    """Return the text of the page's series."""
    html = history_series(Summary.read(outputs)).html
    return " ".join(BeautifulSoup(html, "html.parser").get_text().split())


def test_a_drop_names_threads_and_interpreter_but_no_label_as_what_changed(tmp_path):
    *before, newest = series([100] * 8 + [60], labels=[f"day{day}" for day in range(9)])
    python = ".venv-one/bin/python"
    judged = history_of(tmp_path, *before, with_worker(newest, python, {"libgomp": 1}))
    text = on_one_line(history_text(judged))
    assert "2026-01-09 day8 × 0." in text
    changed = "threads 2 | 1; interpreter – | .venv-one/bin/python"
    assert f"): {changed}" in text
    page = page_text(tmp_path / "outputs")
    assert changed.replace(" |", " →") in page
    assert "label day7" not in page
    (axes,) = chart(judged.series[0]).axes
    assert "threads 1" in [name.get_text() for name in axes.texts]


def test_a_thread_pool_of_another_name_is_no_change_of_threads(tmp_path):
    *before, newest = series([100] * 8 + [60])
    renamed = with_worker(newest, None, {"libgomp": 2, "libscipy_openblas": 2})
    (judged,) = history_of(tmp_path, *before, renamed).series
    assert judged.points[-1].changes == {}


def test_labels_do_not_change_what_a_history_finds(tmp_path):
    levels = [100.0, 101.5, 99.0, 100.5, 98.8, 101.0, 95.0, 96.2, 93.9, 95.5, 94.2, 96.0]
    nights = [f"night{number}" for number in range(len(levels))]
    without = only_series(tmp_path / "without", *series(levels))
    labelled = only_series(tmp_path / "labelled", *series(levels, labels=nights))
    assert [change.start for change in without.changes] == [6]
    assert [change.start for change in labelled.changes] == [6]


def test_a_drop_at_which_only_the_label_changed_says_that_nothing_stored_has(tmp_path):
    judged = history_of(tmp_path, *series([100] * 8 + [60], labels=[*"abcdefghi"]))
    unchanged = "nothing has changed in the stored environment, interpreter and threads"
    assert f"): {unchanged}" in on_one_line(history_text(judged))


@pytest.mark.parametrize(
    ("levels", "regressed"),
    [
        ([100] * 8 + [94], True),
        ([100] * 8 + [94] * 2, True),
        # A drop that lasts stays red.
        ([100] * 8 + [94] * 5, True),
        ([100] * 8 + [94] * 4 + [100] * 4, False),
        ([100] * 6 + [90, 92], True),
        ([100] * 6 + [90] * 2 + [92] * 3, True),
        ([100] * 8 + [106], False),
        ([100] * 9, False),
    ],
)
def test_a_regression_lasts_while_the_newest_level_is_below_the_best(
    tmp_path, levels, regressed
):
    judged = history_of(tmp_path, *series(levels))
    (only,) = judged.series
    assert judged.regressed == regressed
    assert only.regressed == regressed
    assert ("Regression: the newest level is" in history_text(judged)) == regressed


def test_a_regression_says_how_to_accept_it(tmp_path):
    labels = ["nightly"] * 8 + ["driver-570", "nightly", "nightly"]
    by_label = history_of(tmp_path / "a", *series([100] * 8 + [94] * 3, labels=labels))
    text = on_one_line(history_text(by_label))
    assert "To accept it: -p label accepted-NAME" in text
    assert "or --since driver-570." in text
    by_day = only_series(tmp_path / "b", *series([100] * 8 + [94] * 3))
    assert by_day.drop.since == "2026-01-09"
    results = series([100] * 8 + [94] * 3)
    hours = []
    for hour, result in enumerate(results):
        created = f"2026-01-01T{hour:02}:00:00+00:00"
        hours.append(result.model_copy(update={"created": created}))
    by_time = only_series(tmp_path / "c", *hours)
    assert by_time.drop.since == "2026-01-01T08:00:00+00:00"


def test_an_accepting_label_ends_a_regression_until_the_next_drop(tmp_path):
    levels = [100] * 8 + [94] * 3
    labels = [""] * 9 + ["accepted-driver-570", ""]
    accepted = history_of(tmp_path / "accepted", *series(levels, labels=labels))
    assert not accepted.regressed
    assert "accepted: the level of 2026-01-10 accepted-driver-570" in history_text(accepted)
    again = only_series(tmp_path / "again", *series([*levels, 88], labels=[*labels, ""]))
    assert again.regressed
    assert again.drop.ratio == pytest.approx(88 / 94, rel=0.01)
    before = [""] * 7 + ["accepted-too-early"] + [""] * 3
    assert history_of(tmp_path / "before", *series(levels, labels=before)).regressed


@pytest.mark.parametrize("since", ["driver-570", "2026-01-09", "2026-01-09T00:00"])
def test_since_accepts_the_level_of_a_label_or_day(tmp_path, since):
    labels = [""] * 8 + ["driver-570"] * 3
    outputs = write_all(tmp_path / "outputs", *series([100] * 8 + [94] * 3, labels=labels))
    assert run(outputs, "--check").exit_code == 1
    assert run(outputs, "--check", "--since", since).exit_code == 0
    assert run(outputs, "--check", "--since", "2026-01-08").exit_code == 1


@pytest.mark.parametrize("since", ["driver-580", "2026-02-01", "yesterday"])
def test_since_that_no_measurement_has_is_refused(tmp_path, since):
    outputs = write_all(tmp_path / "outputs", *series([100] * 3, labels=["driver-570"] * 3))
    refused = run(outputs, "--check", "--since", since)
    assert refused.exit_code == 2
    assert f"--since: {since}: no measurement of a series" in on_one_line(refused.stderr)


def test_check_exits_with_1_for_a_regression(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([100] * 8 + [94]))
    unchecked = run(outputs)
    assert unchecked.exit_code == 0
    checked = run(outputs, "--check")
    assert checked.exit_code == 1
    assert "Regression: the newest level is" in checked.output
    assert "1 series: 1 regressed" in checked.output
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


def test_repeats_made_for_an_interleaved_comparison_are_in_no_series(tmp_path):
    labels = ["a", "live-0c1d2e", "b", "live-run", "live-ffffff", "c"]
    only = only_series(tmp_path, *series([100] * 6, labels=labels))
    assert [point.label for point in only.points] == ["a", "b", "live-run", "c"]


def test_the_axis_of_the_chart_does_not_go_below_0(tmp_path):
    (axes,) = chart(only_series(tmp_path, *series([100] * 4 + [1]))).axes
    assert axes.get_ylim()[0] == 0
