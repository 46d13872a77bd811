"""Divides Llama's weights, gradients and optimizer states among the ranks.

Each rank holds a part of every array along its first axis that the ranks divide evenly. Within
the program of the backward pass, the whole of a weight is gathered where a layer looks it up,
and the gradient of this gathering is the sum over the ranks of which each gets its part back.
What is kept between forward and backward pass is the choice of `jax.checkpoint`'s policy.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
from jax import Array, lax
from jax.sharding import PartitionSpec

from perfkit.training.jax.layers import Shapes, Weights, wide
from perfkit.training.jax.parallel import AXIS, WHOLE, averaged
from perfkit.training.options import Options


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def gathered(share: Array, axis: int, dtype: Any) -> Array:
    """Return the whole array of which each rank has a share along `axis`, in `dtype`. Gradients
    are reduced in float32."""
    return lax.all_gather(share.astype(dtype), AXIS, axis=axis, tiled=True)


def gather_forward(share: Array, axis: int, dtype: Any) -> tuple[Array, None]:
    # Not gathered() again: the policies below must see an all-gather.
    return lax.all_gather(share.astype(dtype), AXIS, axis=axis, tiled=True), None


def gather_backward(axis: int, _dtype: Any, _kept: None, gradient: Array) -> tuple[Array]:
    return (summed_share(wide(gradient), axis) / lax.axis_size(AXIS),)


def summed_share(array: Array, axis: int) -> Array:
    """Return this rank's share along `axis` of the sum over the ranks."""
    if jax.default_backend() != "cpu":
        return lax.psum_scatter(array, AXIS, scatter_dimension=axis, tiled=True)
    # gloo's reduce-scatter sends from memory that it overwrites: some of its sums of many MiB
    # are wrong, without an error (jax-ml/jax#40830).
    total = lax.psum(array, AXIS)
    length = array.shape[axis] // lax.axis_size(AXIS)
    start = lax.axis_index(AXIS) * length
    return lax.dynamic_slice_in_dim(total, start, length, axis)


gathered.defvjp(gather_forward, gather_backward)


class Shares:
    """How the ranks divide weights of these `shapes`, of which layers use matrices in `dtype`.
    Every rank has all of a weight that can't be divided evenly. `specs` has the weights'
    PartitionSpecs."""

    def __init__(self, shapes: Shapes, ranks: int, dtype: Any) -> None:
        self.dtype = dtype
        self.axes = {name: divided_axis(shape, ranks) for name, shape in shapes.items()}
        self.specs = {name: spec_of(axis) for name, axis in self.axes.items()}

    def exchanged(self, gradients: Weights) -> dict[str, Array]:
        """Within a program, return gradients of which those of shares are exchanged already."""
        return {
            name: averaged(gradient) if self.axes[name] is None else gradient
            for name, gradient in gradients.items()
        }

    def total(self, numbers: Weights) -> Array:
        """Within a program, return the sum of one number for each weight's share."""
        of_shares = sum(value for name, value in numbers.items() if self.axes[name] is not None)
        of_whole = sum(value for name, value in numbers.items() if self.axes[name] is None)
        return lax.psum(of_shares, AXIS) + of_whole


class Gathered(Mapping[str, Array]):
    """Within a program, the weights of which this rank has `shares`: the whole of one is
    gathered whenever it is looked up."""

    def __init__(self, how: Shares, shares: Weights) -> None:
        self.how = how
        self.shares = shares

    def __getitem__(self, name: str) -> Array:
        share, axis = self.shares[name], self.how.axes[name]
        if axis is None:
            return share
        return gathered(share, axis, self.how.dtype if share.ndim > 1 else share.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shares)

    def __len__(self) -> int:
        return len(self.shares)


def divided_axis(shape: tuple[int, ...], ranks: int) -> int | None:
    """Return the first axis that the ranks divide evenly; None if there is none."""
    for axis, length in enumerate(shape):
        if length % ranks == 0:
            return axis
    return None


def spec_of(axis: int | None) -> PartitionSpec:
    return WHOLE if axis is None else PartitionSpec(*[None] * axis, AXIS)


def checkpoint_of(options: Options) -> Callable[..., Any]:
    """Return what has a layer compute in the backward pass again what it does not keep:
    gathered weights, activations, or both."""
    match options.sharding, options.recompute:
        case "none" | "gradients", "none":
            return lambda layer: layer
        case "full", "none":
            return partial(jax.checkpoint, policy=keep_all_but_gathered)
        case "gradients", "full":
            return partial(jax.checkpoint, policy=keep_gathered_alone)
    return jax.checkpoint


def keep_all_but_gathered(primitive: Any, *_arguments: Any, **_options: Any) -> bool:
    return primitive is not lax.all_gather_p


def keep_gathered_alone(primitive: Any, *_arguments: Any, **_options: Any) -> bool:
    return primitive is lax.all_gather_p
