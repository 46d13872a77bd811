"""One node of a measurement on several nodes:
`python -m perfkit.driver.node_agent LAUNCHER ADDRESS PORT`.

Connects to the driver, runs this node's workers on its request, and forwards their raw files.
If the driver or the connection is lost, all workers are killed.
"""

import contextlib
import os
import queue
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from perfkit.config import Config, Protocol
from perfkit.driver import connection
from perfkit.driver.connection import InvalidMessageError, LostError, NodeMessage
from perfkit.driver.failures import unwritten
from perfkit.driver.workers import LocalWorkers
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import NodeRank
from perfkit.inputs.data_set import digest
from perfkit.request import RequestError
from perfkit.request.checks import read_environment
from perfkit.request.hosts import own_addresses
from perfkit.results.schema import identity
from perfkit.results.store import rank_file
from perfkit.system.environment import package_source
from perfkit.system.scratch import Scratch

POLL_SECONDS = 0.2
CONNECTING_SECONDS = 10
NODE_VARIABLES = {"srun": "SLURM_NODEID", "mpirun": "OMPI_COMM_WORLD_RANK"}
"""Variables with the node number of a task. With launcher=manual, the driver starts node 0."""


def main(launcher: str, address: str, port: int) -> None:
    """Serve the driver that started this process through `launcher`."""
    try:
        node = int(os.environ[NODE_VARIABLES[launcher]]) if launcher in NODE_VARIABLES else 0
        if launcher == "srun":
            address = os.environ["SLURM_LAUNCH_NODE_IPADDR"]
        secret = os.environ[connection.SECRET]
    except KeyError as error:
        sys.exit(f"{launcher} did not pass on the variable {error}")
    try:
        NodeAgent(node, address, port, secret, CONNECTING_SECONDS).serve()
    except LostError as error:
        sys.exit(f"Lost the driver: {error}")


def join(config: Config, protocol: Protocol, node: int) -> str | None:
    """Serve the driver as `node`, with launcher=manual; return the text of result.json, if any.
    Raises RequestError without a driver or with a different secret, LostError."""
    first = config.host_list[0]
    secret = connection.shared_secret(config.host_list, node)
    print(f"Waiting for {first}, up to {config.timeout} s", file=sys.stderr, flush=True)
    try:
        agent = NodeAgent(node, first, config.port or 0, secret, config.timeout)
    except connection.RejectedError as error:
        raise RequestError([f"hosts: {first} closed the connection: {error}"]) from None
    except LostError as error:
        advice = (
            f"Start the same command there within {config.timeout} s; "
            "if its measurement is already complete, set a label on all hosts: -p label NAME"
        )
        raise RequestError([f"hosts: {error}. {advice}"]) from None
    return agent.serve(connection.Job(config=config, protocol=protocol))


class NodeAgent:
    """Answers the driver's messages as this node. Raises LostError, RejectedError."""

    def __init__(self, node: int, address: str, port: int, secret: str, seconds: float) -> None:
        self.node = node
        self.inbox: connection.Inbox = queue.Queue(connection.INBOX_MESSAGES)
        self.channel = connection.connect(address, port, secret, seconds, self.inbox)
        self.job: connection.Job | None = None
        self.workers: LocalWorkers | None = None
        self.raw: dict[int, Any] = {}
        self.exited: list[int] = []

    def serve(self, request: connection.Job | None = None) -> str | None:
        """Serve the driver until its Bye, and return the text of its result. If this node has a
        `request` of its own, any other job is refused. Raises LostError."""
        own = request.model_dump(include={"config", "protocol"}) if request else {}
        with (
            contextlib.closing(self.channel),
            Scratch() as scratch,
            contextlib.ExitStack() as self.cleanup,
        ):
            self.scratch = scratch.folder
            self.channel.send(connection.Hello(node=self.node, source=package_source(), **own))
            while True:
                with contextlib.suppress(queue.Empty):
                    _channel, message = self.inbox.get(timeout=POLL_SECONDS)
                    if isinstance(message, LostError):
                        raise message
                    if isinstance(message, connection.Bye):
                        if message.result is None and message.reason:
                            raise LostError(message.reason)
                        return message.result
                    self._answer(message, request)
                self._report()

    def _answer(self, message: NodeMessage, request: connection.Job | None) -> None:
        match message:
            case connection.Job(config=config, protocol=protocol):
                job = request or message
                if (config.identity, protocol) != (job.config.identity, job.protocol):
                    raise InvalidMessageError("job", "differs from the request on this node")
                self.job = job
                try:
                    self._prepare(job.config)
                except (OSError, ValueError) as error:
                    detail = f"{type(error).__name__}: {error}"[: connection.DETAIL_LENGTH]
                    self.channel.send(connection.Refused(code="nodes_differ", detail=detail))
            case connection.Run() if self.job and not self.workers:
                if message.repeat > self.job.protocol.repeats:
                    raise InvalidMessageError("run.repeat", "exceeds the number of repeats")
                try:
                    self._run(message, self.job)
                except OSError as error:
                    detail = str(error)[: connection.DETAIL_LENGTH]
                    reason = {"code": unwritten(error).code, "detail": detail}
                    self.channel.send(connection.Refused.model_validate(reason))
            case connection.Steady():
                if self.workers:
                    self.workers.end_warmup()
            case connection.End():
                # Killing the workers hides which ranks had exited before.
                self._report()
                if self.workers:
                    self.workers.end(dump_stacks=message.dump_stacks)
                    self._report()
            case connection.Reach(ports=ports):
                with ThreadPoolExecutor(32) as pool:
                    errors = zip(ports, pool.map(_unreachable, ports.values()), strict=True)
                    reached = {node: error for node, error in errors if error}
                self.channel.send(connection.Reached(errors=reached))
            case _:
                raise InvalidMessageError(type(message).__name__.lower(), "not expected now")

    def _prepare(self, config: Config) -> None:
        """Answer a job with Ready."""
        environment = read_environment(config.framework, config.data_folder, config.interpreter)
        framework = FRAMEWORKS[config.framework]
        address = self.channel.address
        port = config.port + 1 if config.port and self.node == 0 else 0
        if not (server := self._listen(address, port)):
            return
        ready = connection.Ready(
            address=address,
            interface=own_addresses().get(address, ""),
            facts=identity(environment) | {"data": digest(config)},
            name=os.environ.get("SLURMD_NODENAME", socket.gethostname()),
            gpus=len(framework.visible_devices(config.device, config.interpreter)),
            port=server.getsockname()[1],
        )
        self.channel.send(ready)

    def _listen(self, address: str, port: int) -> socket.socket | None:
        """Listen until the cleanup. If the port is taken, tell the driver and return None."""
        try:
            server = socket.create_server((address, port), backlog=1024)
        except OSError as error:
            detail = error.strerror or str(error)
            self.channel.send(
                connection.Refused(code="port_taken", port=port, address=address, detail=detail)
            )
            return None
        return self.cleanup.enter_context(server)

    def _run(self, message: connection.Run, job: connection.Job) -> None:
        self.cleanup.pop_all().close()
        if self.node == 0 and not self._listen(message.address, message.port):
            return
        self.cleanup.pop_all().close()
        raw_folder = self.scratch / str(message.repeat)
        raw_folder.mkdir(exist_ok=True)
        own = self.channel.address
        interface, master = own_addresses().get(own, ""), f"{message.address}:{message.port}"
        place = NodeRank(self.node, job.config.nodes, own, interface, master)
        self.exited = []
        self.workers = self.cleanup.enter_context(
            LocalWorkers(job.config, job.protocol, raw_folder, message.job, place)
        )

    def _report(self) -> None:
        """Send new raw text and exited ranks; after the workers' end, how they exited."""
        if not (workers := self.workers):
            return
        ended, exited = workers.wait(0), [*workers.exited_at]
        for rank in workers.ranks:
            path = rank_file(workers.raw_folder, rank)
            if rank not in self.raw and path.exists():
                self.raw[rank] = self.cleanup.enter_context(path.open())
        raw = {rank: text for rank, file in self.raw.items() if (text := file.read())}
        if raw or exited != self.exited:
            self.exited = exited
            self.channel.send(connection.Report(raw=raw, exited=exited))
        if ended:
            self.workers = None
            self.raw.clear()
            info = workers.exit_info()._asdict()
            del info["exited_at"], info["error"]
            self.channel.send(connection.Ended(**info))
            self.cleanup.pop_all().close()


def _unreachable(peer: tuple[str, int]) -> str | None:
    """Why a TCP connection to an address and port fails; None if it succeeds."""
    try:
        socket.create_connection(peer, timeout=3).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
