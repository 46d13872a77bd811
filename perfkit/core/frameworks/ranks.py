"""Starts the ranks of a node as plain processes, for frameworks without a launcher:
`python -m perfkit.core.frameworks.ranks LOGS FIRST COUNT ADDRESS COMMAND…`.

COUNT processes run COMMAND; each finds its rank, from FIRST on, in RANK_VARIABLE, and the
address where all ranks meet, `host:port`, in MEETING_VARIABLE. ADDRESS `-` stands for a free
port of this machine. The output of the node's rank i goes to LOGS/rank<i>.log. The first rank
that fails ends this program with its exit status; the supervisor then ends the others.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from perfkit.core.frameworks.facts import MEETING_VARIABLE, RANK_VARIABLE

POLL_SECONDS = 0.05


def run(logs: Path, first: int, count: int, address: str, command: list[str]) -> int:
    """Run all ranks, and return the exit status of the first that fails, 0 if none does."""
    if address == "-":
        address = free_address()
    running = []
    for index in range(count):
        place = {RANK_VARIABLE: str(first + index), MEETING_VARIABLE: address}
        with (logs / f"rank{index}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=os.environ | place, stdout=log, stderr=subprocess.STDOUT
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


def free_address() -> str:
    """Return a free port of this machine, at which only its own processes can meet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        return f"{host}:{port}"


if __name__ == "__main__":
    logs, first, count, address, *command = sys.argv[1:]
    sys.exit(run(Path(logs), int(first), int(count), address, command))
