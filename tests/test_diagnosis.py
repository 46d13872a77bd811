"""Diagnoses: the bottleneck and the advice for known inputs."""

import json
import shutil

import pytest
from conftest import SMALL, as_options
from made import diagnosis, measured, stored

import perfkit
from perfkit.analysis.diagnosis import (
    FILE,
    _inputs_alone,
    diagnose,
    diagnosis_lines,
    needed_depth,
    read_diagnosis,
    verdict,
)
from perfkit.cli import main
from perfkit.core.driver.repeat import TaskError
from perfkit.core.results.store import Measurement, ResultError
from perfkit.core.statistics import Estimate
from perfkit.report import headline, limits
from perfkit.report.site import write_site


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
    assert verdict(Estimate(*ratio), 100.0, alone) == limit


STALLS = ([0.5] * 20 + [4.0]) * 5
"""In a stall of 4 s, training takes 4 batches; otherwise the input is faster."""


@pytest.mark.parametrize(
    ("intervals", "depth"),
    [([0.5] * 100, 1), (STALLS, 4), ([1.1] * 200, None), ([1.1] * 12, None)],
)
def test_a_queue_depth_covers_stalls_but_not_a_slow_input(intervals, depth):
    assert needed_depth(intervals, 1.0) == depth


def test_all_cores_are_tried_if_fewer_are_too_slow(tmp_path, monkeypatch):
    read = [[{"event": "input", "intervals": [1.0] * 12}]]
    monkeypatch.setattr("perfkit.analysis.diagnosis.perform", lambda *_: read)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: range(6))
    result = measured([1.0], dali_threads=2)
    found = _inputs_alone(result.config, result.protocol, 1e6, tmp_path, print)
    assert [alone.count for alone in found] == [2, 1, 4, 6]


def test_enough_is_the_smallest_setting_with_headroom():
    assert diagnosis().enough.count == 16
    assert diagnosis(synthetic=1000.0).enough is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text[:-9], "not JSON"),
        (lambda text: text.replace('"input-bound"', '"<b>fine</b>"'), "verdict"),
        (lambda text: json.dumps(json.loads(text) | {"schema_version": 3}), "version"),
        (lambda text: json.dumps(json.loads(text) | {"input_alone": []}), "input_alone"),
    ],
)
def test_an_unreadable_diagnosis_is_an_error_shown_on_the_page(tmp_path, change, why):
    folder = stored(tmp_path / "m").folder
    assert read_diagnosis(folder) is None
    (folder / FILE).write_text(diagnosis().model_dump_json())
    assert read_diagnosis(folder) == diagnosis()
    (folder / FILE).write_text(change(diagnosis().model_dump_json()))
    with pytest.raises(ResultError, match=why):
        read_diagnosis(folder)
    page = limits(Measurement.read(folder)).html
    assert "The diagnosis can't be read" in page and why in page and "<b>fine" not in page


def test_every_verdict_has_its_own_advice(tmp_path):
    config = measured([1.0], processes=2).config
    texts = {
        verdict: " ".join(diagnosis_lines(diagnosis(verdict=verdict), config).values())
        for verdict in ("training-bound", "input-bound", "mixed", "undecided")
    }
    assert len(set(texts.values())) == 4
    for text in texts.values():
        parts = ("Input alone", "Compute alone", "Both, training", "dali was measured before")
        parts += ("98 % interval 49 % to 51 %), the median of the ratios of all pairs",)
        positions = [text.index(part) for part in parts]
        assert positions == sorted(positions)
    paired = diagnosis_lines(diagnosis(method="pairs", ratio=1.98), config)
    assert "repeat k to repeat k" in paired["pairs"] and "disturbance" in paired["disturbed"]
    assert "disturbed" not in diagnosis_lines(diagnosis(ratio=1.04), config)
    assert "dali_threads=16 or more" in texts["input-bound"]
    assert "More repeats" in texts["undecided"]


DIAGNOSED = {"dali_threads": 2, "batch_size": 4}


@pytest.fixture(scope="module")
def measured_before(processes, samples, tmp_path_factory):
    """An outputs folder with both measurements that a diagnosis needs, to be copied."""
    outputs = tmp_path_factory.mktemp("measured")
    for kind in ("dali", "synthetic"):
        places = {"data_dir": str(samples), "outputs_dir": str(outputs), "input": kind}
        plan = perfkit.plan("resnet50", SMALL | DIAGNOSED | places)
        assert perfkit.measure(plan.config, plan.protocol).result.status == "complete"
    return outputs


def run(parameters, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", "resnet50", *as_options(parameters)])
    return ended.value.code, capsys.readouterr()


@pytest.mark.slow
def test_a_real_diagnosis_is_complete_and_shown_on_the_page(
    measured_before, small, tmp_path, capsys
):
    shutil.copytree(measured_before, tmp_path / "outputs")
    status, printed = run(small(**DIAGNOSED), capsys)
    assert status == 0
    assert max(map(len, printed.out.splitlines()[:-1])) <= 80
    (file,) = (tmp_path / "outputs").glob(f"*/{FILE}")
    found = read_diagnosis(file.parent)
    assert found.throughput > 0
    assert found.input_alone[0].count == 2
    evidence = sorted(path.parent.name for path in file.parent.glob("diagnosis/*/rank0.jsonl"))
    assert evidence == ["read_input-2"]
    # One repeat of each is undecided; reading is so fast that no other count is tried.
    assert found.verdict == "undecided"
    assert found.reused == ["both", "compute alone"]
    assert printed.out.count("was measured before and is reused.") == 2
    page = (file.parent / "report.html").read_text()
    assert "Input alone, dali_threads=2" in page
    assert (tmp_path / "outputs" / found.synthetic_id / "result.json").exists()


def test_synthetic_input_and_several_nodes_are_rejected(small, capsys):
    status, printed = run(small(input="synthetic"), capsys)
    assert status == 2
    assert "input: a diagnosis compares an input with synthetic" in printed.err
    planned = perfkit.plan("resnet50", small())
    with pytest.raises(perfkit.RequestError, match="a single node"):
        diagnose(planned.config.model_copy(update={"nodes": 2}), planned.protocol, print)


@pytest.mark.slow
def test_a_failed_part_is_reported_and_leaves_no_diagnosis(
    measured_before, small, monkeypatch, tmp_path, capsys
):
    shutil.copytree(measured_before, tmp_path / "outputs")

    def fail(*_task):
        raise TaskError("out_of_memory: planted")

    monkeypatch.setattr("perfkit.analysis.diagnosis.perform", fail)
    status, printed = run(small(**DIAGNOSED), capsys)
    assert status == 1
    assert "out_of_memory" in printed.err
    assert not list((tmp_path / "outputs").glob(f"*/{FILE}"))


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
