"""The files through which the driver and the other nodes of a measurement tell each other what
they need.

They lie in `.nodes-<random>/<k>`, for repeat k, in the measurement's folder, which all nodes
share. A node that does not find them does not share `outputs_dir`, or its driver has ended.

    job.json           written by the driver, which then starts a node program (node.py) on each
                       node but its own, which is node 0
    started-<n>.json   written by node n before its workers start: how it differs from node 0
    rank<r>.jsonl      moved there by the node of rank r when its workers have ended
    ended-<n>.json     written by node n after that: how its workers ended, and their logs; or
                       why it has not started them

The driver moves the raw files on to `repeats/<k>`, so that a node that a broken link has cut
off can't write into a later run. While the workers run, their raw files are on their own node.

Each JSON file is written under another name and then renamed: nobody reads a part of it. NFS
remembers for up to a minute that a name did not exist: so the driver lists the folder for
`started-<n>.json`, and opens `ended-<n>.json` only when the node program has ended.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from perfkit.measuring.config import Config
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.results.identity import identity
from perfkit.timing.raw_file import rank_file

PREFIX = ".nodes-"
"""Beginning of the name of the shared folder."""
JOB = "job.json"
POLL_SECONDS = 0.25
"""Interval at which a folder is listed."""


class NodeJob(BaseModel):
    """What the nodes run in a repeat."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    package: str
    """digest of the driver's perfkit"""
    config: Config
    protocol: Protocol
    job: str
    """unique name of the run"""
    names: list[str]
    """names of the nodes for display"""
    master: str
    """host:port on node 0 where all nodes meet"""
    facts: dict[str, Any]
    """facts of node 0"""
    working_folder: Path | None
    """where a script runs; None for a model, which may run anywhere"""


def read_facts(config: Config) -> dict[str, Any]:
    """Return the facts of this machine that identify a measurement, with the digest of the
    data."""
    work = config.work
    environment = read_environment(config.framework, work.data_folder, config.interpreter)
    return identity(environment) | {"data": work.data_sha256}


def move_raw_files(source: Path, ranks: Iterable[int], target: Path) -> None:
    """Move the existing raw files of `ranks` to another folder, also one on another disk.
    Raises OSError."""
    for rank in ranks:
        file = rank_file(source, rank)
        if file.exists():
            shutil.move(file, rank_file(target, rank), shutil.copyfile)
