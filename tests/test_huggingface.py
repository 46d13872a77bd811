"""Hugging Face's Trainer, timed by perfkit.time_trainer. Its trainings are tiny, and nothing is
downloaded."""

import json

import pytest
from script_rank import ScriptRank

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("processes")]

TRAINER = """
import json
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import perfkit


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 62

    def __getitem__(self, index):
        tokens = torch.arange(index, index + 8) % 32
        return {"input_ids": tokens, "labels": tokens}


def trainer_with(**arguments):
    size = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=2,
    )
    settings = {
        "output_dir": "trained", "max_steps": 100, "per_device_train_batch_size": 4,
        "save_strategy": "no", "report_to": "none", "dataloader_pin_memory": False,
        "disable_tqdm": True,
    }
    return Trainer(
        model=LlamaForCausalLM(size),
        args=TrainingArguments(**settings | arguments),
        train_dataset=Rows(),
        eval_dataset={"some": Rows(), "others": Rows()},
    )

"""
PARAMETERS = 2 * 32 * 16 + 4 * 16**2 + 3 * 16 * 48 + 3 * 16
"""Of the network above: embedding and head, attention, dense network, three norms."""


@pytest.fixture
def measured(tmp_path):
    """Runs a training as a rank of `perfkit run`: 2 steps of warm-up, 4 in the window."""

    def run(code):
        return ScriptRank(tmp_path, TRAINER + code).run(HF_HUB_OFFLINE="1")

    return run


def test_the_steps_of_a_trainer_are_timed_with_losses_waits_and_evaluations(measured):
    ran = measured(
        """
from transformers import TrainerCallback


class Print(TrainerCallback):
    def on_log(self, args, state, control, logs, **others):
        print(json.dumps(logs))


trainer = trainer_with(
    gradient_accumulation_steps=2, logging_steps=1, eval_strategy="steps", eval_steps=3
)
perfkit.time_trainer(trainer, unit="tokens", units_per_sample=8, flops_per_unit=1e5)
trainer.add_callback(Print)
trainer.evaluate()
trainer.train()
print("after the training")
"""
    ).ended()
    (told,) = ran.of_kind("told")
    told.pop("framework_version")
    assert told == {
        "event": "told",
        "samples_per_step": 4 * 2 * 8,
        "unit": "tokens",
        "flops_per_sample": 1e5,
        "parameters": PARAMETERS,
        "precision": "float32",
        "framework": "torch",
        "device": "cpu",
        "device_name": None,
        "step_clock": "host",
        "counts_data_wait": True,
    }
    steps = ran.of_kind("step")
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert all(0 < step["data_wait_seconds"] < step["seconds"] for step in steps)
    (window,) = ran.of_kind("window")
    assert window["samples"] == 4 * 4 * 2 * 8
    # Both data sets are evaluated after the third step, not before the training.
    assert [pause["step"] for pause in ran.of_kind("pause")] == [3, 3]
    assert "after the training" not in ran.stdout
    logged = []
    for line in ran.stdout.splitlines():
        if line.startswith('{"loss"'):
            logged.append(json.loads(line)["loss"])
    losses = [loss["value"] for loss in ran.of_kind("loss")]
    # The last step ends the training before the Trainer logs it.
    assert losses[:5] == pytest.approx(logged, abs=1e-4)
    assert len(losses) == 6


def test_a_short_batch_does_not_count_as_a_full_one(measured):
    ran = measured(
        """
trainer = trainer_with(per_device_train_batch_size=20, bf16=True, use_cpu=True)
perfkit.time_trainer(trainer, unit="tokens", units_per_sample=8)
trainer.train()
"""
    ).ended()
    (told,) = ran.of_kind("told")
    assert (told["unit"], told["precision"]) == ("tokens", "bf16")
    (window,) = ran.of_kind("window")
    # 62 rows are 3 batches of 20 and one of 2; the window has the steps 3 to 6.
    assert window["samples"] == (20 + 2 + 20 + 20) * 8


def test_a_search_for_the_batch_size_is_refused(measured):
    ran = measured("perfkit.time_trainer(trainer_with(auto_find_batch_size=True))")
    code, message = ran.failure()
    assert code == "worker_error"
    assert "set per_device_train_batch_size" in message
