"""The nodes of a fleet, on each of which a sweep measures every configuration."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perfkit.core.config import NODE
from perfkit.core.refusals import Refusal, UnknownHost
from perfkit.core.request.hosts import without_address
from perfkit.sweep.slurm import WHERE_SLURM_WORKS, SlurmError, command_output
from perfkit.sweep.sweep_file import SweepError

ALL = "all"
NODE_FORMAT = "%N|%P|%t|%E"
"""sinfo's format of a line: the node, its partition, state and the reason of that state."""
USABLE = ("idle", "mix", "alloc", "comp", "plnd", "resv")
"""States, in sinfo's short form, of nodes on which a job will start sooner or later."""


class UnknownConfiguredHost(Refusal):
    """ssh's configuration gives a host another name, which has no address."""

    code = "unknown_configured_host"
    sentence = (
        "%(host)s: ssh looks up %(configured)s: %(reason)s; check HostName of %(host)s in "
        "ssh's configuration, DNS and /etc/hosts"
    )
    parameter: str = "--each-node"
    host: str
    configured: str
    reason: str


class Nodes(NamedTuple):
    """The nodes to measure, and a sentence about each node that can't be."""

    names: list[str]
    unusable: list[str]


def hosts_of(text: str) -> Nodes:
    """Return the hosts in a comma-separated list, to reach by ssh. Raises SweepError."""
    names = [name.strip() for name in text.split(",")]
    invalid = [name for name in names if not name or not re.fullmatch(NODE, name)]
    if text == ALL or invalid:
        problem = "--each-node: name hosts, as in --each-node node1,node2; all: with --slurm"
        raise SweepError([problem])
    return Nodes([*dict.fromkeys(names)], [])


def require_known(hosts: Sequence[str]) -> None:
    """Raise SweepError unless ssh is installed and finds the address of every host."""
    if not shutil.which("ssh"):
        raise SweepError(["--each-node: ssh is not installed on this machine"])
    unknown = [*_unknown_hosts(hosts)]
    if unknown:
        raise SweepError(unknown)


def _unknown_hosts(hosts: Sequence[str]) -> Iterator[Refusal]:
    """Yield the hosts that have no address, neither by their name nor as ssh is configured.
    Raises SweepError."""
    for host in hosts:
        reason = without_address(host)
        if not reason:
            continue
        configured = _configured_host(host)
        if configured == host:
            yield UnknownHost(parameter="--each-node", host=host, reason=reason)
        elif configured:
            reason = without_address(configured)
            if reason:
                yield UnknownConfiguredHost(host=host, configured=configured, reason=reason)


def _configured_host(host: str) -> str | None:
    """Return the name that ssh looks up for a host; None if it reaches it by another machine or
    command, which does that. Raises SweepError if ssh can't read its configuration."""
    done = subprocess.run(["ssh", "-G", host], capture_output=True, text=True, check=False)
    if done.returncode:
        printed = "; ".join(done.stderr.splitlines())
        problem = f"--each-node: {host}: ssh can't read its configuration: {printed}"
        raise SweepError([f"{problem}; correct it, and try: ssh -G {host}"])
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    if settings.keys() & {"proxyjump", "proxycommand"}:
        return None
    return settings.get("hostname", host)


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
