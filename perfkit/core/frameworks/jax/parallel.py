"""Data-parallel training by several processes, each with one device.

All processes run the same programs. The ranks' batches are the parts of one array, split along
its first axis. Every other array is declared as replicated, of which each process holds its own
copy: parameters and optimizer states have equal copies, while batch norm's statistics, dropout
keys and gradients that are not exchanged yet differ, as in Paddle and PyTorch. `shard_map`
without its check of replication (`check_vma`) leaves these copies alone.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perfkit.core.config import Config
from perfkit.training.frameworks import JAX, MEETING_VARIABLE

AXIS = "ranks"
REPLICATED, SPLIT = PartitionSpec(), PartitionSpec(AXIS)


def this_rank() -> int:
    return int(os.environ.get(JAX.rank_variable, "0"))


def own_device(config: Config) -> int:
    """Return the number of this rank's device on its node."""
    return this_rank() % config.devices


def join(config: Config) -> None:
    """Join the other ranks. Must precede the first use of a device."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    meeting = os.environ[MEETING_VARIABLE]
    # By default, any machine could connect to rank 0.
    bind_address = meeting if config.nodes == 1 else None
    jax.distributed.initialize(
        meeting,
        config.ranks,
        this_rank(),
        # Without both, JAX takes the device of a Slurm task or of an Open MPI process.
        local_device_ids=[own_device(config)],
        cluster_detection_method="deactivate",
        initialization_timeout=config.timeout,
        coordinator_bind_address=bind_address,
    )


def largest_of_ranks(value: int) -> int:
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.process_allgather(np.int32(value)).max())


def divided_axis(shape: tuple[int, ...], ranks: int) -> int | None:
    """Return the axis along which an array is sharded: the first that the ranks divide evenly;
    None if there is none."""
    for axis, length in enumerate(shape):
        if length % ranks == 0:
            return axis
    return None


def averaged(gradients: Any) -> Any:
    """Within a program, return the means of the ranks' gradients."""
    return jax.lax.pmean(gradients, AXIS)


class Ranks:
    """The ranks as a mesh of their devices."""

    def __init__(self) -> None:
        self.mesh = Mesh(np.array(jax.devices()), (AXIS,))

    def held(self, array: Array) -> Array:
        """Return an array of this process's device as its copy of a replicated array."""
        sharding = NamedSharding(self.mesh, REPLICATED)
        return jax.make_array_from_single_device_arrays(array.shape, sharding, [array])

    def share_spec(self, shape: tuple[int, ...]) -> PartitionSpec:
        """Return how an array of this shape is divided among the ranks."""
        axis = divided_axis(shape, self.mesh.size)
        if axis is None:
            return REPLICATED
        return PartitionSpec(*[None] * axis, AXIS)

    def shared_out(self, array: np.ndarray, dtype: Any) -> Array:
        """Return an array of which this process's device gets its share only."""
        sharding = NamedSharding(self.mesh, self.share_spec(array.shape))
        return jax.make_array_from_callback(
            array.shape, sharding, lambda part: array[part].astype(dtype)
        )

    def joined(self, batch: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the batch of all ranks, of which this process holds `batch`."""
        sharding = NamedSharding(self.mesh, SPLIT)
        parts = []
        for array in batch:
            rows, *others = array.shape
            shape = (rows * self.mesh.size, *others)
            part = jax.make_array_from_single_device_arrays(shape, sharding, [array])
            parts.append(part)
        return tuple(parts)

    def on_each(
        self, function: Callable[..., Any], specs: tuple[Any, ...], results: Any = REPLICATED
    ) -> Callable[..., Any]:
        """Return a program that runs `function` on each rank, whose arguments have these
        `specs`, and after them the batch if it has one more. An argument may be None."""

        def run(*values: Any) -> Any:
            batches = (SPLIT,) * (len(values) - len(specs))
            present = []
            for value, spec in zip(values, (*specs, *batches), strict=True):
                present.append(REPLICATED if value is None else spec)
            mapped = jax.shard_map(
                function,
                mesh=self.mesh,
                in_specs=tuple(present),
                out_specs=results,
                check_vma=False,
            )
            return mapped(*values)

        return run


def local(tree: Any) -> Any:
    """Return this process's copies of replicated arrays."""
    return jax.tree.map(lambda array: array.addressable_data(0), tree)
