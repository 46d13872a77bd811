"""Which machines a measurement on several nodes runs on, which of them this one is, and what
starts a process on each."""

import os
import socket
from ipaddress import ip_address

import psutil

from perfkit.config import Config

SECRET = "PERFKIT_SECRET"
"""The variable that all nodes share; who does not know it is hung up on."""
FORWARDED = ("NCCL_", "GLOO_", "FLAGS_", "OMP_", "MKL_", "KMP_", "DALI_")
"""How the names of variables begin by which users steer the libraries."""
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


def start_command(config: Config, node: list[str]) -> list[str]:
    """What starts `node`, the command of one node, on each of them."""
    if config.launcher == "srun":
        count = str(config.nodes)
        # Not bound to cores: a node's one task is all of its workers. Overlapping, since
        # perfkit may run in a step of the same allocation.
        launch = ["srun", "--nodes", count, "--ntasks", count, "--ntasks-per-node", "1"]
        launch += ["--overlap", "--cpu-bind", "none", "--kill-on-bad-exit", "--export", "ALL"]
        return [*launch, *node]
    if config.launcher == "mpirun":
        slots = ",".join(f"{host}:1" for host in config.host_list)
        launch = ["mpirun", "--host", slots, "-np", str(config.nodes)]
        launch += ["--map-by", "ppr:1:node", "--bind-to", "none"]
        launch += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        names = [SECRET, *(name for name in os.environ if name.startswith(FORWARDED))]
        names += [n for n in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH") if n in os.environ]
        return [*launch, *(word for name in names for word in ("-x", name)), *node]
    return node


def meeting_address(config: Config) -> str:
    """This machine's address as the other nodes see it; empty, for all of them, with Slurm,
    which tells each task the address that it was launched from."""
    if config.launcher == "srun":
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Connecting a datagram socket sends nothing; it chooses the way.
        probe.connect((config.host_list[1], 9))
        return str(probe.getsockname()[0])
