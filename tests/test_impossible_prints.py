"""Printed MFU and TFLOP/s that no GPU can have."""

import pytest
from conftest import cli

from perfkit.audit.impossible_prints import impossible_prints
from perfkit.audit.printed import PrintedQuantity
from perfkit.audit.statements import ByLine, SourcedFact


def printed(quantity, median, of="device"):
    values = {"first": 1.0, "median": median, "last": median, "count": 12}
    return PrintedQuantity(name="shown", quantity=quantity, of=of, **values)


def codes(quantity, **facts):
    sourced = {}
    for name, value in facts.items():
        sourced[name] = SourcedFact(value=value, by=ByLine(line=1))
    return [finding.code for finding in impossible_prints([quantity], sourced)]


@pytest.mark.parametrize(
    ("percent", "found"), [(99.0, []), (100.0, []), (563.0, ["printed_utilization"])]
)
def test_a_printed_utilization_over_100_percent_is_impossible(percent, found):
    assert codes(printed("MFU", percent, of="")) == found


def test_the_finding_tells_the_utilization():
    (finding,) = impossible_prints([printed("MFU", 563.0, of="")], {})
    assert finding.text().startswith("The printed “shown” of 563 % is impossible")


@pytest.mark.parametrize(
    ("gpu", "tflops", "found"),
    [
        ("A100", 311.0, []),
        ("A100", 313.0, ["printed_over_peak"]),
        # In FP8, an H100 has twice the peak of bf16.
        ("H100", 1200.0, []),
        ("H100", 2000.0, ["printed_over_peak"]),
        ("TPU v5p", 5000.0, []),
    ],
)
def test_printed_teraflops_over_the_gpus_peak_are_impossible(gpu, tflops, found):
    assert codes(printed("TFLOP/s", tflops), gpu=gpu) == found


def test_teraflops_of_all_devices_or_of_an_unknown_gpu_are_not_judged():
    assert codes(printed("TFLOP/s", 5000.0, of="all"), gpu="A100") == []
    assert codes(printed("TFLOP/s", 5000.0)) == []


def test_the_audit_of_a_log_names_its_impossible_utilization(tmp_path):
    lines = []
    for step in range(1, 31):
        lines.append(
            f"[rank0]:[titan] 2026-03-01 10:00:{step:02},000 - root - INFO - step: {step:2}  "
            f"loss:  {9 - step / 10:.5f}  grad_norm:  1.5000  memory: 60.00GiB(75.00%)  "
            "tps: 6,400  tflops: 1,756.80  mfu: 563.08%\n"
        )
    path = tmp_path / "train.log"
    path.write_text("".join(lines))
    findings = " ".join(cli("audit", path).stdout.split())
    assert "printed_utilization: The printed “mfu” of 563 % is impossible" in findings
