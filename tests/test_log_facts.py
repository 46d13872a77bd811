"""Configurations that logs of language models tell, and what an audit makes of them."""

import re

import numpy as np
import pytest
from made.logs import SUITES, by_statistic, findings_of, make_log, windows

from perfkit.audit.auditing import audit
from perfkit.audit.config_facts import Facts
from perfkit.audit.parameters import stated_facts
from perfkit.audit.statements import ByName, ByRule, SourcedFact

PRINTS = SUITES["PaddleClas, static graph"].text(np.ones(20), 1)


def facts_of(text):
    """Return the facts in a text, with those that follow from them."""
    facts = Facts()
    facts.read([*enumerate(text.split("\n"), 1)])
    facts.derive(assumed={})
    return {name: fact.value for name, fact in facts.by_name.items()}


MEGATRON = """
using world size: 24, data-parallel size: 4, context-parallel size: 1, hierarchical \
context-parallel sizes: None, tensor-model-parallel size: 3, pipeline-model-parallel size: 2
  data_parallel_size .............................. 4
  expert_model_parallel_size ...................... 1
  ffn_hidden_size ................................. 512
  global_batch_size ............................... 40
  hidden_size ..................................... 96
  hidden_size_teacher ............................. None
  encoder_seq_length .............................. 128
  inference_max_seq_length ........................ 640
  micro_batch_size ................................ 2
  num_experts ..................................... None
  num_layers ...................................... 6
  num_layers_at_end_in_bf16 ....................... 1
  seq_length ...................................... 128
  transformer_pipeline_model_parallel_size ........ 2
  virtual_pipeline_model_parallel_size ............ None
  inprocess_active_world_size ..................... 99
  world_size ...................................... 24
"""
DEEPSPEED = """
[2026-01-05 10:00:00,123] [INFO] [launch.py:163:main] dist_world_size=6
[2026-01-05 10:00:01,123] [INFO] [config.py:1000:print]   gradient_accumulation_steps .. 5
[2026-01-05 10:00:01,123] [INFO] [config.py:1000:print]   train_batch_size ............. 90
[2026-01-05 10:00:01,123] [INFO] [config.py:1000:print]   train_micro_batch_size_per_gpu  3
[2026-01-05 10:00:01,123] [INFO] [config.py:1000:print]   world_size ................... 3
"""
DEEPSPEED_JSON = """
[2026-01-05 10:00:01,123] [INFO] [config.py:986:print_user_config]   json = {
    "train_batch_size": 90,
    "train_micro_batch_size_per_gpu": 3,
    "gradient_accumulation_steps": 5,
    "zero_optimization": {
        "stage": 2
    }
}
"""
TORCHTITAN = """
[titan] 2026-02-03 04:05:06,100 - root - INFO - Building device mesh with parallelism: \
pp=2, dp_replicate=1, dp_shard=3, cp=1, tp=2, ep=3, etp=1
[titan] 2026-02-03 04:05:07,100 - root - INFO - Model tiny size: 7,654,321 total parameters
[titan] 2026-02-03 04:05:08,100 - root - INFO - Trainer is initialized with local batch \
size 2, global batch size 18, gradient accumulation steps 3, sequence length 256, total steps 9
"""
HUGGING_FACE = """
***** Running training *****
  Num examples = 12,000
  Instantaneous batch size per device = 2
  Total train batch size (w. parallel, distributed & accumulation) = 1,280
  Gradient Accumulation steps = 8
  Number of trainable parameters = 3,456,789
"""
NANOCHAT = """
2026-02-03 04:05:06,100 - nanochat.common - INFO - Distributed world size: 4
Tokens / micro-batch / rank: 8 x 512 = 4,096
Tokens / micro-batch: 16,384
Total batch size 32,768 => gradient accumulation steps: 2
Number of parameters: 7,654,321
"""
LLM_C = """
| micro batch size B    | 4                                                  |
| sequence length T     | 256                                                |
| total batch size      | 8192                                               |
| max_sequence_length T | 1024                                               |
| num_layers L          | 3                                                  |
| channels C            | 48                                                 |
| num_parameters        | 654321                                             |
| num_processes         | 2                                                  |
=> setting grad_accum_steps=4
"""
NANO_GPT = """
Overriding: block_size = 256
tokens per iteration will be: 12,288
number of parameters: 10.65M
"""
MODDED = """
class Hyperparameters:
    batch_size : int = 6*32 # batch size, in sequences, across all devices
    device_batch_size : int = 16 # batch size, in sequences, per device
    sequence_length : int = 2*512 # sequence length, in tokens
"""
MAXTEXT = """
Num_devices: 6, shape (1, 1, 6)
Config param gradient_accumulation_steps: 1
Config param global_batch_size_to_train_on: 24
Config param max_target_length: 512
Config param num_experts: 4
Config param per_device_batch_size: 4.0
number parameters: 0.654 billion
"""
NEMO = (
    "DLL 2026-01-05 10:00:00.12 - PARAMETER "
    "cfg/micro_batch_size : 2 cfg/global_batch_size : 48 "
    "cfg/context_parallel_size : 1 cfg/tensor_model_parallel_size : 2 "
    "cfg/pipeline_model_parallel_size : 3 cfg/virtual_pipeline_model_parallel_size : 5 "
    "cfg/encoder_seq_length : 384 cfg/num_layers : 9 cfg/hidden_size : 72 "
    "cfg/data/seq_length : 384 \n"
    "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/24\n"
)


KEYS = """
2026-02-03 step:0 train_batch_tokens:524288 train_seq_len:1024 grad_accum_steps:2 warmup:5
Namespace(lr=0.0001, batch_size=6, epochs=300, rank=0)
| distributed init (rank 1): env://
| distributed init (rank 3): env://| distributed init (rank 0): env://
eval_cfg: --eval-batch-size 99 rollout.tensor_model_parallel_size=4
"""
VERL = """
{'trainer': {'n_gpus_per_node': 8, 'nnodes': 2}, 'model': {'num_experts_per_tok': 6}}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            MEGATRON,
            "ranks=24 data_parallel_size=4 tensor_parallel_size=3 pipeline_parallel_size=2 "
            "context_parallel_size=1 global_batch_size=40 batch_size=2 accumulate=5 "
            "sequence_length=128 layers=6 hidden_size=96",
        ),
        (DEEPSPEED, "ranks=6 global_batch_size=90 batch_size=3 accumulate=5"),
        (DEEPSPEED_JSON, "ranks=6 global_batch_size=90 batch_size=3 accumulate=5"),
        (
            TORCHTITAN,
            "ranks=12 data_parallel_size=3 global_batch_size=18 batch_size=2 accumulate=3 "
            "sequence_length=256 parameters=7654321",
        ),
        (
            HUGGING_FACE,
            "ranks=80 global_batch_size=1280 batch_size=2 accumulate=8 parameters=None",
        ),
        (
            NANOCHAT,
            "ranks=4 tokens_per_update=32768 sequence_length=512 global_batch_size=64 "
            "batch_size=8 accumulate=2 parameters=7654321",
        ),
        (
            LLM_C,
            "ranks=2 global_batch_size=32 sequence_length=256 accumulate=4 parameters=654321 "
            "layers=3 hidden_size=48",
        ),
        (NANO_GPT, "global_batch_size=48 sequence_length=256 parameters=10650000"),
        (MODDED, "global_batch_size=192 batch_size=16 sequence_length=1024"),
        (
            MAXTEXT,
            "ranks=6 global_batch_size=24 batch_size=4 sequence_length=512 "
            "parameters=654000000 experts=4",
        ),
        (
            NEMO,
            "ranks=24 data_parallel_size=4 global_batch_size=48 batch_size=2 accumulate=6 "
            "sequence_length=384 layers=9 hidden_size=72",
        ),
        (
            KEYS,
            "tokens_per_update=524288 sequence_length=1024 global_batch_size=512 accumulate=2 "
            "batch_size=6 ranks=4 tensor_parallel_size=None",
        ),
        (VERL, "devices=8 nodes=2 ranks=16 experts=None"),
        ("openrec INFO: run with torch 2.2.0 and device cuda:0", "framework=torch"),
        ("  num_experts ................ [6]", "experts=6"),
        ("loading Mixtral-6x3B-Instruct", "experts=6"),
        (
            "Total parameter count: dense 1,234, sparse 7,654, active 9",
            "sparse_parameters=7654",
        ),
        ("Total parameter count: dense 1,234, sparse 0", "sparse_parameters=None"),
        ("Updating keys from model: ['a', 'num_experts']", "architecture=mixture of experts"),
    ],
)
def test_configurations_are_read_as_each_suite_prints_them(text, expected):
    facts = facts_of(text)
    for name, value in re.findall(r"(\w+)=(.+?)(?= \w+=|$)", expected):
        assert str(facts.get(name)) == value, name


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("  bf16 ............ True\n  fp16 ............ False", "bf16"),
        ("  bf16 ............ False\n  fp16 ............ True", "amp"),
        ("TrainingArguments(\nbf16=True,\nfp16=False,\n", "bf16"),
        ("[config.py:1000:print]   bfloat16_enabled ............. True", "bf16"),
        ("Namespace(amp=False, fp16=False, bf16=True)", "bf16"),
        ("Namespace(local_rank=0, fp16=False)", "fp32"),
        ("torchrun train.py --bf16 --fp16 False", "bf16"),
        ("trainer.precision: bf16-mixed", "bf16"),
        ("use_amp : True\nuse_pure_fp16 : True", "pure_fp16"),
    ],
)
def test_the_flag_that_is_set_tells_the_precision(text, precision):
    assert facts_of(text)["precision"] == precision


def rank_line(tensor, pipeline, count):
    place = f"({tensor}, {pipeline})"
    return (
        f" > number of parameters on (tensor, pipeline) model parallel rank {place}: {count}\n"
    )


@pytest.mark.parametrize(
    ("further", "parameters"),
    [
        (rank_line(1, 1, 51), 242),
        ("", None),
        ("  expert_model_parallel_size .... 4\n" + rank_line(1, 1, 51), None),
    ],
)
def test_a_models_parameters_are_the_sum_over_all_of_its_parallel_ranks(further, parameters):
    sizes = "tensor_model_parallel_size ... 2\npipeline_model_parallel_size ... 2\n"
    ranks = [(0, 0, 70), (1, 0, 70), (0, 1, 51), (0, 0, 70)]
    lines = "".join(rank_line(*rank) for rank in ranks)
    assert facts_of(sizes + lines + further).get("parameters") == parameters


# Several trainings, and facts that change.


def megatron(steps, seconds, ranks, first=1):
    """Return a training with its configuration: iterations of a global batch of 40."""
    text = f"  world_size ........ {ranks}\n  seq_length ........ 128\n"
    for step in range(first, first + steps):
        text += (
            f" iteration {step:8}/     500 | consumed samples: {40 * step} | elapsed time per "
            f"iteration (ms): {1000 * seconds} | global batch size:    40 | lm loss: 6.5 |\n"
        )
    return text


def test_each_training_of_a_file_is_a_row_and_the_longest_comes_first(write):
    path = write(megatron(30, 0.5, 8) + megatron(60, 0.25, 16) + megatron(30, 0.5, 8))
    found = audit([path]).logs
    assert [log.name.rpartition("#")[2] for log in found] == ["2", "1", "3"]
    tokens = [log.answer.tokens.of_all for log in found]
    assert tokens == pytest.approx([40 * 128 / 0.25, 40 * 128 / 0.5, 40 * 128 / 0.5])
    assert [log.fact("ranks") for log in found] == [16, 8, 8]
    notes = [[each.finding.text() for each in log.findings] for log in found]
    told = "The file has 3 trainings: this is the longest, steps 1–60; "
    assert [sum(text.startswith(told) for text in texts) for texts in notes] == [1, 0, 0]


def test_a_claim_about_a_file_of_several_trainings_is_about_the_longest(write):
    path = write(megatron(30, 0.5, 8) + megatron(60, 0.25, 16))
    (claim,) = audit([path], claim="20,480 tokens/s").claims
    assert claim.log == f"{path}#2"


def test_epochs_that_count_on_are_one_training(write):
    clas = SUITES["PaddleClas, static graph"]
    text = "".join(clas.text(np.ones(30), epoch=epoch) for epoch in range(3))
    assert len(audit([write(text)]).logs) == 1


def test_a_fact_holds_from_its_line_on(write):
    """The first launch failed before its first print."""
    path = write("  world_size ........ 64\nkilled\n" + megatron(30, 0.5, 16))
    (log,) = audit([path]).logs
    assert log.answer.tokens.per_device == pytest.approx(40 * 128 / 0.5 / 16)
    texts = [each.finding.text() for each in log.findings]
    assert "ranks is 16 by line 3, but 64 by line 1: 16 is used." in texts


def test_a_fact_that_is_told_behind_the_prints_alone_counts_for_them(write):
    told, *rest = megatron(30, 0.5, 16).splitlines(keepends=True)
    path = write("".join([*rest, told, *rest, "  world_size ........ 99\n"]))
    assert [log.fact("ranks") for log in audit([path]).logs] == [16, 16]


# Accelerators without a datasheet.


@pytest.mark.parametrize(("peak", "mfu"), [({}, None), ({"peak_tflops": "400"}, 0.256)])
def test_an_unknown_accelerator_loses_only_what_needs_its_peak(write, peak, mfu):
    stated = {"gpu_model": "Ascend 910B", "parameters": "1e9", **peak}
    path = write(megatron(30, 0.5, 16).replace("128", "12800"))
    (log,) = audit([path], stated=stated_facts(stated.items())).logs
    model = log.answer.model
    assert model.tflops_per_device == pytest.approx(6e9 * 40 * 12800 / 0.5 / 16 / 1e12)
    assert model.mfu == (None if mfu is None else pytest.approx(model.tflops_per_device / 400))


# Samples of a step.


PARALLEL = {
    "ranks": 24,
    "batch_size": 2,
    "accumulate": 5,
    "tensor_parallel_size": 3,
    "pipeline_parallel_size": 2,
}


@pytest.mark.parametrize(
    ("facts", "step", "samples"),
    [
        (PARALLEL | {"global_batch_size": 40}, "update", 40),
        (PARALLEL | {"global_batch_size": 40}, "batch", 40 / 5),
        (PARALLEL, "update", 4 * 2 * 5),
        ({"unit": "tokens/s", "tokens_per_update": 4096}, "update", 4096),
    ],
)
def test_the_samples_of_a_step_follow_from_the_facts(facts, step, samples):
    log = make_log(windows(12, seconds=20.0), facts=facts, step=step)
    figure = by_statistic(log)["samples/time", "all"]
    assert figure.throughput == pytest.approx(samples / 2)
    ranks = facts.get("ranks")
    assert figure.per_device == (ranks and pytest.approx(samples / 2 / ranks))


# File names.


def test_a_batch_that_follows_from_the_log_wins_over_the_name(read):
    text = "  global_batch_size ........ 64\nworld_size : 4\nGradient Accumulation steps = 1\n"
    log = read(text + PRINTS, "x_bs256.log")
    assert log.fact("batch_size") == 16
    assert isinstance(log.facts["batch_size"].by, ByRule)
    texts = [finding.text() for finding, _line in log.notes]
    formula = "global_batch_size / (ranks x accumulate)"
    assert f"batch_size is 16 by {formula}, but 256 by the file name: 16 is used." in texts


# Printed rates against batch x devices / time.


TRUE_RATE = 8 * 4 * 3 / 0.5
"""Samples per second of 8 devices with 4 samples in each of 3 batches, in steps of 0.5 s."""
ACCUMULATED = {"ranks": 8, "batch_size": 4, "accumulate": 3, "unit": "samples/s"}


def rate_log(rate, facts=ACCUMULATED):
    return make_log(windows(12, seconds=5.0, rate=rate), facts=facts, rate_of="all")


@pytest.mark.parametrize(("ratio", "is_told"), [(3, True), (1 / 8, True), (1.03, False)])
def test_a_rate_that_contradicts_the_batch_is_a_finding(ratio, is_told):
    found = findings_of(rate_log(ratio * TRUE_RATE))
    assert ("rate_contradicts_batch" in found) == is_told
    if is_told:
        assert found["rate_contradicts_batch"].finding.ratio == pytest.approx(ratio)


def test_a_batch_by_the_files_name_counts_nothing_against_a_printed_rate():
    log = rate_log(100.0, {"ranks": 8, "unit": "images/s"})
    log.facts["batch_size"] = SourcedFact(value=200, by=ByName())
    assert findings_of(log)["rate_contradicts_batch"].finding.named
    assert by_statistic(log)["samples/time", "all"].throughput == pytest.approx(100.0)
