"""Trains a built-in model in JAX, by itself or as one of the ranks that perfkit starts:

python -m perfkit.training.jax.train --model resnet50 --batch-size 8 --device cpu

It is always compiled. docs/backends.md explains the settings and the alternatives that were
tried.
"""

from math import prod
from typing import Any

import jax
from jax.sharding import Mesh

import perfkit
from perfkit.training.effective import (
    host_settings,
    input_settings,
    seconds_without_exchange,
)
from perfkit.training.jax import parallel
from perfkit.training.jax.batches import new_batches
from perfkit.training.jax.models import (
    dtype_of,
    fuses_attention,
    initial_statistics,
    initial_weights,
    shapes_of,
)
from perfkit.training.jax.optimizer import Arrays, new_slots
from perfkit.training.jax.parallel import WHOLE, held, joined, local, placed
from perfkit.training.jax.precision import checked_precision
from perfkit.training.jax.programs import (
    backward_program,
    update_program,
)
from perfkit.training.jax.sharding import Shares
from perfkit.training.models import training_flops, units_per_sample
from perfkit.training.options import Options


def main() -> None:
    options = Options.parse("jax")
    open_device(options)
    mesh = parallel.mesh_of_ranks() if options.ranks > 1 else None
    shares = None
    if options.is_sharded:
        shares = Shares(shapes_of(options), options.ranks, dtype_of(options))

    weights = new_weights(options, mesh, shares)
    slots = new_slots(options.optimizer_settings, weights)
    statistics = new_statistics(options, mesh)
    gradients: Any = None
    # Dropout differs between ranks.
    rng = held(jax.random.key(options.seed + options.rank), mesh)

    # A sharded model exchanges the gradients of every micro-batch.
    is_parallel = options.ranks > 1 and not options.is_sharded
    backward_alone = backward_program(options, mesh, shares)
    backward = backward_alone
    if is_parallel:
        backward = backward_program(options, mesh, exchanges=True)
    take_step = update_program(options, mesh, shares)

    batches = new_batches(options)
    batch = next(batches)
    # The first step finds this compiled program.
    lowered = backward.lower(weights, statistics, gradients, rng, joined(batch, mesh))
    effective = checked_precision(options, lowered.compile().as_text(), weights, batch)

    timer = perfkit.StepTimer(
        samples_per_step=options.samples_per_step * units_per_sample(options),
        unit=options.facts.unit.removesuffix("/s"),
        flops_per_sample=training_flops(options),
        parameters=sum(map(prod, shapes_of(options).values())),
        precision=effective["precision"],
        exits=False,
    )
    settings = settings_in_words(options, shares) | input_settings(options)
    timer.note(**effective, **host_settings(options), loss_scaling=None, settings=settings)

    loss: Any = None
    for number, batch in enumerate(timer.batches(batches), 1):
        ends_step = number % options.accumulate == 0
        run = backward if ends_step else backward_alone
        share, statistics, gradients, rng = run(
            weights, statistics, gradients, rng, joined(batch, mesh)
        )
        loss = local(share) if loss is None else loss + local(share)
        if not ends_step:
            continue
        step = number // options.accumulate
        weights, slots, updated = take_step(weights, gradients, slots, step)
        # The loss is ready before the weights are.
        timer.step(loss, result=local(updated))
        loss = gradients = None
        if step == options.steps:
            break

    if is_parallel:

        def compute() -> None:
            nonlocal statistics, gradients, rng
            gradients = None
            for _micro_batch in range(options.accumulate):
                _loss, statistics, gradients, rng = backward_alone(
                    weights, statistics, gradients, rng, joined(next(batches), mesh)
                )

        def synchronize() -> None:
            jax.block_until_ready(jax.live_arrays())

        timer.note(compute_seconds=seconds_without_exchange(compute, synchronize))


def open_device(options: Options) -> None:
    """Select this rank's device, and join the other ranks. Must precede the first
    computation."""
    on_gpu = options.device == "gpu"
    jax.config.update("jax_platforms", "cuda" if on_gpu else "cpu")
    if on_gpu:
        jax.config.update("jax_cuda_visible_devices", str(options.local_rank))
        precision = "tensorfloat32" if options.tf32 else "highest"
        jax.config.update("jax_default_matmul_precision", precision)
    if options.ranks > 1:
        parallel.join(options)


def new_weights(
    options: Options, mesh: Mesh | None = None, shares: Shares | None = None
) -> Arrays:
    """Return the initial weights, or this rank's shares of them."""
    specs = shares.specs if shares else {}
    weights = {}
    for name, array in initial_weights(options):
        weights[name] = placed(array, mesh, specs.get(name, WHOLE))
    return weights


def new_statistics(options: Options, mesh: Mesh | None = None) -> Arrays:
    """Return the initial statistics of the batch norms."""
    return {name: placed(array, mesh) for name, array in initial_statistics(options).items()}


def settings_in_words(options: Options, shares: Shares | None) -> dict[str, str]:
    """Return the settings that a page shows."""
    settings = {"execution": "jit of a micro-batch's passes, and of the optimizer's step"}
    if options.device == "gpu":
        settings["matmul_precision"] = str(jax.config.jax_default_matmul_precision)
        settings["causal_attention"] = "cuDNN's" if fuses_attention(options) else "not fused"
    if options.ranks > 1:
        settings["gradient_exchange"] = "in the program of the backward pass"
    if shares:
        divided = sum(axis is not None for axis in shares.axes.values())
        settings["sharding"] = f"{divided} of {len(shares.axes)} arrays divided"
    if options.recompute == "full":
        settings["recompute"] = "each layer, by jax.checkpoint"
    return settings


if __name__ == "__main__":
    main()
