"""Which machines a measurement on several nodes runs on, and which of them this one is."""

import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address

import psutil

from perfkit.config import Config

RESOLVER_WORDS = "is it spelt as your resolver or /etc/hosts knows it?"


def own_addresses() -> dict[str, str]:
    """IPv4 address -> network interface, of this machine."""
    return {
        address.address: interface
        for interface, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET
    }


def own_index(hosts: list[str]) -> int | None:
    """Which of `hosts` this machine is; None if it is none of them."""
    own = own_addresses()
    for index, host in enumerate(hosts):
        try:
            address = socket.gethostbyname(host)
        except OSError:
            continue
        # Debian has a machine's own name at 127.0.1.1, which no interface has.
        if address in own or ip_address(address).is_loopback:
            return index
    return None


def problems(config: Config) -> Iterator[str]:
    """What keeps the nodes of this configuration from being started from here."""
    if config.nodes > 1 and config.launcher == "srun":
        yield from _slurm_problems(config.nodes)
    elif config.nodes > 1 and config.launcher in ("mpirun", "manual"):
        yield from _host_problems(config)


def _slurm_problems(nodes: int) -> Iterator[str]:
    allocated = os.environ.get("SLURM_JOB_NUM_NODES")
    if allocated is None:
        yield (
            "launcher: srun needs a Slurm allocation, and this is none. In a batch script: "
            f"sbatch --nodes {nodes} --exclusive …; without Slurm: -p launcher mpirun "
            "(or manual) -p hosts A,B"
        )
    elif nodes > int(allocated):
        yield f"nodes: {nodes} asked for, and this Slurm allocation has {allocated}"
    elif "SLURMD_NODENAME" not in os.environ:
        yield (
            "launcher: this is not one of the allocation's nodes; start perfkit on the first "
            "of them: sbatch, or srun --nodes 1 --pty"
        )


def _host_problems(config: Config) -> Iterator[str]:
    named, nodes = config.host_list, config.nodes
    if not len(named) == len(set(named)) == nodes:
        yield (
            f"hosts: launcher={config.launcher} with nodes={nodes} needs {nodes} different "
            f"hosts, this one first: -p hosts A,B; given: {config.hosts or 'none'}"
        )
        return
    unknown = {}
    for host in named:
        try:
            socket.gethostbyname(host)
        except OSError as error:
            unknown[host] = error.strerror or error
    if unknown:
        yield from (f"hosts: {h}: {why}; {RESOLVER_WORDS}" for h, why in unknown.items())
    elif (index := own_index(named)) is None:
        yield (
            f"hosts: this machine is none of {config.hosts}; start perfkit on the first of them"
        )
    elif config.launcher == "mpirun" and index != 0:
        yield f"hosts: this machine is {named[index]}; name it first, or start on {named[0]}"
