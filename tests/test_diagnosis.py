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
from perfkit.analysis.diagnosis.stored import FILE, read_diagnosis, read_model_diagnosis
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
    estimate = Estimate(*ratio)
    assert limit_of(estimate, 100.0, alone) == limit


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
    measurement = stored(tmp_path / "m")
    assert read_diagnosis(measurement) is None
    text = diagnosis().model_dump_json()
    file = measurement.folder / FILE
    file.write_text(text)
    assert read_diagnosis(measurement) == diagnosis()
    file.write_text(change(text))
    with pytest.raises(ResultError, match=why):
        read_diagnosis(measurement)
    page = limits(measurement).html
    assert "The diagnosis can't be read" in unescape(page)
    assert why in page
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
    config = measured([1.0], processes=2).config
    texts = texts_of(config, verdict=limit)
    measurements = ["input_alone", "compute_alone", "both"]
    assert [*texts] == [limit, *advice, *measurements, "pairs", "cost"]
    assert "(98 % interval 49 % to 51 %), the median of the ratios" in texts["pairs"]
    assert "repeat k to repeat k" in texts["pairs"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {},
            "Input-bound: the input costs 50 % of the throughput (98 % interval 49 % to 51 %); "
            "training runs at the speed of the input pipeline.",
        ),
        (
            {"verdict": "training-bound", "ratio": 0.99, "interval": (0.97, 1.02)},
            "Training-bound: the input costs at most 3 % of the throughput, at 98 %.",
        ),
        (
            {"verdict": "training-bound", "ratio": 1.02, "interval": (1.01, 1.03)},
            "Training-bound: the input costs at most 0 % of the throughput, at 98 %.",
        ),
        (
            {"verdict": "mixed", "ratio": 0.8, "interval": (0.75, 0.85)},
            "Limited by input and training: the input costs 20 % of the throughput (98 % "
            "interval 15 % to 25 %), though the input alone is faster than both together.",
        ),
        (
            {"verdict": "undecided", "ratio": 0.97, "interval": (0.9, 1.01)},
            "Can't tell: the input costs from -1 % to 10 % of the throughput, at 98 %.",
        ),
    ],
)
def test_a_diagnosis_begins_with_what_limits_and_by_how_much(changes, sentence):
    first, *_evidence = statements_of(diagnosis(**changes), measured([1.0]).config)
    assert first.text() == sentence


def test_the_advice_names_the_setting_to_type():
    config = measured([1.0]).config
    texts = texts_of(config)
    assert texts["enough"] == "dali_threads=16 or more is fast enough for this training."
    assert texts["depth"] == "dali_prefetch=2 or more hides the jitter of the batches."
    of_fast_training = texts_of(config, synthetic=1e6)
    assert "None of the tested" in of_fast_training["none_enough"]


def test_only_a_clearly_faster_training_with_input_is_called_disturbed():
    config = measured([1.0]).config
    clearly_faster = texts_of(config, ratio=1.98)
    assert "disturbance" in clearly_faster["disturbed"]
    hardly_faster = texts_of(config, ratio=1.04)
    assert "disturbed" not in hardly_faster


def test_repeats_out_of_turn_are_named():
    config = measured([1.0]).config
    texts = texts_of(config, out_of_turn=[2, 5])
    assert texts["out_of_turn"].endswith("changed their ratios: 2, 5.")


def test_the_pages_of_a_diagnosis_and_its_synthetic_measurement_link_to_each_other(tmp_path):
    base = stored(tmp_path / "base").folder
    twin = stored(tmp_path / "twin").folder
    of_both = diagnosis(synthetic_id=twin.name)
    (base / FILE).write_text(of_both.model_dump_json())
    back = f'<a href="../{base.name}/report.html">Diagnosis with this measurement</a>'
    assert back not in headline(Measurement.read(twin)).html, "a link to no page"
    write_site(tmp_path, lambda _part: None)
    twin_page = (twin / "report.html").read_text()
    assert back in twin_page
    assert back in headline(Measurement.read(twin)).html
    base_page = (base / "report.html").read_text()
    assert f'../{twin.name}/report.html">Same configuration, synthetic input</a>' in base_page


# The command.


@pytest.fixture
def six_repeats(small):
    """The parameters of a request for six repeats."""
    return small(repeats=6, dali_threads=2, batch_size=4)


def diagnose(parameters):
    """Run `perfkit diagnose resnet50`."""
    options = as_options(parameters)
    return cli("diagnose", "resnet50", *options)


@pytest.fixture
def trained(monkeypatch):
    """Make the training with and without the input take these throughputs, without running
    it."""

    def plant(synthetic, with_input):
        def measure(live, _say):
            measurements = []
            outputs = live.folder.parent.parent
            for plan, throughputs in zip(live.plans, (synthetic, with_input), strict=True):
                parameters = plan.config.model_dump()
                result = measured(throughputs, **parameters)
                measurement = keep(outputs / result.id, result)
                measurements.append(measurement)
            judged = judge_interleaved(live, measurements)
            write_comparison(live.folder, judged)

        monkeypatch.setattr(run, "measure_interleaved", measure)

    return plant


@pytest.fixture
def reading(monkeypatch):
    """Make reading the input alone take this many seconds for a batch, by the number of
    threads; return the numbers that were tried."""
    tried = []

    def plant(seconds):
        def perform(config, *_task):
            threads = config.dali_threads
            tried.append(threads)
            intervals = [seconds(threads)] * 12
            of_the_only_rank = [{"event": "input", "intervals": intervals}]
            return [of_the_only_rank]

        monkeypatch.setattr(run, "perform", perform)
        return tried

    return plant


@pytest.fixture
def outputs(tmp_path):
    return tmp_path / "outputs"


def only_diagnosis(outputs):
    """Return the only stored diagnosis and its measurement's folder."""
    (file,) = outputs.glob(f"*/{FILE}")
    folder = file.parent
    return read_model_diagnosis(folder), folder


def test_a_diagnosis_interleaves_input_and_synthetic_input(
    six_repeats, trained, reading, outputs
):
    trained([100.0] * 6, [50.0] * 6)
    reading(lambda threads: 4 / (26 * threads))
    done = diagnose(six_repeats)
    assert done.exit_code == 0, done.stderr
    diagnosis, folder = only_diagnosis(outputs)
    assert diagnosis.verdict == "input-bound"
    assert diagnosis.ratio == 0.5
    assert diagnosis.throughput == 50.0
    assert diagnosis.synthetic == 100.0
    comparison = read_comparison(outputs / "comparisons" / diagnosis.comparison)
    base, variant = comparison.variants
    assert base.name == "input=synthetic"
    assert base.id == diagnosis.synthetic_id
    assert variant.name == "input=dali"
    assert variant.id == folder.name
    page = folder / "report.html"
    *lines, last_line = done.stdout.splitlines()
    assert last_line == str(page)
    for line in lines:
        assert len(line) <= 80
    assert lines[0].startswith("Input-bound: the input costs 50 % of the throughput (96.88 %")
    assert "Input alone, dali_threads=2" in page.read_text()


def test_all_cores_are_tried_if_fewer_are_too_slow(six_repeats, trained, reading, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: range(6))
    trained([1e6] * 6, [50.0] * 6)
    tried = reading(lambda _threads: 1.0)
    done = diagnose(six_repeats)
    assert done.exit_code == 0
    assert tried == [2, 1, 4, 6]


def test_other_settings_are_tried_only_if_the_input_may_be_the_limit(
    six_repeats, trained, reading
):
    trained([100.0] * 6, [99.0] * 6)
    tried = reading(lambda _threads: 4 / 101)
    done = diagnose(six_repeats)
    assert done.exit_code == 0
    assert tried == [2]


def test_a_failed_part_is_reported_and_leaves_no_diagnosis(
    six_repeats, trained, monkeypatch, outputs
):
    trained([100.0] * 6, [50.0] * 6)

    def fail(*_task):
        raise TaskError("out_of_memory: planted")

    monkeypatch.setattr(run, "perform", fail)
    done = diagnose(six_repeats)
    assert done.exit_code == 1
    assert "out_of_memory: planted" in done.stderr
    assert [*outputs.glob(f"*/{FILE}")] == []


def test_a_training_that_fails_is_reported(six_repeats, trained):
    trained([100.0] * 6, [])
    done = diagnose(six_repeats)
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
def test_a_request_that_can_not_be_diagnosed_is_refused(six_repeats, changes, why):
    done = diagnose(six_repeats | changes)
    assert done.exit_code == 2
    assert why in " ".join(done.stderr.split())


def test_several_nodes_are_refused(six_repeats, monkeypatch):
    planned = perfkit.plan("resnet50", six_repeats)
    two_nodes = planned.config.model_copy(update={"nodes": 2})
    on_two_nodes = Plan(two_nodes, planned.protocol)
    monkeypatch.setattr(run, "plan", lambda *_request: on_two_nodes)
    with pytest.raises(perfkit.RequestError, match="a single node"):
        run.plan_diagnosis("resnet50", six_repeats)


@pytest.mark.slow
def test_a_real_diagnosis_is_complete_and_shown_on_the_page(
    processes, six_repeats, monkeypatch, outputs
):
    """Two repeats of each are undecided, and reading is so fast that it can't be the limit."""
    monkeypatch.setattr(run, "LEVEL", 0.5)
    done = diagnose(six_repeats | {"repeats": 2})
    assert done.exit_code == 0, done.stderr
    diagnosis, folder = only_diagnosis(outputs)
    assert diagnosis.verdict == "undecided"
    assert diagnosis.throughput > 0
    assert diagnosis.out_of_turn == []
    (input_alone,) = diagnosis.input_alone
    assert input_alone.count == 2
    (raw_file,) = folder.glob("diagnosis/*/rank0.jsonl")
    assert raw_file.parent.name == "read_input-2"
    page = (folder / "report.html").read_text()
    assert "Input alone, dali_threads=2" in page
    assert (outputs / diagnosis.synthetic_id / "result.json").exists()
