"""Whether this machine's shared memory (/dev/shm) is enough for the workers. A container has
64 MiB of it by default, and a process that can't write there ends without a message."""

import shutil
from pathlib import Path
from typing import ClassVar, NamedTuple

from perfkit.core import refusals
from perfkit.core.config import Config, RunConfig
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.inputs.data_set import data_set_class
from perfkit.core.refusals import Gibibytes, Mebibytes, Refusal
from perfkit.core.statements import Statement

FOLDER = Path("/dev/shm")
BATCHES_PER_PROCESS = 2
"""Batches that each process of a DataLoader prepares."""
NCCL_BYTES = 4 * 9_637_888
"""NCCL's segments of one device that has no peer-to-peer access to its neighbours: two channels
in each direction (NCCL #342)."""


class SharedMemory(NamedTuple):
    """Bytes of shared memory: `free`; `least`, without which the DataLoader fails, since each
    of its processes holds a batch; `needed` by DataLoader and NCCL."""

    free: int
    least: int
    needed: int


class Notice(Statement):
    """What may go wrong with a request that is not refused. English only, as refusals are."""

    classes: ClassVar = {}


class SharedMemoryScarce(Notice):
    code = "shared_memory_scarce"
    sentence = (
        "/dev/shm has %(free)s free; DataLoader and NCCL may need %(needed)s, and fail when it "
        "is full. In a container: docker run --shm-size %(size)s"
    )
    free: Mebibytes
    needed: Mebibytes
    size: Gibibytes


def shared_memory(config: RunConfig) -> SharedMemory | None:
    """Return this machine's shared memory and what its workers need; None if they use none, or
    if the machine has none."""
    loader, collectives = 0, 0
    if isinstance(config, Config):
        loader = _loader_bytes(config)
    if config.device == "gpu" and config.devices > 1:
        collectives = NCCL_BYTES * config.devices
    if not loader + collectives or not FOLDER.is_dir():
        return None
    free = shutil.disk_usage(FOLDER).free
    return SharedMemory(free, loader, BATCHES_PER_PROCESS * loader + collectives)


def _loader_bytes(config: Config) -> int:
    """Return the bytes of one batch in each process of the DataLoader; 0 without processes."""
    if config.input != "dataloader" or FRAMEWORKS[config.framework].loader_threads:
        return 0
    sample_bytes = data_set_class(config).sample_bytes(config.sample_size)
    processes = config.dataloader_workers * config.devices
    return processes * config.batch_size * sample_bytes


def too_small(config: RunConfig) -> Refusal | None:
    """Return the refusal of a configuration whose DataLoader must fail; None if it need not."""
    memory = shared_memory(config)
    if memory is None or memory.free >= memory.least:
        return None
    return refusals.SharedMemoryTooSmall(
        free=memory.free, least=memory.least, needed=memory.needed, size=memory.needed
    )


def scarce(config: RunConfig) -> Notice | None:
    """Return a notice if DataLoader or NCCL may need more than there is."""
    memory = shared_memory(config)
    if memory is None or memory.free >= memory.needed:
        return None
    return SharedMemoryScarce(free=memory.free, needed=memory.needed, size=memory.needed)
