"""Trains a small Llama by Hugging Face's Trainer on tokens that it makes itself, on a GPU or in
a minute on 2 CPU cores. Nothing is downloaded. The line with `perfkit` is what perfkit needs.

python examples/huggingface.py
perfkit run examples/huggingface.py -p protocol quick
perfkit run examples/huggingface.py -p protocol quick -- --optim sgd
perfkit compare --live examples/huggingface.py arguments='' arguments='--torch_compile True'
"""

import tempfile

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

import perfkit

VOCABULARY = 512
"""Number of different tokens."""
LENGTH = 128
"""Tokens of a sequence."""


class Sequences(Dataset):
    """Sequences that count upwards, each from another token."""

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = torch.arange(index, index + LENGTH) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


def training_arguments(folder: str) -> TrainingArguments:
    """Return the arguments of the command line, such as `--max_steps 50 --bf16 True`."""
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(
        output_dir=folder,
        max_steps=100,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        dataloader_pin_memory=torch.cuda.is_available(),
        disable_tqdm=True,
    )
    (arguments,) = parser.parse_args_into_dataclasses()
    return arguments


def main() -> None:
    torch.manual_seed(0)
    size = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=LlamaForCausalLM(size),
            args=training_arguments(folder),
            train_dataset=Sequences(),
        )
        perfkit.time_trainer(trainer, unit="tokens", units_per_sample=LENGTH)
        trainer.train()


if __name__ == "__main__":
    main()
