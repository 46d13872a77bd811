"""Warnings: each planted once, and none for an undisturbed measurement."""

import made
import numpy as np
import pytest
from made import V100, rank_events, with_raw_files

from perfkit.analysis.published import published
from perfkit.analysis.utilization import datasheet, utilization
from perfkit.analysis.warning_types import (
    HighLastLoss,
    MeasurementWarning,
    Outlier,
    SingleRepeat,
    VeryWideInterval,
    WideInterval,
    severity,
    worst_first,
)
from perfkit.analysis.warnings import checked_aspects, untrained_losses, warnings_of
from perfkit.core.models import model_named
from perfkit.core.results.frames import load_steps
from perfkit.core.results.repeat import Evaluation, Peak, TelemetrySummary
from perfkit.core.steady import profile_repeats

QUIET = [100.0, 100.2, 99.9, 100.1, 99.8, 100.0, 100.1]


def measured(values, **how):
    """Return a measurement with windows so short that missing telemetry is no gap."""
    return made.measured(values, **{"batch_size": 16} | how)


def codes(result, profiles=()):
    """Return the codes of a measurement's warnings, each of which has a sentence."""
    warnings = warnings_of(result, profiles)
    for warning in warnings:
        assert warning.text()
    return [warning.code for warning in warnings]


def changed(result, **changes):
    repeats = [repeat.model_copy(update=changes) for repeat in result.repeats]
    return result.model_copy(update={"repeats": repeats})


def test_an_undisturbed_measurement_has_no_warning():
    peak = Peak(matmul_flops_per_second=1e13, copy_bytes_per_second=1e11)
    evaluation = Evaluation(loss=0.5, accuracy=0.9)
    assert codes(changed(measured(QUIET), peak=peak, evaluation=evaluation)) == []


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ([100.0], SingleRepeat()),
        ([90.0, 110.0, 95.0, 105.0, 100.0], WideInterval(share=0.2)),
        ([74.0, 126.0, 80.0, 120.0, 100.0], VeryWideInterval(share=0.52)),
    ],
)
def test_suspicious_throughputs_give_warnings(values, warning):
    assert warnings_of(measured(values), ()) == [warning]


def test_an_outlier_gives_a_warning_and_still_counts():
    result = measured([*QUIET[:6], 103.0])
    (outlier,) = warnings_of(result, ())
    assert isinstance(outlier, Outlier)
    assert outlier.repeats == [7]
    assert outlier.shares == [pytest.approx(0.03)]
    assert result.throughput.n == 7


def test_a_repeat_that_is_far_only_relative_to_a_tiny_spread_is_no_outlier():
    assert codes(measured([100.0, 100.01, 100.02, 99.99, 100.5])) == []


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
    assert codes(changed(measured(QUIET), **changes)) == [name]


@pytest.mark.parametrize(("warmup", "found"), [(14, []), (15, ["last_loss"])])
def test_a_few_steps_do_not_show_a_divergence(warmup, found):
    diverged = changed(measured(QUIET, measured_steps=5, warmup_steps=warmup), loss_last=17.6)
    assert codes(diverged) == found
    assert HighLastLoss.severity == "error"


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
    assert codes(odd) == ["first_loss"] * is_checked


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
    summary = None if samples is None else telemetry(samples=samples)
    warnings = warnings_of(changed(result, telemetry=summary), ())
    assert [w.seconds for w in warnings if w.code == "telemetry_gap"] == gaps


def test_a_rising_loss_on_a_constant_batch_gives_a_warning():
    rising = {"loss_first": 6.5, "loss_last": 7.0}
    synthetic = changed(measured(QUIET, input="synthetic"), **rising)
    assert codes(synthetic) == ["loss_not_falling"]
    assert codes(changed(measured(QUIET), **rising)) == []


def test_missing_samples_give_a_warning():
    result = measured(QUIET)
    (rank,) = result.repeats[0].ranks
    wanted = result.protocol.steps * result.config.samples_per_step
    for seen, expected in ((wanted, []), (wanted - 1, ["fewer_samples"])):
        ranks = [rank.model_copy(update={"samples_seen": seen})]
        assert codes(changed(result, ranks=ranks)) == expected


def test_throughput_above_the_datasheet_gives_a_warning():
    assert codes(measured([400.0] * 7, device="gpu", gpus=1)) == []
    # 15.7 TFLOP/s / 24.3 GFLOP per image = 646 images/s, times 4 for Winograd.
    assert codes(measured([2700.0] * 7, device="gpu", gpus=1)) == ["above_datasheet"]
    assert codes(measured([2700.0] * 7, device="gpu", gpus=2)) == []


def test_a_throughput_of_sequences_is_compared_with_the_whole_datasheet():
    bert = {"model": "bert", "input": "dataloader", "image_size": None, "layout": None}
    bert |= {"sequence_length": 128, "optimizer": "adamw", "device": "gpu", "gpus": 1}
    # 69.9 GFLOP per sequence without Winograd savings: 225 sequences/s.
    assert "above_datasheet" in codes(measured([230.0] * 7, **bert))
    assert "above_datasheet" not in codes(measured([220.0] * 7, **bert))


def test_an_unknown_gpu_has_no_datasheet_to_exceed():
    facts = {"gpus": ["Some GPU, 32 GiB"]}
    assert codes(measured([9e9] * 7, device="gpu", gpus=1, facts=facts)) == []


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
    cells = published().dropna(subset="throughput")
    cells = cells[cells["framework"] == "paddle"]
    cells = cells[cells["model"].isin(["resnet50", "vgg16"])]
    cells = cells[cells["precision"].isin(["fp32", "amp"])]
    assert len(cells) > 50
    for cell in cells.itertuples():
        topology = {"nodes": int(cell.nodes), "gpus": int(cell.gpus_per_node), "device": "gpu"}
        launcher = {"launcher": "srun"} if cell.nodes > 1 else {}
        work = {"model": cell.model, "precision": cell.precision, **topology, **launcher}
        assert "above_datasheet" not in codes(measured([cell.throughput] * 2, **work))


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
    assert codes(result.model_copy(update={"protocol": protocol})) == expected


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
    repeats = []
    for repeat, peak in zip(result.repeats, peaks, strict=True):
        repeats.append(repeat.model_copy(update={"peak": peak}))
    used = utilization(result.model_copy(update={"repeats": repeats}))
    # 24.3 GFLOP per image: 2.43 of 10 TFLOP/s, 4.86 of 40.
    assert used.shares == [pytest.approx(0.243, rel=1e-3), pytest.approx(0.1215, rel=1e-3)]
    assert utilization(result) is None


def test_untrained_losses_assume_uniform_predictions():
    assert untrained_losses(model_named("resnet50")) == pytest.approx(
        (0.75 * 6.9078, 1.5 * 6.9078), abs=1e-4
    )
    assert untrained_losses(model_named("bert"))[1] == pytest.approx(1.5 * 11.0193, abs=2e-4)


def stored_profiles(tmp_path, result, events):
    """Store a measurement with these raw events. Return its result and its profiles."""
    measurement = with_raw_files(tmp_path, result, events)
    return measurement.result, profile_repeats(load_steps(measurement.folder))


STEPS = np.arange(120)
NOISE = np.random.default_rng(20261122).normal(0, 0.005, 120)


@pytest.mark.parametrize(
    ("step_seconds", "expected"),
    [
        (1 + NOISE, []),
        (1 + NOISE + (STEPS < 15), []),
        (1 + NOISE + STEPS * 0.0008, ["drift"]),
        (1 + NOISE + (STEPS < 60), ["warm_up_longer", "steady_differs"]),
        (1 + NOISE + (STEPS > 100) * 0.3, ["never_steady"]),
    ],
    ids=["flat", "short warm-up", "drift", "long warm-up", "never steady"],
)
def test_drifting_and_unsteady_steps_give_warnings(tmp_path, step_seconds, expected):
    events = rank_events([*step_seconds], measured_steps=100)
    result = measured([1.0], protocol="published")
    result, profiles = stored_profiles(tmp_path / "m", result, [[events]])
    assert codes(result, profiles) == ["single_repeat", *expected]


def test_failed_repeats_give_no_warnings(tmp_path):
    steady = rank_events([1.0] * 120, measured_steps=100)
    unsteady = rank_events([1.0] * 100 + [1.5] * 20, measured_steps=100)
    result = measured([1.0, 1.0], protocol="published")
    result, profiles = stored_profiles(tmp_path / "m", result, [[steady], [unsteady]])
    assert "never_steady" in codes(result, profiles)
    first, second = result.repeats
    failed = second.model_copy(update={"status": "failed", "throughput": None})
    result = result.model_copy(update={"repeats": [first, failed]})
    assert "never_steady" not in codes(result, profiles)


def test_a_window_that_differs_from_its_steps_gives_a_warning(tmp_path):
    events = rank_events([1.0] * 120, measured_steps=100)
    (window,) = [event for event in events if event["event"] == "window"]
    # The host did not wait: the device's steps took longer than the window.
    window["seconds"] = 60.0
    result = measured([1.0], protocol="published")
    result, profiles = stored_profiles(tmp_path / "m", result, [[events]])
    assert "window_mismatch" in codes(result, profiles)


def test_errors_come_before_cautions():
    severities = [warning.severity for warning in MeasurementWarning.classes.values()]
    assert severities == sorted(severities, key=["error", "caution"].index)


def test_codes_are_sorted_by_severity_and_unknown_ones_come_last():
    assert worst_first(["new", "drift", "above_peak"]) == ["above_peak", "drift", "new"]


@pytest.mark.parametrize(
    ("codes", "highest"),
    [
        ([], None),
        (["drift"], "caution"),
        (["new"], "caution"),
        (["drift", "above_peak"], "error"),
    ],
)
def test_the_severity_of_several_warnings_is_the_highest(codes, highest):
    assert severity(codes) == highest
