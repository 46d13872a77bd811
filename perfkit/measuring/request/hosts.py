"""The machines of a measurement on several nodes, and this machine among them."""

import os
import shutil
import socket
from collections.abc import Iterator
from ipaddress import ip_address

import psutil

from perfkit.measuring.config import Config


def own_addresses() -> dict[str, str]:
    """Return this machine's IPv4 addresses: address -> network interface."""
    interfaces = {}
    for interface, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.family == socket.AF_INET:
                interfaces[address.address] = interface
    return interfaces


def route_address(peer: str) -> str:
    """Return this machine's address on the route to `peer`. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Connecting a datagram socket sends nothing, but selects the route.
        probe.connect((peer, 9))
        address, _port = probe.getsockname()
        return str(address)


def own_index(hosts: list[str]) -> int | None:
    """Return the index of this machine in `hosts`; None if it is not among them."""
    addresses = own_addresses()
    for index, host in enumerate(hosts):
        try:
            address = socket.gethostbyname(host)
        except (OSError, UnicodeError):
            continue
        # Debian maps a machine's own name to 127.0.1.1, which is not an interface's address.
        if address in addresses or ip_address(address).is_loopback:
            return index
    return None


def problems(config: Config) -> Iterator[str]:
    """Yield reasons why this machine is not the node of this configuration, or why its other
    nodes can't be started from here."""
    launcher = config.launcher
    slurm_node = os.environ.get("SLURMD_NODENAME")
    if config.node and slurm_node and slurm_node != config.node:
        yield (
            f"node: {config.node}: this Slurm job runs on {slurm_node}; submit it with "
            f"--nodelist {config.node}"
        )
    if config.nodes == 1 or launcher == "local":
        return
    if not shutil.which(launcher):
        yield f"launcher: {launcher} is not installed on this machine"
    if launcher == "srun":
        yield from _slurm_problems(config.nodes)
    else:
        yield from _host_problems(config)


def _slurm_problems(nodes: int) -> Iterator[str]:
    allocated = os.environ.get("SLURM_JOB_NUM_NODES")
    if allocated is None:
        yield (
            "launcher: srun needs a Slurm allocation. Run perfkit in a batch script: sbatch "
            f"--nodes {nodes} --exclusive …; without Slurm: -p launcher ssh -p hosts A,B"
        )
    elif nodes > int(allocated):
        yield f"nodes: {nodes} requested, but this Slurm allocation has {allocated}"
    elif "SLURMD_NODENAME" not in os.environ:
        yield (
            "launcher: this machine is not a node of the allocation; start perfkit on its "
            "first node: sbatch, or srun --nodes 1 --pty"
        )


def _host_problems(config: Config) -> Iterator[str]:
    hosts, nodes = config.host_list, config.nodes
    if not len(hosts) == len(set(hosts)) == nodes:
        yield (
            f"hosts: launcher={config.launcher} with nodes={nodes} needs {nodes} different "
            f"hosts, this machine first: -p hosts A,B; given: {config.hosts or 'none'}"
        )
        return
    index = own_index(hosts)
    if index is None:
        yield (
            f"hosts: this machine is not in {config.hosts}, as far as DNS and /etc/hosts know "
            "these names; start perfkit on the first host"
        )
    elif index != 0:
        yield f"hosts: this machine is {hosts[index]}; list it first, or start on {hosts[0]}"
    else:
        yield from _unreachable(hosts[1:])


def _unreachable(hosts: list[str]) -> Iterator[str]:
    for host in hosts:
        try:
            route_address(host)
        except (OSError, UnicodeError) as error:
            yield f"hosts: {host}: {error}; check the spelling, DNS, /etc/hosts and the routes"
