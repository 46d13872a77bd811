"""Warnings: each planted once, and none for an undisturbed measurement."""

import re

import made
import numpy as np
import pytest
from made import V100, rank_events, with_raw_files

from perfkit.analysis.published import published
from perfkit.analysis.utilization import datasheet, utilization
from perfkit.analysis.warnings import checked_aspects, untrained_losses, warnings_of
from perfkit.core.models import model_named
from perfkit.core.paths import ROOT
from perfkit.core.results.frames import load_steps
from perfkit.core.results.schema import Evaluation, Peak, TelemetrySummary
from perfkit.core.steady import profile_repeats
from perfkit.report.text.messages import WARNINGS, sentence

QUIET = [100.0, 100.2, 99.9, 100.1, 99.8, 100.0, 100.1]


def measured(values, **how):
    """Return a measurement with windows so short that missing telemetry is no gap."""
    return made.measured(values, **{"batch_size": 16} | how)


def names(result, course=()):
    found = warnings_of(result, course)
    assert all(sentence(warning) for warning in found), "each has its parameters"
    return [warning.code for warning in found]


def changed(result, **changes):
    repeats = [repeat.model_copy(update=changes) for repeat in result.repeats]
    return result.model_copy(update={"repeats": repeats})


def test_an_undisturbed_measurement_has_no_warning():
    peak = Peak(matmul_flops_per_second=1e13, copy_bytes_per_second=1e11)
    evaluation = Evaluation(loss=0.5, accuracy=0.9)
    assert names(changed(measured(QUIET), peak=peak, evaluation=evaluation)) == []


@pytest.mark.parametrize(
    ("values", "code", "params"),
    [
        ([100.0], "single_repeat", {}),
        ([90.0, 110.0, 95.0, 105.0, 100.0], "wide_interval", {"share": 0.2}),
        ([74.0, 126.0, 80.0, 120.0, 100.0], "very_wide_interval", {"share": 0.52}),
        ([*QUIET[:6], 103.0], "outlier", {"repeats": [7], "shares": [0.03]}),
        # Far from the median only relative to a tiny spread.
        ([100.0, 100.01, 100.02, 99.99, 100.5], None, None),
    ],
)
def test_suspicious_throughputs_give_warnings(values, code, params):
    result = measured(values)
    found = {warning.code: warning.params for warning in warnings_of(result, ())}
    assert [*found] == ([code] if code else [])
    assert not code or found[code] == {k: pytest.approx(v) for k, v in params.items()}
    # Outliers still count.
    assert result.throughput.n == len(values)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("first_loss", {"loss_first": 30.0}),
        ("first_loss", {"loss_first": 0.1}),
        ("constant_loss", {"loss_first": 6.9078, "loss_last": 6.90775}),
        ("last_loss", {"loss_last": 44.8}),
        ("accuracy", {"evaluation": Evaluation(loss=0.01, accuracy=0.5)}),
        ("accuracy", {"evaluation": Evaluation(loss=5.0, accuracy=1.2)}),
        ("skipped_steps", {"skipped_steps": 3}),
        (
            "above_peak",
            # 100 images/s are 2.4 TFLOP/s, or 0.6 with Winograd convolutions.
            {"peak": Peak(matmul_flops_per_second=5e11, copy_bytes_per_second=1e11)},
        ),
    ],
)
def test_implausible_training_gives_a_warning(name, changes):
    assert names(changed(measured(QUIET), **changes)) == [name]


@pytest.mark.parametrize(("warmup", "found"), [(14, []), (15, ["last_loss"])])
def test_a_few_steps_do_not_show_a_divergence(warmup, found):
    diverged = changed(measured(QUIET, measured_steps=5, warmup_steps=warmup), loss_last=17.6)
    assert names(diverged) == found
    assert WARNINGS["last_loss"]["severity"] == "error"


@pytest.mark.parametrize(
    ("parameters", "is_checked"),
    [
        ({"batch_size": 15}, False),
        ({"batch_size": 1, "processes": 16}, False),
        ({"batch_size": 4, "accumulate": 4}, True),
        ({"model": "bert", "batch_size": 1, "sequence_length": 16}, True),
        ({"model": "gpt", "batch_size": 1, "sequence_length": 16}, True),
    ],
)
def test_the_first_loss_of_few_predictions_depends_on_chance(parameters, is_checked):
    if parameters.get("model"):
        parameters |= {"input": "synthetic", "optimizer": "adamw"}
        parameters |= {"image_size": None, "layout": None}
    odd = changed(measured(QUIET, **parameters), loss_first=30.0)
    assert names(odd) == ["first_loss"] * is_checked


def telemetry(**changes):
    seen = {"samples": 9, "cores": 2, "process_cores": 1.9, "other_load_cores": 0.01}
    seen |= {"steal_share": 0.0, "clock_mhz": {}, "temperature_celsius": {}, "throttled": {}}
    seen |= {"energy_joules": {}, "energy_joules_per_sample": None, "missing": {}}
    return TelemetrySummary(**seen | changes)


@pytest.mark.parametrize(
    ("samples", "gaps"), [(None, [50]), (0, [50]), (50, [25]), (79, [10]), (81, []), (100, [])]
)
def test_a_telemetry_gap_gives_a_warning(samples, gaps):
    result = changed(measured([8.0] * 7, batch_size=4), began="2026-01-01T00:00:00.000+00:00")
    assert result.repeats[0].ranks[0].window_seconds == 50
    seen = None if samples is None else telemetry(samples=samples)
    found = warnings_of(changed(result, telemetry=seen), ())
    assert [w.params["seconds"] for w in found if w.code == "telemetry_gap"] == gaps


def test_a_rising_loss_on_a_constant_batch_gives_a_warning():
    rising = {"loss_first": 6.5, "loss_last": 7.0}
    synthetic = changed(measured(QUIET, input="synthetic"), **rising)
    assert names(synthetic) == ["loss_not_falling"]
    assert names(changed(measured(QUIET), **rising)) == []


def test_missing_samples_give_a_warning():
    result = measured(QUIET)
    (rank,) = result.repeats[0].ranks
    wanted = result.protocol.steps * result.config.samples_per_step
    for seen, expected in ((wanted, []), (wanted - 1, ["fewer_samples"])):
        ranks = [rank.model_copy(update={"samples_seen": seen})]
        assert names(changed(result, ranks=ranks)) == expected


def test_throughput_above_the_datasheet_gives_a_warning():
    assert names(measured([400.0] * 7, device="gpu", gpus=1)) == []
    # 15.7 TFLOP/s / 24.3 GFLOP per image = 646 images/s, times 4 for Winograd.
    assert names(measured([2700.0] * 7, device="gpu", gpus=1)) == ["above_datasheet"]
    assert names(measured([2700.0] * 7, device="gpu", gpus=2)) == []
    # 69.9 GFLOP per sequence without Winograd savings: 225 sequences/s.
    bert = {"model": "bert", "input": "dataloader", "image_size": None, "layout": None}
    bert |= {"sequence_length": 128, "optimizer": "adamw", "device": "gpu", "gpus": 1}
    codes = names(measured([230.0] * 7, **bert))
    assert [code for code in codes if "above" in code] == ["above_datasheet"]
    assert "above_datasheet" not in names(measured([220.0] * 7, **bert))
    facts = {"gpus": ["Some GPU, 32 GiB"]}
    assert names(measured([9e9] * 7, device="gpu", gpus=1, facts=facts)) == []


@pytest.mark.parametrize(
    ("gpu", "precision", "tf32", "teraflops"),
    [
        (V100, "fp32", False, 15.7),
        (V100, "amp", False, 125),
        ("NVIDIA A100-SXM4-80GB, 80 GiB", "fp32", False, 19.5),
        ("NVIDIA A100-SXM4-80GB, 80 GiB", "fp32", True, 156),
        ("NVIDIA A100 80GB PCIe, 80 GiB", "bf16", False, 312),
        ("NVIDIA H100 80GB HBM3, 80 GiB", "bf16", False, 989.5),
        ("NVIDIA H100 PCIe, 80 GiB", "bf16", False, 756.5),
        ("NVIDIA H200 NVL, 141 GiB", "bf16", False, 835.5),
        ("NVIDIA H200, 141 GiB", "bf16", False, 989.5),
    ],
)
def test_the_datasheet_depends_on_gpu_and_effective_precision(gpu, precision, tf32, teraflops):
    result = measured(
        QUIET, device="gpu", gpus=1, precision=precision, tf32=tf32, facts={"gpus": [gpu]}
    )
    assert datasheet(result).flops_per_second == teraflops * 1e12


def test_a_mig_slice_has_no_datasheet():
    facts = {"gpus": ["NVIDIA A100-SXM4-80GB MIG 1g.10gb, 10 GiB"]}
    assert datasheet(measured(QUIET, device="gpu", gpus=1, facts=facts)) is None


def test_published_numbers_are_plausible():
    models = {"resnet50": "resnet50", "vgg16": "vgg16"}
    cells = published()
    cells = cells[cells["model"].isin(models) & cells["throughput"].notna()]
    cells = cells[(cells["framework"] == "paddle") & cells["precision"].isin(["fp32", "amp"])]
    assert len(cells) > 50
    for cell in cells.itertuples():
        topology = {"nodes": int(cell.nodes), "gpus": int(cell.gpus_per_node), "device": "gpu"}
        launcher = {"launcher": "srun"} if cell.nodes > 1 else {}
        work = {"model": cell.model, "precision": cell.precision, **topology, **launcher}
        assert "above_datasheet" not in names(measured([cell.throughput] * 2, **work))


@pytest.mark.parametrize(
    ("target", "repeats", "budget", "expected"),
    [
        (0.0001, 7, None, ["interval_missed"]),
        (0.0001, 100, 1, ["interval_missed"]),
        (0.5, 100, None, []),
    ],
)
def test_a_missed_interval_target_gives_a_warning(target, repeats, budget, expected):
    result = measured(QUIET)
    auto = {"interval_target": target, "repeats": repeats, "budget": budget}
    protocol = result.protocol.model_copy(update=auto)
    assert names(result.model_copy(update={"protocol": protocol})) == expected


def test_aspects_without_data_count_as_unchecked():
    assert checked_aspects(measured([1.0]), ()) == {
        "spread": False,
        "step times": False,
        "telemetry": False,
        "losses": True,
        "accuracy": False,
        "measured peak": False,
    }


def test_the_share_of_the_peak_is_computed_per_repeat():
    result = measured([100.0, 200.0])
    peaks = [Peak(matmul_flops_per_second=v, copy_bytes_per_second=1e9) for v in (1e13, 4e13)]
    repeats = [
        repeat.model_copy(update={"peak": peak})
        for repeat, peak in zip(result.repeats, peaks, strict=True)
    ]
    used = utilization(result.model_copy(update={"repeats": repeats}))
    # 24.3 GFLOP per image: 2.43 of 10 TFLOP/s, 4.86 of 40.
    assert used.shares == [pytest.approx(0.243, rel=1e-3), pytest.approx(0.1215, rel=1e-3)]
    assert utilization(result) is None


def test_untrained_losses_assume_uniform_predictions():
    assert untrained_losses(model_named("resnet50")) == pytest.approx(
        (0.75 * 6.9078, 1.5 * 6.9078), abs=1e-4
    )
    assert untrained_losses(model_named("bert"))[1] == pytest.approx(1.5 * 11.0193, abs=2e-4)


def warnings_for(tmp_path, seconds):
    """Return the warnings of a single repeat with these step times in seconds."""
    result = measured([1.0], protocol="published")
    events = [[rank_events(list(seconds), measured_steps=100)]]
    found = with_raw_files(tmp_path / "m", result, events)
    return names(found.result, profile_repeats(load_steps(found.folder)))


def test_drifting_and_unsteady_steps_give_warnings(tmp_path):
    noise = np.random.default_rng(20261122).normal(0, 0.005, 120)
    steps = np.arange(120)
    usual = ["single_repeat"]
    assert warnings_for(tmp_path / "flat", 1 + noise) == usual
    assert warnings_for(tmp_path / "short", 1 + noise + (steps < 15)) == usual
    drifting = warnings_for(tmp_path / "drift", 1 + noise + steps * 0.0008)
    assert drifting == ["single_repeat", "drift"]
    longer = warnings_for(tmp_path / "long", 1 + noise + (steps < 60))
    assert longer == ["single_repeat", "warm_up_longer", "steady_differs"]
    never = warnings_for(tmp_path / "never", 1 + noise + (steps > 100) * 0.3)
    assert never == ["single_repeat", "never_steady"]


def test_failed_repeats_give_no_warnings(tmp_path):
    result = measured([1.0, 1.0], protocol="published")
    never = [1.0] * 100 + [1.5] * 20
    events = [[rank_events(seconds, measured_steps=100)] for seconds in ([1.0] * 120, never)]
    found = with_raw_files(tmp_path / "m", result, events)
    profiles = profile_repeats(load_steps(found.folder))
    assert "never_steady" in names(found.result, profiles)
    failed = {"status": "failed", "throughput": None}
    repeats = [found.result.repeats[0], found.result.repeats[1].model_copy(update=failed)]
    codes = names(found.result.model_copy(update={"repeats": repeats}), profiles)
    assert "never_steady" not in codes


def test_a_window_that_differs_from_its_steps_gives_a_warning(tmp_path):
    result = measured([1.0], protocol="published")
    events = rank_events([1.0] * 120, measured_steps=100)
    for event in events:
        if event["event"] == "window":
            # The host did not wait: the device's steps took longer than the window.
            event["seconds"] = 60.0
    found = with_raw_files(tmp_path / "m", result, [[events]])
    codes = names(found.result, profile_repeats(load_steps(found.folder)))
    assert "window_mismatch" in codes


def test_every_warning_has_a_sentence_and_is_documented():
    source = (ROOT / "perfkit" / "analysis" / "warnings.py").read_text()
    given = {*re.findall(r'Message\("(\w+)"', source)}
    assert given == {*WARNINGS}
    docs = (ROOT / "docs" / "results.md").read_text()
    table = docs.partition("## Warnings")[2].partition("##")[0]
    named = [
        re.findall(r"`(\w+)`", row.split("|")[1])
        for row in table.splitlines()
        if row.startswith("| `")
    ]
    assert given == {name for names in named for name in names}
