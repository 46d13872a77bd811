"""One node of a measurement on several nodes:
`python -m perfkit.driver.node_agent LAUNCHER ADDRESS PORT`.

Connects to the driver, runs this node's workers on its request, and forwards their raw files.
If the driver or the connection is lost, all workers are killed.
"""

import contextlib
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO

from perfkit.config import Config, Protocol
from perfkit.driver import connection
from perfkit.driver.connection import InvalidMessageError, LostError, NodeMessage
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
        NodeAgent(node, address, port, secret, CONNECTING_SECONDS).serve()
    except KeyError as error:
        sys.exit(f"{launcher} did not pass on the variable {error}")
    except LostError as error:
        sys.exit(f"Lost the driver: {error}")


def join(config: Config, protocol: Protocol, node: int) -> str | None:
    """Serve the driver as `node`, with launcher=manual; return the text of result.json, if any.
    Raises RequestError without a driver or with a different secret, LostError."""
    first = config.host_list[0]
    secret = connection.shared_secret(config.host_list, node)
    print(f"Waiting for {first}, up to {config.timeout} s", file=sys.stderr, flush=True)
    request = connection.Job(config=config, protocol=protocol)
    try:
        agent = NodeAgent(node, first, config.listen_port, secret, config.timeout, request)
    except connection.RejectedError as error:
        raise RequestError([f"hosts: {first} closed the connection: {error}"]) from None
    except LostError as error:
        advice = (
            f"Start the same command there within {config.timeout} s; "
            "if its measurement is already complete, set a label on all hosts: -p label NAME"
        )
        raise RequestError([f"hosts: {error}. {advice}"]) from None
    return agent.serve()


class NodeAgent:
    """Answers the driver's messages as this node, and with a `request` of its own refuses any
    other job. Raises LostError, RejectedError."""

    def __init__(
        self,
        node: int,
        address: str,
        port: int,
        secret: str,
        seconds: float,
        request: connection.Job | None = None,
    ) -> None:
        self.node = node
        own = request.model_dump(include={"config", "protocol"}) if request else {}
        hello = connection.Hello(node=node, source=package_source(), **own)
        self.channel = connection.connect(address, port, secret, hello, seconds)
        self.request = request
        self.job: connection.Job | None = None

    def serve(self) -> str | None:
        """Serve the driver until its Bye; return the text of its result. Raises LostError."""
        with (
            contextlib.closing(self.channel),
            Scratch() as scratch,
            # Other nodes connect to it for Reach, until the first repeat.
            socket.create_server((self.channel.address, 0), backlog=1024) as self.server,
        ):
            self.scratch = scratch.folder
            message: NodeMessage | None = None
            while not isinstance(message, connection.Bye):
                following = self._answer(message) if message else None
                message = following or self.channel.receive(POLL_SECONDS)
        if message.result is None and message.reason:
            raise LostError(message.reason)
        return message.result

    def _answer(self, message: NodeMessage) -> NodeMessage | None:
        """Answer a message; return the next message if it has been received already."""
        match message:
            case connection.Job(config=config, protocol=protocol):
                job = self.request or message
                if (config.identity, protocol) != (job.config.identity, job.protocol):
                    raise InvalidMessageError("job", "differs from the request on this node")
                self.job = job
                try:
                    self.channel.send(self._ready(job.config))
                except (OSError, ValueError) as error:
                    detail = f"{type(error).__name__}: {error}"[: connection.DETAIL_LENGTH]
                    self.channel.send(connection.Refused(detail=detail))
            case connection.Run() if self.job:
                if message.repeat > self.job.protocol.repeats:
                    raise InvalidMessageError("run.repeat", "exceeds the number of repeats")
                return self._run(message, self.job)
            case connection.Tell():
                # The workers have exited meanwhile.
                pass
            case connection.Reach(ports=ports):
                with ThreadPoolExecutor(32) as pool:
                    errors = zip(ports, pool.map(_unreachable, ports.values()), strict=True)
                    reached = {node: error for node, error in errors if error}
                self.channel.send(connection.Reached(errors=reached))
            case _:
                raise InvalidMessageError(type(message).__name__.lower(), "not expected now")
        return None

    def _ready(self, config: Config) -> connection.Ready:
        environment = read_environment(config.framework, config.data_folder, config.interpreter)
        framework = FRAMEWORKS[config.framework]
        return connection.Ready(
            address=self.channel.address,
            interface=own_addresses().get(self.channel.address, ""),
            facts=identity(environment) | {"data": digest(config)},
            name=os.environ.get("SLURMD_NODENAME", socket.gethostname()),
            gpus=len(framework.visible_devices(config.device, config.interpreter)),
            port=self.server.getsockname()[1],
        )

    def _run(self, run: connection.Run, job: connection.Job) -> NodeMessage | None:
        """Run a repeat: send new raw text and exited ranks, and at the end how they exited.
        Return the last message, which may not be for the workers."""
        self.server.close()
        raw_folder = self.scratch / str(run.repeat)
        raw_folder.mkdir(exist_ok=True)
        own = self.channel.address
        interface, master = own_addresses().get(own, ""), f"{run.address}:{run.port}"
        place = NodeRank(self.node, job.config.nodes, own, interface, master)
        files: dict[int, TextIO] = {}
        reported: list[int] = []
        with (
            LocalWorkers(job.config, job.protocol, raw_folder, run.job, place) as workers,
            contextlib.ExitStack() as opened,
        ):
            while True:
                message = self.channel.receive(POLL_SECONDS)
                # Report before ending the workers, which hides the ranks that exited earlier.
                ended, exited = workers.wait(0), [*workers.exited_at]
                for rank in workers.ranks:
                    path = rank_file(raw_folder, rank)
                    if rank not in files and path.exists():
                        files[rank] = opened.enter_context(path.open())
                raw = {rank: text for rank, file in files.items() if (text := file.read())}
                if raw or exited != reported:
                    reported = exited
                    self.channel.send(connection.Report(raw=raw, exited=exited))
                if ended:
                    info = workers.exit_info()._asdict()
                    del info["exited_at"], info["error"]
                    self.channel.send(connection.Ended(**info))
                if ended or not isinstance(message, connection.Tell | None):
                    return message
                if message and message.order == "end warm-up":
                    workers.end_warmup()
                elif message:
                    workers.end(dump_stacks=message.order != "end")


def _unreachable(peer: tuple[str, int]) -> str | None:
    """Why a TCP connection to an address and port fails; None if it succeeds."""
    try:
        socket.create_connection(peer, timeout=3).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
