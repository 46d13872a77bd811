"""Real clusters on one machine: two network namespaces, ssh between them, and Slurm."""

import getpass
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

_numbers = itertools.count(1)


def wait_for(condition: Callable[[], Any], seconds: float = 180) -> Any:
    """What the condition returns, once that is true."""
    # On busy cores, a framework's first step takes long.
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "what the test waited for did not happen"
        time.sleep(0.1)
    return found


def namespaces_missing(*programs: str) -> str | None:
    """Why `two_namespaces`, with these programs, cannot work here, None if it can."""
    if reason := _not_installed("ip", *programs):
        return reason
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:  # root in a container may not be allowed to
        with two_namespaces():
            return None
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {error.stderr.strip()}"


def ssh_missing() -> str | None:
    """Why `ssh_between` cannot lead mpirun here, None if it can."""
    return _not_installed("sshd", "ssh", "ssh-keygen", "mpirun") or namespaces_missing()


def slurm_missing() -> str | None:
    """Why `slurm_cluster` cannot work here, None if it can."""
    return _not_installed("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")


@dataclass(frozen=True)
class Node:
    """One network namespace: a machine of its own as far as the network goes."""

    name: str
    address: str

    def command(self, words: list[str]) -> list[str]:
        """The command that runs `words` on this node."""
        return ["ip", "netns", "exec", self.name, *words]


@dataclass(frozen=True)
class Namespaces:
    """Two nodes and the link between them, which is `wire` on either."""

    nodes: tuple[Node, Node]

    def cut(self) -> None:
        """Take the link down: open connections hang, as when a cable is pulled."""
        # At the second node's end only: the first keeps its route, so that it finds the other
        # silent, not the network gone.
        _ip("-n", self.nodes[1].name, "link", "set", "wire", "down")

    def lose(self, node: int, percent: int) -> None:
        """Have so many of a hundred packets of a node get lost; of 100, the link goes one way
        alone."""
        hook = "{ type filter hook output priority 0; }"
        some = f"numgen random mod 100 < {percent}" if percent < 100 else ""
        rules = f"""
            add table inet loss
            add chain inet loss out {hook}
            add rule inet loss out oifname "wire" {some} drop"""
        _output(self.nodes[node].command(["nft", rules]))


@contextmanager
def two_namespaces() -> Iterator[Namespaces]:
    """Two nodes that reach each other and nothing else; what still runs there is killed."""
    with ExitStack() as stack:
        nodes = []
        pid = os.getpid()
        for i in (1, 2):
            node = Node(f"perfkit-{pid}-{next(_numbers)}", f"10.77.{pid % 256}.{i}")
            _ip("netns", "add", node.name)
            stack.callback(_ip, "netns", "del", node.name)
            stack.callback(_kill, _processes_on, node)
            nodes.append(node)
        first, second = nodes
        peer = ["peer", "name", "wire", "netns", second.name]
        _ip("link", "add", "wire", "netns", first.name, "type", "veth", *peer)
        for node in nodes:
            _ip("-n", node.name, "address", "add", f"{node.address}/24", "dev", "wire")
            for device in ("lo", "wire"):
                _ip("-n", node.name, "link", "set", device, "up")
        yield Namespaces((first, second))


@contextmanager
def ssh_between(namespaces: Namespaces) -> Iterator[dict[str, str]]:
    """An sshd on each node; yields the environment that leads mpirun from one to the other.

    Start mpirun on a node and name the nodes by their addresses, as no name resolves:
    `mpirun --allow-run-as-root --host 10.77.0.1:1,10.77.0.2:1 …`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perfkit-ssh-")))
        for key in ("host", "client"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}"]
            subprocess.run(words, check=True)
        # StrictModes would mind that /tmp is open to all.
        (folder / "sshd_config").write_text(
            f"Port 2222\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\n"
            "PidFile none\nPermitRootLogin prohibit-password\nUsePAM no\nStrictModes no\n"
        )
        (folder / "ssh_config").write_text(
            f"Port 2222\nIdentityFile {folder}/client\nIdentitiesOnly yes\nBatchMode yes\n"
            "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's empty room
        ssh = ["ssh", "-F", f"{folder}/ssh_config"]
        for node in namespaces.nodes:
            # By its full path, as sshd starts itself anew for each connection.
            sshd = [_path("sshd"), "-D", "-e", "-f", f"{folder}/sshd_config"]
            _daemon(stack, node.command(sshd), folder / f"{node.name}.log")
        for here, there in (namespaces.nodes, reversed(namespaces.nodes)):
            login = here.command([*ssh, there.address, "true"])
            _until(folder, _succeeds, login)
        # The nodes share host name, files and /tmp, and Open MPI does not mind: it compares
        # the addresses in --host with its own interfaces to see which node is the near one,
        # and the far one's daemon makes a session folder of another name. With one interface
        # besides lo there is nothing to choose either. A killed mpirun leaves its session
        # folder, so that goes into ours.
        agent, sessions = "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_tmpdir_base"
        yield {agent: " ".join(ssh), sessions: str(folder)}


@dataclass(frozen=True)
class Slurm:
    """A running Slurm whose nodes are all this machine."""

    environment: dict[str, str]
    nodes: list[str]

    def output(self, *words: str) -> str:
        """What a Slurm command prints."""
        return _output(words, os.environ | self.environment)

    def idle(self) -> bool:
        """Whether every node is up and no job is left, not even one that is ending."""
        states = self.output("sinfo", "--noheader", "--Node", "--format=%T").split()
        return states == ["idle"] * len(self.nodes)

    def wait_idle(self) -> None:
        """Wait for the last job to leave, some 3 s after its last process if it was killed."""
        _until(Path(self.environment["SLURM_CONF"]).parent, self.idle)


@contextmanager
def slurm_cluster(nodes: int = 4) -> Iterator[Slurm]:
    """A Slurm of several nodes with two CPUs each; `.environment` leads srun there.

    Needs no root: the daemons then run jobs of this user only.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perfkit-slurm-")))
        key, munge = folder / "munge.key", folder / "munge.socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        # With --force it only warns of a folder that others may write to, as /tmp is.
        munged = [_path("munged"), "--foreground", "--force", f"--key-file={key}"]
        munged += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "seed")]
        _daemon(stack, [*munged, f"--socket={munge}"], folder / "munged.log")
        _until(folder, munge.exists)

        config = folder / "slurm.conf"
        config.write_text(_slurm_conf(folder, nodes))
        slurm = Slurm({"SLURM_CONF": str(config)}, [f"node{i + 1}" for i in range(nodes)])
        _daemon(stack, [_path("slurmctld"), "-D"], folder / "ctld.log", slurm.environment)
        for name in slurm.nodes:
            slurmd = [_path("slurmd"), "-D", "-N", name]
            _daemon(stack, slurmd, folder / f"{name}.log", slurm.environment)
        stack.callback(_kill, _processes_of, slurm)
        _until(folder, slurm.idle)
        yield slurm


def _slurm_conf(folder: Path, nodes: int) -> str:
    host, user = socket.gethostname(), getpass.getuser()
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(1 + nodes)]
        for one in sockets:
            one.bind(("", 0))
        control, *ports = [str(one.getsockname()[1]) for one in sockets]
    # One host serves as every node, each with a slurmd and a port of its own. No cgroups and
    # no accounting, which would take more than these daemons; and two CPUs per node are
    # believed (config_overrides) whatever the machine has.
    return f"""\
ClusterName=perfkit
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
NodeName=node[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{",".join(ports)}] CPUs=2
PartitionName=all Nodes=ALL Default=YES
SlurmdParameters=config_overrides
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=2
"""


def _path(program: str) -> str:
    """Where a program is, "" if nowhere; daemons are often not on a user's PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin") or ""


def _not_installed(*programs: str) -> str | None:
    absent = [program for program in programs if not _path(program)]
    return f"not installed: {', '.join(absent)}" if absent else None


def _output(words: Any, environment: Any = None) -> str:
    command = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    return command.stdout


def _succeeds(words: list[str]) -> bool:
    return subprocess.run(words, check=False, capture_output=True).returncode == 0


def _ip(*words: str) -> str:
    return _output(["ip", *words])


def _daemon(
    stack: ExitStack, words: list[str], log: Path, environment: dict[str, str] | None = None
) -> None:
    """Start a daemon that stays in the foreground; it ends with the stack."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the tests, which then end the daemon
        )
    stack.callback(process.wait)
    stack.callback(process.kill)


def _until(folder: Path, ready: Callable[..., bool], *arguments: Any) -> None:
    """Wait until `ready`; a command that fails in it says no. The error shows the logs."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(subprocess.CalledProcessError):
            if ready(*arguments):
                return
        time.sleep(0.05)
    logs = [f"{log}:\n{log.read_text()}" for log in folder.glob("*.log")]
    raise TimeoutError("\n".join(["not ready after 30 s", *logs]))


def _processes_on(node: Node) -> list[int]:
    return [int(pid) for pid in _ip("netns", "pids", node.name).split()]


def _processes_of(slurm: Slurm) -> set[int]:
    """The cluster's daemons, clients and tasks, and what those started."""
    config, found = slurm.environment["SLURM_CONF"], set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            ours = process.environ().get("SLURM_CONF") == config
            if process.name() == "slurmstepd":
                # A task's keeper is nobody's child and overwrites its environment, but listens
                # on a socket in the cluster's folder.
                sockets = process.net_connections("unix")
                ours |= any(str(Path(config).parent) in str(one.laddr) for one in sockets)
            if ours and process.pid != os.getpid():
                found |= {process.pid, *(child.pid for child in process.children(True))}
    return found


def _kill(find: Callable[..., Iterable[int]], *arguments: Any) -> None:
    """Kill until nothing is found: a process may have started another meanwhile."""
    deadline = time.monotonic() + 5
    while (found := find(*arguments)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
