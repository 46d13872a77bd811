"""Trains a built-in model in Paddle, by itself or under Paddle's launcher:

python -m perfkit.training.paddle.train --model resnet50 --batch-size 8 --device cpu
python -m paddle.distributed.launch -m perfkit.training.paddle.train --model bert

docs/backends.md explains the settings and the alternatives that were tried.
"""

import os
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

import perfkit
from perfkit.training.effective import (
    EXCHANGED_AFTERWARDS,
    EXCHANGED_MEANWHILE,
    host_settings,
    input_settings,
    seconds_without_exchange,
    skipped_steps,
)
from perfkit.training.models import MOMENTUM, training_flops, units_per_sample
from perfkit.training.options import Options
from perfkit.training.paddle.batches import new_batches
from perfkit.training.paddle.models import inputs_of, loss_of, new_model
from perfkit.training.paddle.precision import checked_precision
from perfkit.training.paddle.strategy import Strategy
from perfkit.training.paddle.vgg import VGG

AUTO_CAST = {
    "amp": ("O1", "float16"),
    "pure_fp16": ("O2", "float16"),
    "bf16": ("O1", "bfloat16"),
}
INITIAL_LOSS_SCALE = 2.0**15
TUNING_FLAGS: dict[str, tuple[str, int | bool]] = {
    "cudnn_search": ("FLAGS_cudnn_exhaustive_search", True),
    "persistent_batch_norm": ("FLAGS_cudnn_batchnorm_spatial_persistent", True),
    "conv_workspace": ("FLAGS_conv_workspace_size_limit", 4096),
}
"""GPU setting -> Paddle's flag and its value in NVIDIA's DeepLearningExamples; the convolution
workspace is in MB."""


def main() -> None:
    options = Options.parse("paddle")
    open_device(options)
    level, dtype = AUTO_CAST.get(options.precision, ("O0", "float32"))

    def auto_cast() -> Any:
        if level == "O0":
            return nullcontext()
        return paddle.amp.auto_cast(level=level, dtype=dtype)

    model = new_model(options)
    if options.recompute == "full":
        model.model.recomputes = True
    optimizer = new_optimizer(options, model)
    if level == "O2":
        model, optimizer = paddle.amp.decorate(
            model, optimizer, level="O2", dtype=dtype, master_weight=True
        )
    scaler = paddle.amp.GradScaler(
        enable=dtype == "float16",
        init_loss_scaling=INITIAL_LOSS_SCALE,
        decr_every_n_nan_or_inf=1,
    )

    batches = new_batches(options)
    inputs = inputs_of(options, next(batches))
    effective = checked_precision(options, model, inputs, auto_cast())

    strategy = Strategy(options)
    # A sharded model exchanges the gradients of every micro-batch.
    is_parallel = options.ranks > 1 and not options.is_sharded
    if options.execution == "static":
        # On several devices, gradients of a whole program would be exchanged at its end.
        for layer in blocks_of(model) if is_parallel else [model]:
            paddle.jit.to_static(layer, full_graph=True, **strategy.to_static)
    trained: Any = model
    if is_parallel:
        trained = paddle.DataParallel(model, **strategy.data_parallel)
    if options.is_sharded:
        from perfkit.training.paddle.sharding import shard

        trained, optimizer = shard(model, optimizer)

    timer = perfkit.StepTimer(
        samples_per_step=options.samples_per_step * units_per_sample(options),
        unit=options.facts.unit.removesuffix("/s"),
        flops_per_sample=training_flops(options),
        parameters=parameters_of(model),
        precision=effective["precision"],
        exits=False,
    )
    timer.note(
        **effective,
        **host_settings(options),
        loss_scaling=INITIAL_LOSS_SCALE if scaler.is_enable() else None,
        strategy=strategy.outcomes,
        settings=settings_in_words(options, trained, optimizer) | input_settings(options),
    )

    def backward(batch: tuple[Tensor, ...], *, exchanges: bool) -> Tensor:
        """Accumulate the gradients of a micro-batch, and return its share of the loss."""
        with nullcontext() if exchanges or not is_parallel else trained.no_sync():
            with auto_cast():
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
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        timer.step(loss)
        loss = None
        if number == options.steps * options.accumulate:
            break

    if scaler.is_enable():
        scale = float(np.asarray(scaler.state_dict()["scale"]).item())
        steps = number // options.accumulate
        skipped = skipped_steps(
            INITIAL_LOSS_SCALE, scale, steps, scaler.get_incr_every_n_steps()
        )
        timer.note(loss_scale=scale, skipped_steps=skipped)
    if is_parallel:

        def compute() -> None:
            for _micro_batch in range(options.accumulate):
                backward(next(batches), exchanges=False)

        def synchronize() -> None:
            if options.device != "cpu":
                paddle.device.synchronize()

        timer.note(compute_seconds=seconds_without_exchange(compute, synchronize))


def open_device(options: Options) -> None:
    """Select this rank's device, join the other ranks, and seed Paddle."""
    if options.device == "cpu":
        # A GPU build would select NCCL and the GPUs.
        os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    if options.device == "gpu" and not options.tf32:
        # Paddle and the libraries below it use TF32 by default.
        os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
    if options.ranks > 1:
        paddle.distributed.init_parallel_env()
    paddle.set_device(options.device)
    # Dropout differs between ranks; weights do not, because DataParallel broadcasts rank 0's.
    paddle.seed(options.seed + options.rank)
    np.random.seed(options.seed + options.rank)
    for setting, (flag, value) in TUNING_FLAGS.items():
        if options.device == "gpu" and options.tunes(setting):
            # This build may not have the flag.
            with suppress(ValueError):
                paddle.set_flags({flag: value})


def new_optimizer(options: Options, model: nn.Layer) -> paddle.optimizer.Optimizer:
    settings = options.optimizer_settings
    rate, decay = settings.learning_rate, settings.weight_decay
    parameters = model.parameters()
    if options.optimizer == "momentum":
        # One kernel for all parameters.
        fused = options.device == "gpu" and options.tunes("fused_optimizer")
        return paddle.optimizer.Momentum(
            rate, MOMENTUM, parameters=parameters, weight_decay=decay, use_multi_tensor=fused
        )
    if options.optimizer == "lamb":
        return paddle.optimizer.Lamb(
            rate,
            lamb_weight_decay=decay,
            parameters=parameters,
            exclude_from_weight_decay_fn=lambda parameter: parameter.ndim == 1,
        )
    matrices = {parameter.name for parameter in parameters if parameter.ndim > 1}
    clip = None
    if settings.clip_norm:
        clip = nn.ClipGradByGlobalNorm(settings.clip_norm)
    return paddle.optimizer.AdamW(
        rate,
        *settings.betas,
        parameters=parameters,
        weight_decay=decay,
        grad_clip=clip,
        # The share of a sharded parameter has its name after a prefix.
        apply_decay_param_fun=lambda name: name.removeprefix("slice@") in matrices,
    )


def blocks_of(model: nn.Layer) -> list[nn.Layer]:
    """Return the stages of an image model, or the layers of a language model."""
    if isinstance(model, VGG):
        return [*model.stages, model.classifier]
    stages = [child for child in model.children() if isinstance(child, nn.Sequential)]
    lists = [layer for layer in model.sublayers() if isinstance(layer, nn.LayerList)]
    return stages or [layer for layers in lists for layer in layers]


def parameters_of(model: nn.Layer) -> int:
    """Return the number of trainable parameters; the statistics of batch norms are none."""
    return int(sum(each.size for each in model.parameters() if not each.stop_gradient))


def settings_in_words(options: Options, trained: Any, optimizer: Any) -> dict[str, str]:
    """Return the settings that a page shows."""
    settings = {"execution": "operator by operator"}
    is_parallel = options.ranks > 1 and not options.is_sharded
    if options.execution == "static":
        settings["execution"] = "to_static, one program"
        if is_parallel:
            settings["execution"] = "to_static, a program for each block"
    if options.is_sharded:
        settings["sharding"] = "group_sharded_parallel, p_g_os"
    if options.recompute == "full":
        settings["recompute"] = "each layer, by fleet.utils.recompute"
    if is_parallel:
        has_buckets = len(trained.group_indices) > 1
        settings["gradient_exchange"] = (
            EXCHANGED_MEANWHILE if has_buckets else EXCHANGED_AFTERWARDS
        )
    if options.device == "gpu":
        # Read back, because a strategy may have changed the flags.
        for flag, _value in TUNING_FLAGS.values():
            settings[flag] = flag_in_words(flag)
        fused = getattr(optimizer, "_use_multi_tensor", None)
        settings["optimizer"] = (
            "all parameters at once" if fused else "each parameter by itself"
        )
    return settings


def flag_in_words(flag: str) -> str:
    try:
        return str(paddle.get_flags(flag)[flag])
    except ValueError:
        return "not in this build of Paddle"


if __name__ == "__main__":
    main()
