"""How soon a fault ends a run on two nodes, and what it leaves behind: one line per fault.

`python benchmarks/faults.py [ssh|srun [TEXT]]`, as root; TEXT selects the faults with this text
in their name. `ssh`: two network namespaces with an sshd on each; `srun`: two of the four nodes
of a Slurm job, all on this machine. One worker per node trains ResNet-50 on small images. A
line gives the seconds from the fault to the driver's end (for a killed driver, until no node
has one of its processes), the processes and scratch folders left, and what the driver printed
last.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from measuring import in_ranks

from perfkit.measuring.paths import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from made.clusters import (
    Driver,
    Nodes,
    NodesInSlurm,
    NodesOverSsh,
    nodes_in_slurm,
    nodes_over_ssh,
    wait_for,
)

HANGING_SECONDS = 60
PORT = 29801
LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))):
    print("listening", flush=True)
    sys.stdin.read()
"""
PLANTED = """
import os, signal, time
from pathlib import Path
import perfkit.inputs.synthetic as synthetic
real = synthetic.batches

def batches(options, rank):
    for number, batch in enumerate(real(options, rank)):
        if rank == 1 and number == 5:
            Path({happened!r}).touch()
            {code}
        yield batch

synthetic.batches = batches
"""


@dataclass(frozen=True)
class Fault:
    """A fault and how it is caused: by code in rank 1 before its sixth batch, from outside at
    that moment, or from outside before the driver starts."""

    name: str
    in_rank: str = "pass"
    during: Callable[[Any, Driver], object] | None = None
    before: Callable[[Any], object] | None = None
    prepare: str = ""
    """With ssh: a shell command that mounts other files on the second node."""
    timeout: int = 300
    port_taken: bool = False
    """With ssh: whether another program listens on the workers' port."""
    ends_driver: bool = False
    """Whether the driver is killed, and so prints nothing."""

    @property
    def at_start(self) -> bool:
        """Whether the driver starts with the fault."""
        return bool(self.before or self.prepare or self.port_taken)


class Outcome(NamedTuple):
    """What a fault led to."""

    seconds: float
    left: list[str]
    printed: str

    def __str__(self) -> str:
        lines = [f"{self.seconds:.1f} s; {len(self.left)} left; {self.printed}", *self.left]
        return "\n    ".join(lines)


def kill_node_program(nodes: Nodes, _driver: Driver) -> None:
    nodes.node_program().kill()


def kill_supervisor(nodes: Nodes, _driver: Driver) -> None:
    nodes.workers_supervisor().kill()


def kill_launcher(nodes: Nodes, _driver: Driver) -> None:
    for process in nodes.processes(0):
        if process.name() in ("ssh", "srun"):
            process.kill()


def cut_link(nodes: NodesOverSsh, _driver: Driver) -> None:
    nodes.namespaces.cut()


def silence(node: int, nodes: NodesOverSsh, _driver: Driver) -> None:
    nodes.namespaces.lose(node, 100)


def switch_off(nodes: NodesInSlurm, _driver: Driver) -> None:
    nodes.cluster.kill_node("node2")


def stop_server(nodes: NodesOverSsh) -> None:
    nodes.ssh.stop_server(1)


IN_RANK = [
    Fault("a rank raises", in_rank="raise KeyError('planted')"),
    Fault("a rank is killed", in_rank="os.kill(os.getpid(), signal.SIGKILL)"),
    Fault("a rank hangs", in_rank="time.sleep(1000)", timeout=HANGING_SECONDS),
]
OF_THE_DRIVER = [
    Fault(
        "the driver is killed",
        during=lambda _nodes, driver: driver.process.kill(),
        ends_driver=True,
    ),
    Fault(
        "the driver is interrupted",
        during=lambda _nodes, driver: driver.process.send_signal(signal.SIGINT),
    ),
]
OF_A_NODE = [
    Fault("the node program is killed", during=kill_node_program),
    Fault("the supervisor of its workers is killed", during=kill_supervisor),
]
FAULTS = {
    "ssh": [
        *IN_RANK,
        Fault("the second node refuses ssh", before=stop_server),
        Fault(
            "the second node does not answer",
            before=lambda nodes: nodes.namespaces.lose(1, 100),
        ),
        Fault("its folder of results is another", prepare="mount -t tmpfs tmpfs {outputs}"),
        Fault("the workers' port is taken", port_taken=True),
        *OF_A_NODE,
        Fault("ssh is killed", during=kill_launcher),
        Fault("the link goes down", during=cut_link),
        Fault("the link loses all that the first node sends", during=partial(silence, 0)),
        Fault("the link loses all that the second node sends", during=partial(silence, 1)),
        *OF_THE_DRIVER,
    ],
    "srun": [
        *IN_RANK,
        *OF_A_NODE,
        Fault("srun is killed", during=kill_launcher),
        Fault("the second node is switched off", during=switch_off),
        *OF_THE_DRIVER,
    ],
}


def main(launchers: list[str], text: str = "") -> None:
    for launcher in launchers:
        print(f"{launcher}:", flush=True)
        for fault in FAULTS[launcher]:
            if text in fault.name:
                with tempfile.TemporaryDirectory(prefix="perfkit-faults-") as folder:
                    outcome = run(launcher, fault, Path(folder))
                print(f"{fault.name}: {outcome}", flush=True)


def run(launcher: str, fault: Fault, folder: Path) -> Outcome:
    """Measure on two nodes with a fault."""
    with connected(launcher, fault, folder) as nodes:
        seconds, printed = until_end(nodes, fault)
        with suppress(AssertionError):
            nodes.assert_nothing_left()
        return Outcome(seconds, nodes.left(), printed)


def until_end(nodes: Any, fault: Fault) -> tuple[float, str]:
    """Start a driver, cause the fault, and wait for the end; return the seconds between these
    and what the driver has printed last."""
    happened = nodes.folder / "happened"
    nodes.plant(in_ranks(PLANTED.format(happened=str(happened), code=fault.in_rank)))
    if fault.before:
        fault.before(nodes)
    request = nodes.request(measured_steps=2000, timeout=fault.timeout)
    with ExitStack() as stack:
        if fault.port_taken:
            stack.enter_context(listening(nodes))
            request["port"] = PORT
        began = time.monotonic()
        driver = nodes.start(request)
        if not fault.at_start:
            wait_for(lambda: happened.exists() or driver.status() is not None)
            began = time.monotonic()
        if fault.during:
            fault.during(nodes, driver)
        if fault.ends_driver:
            wait_for(lambda: not nodes.processes())
            return time.monotonic() - began, ""
        printed = driver.wait().strip().splitlines()
        return time.monotonic() - began, printed[-1]


@contextmanager
def listening(nodes: NodesOverSsh) -> Iterator[None]:
    """Have another program listen on PORT of the first node, until its input closes."""
    node = nodes.namespaces.nodes[0]
    words = [sys.executable, "-c", LISTEN, node.address, str(PORT)]
    with subprocess.Popen(
        node.command(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout
        program.stdout.readline()
        yield


def connected(launcher: str, fault: Fault, folder: Path) -> AbstractContextManager[Nodes]:
    if launcher == "srun":
        return nodes_in_slurm(folder)
    return nodes_over_ssh(folder, fault.prepare.format(outputs=folder / "outputs"))


if __name__ == "__main__":
    main(sys.argv[1:2] or [*FAULTS], *sys.argv[2:])
