"""GPT-2 124M or Llama tiny in PyTorch: perfkit's script / a bare loop, in interleaved steps.

python benchmarks/bare_decoders.py gpt|llama [PAIRS] prints the ratio of the speeds with an
exact interval. The bare loop is a typical training script without perfkit: a decoder of
PyTorch's layers with tied embeddings, fused AdamW and gradients clipped at 1. Both run in one
process, train on the same batch of 1 x 128 tokens and read each loss; their order alternates.
The script's steps include the timer, whose cost `benchmarks/figures.py timer` measures.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))

import torch
from torch import nn
from torch.nn import functional

from perfkit.measuring.statistics import median_estimate
from perfkit.training.torch import train

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from trained import train_here

WARMUP = 3
TOKENS = 128


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        shape = batch, length, self.heads, width // self.heads
        q, k, v = self.c_attn(self.ln_1(x)).split(width, 2)
        q = q.view(shape).transpose(1, 2)
        k = k.view(shape).transpose(1, 2)
        v = v.view(shape).transpose(1, 2)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        x = x + self.c_proj(y)
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """GPT-2 124M."""

    learning_rate = 6e-4

    def __init__(self):
        super().__init__()
        width, heads, layers, vocabulary, positions = 768, 12, 12, 50_304, 1024
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(positions, width)
        self.blocks = nn.Sequential(*[GptBlock(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        positions = torch.arange(ids.shape[1])
        x = self.wte(ids) + self.wpe(positions)
        return self.lm_head(self.ln_f(self.blocks(x)))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, width // heads
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.dense_norm = nn.RMSNorm(width, eps=1e-5)
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.wv = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cosines, sines):
        normed = self.attention_norm(x)
        q = self.split(self.wq(normed), self.heads)
        k = self.split(self.wk(normed), self.kv_heads)
        v = self.split(self.wv(normed), self.kv_heads)
        q, k = rotated(q, cosines, sines), rotated(k, cosines, sines)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(y.transpose(1, 2).flatten(2))
        normed = self.dense_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))

    def split(self, x, heads):
        batch, length, _width = x.shape
        return x.view(batch, length, heads, self.head_width).transpose(1, 2)


def rotated(x, cosines, sines):
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


class Llama(nn.Module):
    """perfkit's `tiny` size of Llama 3."""

    learning_rate = 3e-4

    def __init__(self):
        super().__init__()
        width, heads, kv_heads, inner, layers = 256, 4, 2, 896, 4
        vocabulary, longest, head_width = 128_256, 2048, width // heads
        self.tokens = nn.Embedding(vocabulary, width)
        blocks = [LlamaBlock(width, heads, kv_heads, inner) for _ in range(layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.tokens.weight
        frequencies = 500_000.0 ** -(torch.arange(0, head_width, 2) / head_width)
        angles = torch.outer(torch.arange(longest), frequencies).repeat(1, 2)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, ids):
        x = self.tokens(ids)
        length = ids.shape[1]
        for block in self.blocks:
            x = block(x, self.cosines[:length], self.sines[:length])
        return self.lm_head(self.norm(x))


DECODERS = {"gpt": Gpt, "llama": Llama}


def bare_step(decoder, ids, labels):
    """Return a function that runs one step of the bare loop."""
    network = decoder()
    for name, parameter in network.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    matrices = [p for p in network.parameters() if p.dim() > 1]
    vectors = [p for p in network.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0}]
    optimizer = torch.optim.AdamW(
        groups, lr=decoder.learning_rate, betas=(0.9, 0.95), fused=True
    )

    def step():
        logits = network(ids)
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


class Pairs:
    """Pairs of steps of perfkit's script and of the bare loop: seconds and losses."""

    def __init__(self, decoder, pairs):
        self.decoder = decoder
        self.pairs = pairs
        self.seconds = {"perfkit": [], "bare loop": []}
        self.losses = []

    def batches(self, original):
        """Yield perfkit's batch. A step of its script lasts until it asks for the next batch;
        the bare loop takes its steps in between."""
        batch = next(original)
        step = bare_step(self.decoder, *batch)
        # The script looks at one batch before its first step.
        yield batch
        for pair in range(self.pairs):
            if pair % 2 == 0:
                self.take_bare(step)
            began = time.perf_counter()
            yield batch
            self.seconds["perfkit"].append(time.perf_counter() - began)
            if pair % 2 == 1:
                self.take_bare(step)
        while True:
            yield batch

    def take_bare(self, step):
        began = time.perf_counter()
        self.losses.append(step())
        self.seconds["bare loop"].append(time.perf_counter() - began)


def main(model, pairs):
    taken = Pairs(DECODERS[model], WARMUP + pairs)
    new_batches = train.new_batches
    train.new_batches = lambda *given: taken.batches(new_batches(*given))
    words = ["--model", model, "--device", "cpu"]
    words += ["--batch-size", 1, "--sequence-length", TOKENS]
    # In one step more, the script asks for a batch after the last pair.
    run = train_here("torch", *words, warmup_steps=WARMUP, measured_steps=pairs + 1)
    losses = {"perfkit": run.losses[WARMUP + pairs - 1], "bare loop": taken.losses[-1]}
    seconds = taken.seconds
    for name, values in seconds.items():
        tokens_per_second = TOKENS / median(values[WARMUP:])
        print(f"{name}: {tokens_per_second:.4g} tokens/s, last loss {losses[name]:.3f}")
    ratios = []
    for suite, bare in zip(seconds["perfkit"], seconds["bare loop"], strict=True):
        ratios.append(bare / suite)
    ratio = median_estimate(ratios[WARMUP:], 0.95)
    print(
        f"perfkit / bare loop: {ratio.value:.4f}, {ratio.level:.1%} interval "
        f"{ratio.low:.4f} to {ratio.high:.4f}, {pairs} pairs"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=DECODERS)
    parser.add_argument("pairs", type=int, nargs="?", default=25)
    arguments = parser.parse_args()
    main(arguments.model, arguments.pairs)
