"""One node of a measurement on several:
`python -m perfkit.driver.node_agent LAUNCHER ADDRESS PORT`.

Connects to the driver, runs this node's workers as it is told, and passes on what they write.
Whatever happens to the driver or the link, no worker is left.
"""

import contextlib
import errno
import os
import select
import socket
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from perfkit.config import Config, Protocol
from perfkit.driver.start import SECRET
from perfkit.driver.wire import LostError, Message, Wire
from perfkit.driver.workers import Workers
from perfkit.frameworks.base import NodeRank
from perfkit.inputs.data_set import digest
from perfkit.request.environment import read_environment
from perfkit.request.errors import RequestError
from perfkit.request.hosts import own_addresses
from perfkit.results.files import rank_file
from perfkit.system.environment import identity, suite_source
from perfkit.system.gpus import visible_gpus

POLL_SECONDS = 0.2
ORDER = {
    "srun": ("SLURM_NODEID",),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "manual": (),
}
"""Variables that tell a task its node; by hand, the driver starts its own node 0 alone."""
MANUAL_SECRET = "perfkit"
"""By hand, people type the same command everywhere and may not care to set a secret."""
MANUAL_PORT = 29400


def main(launcher: str, address: str, port: int) -> None:
    """Serve the driver, which has started this and is there."""
    try:
        node = next(
            (int(os.environ[name]) for name in ORDER[launcher] if name in os.environ), 0
        )
        if launcher == "srun":
            address = os.environ["SLURM_LAUNCH_NODE_IPADDR"]
        wire = connect(address, port, seconds=0)
        wire.send("hello", secret=os.environ[SECRET], node=node, source=suite_source())
        Node(wire).serve()
    except KeyError as error:
        sys.exit(f"{launcher} did not pass on the variable {error}")
    except LostError as error:
        sys.exit(f"The driver is lost: {error}")


def join(config: Config, protocol: Protocol, number: int) -> str | None:
    """Serve the driver as node `number`, started by hand as the driver was; the text of the
    result.json that it ends with, if it has one. Raises RequestError if there is no driver,
    LostError if it is lost."""
    first = config.host_list[0]
    print(f"Waiting for {first}, up to {config.timeout} s", file=sys.stderr, flush=True)
    try:
        wire = connect(first, config.port or MANUAL_PORT, config.timeout)
    except LostError as error:
        raise RequestError(
            [
                f"hosts: {error}. Start the same command there within {config.timeout} s; "
                "if its measurement is complete already, all need a label: -p label NAME"
            ]
        ) from None
    secret = os.environ.get(SECRET, MANUAL_SECRET)
    request = {"config": config.model_dump(), "protocol": protocol.model_dump()}
    wire.send("hello", secret=secret, node=number, source=suite_source(), **request)
    node = Node(wire)
    try:
        node.serve()
    except LostError as error:
        if node.welcome:
            raise
        raise RequestError(
            [f"hosts: {first} hung up ({error}). Is {SECRET} the same there? It may say why"]
        ) from None
    return node.result


def connect(address: str, port: int, seconds: float) -> Wire:
    """A connection to the driver, tried for up to `seconds`. Raises LostError."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return Wire(socket.create_connection((address, port), timeout=5))
        except OSError as error:
            if time.monotonic() > deadline:
                reason = error.strerror or error
                raise LostError(f"no driver at {address} port {port}: {reason}") from error
            time.sleep(0.5)


class Node:
    """Answers the driver's messages: job, run, end, listen, reach, bye."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.workers: Workers | None = None
        self.raw: dict[int, Any] = {}
        self.result: str | None = None
        self.welcome = False
        self.told_gone = 0

    def serve(self) -> None:
        """Until the driver says bye. Raises LostError when it is lost."""
        with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as self.cleanup:
            self.scratch = Path(scratch)
            while True:
                if select.select([self.wire], [], [], POLL_SECONDS)[0]:
                    for message in self.wire.receive():
                        self.welcome = True
                        if message["say"] == "bye":
                            self.result = message["result"]
                            if self.result is None and message["reason"]:
                                raise LostError(message["reason"])
                            return
                        self._answer(message)
                self.wire.check()
                if self.workers:
                    self.report()

    def _answer(self, message: Message) -> None:
        match message["say"]:
            case "job":
                try:
                    self.prepare(message)
                except (OSError, ValueError) as error:
                    told = f"{type(error).__name__}: {error}"
                    self.wire.send("refused", code="nodes_differ", message=told)
            case "run":
                self.run(message)
            case "end":
                self.end(message)
            case "listen":
                self.listen(message)
            case "reach":
                self.reach(message)
            case unknown:
                raise LostError(f"it said {unknown!r}, which this perfkit does not know")

    def prepare(self, message: Message) -> None:
        """Take in what is to be measured. The answer: what the nodes must have in common, and
        where this one can be reached."""
        self.config = Config.model_validate(message["config"])
        self.protocol = Protocol.model_validate(message["protocol"])
        config = self.config
        environment = read_environment(config.framework, config.data_folder)
        facts = identity(environment) | {"data": digest(self.config)}
        address = self.wire.address
        self.wire.send(
            "ready",
            address=address,
            interface=own_addresses().get(address, ""),
            facts=facts,
            name=os.environ.get("SLURMD_NODENAME", socket.gethostname()),
            gpus=len(visible_gpus()),
            port=_free_port(address),
        )

    def run(self, message: Message) -> None:
        """Start this node's workers of one repeat."""
        place = NodeRank(**message["place"])
        address, _, port = place.master.rpartition(":")
        if place.node == 0 and (reason := _taken(address, int(port))):
            self.wire.send("refused", code="port_taken", message=reason)
            return
        raw_folder = self.scratch / str(message["repeat"])
        raw_folder.mkdir(exist_ok=True)
        self.told_gone = 0
        self.workers = self.cleanup.enter_context(
            Workers(self.config, self.protocol, raw_folder, message["job"], place)
        )

    def end(self, message: Message) -> None:
        """End the workers now."""
        if self.workers:
            # First what is known before the end, which hides who was gone already.
            self.report()
        if self.workers:
            if message["stacks"]:
                self.workers.write_stacks()
            self.workers.end()
            self.report()

    def listen(self, message: Message) -> None:
        """Open a port, 0 for any, that the other nodes can try to reach."""
        address, port = self.wire.address, message["port"]
        if error := _taken(address, port):
            self.wire.send("listening", error=error)
            return
        server = self.cleanup.enter_context(socket.create_server((address, port), backlog=1024))
        self.wire.send("listening", error=None, port=server.getsockname()[1])

    def reach(self, message: Message) -> None:
        """Try to reach the ports of the other nodes; the answer has an error for each that
        can't be reached."""
        ports = message["ports"]
        with ThreadPoolExecutor(32) as pool:
            errors = dict(zip(ports, pool.map(_unreachable, ports.values()), strict=True))
        self.wire.send("reached", errors={n: error for n, error in errors.items() if error})

    def report(self) -> None:
        """Pass on what the workers have written; when they have ended, how."""
        workers = self.workers
        assert workers
        status = workers.wait(0)
        for rank in workers.ranks:
            self._pass_on(rank, rank_file(workers.raw_folder, rank))
        if len(workers.gone) > self.told_gone:
            self.wire.send("gone", ranks=[*workers.gone])
            self.told_gone = len(workers.gone)
        if status is not None:
            self.workers = None
            self.wire.send("ended", ending=workers.ending()._asdict(), logs=workers.logs())
            for stream in self.raw.values():
                stream.close()
            self.raw.clear()
            self.cleanup.pop_all().close()

    def _pass_on(self, rank: int, path: Path) -> None:
        if rank not in self.raw:
            if not path.exists():
                return
            self.raw[rank] = path.open()
        if text := self.raw[rank].read():
            self.wire.send("raw", rank=rank, text=text)


def _unreachable(place: list[Any]) -> str | None:
    """Why nothing answers at an address and port; None if something does."""
    try:
        socket.create_connection((place[0], place[1]), timeout=3).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])


def _taken(address: str, port: int) -> str | None:
    """Why the port can't be had; None if it can."""
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {port} of {address} is taken; another one: -p port NUMBER"
        return f"port {port} of {address} can't be had: {error.strerror}"
    return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
