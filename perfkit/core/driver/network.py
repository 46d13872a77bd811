"""Whether the nodes of a measurement reach each other by TCP, for `perfkit doctor`."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from perfkit.core.driver.node_files import (
    POLL_SECONDS,
    Answer,
    NodeFacts,
    Reached,
    nodes_with,
    read,
    write,
)

LISTENING_SECONDS = 10.0
"""Time in which the nodes try to reach each other."""
CONNECTING_SECONDS = 3.0


def try_each_other(
    folder: Path, node: int, facts: NodeFacts, count: int, deadline: float
) -> None:
    """Write the facts of this node with a port on which it listens; when all `count` nodes have
    done so, connect to each, and write which can't be reached. Raises OSError."""
    with _listening(facts.address) as port:
        with_port = facts.model_copy(update={"port": port})
        write(folder, f"facts-{node}.json", Answer(facts=with_port))
        if not wait_for_nodes("facts", folder, count, deadline):
            return
        deadline = time.monotonic() + LISTENING_SECONDS
        write(folder, f"reached-{node}.json", Reached(errors=_unreachable(folder, count)))
        wait_for_nodes("reached", folder, count, deadline)


def wait_for_nodes(kind: str, folder: Path, count: int, deadline: float) -> bool:
    """Return whether the files of this kind of all `count` nodes are there before the
    deadline."""
    while len(nodes_with(kind, folder)) < count:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


@contextmanager
def _listening(address: str) -> Iterator[int]:
    """Listen on a free port of `address`; the kernel accepts the connections."""
    with closing(socket.create_server((address, 0), backlog=1024)) as server:
        yield int(server.getsockname()[1])


def _unreachable(folder: Path, count: int) -> dict[int, str]:
    """Return the nodes to whose port no connection can be made, with the reason."""
    facts = [read(folder, f"facts-{node}.json", Answer).facts for node in range(count)]
    # All at once, since each unreachable node takes CONNECTING_SECONDS.
    with ThreadPoolExecutor(count) as pool:
        errors = [*pool.map(_connection_error, facts)]
    return {node: error for node, error in enumerate(errors) if error}


def _connection_error(facts: NodeFacts | None) -> str | None:
    """Return why a connection to a node fails; None if it succeeds, or the node has no
    facts."""
    if not facts or not facts.port:
        return None
    try:
        socket.create_connection((facts.address, facts.port), CONNECTING_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
