"""Trains a built-in model in PyTorch:
python -m perfkit.training.torch.train --model resnet50 --batch-size 8 --device cpu
torchrun --nproc-per-node 8 -m perfkit.training.torch.train --model gpt --precision bf16"""

import os
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import perfkit
from perfkit.training.arguments import Options, parse_arguments
from perfkit.training.models import GPT_SIZES, LLAMA_SIZES, MOMENTUM
from perfkit.training.torch.bert import BertForPreTraining
from perfkit.training.torch.gpt import GPT
from perfkit.training.torch.llama import Llama
from perfkit.training.torch.resnet import ResNet
from perfkit.training.torch.vgg import VGG

AUTO_CAST = {"amp": torch.float16, "bf16": torch.bfloat16}


def main() -> None:
    options = parse_arguments(__doc__)
    rank = int(os.environ.get("RANK", "0"))
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if options.device == "gpu":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        set_gpu_flags(options)
    if ranks > 1:
        torch.distributed.init_process_group("nccl" if options.device == "gpu" else "gloo")

    # Dropout differs between ranks; DistributedDataParallel broadcasts rank 0's weights.
    torch.manual_seed(options.seed + rank)
    model = new_model(options).to(device)
    if options.layout == "NHWC":
        model.to(memory_format=torch.channels_last)
    optimizer = new_optimizer(options, model)
    dtype = AUTO_CAST.get(options.precision)
    scaler = torch.amp.GradScaler(
        device.type, init_scale=2.0**15, enabled=dtype == torch.float16
    )
    trained: nn.Module = model
    if options.execution == "static":
        trained = torch.compile(trained, fullgraph=True, dynamic=False)
    if ranks > 1:
        # As in Paddle, each rank has its own batch-norm statistics.
        trained = DistributedDataParallel(
            trained, broadcast_buffers=False, gradient_as_bucket_view=True
        )

    timer = perfkit.StepTimer(
        samples_per_step=options.units_per_step,
        unit=options.unit,
        flops_per_sample=options.flops_per_unit,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        precision=options.precision,
    )
    batches = iter(timer.batches(new_batches(options, rank, ranks, device)))
    for _step in range(options.steps):
        for micro_batch in range(1, options.accumulate + 1):
            batch = next(batches)
            exchanges = ranks == 1 or micro_batch == options.accumulate
            with nullcontext() if exchanges else trained.no_sync():
                with torch.autocast(device.type, dtype, enabled=dtype is not None):
                    loss = loss_of(options.model, trained, batch) / options.accumulate
                scaler.scale(loss).backward()
        if options.clip_norm:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        timer.step(loss)


def set_gpu_flags(options: Options) -> None:
    """Set the flags of docs/backends.md, but those that `disable_tuning` names."""
    torch.backends.cuda.matmul.allow_tf32 = options.tf32
    torch.backends.cudnn.allow_tf32 = options.tf32
    torch.backends.cudnn.benchmark = options.tunes("cudnn_search")
    if not options.tunes("fused_attention"):
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)


def new_model(options: Options) -> nn.Module:
    match options.model:
        case "resnet50":
            return ResNet()
        case "vgg16":
            return VGG()
        case "bert":
            return BertForPreTraining()
        case "gpt":
            return GPT(GPT_SIZES[options.model_size])
        case "llama":
            return Llama(LLAMA_SIZES[options.model_size])
    raise ValueError(f"model={options.model}")


def new_optimizer(options: Options, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer: fused, or by `disable_tuning` PyTorch's default implementation."""
    fused = True if options.tunes("fused_optimizer") else None
    settings = options.optimizer_settings
    rate = settings.learning_rate(options.global_batch)
    if options.optimizer == "momentum":
        optimizer = torch.optim.SGD(
            model.parameters(), rate, MOMENTUM, weight_decay=settings.weight_decay, fused=fused
        )
        # A fused first step that overflows leaves its momentum uninitialized, and the next step
        # reads it. Zeros give the same first step.
        for parameter in model.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimizer
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, rate, settings.betas, fused=fused)


def loss_of(model: str, trained: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Return the mean loss of a batch (see perfkit.inputs)."""
    if model == "llama":
        return trained(*batch)
    if model == "bert":
        *inputs, word_labels, next_sentence = batch
        words, sentences = trained(*inputs)
        return masked_loss(words, word_labels) + cross_entropy(sentences, next_sentence)
    inputs, labels = batch
    return cross_entropy(trained(inputs), labels)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def masked_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over the masked words; unused predictions have the label 0. PyTorch's own
    mean over no words would be NaN."""
    labels = labels.flatten()
    total = functional.cross_entropy(
        logits.flatten(0, 1), labels, ignore_index=0, reduction="sum"
    )
    return total / (labels != 0).sum().clamp(min=1)


if __name__ == "__main__":
    main()
