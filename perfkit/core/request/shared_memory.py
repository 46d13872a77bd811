"""Whether this machine's shared memory (/dev/shm) is enough for a DataLoader's processes. A
container has 64 MiB of it by default, and a process that can't write there is killed."""

import shutil
from pathlib import Path

from perfkit.core.config import Config, RunConfig
from perfkit.core.refusals import Refusal, SharedMemoryTooSmall
from perfkit.inputs.data_set import data_set_class
from perfkit.training.frameworks import FRAMEWORKS

FOLDER = Path("/dev/shm")
BATCHES_PER_PROCESS = 2
"""Batches that each process of a DataLoader prepares while the first step is trained."""


def too_small(config: RunConfig) -> Refusal | None:
    """Return the refusal of a configuration whose DataLoader needs more than there is."""
    if not isinstance(config, Config) or config.input != "dataloader":
        return None
    if FRAMEWORKS[config.framework].loader_threads or not FOLDER.is_dir():
        return None
    sample_bytes = data_set_class(config).sample_bytes(config.sample_size)
    processes = config.dataloader_workers * config.devices
    needed = BATCHES_PER_PROCESS * processes * config.batch_size * sample_bytes
    free = shutil.disk_usage(FOLDER).free
    if free >= needed:
        return None
    return SharedMemoryTooSmall(free=free, needed=needed, size=needed)
