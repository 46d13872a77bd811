"""Series of measurements: where their level changes, without false alarms from noise."""

import json
import re
import shutil
from functools import partial
from itertools import chain
from random import Random

import pytest
import simulations
from conftest import cli
from made import forget_repeats, measured, write_all

from perfkit.analysis.comparison.history import history
from perfkit.analysis.series import segment
from perfkit.core.results.outputs import load
from perfkit.core.results.store import RESULT, read_result
from perfkit.core.statistics import ratio_interval
from perfkit.report.history import history_overview
from perfkit.report.history_text import history_text
from perfkit.report.site import write_summary
from perfkit.report.summary import Summary


def series(levels, seed=0, *, facts=None, labels=None, **parameters):
    """Return daily results at these levels, each of 7 repeats with 0.5 % noise."""
    random = Random(seed)
    results = []
    for day, level in enumerate(levels):
        values = [random.gauss(level, 0.005 * level) for _repeat in range(7)]
        label = labels[day] if labels else ""
        changed = facts[day] if facts else None
        result = measured(values, facts=changed, label=label, **parameters)
        created = f"2026-01-{day + 1:02}T00:00:00+00:00"
        results.append(result.model_copy(update={"created": created}))
    return results


def history_of(tmp_path, *results, **options):
    return history(load(write_all(tmp_path / "outputs", *results)), **options)


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
    segmentation = segment([[random.gauss(level, 0.5) for _ in range(7)] for level in levels])
    assert [change.start for change in segmentation.change_points] == [6, 11]
    assert segmentation.change_points[0].ratio.value == pytest.approx(0.9, rel=0.01)
    assert segmentation.test_level == pytest.approx(0.05 / (20 * 19 * 18 / 6))


def test_the_repeats_nearest_to_a_change_are_tested():
    random = Random(2)
    levels = [100.0] * 8 + [90.0] * 8
    repeats = [[random.gauss(level, 0.5) for _ in range(20)] for level in levels]
    (change,) = segment(repeats).change_points
    before, after = ([*chain(*repeats[k : k + 7])] for k in (1, 8))
    assert change.start == 8
    assert change.ratio == ratio_interval(after, before)


@pytest.mark.parametrize("repeats", [[[100.0], [100.1], [50.0]], [[100.0] * 7] * 10])
def test_too_few_repeats_and_equal_throughputs_show_no_change(repeats):
    assert segment(repeats).change_points == []


def test_a_series_joins_versions_but_not_configurations_or_hardware(tmp_path):
    facts = [{"paddle": "3.2.0"}, {"paddle": "3.3.0"}, {"paddle": "3.3.1"}]
    judged = history_of(
        tmp_path,
        *series([100] * 3, facts=facts, labels=["a", "b", "c"]),
        *series([100] * 3, batch_size=64),
        *series([100] * 3, facts=[{"cpu": "another"}] * 3),
        *series([100] * 2, model="vgg16"),
    )
    names = [series.name for series in judged.series]
    assert len({*names}) == 3
    assert judged.left_out == 2
    assert "2 measurements in series of fewer than three" in history_text(judged)
    assert sum("another" in name for name in names) == 1
    for one in judged.series:
        assert len(one.points) == 3


def test_a_series_is_named_by_what_differs_from_the_defaults(tmp_path):
    values = {"image_size": 64, "accumulate": 2}
    (only,) = history_of(tmp_path, *series([100] * 3, **values)).series
    assert only.name.endswith(" · accumulate 2 · 64 px")


def test_a_series_joins_worker_environments_and_names_their_changes(tmp_path):
    facts = [{"paddle": "2.6.2"}] * 5 + [{"paddle": "3.3.1"}] * 5
    results = series([100] * 5 + [94] * 5, facts=facts)
    for number, result in enumerate(results[:5]):
        config = result.config.model_copy(update={"python": ".venv-paddle2/bin/python"})
        results[number] = result.model_copy(update={"config": config})
    (only,) = history_of(tmp_path, *results).series
    (change,) = only.changes
    assert change.start == 5
    assert change.interval[0] < 0.94 < change.interval[1]
    assert only.points[5].changes == {"paddle": ("2.6.2", "3.3.1")}
    for point in only.points:
        if point is not only.points[5]:
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
    judged = history_of(tmp_path, *series(levels))
    assert judged.regressed == judged.series[0].regressed == regressed
    # An older drop is no regression, but it is not called well either.
    write_summary(Summary.read(tmp_path / "outputs"), "en")
    page = (tmp_path / "outputs" / "history" / "report.html").read_text()
    for text in (history_text(judged), page):
        assert bool(re.search(r"a lower level .× 0.9\d+. began 3 meas", text)) == lower
    assert (">▲<" in page) == lower


def test_the_newest_measurement_is_compared_with_the_previous_one(tmp_path):
    (only,) = history_of(tmp_path, *series([100] * 3 + [90])).series
    assert only.newest.verdict == "slower"
    assert only.newest.interval[0] < 0.9 < only.newest.interval[1]


run = partial(cli, "history")


def test_check_exits_with_1_for_a_regression(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([100] * 8 + [94]))
    assert run(outputs).exit_code == 0
    checked = run(outputs, "--check")
    assert checked.exit_code == 1
    assert "REGRESSED" in checked.output
    assert "1 series, 1 regressed" in checked.output
    assert max(map(len, checked.output.splitlines())) <= 80
    assert run(outputs, "--check", "--threshold", "10").exit_code == 0


def test_a_folder_without_series_says_what_is_needed(tmp_path):
    assert "measured three times" in run(write_all(tmp_path / "outputs", *series([1.0]))).output
    missing = run(tmp_path / "nowhere")
    assert missing.exit_code == 2
    assert "nowhere: no folder" in " ".join(missing.output.split())


def test_a_series_may_span_folders_and_copies_count_once(tmp_path):
    first = write_all(tmp_path / "first", *series([100] * 8 + [94]))
    second = tmp_path / "second"
    folders = sorted(path.parent for path in first.glob("*/result.json"))
    shutil.copytree(folders[0], second / folders[0].name)
    for folder in folders[1:5]:
        shutil.move(folder, second / folder.name)
    file = tmp_path / "history.json"
    checked = run(first, second, "--check", "--json", file)
    assert checked.exit_code == 1
    assert "newest of 9" in checked.output
    content = json.loads(file.read_text())
    (only,) = content["series"]
    assert content["regressed"]
    assert [change["start"] for change in only["changes"]] == [8]
    in_first = [point["folder"].startswith(f"{first}/") for point in only["points"]]
    assert in_first == [True] + [False] * 4 + [True] * 4


@pytest.mark.parametrize("reverse", [False, True])
def test_the_copy_with_the_most_repeats_counts(tmp_path, reverse):
    whole = write_all(tmp_path / "whole", *series([100] * 8 + [94]))
    created = {read_result(path).created: path.parent for path in whole.glob("*/result.json")}
    folder = created[max(created)]
    copy = tmp_path / "early" / folder.name
    shutil.copytree(folder, copy)
    forget_repeats(copy, after=0)
    folders = [whole, copy.parent]
    assert "newest of 9" in run(*(folders[::-1] if reverse else folders)).output


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
    newest = max(outputs.iterdir(), key=lambda folder: read_result(folder / RESULT).created)
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


def test_the_page_shows_series_and_changes_with_escaped_names(tmp_path, monkeypatch):
    monkeypatch.setattr("perfkit.report.site.SUMMARY_PAGES", ["history"])
    facts = [{"paddle": "1"}] * 8 + [{"paddle": "<b>\x1b[31m"}]
    outputs = write_all(tmp_path / "outputs", *series([100] * 8 + [94], facts=facts))
    write_summary(Summary.read(outputs), "en")
    page = (outputs / "history" / "report.html").read_text()
    assert "1 of 1 series regressed" in page
    assert page.count("<svg") == 1
    assert "× 0.94" in page
    assert "&lt;b&gt;" in page
    assert "<b>\x1b" not in page
    assert "\x1b" not in run(outputs).output
