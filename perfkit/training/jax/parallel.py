"""Data-parallel training by several processes, each with one device.

All processes run the same programs. The ranks' batches are the parts of one array, split along
its first axis. Every other array is declared as whole, of which each process holds its own
copy: weights and optimizer states have equal copies, while batch norm's statistics, dropout's
keys and gradients that are not exchanged yet differ, as in Paddle and PyTorch. `shard_map`
without its check of replication (`check_vma`) leaves these copies alone.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perfkit.training.frameworks import MEETING_VARIABLE
from perfkit.training.options import Options

AXIS = "ranks"
WHOLE, SPLIT = PartitionSpec(), PartitionSpec(AXIS)


def join(options: Options) -> None:
    """Join the other ranks. Must precede the first use of a device."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    meeting = os.environ[MEETING_VARIABLE]
    is_one_node = options.ranks == options.devices
    jax.distributed.initialize(
        meeting,
        options.ranks,
        options.rank,
        # Without both, JAX takes the device of a Slurm task or of an Open MPI process.
        local_device_ids=[options.local_rank],
        cluster_detection_method="deactivate",
        # By default, any machine could connect to rank 0.
        coordinator_bind_address=meeting if is_one_node else None,
    )


def mesh_of_ranks() -> Mesh:
    return Mesh(np.array(jax.devices()), (AXIS,))


def placed(array: np.ndarray, mesh: Mesh | None = None, spec: PartitionSpec = WHOLE) -> Array:
    """Return an array of floats on this rank's device: all of it, or of one that the ranks
    divide its share."""
    array = np.asarray(array, jnp.result_type(float))
    if mesh is None:
        return jnp.array(array)
    sharding = NamedSharding(mesh, spec)
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])


def held(array: Array, mesh: Mesh | None) -> Array:
    """Return an array of this rank's device as its copy of a whole array."""
    if mesh is None:
        return array
    sharding = NamedSharding(mesh, WHOLE)
    return jax.make_array_from_single_device_arrays(array.shape, sharding, [array])


def joined(batch: tuple[Array, ...], mesh: Mesh | None) -> tuple[Array, ...]:
    """Return the batch of all ranks, of which this rank has `batch`."""
    if mesh is None:
        return batch
    sharding = NamedSharding(mesh, SPLIT)
    arrays = []
    for array in batch:
        rows, *others = array.shape
        shape = (rows * mesh.size, *others)
        arrays.append(jax.make_array_from_single_device_arrays(shape, sharding, [array]))
    return tuple(arrays)


def local(array: Array) -> Array:
    """Return this rank's copy of a whole array."""
    return array.addressable_data(0)


def averaged(gradients: Any) -> Any:
    """Within a program, return the means of the ranks' gradients."""
    return jax.lax.pmean(gradients, AXIS)


def program(
    function: Callable[..., Any],
    mesh: Mesh | None,
    specs: tuple[Any, ...],
    results: Any = WHOLE,
    donated: tuple[int, ...] = (),
) -> Any:
    """Compile a function, which each rank runs. `specs` and `results` tell how the ranks divide
    its arguments, of which one may be None, and its results."""
    if mesh is None:
        return jax.jit(function, donate_argnums=donated)

    def on_each_rank(*arguments: Any) -> Any:
        present = []
        for argument, spec in zip(arguments, specs, strict=True):
            present.append(WHOLE if argument is None else spec)
        mapped = jax.shard_map(
            function,
            mesh=mesh,
            in_specs=tuple(present),
            out_specs=results,
            check_vma=False,
        )
        return mapped(*arguments)

    return jax.jit(on_each_rank, donate_argnums=donated)
