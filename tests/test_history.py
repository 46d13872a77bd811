"""Series of measurements: where their level changes, without false alarms from noise."""

from functools import partial
from itertools import chain
from pathlib import Path
from random import Random

import click
import pytest
import simulations
from bs4 import BeautifulSoup
from conftest import cli
from made.results import measured, with_start, write_all

from perfkit.analysis.comparison.history import history, movers
from perfkit.analysis.series import level_changes, level_starts, newest_drop
from perfkit.analysis.verdicts import THRESHOLD
from perfkit.measuring.results.outputs import load
from perfkit.measuring.results.store import RESULT, read_result
from perfkit.measuring.statistics import ratio_interval
from perfkit.report.history import chart, history_section, page
from perfkit.report.links import Site
from perfkit.report.site import write_summary
from perfkit.report.summarized import Summary
from perfkit.report.text.names import configuration_name


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


def disturbed(measurements, throughput):
    """Return the measurements, of which those over this throughput were made beside a process
    that took a core."""
    return measurements.assign(disturbed=measurements["throughput"] > throughput)


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


def text_of(judged):
    """Return the text of a history on one line."""
    return on_one_line(repr(history_section(judged, Site(Path()))))


def test_the_measurements_of_a_series_tell_memory_and_the_time_to_the_first_step(tmp_path):
    results = series([100.0] * 4)
    with_times = [with_start(result, 3 * 2**30, 12.5) for result in results[1:]]
    outputs = write_all(tmp_path / "outputs", results[0], *with_times)
    soup = BeautifulSoup(page(Summary.read(outputs)).html, "html.parser")
    (points,) = (table for table in soup("table") if "To first step (s)" in table.get_text())
    cells = [cell.get_text() for cell in points("tr")[2]("td")]
    assert cells[3:5] == ["3.00", "12.5"]


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


def test_a_change_that_the_repeats_do_not_show_is_none():
    """The medians change by more than they scatter, the repeats vary by more."""
    noisy_repeats = [[0.5 * level, level, 1.5 * level] for level in [100.0] * 5 + [90.0]]
    assert level_starts(noisy_repeats, THRESHOLD) == [0]


def test_a_level_that_falls_slowly_has_not_dropped():
    """Its last measurements are slower than its first, from which ratios of levels follow."""
    falling = [noisy(Random(day), 100.0 - day / 5, 0.01, repeats=7) for day in range(30)]
    assert newest_drop(falling, [0], 0, THRESHOLD) is None


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
        names.add(configuration_name(joined.configuration))
    assert len(names) == 3
    assert len(judged.series) == 3
    on_another = [name for name in names if "another" in name]
    assert len(on_another) == 1
    assert judged.left_out == 2
    assert "2 measurements belong to series with fewer than three undisturbed ones." in text_of(
        judged
    )


def with_worker(result, python, threads):
    """Return the result as if this interpreter had measured it with these thread pools."""
    config = result.config.model_copy(update={"python": python})
    effective = result.effective.model_copy(update={"threads": threads})
    return result.model_copy(update={"config": config, "effective": effective})


def test_a_drop_names_threads_and_interpreter_but_no_label_as_what_changed(tmp_path):
    *before, newest = series([100] * 8 + [60], labels=[f"day{day}" for day in range(9)])
    python = ".venv-one/bin/python"
    judged = history_of(tmp_path, *before, with_worker(newest, python, {"libgomp": 1}))
    text = text_of(judged)
    assert "2026-01-09 day8 100 → 60.1 images/s threads 2 → 1; interpreter – → " in text
    assert ".venv-one/bin/python" in text
    assert "label" not in text.partition("Changed environment")[2]


@pytest.mark.parametrize(
    ("levels", "regressed"),
    [
        ([100] * 8 + [94], True),
        # A drop that lasts stays red.
        ([100] * 8 + [94] * 5, True),
        ([100] * 8 + [94] * 4 + [100] * 4, False),
        ([100] * 6 + [90] * 2 + [92] * 3, True),
        ([100] * 8 + [106], False),
    ],
)
def test_a_regression_lasts_while_the_newest_level_is_below_the_best(
    tmp_path, levels, regressed
):
    judged = history_of(tmp_path, *series(levels))
    assert ("Regression: " in text_of(judged)) == regressed


def test_a_regression_says_where_it_began_and_how_to_accept_it(tmp_path):
    labels = ["nightly"] * 8 + ["driver-570", "nightly", "nightly"]
    text = text_of(history_of(tmp_path, *series([100] * 8 + [94] * 3, labels=labels)))
    assert "since 2026-01-09 driver-570." in text
    assert "To accept it: -p label accepted-NAME" in text


def test_an_accepting_label_ends_a_regression_until_the_next_drop(tmp_path):
    levels = [100] * 8 + [94] * 3
    labels = [""] * 9 + ["accepted-driver-570", ""]
    accepted = history_of(tmp_path / "accepted", *series(levels, labels=labels))
    assert not accepted.regressed
    assert "The level of 2026-01-10 accepted-driver-570 was accepted." in text_of(accepted)
    again = only_series(tmp_path / "again", *series([*levels, 88], labels=[*labels, ""]))
    assert again.regressed
    assert again.drop.ratio == pytest.approx(88 / 94, rel=0.01)
    before = [""] * 7 + ["accepted-too-early"] + [""] * 3
    assert history_of(tmp_path / "before", *series(levels, labels=before)).regressed


def test_check_exits_with_1_for_a_regression(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([100] * 8 + [94]))
    unchecked = run(outputs)
    assert unchecked.exit_code == 0
    checked = run(outputs, "--check")
    assert checked.exit_code == 1
    assert "Regression: 0.94" in checked.output
    tolerant = run(outputs, "--check", "--threshold", "10")
    assert tolerant.exit_code == 0


def test_a_measurement_beside_other_load_is_shown_but_not_judged(tmp_path):
    measurements = load(write_all(tmp_path / "outputs", *series([60] * 5 + [100, 60])))
    (judged,) = history(measurements).series
    assert judged.regressed
    found = history(disturbed(measurements, 80))
    (only,) = found.series
    assert not only.regressed
    assert [point.disturbed for point in only.points] == [False] * 5 + [True, False]
    text = repr(history_section(found, Site(tmp_path)))
    assert "1 measurement beside other load is shown in grey and not judged." in text
    assert chart(only)


def test_too_few_measurements_check_nothing_and_fail_only_if_a_baseline_is_required(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([100, 60]))
    checked = run(outputs, "--check")
    assert checked.exit_code == 0
    assert "Nothing was checked" in checked.stdout
    assert run(outputs, "--check", "--require-baseline").exit_code == 1


def test_the_movers_are_series_whose_newest_measurement_differs_from_the_one_before(tmp_path):
    same = series([100, 100.1, 99.9], batch_size=8)
    faster = series([100, 100, 110], seed=1, batch_size=16)
    slower = series([100, 100, 80], seed=2, batch_size=64)
    beside = series([100, 100, 100, 200], seed=3, batch_size=128)
    outputs = write_all(tmp_path / "outputs", *same, *faster, *slower, *beside)
    found = movers(disturbed(load(outputs), 150))
    ratios = [mover.ratio.value for mover in found]
    assert ratios == [pytest.approx(0.8, rel=0.02), pytest.approx(1.1, rel=0.02)]


def newest_in(outputs):
    """Return the folder of the newest measurement."""
    return max(outputs.iterdir(), key=lambda folder: read_result(folder / RESULT).created)


def test_a_result_contradicting_its_raw_files_is_not_judged(tmp_path):
    outputs = write_all(tmp_path / "outputs", *series([100, 100, 100, 90]))
    newest = newest_in(outputs)
    (newest / "repeats" / "1" / "rank0.jsonl").write_text("")
    done = run(outputs, "--check")
    assert f"left out: {newest.name}: contradicts its raw files" in done.stderr
    assert done.exit_code == 0
    assert "Newest of 3" in done.stdout


def test_the_page_shows_series_and_changes_with_escaped_names(tmp_path, monkeypatch):
    monkeypatch.setattr("perfkit.report.site.SUMMARY_PAGES", ["history"])
    facts = [{"paddle": "1"}] * 8 + [{"paddle": "<b>\x1b[31m"}]
    outputs = write_all(tmp_path / "outputs", *series([100] * 8 + [94], facts=facts))
    write_summary(Summary.read(outputs), "en")
    page = (outputs / "history" / "report.html").read_text()
    assert "Regression: 0.94" in page
    assert page.count('<figure role="img"') == 1
    assert "× 0.94" in page
    assert "&lt;b&gt;" in page
    assert "<b>\x1b" not in page


def test_repeats_made_for_an_interleaved_comparison_are_in_no_series(tmp_path):
    labels = ["a", "live-0c1d2e", "b", "live-run", "live-ffffff", "c"]
    only = only_series(tmp_path, *series([100] * 6, labels=labels))
    assert [point.label for point in only.points] == ["a", "b", "live-run", "c"]
