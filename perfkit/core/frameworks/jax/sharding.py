"""Divides parameters, gradients and optimizer states among the ranks, and recomputes layers.

Each rank holds a part of every array along its first axis that the ranks divide evenly. Within
the program of the backward pass, a layer gathers the whole of a parameter where it uses it, and
the gradient of this gathering is the sum over the ranks of which each gets its part back. What
is kept between forward and backward pass is the choice of `jax.checkpoint`'s policy.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from perfkit.core.config import Config
from perfkit.core.frameworks.jax.layers import Forward, param_dtype
from perfkit.core.frameworks.jax.parallel import AXIS, Ranks, averaged, divided_axis
from perfkit.core.frameworks.networks import Block, Network, Outline

Policy = Callable[..., bool]
"""Tells of a primitive whether its results are kept for the backward pass."""


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def gathered(share: Array, axis: int, dtype: Any) -> Array:
    """Return the whole array of which each rank has a share along `axis`, in `dtype`. Gradients
    are reduced in the parameters' dtype."""
    return lax.all_gather(share.astype(dtype), AXIS, axis=axis, tiled=True)


def _gather(share: Array, axis: int, dtype: Any) -> tuple[Array, None]:
    # Not gathered() again: the policies below must see an all-gather.
    return lax.all_gather(share.astype(dtype), AXIS, axis=axis, tiled=True), None


def _reduce(axis: int, _dtype: Any, _kept: None, gradient: Array) -> tuple[Array]:
    share = _summed_share(gradient.astype(param_dtype()), axis)
    return (share / lax.axis_size(AXIS),)


def _summed_share(array: Array, axis: int) -> Array:
    """Return this rank's share along `axis` of the sum over the ranks."""
    if jax.default_backend() != "cpu":
        return lax.psum_scatter(array, AXIS, scatter_dimension=axis, tiled=True)
    # gloo's reduce-scatter sends from memory that it overwrites: some of its sums of many MiB
    # are wrong, without an error (jax-ml/jax#40830).
    total = lax.psum(array, AXIS)
    length = array.shape[axis] // lax.axis_size(AXIS)
    start = lax.axis_index(AXIS) * length
    return lax.dynamic_slice_in_dim(total, start, length, axis)


gathered.defvjp(_gather, _reduce)


class Shares:
    """The shares of named parameters, of which some can't be divided evenly: every rank has
    all of them. `specs` has their PartitionSpecs."""

    def __init__(self, ranks: Ranks, values: Mapping[str, Array], dtype: Any) -> None:
        self.axes = {}
        for name, value in values.items():
            self.axes[name] = divided_axis(value.shape, ranks.mesh.size)
        self.specs = {name: ranks.share_spec(value.shape) for name, value in values.items()}
        self.dtype = dtype

    def whole(self, name: str, share: Array) -> Array:
        """Within a program, return a parameter of which this rank has a share: matrices in the
        dtype of the products, vectors as they are stored."""
        axis = self.axes[name]
        if axis is None:
            return share
        dtype = self.dtype if share.ndim > 1 else share.dtype
        return gathered(share, axis, dtype)

    def exchanged(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """Return gradients of which those of shares are exchanged already."""
        means = {}
        for name, gradient in gradients.items():
            is_whole = self.axes[name] is None
            means[name] = averaged(gradient) if is_whole else gradient
        return means

    def total(self, values: Mapping[str, Array]) -> Array:
        """Within a program, return the sum of one value for each parameter's share."""
        of_shares = sum(value for name, value in values.items() if self.axes[name] is not None)
        of_whole = sum(value for name, value in values.items() if self.axes[name] is None)
        return lax.psum(of_shares, AXIS) + of_whole

    def in_words(self, config: Config) -> str:
        """Return which parameters are shared out, and how they are gathered."""
        again = ", again for the backward pass" if config.sharding == "full" else ""
        dtype, wide = jnp.dtype(self.dtype).name, jnp.dtype(param_dtype()).name
        divided = sum(axis is not None for axis in self.axes.values())
        words = (
            f"{divided} of {len(self.axes)} arrays, each along its first axis that the ranks "
            f"divide evenly: matrices gathered in {dtype}{again}, gradients reduced in {wide}"
        )
        if dtype != wide:
            words += f"; activations between layers in {dtype}"
        return words


def _all_but_gathered(primitive: Any, *_arguments: Any, **_options: Any) -> bool:
    return primitive is not lax.all_gather_p


def _gathered_alone(primitive: Any, *_arguments: Any, **_options: Any) -> bool:
    return primitive is lax.all_gather_p


def rewrite_layers(network: Network, config: Config) -> None:
    """Have the layers of a network compute in the backward pass again what they do not keep:
    gathered parameters, activations, or both."""
    gathers_again, recomputes = config.sharding == "full", config.recompute == "full"
    if not (gathers_again or recomputes):
        return
    policy: Policy | None = None
    if not recomputes:
        policy = _all_but_gathered
    elif config.sharding == "gradients":
        policy = _gathered_alone
    outline = Outline(network)
    blocks = []
    for block in network.blocks:
        if outline.shares_name(block.name):
            forward = partial(_checkpointed, block.forward, policy)
            blocks.append(Block(block.name, forward))
        else:
            blocks.append(block)
    network.blocks = blocks


def _checkpointed(
    forward: Callable[..., Any], policy: Policy | None, run: Forward, *state: Any
) -> Any:
    """Run the forward pass of a block, keeping what the policy says, or only its inputs."""
    compute = partial(forward, run)
    return jax.checkpoint(compute, policy=policy)(*state)
