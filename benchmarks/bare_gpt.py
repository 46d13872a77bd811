"""GPT-2 124M in PyTorch: perfkit's trainer / a bare loop, in interleaved steps.

python benchmarks/bare_gpt.py [PAIRS] prints the ratio of the speeds with an exact interval. The
bare loop is a typical training script without perfkit: a decoder of PyTorch's layers with tied
embeddings, fused AdamW and gradients clipped at 1. Both run in one process, train on the same
batch of 1 x 128 tokens and read each loss; their order alternates. The cost of perfkit's timer
is excluded; `benchmarks/figures.py timer` measures it.
"""

import os
import sys
import time
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))

import torch
from torch import nn
from torch.nn import functional

import perfkit
from perfkit.core.frameworks.interface import backend
from perfkit.core.inputs import synthetic
from perfkit.core.statistics import median_estimate

WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS = 768, 12, 12, 50_304, 1024
WARMUP = 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU("tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, length, _ = x.shape
        shape = batch, length, HEADS, WIDTH // HEADS
        q, k, v = self.c_attn(self.ln_1(x)).split(WIDTH, 2)
        q = q.view(shape).transpose(1, 2)
        k = k.view(shape).transpose(1, 2)
        v = v.view(shape).transpose(1, 2)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(batch, length, WIDTH)
        x = x + self.c_proj(y)
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids, labels):
        positions = torch.arange(ids.shape[1])
        x = self.wte(ids) + self.wpe(positions)
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        return functional.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1))


def bare_step(ids, labels):
    """Return a function that runs one step of the bare loop."""
    network = Decoder()
    matrices = [p for p in network.parameters() if p.dim() > 1]
    vectors = [p for p in network.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)

    def step():
        loss = network(ids, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def suite_step(config, batch):
    """Return a function that runs one step of perfkit's trainer."""
    trainer = backend("torch").Trainer(config)

    def step():
        loss = trainer.backward(batch)
        trainer.update()
        return float(loss)

    return step


def main(pairs):
    request = {"framework": "torch", "device": "cpu", "input": "synthetic"}
    config = perfkit.plan("gpt", request).config
    backend("torch").open_device(config)
    batch = tuple(map(torch.from_numpy, next(synthetic.batches(config, 0))))
    steps = {"perfkit": suite_step(config, batch), "bare loop": bare_step(*batch)}
    seconds = {name: [] for name in steps}
    order = [*steps]
    for _pair in range(WARMUP + pairs):
        order.reverse()
        for name in order:
            began = time.perf_counter()
            steps[name]()
            seconds[name].append(time.perf_counter() - began)
    for name, values in seconds.items():
        tokens_per_second = config.sample_size / median(values[WARMUP:])
        print(f"{name}: {tokens_per_second:.4g} tokens/s")
    ratios = []
    for suite, bare in zip(seconds["perfkit"], seconds["bare loop"], strict=True):
        ratios.append(bare / suite)
    ratio = median_estimate(ratios[WARMUP:], 0.95)
    print(
        f"perfkit / bare loop: {ratio.value:.4f}, {ratio.level:.1%} interval "
        f"{ratio.low:.4f} to {ratio.high:.4f}, {pairs} pairs"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 25)
