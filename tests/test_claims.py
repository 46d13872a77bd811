"""Claimed numbers: how they are read, what of a log they are, what they mean without one."""

import json
import re

import numpy as np
import pytest
from conftest import as_options, cli
from made.logs import FACTS, make_log, paddleclas, recomputed, windows

import perfkit
from perfkit.analysis.published.cells import cells_of
from perfkit.audit.audit import read_audit
from perfkit.audit.matching import claims_of_table
from perfkit.audit.quantity import read_claim
from perfkit.report.audit import from_published, headline

GPT = {"devices": 8, "sequence_length": 2048, "parameters": "7e9", "gpu_model": "H100"}
SHAPE = {"layers": 32, "hidden_size": 4096}
FULL = 6 * 7e9 + 12 * 32 * 4096 * 2048
"""FLOPs of a token."""
H100 = 989.5e12


@pytest.mark.parametrize(
    ("text", "quantity", "value", "of"),
    [
        ("12_810 tok / s", "tokens/s", 12810, ""),
        ("21.9k tokens/s total", "tokens/s", 21900, "all"),
        ("1.2 Mtok/sec/device", "tokens/s", 1.2e6, "device"),
        ("5400 TGS", "tokens/s", 5400, "device"),
        ("1e3 images/GPU/sec", "samples/s", 1000, "device"),
        ("400 TFLOPS", "TFLOP/s", 400, ""),
        ("MFU: 45 %", "MFU", 45, ""),
        ("0.45 MFU", "MFU", 45, ""),
        ("1340 ms/it", "s/step", 1.34, ""),
        ("2.5 hours", "minutes", 150, ""),
    ],
)
def test_a_number_is_read_with_the_units_that_people_write(text, quantity, value, of):
    claimed = read_claim(text)
    assert (claimed.quantity, claimed.of) == (quantity, of)
    assert claimed.value == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "fast",
        "2602,62",
        "12 810 tokens/s",
        "45 %",
    ],
)
def test_what_is_no_number_with_a_known_unit_is_refused(text, log):
    done = cli("audit", log, "--claim", text)
    assert done.exit_code == 2
    assert "not a number with a known unit" in " ".join(done.stderr.split())


# A claim and its log.


@pytest.fixture
def log(write):
    """A log of 32 images in 0.317 s, 100.946 images/s, on each of 8 devices; the first steps
    are slower."""
    seconds = [*[0.4] * 20, *[0.317] * 120]
    return write(paddleclas(seconds), "PaddleClas_ResNet50_bs32_fp32_DP_N1C8_log")


@pytest.fixture
def printed(write):
    """Writes a log that prints these rates of all devices, in tokens/s, and returns the words
    that read it."""

    def words(rates):
        lines = [f"it {10 * index}] speed {rate} tok/s" for index, rate in enumerate(rates, 1)]
        path = write("\n".join(lines) + "\n")
        meaning = "rate_of=all covers=window unit=tokens/s"
        return [path, "--format-regex", "it <step>] speed <rate>", "--format-options", meaning]

    return words


@pytest.fixture
def checked(tmp_path):
    """Checks a claim; returns it as stored, with the exit status and the text."""

    def check(text, *words, **stated):
        out = tmp_path / "claim.json"
        done = cli("audit", *words, "--claim", text, *as_options(stated), "--json", out)
        claim = json.loads(out.read_text())["claims"][0]
        return claim | {"exit_code": done.exit_code, "shown": " ".join(done.stdout.split())}

    return check


@pytest.mark.parametrize("text", ["807.571", "807.571 images/s", "100.946 images/s/GPU"])
def test_a_statistic_with_the_digits_of_a_claim_reproduces_it_and_is_named(text, checked, log):
    claim = checked(text, log)
    assert (claim["state"], claim["exit_code"]) == ("reproduced", 0)
    assert "samples / time (steps 21–120, 10 lines) of" in claim["shown"]


@pytest.mark.parametrize("text", ["807.573", "807.571 tokens/s", "807.571 images/s/GPU"])
def test_other_digits_units_and_devices_do_not(text, checked, log):
    claim = checked(text, log)
    assert claim["state"] in ("not reproduced", "no number")
    assert claim["exit_code"] == 1


def test_a_claim_of_one_device_that_is_the_number_of_all_is_told_so(checked, log):
    shown = checked("807.571 images/s/GPU", log)["shown"]
    assert "not reproduced equal to samples / time" in shown
    assert "of all devices: 807.571 images/s" in shown


def test_truncated_digits_are_close(checked, log):
    claim = checked("807.57", log)
    assert claim["state"] == "reproduced"
    claim = checked("100.94 images/s/GPU", log)
    assert (claim["state"], claim["exit_code"]) == ("close", 1)
    assert "close to samples / time" in claim["shown"]


@pytest.mark.parametrize(
    ("skipped", "digits", "state"),
    [
        (20, 3, "reproduced"),
        (21, 3, "close"),
        (9, 0, "close"),
    ],
)
def test_a_mean_without_up_to_20_prints_reproduces_a_claim_of_five_digits(
    skipped, digits, state, checked, printed
):
    rates = np.round(2000 + 900 * np.random.default_rng(1).random(80), 2)
    claim = checked(f"{rates[skipped:].mean():.{digits}f} tokens/s", *printed(rates))
    assert claim["state"] == state
    assert f"without the first {skipped} " in claim["shown"]


def test_zeros_at_the_end_of_a_number_are_no_digits(checked, printed):
    # Without the first 10 prints, the mean is 12,800, and nothing else is.
    rates = [*[9000.25, 10000.5] * 5, *[12700.25, 12700.25, 12999.5] * 13]
    assert checked("12,800 tokens/s", *printed(rates))["state"] == "close"


def test_a_difference_within_the_tolerance_is_near(checked, log):
    assert checked("810 images/s", log)["state"] == "not reproduced"
    claim = checked("810 images/s", log, "--tolerance", "0.4")
    assert (claim["state"], claim["exit_code"]) == ("near", 0)


def test_a_claim_is_compared_with_the_answer_in_its_quantity(checked, log):
    claim = checked("0.4 s/step", log)
    assert claim["reference"] == pytest.approx(0.317, rel=1e-4)
    assert claim["reference_difference"] == pytest.approx(-0.2075, rel=1e-3)
    assert "the log's answer: 0.317000 s/step, -20.8 %, steps 21–120" in claim["shown"]


def test_a_throughput_is_converted_by_the_answers_own_formula(checked, printed):
    rates = printed([*[20000.5, 20500.5] * 20])
    tokens = 2 / (1 / 20000.5 + 1 / 20500.5)
    for text, of in (
        (f"{tokens:.3f}", ""),
        (f"{tokens / 2048:.5f} sequences/s", "/ sequence_length"),
        (f"{tokens / 8 * FULL / 1e12:.3f} TFLOP/s/GPU", "× (6 N + 12 L d T)"),
        (f"{tokens / 8 * FULL / H100 * 100:.4f} % MFU", "× (6 N + 12 L d T) / 989.5 TFLOP/s"),
    ):
        claim = checked(text, *rates, **GPT, **SHAPE)
        assert claim["state"] == "reproduced"
        assert claim["matches"][0].get("conversion", "") == of


def test_a_log_without_a_number_in_the_quantity_names_the_options(checked, printed):
    claim = checked("45 % MFU", *printed([20000.5] * 20), devices=8)
    assert (claim["state"], claim["exit_code"]) == ("no number", 1)
    assert claim["needs"] == ["-p gpu_model NAME", "-p parameters N"]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("1.82", "reproduced"),
        ("1.816 steps/s", "reproduced"),
        ("1.5 minutes", "reproduced"),
        ("1.6 minutes", "not reproduced"),
    ],
)
def test_what_a_trainer_reports_of_its_whole_training_is_compared(text, state, checked, write):
    reported = '{"train_runtime": 90, "train_samples_per_second": 3.9, "train_loss": 1.0,'
    path = write(f'{reported} "train_steps_per_second": 1.816}}', "train_results.json")
    assert checked(text, path)["state"] == state


def test_the_pages_of_a_log_and_of_its_claim_agree(write, tmp_path):
    seconds = [*[0.33] * 60, *[0.317] * 400]
    log = write(paddleclas(seconds), "PaddleClas_ResNet50_bs32_fp32_DP_N1C8_log")
    answers, stages = [], []
    for label, claim in (("alone", []), ("claimed", ["--claim", "700.5"])):
        cli("audit", log, *claim, "--label", label, "--outputs", tmp_path)
        audit = read_audit(tmp_path / "audits" / label)
        answers.append(headline(audit).html.split("</strong>")[1])
        cells = re.findall(r"<td[^>]*>([^<]*)</td>", from_published(audit).html)
        stages.append(cells[1:])
    assert answers[0] == answers[1]
    alone, of_claim = stages
    assert "(+" in alone[-2]
    assert of_claim[0] == "700.500"
    assert of_claim[-3].split()[0] == alone[-3].split()[0]


# Published tables.


@pytest.fixture(scope="module")
def claims_with_log():
    """Compares a log with a table; returns the numbers that it matches, with their states."""
    cells = cells_of(perfkit.published())
    table = [cell for cell in cells if cell.table == "paddle-resnet50-report" and cell.printed]

    def compare(log):
        claims = claims_of_table(table, [recomputed(log)], 0.0)
        return {claim.text: claim.state for claim in claims if claim.log}

    return compare


@pytest.mark.parametrize(
    ("facts", "printed"),
    [
        ({"gpu": "V100"}, ["3019.361"]),
        ({}, ["3019.361", "5333.558"]),
        ({"precision": "pure_fp16", "gpu": "A100"}, ["17587.654"]),
        ({"gpu": "H100"}, []),
    ],
)
def test_a_log_is_compared_with_the_numbers_of_its_work(claims_with_log, facts, printed):
    assert [*claims_with_log(make_log(windows(), facts=FACTS | facts))] == printed


@pytest.mark.parametrize(
    ("facts", "rate", "states"),
    [
        ({"batch_size": 128}, 2957.8, {"2957.8": "reproduced"}),
        ({"batch_size": 128}, 2900.8, {}),
        ({"gpu": "V100"}, 2957.8 / 8, {"2957.8": "not reproduced"}),
    ],
)
def test_a_log_of_other_work_is_compared_only_with_a_number_that_it_reproduces(
    claims_with_log, facts, rate, states
):
    facts = FACTS | {"framework": "mxnet"} | facts
    log = make_log(windows(rate=rate), facts=facts, name="V100/x", rate_of="all")
    assert claims_with_log(log) == states


# A claim without a log.


@pytest.fixture
def alone(tmp_path):
    """Judges a claim without a log; returns it as stored, with the exit status and the text."""

    def judge(text, **stated):
        out = tmp_path / "claim.json"
        done = cli("audit", "--claim", text, *as_options(stated), "--json", out)
        return json.loads(out.read_text()) | {"exit_code": done.exit_code, "shown": done.stdout}

    return judge


def test_a_rate_is_read_as_that_of_all_devices_and_of_one(alone):
    claim = alone("21,900 tokens/s", **GPT)
    of_all, of_one = claim["readings"]
    assert of_all["mfu"] == pytest.approx(21900 / 8 * 6 * 7e9 / H100)
    assert of_one["tflops"] == pytest.approx(21900 * 6 * 7e9 / 1e12)
    assert claim["exit_code"] == 0
    claim = alone("60,000 tokens/s", **GPT)
    assert claim["exit_code"] == 0
    assert [each["is_possible"] for each in claim["readings"]] == [True, False]
    assert max(map(len, claim["shown"].splitlines())) <= 80


@pytest.mark.parametrize("text", ["152 % MFU", "30,000 tokens/s/GPU", "8000 TFLOP/s total"])
def test_more_operations_than_the_dense_peak_are_impossible(text, alone):
    claim = alone(text, **GPT)
    assert claim["is_impossible"]
    assert claim["exit_code"] == 1
    assert f"{text}: impossible." in claim["shown"]


def test_attention_counts_if_its_sizes_are_stated_and_causally_if_that_is_possible(alone):
    claim = alone("19,500 tokens/s/GPU", **GPT, layers=128, hidden_size=4096)
    (reading,) = claim["readings"]
    assert reading["mfu"] == pytest.approx(19500 * (42e9 + 12 * 128 * 4096 * 2048) / H100)
    assert reading["mfu"] > 1
    assert claim["exit_code"] == 0


def test_a_sequence_is_so_many_tokens(alone):
    (reading,) = alone("0.78125 sequences/s/GPU", **GPT)["readings"]
    assert reading["tflops"] == pytest.approx(0.78125 * 2048 * 6 * 7e9 / 1e12)


def test_a_claim_that_cannot_be_judged_names_what_lacks(alone):
    claim = alone("100 samples/s total", gpu_model="H100", parameters=7e9)
    assert "not judged; needs -p sequence_length N, -p devices N." in claim["shown"]
    assert claim["exit_code"] == 0


@pytest.mark.parametrize("text", ["6400", "5 minutes"])
def test_a_number_alone_needs_a_log_or_a_unit(text):
    done = cli("audit", "--claim", text)
    assert done.exit_code == 2
    assert f"{text} needs a log or a unit" in done.stderr
