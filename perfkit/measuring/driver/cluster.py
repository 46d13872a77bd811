"""The driver's side of a measurement on several nodes.

The driver is node 0, and runs the workers there exactly as on one node. On the other nodes, ssh
or srun starts a node program (node.py) for each repeat. They exchange files in a shared folder,
which node_files.py describes.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from perfkit.measuring.config import Config
from perfkit.measuring.driver.exit_info import ExitInfo
from perfkit.measuring.driver.failures import NodeError, unwritten
from perfkit.measuring.driver.node_files import (
    JOB,
    POLL_SECONDS,
    PREFIX,
    NodeJob,
    move_raw_files,
    read_facts,
)
from perfkit.measuring.driver.programs import ENDING_SECONDS, NodeProgram
from perfkit.measuring.driver.workers import Launcher, LocalWorkers, WorkerGroup
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request.hosts import own_addresses, route_address
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.schema import NodeSeen
from perfkit.measuring.results.store import write_atomically
from perfkit.measuring.system.environment import package_source
from perfkit.measuring.system.scratch import Scratch
from perfkit.timing.warmup import WindowStart
from perfkit.training.frameworks import NodeRank

SLURM_NODE = re.compile(r"^NodeName=(\S+) .*?NodeAddr=(\S+) ", re.MULTILINE)


class Host(NamedTuple):
    """A node's name, by which it is started, and its address, which may be a name, too."""

    name: str
    address: str


class ClusterLauncher(Launcher):
    """Starts the workers of each repeat on all nodes. It makes a shared folder in `folder`,
    which lies on a disk that all nodes share; the `with` block removes it."""

    def __init__(
        self, config: Config, protocol: Protocol, folder: Path, earlier: list[NodeSeen]
    ) -> None:
        """`earlier`: the nodes of the repeats that exist; none without one. Raises
        NodeError."""
        super().__init__(config, protocol)
        self.nodes = earlier
        try:
            hosts = hosts_of(config)
            self.hosts = [host.name for host in hosts]
            self.address = route_address(hosts[1].address)
            self.facts = read_facts(config)
            self.shared = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
        except OSError as error:
            raise NodeError(unwritten(error)) from error

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.shared, ignore_errors=True)

    def node_name(self, node: int) -> str:
        return f"node {node} ({self.hosts[node]})"

    def start(self, repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        master = f"{self.address}:{self._rendezvous_port()}"
        folder = self.shared / str(repeat)
        folder.mkdir()
        node_job = NodeJob(
            package=package_source(),
            config=self.config,
            protocol=self.protocol,
            job=job,
            names=[self.node_name(node) for node in range(self.config.nodes)],
            master=master,
            facts=self.facts,
            working_folder=self.config.work.working_folder,
        )
        write_atomically(folder / JOB, node_job.model_dump_json())
        return ClusterWorkers(self, node_job, folder, raw_folder)

    def _rendezvous_port(self) -> int:
        """Return the port where the workers meet on this node: the configured one or, without
        one, a free one. Raises NodeError if it is taken."""
        port = self.config.port or 0
        try:
            with socket.create_server((self.address, port)) as server:
                return int(server.getsockname()[1])
        except OSError as error:
            reason = (
                f"port {port} of {self.address} can't be used: {error.strerror or error}; use "
                "another port: -p port NUMBER"
            )
            raise NodeError(Failure(code="port_taken", reason=reason)) from error

    def accept(self, nodes: list[NodeSeen]) -> None:
        """Note the nodes of a repeat. Raises NodeError if they differ from those of earlier
        ones."""
        differs = [node.differs for node in nodes]
        if self.nodes and differs != [node.differs for node in self.nodes]:
            earlier = ", ".join(node.name for node in self.nodes)
            reason = (
                f"earlier repeats ran on {earlier}, which differ from the current nodes; set a "
                "new label: -p label NAME"
            )
            raise NodeError(Failure(code="nodes_differ", reason=reason))
        self.nodes = nodes


class ClusterWorkers(WorkerGroup):
    """The workers of one repeat on all nodes: LocalWorkers here, node programs elsewhere."""

    def __init__(
        self, launcher: ClusterLauncher, job: NodeJob, folder: Path, target: Path
    ) -> None:
        """`folder`: the shared folder of the repeat. `target`: where the raw files of all nodes
        are moved at the end. Raises NodeError; OSError."""
        self.folder = folder
        self.target = target
        self.programs: list[NodeProgram] = []
        config = job.config
        with contextlib.ExitStack() as opened:
            # The raw files of this node's ranks are on its own disk, too.
            self.raw_folder = opened.enter_context(Scratch()).folder
            for node in range(1, config.nodes):
                name, host = job.names[node], launcher.hosts[node]
                program = NodeProgram(config, node, name, host, folder, self.raw_folder)
                opened.callback(program.kill)
                self.programs.append(program)
            others = self._started(config.timeout)
            interface = own_addresses().get(launcher.address, "")
            here = NodeSeen(node=0, name=job.names[0], interface=interface, differs={})
            launcher.accept([here, *others])
            place = NodeRank(0, config.nodes, launcher.address, interface, job.master)
            local = LocalWorkers(config, job.protocol, self.raw_folder, job.job, place)
            self.local = opened.enter_context(local)
            self.process = local.process
            self.opened = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def _started(self, timeout: int) -> list[NodeSeen]:
        """Wait until all other nodes have started, and return them. Raises NodeError if one
        does not within `timeout`; OSError."""
        deadline = time.monotonic() + timeout
        while True:
            self._look()
            started = [program.seen for program in self.programs if program.seen]
            if len(started) == len(self.programs):
                return started
            missing = [program for program in self.programs if not program.seen]
            for program in missing:
                if program.error:
                    raise NodeError(program.error)
            if time.monotonic() > deadline:
                names = ", ".join(program.name for program in missing)
                reason = f"{names} did not start within {timeout} s"
                raise NodeError(Failure(code="node_timeout", reason=reason, node=names))
            time.sleep(POLL_SECONDS)

    def _look(self) -> None:
        for program in self.programs:
            program.look()

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            if self._are_over():
                return True
        return False

    def _are_over(self) -> bool:
        """Return whether the workers of all nodes have ended, or those of one failed. Raises
        OSError."""
        self._look()
        statuses = [program.ended.status for program in self.programs if program.ended]
        if self.local.wait(0):
            statuses.append(self.process.returncode)
        is_one_lost = any(program.error for program in self.programs)
        return is_one_lost or any(statuses) or len(statuses) > len(self.programs)

    def start_window(self, start: WindowStart) -> None:
        self.local.start_window(start)
        for program in self.programs:
            program.tell(start)

    def end(self, *, dump_stacks: bool = False) -> None:
        for program in self.programs:
            program.close()
        self.local.end(dump_stacks=dump_stacks)
        deadline = time.monotonic() + ENDING_SECONDS
        for program in self.programs:
            program.wait(deadline)
        self._look()

    def exit_info(self) -> ExitInfo:
        """Move the raw files, and return how the workers of all nodes exited, as one."""
        move_raw_files(self.raw_folder, self.local.ranks, self.target)
        nodes = [self.local.exit_info()]
        for program in self.programs:
            nodes.append(program.exit_info())
            if program.ended:
                ranks = NodeRank(program.node).ranks(len(self.local.ranks))
                move_raw_files(self.folder, ranks, self.target)
        printed = "".join(program.log for program in self.programs)
        logs = {"nodes": printed} if printed else {}
        for node in nodes:
            logs |= node.logs
        return ExitInfo(
            status=next((node.status for node in nodes if node.status), nodes[0].status),
            exited_first=[rank for node in nodes for rank in node.exited_first],
            idle=[rank for node in nodes for rank in node.idle],
            killed_for_memory=any(node.killed_for_memory for node in nodes),
            logs=logs,
            killed_after_end=any(node.killed_after_end for node in nodes),
            nccl_network=nodes[0].nccl_network,
            error=next((node.error for node in nodes if node.error), None),
        )


def hosts_of(config: Config) -> list[Host]:
    """Return the nodes of a measurement, this machine first. Raises NodeError; OSError."""
    if config.launcher == "ssh":
        return [Host(name, name) for name in config.host_list]
    allocated = os.environ["SLURM_JOB_NODELIST"]
    command = ["scontrol", "show", "node", "--oneliner", allocated]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    hosts = [Host(*found) for found in SLURM_NODE.findall(done.stdout)]
    if len(hosts) < config.nodes:
        reason = f"scontrol does not show the nodes {allocated}: {done.stderr.strip()}"
        raise NodeError(Failure(code="node_lost", reason=reason))
    hosts.sort(key=lambda host: host.name != os.environ["SLURMD_NODENAME"])
    return hosts


def remove_abandoned(folder: Path) -> None:
    """Remove the shared folders of killed drivers."""
    for abandoned in folder.glob(f"{PREFIX}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
