"""The compiled programs of a training: the passes of a micro-batch, and the optimizer's step.
With a mesh, every rank runs them."""

from typing import Any

import jax
from jax import Array
from jax import numpy as jnp
from jax.sharding import Mesh

from perfkit.training.jax.layers import Weights, split
from perfkit.training.jax.models import Batch, loss_of
from perfkit.training.jax.optimizer import Arrays, sum_of, update
from perfkit.training.jax.parallel import SPLIT, WHOLE, averaged, program
from perfkit.training.jax.resnet import Statistics
from perfkit.training.jax.sharding import Gathered, Shares
from perfkit.training.options import Options


def backward_program(
    options: Options,
    mesh: Mesh | None = None,
    shares: Shares | None = None,
    *,
    exchanges: bool = False,
) -> Any:
    """Return the program of a micro-batch's forward and backward pass. It adds the gradients to
    those of the step, which are None before its first micro-batch, and, if it `exchanges` them,
    returns their means over the ranks. Shares are exchanged in any case."""

    def backward(
        weights: Arrays,
        statistics: Statistics,
        gradients: Arrays | None,
        rng: Array | None,
        batch: Batch,
    ) -> tuple[Array, Statistics, Arrays, Array | None]:
        rng, dropout_rng = split(rng, 2)

        def share_of_loss(weights: Arrays) -> tuple[Array, Statistics]:
            whole: Weights = Gathered(shares, weights) if shares else weights
            loss, updated = loss_of(options, whole, statistics, dropout_rng, batch)
            return loss / options.accumulate, updated

        with_gradients = jax.value_and_grad(share_of_loss, has_aux=True)
        (loss, updated), added = with_gradients(weights)
        if gradients is not None:
            added = jax.tree.map(jnp.add, gradients, added)
        if shares:
            added = shares.exchanged(added)
        elif exchanges:
            added = averaged(added)
        return loss, updated, added, rng

    specs = shares.specs if shares else WHOLE
    return program(
        backward,
        mesh,
        specs=(specs, WHOLE, specs, WHOLE, SPLIT),
        results=(WHOLE, WHOLE, specs, WHOLE),
        donated=(1, 2, 3),
    )


def update_program(
    options: Options, mesh: Mesh | None = None, shares: Shares | None = None
) -> Any:
    """Return the program of the optimizer's step `step`, from 1. New weights and slots have the
    memory of the old ones. It also returns a number, which no later step gets as donated
    memory: the step has ended when it is ready."""
    settings = options.optimizer_settings
    total = shares.total if shares else sum_of

    def take_step(
        weights: Arrays, gradients: Arrays, slots: Arrays, step: Any
    ) -> tuple[Arrays, Arrays, Array]:
        weights, slots = update(settings, weights, gradients, slots, step, total)
        *_others, last = weights.values()
        return weights, slots, last.ravel()[0]

    specs = shares.specs if shares else WHOLE
    return program(
        take_step,
        mesh,
        specs=(specs, specs, specs, WHOLE),
        results=(specs, specs, WHOLE),
        donated=(0, 2),
    )
