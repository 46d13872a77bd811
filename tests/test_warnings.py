"""Warnings: each planted once, and none for an undisturbed measurement."""

import numpy as np
import pytest
from made import results as made
from made.results import (
    V100,
    rank_events,
    script_measured,
    steady_peak,
    warnings_of,
    with_raw_files,
)

from perfkit.analysis.published import published
from perfkit.analysis.utilization import datasheet, utilization
from perfkit.analysis.warnings import (
    HighLastLoss,
    MeasurementWarning,
    Outlier,
    highest_share,
)
from perfkit.measuring.request.plan import plan
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.frames import load_steps
from perfkit.measuring.results.repeat import TelemetrySummary
from perfkit.measuring.steady import profile_repeats

QUIET = [100.0, 100.2, 99.9, 100.1, 99.8, 100.0, 100.1]
A100 = "NVIDIA A100-SXM4-40GB, 40 GiB"
LANGUAGE = {"input": "synthetic", "optimizer": "adamw", "image_size": None, "layout": None}
"""Parameters of a language model."""


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
    """Return the measurement with fields of each repeat changed."""
    repeats = [repeat.model_copy(update=changes) for repeat in result.repeats]
    return result.model_copy(update={"repeats": repeats})


def peak(flops):
    return steady_peak(flops, 1e11)


def test_an_undisturbed_measurement_has_no_warning():
    result = measured(QUIET)
    assert codes(changed(result, peak=peak(1e13))) == []


@pytest.mark.parametrize("values", [[100.0], [74.0, 126.0, 80.0, 120.0, 100.0]])
def test_few_repeats_and_a_wide_interval_give_no_warning(values):
    assert codes(measured(values)) == []


def test_an_outlier_gives_a_warning_and_still_counts():
    result = measured([*QUIET[:6], 103.0])
    (outlier,) = warnings_of(result)
    assert isinstance(outlier, Outlier)
    assert outlier.repeats == [7]
    assert outlier.shares == [pytest.approx(0.03)]
    assert result.throughput.n == 7


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("first_loss", {"loss_first": 30.0}),
        ("first_loss", {"loss_first": 0.1}),
        ("constant_loss", {"loss_first": 6.9078, "loss_last": 6.90775}),
        ("last_loss", {"loss_last": 44.8}),
        ("skipped_steps", {"skipped_steps": 3}),
        # 100 images/s are 2.4 TFLOP/s, or 0.6 with Winograd convolutions.
        ("above_peak", {"peak": peak(5e11)}),
    ],
)
def test_implausible_training_gives_a_warning(name, changes):
    result = measured(QUIET)
    implausible = changed(result, **changes)
    assert codes(implausible) == [name]


def test_a_window_under_a_tenth_of_a_second_names_the_parameter_for_a_long_one():
    # 5 steps of 16 images.
    (warning,) = warnings_of(measured([801] * 7, protocol="quick"))
    assert warning.text() == (
        "Repeats 1, 2, 3, 4, 5, 6, 7: a window of 0.0999 s is too short "
        "for its throughput to be trusted (under 0.1 s). For windows of seconds: "
        "-p measured_seconds 3"
    )


def test_rows_of_different_numbers_in_a_script_give_a_warning():
    result = script_measured([4.0, 4.1, 4.2])
    assert "uneven_batches" not in codes(changed(result, rows=(8, 8)))
    assert "uneven_batches" in codes(changed(result, rows=(4, 8)))


def test_samples_that_are_no_multiple_of_the_rows_of_a_step_give_a_warning():
    result = script_measured([4.0, 4.1, 4.2])
    samples = result.told.samples_per_step
    assert "samples_not_of_rows" not in codes(changed(result, rows=(samples, samples)))
    other = changed(result, rows=(samples - 1, samples - 1))
    (warning,) = [one for one in warnings_of(other) if one.code == "samples_not_of_rows"]
    assert f"{samples} samples" in warning.text() and f"{samples - 1} rows" in warning.text()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"late_modules": ["tasks.b", "tasks.a"]},
            "The script imported modules that its digest does not cover: tasks.a, "
            "tasks.b. A change of these does not start another measurement; give it another "
            "label.",
        ),
        (
            {"killed_after_end": True},
            "Repeats 1, 2, 3, 4, 5, 6, 7: the script ran on for 20 s after the last step of "
            "the window and was killed. It catches SystemExit, or waits for something that "
            "does not end.",
        ),
    ],
)
def test_what_processes_did_besides_training_gives_a_warning(changes, expected):
    (warning,) = warnings_of(changed(measured(QUIET), **changes))
    assert warning.text() == expected


@pytest.mark.parametrize(("warmup", "expected"), [(14, []), (15, ["last_loss"])])
def test_a_few_steps_do_not_show_a_divergence(warmup, expected):
    result = measured(QUIET, measured_steps=5, warmup_steps=warmup)
    diverged = changed(result, loss_last=17.6)
    assert codes(diverged) == expected
    assert HighLastLoss.severity == "error"


@pytest.mark.parametrize(
    ("parameters", "is_checked"),
    [
        ({"batch_size": 15}, False),
        (LANGUAGE | {"model": "gpt", "batch_size": 1, "sequence_length": 16}, True),
    ],
)
def test_the_first_loss_of_few_predictions_depends_on_chance(parameters, is_checked):
    result = measured(QUIET, **parameters)
    odd = changed(result, loss_first=30.0)
    assert codes(odd) == ["first_loss"] * is_checked


def telemetry(samples):
    return TelemetrySummary(
        samples=samples,
        cores=2,
        process_cores=1.9,
        other_load_cores=0.01,
        steal_share=0.0,
        clock_mhz={},
        temperature_celsius={},
        throttled={},
        energy_joules_per_sample=None,
        memory_used_bytes={},
        missing={},
    )


@pytest.mark.parametrize(
    ("summary", "gaps"),
    [
        (None, [50]),
        (telemetry(samples=50), [25]),
        (telemetry(samples=81), []),
    ],
)
def test_a_telemetry_gap_gives_a_warning(summary, gaps):
    result = measured([8.0] * 7, batch_size=4)
    assert result.repeats[0].ranks[0].window_seconds == 50
    watched = changed(result, began="2026-01-01T00:00:00.000+00:00", telemetry=summary)
    seconds = []
    for warning in warnings_of(watched):
        if warning.code == "telemetry_gap":
            seconds.append(warning.seconds)
    assert seconds == gaps


def test_a_rising_loss_on_a_constant_batch_gives_a_warning():
    constant = measured(QUIET, input="synthetic")
    rising = changed(constant, loss_first=6.5, loss_last=7.0)
    assert codes(rising) == ["loss_not_falling"]
    varying = measured(QUIET)
    rising = changed(varying, loss_first=6.5, loss_last=7.0)
    assert codes(rising) == []


def test_throughput_above_the_datasheet_gives_a_warning():
    # 15.7 TFLOP/s / 24.3 GFLOP per image = 646 images/s. 37 % of the FLOPs are in 3x3
    # convolutions with stride 1; with a quarter of their multiplications, 895 images/s.
    plausible = measured([893.5] * 7, device="gpu", gpus=1)
    implausible = measured([930.0] * 7, device="gpu", gpus=1)
    on_two = measured([930.0] * 7, device="gpu", gpus=2)
    assert codes(plausible) == []
    (above,) = warnings_of(implausible)
    assert above.text() == (
        "144 % of the datasheet's peak of V100 SXM2; with Winograd's convolution algorithm "
        "F(4x4, 3x3), which needs 4 times fewer multiplications, this model can reach at most "
        "139 %. Work was skipped, or time was not counted."
    )
    assert codes(on_two) == []


def test_a_network_of_3x3_convolutions_may_reach_almost_4_times_the_peak():
    work = measured([1.0], model="vgg16").built_in
    assert highest_share(work) == pytest.approx(3.9062, rel=1e-4)


def test_a_throughput_of_sequences_is_compared_with_the_whole_datasheet():
    bert = LANGUAGE | {"model": "bert", "input": "dataloader", "sequence_length": 128}
    # 69.9 GFLOP per sequence without Winograd savings: 225 sequences/s.
    above = measured([230.0] * 7, device="gpu", gpus=1, **bert)
    below = measured([220.0] * 7, device="gpu", gpus=1, **bert)
    assert "above_datasheet" in codes(above)
    assert "above_datasheet" not in codes(below)


@pytest.mark.parametrize(
    ("gpu", "precision", "tf32", "teraflops"),
    [
        (V100, "fp32", False, 15.7),
        (V100, "amp", False, 125),
        ("NVIDIA A100-SXM4-80GB, 80 GiB", "fp32", True, 156),
        ("NVIDIA H100 PCIe, 80 GiB", "bf16", False, 756.5),
    ],
)
def test_the_datasheet_depends_on_gpu_and_effective_precision(gpu, precision, tf32, teraflops):
    facts = {"gpus": [gpu]}
    settings = {"precision": precision, "tf32": tf32}
    result = measured(QUIET, device="gpu", gpus=1, facts=facts, **settings)
    assert datasheet(result).flops_per_second == teraflops * 1e12


def test_published_numbers_are_plausible():
    cells = published().dropna(subset="throughput")
    cells = cells[cells["framework"] == "paddle"]
    cells = cells[cells["model"].isin(["resnet50", "vgg16"])]
    cells = cells[cells["precision"].isin(["fp32", "amp"])]
    assert len(cells) > 50
    for cell in cells.itertuples():
        work = {"model": cell.model, "precision": cell.precision, "device": "gpu"}
        work["nodes"] = int(cell.nodes)
        work["gpus"] = int(cell.gpus_per_node)
        if cell.nodes > 1:
            work["launcher"] = "srun"
        gpu = A100 if cell.gpu.startswith("A100") else V100
        result = measured([cell.throughput] * 2, **work, facts={"gpus": [gpu] * 8})
        assert "above_datasheet" not in codes(result)


def test_the_share_of_the_peak_is_computed_per_repeat():
    result = measured([100.0, 200.0])
    assert utilization(result) is None
    repeats = []
    for repeat, flops in zip(result.repeats, (1e13, 4e13), strict=True):
        repeats.append(repeat.model_copy(update={"peak": peak(flops)}))
    with_peaks = result.model_copy(update={"repeats": repeats})
    # 24.3 GFLOP per image: 2.43 of 10 TFLOP/s, 4.86 of 40.
    first, second = utilization(with_peaks).shares
    assert first == pytest.approx(0.243, rel=1e-3)
    assert second == pytest.approx(0.1215, rel=1e-3)


def resolved(result, option):
    """Return the configuration that the measurement's request and one option plan."""
    _p, name, text = option.split()
    value = {"batch_size": int, "tf32": bool}.get(name, str)(text)
    config = result.config
    request = {field: getattr(config, field) for field in ("framework", "device", "gpus")}
    request |= {"strategy": config.work.strategy, "execution": config.work.execution}
    request |= {"input": "synthetic", name: value}
    checked = plan(config.work.model, request, ["machine", "requirements", "data"])
    return checked.config


@pytest.mark.parametrize(
    ("capability", "how", "effective", "expected"),
    [
        ("6.1", {}, {}, None),
        ("7.0", {}, {}, ["-p precision amp"]),
        ("9.0", {}, {}, ["-p precision amp", "-p precision bf16", "-p tf32 True"]),
        ("9.0", {"framework": "jax"}, {}, ["-p precision bf16", "-p tf32 True"]),
        ("9.0", {}, {"tf32": True}, None),
    ],
)
def test_fp32_on_a_gpu_with_tensor_cores_gives_a_notice(capability, how, effective, expected):
    result = measured(QUIET, device="gpu", gpus=1, **how)
    reported = {"device": "gpu", "precision": "fp32", "tf32": False} | effective
    facts = {"gpus": Reading(value=["Some GPU"])}
    facts["compute_capability"] = Reading(value=[capability, capability])
    effective = result.effective.model_copy(update=reported)
    result = result.model_copy(update={"effective": effective, "environment": facts})
    warnings = warnings_of(result)
    if expected is None:
        assert warnings == []
        return
    (warning,) = warnings
    assert warning.text().endswith(": " + ", ".join(expected))
    for option in warning.parameters:
        assert resolved(result, option)


def stored_profiles(tmp_path, result, events):
    """Store a measurement with these raw events. Return its result and its profiles."""
    measurement = with_raw_files(tmp_path, result, events)
    steps = load_steps(measurement.folder)
    return measurement.result, profile_repeats(steps)


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
    assert codes(result, profiles) == expected


def test_a_window_that_differs_from_its_steps_gives_a_warning(tmp_path):
    events = rank_events([1.0] * 120, measured_steps=100)
    for event in events:
        if event["event"] == "window":
            # The host did not wait: the device's steps took longer than the window.
            event["seconds"] = 60.0
    result = measured([1.0], protocol="published")
    result, profiles = stored_profiles(tmp_path / "m", result, [[events]])
    assert "window_mismatch" in codes(result, profiles)


def test_errors_come_before_cautions_and_notices():
    severities = [warning.severity for warning in MeasurementWarning.classes.values()]
    assert severities == sorted(severities, key=["error", "caution", "notice"].index)
