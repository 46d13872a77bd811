"""A claim without a log: what it means for each device, whether it is possible, and mistakes
that would explain it."""

import json

import pytest
from conftest import cli

from perfkit.audit.claim_alone import check_claim_alone
from perfkit.audit.parameters import stated_facts
from perfkit.report.claim_alone_text import claim_alone_text

LLAMA_8B = {
    "parameters": "8.03e9",
    "sequence_length": "8192",
    "gpu_model": "H100",
}
SHAPE = {"layers": "32", "hidden_size": "4096"}
SIX_N = 6 * 8.03e9
FULL = SIX_N + 12 * 32 * 4096 * 8192
H100 = 989.5e12


def checked(text, **stated):
    return check_claim_alone(text, stated_facts(stated.items()))


def reading(claim, of):
    (found,) = [reading for reading in claim.readings if reading.of == of]
    return found


def mistakes(claim):
    """Return the mistakes of the only reading by their codes."""
    (only,) = claim.readings
    return {mistake.code: mistake for mistake in only.mistakes}


def on_one_line(text):
    return " ".join(text.split())


# What a claim means.


def test_tokens_are_read_as_those_of_all_devices_and_of_one():
    claim = checked("21,900 tokens/s", devices="8", **LLAMA_8B)
    of_all, of_one = reading(claim, "all"), reading(claim, "device")
    assert of_all.tokens_per_device == pytest.approx(21900 / 8)
    assert of_all.samples_per_second == pytest.approx(21900 / 8192)
    assert of_one.tokens_per_second == pytest.approx(8 * 21900)
    (weights,) = of_all.utilizations
    assert weights.formula == "6 N"
    assert weights.tflops_per_device == pytest.approx(21900 / 8 * SIX_N / 1e12)
    assert weights.mfu == pytest.approx(21900 / 8 * SIX_N / H100)
    assert weights.sparse_mfu == pytest.approx(weights.mfu / 2)


def test_the_way_in_which_a_claim_is_possible_leads():
    claim = checked("21,900 tokens/s", devices="8", **LLAMA_8B)
    assert reading(claim, "all").verdict == "possible"
    assert reading(claim, "device").verdict == "impossible"
    first_sentence = claim.answer.text()
    assert first_sentence.startswith("Possible only as the number of all devices: each of 8")
    assert first_sentence.endswith("as the number of one device it would be 107 %.")


def test_a_claim_of_a_large_cluster_is_told_to_be_that_of_one_device():
    claim = checked("6400 tokens/s", devices="512", **LLAMA_8B)
    assert claim.verdict == "possible"
    assert claim.answer.text().startswith("Possible as the number of one device:")


def test_a_claim_that_is_possible_in_both_ways_says_so():
    claim = checked("6400 tokens/s", devices="8", **LLAMA_8B)
    assert "as that of one device, with 31.2 %" in claim.answer.text()
    assert {reading.verdict for reading in claim.readings} == {"possible"}


@pytest.mark.parametrize("stated", ["6400 tokens/s/GPU", "51,200 tokens/s total"])
def test_a_claim_that_says_what_it_is_of_is_read_in_that_way_alone(stated):
    (only,) = checked(stated, devices="8", **LLAMA_8B).readings
    assert only.tokens_per_device == pytest.approx(6400)


def test_each_formula_has_its_utilization():
    claim = checked("6400 tokens/s/GPU", **LLAMA_8B, **SHAPE)
    (only,) = claim.readings
    shares = {utilization.formula: utilization.mfu for utilization in only.utilizations}
    causal = SIX_N + 6 * 32 * 4096 * 8192
    assert shares == {
        "6 N + 12 L d T": pytest.approx(6400 * FULL / H100),
        "6 N + 6 L d T": pytest.approx(6400 * causal / H100),
        "6 N": pytest.approx(6400 * SIX_N / H100),
    }
    assert "(6 N + 12 L d T)" in claim.answer.text()


def test_a_batch_gives_the_steps():
    steps = {"devices": "8", "batch_size": "4"}
    (only,) = checked("6400 tokens/s/GPU", **LLAMA_8B, **steps).readings
    assert only.steps_per_second == pytest.approx(6400 * 8 / 8192 / 32)
    assert only.seconds_per_step == pytest.approx(1 / only.steps_per_second)


@pytest.mark.parametrize("text", ["2.56 s/step", "2560 ms/step", "0.390625 steps/s"])
def test_a_step_gives_the_tokens(text):
    steps = {"devices": "8", "global_batch_size": "16"}
    (only,) = checked(text, **LLAMA_8B, **steps).readings
    assert only.tokens_per_device == pytest.approx(16 * 8192 / 2.56 / 8)


def test_sequences_are_tokens_by_their_length():
    (only,) = checked("0.78125 sequences/s/GPU", **LLAMA_8B).readings
    assert only.tokens_per_device == pytest.approx(6400)


def test_teraflops_and_utilization_give_the_tokens_by_each_formula():
    share = 6400 * FULL / H100
    for text in (f"{share * 100} % MFU", f"{share * 989.5} TFLOP/s/GPU"):
        (only,) = checked(text, **LLAMA_8B, **SHAPE).readings
        full, _causal, weights = only.utilizations
        assert full.tokens_per_device == pytest.approx(6400)
        assert weights.tokens_per_device == pytest.approx(6400 * FULL / SIX_N)
        assert full.mfu == weights.mfu == pytest.approx(share)


# Verdicts.


def test_more_arithmetic_than_the_dense_peak_is_impossible():
    claim = checked("30,000 tokens/s/GPU", devices="8", **LLAMA_8B)
    assert claim.verdict == "impossible"
    assert claim.answer.text() == (
        "Impossible: one H100 80GB HBM3 does 1,445 TFLOP/s (6 N), 146 % of its dense peak."
    )


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(0.5, "implausible"), (1.01, "possible"), (79.9, "possible"), (80.1, "implausible")],
)
def test_a_share_far_from_published_trainings_is_implausible(share, verdict):
    assert checked(f"{share} % MFU", gpu_model="H100").verdict == verdict


@pytest.mark.parametrize(("share", "verdict"), [(100, "implausible"), (100.1, "impossible")])
def test_the_dense_peak_itself_is_the_limit(share, verdict):
    assert checked(f"{share} % MFU", gpu_model="B200").verdict == verdict


def test_the_precision_decides_the_peak():
    in_fp8 = {"gpu_model": "H100", "precision": "fp8"}
    assert checked("1200 TFLOP/s/GPU", gpu_model="H100").verdict == "impossible"
    assert checked("1200 TFLOP/s/GPU", **in_fp8).verdict == "possible"


def test_attention_in_full_alone_makes_nothing_impossible():
    # By 6 N it is 79.4 % of the dense peak, with attention in full 99 %.
    claim = checked("16,300 tokens/s/GPU", **LLAMA_8B, **SHAPE)
    full = claim.readings[0].utilizations[0]
    assert full.mfu > 0.9
    assert claim.verdict == "possible"
    assert "(6 N)" in claim.answer.text()


@pytest.mark.parametrize(
    ("parameters", "layers", "width"),
    [
        ("124e6", "12", "768"),
        ("8.03e9", "32", "4096"),
        ("1.24e9", "16", "2048"),
        ("494e6", "24", "896"),
        ("405e9", "126", "16384"),
    ],
)
def test_public_dense_models_do_not_contradict_their_shapes(parameters, layers, width):
    stated = {"parameters": parameters, "layers": layers, "hidden_size": width}
    claim = checked("40 % MFU", gpu_model="H100", **stated)
    assert claim.verdict == "possible"


def test_layers_that_do_not_give_the_parameters_are_a_contradiction():
    stated = {"parameters": "6.7e9", "layers": "12", "hidden_size": "768"}
    claim = checked("46.44 % MFU", gpu_model="H100", **stated)
    assert claim.verdict == "contradictory"
    assert claim.is_refuted
    assert "have about 84.9 million weights" in claim.answer.text()
    assert "not 6.70 billion" in claim.answer.text()


@pytest.mark.parametrize(
    ("text", "stated", "missing"),
    [
        ("6400 tokens/s/GPU", {}, ["-p gpu_model NAME", "-p parameters COUNT"]),
        ("6400 tokens/s", {"parameters": "1e9"}, ["-p gpu_model NAME"]),
        ("6400 tokens/s total", LLAMA_8B, ["-p devices COUNT"]),
        ("40 % MFU", {}, ["-p gpu_model NAME"]),
        (
            "3 sequences/s/GPU",
            {"gpu_model": "H100", "parameters": "1e9"},
            ["-p sequence_length TOKENS"],
        ),
    ],
)
def test_a_claim_that_cannot_be_judged_names_what_is_missing(text, stated, missing):
    claim = checked(text, **stated)
    assert claim.verdict == "not judged"
    assert claim.answer.missing == missing
    assert not claim.is_refuted


def test_a_utilization_above_100_percent_is_impossible_on_any_gpu():
    done = cli("audit", "--claim", "120 % MFU")
    assert done.exit_code == 1
    assert done.stdout.startswith("Impossible: 120 %")
    assert checked("100 % MFU").verdict == "not judged"


@pytest.mark.parametrize("text", ["2500 images/s", "2500 img/sec/GPU", "2500 fps"])
def test_images_are_not_judged_without_a_log(text):
    claim = checked(text, gpu_model="A100", devices="1")
    assert claim.verdict == "not judged"
    assert claim.answer.code == "images_not_judged"
    assert "-p" not in claim.answer.text()


# Mistakes.


def test_the_number_of_all_devices_taken_for_one_is_a_mistake():
    found = mistakes(checked("30,000 tokens/s/GPU", devices="8", **LLAMA_8B))
    assert found["all_for_one"].share == pytest.approx(30000 * SIX_N / H100 / 8)


def test_the_number_of_one_device_taken_for_all_is_a_mistake():
    found = mistakes(checked("6400 tokens/s total", devices="512", **LLAMA_8B))
    assert found["one_for_all"].share == pytest.approx(6400 * SIX_N / H100)


def test_the_peak_of_an_a100_for_an_unknown_gpu_is_a_mistake():
    claim = checked("563 % MFU", gpu_model="AMD Instinct MI355X")
    assert claim.verdict == "impossible"
    assert mistakes(claim)["other_peak"].gpu == "A100"
    assert mistakes(claim)["other_peak"].share == pytest.approx(5.63 * 312 / 2500)


def test_the_peak_with_sparsity_is_a_mistake():
    high = mistakes(checked("1500 TFLOP/s/GPU", gpu_model="H100"))
    low = mistakes(checked("0.9 % MFU", gpu_model="H100"))
    assert high["sparse_for_dense"].share == pytest.approx(1500 / 1979)
    # Twice 0.9 % is no plausible share, either.
    assert "dense_for_sparse" not in low


def test_accumulation_counted_twice_or_not_at_all_is_a_mistake():
    twice = mistakes(checked("30,000 tokens/s/GPU", **LLAMA_8B))
    never = mistakes(checked("100 tokens/s/GPU", **LLAMA_8B))
    assert twice["counted_again"].least == 2
    assert never["not_counted"].least == 11
    assert never["not_counted"].share == pytest.approx(11 * 100 * SIX_N / H100)


def test_flops_of_the_forward_pass_alone_are_a_mistake():
    found = mistakes(checked("30,000 tokens/s/GPU", **LLAMA_8B))
    assert found["forward_only"].share == pytest.approx(30000 * SIX_N / H100 / 3)


def test_recomputed_activations_are_a_mistake_in_flops():
    in_flops = mistakes(checked("85 % MFU", gpu_model="H100"))
    in_tokens = mistakes(checked("30,000 tokens/s/GPU", **LLAMA_8B))
    assert in_flops["recomputation"].share == pytest.approx(0.85 * 6 / 8)
    assert "recomputation" not in in_tokens


def test_a_mistake_that_explains_nothing_is_not_named():
    # 20 times the peak: neither sparsity nor recomputation brings it below the peak.
    found = mistakes(checked("20,000 TFLOP/s/GPU", gpu_model="H100"))
    assert found == {}


def test_a_possible_claim_has_no_mistakes():
    claim = checked("40 % MFU", gpu_model="H100")
    assert mistakes(claim) == {}
    assert "Mistakes" not in claim_alone_text(claim)


# Public questions; the facts are theirs.


def test_a_published_h100_rate_gives_the_published_utilization_by_the_dense_peak():
    # foundation-model-stack/fms-fsdp, question 89: 9,600 tokens/s/GPU, 46 % in the README, and
    # 24 % by a reader who took the peak with sparsity.
    llama_7b = {"parameters": "6.74e9", "layers": "32", "hidden_size": "4096"}
    claim = checked("9,600 tokens/s/GPU", sequence_length="4096", gpu_model="H100", **llama_7b)
    full = claim.readings[0].utilizations[0]
    assert full.mfu == pytest.approx(0.46, abs=0.01)
    assert full.sparse_mfu == pytest.approx(0.24, abs=0.015)


def test_an_mi355x_at_563_percent_had_the_peak_of_an_a100():
    # AMD-AGI/Primus, change 772.
    text = claim_alone_text(checked("563 % MFU", devices="8", gpu_model="MI355X"))
    assert text.startswith("Impossible: one MI355X does 14,075 TFLOP/s, 563 %")
    assert "an A100, 312.0 TFLOP/s" in on_one_line(text)


# The command.


def words(stated):
    return [word for pair in stated.items() for word in ("-p", *pair)]


def test_the_command_leads_with_the_answer_in_80_columns():
    done = cli("audit", "--claim", "21,900 tokens/s", *words({"devices": "8"} | LLAMA_8B))
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0].startswith("Possible only as the number of all devices")
    assert max(map(len, lines)) <= 80
    assert "MFU, 6 N 13.3 % 107 %" in on_one_line(done.stdout)
    assert "NVIDIA H100 datasheet" in on_one_line(done.stdout)


def test_the_mistakes_of_each_reading_are_told_apart():
    done = cli("audit", "--claim", "219,000 tokens/s", *words({"devices": "8"} | LLAMA_8B))
    headings = [line for line in done.stdout.splitlines() if line.startswith("Mistakes")]
    assert headings == [
        "Mistakes that would explain it as that of all:",
        "Mistakes that would explain it as that of one:",
    ]


@pytest.mark.parametrize(
    "stated",
    [
        {"gpu_model": "H100"},
        {"gpu_model": "B200", "parameters": "7e9", "layers": "1", "hidden_size": "64"},
    ],
)
def test_an_impossible_or_contradictory_claim_exits_with_1(stated):
    assert cli("audit", "--claim", "120 % MFU", *words(stated)).exit_code == 1


def test_an_implausible_claim_exits_with_0():
    assert cli("audit", "--claim", "90 % MFU", *words({"gpu_model": "H100"})).exit_code == 0


def test_the_json_has_every_reading_and_the_verdict(tmp_path):
    file = tmp_path / "claim.json"
    stated = {"devices": "8"} | LLAMA_8B
    cli("audit", "--claim", "30,000 tokens/s/GPU", *words(stated), "--json", file)
    claim = json.loads(file.read_text())
    assert claim["verdict"] == "impossible"
    assert claim["peak"]["dense_tflops"] == 989.5
    (only,) = claim["readings"]
    assert only["utilizations"][0]["mfu"] == pytest.approx(30000 * SIX_N / H100)
    assert claim["answer"]["code"] == "impossible"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "FILE: give a log or a folder of logs, or a claim"),
        (["--claim", "6400"], "6400 needs a unit"),
        (["--claim", "6400 bananas/s"], "needs a unit"),
        (["--claim", "5 minutes"], "only a log tells"),
        (["--claim", "1.3 s/step"], "add -p global_batch_size COUNT"),
        (["--claim", "40 % MFU", "-p", "gpu_model", "TPU"], "the peak of TPU is not known"),
        (["--claim", "40 % MFU", "-p", "gpu_mode", "H100"], "did you mean gpu_model"),
        (["--claim", "40 % MFU", "-p", "precision", "int4"], "allowed: fp32, tf32"),
        (["--claim", "40 % MFU", "--label", "x"], "--label: needs a FILE"),
        (["--claim", "40 % MFU", "--published", "perf-bert"], "--published: needs a FILE"),
    ],
)
def test_a_claim_that_cannot_be_read_is_refused(options, why):
    done = cli("audit", *options)
    assert done.exit_code == 2
    assert why in on_one_line(done.stderr)


@pytest.mark.parametrize("of", ["", "/GPU", " total"])
@pytest.mark.parametrize("value", ["1e-9", "0.001", "7", "1e15"])
@pytest.mark.parametrize("unit", ["tokens/s", "images/s", "TFLOP/s"])
def test_no_size_of_a_claim_breaks_the_arithmetic(value, unit, of):
    stated = LLAMA_8B | SHAPE | {"devices": "1000000000000000", "batch_size": "1"}
    claim = checked(f"{value} {unit}{of}", **stated)
    assert claim_alone_text(claim)
