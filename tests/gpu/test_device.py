"""The GPU itself, as NVML and a framework see it: identity, events, peaks."""

import pytest

from perfkit.analysis.datasheets import datasheet_of
from perfkit.measuring.system import gpus

pytestmark = pytest.mark.gpu

PEAKS = ("matmul_flops_per_second", "copy_bytes_per_second")


def test_nvml_names_driver_and_gpus(say):
    names = gpus.visible_names()
    say(f"driver {gpus.driver()}, {'; '.join(names)}")
    assert names and all(names)


def test_nvml_and_the_framework_see_the_same_gpu(ask, say):
    answer = ask("identity")
    (name, size), (other_name, other_size) = answer["nvml"], answer["framework"]
    say(f"{name}, {size / 2**30:.1f} and {other_size / 2**30:.1f} GiB")
    assert name == other_name
    # The driver keeps some memory for itself.
    assert other_size == pytest.approx(size, rel=0.05)


def test_an_event_has_not_passed_just_after_its_launch(ask):
    assert not ask("events", precision="bf16")["passed_at_once"]


def test_events_around_products_sum_up_to_the_hosts_time(ask, say):
    answer = ask("events", precision="bf16")
    say(f"events {answer['device'] * 1e3:.2f} ms, host {answer['host'] * 1e3:.2f} ms")
    assert answer["device"] == pytest.approx(answer["host"], rel=0.02)


@pytest.mark.parametrize("peak", PEAKS)
def test_a_measured_peak_is_repeatable(ask, say, peak):
    first, second = (answer[peak] for answer in ask("peaks", precision="bf16"))
    say(f"{first:.4g} and {second:.4g} per second")
    assert first == pytest.approx(second, rel=0.03)


@pytest.mark.parametrize(("peak", "lowest"), [(PEAKS[0], 0.4), (PEAKS[1], 0.5)])
def test_a_measured_peak_is_a_plausible_share_of_the_datasheets(ask, say, peak, lowest):
    name = gpus.visible_names()[0].split(",")[0]
    sheet = datasheet_of(name, "bf16")
    if not sheet:
        pytest.skip(f"the datasheet of {name} is not in gpu_peaks.csv")
    of_sheet = sheet.flops_per_second if peak == PEAKS[0] else sheet.bytes_per_second
    share = max(answer[peak] for answer in ask("peaks", precision="bf16")) / of_sheet
    say(f"{share:.0%}")
    assert lowest <= share <= 1.05


def test_tf32_raises_the_peak_of_fp32(ask, say):
    plain, rounded = (
        max(answer[PEAKS[0]] for answer in ask("peaks", tf32=tf32)) for tf32 in (False, True)
    )
    say(f"{plain / 1e12:.1f} and {rounded / 1e12:.1f} TFLOP/s")
    assert rounded > 3 * plain
