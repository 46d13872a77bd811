"""The answer of an audit: a log's throughput in one line, and what the command line states."""

import json
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pytest
from conftest import cli
from made.logs import FACTS, SUITES, codes, make_log, recomputed, windows

from perfkit.audit.auditing import audit
from perfkit.audit.parameters import stated_facts
from perfkit.audit.printed import DeclaredQuantity
from perfkit.report.audit_answer import answer_text, lacking_text, model_texts

run = partial(cli, "audit")


def on_one_line(text):
    return " ".join(text.split())


@pytest.fixture
def audited(tmp_path):
    """Returns the audit of a log with this text and stated facts."""

    def audited_log(text, name="some.log", **stated):
        path = tmp_path / name
        path.write_text(text)
        (log,) = audit([path], stated=stated).logs
        return log

    return audited_log


def progress_bars(seconds_per_step):
    """Return the bars of 140 steps, with whole seconds."""
    lines = []
    for step in range(1, 141):
        minutes, seconds = divmod(int(step * seconds_per_step + 1e-9), 60)
        lines.append(
            f"  1%|1         | {step}/140 [{minutes:02d}:{seconds:02d}<00:10,  7.00it/s]"
        )
        lines.append("{'loss': 2.3012, 'epoch': 0.01}")
    return "\n".join(lines)


def test_a_clock_coarser_than_a_step_tells_the_time_of_steps_between_its_ticks(audited):
    text = progress_bars(seconds_per_step=1 / 7)
    log = audited(text, **stated_facts([("batch_size", "8"), ("devices", "1")]))
    (time,) = [time for time in log.step_times if time.period == "protocol"]
    assert time.median_seconds == pytest.approx(1 / 7)
    assert log.answer.seconds_per_step == pytest.approx(1 / 7, abs=0.01)
    (coarse,) = [each.finding for each in log.findings if each.code == "coarse_clock"]
    assert coarse.share == pytest.approx(1 / 15), "a second of 15"


# Stated facts.

HALF_A_SECOND = np.full(140, 0.5)
WITHOUT_BATCH = SUITES["mmcv"].text(HALF_A_SECOND)
"""A log whose lines print times alone, 0.5 s for each step."""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-p", "batchsize", "8"], "precision; did you mean 'batch_size'?"),
        (["-p", "devices", "0"], "-p devices: 0 is no positive number"),
    ],
)
def test_what_is_no_fact_is_refused(words, why, tmp_path):
    done = run(tmp_path, *words)
    assert done.exit_code == 2
    assert why in on_one_line(done.stderr)


def test_a_stated_fact_wins_over_the_log(audited):
    prints = SUITES["PaddleClas, static graph"].text(HALF_A_SECOND)
    log = audited(f"batch_size_per_gpu : 128 \n{prints}", batch_size=64)
    assert log.fact("batch_size") == 64
    texts = [located.finding.text() for located in log.findings]
    assert "batch_size is 64 by the command line, but 128 by line 1: 64 is used." in texts


# The answer.

ENDLESS_NAME = "x" * 200 + "_bs32.log"
LANGUAGE_MODEL = {"unit": "samples/s", "ranks": 8, "batch_size": 4, "sequence_length": 2048}

PADDED = LANGUAGE_MODEL | {"unit": "sequences/s", "accumulate": 1}


def answered(*rows, facts=FACTS, **fields):
    """Return an audited log with these prints and facts."""
    return recomputed(make_log(*rows, facts=facts, **fields)).log


def steady_windows(seconds=5.0, count=40, slow=4):
    """Return prints of ten steps each, the first of which take three times as long."""
    return windows(count, seconds=np.array([3 * seconds] * slow + [seconds] * (count - slow)))


def test_the_answer_stands_in_one_line():
    text = answer_text(answered(steady_windows()))
    assert text == "4096.0 images/s, 512.00 per device, 0.50000 s/step, steady steps 41–400"


def test_a_language_model_is_answered_in_tokens():
    text = answer_text(answered(steady_windows(), facts=LANGUAGE_MODEL))
    assert text.startswith("131,072 tokens/s, 16,384 per device, 0.50000 s/step, steady")


def test_the_part_of_a_device_is_unknown_without_devices_and_accumulation():
    facts = {"global_batch_size": 2048, "batch_size": 1, "sequence_length": 2048}
    log = answered(steady_windows(), facts=facts | {"unit": "samples/s"})
    assert log.answer.tokens.of_all == pytest.approx(2048 * 2048 / 0.5)
    assert log.answer.tokens.per_device is None
    assert lacking_text(log) == "The throughput of one device needs -p devices N."


def test_padded_sequences_are_not_counted_as_tokens():
    log = answered(steady_windows(), facts=PADDED)
    assert log.answer.samples.per_device == pytest.approx(4 / 0.5)
    assert log.answer.tokens is None


def test_the_share_of_the_peak_is_told_with_its_formula_and_source():
    facts = LANGUAGE_MODEL | {"parameters": 8_000_000_000, "gpu": "H100", "precision": "bf16"}
    answer = answered(steady_windows(), facts=facts).answer
    assert answer.model.tflops_per_device == pytest.approx(16384 * 6 * 8e9 / 1e12)
    assert answer.model.mfu == pytest.approx(16384 * 6 * 8e9 / 989.5e12)
    speed, source = model_texts(answer.model)
    assert speed == (
        "786.4 TFLOP/s per device, MFU 79.5 % of 989.5 TFLOP/s (H100 80GB HBM3, bf16)"
    )
    assert source.startswith("6 N = 4.8e10 FLOPs per token; peak: NVIDIA H100 datasheet")


@pytest.mark.parametrize(("parameters", "is_possible"), [(8e9, True), (12e9, False)])
def test_a_share_over_the_peak_is_a_finding(parameters, is_possible):
    facts = LANGUAGE_MODEL | {"parameters": int(parameters), "gpu": "H100"}
    log = answered(steady_windows(), facts=facts)
    assert ("impossible" not in codes(log.findings)) == is_possible


@pytest.mark.parametrize("mixture", [{"experts": 8}, {"sparse_parameters": 6_000_000_000}])
def test_a_mixture_of_experts_has_no_flops_by_all_its_parameters(mixture):
    facts = LANGUAGE_MODEL | {"parameters": 8_000_000_000, "gpu": "H100"} | mixture
    log = answered(steady_windows(), facts=facts)
    assert log.answer.tokens.per_device == pytest.approx(16384)
    assert log.answer.model is None
    assert log.findings[0].finding.text() == (
        "No TFLOP/s or MFU by parameters: the log's 8,000,000,000 count every expert of the "
        "mixture; give the active parameters by -p parameters N."
    )


MIXTURE = (
    '[titan] 2026-02-03 04:05:06,100 - root - INFO - {"dim": 64,\n'
    '"num_experts": 8,\n'
    "[titan] 2026-02-03 04:05:07,100 - root - INFO - Model tiny size: 8,000,000 total "
    "parameters\n"
    "[titan] 2026-02-03 04:05:08,100 - root - INFO - Trainer is initialized with local batch "
    "size 2, global batch size 4, gradient accumulation steps 1, sequence length 256\n"
)


def test_stated_parameters_are_those_that_a_token_uses(audited):
    text = MIXTURE + SUITES["torchtitan"].text(HALF_A_SECOND)
    assert audited(text).answer.model is None
    log = audited(text, parameters=2_000_000)
    assert log.answer.model.flops_per_token == 6 * 2_000_000
    assert "every_expert_counted" not in codes(log.findings)


def test_attention_counts_if_the_models_sizes_are_known():
    model = answered(steady_windows(), facts=SIZED).answer.model
    assert model.flops_per_token == 6 * 8e9 + 12 * 32 * 4096 * 2048
    speed, formula = model_texts(model)
    assert speed == "839.2 TFLOP/s per device"
    assert (
        formula
        == "6 N + 12 L d T = 5.122e10 FLOPs per token (812.8 TFLOP/s with causal attention)"
    )


SIZED = LANGUAGE_MODEL | {"parameters": 8_000_000_000, "layers": 32, "hidden_size": 4096}
"""A model of 839.2 TFLOP/s, and 812.8 with causal attention."""


def printing(value):
    """Return an audited log whose steady steps print these TFLOP/s, and the others another."""
    rows = steady_windows()
    rows["printed0"] = [value / 3] * 4 + [value] * 36
    log = make_log(rows, facts=SIZED)
    log.printed = (DeclaredQuantity("flops", "TFLOP/s", "device", "printed0"),)
    return recomputed(log).log


@pytest.mark.parametrize(
    ("factor", "is_told"), [(0.6, True), (0.7, False), (1.4, False), (1.6, True)]
)
def test_flops_far_from_those_that_a_log_prints_are_a_finding(factor, is_told):
    log = printing(839.2 * factor)
    assert ("own_flops_differ" in codes(log.findings)) == is_told


def test_without_a_batch_size_steps_are_answered_and_the_option_is_named(audited):
    log = audited(WITHOUT_BATCH)
    assert answer_text(log) == "2.0000 steps/s, 0.50000 s/step, steps 21–120"
    assert "-p batch_size N -p devices N" in lacking_text(log)


def test_a_printed_rate_is_answered_if_the_batch_is_unknown(audited):
    lines = (
        f"[batch={step}/99]: time/train: {step / 3600:.6f} "
        f"throughput/device/tokens_per_sec: 3222 loss/train/total: 2.5"
        for step in range(1, 60)
    )
    answer = audited("\n".join([*lines, ""])).answer
    assert answer.tokens.per_device == 3222
    assert answer.rate_name == "throughput/device/tokens_per_sec"


def ocr_lines(seconds, rate=320):
    """Lines of PaddleOCR, one every ten steps of so many seconds."""
    for index in range(40):
        at = datetime(2024, 8, 6, 18, 0) + timedelta(seconds=round(10 * seconds * index))
        yield (
            f"[{at:%Y/%m/%d %H:%M:%S}] ppocr INFO: epoch: [1/2], "
            f"global_step: {10 * index + 10}, loss: {9 - index / 10:.2f}, ips: {rate} samples/s"
        )


def test_the_answer_is_the_time_that_passed_where_printed_times_differ(audited):
    log = audited("\n".join([*ocr_lines(0.4), ""]), batch_size=64)
    assert log.answer.basis == "clock"
    assert log.answer.samples.per_device == pytest.approx(160)
    assert log.answer.seconds_by_prints == pytest.approx(0.2)
    assert log.findings[0].code == "clock_differs"
    assert log.findings[0].finding.difference == pytest.approx(1)


def test_a_printed_rate_that_the_clock_confirms_is_the_answer(audited):
    log = audited("\n".join([*ocr_lines(0.2), ""]), batch_size=64)
    assert log.answer.basis == "printed"
    assert log.answer.seconds_by_clock == pytest.approx(0.2)
    assert "clock_differs" not in codes(log.findings)


def test_a_rate_without_a_batch_is_told_with_the_samples_that_it_makes(audited):
    log = audited("\n".join([*ocr_lines(0.4), ""]))
    assert lacking_text(log).startswith(
        "The printed rate makes 128.00 samples in the 0.40000 s"
    )


def test_a_change_of_level_is_told_with_both_rates(audited):
    lines = [f"iter {step}: loss 3, time 250.00ms" for step in range(1, 101)]
    lines += [f"iter {step}: loss 3, time 320.00ms" for step in range(101, 121)]
    log = audited("\n".join([*lines, ""]), global_batch_size=8)
    (finding,) = [each.finding for each in log.findings if each.code == "two_levels"]
    assert (finding.before, finding.after) == (pytest.approx(32), pytest.approx(25))


def test_epochs_are_no_steps(audited):
    rows = "".join(f"{epoch},{100.0 * epoch},1\n" for epoch in range(1, 21))
    log = audited(f"epoch,time,lr/pg0\n{rows}", "results.csv", batch_size=16, ranks=1)
    assert answer_text(log).startswith("100.00 s per epoch, epochs 2–20")
    assert log.figures == []


TRAINER_RESULTS = (
    '{"train_runtime": 857.5, "train_samples_per_second": 3.902, '
    '"train_steps_per_second": 0.003}'
)


def test_a_throughput_that_the_log_reports_is_named(audited):
    log = audited(TRAINER_RESULTS, "train_results.json")
    assert answer_text(log) == (
        "3.9020 samples/s, by the log's own “train_samples_per_second” of the whole training, "
        "evaluations included"
    )


def paused(pauses):
    """Return ms-swift's records of steps of 5 s, with pauses of 600 s before these steps."""
    lines, elapsed = [], 0
    for step in range(10, 401, 10):
        elapsed += 650 if step in pauses else 50
        record = {"loss": 400 / step, "global_step/max_steps": f"{step}/400"}
        record |= {"elapsed_time": f"{elapsed}s", "train_speed(iter/s)": step / elapsed}
        lines.append(json.dumps(record))
    result = {"train_runtime": elapsed, "train_samples_per_second": 2.5}
    return "\n".join([*lines, json.dumps(result)])


def test_pauses_are_told_also_beside_the_log_s_own_throughput(audited):
    for stated in ({}, {"global_batch_size": 16}):
        log = audited(paused({200}), "logging.jsonl", **stated)
        first = log.findings[0].finding
        assert (log.answer.basis == "reported") == (not stated)
        assert (first.code, first.places) == ("pauses", ["191–200"])
        without = {"steps/s": 0.2, "samples/s": 3.2}[first.unit]
        assert first.without == pytest.approx(without)
        assert answer_text(log).endswith(" with a pause")


# In a terminal.


@pytest.mark.parametrize("name", SUITES)
def test_each_format_is_answered_within_25_lines(name, tmp_path):
    path = tmp_path / ENDLESS_NAME
    path.write_text(SUITES[name].text(np.linspace(0.6, 0.5, 140), 5))
    lines = run(path).stdout.splitlines()
    assert "steps" in lines[0]
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80


def test_a_printed_quantity_is_a_row(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(SUITES["torchtitan"].text(HALF_A_SECOND))
    assert "tps tokens/s, one device 64.000 64.000 64.000" in on_one_line(run(path).stdout)


def written(folder, name="some.log", step_seconds=HALF_A_SECOND):
    """Write a log of a format with times and rates of one device; return its path."""
    path = folder / name
    path.write_text(SUITES["PaddleSeg"].text(step_seconds))
    return path


def test_all_shows_every_statistic_and_finding(audited, tmp_path):
    path = written(tmp_path)
    assert "harmonic mean" not in run(path).stdout
    everything = run(path, "--all").stdout
    assert "harmonic mean" in everything
    assert max(map(len, everything.splitlines())) <= 80
