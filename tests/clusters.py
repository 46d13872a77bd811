"""Clusters on one machine: two network namespaces, ssh between them, and Slurm."""

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
    """Wait until the condition returns a true value and return that value."""
    # On busy cores, a framework's first step takes long.
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"condition still false after {seconds} s"
        time.sleep(0.1)
    return found


def namespaces_missing(*programs: str) -> str | None:
    """Return why `two_namespaces` with these programs cannot work here, None if it can."""
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
    """Return why mpirun cannot use `ssh_between` here, None if it can."""
    return _not_installed("sshd", "ssh", "ssh-keygen", "mpirun") or namespaces_missing()


def slurm_missing() -> str | None:
    """Return why `slurm_cluster` cannot work here, None if it can."""
    return _not_installed("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")


@dataclass(frozen=True)
class Node:
    """A network namespace, which acts as a separate machine on the network."""

    name: str
    address: str

    def command(self, words: list[str]) -> list[str]:
        """Return the command that runs `words` on this node."""
        return ["ip", "netns", "exec", self.name, *words]


@dataclass(frozen=True)
class Namespaces:
    """Two nodes and the link between them, the interface `wire` on each."""

    nodes: tuple[Node, Node]

    def cut(self) -> None:
        """Take the link down, as if its cable were unplugged: open connections hang."""
        # Only the second node's end goes down, so that the first node keeps its route and sees
        # a silent peer, not an unreachable network.
        _ip("-n", self.nodes[1].name, "link", "set", "wire", "down")

    def lose(self, node: int, percent: int) -> None:
        """Drop `percent` of a node's outgoing packets; 100 makes the link one-way."""
        hook = "{ type filter hook output priority 0; }"
        chosen = f"numgen random mod 100 < {percent}" if percent < 100 else ""
        rules = f"""
            add table inet loss
            add chain inet loss out {hook}
            add rule inet loss out oifname "wire" {chosen} drop"""
        _output(self.nodes[node].command(["nft", rules]))


@contextmanager
def two_namespaces() -> Iterator[Namespaces]:
    """Yield two nodes that reach only each other; remaining processes are killed at the end."""
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
    """Run an sshd on each node; yield the environment with which mpirun reaches both.

    Start mpirun on a node and name the nodes by address, because host names do not resolve:
    `mpirun --allow-run-as-root --host 10.77.0.1:1,10.77.0.2:1 …`.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perfkit-ssh-")))
        for key in ("host", "client"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}"]
            subprocess.run(words, check=True)
        # StrictModes would reject keys below /tmp, which is world-writable.
        (folder / "sshd_config").write_text(
            f"Port 2222\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/client.pub\n"
            "PidFile none\nPermitRootLogin prohibit-password\nUsePAM no\nStrictModes no\n"
        )
        (folder / "ssh_config").write_text(
            f"Port 2222\nIdentityFile {folder}/client\nIdentitiesOnly yes\nBatchMode yes\n"
            "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # for privilege separation
        ssh = ["ssh", "-F", f"{folder}/ssh_config"]
        for node in namespaces.nodes:
            # sshd needs its full path, because it starts itself again for each connection.
            sshd = [_path("sshd"), "-D", "-e", "-f", f"{folder}/sshd_config"]
            _daemon(stack, node.command(sshd), folder / f"{node.name}.log")
        for here, there in (namespaces.nodes, reversed(namespaces.nodes)):
            login = here.command([*ssh, there.address, "true"])
            _until(folder, _succeeds, login)
        # The nodes share host name, files and /tmp, which Open MPI tolerates: it finds the
        # local node by comparing the addresses in --host with its own interfaces, and the
        # remote daemon's session folder has a different name. A killed mpirun leaves its
        # session folder behind, so it is put into our temporary folder.
        agent, sessions = "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_tmpdir_base"
        yield {agent: " ".join(ssh), sessions: str(folder)}


@dataclass(frozen=True)
class Slurm:
    """A running Slurm whose nodes are all this machine."""

    environment: dict[str, str]
    nodes: list[str]

    def output(self, *words: str) -> str:
        return _output(words, os.environ | self.environment)

    def idle(self) -> bool:
        """Whether every node is up and has no job, not even a completing one."""
        states = self.output("sinfo", "--noheader", "--Node", "--format=%T").split()
        return states == ["idle"] * len(self.nodes)

    def wait_idle(self) -> None:
        """Wait for the last job to end, about 3 s after its last process if it was killed."""
        _until(Path(self.environment["SLURM_CONF"]).parent, self.idle)


@contextmanager
def slurm_cluster(nodes: int = 4) -> Iterator[Slurm]:
    """Yield a Slurm with several nodes of two CPUs each; srun needs its `.environment`.

    Works without root: the daemons then run only this user's jobs.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perfkit-slurm-")))
        key, munge = folder / "munge.key", folder / "munge.socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        # With --force, munged only warns about a world-writable folder such as /tmp.
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
        for free in sockets:
            free.bind(("", 0))
        control, *ports = [str(free.getsockname()[1]) for free in sockets]
    # This host is every node, each with its own slurmd and port. Cgroups and accounting would
    # need further daemons. config_overrides sets two CPUs per node on any machine.
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
    """Return a program's path, "" if missing; a user's PATH often lacks the daemons."""
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
    """Start a daemon in the foreground that ends with the stack."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C interrupts only the tests, which end the daemon
        )
    stack.callback(process.wait)
    stack.callback(process.kill)


def _until(folder: Path, ready: Callable[..., bool], *arguments: Any) -> None:
    """Wait until `ready` returns true; a failing command in it means false.

    Raises TimeoutError with the folder's logs after 30 s.
    """
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
    """Return the cluster's daemons, clients and tasks, and their descendants."""
    config, found = slurm.environment["SLURM_CONF"], set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            ours = process.environ().get("SLURM_CONF") == config
            if process.name() == "slurmstepd":
                # A step daemon has no parent and overwrites its environment, but listens on a
                # socket in the cluster's folder.
                sockets = process.net_connections("unix")
                ours |= any(str(Path(config).parent) in str(unix.laddr) for unix in sockets)
            if ours and process.pid != os.getpid():
                found |= {process.pid, *(child.pid for child in process.children(True))}
    return found


def _kill(find: Callable[..., Iterable[int]], *arguments: Any) -> None:
    """Kill until nothing is found, because a process may have started another meanwhile."""
    deadline = time.monotonic() + 5
    while (found := find(*arguments)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
