"""One node of a measurement on several:
`python -m perfkit.driver.node_agent LAUNCHER ADDRESS PORT`.

Connects to the driver, runs this node's workers as it is told, and passes on what they write.
Whatever happens to the driver or the link, no worker is left.
"""

import contextlib
import os
import queue
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from perfkit.config import Config, Protocol
from perfkit.driver.connection import (
    INBOX_MESSAGES,
    SECRET,
    Inbox,
    LostError,
    NodeMessage,
    RejectedError,
    connect,
    shared_secret,
)
from perfkit.driver.workers import LocalWorkers
from perfkit.frameworks.base import NodeRank
from perfkit.inputs.data_set import digest
from perfkit.request.environment import read_environment
from perfkit.request.errors import RequestError
from perfkit.request.hosts import own_addresses
from perfkit.results.store import rank_file
from perfkit.system.environment import identity, package_source
from perfkit.system.gpus import visible_gpus

POLL_SECONDS = 0.2
NODE_VARIABLES = {
    "srun": ("SLURM_NODEID",),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
}
"""Variables that tell a task its node; by hand, the driver starts its own node 0 alone."""


def main(launcher: str, address: str, port: int) -> None:
    """Serve the driver, which has started this and is there."""
    variables = NODE_VARIABLES.get(launcher, ())
    node = next((int(os.environ[name]) for name in variables if name in os.environ), 0)
    try:
        if launcher == "srun":
            address = os.environ["SLURM_LAUNCH_NODE_IPADDR"]
        agent = NodeAgent(address, port, os.environ[SECRET], seconds=0)
        agent.serve(node=node, source=package_source())
    except KeyError as error:
        sys.exit(f"{launcher} did not pass on the variable {error}")
    except LostError as error:
        sys.exit(f"The driver is lost: {error}")


def join(config: Config, protocol: Protocol, node: int) -> str | None:
    """Serve the driver as `node`, started by hand as the driver was; the text of the
    result.json that it ends with, if it has one. Raises RequestError if there is no driver or
    it has another secret, LostError if it is lost."""
    first = config.host_list[0]
    secret = shared_secret(config.host_list, node)
    print(f"Waiting for {first}, up to {config.timeout} s", file=sys.stderr, flush=True)
    try:
        agent = NodeAgent(first, config.listen_port, secret, config.timeout)
    except RejectedError as error:
        raise RequestError([f"hosts: {first} closed the connection: {error}"]) from None
    except LostError as error:
        raise RequestError(
            [
                f"hosts: {error}. Start the same command there within {config.timeout} s; "
                "if its measurement is complete already, all need a label: -p label NAME"
            ]
        ) from None
    request = {"config": config.model_dump(), "protocol": protocol.model_dump()}
    return agent.serve(node=node, source=package_source(), **request)


class NodeAgent:
    """Answers the driver's messages: job, run, end, listen, reach, bye. Raises LostError, if
    the driver has another secret RejectedError."""

    def __init__(self, address: str, port: int, secret: str, seconds: float) -> None:
        self.inbox: Inbox = queue.Queue(INBOX_MESSAGES)
        self.channel = connect(address, port, secret, seconds, self.inbox)
        self.workers: LocalWorkers | None = None
        self.raw: dict[int, Any] = {}
        self.exits_reported = 0

    def serve(self, **hello: Any) -> str | None:
        """Until the driver says bye: the text of its result. Raises LostError."""
        with (
            contextlib.closing(self.channel),
            tempfile.TemporaryDirectory() as scratch,
            contextlib.ExitStack() as self.cleanup,
        ):
            self.scratch = Path(scratch)
            self.channel.send("hello", **hello)
            while True:
                with contextlib.suppress(queue.Empty):
                    _channel, message = self.inbox.get(timeout=POLL_SECONDS)
                    if isinstance(message, LostError):
                        raise message
                    if message["type"] == "bye":
                        if message["result"] is None and message["reason"]:
                            raise LostError(message["reason"])
                        return message["result"]
                    self._answer(message)
                if self.workers:
                    self._report(self.workers)

    def _answer(self, message: NodeMessage) -> None:
        match message["type"]:
            case "job":
                try:
                    self._prepare(message)
                except (OSError, ValueError) as error:
                    detail = f"{type(error).__name__}: {error}"
                    self.channel.send("refused", code="nodes_differ", params={"detail": detail})
            case "run":
                self._run(message)
            case "end" if self.workers:
                self._end(self.workers, dump_stacks=message["dump_stacks"])
            case "end":
                pass
            case "listen":
                self._listen(message["port"])
            case "reach":
                self._reach(message["ports"])
            case unknown:
                raise LostError(f"it sent {unknown!r}, which this perfkit does not know")

    def _prepare(self, message: NodeMessage) -> None:
        """Take in what is to be measured. The answer: what the nodes must have in common, and
        where this one can be reached."""
        self.config = Config.model_validate(message["config"])
        self.protocol = Protocol.model_validate(message["protocol"])
        environment = read_environment(self.config.framework, self.config.data_folder)
        address = self.channel.address
        with socket.create_server((address, 0)) as server:
            free_port = server.getsockname()[1]
        self.channel.send(
            "ready",
            address=address,
            interface=own_addresses().get(address, ""),
            facts=identity(environment) | {"data": digest(self.config)},
            name=os.environ.get("SLURMD_NODENAME", socket.gethostname()),
            gpus=len(visible_gpus()),
            port=free_port,
        )

    def _run(self, message: NodeMessage) -> None:
        """Start this node's workers of one repeat."""
        place = NodeRank(**message["place"])
        address, _, port = place.master.rpartition(":")
        if place.node == 0 and (detail := _unavailable(address, int(port))):
            params = {"port": int(port), "address": address, "detail": detail}
            self.channel.send("refused", code="port_taken", params=params)
            return
        raw_folder = self.scratch / str(message["repeat"])
        raw_folder.mkdir(exist_ok=True)
        self.exits_reported = 0
        self.workers = self.cleanup.enter_context(
            LocalWorkers(self.config, self.protocol, raw_folder, message["job"], place)
        )

    def _end(self, workers: LocalWorkers, *, dump_stacks: bool) -> None:
        """End the workers now."""
        # First what is known before the end, which hides who had exited already.
        self._report(workers)
        if self.workers:
            workers.end(dump_stacks=dump_stacks)
            self._report(workers)

    def _listen(self, port: int) -> None:
        """Open a port, 0 for any, that the other nodes can try to reach."""
        error = _unavailable(self.channel.address, port)
        if not error:
            address = (self.channel.address, port)
            server = self.cleanup.enter_context(socket.create_server(address, backlog=1024))
            port = server.getsockname()[1]
        self.channel.send("listening", error=error, port=port)

    def _reach(self, ports: dict[str, list[Any]]) -> None:
        """Try to reach the ports of the other nodes; the answer has an error for each that
        can't be reached."""
        with ThreadPoolExecutor(32) as pool:
            errors = dict(zip(ports, pool.map(_unreachable, ports.values()), strict=True))
        self.channel.send("reached", errors={n: error for n, error in errors.items() if error})

    def _report(self, workers: LocalWorkers) -> None:
        """Pass on what the workers have written; when they have ended, how."""
        ended = workers.wait(0)
        for rank in workers.ranks:
            path = rank_file(workers.raw_folder, rank)
            if rank not in self.raw and path.exists():
                self.raw[rank] = path.open()
            if rank in self.raw and (text := self.raw[rank].read()):
                self.channel.send("raw", rank=rank, text=text)
        if len(workers.exited_at) > self.exits_reported:
            self.exits_reported = len(workers.exited_at)
            self.channel.send("exited", ranks=[*workers.exited_at])
        if ended:
            self.workers = None
            exit_info = workers.exit_info()._replace(exited_at={})
            self.channel.send("ended", exit=exit_info._asdict())
            for stream in self.raw.values():
                stream.close()
            self.raw.clear()
            self.cleanup.pop_all().close()


def _unreachable(place: list[Any]) -> str | None:
    """Why nothing answers at an address and port; None if something does."""
    try:
        socket.create_connection((place[0], place[1]), timeout=3).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _unavailable(address: str, port: int) -> str | None:
    """Why the port can't be had; None if it can."""
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
