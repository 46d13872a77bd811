"""Claims with a unit: how they are read, and the numbers of a log in the same quantity."""

import re

import numpy as np
import pytest
from conftest import cli
from log_writers import paddleclas
from made_logs import FACTS, by_statistic, codes, make_log, recomputed, windows

from perfkit.audit.figure import StepTime
from perfkit.audit.printed import PrintedQuantity
from perfkit.audit.quantity import claimed_quantity
from perfkit.audit.quantity_claims import check_quantity
from perfkit.audit.single_lines import with_single_lines
from perfkit.audit.statements import ClaimNeeds
from perfkit.report.audit_text import closest_text, explanation_lines

GPT = {
    "unit": "samples/s",
    "ranks": 8,
    "sequence_length": 2048,
    "parameters": 7_000_000_000,
    "layers": 32,
    "hidden_size": 4096,
    "gpu": "H100",
}
"""A language model whose log counts sequences."""
RATE = 2.50125
"""Sequences per second of a device."""
TOKENS = RATE * 2048
"""5,122.56 tokens per second."""
FULL = 6 * 7_000_000_000 + 12 * 32 * 4096 * 2048
CAUSAL = 6 * 7_000_000_000 + 6 * 32 * 4096 * 2048


@pytest.mark.parametrize(
    ("text", "kind", "value", "of"),
    [
        ("12,810 tokens/s", "tokens/s", 12810, ""),
        ("12_810 tok / s", "tokens/s", 12810, ""),
        ("21.9k tokens/s", "tokens/s", 21900, ""),
        ("1.2 Mtok/s", "tokens/s", 1.2e6, ""),
        ("86.4M tokens/day", "tokens/s", 1000, ""),
        ("6400 tokens/sec/device", "tokens/s", 6400, "device"),
        ("6400 tok/s per GPU", "tokens/s", 6400, "device"),
        ("5400 TGS", "tokens/s", 5400, "device"),
        ("10984.436 images/sec", "samples/s", 10984.436, ""),
        ("512 sequences/s total", "samples/s", 512, "all"),
        ("400 TFLOPS", "TFLOP/s", 400, ""),
        ("400 TFLOPs/GPU", "TFLOP/s", 400, "device"),
        ("400 TFLOP/s/GPU", "TFLOP/s", 400, "device"),
        ("3.2 PFLOP/s", "TFLOP/s", 3200, ""),
        ("45% MFU", "MFU", 45, ""),
        ("MFU: 45 %", "MFU", 45, ""),
        ("0.45 MFU", "MFU", 45, ""),
        ("1.34 seconds per step", "s/step", 1.34, ""),
        ("1340 ms/it", "s/step", 1.34, ""),
        ("0.75 it/s", "steps/s", 0.75, ""),
        ("5.64 min", "minutes", 5.64, ""),
        ("2.5 hours", "minutes", 150, ""),
    ],
)
def test_a_number_with_a_common_unit_is_read(text, kind, value, of):
    claimed = claimed_quantity(text)
    assert (claimed.kind, claimed.of) == (kind, of)
    assert claimed.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "half"),
    [("21.9k tokens/s", 50), ("0.45 MFU", 0.5), ("1340 ms/step", 0.0005), ("45.2 % MFU", 0.05)],
)
def test_half_a_unit_of_the_last_digit_is_in_the_quantitys_unit(text, half):
    assert claimed_quantity(text).half == pytest.approx(half)


@pytest.mark.parametrize(
    "text",
    [
        "12810",
        "tokens/s",
        "-3 tokens/s",
        "0 tokens/s",
        "1e999 tokens/s",
        "1e16 tokens/s",
        "1e-10 tokens/s",
        "1,23 tokens/s",
        "12 810 tokens/s",
        "1.2.3 tokens/s",
        "45 %",
        "45 MFU",
        "1.34 s",
        "400 bananas/s",
        "52 % HFU",
        "400 TFLOPS bf16",
        "9" * 5000 + " tokens/s",
    ],
)
def test_what_is_no_quantity_is_not_read_as_one(text):
    assert claimed_quantity(text) is None


def checked(text, log, tolerance=0.0, **stored):
    """Check a claim against a log, whose stored form has these fields."""
    audited = recomputed(log)
    audited = audited._replace(log=audited.log.model_copy(update=stored))
    return check_quantity(claimed_quantity(text), audited, tolerance)


def first_line(claim):
    return explanation_lines(claim)[0]


@pytest.fixture
def gpt():
    """RATE sequences/s, or TOKENS tokens/s, of each of 8 devices."""
    return make_log(windows(12, rate=RATE), facts=GPT)


def test_tokens_of_all_devices_are_told_from_tokens_of_one(gpt):
    of_all, of_one = checked("40,980 tokens/s", gpt), checked("5122.56 tokens/s", gpt)
    assert of_all.state == of_one.state == "reproduced"
    assert "of all devices × 2,048 tokens of a sequence: 40980.5 tokens/s" in first_line(of_all)
    assert "of one device × 2,048 tokens" in first_line(of_one)


def test_a_claim_of_one_device_is_not_reproduced_by_the_number_of_all(gpt):
    claim = checked("40,980 tokens/s/GPU", gpt)
    assert claim.state == "not reproduced"
    assert "of_all_devices" in codes(claim.findings)


def test_a_claim_of_all_devices_is_not_reproduced_by_the_number_of_one(gpt):
    claim = checked("5123 tokens/s total", gpt)
    assert claim.state == "not reproduced"
    assert "of_one_device" in codes(claim.findings)


def test_a_number_in_another_quantity_reproduces_nothing(gpt):
    # The log has 20.01 sequences/s and 40,980.48 tokens/s.
    assert checked("20.01 tokens/s", gpt).state == "not reproduced"
    assert checked("40980.48 samples/s", gpt).state == "not reproduced"
    assert checked("20.01 samples/s", gpt).state == "reproduced"


def test_samples_of_a_log_that_counts_tokens_need_its_sequence_length():
    tokens = make_log(windows(12, rate=TOKENS), facts=GPT | {"unit": "tokens/s"})
    claim = checked("2.50125 sequences/s/GPU", tokens)
    assert claim.state == "reproduced"
    assert "/ 2,048 tokens of a sequence" in first_line(claim)
    without = {**GPT, "unit": "tokens/s", "sequence_length": 0}
    unknown = make_log(windows(12, rate=TOKENS), facts=without)
    assert checked("2.50125 sequences/s/GPU", unknown).state == "no number"


@pytest.mark.parametrize(
    ("flops", "formula"),
    [(FULL, "6 N + 12 L d T"), (CAUSAL, "6 N + 6 L d T"), (6 * 7_000_000_000, "6 N")],
)
def test_teraflops_tell_the_formula_that_reproduces_them(gpt, flops, formula):
    claim = checked(f"{TOKENS * flops / 1e12:.3f} TFLOP/s/GPU", gpt)
    assert claim.state == "reproduced"
    assert f"× ({formula}) FLOPs of a token, N = 7,000,000,000" in first_line(claim)


def test_a_utilization_tells_formula_and_peak(gpt):
    claim = checked(f"{100 * TOKENS * FULL / 989.5e12:.3f} % MFU", gpt)
    assert claim.state == "reproduced"
    assert "(6 N + 12 L d T)" in first_line(claim)
    assert "989.5 TFLOP/s, the dense peak of H100 80GB HBM3" in first_line(claim)
    assert "sparse_peak" not in codes(claim.findings)


def test_a_share_of_the_peak_with_sparsity_is_a_finding(gpt):
    claim = checked(f"{100 * TOKENS * FULL / 1979e12:.3f} % MFU", gpt)
    located = {finding.code: finding.finding for finding in claim.findings}
    assert claim.state == "reproduced"
    assert located["sparse_peak"].share == pytest.approx(TOKENS * FULL / 989.5e12, rel=1e-4)


def test_without_parameters_or_gpu_a_log_has_no_utilization():
    for unknown in ("parameters", "gpu"):
        facts = {name: value for name, value in GPT.items() if name != unknown}
        log = make_log(windows(12, rate=RATE), facts=facts)
        claim = checked("45 % MFU", log)
        assert claim.state == "no number"
        option = {"parameters": "-p parameters N", "gpu": "-p gpu_model NAME"}[unknown]
        (located,) = claim.findings
        assert located.finding == ClaimNeeds(quantity="MFU", options=[option])


def test_nothing_is_asked_for_if_a_log_counts_images():
    claim = checked("45 % MFU", make_log(windows(12, rate=RATE), facts=FACTS | {"gpu": "H100"}))
    assert claim.state == "no number"
    assert not claim.findings


@pytest.mark.parametrize("text", [f"{TOKENS * FULL / 1e12:.3f} TFLOP/s/GPU", "26.2 % MFU"])
def test_a_mixture_of_experts_is_converted_by_no_flops(text):
    claim = checked(text, make_log(windows(12, rate=RATE), facts=GPT | {"experts": 8}))
    assert claim.state == "no number"
    assert codes(claim.findings) == {"every_expert_counted"}


def test_the_experts_matter_to_no_other_quantity():
    claim = checked(
        "41,000 tokens/s", make_log(windows(12, rate=RATE), facts=GPT | {"experts": 8})
    )
    assert claim.state == "not reproduced"
    assert claim.findings == []


@pytest.fixture
def printed():
    """What a log prints of each device."""
    fields = {"count": 12, "first": 90.5, "median": 401.25, "last": 402.75}
    teraflops = PrintedQuantity(name="tflops", quantity="TFLOP/s", of="device", **fields)
    return teraflops.model_copy(update={"mean_protocol": 400.0})


def test_a_printed_quantity_reproduces_a_claim_by_its_name(gpt, printed):
    claim = checked("402.75 TFLOP/s/GPU", gpt, printed=[printed])
    assert claim.state == "reproduced"
    assert first_line(claim).startswith("last printed “tflops” of one device: 402.75")


def test_a_printed_number_explains_no_other_printed_number(gpt, printed):
    # Half a unit of the last digit of both would make 402.75 and 402.76 equal.
    assert checked("402.76 TFLOP/s/GPU", gpt, printed=[printed]).state == "not reproduced"
    assert checked("402.8 TFLOP/s/GPU", gpt, printed=[printed]).state == "reproduced"


def test_printed_teraflops_give_the_utilization(gpt, printed):
    claim = checked("40.42 % MFU", gpt, printed=[printed])
    assert "mean of printed “tflops”, steps 21–120 / 989.5 TFLOP/s" in first_line(claim)


@pytest.fixture
def step_time():
    extent = {"first": 21, "last": 120, "steps": 100, "prints": 10}
    return StepTime(
        period="protocol", basis="printed", mean_seconds=1.34, median_seconds=1.31, **extent
    )


@pytest.mark.parametrize(
    ("text", "statistic"),
    [
        ("1.34 s/step", "mean"),
        ("1340 ms/step", "mean"),
        ("1.310 s/it", "median"),
        ("0.7634 it/s", "median"),
    ],
)
def test_seconds_of_a_step_need_no_batch_size(text, statistic, step_time):
    log = make_log(windows(12), facts={"model": "resnet50"})
    claim = checked(text, log, step_times=[step_time])
    assert claim.state == "reproduced"
    assert first_line(claim).startswith(f"{statistic} time of steps 21–120")


def test_minutes_are_those_that_the_log_reports():
    log = make_log(windows(12, rate=300.0))
    reported = {"time to train, minutes": "5.640217", "train_runtime": "90"}
    assert checked("5.64 min", log, reported=reported).state == "reproduced"
    assert checked("1.5 minutes", log, reported=reported).state == "reproduced"
    assert checked("5.7 min", log, reported=reported).state == "not reproduced"


def test_the_closest_number_is_told_in_the_claims_quantity(gpt):
    claim = checked("41,000 tokens/s", gpt)
    assert claim.state == "not reproduced"
    assert "× 2,048 tokens of a sequence: 40980.5 tokens/s, -0.0476 %" in closest_text(claim)
    assert checked("41,000 tokens/s", gpt, tolerance=0.01).state == "near"


def test_steps_per_second_are_also_those_that_the_log_reports():
    log = make_log(windows(12, rate=300.0))
    reported = {"train_steps_per_second": "0.003", "train_runtime": "90"}
    claim = checked("0.003 steps/s", log, reported=reported)
    assert claim.state == "reproduced"
    assert first_line(claim).startswith("the log's own “train_steps_per_second”")
    assert checked("3.9 it/s", log, reported=reported).state == "not reproduced"
    assert checked("90 steps/s", log, reported=reported).state == "not reproduced"


@pytest.mark.parametrize(("of", "field"), [("device", "per_device"), ("all", "throughput")])
def test_the_answer_of_the_audit_itself_is_reproduced(of, field):
    rates = RATE + np.random.default_rng(1).normal(0, 0.01, 200)
    rates[:50] -= 1
    log = make_log(windows(200, rate=rates), facts=GPT)
    steady = by_statistic(log)["samples/time", "steady"]
    claim = checked(f"{2048 * getattr(steady, field):.6f} tokens/s", log)
    assert claim.state == "reproduced"
    assert [(quantity.figure, quantity.of) for quantity in claim.quantities] == [(steady, of)]


def test_a_claim_of_images_keeps_the_findings_of_a_statistic():
    log = make_log(windows(12, rate=[*[300.0] * 11, 330.25]), facts=FACTS)
    claim = checked("2642 images/s", log)
    assert claim.state == "reproduced"
    findings = {located.code: located.finding for located in claim.findings}
    assert " images/s, " in findings["other_statistic"].text()
    of_one = checked("330.25 samples/s/GPU", log)
    findings = {located.code: located.finding for located in of_one.findings}
    assert " samples/s/device, " in findings["other_statistic"].text()


def test_a_claim_of_one_device_is_compared_with_the_throughput_of_one_device():
    rates = np.array([*[300.0] * 11, 330.25])
    facts = {"batch_size": 64, "global_batch_size": 512, "accumulate": 1}
    log = make_log(windows(12, rate=rates, seconds=10 * 64 / rates), facts=facts)
    claim = checked("330.25 samples/s/GPU", log)
    (located,) = claim.findings
    assert located.finding.text().endswith(
        "is 302.773 samples/s/device, -8.32 % from the claim."
    )


def test_rates_of_an_unknown_unit_are_samples_also_in_a_single_line():
    rates = [*[300.0] * 5, 270.5, *[300.0] * 6]
    log = recomputed(make_log(windows(12, rate=rates), facts={"batch_size": 64}))
    claimed = claimed_quantity("270.5 samples/s")
    assert with_single_lines(check_quantity(claimed, log), log).state == "one line"


# The command.


@pytest.fixture
def log_file(tmp_path):
    """A log of 32 images in 0.317 s, 100.946 images/s, on each of 8 devices."""
    path = tmp_path / "PaddleClas_ResNet50_fp32_DP_N1C8_log"
    path.write_text(paddleclas([0.317] * 140, 10))
    return path


def test_the_command_compares_a_quantity(log_file):
    done = cli("audit", log_file, "--claim", "807.571 images/s")
    assert done.exit_code == 0
    assert "807.571 images/s  reproduced" in done.stdout
    assert "of all devices: 807.571 images/s" in " ".join(done.stdout.split())
    assert cli("audit", log_file, "--claim", "807.571 images/s/GPU").exit_code == 1


def test_a_number_without_a_unit_is_told_in_the_logs_unit(log_file):
    def shown(claim):
        return " ".join(cli("audit", log_file, "--claim", claim).stdout.split())

    assert "lines): 807.571 images/s" in shown("807.571")
    stage = "-> samples / time, protocol's steps (steps 21–120, 10 lines): 807.571 images/s, "
    assert stage in shown("807.571")
    assert "of one device: 100.946 images/s" in shown("100.946")
    assert "10 lines): 100.946 images/s/device, " in shown("100.946")
    assert re.search(r"closest: .*: 807.571 images/s, -73", shown("3000.5"))


def test_the_option_that_allows_a_small_difference_is_named(log_file):
    done = cli("audit", log_file, "--claim", "810 images/s")
    assert done.exit_code == 1
    option = "with --tolerance 0.3 (percent), the claim is near"
    assert option in " ".join(done.stdout.split())
    assert option in " ".join(cli("audit", log_file, "--claim", "810").stdout.split())
    near = cli("audit", log_file, "--claim", "810 images/s", "--tolerance", "0.3")
    assert near.exit_code == 0
    for other in ("850 images/s", "807.571 images/s/GPU", "808 images/s"):
        assert "--tolerance" not in cli("audit", log_file, "--claim", other).stdout


def test_an_unknown_unit_is_refused_with_the_allowed_ones(log_file):
    done = cli("audit", log_file, "--claim", "6,400 bananas/s")
    assert done.exit_code == 2
    refusal = " ".join(done.stderr.split())
    assert "6,400 bananas/s is not a throughput" in refusal
    assert "tokens/s/GPU" in refusal
    assert "% MFU" in refusal
