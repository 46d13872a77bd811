"""Hugging Face's Trainer with a narrow Llama and 8 x 64 tokens, which logs every N steps:
hugging_face.py N."""

import sys

import torch
from ends import StepEnds
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

torch.set_num_threads(1)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        tokens = torch.arange(index, index + 64) % 256
        return {"input_ids": tokens, "labels": tokens}


class Ends(TrainerCallback):
    def __init__(self):
        self.ends = StepEnds()

    def on_step_end(self, *_state, **_others):
        self.ends.step()


model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
)
settings = TrainingArguments(
    output_dir="trained",
    max_steps=100_000,
    per_device_train_batch_size=8,
    logging_steps=int(sys.argv[1]),
    save_strategy="no",
    report_to="none",
    dataloader_pin_memory=False,
)
Trainer(model=model, args=settings, train_dataset=Rows(), callbacks=[Ends()]).train()
