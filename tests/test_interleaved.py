"""Interleaved comparisons: measured, resumed, evaluated, stored and shown."""

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import reduce
from html import unescape
from operator import getitem

import click
import fake_trainer
import pytest
from conftest import as_options, cli
from drivers import faked
from made.clusters import wait_for
from made.results import keep, measured, steady_peak

import perfkit
from perfkit.analysis.comparison.interleaved import disagreements, judge_interleaved
from perfkit.analysis.comparison.interleaved_plan import InterleavedPlan, plan_interleaved
from perfkit.analysis.comparison.stored import (
    FILE,
    InterleavedComparison,
    comparison_folders,
    read_comparison,
    write_comparison,
)
from perfkit.measuring.results.store import Measurement
from perfkit.report.comparison import ComparisonPage, selected_comparison
from perfkit.report.comparison import page as comparison_page
from perfkit.report.links import Site
from perfkit.report.site import write_site
from perfkit.report.style import FAINT, ForestRow, forest
from perfkit.report.text.names import variant_names

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DIES = [sys.executable, "-c", "raise SystemExit('planted')"]


@pytest.fixture
def shared(small, tmp_path):
    """Parameters of all variants: two repeats of a few steps with synthetic input."""

    def parameters(**changes):
        values = small(input="synthetic", repeats=2) | changes
        del values["data_dir"]
        del values["batch_size"]
        return values

    return parameters


@pytest.fixture
def compare(processes, shared, monkeypatch):
    """`perfkit compare --live` with a fake trainer that takes no time; variants with a batch
    size in `dying` exit. Two repeats suffice at the level of 50 %."""

    def run(*variants, dying=(), level=50, **changes):
        fake = fake_trainer.launcher_command(0.1)

        def command(config, *rest):
            if config.work.batch_size in dying:
                return DIES
            return fake(config, *rest)

        monkeypatch.setattr("perfkit.measuring.driver.workers.launcher_command", command)
        options = [*as_options(shared(**changes)), "--level", str(level)]
        return cli("compare", "--live", "resnet50", *variants, *options)

    return run


def stored(outputs):
    """Return the only comparison below `outputs`."""
    (folder,) = comparison_folders(outputs)
    return read_comparison(folder)


def repeats_by_time(outputs, comparison):
    """Return (variant, repeat) of all repeats by their start times."""
    starts = []
    for number, variant in enumerate(comparison.variants):
        result = Measurement.read(outputs / variant.id).result
        for repeat in result.repeats:
            starts.append((repeat.began, number, repeat.index))
    return [(number, index) for _began, number, index in sorted(starts)]


def page(outputs):
    (folder,) = comparison_folders(outputs)
    return unescape((folder / "report.html").read_text())


# Measurement.


def assert_ratios(comparison, outputs):
    """Assert that each pair has the ratios of repeat k to the base's repeat k."""
    base = Measurement.read(outputs / comparison.base.id).result
    for pair in comparison.pairs:
        other = Measurement.read(outputs / pair.b.name).result
        ratios = []
        for a, b in zip(base.throughputs, other.throughputs, strict=True):
            ratios.append(b / a)
        assert pair.ratios == ratios
        assert pair.interval_level >= comparison.level
        assert list(pair.across) == ["batch_size"]
        assert pair.out_of_turn == []


@pytest.mark.slow
def test_variants_are_interleaved_and_written_as_json_and_page(compare, tmp_path):
    outputs = tmp_path / "outputs"
    file = tmp_path / "out.json"
    variants = ["batch_size=1", "batch_size=2", "batch_size=3"]
    done = compare(*variants, "--json", str(file))
    comparison = stored(outputs)
    assert done.exit_code == comparison.regressed
    assert comparison.complete
    interleaved = [(0, 1), (1, 1), (2, 1), (2, 2), (1, 2), (0, 2)]
    assert repeats_by_time(outputs, comparison) == interleaved
    assert InterleavedComparison.model_validate_json(file.read_text()) == comparison
    base = Measurement.read(outputs / comparison.base.id)
    assert base.result.config.label.startswith("live-")
    assert_ratios(comparison, outputs)
    (folder,) = comparison_folders(outputs)
    assert done.stdout.splitlines()[-1] == str(folder / "report.html")
    assert f"comparisons/{folder.name}/report" in (outputs / "index.html").read_text()
    assert "<svg" in page(outputs)
    again = compare(*variants)
    assert stored(outputs) == comparison
    assert again.stdout == done.stdout
    assert repeats_by_time(outputs, comparison) == interleaved


@pytest.mark.slow
def test_a_failed_variant_is_skipped_and_retried_by_the_same_command(compare, tmp_path):
    outputs = tmp_path / "outputs"
    variants = ["batch_size=1", "batch_size=2", "batch_size=3"]
    done = compare(*variants, dying=[2])
    comparison = stored(outputs)
    assert done.exit_code == 1
    assert not comparison.complete
    assert "batch_size=2 makes no more repeats: worker_" in done.stderr
    assert [variant.name for variant in comparison.failed] == ["batch_size=2"]
    assert repeats_by_time(outputs, comparison) == [(0, 1), (1, 1), (2, 1), (2, 2), (0, 2)]
    (pair,) = comparison.pairs
    assert comparison.variant_of(pair).name == "batch_size=3"
    assert not pair.out_of_turn
    assert "worker_" in page(outputs)
    assert "continues the comparison" in page(outputs)
    compare(*variants)
    comparison = stored(outputs)
    assert comparison.complete
    assert len(comparison.pairs) == 2
    assert repeats_by_time(outputs, comparison)[-2:] == [(1, 1), (1, 2)]
    assert comparison.pairs[0].out_of_turn == [1, 2]
    assert "by the start times: pair 1, 2" in page(outputs)


def test_a_failed_base_ends_the_run(compare, tmp_path):
    done = compare("batch_size=2", "batch_size=1", dying=[2])
    comparison = stored(tmp_path / "outputs")
    assert done.exit_code == 1
    assert comparison.pairs == []
    assert comparison.base.failure
    assert repeats_by_time(tmp_path / "outputs", comparison) == [(0, 1), (1, 1)]
    assert "no pair of repeats can be compared" in page(tmp_path / "outputs")


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_after_a_kill_the_same_command_continues_interleaved(shared, tmp_path):
    outputs = tmp_path / "outputs"
    code = faked(0.1) + "from perfkit.cli import main; main()"
    command = [sys.executable, "-c", code, "compare", "--live", "resnet50"]
    command += ["batch_size=1", "batch_size=2", *as_options(shared()), "--level", "50"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as run:
        wait_for(lambda: [*outputs.glob("*/repeats/2/*.jsonl")])
        run.send_signal(signal.SIGKILL)
    assert not stored(outputs).complete
    before = first_repeats(outputs)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    comparison = stored(outputs)
    assert comparison.complete, done.stderr
    assert done.returncode == comparison.regressed, done.stderr
    assert repeats_by_time(outputs, comparison) == [(0, 1), (1, 1), (1, 2), (0, 2)]
    assert first_repeats(outputs) == before


def first_repeats(outputs):
    """Return path -> content of the raw files of all first repeats."""
    paths = outputs.glob("*/repeats/1/*.jsonl")
    return {path: path.read_bytes() for path in paths}


def test_an_interrupt_stores_finished_repeats_and_exits_with_130(
    compare, monkeypatch, tmp_path
):
    real = perfkit.measuring.driver.measure.run_repeat

    def interrupted(launcher, store, index, *rest):
        if index == 2:
            raise KeyboardInterrupt
        return real(launcher, store, index, *rest)

    monkeypatch.setattr("perfkit.measuring.driver.measure.run_repeat", interrupted)
    done = compare("batch_size=1", "batch_size=2")
    assert done.exit_code == 130
    assert "the same command continues" in done.stderr
    comparison = stored(tmp_path / "outputs")
    assert len(comparison.pairs[0].turns) == 1
    assert "interrupted" in page(tmp_path / "outputs")


# Requests.


def test_all_problems_are_reported_first_with_their_variant(compare, tmp_path):
    done = compare("precisoin=fp32", "batch_size=0,input=dali", image_size=16, budget=60)
    assert done.exit_code == 2
    assert not list((tmp_path / "outputs").glob("*/*"))
    first, second = "precisoin=fp32: ", "batch_size=0,input=dali: "
    message = done.stderr
    assert f"{first}precisoin: no such parameter; did you mean 'precision'?" in message
    assert f"{second}batch_size: 0 is out of range; allowed: at least 1" in message
    assert f"{second}input: set for all variants by -p" in message
    assert (
        "\n  image_size: 16 is out of range; allowed: at least 32 and at most 1024\n" in message
    )
    assert "budget: not for --live" in message


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        (["jax", "torch"], "torch: 'torch' is not NAME=VALUE"),
        (["batch_size=1", "batch_size=1"], "batch_size=1 and batch_size=1 are the same"),
        (["batch_size=1", "repeats=3"], "the same for all variants; use -p repeats 3"),
    ],
)
def test_invalid_variants_are_rejected(compare, variants, message):
    done = compare(*variants)
    assert done.exit_code == 2
    assert message in done.stderr


def test_too_few_repeats_for_the_level_are_rejected(compare, tmp_path):
    done = compare("batch_size=1", "batch_size=2", repeats=7, level=99)
    assert done.exit_code == 2
    assert "takes at least 8: -p repeats 8" in " ".join(done.stderr.split())
    assert not list((tmp_path / "outputs").glob("*/*"))


def test_a_plan_has_as_many_repeats_as_its_level_needs_and_a_command(shared):
    variants = ["batch_size=1", "batch_size=2"]
    values = shared()
    del values["repeats"]
    usual = plan_interleaved("resnet50", variants, values)
    assert usual.plan.protocol.repeats == 6
    assert "--level" not in usual.command
    values["label"] = "mine"
    other = plan_interleaved("resnet50", variants, values, level=0.99, threshold=0.05)
    assert other.plan.config.label == "mine"
    assert other.plan.protocol.repeats == 8
    assert other.command.endswith(" --level 99 --threshold 5")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b", "-p", "batch_size", "2"], "-p is for --live"),
        (["--live", "resnet50", "seed=1", "seed=2", "--across", "seed"], "with --live"),
    ],
)
def test_options_of_the_other_comparison_mode_are_rejected(words, message):
    done = cli("compare", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


# Evaluation.


def made(
    folder,
    values,
    name="base",
    later=0,
    *,
    seconds=10.0,
    threads=2,
    parameters=25_557_032,
    **config,
):
    """Store a measurement of these throughputs with a repeat every 20 s, the first `later`
    seconds after noon. The seed is 1 for `base`, else 2."""
    usual = {"batch_size": 1, "measured_steps": 20, "input": "synthetic", "seed": 2}
    if name == "base":
        usual["seed"] = 1
    result = measured(values, label=name, **usual | config)
    repeats = []
    for number, repeat in enumerate(result.repeats):
        began = NOON + timedelta(seconds=later + 20 * number)
        times = {"began": began.isoformat(), "wall_seconds": seconds}
        repeats.append(repeat.model_copy(update=times))
    used = {"threads": {"libgomp": threads}, "parameters": parameters}
    effective = result.effective.model_copy(update=used)
    changed = result.model_copy(update={"repeats": repeats, "effective": effective})
    return keep(folder / name, changed)


SEEDS = {"seed=1": {"seed": 1}, "seed=2": {"seed": 2}}


def judged(*measurements, variants=SEEDS):
    """Return the interleaved comparison of the measurements."""
    request = InterleavedPlan("perfkit compare --live …", variants, 0.95, 0.02, "", [])
    return judge_interleaved(request, measurements)


def words(text):
    """Return the text of a terminal on one line, without colours."""
    return " ".join(click.unstyle(text).split())


def shown(folder, comparison):
    """Return the page of a comparison of measurements in `folder`."""
    place = folder / "comparisons" / "one"
    return comparison_page(ComparisonPage(place, comparison, Site(folder)))


def plain(a, b, across="seed"):
    """Return the pair of a comparison of stored measurements, and its page."""
    comparison = perfkit.compare(a.folder, b.folder, across=[across])
    return comparison.pairs[0], selected_comparison(comparison).html


def with_peak(measurement, flops):
    """Store the measurement again, with a peak of so many FLOP/s in each repeat."""
    result, peak = measurement.result, steady_peak(flops)
    repeats = [repeat.model_copy(update={"peak": peak}) for repeat in result.repeats]
    keep(measurement.folder, result.model_copy(update={"repeats": repeats}))
    return Measurement.read(measurement.folder)


def test_shares_of_the_peak_are_of_the_highest_of_all_variants(tmp_path):
    base = made(tmp_path, [4.0] * 6)
    other = made(tmp_path, [4.0] * 6, "b", 10)
    comparison = judged(with_peak(base, 1e12), with_peak(other, 4e12))
    first, second = (variant.share_of_peak for variant in comparison.variants)
    assert first == second > 0


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ({"framework": "paddle"}, {"framework": "torch"}, ["Paddle", "PyTorch"]),
        # An environment with another version of the same framework.
        ({"python": None}, {"python": "old/bin/python"}, ["Paddle 3.3.1", "Paddle 2.6.2"]),
    ],
)
def test_a_variant_is_named_after_its_framework_or_version(tmp_path, first, second, names):
    base = made(tmp_path, [10.0] * 2, seed=1)
    old = {"facts": {"paddle": "2.6.2"}} if "python" in second else {}
    values = {name: value for name, value in second.items() if name != "python"}
    other = made(tmp_path, [10.0] * 2, "b", 10, **{"seed": 1} | values | old)
    variants = {}
    for each in (first, second):
        variants[",".join(f"{name}={value}" for name, value in each.items())] = each
    assert variant_names(judged(base, other, variants=variants)) == names


DRIFT = [100.0, 90.0, 82.0, 75.0, 70.0, 66.0, 63.0]
SLOWER = [0.97 * value for value in DRIFT]


def test_interleaving_finds_a_ratio_that_drift_hides(tmp_path):
    base = made(tmp_path, DRIFT)
    interleaved = made(tmp_path, SLOWER, "b", 10)
    (pair,) = judged(base, interleaved).pairs
    assert pair.interval == pytest.approx((0.97, 0.97))
    assert pair.interval_level == pytest.approx(1 - 2 / 2**7)
    assert pair.verdict == "slower"
    assert pair.regressed
    assert pair.out_of_turn == []
    next_day = made(tmp_path, SLOWER, "c", later=86400)
    pair, _html = plain(base, next_day)
    assert pair.verdict == "undecided"


def test_stored_measurements_with_interleaved_repeats_are_compared_by_pairs(tmp_path):
    base = made(tmp_path, DRIFT)
    other = made(tmp_path, SLOWER, "b", 10)
    (interleaved,) = judged(base, other).pairs
    pair, html = plain(base, other)
    assert pair.method == "pairs"
    assert pair.ratio == interleaved.ratio
    assert pair.interval == interleaved.interval
    assert pair.ratios == interleaved.ratios
    assert pair.regressed
    assert "The repeats were interleaved" in html
    assert "Hodges" not in html


def test_a_ratio_of_too_few_pairs_is_drawn_in_grey_without_an_interval(tmp_path):
    comparison = judged(made(tmp_path, DRIFT), made(tmp_path, SLOWER[:5], "b", 10))
    (pair,) = comparison.pairs
    variant = comparison.variant_of(pair)
    row = ForestRow("b", variant, pair, comparison.level, comparison.threshold)
    (axes,) = forest([row], "ratio").axes
    assert not axes.collections
    median, repeats, _one = axes.lines
    assert median.get_color() == repeats.get_color() == FAINT
    assert axes.texts[0].get_text().startswith("0.970\n")


@pytest.mark.parametrize(
    ("later", "n"),
    [
        (20, 3),  # starts with the base's next repeat
        (86400, 3),  # one measurement after the other
        (10, 1),  # a single round has no order
    ],
)
def test_measurements_not_interleaved_are_compared_by_all_ratios(tmp_path, later, n):
    values = [100.0, 101.0, 102.0]
    base = made(tmp_path, values)
    other = made(tmp_path, values[:n], "b", later)
    pair, html = plain(base, other)
    assert pair.method == "Hodges-Lehmann"
    assert pair.turns == []
    assert "(Hodges and Lehmann)" in html
    assert "not interleaved" in html


@pytest.mark.parametrize(
    ("later", "seconds", "in_turn"),
    [
        (10, 10.0, True),  # directly after the base
        (-10, 10.0, True),  # directly before the base
        (10, 15.0, False),  # before the base ended: the clock was set back
        (30, 10.0, False),  # with another repeat in between
        (3600, 10.0, False),  # an hour later
    ],
)
def test_interleaving_is_checked_by_start_times(tmp_path, later, seconds, in_turn):
    base = made(tmp_path, [10.0, 10.0], seconds=seconds)
    other = made(tmp_path, [10.0, 10.0], "b", later, seconds=seconds)
    (pair,) = judged(base, other).pairs
    assert [turn.in_turn for turn in pair.turns] == [in_turn, in_turn]


def test_a_variant_that_did_other_work_has_a_reason_and_no_ratio(tmp_path):
    base = made(tmp_path, [10.0, 10.0])
    other = made(tmp_path, [10.0, 10.0], "b", parameters=5)
    comparison = judged(base, other)
    assert comparison.pairs == []
    assert not comparison.complete
    assert comparison.variants[1].differs == {"parameters": (25_557_032, 5)}
    differs = "Settings that must agree with the base differ: parameters 25557032 | 5"
    assert differs in words(repr(shown(tmp_path, comparison)))


def test_framework_defaults_may_differ_across_frameworks(tmp_path):
    defaults = {"layout": "NHWC", "execution": "static", "threads": 1}
    base = made(tmp_path, [10.0] * 2)
    torch = made(tmp_path, [20.0] * 2, "torch", framework="torch", seed=1, **defaults)
    variants = {}
    for name in ("paddle", "torch"):
        variants[f"framework={name}"] = {"framework": name}
    (pair,) = judged(base, torch, variants=variants).pairs
    assert {*pair.across} == {"framework", "layout", "execution", "threads"}
    # Within a framework, they must agree.
    same = made(tmp_path, [20.0] * 2, "same", seed=1, **defaults)
    with pytest.raises(perfkit.ComparisonError, match="--across layout"):
        plain(base, same, "framework")


def test_thread_pools_may_differ_across_environments(tmp_path):
    variants = {}
    for path in ("a/bin/python", "b/bin/python"):
        variants[f"python={path}"] = {"python": path}
    base = made(tmp_path, [10.0] * 2)
    other = made(tmp_path, [10.0] * 2, "other", 10, threads=1, seed=1)
    (pair,) = judged(base, other, variants=variants).pairs
    assert pair.across == {"threads": ("2", "1")}


# Storage and pages.


@pytest.fixture
def comparison(tmp_path):
    """The folder of a stored comparison of two variants."""
    base = made(tmp_path, [10.0, 11.0])
    other = made(tmp_path, [12.0, 13.0], "b", 10)
    folder = tmp_path / "comparisons" / "one"
    write_comparison(folder, judged(base, other))
    return folder


def test_perfkit_report_rebuilds_the_page_and_names_missing_results(
    comparison, tmp_path, without_summary
):
    _index, left_out = write_site(tmp_path, lambda _done: None)
    assert left_out == []
    assert "measurements have changed" not in page(tmp_path)
    base, other = (variant.id for variant in read_comparison(comparison).variants)
    (tmp_path / other / "result.json").unlink()
    write_site(tmp_path, lambda _done: None)
    assert f"{other}/result.json: No such file" in page(tmp_path)
    assert "measurements have changed" in page(tmp_path)
    verdict = "○ seed=2 1.19 × seed=1, can't tell: n=2, 6 are enough"
    assert f"\n{verdict}" in repr(comparison_page(comparison))
    assert "1.19" in page(tmp_path)
    assert f'href="../../{base}/report.html"' in page(tmp_path)


def changed(folder, paths, value):
    """Replace the values at these paths of the stored comparison."""
    content = json.loads((folder / FILE).read_text())
    for *path, last in paths:
        reduce(getitem, path, content)[last] = value
    (folder / FILE).write_text(json.dumps(content))


def test_an_unreadable_comparison_is_named_and_left_out(comparison, tmp_path, without_summary):
    changed(comparison, [["level"]], 1.5)
    why = "level: Input should be less than 1"
    _index, (left_out,) = write_site(tmp_path, lambda _done: None)
    assert why in left_out
    assert why in page(tmp_path)
    assert 'href="../../index.html"' in page(tmp_path)
    assert why in unescape((tmp_path / "index.html").read_text())


@pytest.mark.parametrize(
    ("paths", "value", "why"),
    [
        (
            [["pairs", 0, "b", "value"], ["variants", 1, "number", "value"]],
            99.0,
            "its throughput has changed",
        ),
        ([["pairs", 0, "ratio"]], 2.0, "its ratio does not follow from its repeats"),
    ],
)
def test_a_number_that_the_measurements_do_not_give_is_named(
    comparison, tmp_path, paths, value, why
):
    changed(comparison, paths, value)
    stored = read_comparison(comparison)
    assert disagreements(stored, tmp_path) == [f"{stored.variants[1].id}: {why}"]


def test_foreign_names_are_escaped_on_every_page(comparison, tmp_path, without_summary):
    hostile = "<script>alert(1)</script>"
    content = json.loads((comparison / FILE).read_text())
    failure = {"code": hostile, "reason": hostile}
    variant = content["variants"][1]
    variant["name"] = hostile
    variant["failure"] = failure
    variant["differs"] = {"x": ["<b>", "c"]}
    content["command"] = hostile
    (comparison / FILE).write_text(json.dumps(content))
    write_site(tmp_path, lambda _done: None)
    for path in (comparison / "report.html", tmp_path / "index.html"):
        text = path.read_text()
        assert "<script>alert" not in text
        assert "<b>" not in text


@pytest.mark.slow
def test_the_comparison_notebook_runs_with_papermill(comparison, run_notebook):
    done, out = run_notebook("comparison", "folder", comparison)
    assert done.returncode == 0, done.stderr
    assert "can't tell: n=2, 6 are enough" in out.read_text()
    assert (comparison / "report.zh.html").exists()
