"""Batches as JAX's arrays on the training device; see perfkit.inputs."""

from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from perfkit.inputs import Batches, synthetic
from perfkit.training.options import Options


def new_batches(options: Options) -> Batches:
    """Return the input that the options name."""
    if options.input == "dali":
        from perfkit.inputs import dali

        batches = dali.batches(options, options.rank, "nvidia.dali.plugin.jax")
        return Batches(batches, on_device, 1, options.dali_prefetch)
    return Batches(synthetic.batches(options, options.rank), on_device)


def on_device(array: Any) -> Array:
    """Return an array on the device; integers become 32-bit."""
    if isinstance(array, Array):
        return array.astype(jnp.int32) if array.dtype == jnp.int64 else array
    view = np.from_dlpack(array)
    dtype = np.int32 if view.dtype == np.int64 else view.dtype
    # NumPy copies at once. JAX would copy after all pending steps, when the input may have
    # overwritten its memory.
    return jnp.asarray(view.astype(dtype))
