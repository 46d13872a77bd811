"""Which machines a measurement on several nodes runs on, and which of them this one is."""

import os
import socket
from ipaddress import ip_address

import psutil

RESOLVER_WORDS = "is it spelt as your resolver or /etc/hosts knows it?"


def address_of(host: str) -> str:
    """The IPv4 address of `host`. Raises OSError if it has none."""
    return socket.gethostbyname(host)


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
            address = address_of(host)
            # Debian has a machine's own name at 127.0.1.1, which no interface has.
            if address in own or ip_address(address).is_loopback:
                return index
        except OSError:
            continue
    return None


def problems(launcher: str, nodes: int, hosts: str | None) -> list[str]:
    """What is wrong with starting so many nodes from here, as sentences."""
    if launcher == "srun":
        return _slurm_problems(nodes)
    if launcher in ("mpirun", "manual"):
        return _host_problems(launcher, nodes, hosts)
    return []


def _slurm_problems(nodes: int) -> list[str]:
    allocated = os.environ.get("SLURM_JOB_NUM_NODES")
    if allocated is None:
        return [
            "launcher: srun needs a Slurm allocation, and this is none. In a batch script: "
            f"sbatch --nodes {nodes} --exclusive …; without Slurm: -p launcher mpirun "
            "(or manual) -p hosts A,B"
        ]
    if nodes > int(allocated):
        return [f"nodes: {nodes} asked for, and this Slurm allocation has {allocated}"]
    if "SLURMD_NODENAME" not in os.environ:
        return [
            "launcher: this is not one of the allocation's nodes; start perfkit on the first "
            "of them: sbatch, or srun --nodes 1 --pty"
        ]
    return []


def _host_problems(launcher: str, nodes: int, hosts: str | None) -> list[str]:
    named = hosts.split(",") if hosts else []
    if len(named) != nodes or len(set(named)) != nodes:
        return [
            f"hosts: launcher={launcher} with nodes={nodes} needs {nodes} different hosts, "
            f"this one first: -p hosts A,B; given: {hosts or 'none'}"
        ]
    unknown = []
    for host in named:
        try:
            address_of(host)
        except OSError as error:
            unknown.append(f"hosts: {host}: {error.strerror or error}; {RESOLVER_WORDS}")
    if unknown:
        return unknown
    index = own_index(named)
    if index is None:
        return [f"hosts: this machine is none of {hosts}; start perfkit on the first of them"]
    if launcher == "mpirun" and index != 0:
        return [f"hosts: this machine is {named[index]}; name it first, or start on {named[0]}"]
    return []
