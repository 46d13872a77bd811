"""Checks before a measurement, without training."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from perfkit.core.config import Config, Protocol
from perfkit.core.driver.cluster import ClusterLauncher, remove_abandoned
from perfkit.core.driver.failures import NodeError
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.inputs import InputError
from perfkit.core.inputs.data_set import data_set_class, examine
from perfkit.core.models import model_of
from perfkit.core.paths import resolved_path
from perfkit.core.request.plan import Plan
from perfkit.core.request.requirements import read_environment
from perfkit.core.results.store import make_folder

MOST_SECONDS = 60
"""Longest wait for the nodes."""
ABANDONED_SECONDS = 3600.0
"""No check of nodes takes this long."""
FREE_BYTES = 100 * 2**20


class Check(NamedTuple):
    """A check; `well` is None if absent but maybe not needed, `seen` the finding or remedy."""

    well: bool | None
    subject: str
    seen: str


def examine_plan(plan: Plan) -> Iterator[Check]:
    """Check this machine and, for several nodes, all nodes."""
    config = plan.config
    environment = read_environment(config.framework, config.data_folder, config.interpreter)
    for fact in ("python", *FRAMEWORKS[config.framework].facts, "dali"):
        value, missing = environment[fact].value, environment[fact].missing
        yield Check(None if missing else True, fact, missing or str(value))
    yield _data(config)
    remedy = "free disk space, or choose another folder: -p outputs_dir FOLDER"
    yield _free_space("outputs", resolved_path(config.outputs_dir), FREE_BYTES, remedy)
    if config.input == "dataloader" and not FRAMEWORKS[config.framework].loader_threads:
        # Each process of the loader prepares two batches.
        batches = 2 * config.dataloader_workers * config.devices
        sample_bytes = data_set_class(config).sample_bytes(config.sample_size)
        needed = batches * config.batch_size * sample_bytes
        remedy = "in a container: docker run --shm-size; or fewer: -p dataloader_workers N"
        yield _free_space("shared memory", Path("/dev/shm"), needed, remedy)
    if config.nodes > 1:
        config = config.model_copy(update={"timeout": min(config.timeout, MOST_SECONDS)})
        yield from _nodes(config, plan.protocol)


def _data(config: Config) -> Check:
    if config.input == "synthetic":
        return Check(True, "data", "none needed: synthetic input")
    try:
        count = len(examine(config))
    except InputError as error:
        return Check(False, "data", str(error))
    return Check(True, "data", f"{count:,} {model_of(config).sample}s in {config.data_dir}")


def _free_space(subject: str, path: Path, needed: int, remedy: str) -> Check:
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    seen = f"{free / 2**20:,.0f} MiB free, {needed / 2**20:,.0f} MiB needed"
    well = free >= needed
    return Check(well, subject, seen if well else f"{seen}; {remedy}")


def _nodes(config: Config, protocol: Protocol) -> Iterator[Check]:
    """Start the node programs as a measurement would, and let them try to reach each other."""
    outputs = resolved_path(config.outputs_dir)
    try:
        make_folder(outputs)
        remove_abandoned(outputs, ABANDONED_SECONDS)
        with ClusterLauncher(config, protocol, outputs) as launcher:
            for node in launcher.wait_for_nodes(lambda _text: None, try_each=True):
                differs = ", ".join(node.differs) or "nothing"
                seen = f"connected by interface {node.interface}; differs in {differs}"
                yield Check(True, node.name, seen)
            launcher.rendezvous_port()
            problems = launcher.unreachable()
            yield from (Check(False, "network", problem) for problem in problems)
            if not problems:
                yield Check(True, "network", "all nodes reach each other; ports are free")
    except OSError as error:
        yield Check(False, "nodes", str(error))
    except NodeError as error:
        yield Check(False, error.failure.code.replace("_", " "), error.failure.text())
