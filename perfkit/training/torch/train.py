"""Trains a built-in model in PyTorch, by itself or under torchrun:

python -m perfkit.training.torch.train --model resnet50 --batch-size 8 --device cpu
torchrun --nproc-per-node 8 -m perfkit.training.torch.train --model gpt --precision bf16

docs/backends.md explains the settings and the alternatives that were tried.
"""

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import perfkit
from perfkit.training.effective import (
    host_settings,
    input_settings,
    seconds_without_exchange,
    skipped_steps,
)
from perfkit.training.models import MOMENTUM, training_flops, units_per_sample
from perfkit.training.options import Options
from perfkit.training.torch.batches import new_batches
from perfkit.training.torch.models import inputs_of, loss_of, new_model
from perfkit.training.torch.precision import checked_precision

AUTO_CAST = {"amp": torch.float16, "bf16": torch.bfloat16}
INITIAL_LOSS_SCALE = 2.0**15
EXCHANGE_TIMEOUT = timedelta(minutes=3)
"""Time that ranks wait for each other; one may compile what the others have cached."""


def main() -> None:
    options = Options.parse("torch")
    device = open_device(options)
    dtype = AUTO_CAST.get(options.precision)
    auto_cast = torch.autocast(device.type, dtype, enabled=dtype is not None)

    model = new_model(options).to(device)
    if options.layout == "NHWC":
        model.to(memory_format=torch.channels_last)
    if options.recompute == "full":
        model.model.recomputes = True
    if options.is_sharded:
        # Loading FSDP2 takes time.
        from perfkit.training.torch.sharding import shard

        shard(model, options, device, dtype)
    optimizer = new_optimizer(options, model)
    scaler = torch.amp.GradScaler(
        device.type, init_scale=INITIAL_LOSS_SCALE, enabled=dtype == torch.float16
    )

    batches = new_batches(options, device)
    inputs = inputs_of(options, next(batches))
    effective = checked_precision(options, model, inputs, auto_cast)

    trained: Any = model
    if options.execution == "static":
        trained = compiled(options, model)
    # A sharded model exchanges the gradients of every micro-batch: those of all micro-batches
    # would need the memory that it saves.
    is_parallel = options.ranks > 1 and not options.is_sharded
    if is_parallel:
        # As in Paddle, each rank has its own batch-norm statistics.
        trained = DistributedDataParallel(
            trained, broadcast_buffers=False, gradient_as_bucket_view=True
        )

    timer = perfkit.StepTimer(
        samples_per_step=options.samples_per_step * units_per_sample(options),
        unit=options.facts.unit.removesuffix("/s"),
        flops_per_sample=training_flops(options),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        precision=effective["precision"],
        exits=False,
    )
    settings = settings_in_words(options) | input_settings(options)
    loss_scaling = INITIAL_LOSS_SCALE if scaler.is_enabled() else None
    timer.note(
        **effective, **host_settings(options), loss_scaling=loss_scaling, settings=settings
    )

    def backward(batch: tuple[Tensor, ...], *, exchanges: bool) -> Tensor:
        """Accumulate the gradients of a micro-batch, and return its share of the loss."""
        with nullcontext() if exchanges or not is_parallel else trained.no_sync():
            with auto_cast:
                loss = loss_of(options, trained, batch)
            if options.accumulate > 1:
                loss = loss / options.accumulate
            scaler.scale(loss).backward()
        return loss.detach()

    loss: Any = None
    for number, batch in enumerate(timer.batches(batches), 1):
        ends_step = number % options.accumulate == 0
        share = backward(batch, exchanges=ends_step)
        loss = share if loss is None else loss + share
        if not ends_step:
            continue
        if options.execution == "static":
            align_gradients(model)
        if clip_norm := options.optimizer_settings.clip_norm:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        timer.step(loss)
        loss = None
        if number == options.steps * options.accumulate:
            break

    if scaler.is_enabled():
        scale = scaler.get_scale()
        steps = number // options.accumulate
        skipped = skipped_steps(INITIAL_LOSS_SCALE, scale, steps, scaler.get_growth_interval())
        timer.note(loss_scale=scale, skipped_steps=skipped)
    if is_parallel:

        def compute() -> None:
            for _micro_batch in range(options.accumulate):
                backward(next(batches), exchanges=False)

        def synchronize() -> None:
            if options.device == "gpu":
                torch.cuda.synchronize()

        timer.note(compute_seconds=seconds_without_exchange(compute, synchronize))


def open_device(options: Options) -> torch.device:
    """Select this rank's device, seed PyTorch, and join the other ranks."""
    # Dropout differs between ranks; weights do not: DistributedDataParallel broadcasts those of
    # rank 0, and ranks that divide the weights draw the same.
    torch.manual_seed(options.seed + (0 if options.is_sharded else options.rank))
    device = torch.device("cpu")
    if options.device == "gpu":
        device = torch.device("cuda", options.local_rank)
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = options.tf32
        torch.backends.cudnn.allow_tf32 = options.tf32
        torch.backends.cudnn.benchmark = options.tunes("cudnn_search")
        if not options.tunes("fused_attention"):
            torch.backends.cuda.enable_flash_sdp(False)
            torch.backends.cuda.enable_mem_efficient_sdp(False)
            torch.backends.cuda.enable_cudnn_sdp(False)
    if options.ranks > 1:
        library = "nccl" if options.device == "gpu" else "gloo"
        torch.distributed.init_process_group(library, timeout=EXCHANGE_TIMEOUT)
    return device


def new_optimizer(options: Options, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer: fused, or by `disable_tuning` PyTorch's default implementation."""
    fused = True if options.tunes("fused_optimizer") else None
    settings = options.optimizer_settings
    rate, decay = settings.learning_rate, settings.weight_decay
    parameters = [*model.parameters()]
    if options.optimizer == "momentum":
        sgd = torch.optim.SGD(parameters, rate, MOMENTUM, weight_decay=decay, fused=fused)
        # A fused first step that overflows leaves its momentum uninitialized, and the next step
        # reads it. Zeros give the same first step.
        for parameter in parameters:
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    matrices = [parameter for parameter in parameters if parameter.ndim > 1]
    vectors = [parameter for parameter in parameters if parameter.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, rate, settings.betas, fused=fused)


def compiled(options: Options, model: Any) -> Any:
    """Return the model compiled as a whole; if it is sharded, layer by layer, since Python code
    gathers the weights of a layer before it runs."""
    if not options.is_sharded:
        return torch.compile(model, fullgraph=True, dynamic=False)
    layers = model.model.layers
    limits: Any = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, len(layers))
    for layer in layers:
        layer.compile()
    return model


def align_gradients(model: nn.Module) -> None:
    """Copy gradients whose strides differ from their parameter's. For an NCHW model,
    torch.compile may return channels-last gradients of 1x1 kernels, which a fused optimizer may
    reject (pytorch/pytorch#126585)."""
    for parameter in model.parameters():
        gradient = parameter.grad
        if gradient is not None and gradient.stride() != parameter.stride():
            parameter.grad = torch.empty_like(parameter).copy_(gradient)


def settings_in_words(options: Options) -> dict[str, str]:
    """Return the settings that a page shows."""
    settings = {
        "optimizer": "fused" if options.tunes("fused_optimizer") else "PyTorch's default",
        "memory_format": "channels_last" if options.layout == "NHWC" else "contiguous",
        "execution": "eager",
    }
    if options.execution == "static":
        each = " of each layer" if options.is_sharded else ""
        settings["execution"] = f"torch.compile{each}"
    if options.ranks > 1 and not options.is_sharded:
        settings["execution"] += ", then DistributedDataParallel"
    if options.is_sharded:
        settings["sharding"] = "each layer, by fully_shard"
    if options.recompute == "full":
        settings["recompute"] = "each layer, by torch.utils.checkpoint"
    if options.device == "gpu":
        settings["cudnn.benchmark"] = str(torch.backends.cudnn.benchmark)
    return settings


if __name__ == "__main__":
    main()
