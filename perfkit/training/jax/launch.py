"""Starts the ranks of a node as plain processes, for frameworks without a launcher:
`python -m perfkit.training.jax.launch LOGS FIRST COUNT RANKS ADDRESS COMMAND…`.

COUNT processes of RANKS on all nodes run COMMAND; each finds its place, with a rank from FIRST
on, in JAX's rank_variables, and the address where all ranks meet, `host:port`, in
MEETING_VARIABLE; no proxy is used for that host. ADDRESS `-` stands for a free port of this
machine. The output of the node's rank i goes to LOGS/rank<i>.log. The first rank that fails
ends this program with its exit status; the supervisor then ends the others.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from perfkit.training.frameworks import JAX, MEETING_VARIABLE

POLL_SECONDS = 0.05
PROXY_EXCEPTIONS = ("no_proxy", "NO_PROXY", "no_grpc_proxy")
"""Environment variables with hosts that are reached without a proxy; a program reads the first
that it knows."""


def run(
    logs: Path, first: int, count: int, ranks: int, address: str, command: list[str]
) -> int:
    """Run this node's ranks, and return the exit status of the first that fails, 0 if none
    does."""
    if address == "-":
        address = free_address()
    meeting = {MEETING_VARIABLE: address, **without_proxy(address)}
    running = []
    for index in range(count):
        place = {"rank": first + index, "ranks": ranks, "local_rank": index, "devices": count}
        told = {
            variable: str(place[name])
            for name, (variable, _alone) in JAX.rank_variables.items()
        }
        with (logs / f"rank{index}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=os.environ | told | meeting, stdout=log, stderr=subprocess.STDOUT
            )
        running.append(process)
    while running:
        for process in running:
            status = process.poll()
            if status:
                # As a shell: 128 + N after signal N.
                return status if status > 0 else 128 - status
        running = [process for process in running if process.returncode is None]
        time.sleep(POLL_SECONDS)
    return 0


def without_proxy(address: str) -> dict[str, str]:
    """Return environment variables that add the host of an address to those that are reached
    without a proxy, if there is a proxy: gRPC otherwise sends even a machine's connection to
    itself to `http_proxy`."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    host, _colon, _port = address.rpartition(":")
    hosts = [os.environ[name] for name in PROXY_EXCEPTIONS if os.environ.get(name)]
    return dict.fromkeys(PROXY_EXCEPTIONS, ",".join([*hosts, host]))


def free_address() -> str:
    """Return a free port of the loopback, which other machines can't reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        return f"{host}:{port}"


if __name__ == "__main__":
    logs, first, count, total, address, *command = sys.argv[1:]
    sys.exit(run(Path(logs), int(first), int(count), int(total), address, command))
