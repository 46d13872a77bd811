"""Has the layers of a transformer keep only their inputs for the backward pass, which computes
everything else again."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import Array

from perfkit.core.frameworks.jax.layers import Forward
from perfkit.core.frameworks.networks import Block, Network, Outline


def recompute_layers(network: Network) -> None:
    outline = Outline(network)
    blocks = []
    for block in network.blocks:
        if outline.shares_name(block.name):
            blocks.append(Block(block.name, partial(_recomputed, block.forward)))
        else:
            blocks.append(block)
    network.blocks = blocks


def _recomputed(forward: Callable[..., Any], run: Forward, *state: Any) -> Any:
    """Run the forward pass of a block, keeping only its inputs."""

    def compute(key: Array | None, *state: Any) -> tuple[Array | None, Any]:
        # Dropout takes its key from the pass and leaves the next one there.
        run.key = key
        after = forward(run, *state)
        return run.key, after

    run.key, after = jax.checkpoint(compute)(run.key, *state)
    return after
