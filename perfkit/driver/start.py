"""What starts a process on each node, and where those find the driver."""

import os
import socket

from perfkit.config import Config
from perfkit.system.environment import LIBRARY_VARIABLES

SECRET = "PERFKIT_SECRET"
"""The variable that all nodes share; who does not know it is hung up on."""


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
        names = [SECRET, *(name for name in os.environ if name.startswith(LIBRARY_VARIABLES))]
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
