"""Trains a small GPT in PyTorch on a text that it makes itself, on a GPU or in a minute on 2
CPU cores. The lines with `timer` are what perfkit needs.

python examples/gpt_torch.py
perfkit run examples/gpt_torch.py -p protocol quick
perfkit run examples/gpt_torch.py -p protocol quick -p processes 2 -- --batch-size 4
perfkit compare --live examples/gpt_torch.py arguments='' arguments='--compile'
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, RandomSampler

import perfkit

VOCABULARY = 512
"""Number of different tokens."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8, help="sequences of a process")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--evaluate-every", type=int, default=50, help="steps")
    parser.add_argument("--threads", type=int, help="CPU threads; without it PyTorch's default")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    return parser.parse_args()


class Text(Dataset):
    """Sequences of a random text of 64 words, each of 8 tokens. Only the first token of a word
    is a surprise, so a good model reaches a loss of about log(64) / 8 = 0.5."""

    def __init__(self, sequences: int, length: int, seed: int) -> None:
        words = torch.randint(VOCABULARY, (64, 8), generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(seed)
        order = torch.randint(len(words), (sequences * length // 8 + 1,), generator=generator)
        self.tokens = words[order].flatten()
        self.sequences = sequences
        self.length = length

    def __len__(self) -> int:
        return self.sequences

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a sequence, and the token that follows each of its tokens."""
        begin = index * self.length
        tokens = self.tokens[begin : begin + self.length + 1]
        return tokens[:-1], tokens[1:]


class Block(nn.Module):
    """Attention and a dense network, each after a norm and with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.attention_input = nn.Linear(width, 3 * width)
        self.attention_output = nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.dense(x)

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        by_head = self.attention_input(x).view(batch, length, 3, self.heads, -1)
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.attention_output(mixed.transpose(1, 2).reshape(batch, length, width))


class GPT(nn.Module):
    def __init__(self, length: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of predicting the targets."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        logits = self.head(self.norm(self.blocks(x)))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def flops_per_token(options: argparse.Namespace) -> int:
    """Return the floating-point operations of the forward and backward pass of one token:
    6 for each weight of a matrix product, and 12 * width * length for each layer's attention
    without the saving by its mask (Chowdhery et al., PaLM, 2022, appendix B)."""
    weights = options.layers * 12 * options.width**2 + options.width * VOCABULARY
    return 6 * weights + 12 * options.layers * options.width * options.length


def open_device() -> torch.device:
    """Return this process's device; join the other processes that torchrun has started."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if not torch.cuda.is_available():
        if ranks > 1:
            dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    if ranks > 1:
        dist.init_process_group("nccl")
    return device


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """Return the mean loss over another text."""
    model.eval()
    losses = [model(tokens.to(device), targets.to(device)) for tokens, targets in loader]
    model.train()
    return torch.stack(losses).mean().item()


def main() -> None:
    options = parse_arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = open_device()
    rank = int(os.environ.get("RANK", "0"))

    torch.manual_seed(0)
    model = GPT(options.length, options.layers, options.width, options.heads).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    if options.compile:
        model.compile()
    if dist.is_initialized():
        model = DistributedDataParallel(model)

    text = Text(2000, options.length, seed=1 + rank)
    samples = options.steps * options.batch_size
    sampler = RandomSampler(text, replacement=True, num_samples=samples)
    loader = DataLoader(text, options.batch_size, sampler=sampler)
    other_loader = DataLoader(Text(32, options.length, seed=0), options.batch_size)

    timer = perfkit.StepTimer(
        samples_per_step=options.batch_size * options.length,
        unit="tokens",
        flops_per_sample=flops_per_token(options),
        parameters=parameters,
        precision="bf16" if options.bf16 else "fp32",
    )
    for step, (tokens, targets) in enumerate(timer.batches(loader), start=1):
        with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
            loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        timer.step(loss)
        if step % options.evaluate_every == 0:
            with timer.pause():
                other_loss = evaluate(model, other_loader, device)
            if rank == 0:
                print(f"step {step}: loss {loss.item():.3f}, of another text {other_loss:.3f}")


if __name__ == "__main__":
    main()
