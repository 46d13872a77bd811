"""The nodes of Slurm on each of which a sweep measures every configuration."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from perfkit.measuring.config import NODE
from perfkit.sweep.slurm import WHERE_SLURM_WORKS, SlurmError, command_output
from perfkit.sweep.sweep_file import SweepError

ALL = "all"
NODE_FORMAT = "%N|%P|%t|%E"
"""sinfo's format of a line: the node, its partition, state and the reason of that state."""
USABLE = ("idle", "mix", "alloc", "comp", "plnd", "resv")
"""States, in sinfo's short form, of nodes on which a job will start sooner or later."""


class Nodes(NamedTuple):
    """The nodes to measure, and a sentence about each node that can't be."""

    names: list[str]
    unusable: list[str]


def slurm_nodes(text: str, sbatch_options: Sequence[str]) -> Nodes:
    """Return nodes of Slurm: all of a partition, or those in a list such as node[1-4]. The
    partition is that of the options, or the default. Raises SweepError."""
    named = [] if text == ALL else _expanded(text)
    partition = _partition(sbatch_options)
    words = ["sinfo", "--noheader", "--Node", "--format", NODE_FORMAT]
    if partition:
        words += ["--partition", partition]
    if text != ALL:
        words += ["--nodes", text]
    try:
        lines = command_output(*words).splitlines()
    except SlurmError as error:
        raise SweepError([f"--each-node: {error}; {WHERE_SLURM_WORKS}"]) from None
    states: dict[str, str | None] = {}
    for line in lines:
        name, of_partition, state, reason = line.split("|", 3)
        is_default = of_partition.endswith("*")
        if partition or text != ALL or is_default:
            states[name] = None if state in USABLE else f"{name} is {state}: {reason}"
    where = f"partition {partition}" if partition else "this cluster"
    for name in named:
        # sinfo lists only those that exist.
        states.setdefault(name, f"{name} is no node of {where}")
    names = [name for name, problem in states.items() if problem is None]
    unusable = [problem for problem in states.values() if problem is not None]
    if not names:
        where = f"partition {partition}" if partition else "the default partition"
        advice = "sinfo lists partitions and nodes"
        problems = [f"--each-node: no usable node in {where}; {advice}", *unusable]
        raise SweepError(problems)
    return Nodes(names, unusable)


def _expanded(text: str) -> list[str]:
    """Return the names in a list such as node[1-4]. Raises SweepError."""
    try:
        names = command_output("scontrol", "show", "hostnames", text).splitlines()
    except SlurmError as error:
        raise SweepError([f"--each-node {text}: {error}; {WHERE_SLURM_WORKS}"]) from None
    # Of a list that it can't read, scontrol prints no name, or of node[1- the name node]. Its
    # exit status is 0.
    if not names or not all(re.fullmatch(NODE, name) for name in names):
        problem = f"--each-node {text}: not a list of Slurm's nodes"
        raise SweepError([f"{problem}; type one such as node[1-4] or node1,node2"])
    return names


def _partition(sbatch_options: Sequence[str]) -> str | None:
    """Return the partition among the options of sbatch."""
    for index, option in enumerate(sbatch_options):
        name, equals, value = option.partition("=")
        if name == "--partition" and equals:
            return value
        if option in ("-p", "--partition") and index + 1 < len(sbatch_options):
            return sbatch_options[index + 1]
    return None
