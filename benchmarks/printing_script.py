"""A plain PyTorch training script, without perfkit, that prints its speed as many do: every
`--every` steps, and at the end the mean of these prints.

python benchmarks/printing_script.py [--steps N] [--batch-size N] trains a small decoder on the
CPU. The printed mean includes the first steps, and is a mean of rates: two statistics that
`perfkit audit` tells from the throughput of the steady steps.
"""

import argparse
import time

import torch
from torch import nn

LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 64, 128, 4, 2, 512


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(self.tokens(ids), self.mask, is_causal=True)
        return hidden @ self.tokens.weight.T


def main(steps: int, batch_size: int, every: int) -> None:
    torch.manual_seed(0)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loss_of = nn.CrossEntropyLoss()
    text = torch.randint(VOCABULARY, (batch_size, LENGTH + 1))
    rates = []
    began = time.perf_counter()
    for step in range(1, steps + 1):
        logits = model(text[:, :-1])
        loss = loss_of(logits.reshape(-1, VOCABULARY), text[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            ended = time.perf_counter()
            rates.append(every * batch_size * LENGTH / (ended - began))
            print(f"step {step}: loss {loss.item():.3f}, {rates[-1]:.1f} tokens/s")
            began = time.perf_counter()
    print(f"mean: {sum(rates) / len(rates):.1f} tokens/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=8, help="sequences")
    parser.add_argument("--every", type=int, default=10, help="steps between two prints")
    arguments = parser.parse_args()
    main(arguments.steps, arguments.batch_size, arguments.every)
