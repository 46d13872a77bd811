"""Diagnoses: what limits the throughput, the advice, the stored file, the command."""

import json
from html import unescape

import pytest
from conftest import as_options, cli
from made import diagnosis, keep, measured, stored

import perfkit
from perfkit.analysis.comparison.interleaved import judge_interleaved
from perfkit.analysis.comparison.stored import read_comparison, write_comparison
from perfkit.analysis.diagnosis import run
from perfkit.analysis.diagnosis.judge import limit_of, needed_depth
from perfkit.analysis.diagnosis.statements import statements_of
from perfkit.analysis.diagnosis.stored import FILE, read_diagnosis
from perfkit.core.driver.repeat import TaskError
from perfkit.core.request.plan import Plan
from perfkit.core.results.store import Measurement, ResultError
from perfkit.core.statistics import Estimate
from perfkit.report import headline, limits
from perfkit.report.site import write_site

# The judgement.


@pytest.mark.parametrize(
    ("ratio", "alone", "limit"),
    [
        ((0.98, 0.96, 1.0, 0.96), 1000.0, "training-bound"),
        ((1.03, 0.95, 1.1, 0.96), 90.0, "training-bound"),
        ((0.49, 0.47, 0.5, 0.96), 50.0, "input-bound"),
        ((0.80, 0.78, 0.82, 0.96), 500.0, "mixed"),
        ((0.80, 0.78, 0.82, 0.96), 99.0, "mixed"),
        ((0.98, 0.94, 1.0, 0.96), 1000.0, "undecided"),
        ((0.50, 0.2, 0.97, 0.96), 50.0, "undecided"),
        ((1.40, 1.3, 1.5, 0.67), 500.0, "undecided"),
        # An input fast enough to cost little proves nothing about these repeats.
        ((1.04, 0.5, 1.99, 0.67), 1900.0, "undecided"),
        ((1.31, 0.8, 2.15, 0.96), 1900.0, "undecided"),
        ((0.80, 0.78, 0.82, 0.96), 1900.0, "mixed"),
    ],
)
def test_the_verdict_follows_from_ratio_and_input_rate(ratio, alone, limit):
    assert limit_of(Estimate(*ratio), 100.0, alone) == limit


STALLS = ([0.5] * 20 + [4.0]) * 5
"""In a stall of 4 s, training takes 4 batches; otherwise the input is faster."""


@pytest.mark.parametrize(
    ("intervals", "depth"),
    [([0.5] * 100, 1), (STALLS, 4), ([1.1] * 200, None), ([1.1] * 12, None)],
)
def test_a_queue_depth_covers_stalls_but_not_a_slow_input(intervals, depth):
    assert needed_depth(intervals, 1.0) == depth


def test_the_smallest_setting_with_headroom_suffices():
    assert diagnosis().sufficient.count == 16
    assert diagnosis(synthetic=1000.0).sufficient is None


def test_all_ranks_must_find_a_depth():
    assert run.deepest([2, 4, 1]) == 4
    assert run.deepest([2, None]) is None


# The stored file.


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text[:-9], "not JSON"),
        (lambda text: text.replace('"input-bound"', '"<b>fine</b>"'), "verdict"),
        (lambda text: json.dumps(json.loads(text) | {"schema_version": 3}), "older"),
        (lambda text: json.dumps(json.loads(text) | {"input_alone": []}), "input_alone"),
    ],
)
def test_an_unreadable_diagnosis_is_an_error_shown_on_the_page(tmp_path, change, why):
    folder = stored(tmp_path / "m").folder
    assert read_diagnosis(folder) is None
    file = folder / FILE
    file.write_text(diagnosis().model_dump_json())
    assert read_diagnosis(folder) == diagnosis()
    file.write_text(change(diagnosis().model_dump_json()))
    with pytest.raises(ResultError, match=why):
        read_diagnosis(folder)
    page = limits(Measurement.read(folder)).html
    assert "The diagnosis can't be read" in unescape(page) and why in page
    assert "<b>fine" not in page


# What it says.


def texts_of(config, **changes):
    """Return the sentences of a diagnosis with fields changed, by their codes."""
    statements = statements_of(diagnosis(**changes), config)
    return {statement.code: statement.text() for statement in statements}


@pytest.mark.parametrize(
    ("limit", "advice"),
    [
        ("training-bound", []),
        ("undecided", ["more_repeats"]),
        ("input-bound", ["enough", "depth", "shared_cores"]),
        ("mixed", ["enough", "depth", "shared_cores"]),
    ],
)
def test_every_verdict_has_its_own_advice(limit, advice):
    texts = texts_of(measured([1.0], processes=2).config, verdict=limit)
    measurements = ["input_alone", "compute_alone", "both"]
    assert [*texts] == [*measurements, limit, "pairs", "cost", *advice]
    assert "(98 % interval 49 % to 51 %), the median of the ratios" in texts["pairs"]
    assert "repeat k to repeat k" in texts["pairs"]


def test_the_advice_names_the_setting_to_type():
    config = measured([1.0]).config
    texts = texts_of(config)
    assert texts["enough"] == "dali_threads=16 or more is fast enough for this training."
    assert texts["depth"] == "dali_prefetch=2 or more hides the jitter of the batches."
    assert "None of the tested" in texts_of(config, synthetic=1e6)["none_enough"]


def test_only_a_clearly_faster_training_with_input_is_called_disturbed():
    config = measured([1.0]).config
    assert "disturbance" in texts_of(config, ratio=1.98)["disturbed"]
    assert "disturbed" not in texts_of(config, ratio=1.04)


def test_repeats_out_of_turn_are_named():
    text = texts_of(measured([1.0]).config, out_of_turn=[2, 5])["out_of_turn"]
    assert text.endswith("changed their ratios: 2, 5.")


def test_the_pages_of_a_diagnosis_and_its_synthetic_measurement_link_to_each_other(tmp_path):
    base, twin = (stored(tmp_path / name).folder for name in ("base", "twin"))
    (base / FILE).write_text(diagnosis(synthetic_id=twin.name).model_dump_json())
    back = f'<a href="../{base.name}/report.html">Diagnosis with this measurement</a>'
    assert back not in headline(Measurement.read(twin)).html, "a link to no page"
    write_site(tmp_path, lambda _part: None)
    assert back in (twin / "report.html").read_text()
    assert back in headline(Measurement.read(twin)).html
    page = (base / "report.html").read_text()
    assert f'../{twin.name}/report.html">Same configuration, synthetic input</a>' in page


# The command.


@pytest.fixture
def request_of(small):
    """Return a function that gives the parameters of a request for six repeats."""

    def parameters(**changes):
        return small(repeats=6, dali_threads=2, batch_size=4, **changes)

    return parameters


@pytest.fixture
def trained(monkeypatch):
    """Make the training with and without the input take these throughputs, without running
    it."""

    def plant(synthetic, with_input):
        def measure(live, _say):
            measurements = []
            for plan, throughputs in zip(live.plans, (synthetic, with_input), strict=True):
                result = measured(throughputs, **plan.config.model_dump())
                measurements.append(keep(live.folder.parent.parent / result.id, result))
            write_comparison(live.folder, judge_interleaved(live, measurements))

        monkeypatch.setattr(run, "measure_interleaved", measure)

    return plant


@pytest.fixture
def reading(monkeypatch):
    """Make reading the input alone take this many seconds for a batch, by the number of
    threads; return the numbers that were tried."""
    tried = []

    def plant(seconds):
        def perform(config, *_task):
            tried.append(config.dali_threads)
            return [[{"event": "input", "intervals": [seconds(config.dali_threads)] * 12}]]

        monkeypatch.setattr(run, "perform", perform)
        return tried

    return plant


def only_diagnosis(outputs):
    (file,) = outputs.glob(f"*/{FILE}")
    return read_diagnosis(file.parent), file.parent


def test_a_diagnosis_interleaves_input_and_synthetic_input(
    request_of, trained, reading, tmp_path
):
    trained([100.0] * 6, [50.0] * 6)
    reading(lambda threads: 4 / (26 * threads))
    done = cli("diagnose", "resnet50", *as_options(request_of()))
    assert done.exit_code == 0, done.stderr
    found, folder = only_diagnosis(tmp_path / "outputs")
    assert (found.verdict, found.ratio) == ("input-bound", 0.5)
    assert (found.throughput, found.synthetic) == (50.0, 100.0)
    comparison = read_comparison(tmp_path / "outputs" / "comparisons" / found.comparison)
    base, variant = comparison.variants
    assert (base.name, base.id) == ("input=synthetic", found.synthetic_id)
    assert (variant.name, variant.id) == ("input=dali", folder.name)
    lines = done.stdout.splitlines()
    assert lines[-1] == str(folder / "report.html")
    assert max(map(len, lines[:-1])) <= 80
    assert "Input-bound: training runs at the speed of the input pipeline." in lines
    assert "Input alone, dali_threads=2" in (folder / "report.html").read_text()


def test_all_cores_are_tried_if_fewer_are_too_slow(request_of, trained, reading, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: range(6))
    trained([1e6] * 6, [50.0] * 6)
    tried = reading(lambda _threads: 1.0)
    assert cli("diagnose", "resnet50", *as_options(request_of())).exit_code == 0
    assert tried == [2, 1, 4, 6]


def test_other_settings_are_tried_only_if_the_input_may_be_the_limit(
    request_of, trained, reading
):
    trained([100.0] * 6, [99.0] * 6)
    tried = reading(lambda _threads: 4 / 101)
    assert cli("diagnose", "resnet50", *as_options(request_of())).exit_code == 0
    assert tried == [2]


def test_a_failed_part_is_reported_and_leaves_no_diagnosis(
    request_of, trained, monkeypatch, tmp_path
):
    trained([100.0] * 6, [50.0] * 6)

    def fail(*_task):
        raise TaskError("out_of_memory: planted")

    monkeypatch.setattr(run, "perform", fail)
    done = cli("diagnose", "resnet50", *as_options(request_of()))
    assert done.exit_code == 1
    assert "out_of_memory: planted" in done.stderr
    assert not [*(tmp_path / "outputs").glob(f"*/{FILE}")]


def test_a_training_that_fails_is_reported(request_of, trained):
    trained([100.0] * 6, [])
    done = cli("diagnose", "resnet50", *as_options(request_of()))
    assert done.exit_code == 1
    assert "out_of_memory" in done.stderr


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"input": "synthetic"}, "input: a diagnosis compares an input with synthetic"),
        ({"repeats": 5}, "-p repeats 6"),
        ({"repeats": "auto"}, "repeats: a diagnosis makes the same number of repeats"),
    ],
)
def test_a_request_that_can_not_be_diagnosed_is_refused(request_of, changes, why):
    done = cli("diagnose", "resnet50", *as_options(request_of() | changes))
    assert done.exit_code == 2
    assert why in " ".join(done.stderr.split())


def test_several_nodes_are_refused(request_of, monkeypatch):
    planned = perfkit.plan("resnet50", request_of())
    two_nodes = planned.config.model_copy(update={"nodes": 2})
    monkeypatch.setattr(run, "plan", lambda *_request: Plan(two_nodes, planned.protocol))
    with pytest.raises(perfkit.RequestError, match="a single node"):
        run.plan_diagnosis("resnet50", request_of())


@pytest.mark.slow
def test_a_real_diagnosis_is_complete_and_shown_on_the_page(
    processes, request_of, monkeypatch, tmp_path
):
    """Two repeats of each are undecided, and reading is so fast that it can't be the limit."""
    monkeypatch.setattr(run, "LEVEL", 0.5)
    done = cli("diagnose", "resnet50", *as_options(request_of() | {"repeats": 2}))
    assert done.exit_code == 0, done.stderr
    found, folder = only_diagnosis(tmp_path / "outputs")
    assert found.verdict == "undecided"
    assert found.throughput > 0 and found.out_of_turn == []
    assert [alone.count for alone in found.input_alone] == [2]
    raw_files = [*folder.glob("diagnosis/*/rank0.jsonl")]
    assert [file.parent.name for file in raw_files] == ["read_input-2"]
    assert "Input alone, dali_threads=2" in (folder / "report.html").read_text()
    assert (tmp_path / "outputs" / found.synthetic_id / "result.json").exists()
