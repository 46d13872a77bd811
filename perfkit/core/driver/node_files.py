"""The files through which the driver and the other nodes of a measurement tell each other what
they need: there is no other connection between them.

They lie in a folder that all nodes share: the driver makes `.nodes-<random>` in the
measurement's folder, and removes it at the end. A node that does not find it does not share
`outputs_dir`, or its driver has ended.

For each start of the node programs there is a folder in it: `facts` once, and `<k>` for repeat
k. The driver writes `job.json` into it, which says what the nodes are to do, and starts one
node program (node.py) on each node but its own, which is node 0. Then, in `facts`:

    facts-<n>.json     written by node n: its name, address, versions, GPUs, data and code
    reached-<n>.json   written by node n for `perfkit doctor`: the nodes that it can't reach

and in `<k>`:

    end.json           written by the driver: all nodes end their workers now
    last-step          empty, until the driver writes the last step of a script's warm-up
    rank<r>.jsonl      moved there by the node of rank r when its workers have ended
    ended-<n>.json     written by node n after that: how its workers ended, and their logs

The driver moves the raw files on to `repeats/<k>`, so that a node that a broken link has cut
off can't write into a later run. While the workers run, their raw files are on their own node.

Each file but `last-step` is written under another name and then renamed: nobody reads a part of
it. Whoever waits for a file lists its folder, because NFS remembers for up to a minute that a
name did not exist; it may also show an old list for as long. `last-step` is in a hurry: it is
there from the start, because NFS asks for the newest content of a file whenever it is opened.
"""

import os
import shutil
import socket
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from perfkit.core.config import Protocol
from perfkit.core.data import digest
from perfkit.core.request.hosts import own_addresses, route_address
from perfkit.core.request.requirements import read_environment
from perfkit.core.request.script import script_digest
from perfkit.core.results.identity import identity
from perfkit.core.results.store import write_atomically
from perfkit.core.script_config import AnyConfig, ScriptConfig, StoredConfig
from perfkit.core.system.devices import visible_devices
from perfkit.core.system.environment import package_source
from perfkit.timing.raw_file import rank_file
from perfkit.training.frameworks import NodeRank

PREFIX = ".nodes-"
"""Beginning of the name of the shared folder."""
JOB, END, LAST_STEP = "job.json", "end.json", "last-step"
POLL_SECONDS = 0.25
"""Interval at which a folder is listed."""


class ExitStatus(IntEnum):
    """Exit status of a node program that can't write into the shared folder. The values exceed
    those of processes ended by a signal, since srun returns the highest of all nodes."""

    NOT_SHARED = 200
    IO_ERROR = 201


class NodeFile(BaseModel):
    """The content of one of these files."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class FactsJob(NodeFile):
    """The nodes are to write their facts."""

    package: str
    """digest of the driver's perfkit"""
    config: StoredConfig
    """the configuration"""
    first_address: str
    """node 0's address; empty if srun tells it to the nodes"""
    try_each_other: bool
    """whether the nodes are also to try to reach each other"""
    working_directory: str | None = None
    """where a script will run; None for a model"""


class NodeFacts(NodeFile):
    """One node, as it sees itself."""

    name: str
    """name of the machine"""
    address: str
    """address towards node 0, which its workers use"""
    interface: str
    """network interface with this address"""
    first_address: str
    """node 0's address"""
    gpus: int
    """visible devices of the type that trains"""
    facts: dict[str, Any]
    """facts of the environment that identify a measurement, and the digest of the data"""
    port: int | None = None
    """TCP port on which it listens, if the nodes are to try to reach each other"""


class Answer(NodeFile):
    """A node's facts, or why it can't tell them."""

    facts: NodeFacts | None = None
    other_package: str | None = None
    """digest of the node's perfkit, if it is not the driver's"""
    script_problem: str | None = None
    """why the script can't be read or run on the node"""
    error: str | None = None
    """why the facts can't be read"""


class Reached(NodeFile):
    """The nodes that a node can't reach, with the reason."""

    errors: dict[int, str]


class RepeatJob(NodeFile):
    """The nodes are to run their workers."""

    config: StoredConfig
    protocol: Protocol
    job: str
    """unique name of the run"""
    names: list[str]
    """names of the machines, by node"""
    places: list[NodeRank]
    """positions in the run, by node"""
    working_directory: str | None = None
    """where a script runs; None for a model, which may run anywhere"""


class End(NodeFile):
    """The nodes are to end their workers."""

    dump_stacks: bool
    """whether the workers are to log their stacks before"""


def write(folder: Path, name: str, content: BaseModel) -> None:
    """Write a file for the other nodes. Raises OSError."""
    write_atomically(folder / name, content.model_dump_json())


Content = TypeVar("Content", bound=BaseModel)


def read(folder: Path, name: str, kind: type[Content]) -> Content:
    """Read a file that `listed` has shown. Raises OSError and ValueError."""
    return kind.model_validate_json((folder / name).read_text(encoding="utf-8"))


def tell_last_step(folder: Path, step: int) -> None:
    """Tell the nodes the last step of the warm-up. Raises OSError."""
    # The line break is the last byte: without it, a node has read a part.
    (folder / LAST_STEP).write_text(f"{step}\n")


def told_last_step(folder: Path) -> int | None:
    """Return the last step of the warm-up; None before the driver has told it. Raises
    OSError."""
    text = (folder / LAST_STEP).read_text()
    return int(text) if text.endswith("\n") else None


def listed(folder: Path) -> set[str]:
    """Return the names of the files in `folder`. Raises OSError, also if the driver has removed
    it."""
    return {path.name for path in folder.iterdir()}


def nodes_with(kind: str, folder: Path) -> set[int]:
    """Return the nodes whose file of this kind, such as `ended`, is in `folder`. Raises
    OSError."""
    nodes = set()
    for name in listed(folder):
        beginning, _dash, node = name.removesuffix(".json").rpartition("-")
        if beginning == kind and node.isdigit():
            nodes.add(int(node))
    return nodes


def move_raw_files(source: Path, ranks: Iterable[int], target: Path) -> None:
    """Move the existing raw files of `ranks` to another folder, also one on another disk.
    Raises OSError."""
    for rank in ranks:
        file = rank_file(source, rank)
        if file.exists():
            shutil.move(file, rank_file(target, rank), shutil.copyfile)


def machine_name() -> str:
    """Return the name of this machine. Several nodes of a Slurm may run on one machine."""
    return os.environ.get("SLURMD_NODENAME", socket.gethostname())


def read_facts(config: AnyConfig, first_address: str, address: str = "") -> NodeFacts:
    """Return this machine's facts. `address` is its own; if empty, the one towards
    `first_address`. Raises OSError, and ValueError for an interpreter that does not run."""
    environment = read_environment(config.framework, config.data_folder, config.interpreter)
    labels = visible_devices(config.framework, config.device, config.interpreter)
    address = address or route_address(first_address)
    facts = identity(environment)
    facts |= {"data": digest(config), "package": package_source()}
    if isinstance(config, ScriptConfig):
        facts["script"] = script_digest(config.script_file)
    return NodeFacts(
        name=machine_name(),
        address=address,
        interface=own_addresses().get(address, ""),
        first_address=first_address,
        gpus=len(labels),
        facts=facts,
    )
