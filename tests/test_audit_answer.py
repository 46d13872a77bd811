"""The answer of an audit: a log's throughput in one line, and what the command line states."""

import json
import re
from functools import partial

import numpy as np
import pytest
from conftest import cli
from log_writers import BATCH, SUITES
from made_logs import FACTS, codes, make_log, recomputed, windows

from perfkit.audit.answer import answer_of
from perfkit.audit.auditing import audit
from perfkit.audit.config_facts import with_stated_facts
from perfkit.audit.log import ReportedFigure
from perfkit.audit.log_ratios import (
    Blocks,
    log_ratios,
    log_scaling,
    ratio_interval_of_blocks,
    verdict_of,
)
from perfkit.audit.parameters import stated_facts
from perfkit.audit.printed import DeclaredQuantity, PrintedQuantity
from perfkit.audit.quantity import LogQuantity
from perfkit.audit.statements import (
    ByLine,
    ByRule,
    Contradiction,
    FewerSteps,
    InputWait,
    LineTooLong,
    NoLineEnd,
    Note,
    NulBytes,
    OtherFormat,
    ReportedBasis,
    SourcedFact,
)
from perfkit.report.audit_answer import answer_text, lacking_text, model_texts
from perfkit.report.audit_terminal import audit_text
from perfkit.report.audit_text import explanation_lines, finding_text
from perfkit.report.audited_logs import log_table

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
    assert (time.first, time.last, time.steps) == (21, 120, 100)
    assert time.prints == 100
    second_of_steps = 1 / time.steps
    assert time.mean_seconds == pytest.approx(1 / 7, abs=second_of_steps)
    assert time.median_seconds == pytest.approx(1 / 7)
    assert log.answer.seconds_per_step == time.mean_seconds
    assert log.answer.samples.of_all == pytest.approx(8 / time.mean_seconds)
    (coarse,) = [each.finding for each in log.findings if each.code == "coarse_clock"]
    assert coarse.share == pytest.approx(1 / 15), "a second of 15"
    assert coarse.seconds == pytest.approx(15)


def test_a_clock_of_seconds_is_not_coarse_for_steps_of_seconds(audited):
    log = audited(progress_bars(seconds_per_step=7))
    assert log.answer.basis == "clock"
    assert log.answer.seconds_per_step == pytest.approx(7)
    assert "coarse_clock" not in codes(log.findings)


@pytest.mark.parametrize("pause", [6.0, 6.37, 20.7])
def test_an_answer_without_pauses_is_told_also_by_a_clock_coarser_than_a_step(pause, audited):
    lines, seconds = [], 0.05
    for step in range(1, 1001):
        seconds += pause + 0.1 if step % 80 == 0 else 0.1
        minutes, second = divmod(int(seconds), 60)
        clock = f"{minutes:02d}:{second:02d}"
        lines.append(f"Epoch 0:  1%|#| {step}/1000 [{clock}<00:00, 10.00it/s, v_num=0]")
    log = audited("\n".join(lines), **stated_facts([("batch_size", "8"), ("devices", "1")]))
    (pauses,) = [each for each in log.findings if each.code == "pauses"]
    assert (pauses.line, pauses.finding.count) == (80, 12)
    # Each gap that is left out ends within a step of a tick.
    assert pauses.finding.without == pytest.approx(8 / 0.1, rel=12 / 1000)
    assert pauses.finding.share == pytest.approx(12 * pause / seconds, rel=0.02)


# Stated facts.

HALF_A_SECOND = np.full(140, 0.5)
WITHOUT_BATCH = SUITES["mmcv"].text(HALF_A_SECOND)
"""A log whose lines print times alone, 0.5 s for each step."""


@pytest.mark.parametrize(
    "text", ["8030000000", "8.03e9", "8,030,000,000", "8_030_000_000", "8.03B"]
)
def test_a_count_is_typed_in_common_spellings(text):
    assert stated_facts([("parameters", text)]) == {"parameters": 8_030_000_000}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-p", "batchsize", "8"], "did you mean batch_size? known: batch_size, global_"),
        (["-p", "tokens", "8"], "no fact of a log is called tokens; known: batch_size"),
        (["-p", "batch_size", "8.5"], "-p batch_size: 8.5 is no positive number"),
        (["-p", "devices", "many"], "-p devices: many is no positive number"),
        (["-p", "devices", "0"], "-p devices: 0 is no positive number"),
    ],
)
def test_what_is_no_fact_is_refused(words, why, tmp_path):
    done = run(tmp_path, *words)
    assert done.exit_code == 2
    assert why in on_one_line(done.stderr)


def test_stated_facts_give_a_throughput(audited):
    log = audited(WITHOUT_BATCH, batch_size=32, ranks=4)
    assert log.reference.per_device == pytest.approx(64)
    assert log.reference.throughput == pytest.approx(256)
    assert log.facts["batch_size"].by.text() == "the command line"


def test_a_stated_fact_wins_over_the_log(audited):
    text = (
        f"batch_size_per_gpu : 128 \n{SUITES['PaddleClas, static graph'].text(HALF_A_SECOND)}"
    )
    log = audited(text, batch_size=64)
    assert log.fact("batch_size") == 64
    texts = [located.finding.text() for located in log.findings]
    assert "batch_size is 64 by the command line, but 128 by line 1: 64 is used." in texts


def test_facts_that_follow_from_others_follow_from_stated_ones(audited):
    log = audited(SUITES["Megatron-LM"].text(HALF_A_SECOND), global_batch_size=256, ranks=8)
    assert log.fact("batch_size") == 32


def test_a_fact_by_no_formula_stays_beside_stated_ones():
    by = ByRule(how="sum of the ranks")
    facts = {"parameters": SourcedFact(value=1_235_881_984, by=by)}
    completed = with_stated_facts(facts, {"gpu": "H100"}).by_name
    assert completed["parameters"] == facts["parameters"]


def test_the_command_takes_stated_facts(tmp_path):
    path = tmp_path / "some.log"
    path.write_text(WITHOUT_BATCH)
    assert "64.000 samples/s per device" in run(path, "-p", "batch_size=32").stdout


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


def test_the_answer_is_of_the_steady_steps():
    answer = answered(steady_windows()).answer
    assert (answer.period, answer.first, answer.last) == ("steady", 41, 400)
    assert answer.seconds_per_step == pytest.approx(0.5)
    assert answer.samples.per_device == pytest.approx(256 / 0.5)
    assert answer.samples.of_all == pytest.approx(8 * 256 / 0.5)


def test_without_a_steady_state_the_answer_is_of_the_protocols_steps():
    answer = answered(windows(12, seconds=5.0)).answer
    assert (answer.period, answer.first, answer.last) == ("protocol", 21, 120)


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
    codes = {located.code for located in log.findings}
    assert ("impossible_utilization" not in codes) == is_possible


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


def test_one_expert_is_a_dense_model():
    facts = LANGUAGE_MODEL | {"parameters": 8_000_000_000, "experts": 1}
    log = answered(steady_windows(), facts=facts)
    assert log.answer.model.tflops_per_device == pytest.approx(16384 * 6 * 8e9 / 1e12)
    assert "every_expert_counted" not in codes(log.findings)


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


OF_MIXTURE = (
    "Updating keys from model: ['base_emb_dim', 'num_experts', 'num_experts_per_tok']\n"
    "Config param per_device_batch_size: 2.0\n"
    "Config param max_target_length: 256\n"
    "Num_devices: 4, shape (1, 4)\n"
    "number parameters: 0.654 billion\n"
)


def test_the_keys_of_a_mixture_count_unless_it_has_one_expert(audited):
    text = OF_MIXTURE + SUITES["MaxText"].text(HALF_A_SECOND)
    log = audited(text)
    assert log.answer.tokens.of_all
    assert log.answer.model is None
    assert "every_expert_counted" in codes(log.findings)
    assert audited(f"Config param num_experts: 1\n{text}").answer.model
    assert audited(text.replace("experts", "heads")).answer.model


def test_missing_steps_of_the_protocol_are_told_without_a_steady_state():
    of_steady = steady_windows()
    of_steady[["first", "last"]] += 200
    without = windows(6, seconds=5.0)
    assert answered(of_steady).answer.period == "steady"
    assert "fewer_steps" not in codes(answered(of_steady).findings)
    assert answered(without).answer.period != "steady"
    assert "fewer_steps" in codes(answered(without).findings)


def test_attention_counts_if_the_models_sizes_are_known():
    sizes = {"parameters": 8_000_000_000, "layers": 32, "hidden_size": 4096}
    model = answered(steady_windows(), facts=LANGUAGE_MODEL | sizes).answer.model
    assert model.flops_per_token == 6 * 8e9 + 12 * 32 * 4096 * 2048
    assert model.formula == "6 N + 12 L d T"
    assert model.causal_tflops_per_device == pytest.approx(
        16384 * (6 * 8e9 + 6 * 32 * 4096 * 2048) / 1e12
    )
    speed, formula = model_texts(model)
    assert speed == "839.2 TFLOP/s per device"
    assert (
        formula
        == "6 N + 12 L d T = 5.122e10 FLOPs per token (812.8 TFLOP/s with causal attention)"
    )


SIZED = LANGUAGE_MODEL | {"parameters": 8_000_000_000, "layers": 32, "hidden_size": 4096}
"""A model of 839.2 TFLOP/s, and 812.8 with causal attention."""


def printing(value, quantity="TFLOP/s", **facts):
    """Return an audited log whose steady steps print a value, and the others another."""
    rows = steady_windows()
    rows["printed0"] = [value / 3] * 4 + [value] * 36
    log = make_log(rows, facts=SIZED | facts)
    log.printed = (DeclaredQuantity("flops", quantity, "device", "printed0"),)
    return recomputed(log).log


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (838.5, []),
        (813.5, [" is 813.5 TFLOP/s over these steps: it counts attention causally."]),
        (700.5, [" is 700.5 TFLOP/s over these steps."]),
    ],
)
def test_the_flops_that_a_log_prints_stand_beside_the_answer(value, texts):
    _speed, *own, _formula = model_texts(printing(value).answer.model)
    assert own == [f"The log's own “flops”{text}" for text in texts]


def test_the_utilization_that_a_log_prints_stands_beside_the_answer():
    log = printing(37.5, "MFU", gpu="H100")
    speed, own, _formula = model_texts(log.answer.model)
    assert "MFU 84.8 %" in speed
    assert own == "The log's own “flops” is 37.5 % over these steps."
    assert "flops_apart" not in codes(log.findings)


@pytest.mark.parametrize("is_reported", [False, True])
def test_flops_of_the_answer_s_steps_are_not_compared_with_an_answer_of_others(is_reported):
    rows = steady_windows()
    rows["printed0"], rows["printed1"] = 9000.0, 300.0
    facts = {name: value for name, value in SIZED.items() if name != "batch_size"}
    own = ReportedFigure("train throughput", 9000.0, "9000", 41, is_rate=True)
    log = make_log(rows, facts=facts, reported=[own] * is_reported)
    log.printed = (DeclaredQuantity("flops", "TFLOP/s", "device", "printed1"),)
    if not is_reported:
        tps = DeclaredQuantity("tps", "tokens/s", "device", "printed0")
        log.printed = (tps, *log.printed)
    without_comparison = recomputed(log).log
    answer = without_comparison.answer
    assert (answer.basis == "reported") == is_reported
    assert bool(answer.rate_name) != is_reported
    assert answer.model.tflops_per_device > 1.5 * 300
    assert answer.model.own is None
    assert "flops_apart" not in codes(without_comparison.findings)


@pytest.mark.parametrize(
    ("factor", "is_told"), [(0.25, True), (0.6, True), (0.7, False), (1.4, False), (1.6, True)]
)
def test_flops_far_from_those_that_a_log_prints_are_a_finding(factor, is_told):
    log = printing(839.2 * factor)
    assert ("flops_apart" in codes(log.findings)) == is_told


def test_the_finding_about_flops_tells_both_numbers_and_blames_neither():
    (located,) = [each for each in printing(209.8).findings if each.code == "flops_apart"]
    assert located.finding.text() == (
        "The answer's 839.2 TFLOP/s are 4.00 times the log's own 209.8 (“flops”): the "
        "parameters (of experts: the active ones), the batch, the devices or the log's number "
        "may be wrong."
    )


def test_without_a_batch_size_steps_are_answered_and_the_option_is_named(audited):
    log = audited(WITHOUT_BATCH)
    (finding,) = [each.finding for each in log.findings if each.code == "no_batch_size"]
    assert finding.text().endswith("are unknown: give the batch size by -p batch_size N.")
    assert answer_text(log) == "2.0000 steps/s, 0.50000 s/step, steps 21–120"
    assert "-p batch_size N -p devices N" in lacking_text(log)


def test_a_printed_rate_is_answered_if_the_batch_is_unknown(tmp_path):
    (log,) = audit([written(tmp_path)]).logs
    answer = answer_of([], log.step_times, {}, [quantity("tps")])
    assert answer.tokens.per_device == 3222
    assert answer.rate_name == "tps"
    text = answer_text(log.model_copy(update={"answer": answer}))
    assert text.startswith("3222.0 tokens/s per device, as printed, 0.50000 s/step")


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
    by_another = log.answer.model_copy(update={"name": "total_ips"})
    text = answer_text(log.model_copy(update={"answer": by_another}))
    assert text == "3.9020 samples/s, by the log's own “total_ips”"


@pytest.mark.parametrize("claim", ["0.003", "0.003 steps/s"])
def test_the_steps_per_second_that_the_log_reports_reproduce_a_claim(tmp_path, claim):
    path = tmp_path / "train_results.json"
    path.write_text(TRAINER_RESULTS)
    done = run(path, "--claim", claim)
    assert done.exit_code == 0
    assert f"{claim}  reproduced" in done.stdout
    text = on_one_line(done.stdout)
    assert "= the log's own “train_steps_per_second”: 0.00300000 steps/s" in text
    assert "->" not in text
    assert run(path, "--claim", claim.replace("3", "4")).exit_code == 1


@pytest.mark.parametrize(
    ("claim", "is_reproduced"),
    [("1.8", True), ("1.82", True), ("1.81", True), ("1.9", False), ("1.817", False)],
)
def test_reported_steps_per_second_have_a_claim_s_digits_rounded_or_truncated(
    claim, is_reproduced, tmp_path
):
    path = tmp_path / "train_results.json"
    path.write_text(TRAINER_RESULTS.replace("0.003", "1.816"))
    (checked,) = audit([path], claim=claim).claims
    assert (checked.state == "reproduced") == is_reproduced
    assert codes(checked.findings) == ({"truncated"} if claim == "1.81" else set())


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
        text = finding_text(first, {})
        if stated:
            assert "of the answer's time" in text
            assert text.endswith("without it, the answer is 3.20000 samples/s.")
        else:
            assert "of the time of steps 11–400" in text
            assert text.endswith("without it, they run at 0.200000 steps/s.")


def test_a_warm_up_among_steps_that_are_not_the_answer_s_is_told_of_these():
    reported = ReportedFigure("train_samples_per_second", 2.5, "2.5", 13, is_rate=True)
    rows = windows(12, 1, seconds=[16.0] + [8.0] * 11)
    log = answered(rows, facts={}, reported=[reported])
    assert log.answer.basis == "reported"
    texts = [finding_text(each.finding, {}) for each in log.findings]
    assert texts[0] == (
        "Steps 1–12 include the warm-up: the first takes 2.0 times the median of the others. "
        "Without it, they run at 0.125000 steps/s."
    )


def test_a_pause_takes_no_part_of_a_median_of_printed_rates():
    rows = windows(40, seconds=np.array([5.0] * 30 + [50.0] + [5.0] * 9))
    rows["printed0"] = 100.0
    log = make_log(rows, facts={})
    log.printed = (DeclaredQuantity("tps", "tokens/s", "device", "printed0"),)
    audited_rate = recomputed(log).log
    assert audited_rate.answer.rate_name == "tps"
    (pause,) = [each.finding for each in audited_rate.findings if each.code == "pauses"]
    assert (pause.without, pause.unit) == (pytest.approx(2.0), "steps/s")


def test_the_first_line_names_pauses_and_the_warm_up_among_its_steps(audited):
    assert answer_text(audited(paused({200, 300}), "x.jsonl")).endswith(" with pauses")
    assert answer_text(audited(paused(()), "y.jsonl")).endswith("–400")
    cold = answered(windows(12, 1, seconds=[16.0] + [8.0] * 11))
    assert answer_text(cold).endswith("steps 1–12 with the warm-up")
    for pauses, text in ({13: 80.0}, "a pause"), ({10: 80.0, 13: 80.0}, "pauses"):
        seconds = [16.0, *(pauses.get(step, 8.0) for step in range(2, 20))]
        both = answered(windows(19, 1, seconds=seconds))
        assert answer_text(both).endswith(f"steps 1–19 with the warm-up and {text}")


def test_throughputs_of_several_models_are_a_table(tmp_path):
    figures = []
    for number in range(20):
        reported = ReportedFigure(f"model{number}", 100.0 + number, "9", number, is_rate=True)
        figures.append(reported)
    log = answered(reported=figures).model_copy(update={"of_several": True, "answer": None})
    lines = checked_lines(in_terminal(log, tmp_path))
    assert lines[0] == "The file has throughputs of several models or nodes."
    assert "model7 856.000 107.000" in on_one_line(" ".join(lines))
    assert "and 12 more" in lines


def of_models(names, tmp_path):
    """Return what the terminal shows of a file with throughputs under these names."""
    figures = []
    for number, name in enumerate(names):
        figures.append(ReportedFigure(name, 100.5 + number, "9", number, is_rate=True))
    log = answered(facts={"unit": "images/s"}, reported=figures)
    several = log.model_copy(update={"of_several": True, "answer": None})
    return "\n".join(checked_lines(in_terminal(several, tmp_path)))


def test_throughputs_of_several_models_have_whole_names_and_a_unit(tmp_path):
    models = [f"densenet_models/pytorch-densenet{size}/throughput_train" for size in (169, 201)]
    text = of_models([f"{model}_float32 (median of 3)" for model in models], tmp_path)
    assert "reported by the log (images/s, median of 3)" in text
    assert on_one_line(f"{models[0]}_float32 100.500 {models[1]}_float32 101.500") in (
        on_one_line(text)
    )


def test_only_parentheses_at_the_end_of_all_names_are_told_in_the_heading(tmp_path):
    models = ["resnet (v1) train", "resnet (v2) train"]
    text = on_one_line(of_models([f"{model} (median of 3)" for model in models], tmp_path))
    assert "reported by the log (images/s, median of 3)" in text
    assert "resnet (v1) train 100.500 resnet (v2) train 101.500" in text
    inside = on_one_line(of_models(["resnet (v1) train", "vgg (v1) train"], tmp_path))
    assert "reported by the log (images/s) " in inside


def test_names_that_differ_in_their_middle_alone_are_told_whole(tmp_path):
    text = of_models([f"{'a' * 60}{size:02}{'b' * 60}" for size in range(20)], tmp_path)
    assert f"{'a' * 60}03" in text
    assert "and 16 more" in text


def test_a_reported_figure_with_a_long_name_keeps_its_value(audited, tmp_path):
    log = audited(WITHOUT_BATCH)
    reported = {ENDLESS_NAME: "114.59"}
    text = in_terminal(log.model_copy(update={"reported": reported}), tmp_path)
    assert "_bs32.log 114.59" in on_one_line(text)


def test_no_option_is_named_where_nothing_lacks(audited):
    assert lacking_text(audited(WITHOUT_BATCH, batch_size=32, ranks=4)) == ""


def test_the_devices_are_asked_for_if_only_they_lack(audited):
    text = lacking_text(audited(WITHOUT_BATCH, batch_size=32))
    assert text == "The throughput of all devices needs -p devices N."


# In a terminal.


def checked_lines(text):
    """Return the lines of an audit of a single log, at most 25 of at most 80 columns."""
    lines = text.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    return lines


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("file", ["some.log", ENDLESS_NAME])
def test_each_format_is_answered_within_25_lines(name, file, tmp_path):
    path = tmp_path / file
    path.write_text(SUITES[name].text(np.linspace(0.6, 0.5, 140), 5))
    first, *_others = checked_lines(run(path).stdout)
    assert "steps" in first


@pytest.fixture
def endless():
    """A log with hundreds of findings, facts, printed quantities and reported figures, all with
    long names."""
    notes = [Note(LineTooLong(characters=100_000), line) for line in range(1, 301)]
    by = ByLine(line=1)
    contradiction = Contradiction(
        name=ENDLESS_NAME, value=ENDLESS_NAME, by=by, other=ENDLESS_NAME, whom=by
    )
    others = [OtherFormat(format=ENDLESS_NAME), contradiction, InputWait(share=0.5)]
    others += [NulBytes(count=3), NoLineEnd(), FewerSteps(steps=1, first=21, last=120)]
    notes += [Note(finding) for finding in others]
    log = answered(steady_windows(), notes=notes, name=ENDLESS_NAME)
    printed = [quantity(f"{number} {ENDLESS_NAME}") for number in range(40)]
    facts = {f"fact{number}": log.facts["model"] for number in range(300)}
    reported = {f"{ENDLESS_NAME} {number}": ENDLESS_NAME for number in range(40)}
    return log.model_copy(
        update={"printed": printed, "facts": log.facts | facts, "reported": reported}
    )


def quantity(name):
    """Return rates that a log printed under this name."""
    return PrintedQuantity(
        name=name, quantity="tokens/s", of="device", count=9, first=12.5, median=3222, last=3200
    )


def in_terminal(log, tmp_path):
    """Return the text of an audit of this log alone."""
    return audit_text(audit([written(tmp_path)]).model_copy(update={"logs": [log]}))


def test_hundreds_of_findings_are_counted_by_code(endless, tmp_path):
    text = in_terminal(endless.model_copy(update={"printed": []}), tmp_path)
    assert "line_too_long: line 1: " in text
    assert "(and 299 more)" in on_one_line(text)


def test_a_log_with_much_to_tell_is_answered_within_25_lines(endless, tmp_path):
    lines = checked_lines(in_terminal(endless, tmp_path))
    assert lines[0] == answer_text(endless)
    text = on_one_line(" ".join(lines))
    assert "(and 299 more)" in text
    assert "more findings: 1 " in text


def written(folder, name="some.log", step_seconds=HALF_A_SECOND):
    """Write a log of a format with times and rates of one device; return its path."""
    path = folder / name
    path.write_text(SUITES["PaddleSeg"].text(step_seconds))
    return path


def test_a_file_of_many_trainings_is_told_within_25_lines(endless, tmp_path):
    logs = [endless.model_copy(update={"name": f"x.log#{part}"}) for part in range(1, 101)]
    whole = audit([written(tmp_path)]).model_copy(update={"logs": logs})
    lines = checked_lines(audit_text(whole))
    assert "and 92 more trainings (--all shows them)" in lines


def test_all_shows_every_statistic_and_finding(audited, tmp_path):
    path = written(tmp_path)
    assert "harmonic mean" not in run(path).stdout
    everything = run(path, "--all").stdout
    assert "harmonic mean" in everything
    assert max(map(len, everything.splitlines())) <= 80


def test_a_printed_quantity_is_a_row(tmp_path):
    (log,) = audit([written(tmp_path)]).logs
    text = in_terminal(log.model_copy(update={"printed": [quantity("tps")]}), tmp_path)
    assert "tps tokens/s, one device 12.500 3222.0 3200.0" in on_one_line(text)


def test_a_claim_that_one_line_prints_is_called_so(tmp_path):
    path = written(tmp_path, step_seconds=0.5 + 0.003 * (np.arange(140) * 7 % 13))
    rates = [float(rate) for rate in re.findall(r"ips: ([\d.]+)", path.read_text())]
    assert rates[4] not in (rates[0], rates[-1], max(rates))
    done = run(path, "--claim", f"{rates[4]:.6f}")
    assert done.exit_code == 0
    assert "printed by a single line" in done.stdout
    assert "one_line: line 5: Printed lines with this number: 1, first" in done.stdout
    other = run(path, "--claim", f"{rates[4] + 0.001:.6f}")
    assert other.exit_code == 1
    assert "not reproduced" in other.stdout


CLOSING = """{'eval_samples_per_second': 1,234.56, 'eval_loss': 2.345}
Average speed of the validation 777.5 img/s
2026-01-02 03:04:55.625 | loss 0.1 | 987.25
best after 3 epochs
"""
"""Lines of a log that say nothing about its training steps."""


@pytest.mark.parametrize(
    ("claim", "line", "words"),
    [
        ("1234.56", 1, "prints it as “eval_samples_per_second”, and"),
        ("1234.6 samples/s", 1, "prints it as “eval_samples_per_second”, and"),
        ("777.5", 2, "prints it as “speed of the validation”, and"),
        ("987.25", 3, "prints it, and no statistic of the training has it: 2026-01-02"),
    ],
)
def test_a_number_printed_in_another_line_is_told_with_the_line(tmp_path, claim, line, words):
    path = written(tmp_path)
    steps = path.read_text()
    path.write_text(steps + CLOSING)
    number = steps.count("\n") + line
    done = run(path, "--claim", claim)
    assert done.exit_code == 1
    assert f"{claim}  printed, not recomputed" in done.stdout
    assert f"printed_otherwise: Line {number} {words}" in on_one_line(done.stdout)


ARGUMENTS = """trace_buffer_size ............... 2000
tokens_per_second_buffer ........ 8777
seq_length 4096, validation at 7777.5 tokens/s
"""
"""Lines of arguments and of an evaluation."""


@pytest.mark.parametrize(
    ("claim", "state"),
    [
        ("2,000 TFLOP/s/GPU", "not reproduced"),
        ("8777 tokens/s", "not reproduced"),
        ("4096 tokens/s", "not reproduced"),
        ("7777.5 tokens/s", "printed otherwise"),
        ("7777.5 TFLOP/s", "not reproduced"),
        ("8777", "printed otherwise"),
    ],
)
def test_a_claim_with_a_unit_is_found_only_beside_its_unit_or_name(tmp_path, claim, state):
    path = written(tmp_path)
    path.write_text(path.read_text() + ARGUMENTS)
    words = [("sequence_length", "128"), ("parameters", "1e9")]
    (checked,) = audit([path], claim=claim, stated=stated_facts(words)).claims
    assert checked.state == state


@pytest.mark.parametrize("claim", ["1234.57", "1234", "55.625", "2026", "3", "234.56"])
def test_a_number_is_not_found_in_other_numbers_times_or_by_few_digits(tmp_path, claim):
    path = written(tmp_path)
    path.write_text(path.read_text() + CLOSING)
    (checked,) = audit([path], claim=claim).claims
    assert checked.state == "not reproduced"


def test_the_verdict_on_a_claim_comes_before_the_audit(tmp_path):
    output = run(written(tmp_path), "--claim", "12.5 samples/s/GPU").stdout
    assert output.startswith("The claim:")
    assert output.index("12.5 samples/s/GPU") < output.index("per device")


@pytest.mark.parametrize(("tried", "is_told"), [(1, False), (9, False), (10, True)])
def test_a_few_figures_tell_nothing_of_chance(tmp_path, tried, is_told):
    rate = LogQuantity(value=1.0, rounding=0.0, of="", basis=ReportedBasis(name="ips"))
    whole = audit([written(tmp_path)], claim="1 samples/s")
    claim = whole.claims[0].model_copy(
        update={"tried": tried, "chance": 1.0, "quantities": [rate]}
    )
    assert ("by chance" in "".join(explanation_lines(claim))) == is_told


# Several logs.


def logs_of(*factors, facts=({}, {}), count=60, noise=0.002):
    """Return logs of steps that take the usual time times a factor."""
    generator = np.random.default_rng(3)
    logs = []
    for index, factor in enumerate(factors):
        seconds = 5.0 * factor * generator.normal(1, noise, count)
        of_log = {**FACTS, **facts[index]}
        log = make_log(windows(count, seconds=seconds), facts=of_log, name=f"{index}.log")
        logs.append(recomputed(log))
    return logs


def judged(logs):
    ratios = [*log_ratios(logs)]
    return verdict_of([audited.log for audited in logs], ratios)


@pytest.mark.parametrize(
    ("factor", "noise", "code"),
    [
        (0.95, 0.002, "faster"),
        (1.05, 0.002, "slower"),
        (1.001, 0.002, "no_difference"),
        (1.0, 0.3, "cannot_tell"),
    ],
)
def test_two_logs_have_a_verdict(factor, noise, code):
    assert judged(logs_of(1.0, factor, noise=noise)).code == code


def test_a_verdict_is_one_sentence_with_its_interval():
    verdict = judged(logs_of(1.0, 0.95))
    assert verdict.share == pytest.approx(1 / 0.95 - 1, abs=0.001)
    assert verdict.low < verdict.share < verdict.high
    assert verdict.text().startswith("1.log is 5.")
    assert "faster than 0.log (95 % interval: +5" in verdict.text()


def test_few_lines_give_no_interval():
    verdict = judged(logs_of(1.0, 0.9, count=7))
    assert verdict.code == "too_few_lines"
    assert "0.log has only" in verdict.text() or "1.log has only" in verdict.text()


@pytest.mark.parametrize(
    ("facts", "code", "why"),
    [
        ({"unit": "tokens/s", "sequence_length": 9}, "other_units", "tokens/s, the other"),
        ({"model": "vgg16"}, "other_log_work", "(model vgg16 and resnet50)"),
        ({"batch_size": 0}, "unknown_throughput", "the throughput of 1.log is unknown"),
    ],
)
def test_other_units_and_other_work_are_not_compared(facts, code, why):
    verdict = judged(logs_of(1.0, 1.0, facts=({}, facts)))
    assert verdict.code == code
    assert why in verdict.text()


def test_an_unknown_unit_is_not_compared_with_another():
    base, other = logs_of(1.0, 1.0)
    answer = other.log.answer.model_copy(update={"unit": ""})
    unknown = other._replace(log=other.log.model_copy(update={"answer": answer}))
    verdict = judged([base, unknown])
    assert verdict.code == "other_units"
    assert (
        verdict.text() == "1.log and 0.log are not compared: one does not tell what it counts."
    )


def test_a_table_of_logs_names_no_unit_that_one_of_them_does_not_tell(tmp_path):
    whole = audit([written(tmp_path)])
    reported = ReportedFigure("data.rate", 100.0, "100.0", 1, is_rate=True)
    told = answered(steady_windows(), name="a.log")
    untold = answered(facts={"ranks": 8}, reported=[reported], name="b.log")
    assert log_table(whole, [told]).headings[:2] == ["devices", "images/s"]
    assert log_table(whole, [untold]).headings[:2] == ["devices", "throughput"]
    assert log_table(whole, [told, untold]).headings[:3] == ["unit", "devices", "throughput"]


def in_other_format(logs):
    """Return two logs, the second in another format."""
    base, other = logs
    return [base, other._replace(log=other.log.model_copy(update={"format": "other"}))]


def test_unknown_work_in_different_formats_is_not_compared():
    unknown = {"model": 0}
    logs = in_other_format(logs_of(1.0, 0.5, facts=(unknown, unknown)))
    for audited in logs:
        del audited.log.facts["model"]
    assert judged(logs).code == "other_formats"
    assert "their formats differ (other and made by hand)" in judged(logs).text()
    assert [*log_ratios(logs)] == []


def test_the_same_model_or_parameters_are_compared_across_formats():
    assert judged(in_other_format(logs_of(1.0, 0.5))).code == "faster"
    stated = {"parameters": 7}
    logs = in_other_format(logs_of(1.0, 0.5, facts=(stated, stated)))
    for audited in logs:
        del audited.log.facts["model"]
    assert judged(logs).code == "faster"


def test_different_benchmarks_of_mlperf_are_not_compared(tmp_path):
    paths = []
    for benchmark in ("gpt3", "retinanet"):
        path = tmp_path / f"{benchmark}.log"
        path.write_text(mlperf_text(benchmark))
        paths.append(path)
    whole = audit(paths)
    assert whole.ratios == []
    assert "benchmark retinanet and gpt3" in whole.verdict.text()


def mlperf_text(benchmark):
    """Return an MLPerf log of ten epochs."""
    events = [("submission_benchmark", benchmark), ("global_batch_size", 100)]
    events += [("train_samples", 40_000), ("run_start", None)]
    events += [("block_start", None)]
    events += [("epoch_start", None), ("epoch_stop", None)] * 10
    events += [("block_stop", None), ("run_stop", None)]
    lines = []
    for index, (key, value) in enumerate(events):
        event = {"event_type": "POINT_IN_TIME", "time_ms": 1000 * index, "key": key}
        event |= {"value": value, "metadata": {}}
        lines.append(f":::MLLOG {json.dumps(event)}\n")
    return "".join(lines)


def test_the_facts_in_which_two_logs_differ_are_named(tmp_path):
    one = written(tmp_path, "one_fp32_bs32.log")
    other = written(tmp_path, "other_amp_bs32.log", HALF_A_SECOND / 2)
    output = on_one_line(run(one, other).stdout)
    assert output.startswith("other_amp_bs32.log is 100 % faster than one_fp32_bs32.log")
    assert "They differ in precision fp32 and amp." in output


def test_scaling_is_a_share_of_the_ideal():
    facts = [{"devices": 1, "ranks": 1}, {"devices": 2, "ranks": 2}, {}]
    logs = [audited.log for audited in logs_of(1.0, 1.05, 1.25, facts=facts, noise=0.0)]
    shares = {scaling.devices: scaling.share for scaling in log_scaling(logs)}
    assert shares == pytest.approx({1: 1.0, 2: 1 / 1.05, 8: 0.8})


def test_two_logs_on_different_devices_are_judged_by_their_scaling():
    logs = logs_of(1.0, 1.25, facts=({"devices": 1, "ranks": 1}, {}))
    verdict = judged(logs)
    assert verdict.code == "scales"
    assert "on 8 times the devices, 80" in verdict.text()


def test_logs_of_other_batches_are_no_scaling():
    facts = [{"devices": 1, "ranks": 1, "batch_size": 128}, {}]
    assert [*log_scaling([audited.log for audited in logs_of(1.0, 1.0, facts=facts)])] == []


def test_intervals_of_few_blocks_cover_the_ratio_at_their_level():
    """Of 1000 pairs of logs without a difference, 95 % of the intervals have the ratio 1: 925
    or fewer have a probability of 0.0005."""
    generator = np.random.default_rng(11)
    covered = 0
    for _pair in range(1000):
        log, base = (Blocks(np.full(8, 10), generator.normal(5, 0.1, 8)) for _log in range(2))
        ratio = base.seconds_per_step() / log.seconds_per_step()
        interval = ratio_interval_of_blocks(ratio, log, base)
        covered += interval.low <= 1 <= interval.high
    assert covered > 925


def test_a_folder_is_a_table_of_at_most_80_columns(tmp_path):
    for number in (1, 2, 4, 8):
        name = f"{number}_{'long_' * 12}PaddleClas_ResNet50_bs32_fp32_DP_N1C{number}_log"
        written(tmp_path, name, HALF_A_SECOND * (1 + number / 100))
    lines = run(tmp_path).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    shares = [line.split()[-2] for line in lines if line.endswith(" %")]
    assert [float(share) for share in shares] == pytest.approx([100, 99.0, 97.1, 93.5], abs=0.1)


def test_an_audit_in_json_has_the_answer_and_the_ratios(tmp_path):
    paths = [written(tmp_path, name) for name in ("a.log", "b.log")]
    whole = audit(paths)
    assert whole.logs[0].answer.samples.per_device == pytest.approx(BATCH / 0.5)
    assert whole.ratios[0].ratio == pytest.approx(1)
    assert type(whole).model_validate_json(whole.model_dump_json()) == whole
