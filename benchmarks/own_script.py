"""A PyTorch training script as users write them, with perfkit's timer or without it.

python own_script.py timer|bare WARMUP_STEPS MEASURED_STEPS takes one step per turn (turns.py).
Without the timer it prints samples/s by two clock readings on a synchronized device, without
the time of waiting for turns.
"""

import os
import sys
import time
from itertools import count

import torch
from torch import nn

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 8, 64, 128, 4, 2, 512
way, warmup, measured = sys.argv[1], *map(int, sys.argv[2:])
device = "cuda" if torch.cuda.is_available() else "cpu"


class Turn:
    """This process's turns, and the seconds of waiting for each."""

    def __init__(self):
        side = os.environ["TURNS_SIDE"]
        self.done = os.open(f"{side}.done", os.O_RDWR)
        self.go = os.open(f"{side}.go", os.O_RDWR)
        self.times = open(f"{side}.times", "w", buffering=1)  # noqa: PTH123, SIM115
        self.waits = []

    def take(self):
        entered = time.perf_counter()
        os.write(self.done, b"x")
        os.read(self.go, 1)
        started = time.perf_counter()
        self.waits.append(started - entered)
        print(entered, started, file=self.times)


def synchronize():
    if device == "cuda":
        torch.cuda.synchronize()


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, ids):
        hidden = self.blocks(self.tokens(ids), self.mask, is_causal=True)
        return hidden @ self.tokens.weight.T


model = Decoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
loss_of = nn.CrossEntropyLoss()
turn = Turn()


def train(ids):
    logits = model(ids[:, :-1])
    loss = loss_of(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def batches():
    while True:
        yield torch.randint(VOCABULARY, (BATCH, LENGTH + 1)).to(device)


def train_with_timer():
    import perfkit

    timer = perfkit.StepTimer(samples_per_step=BATCH, unit="sequences")
    for ids in timer.batches(batches()):
        turn.take()
        timer.step(train(ids))


def train_bare():
    source = batches()
    for step in count(1):
        ids = next(source)
        turn.take()
        train(ids)
        if step == warmup:
            synchronize()
            began = time.perf_counter()
        if step == warmup + measured:
            break
    synchronize()
    seconds = time.perf_counter() - began - sum(turn.waits[warmup:])
    print(BATCH * measured / seconds)


try:
    train_with_timer() if way == "timer" else train_bare()
finally:
    turn.take()
