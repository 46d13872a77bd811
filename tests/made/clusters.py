"""Clusters on one machine: two network namespaces, ssh between them, and Slurm; and drivers
that measure on two of their nodes."""

import getpass
import itertools
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import read_result

Process = subprocess.Popen[bytes]
_numbers = itertools.count(1)


def wait_for(condition: Callable[[], Any], seconds: float = 180) -> Any:
    """Wait until the condition returns a true value and return that value."""
    # On busy cores, a framework's first step takes long.
    deadline = time.monotonic() + seconds
    value = condition()
    while not value:
        assert time.monotonic() < deadline, f"condition still false after {seconds} s"
        time.sleep(0.1)
        value = condition()
    return value


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
    """Return why `ssh_between` cannot work here, None if it can."""
    return _not_installed("sshd", "ssh", "ssh-keygen") or namespaces_missing()


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

    def processes(self) -> list[psutil.Process]:
        """Return the processes on this node."""
        found = []
        for pid in _ip("netns", "pids", self.name).split():
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return found


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
            stack.callback(_kill, node.processes)
            nodes.append(node)
        first, second = nodes
        peer = ["peer", "name", "wire", "netns", second.name]
        _ip("link", "add", "wire", "netns", first.name, "type", "veth", *peer)
        for node in nodes:
            _ip("-n", node.name, "address", "add", f"{node.address}/24", "dev", "wire")
            for device in ("lo", "wire"):
                _ip("-n", node.name, "link", "set", device, "up")
        yield Namespaces((first, second))


@dataclass(frozen=True)
class Ssh:
    """An sshd on each of two nodes; with `.environment`, `ssh ADDRESS` runs a command there."""

    environment: dict[str, str]
    servers: list[Process]
    authorized_keys: Path
    client_config: Path

    def stop_server(self, node: int) -> None:
        """End a node's sshd, so that it refuses connections; open sessions go on."""
        self.servers[node].kill()
        self.servers[node].wait()

    def configure(self, *lines: str) -> None:
        """Add lines to the client's configuration."""
        with self.client_config.open("a") as config:
            config.write("".join(f"{line}\n" for line in lines))

    def revoke_keys(self) -> None:
        """Make every sshd refuse the user's key."""
        self.authorized_keys.write_text("")


@contextmanager
def ssh_between(
    namespaces: Namespaces, prepare: str = "", remote: dict[str, str] | None = None
) -> Iterator[Ssh]:
    """Run an sshd on each node, so that plain `ssh ADDRESS` works from one to the other.

    Host names do not resolve: name the nodes by address. The nodes share this machine's files,
    but on the second node the shell command `prepare` may mount others, which only its sessions
    see. `remote` are environment variables of these sessions.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perfkit-ssh-")))
        _generate_key(folder / "host")
        _generate_key(folder / "client")
        client = _ssh_client(folder)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # for privilege separation
        first, second = namespaces.nodes
        servers = [
            _start_sshd(stack, folder, first, "", {}),
            _start_sshd(stack, folder, second, prepare, remote or {}),
        ]
        for here, there in ((first, second), (second, first)):
            _until(folder, _succeeds, here.command([str(client), there.address, "true"]))
        path = f"{client.parent}:{os.environ['PATH']}"
        client_config = folder / "ssh_config"
        yield Ssh({"PATH": path}, servers, folder / "client.pub", client_config)


def _generate_key(file: Path) -> None:
    generate = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)]
    subprocess.run(generate, check=True)


def _start_sshd(
    stack: ExitStack, folder: Path, node: Node, prepare: str, variables: dict[str, str]
) -> Process:
    config = _sshd_config(folder, node, variables)
    # sshd needs its full path, because it starts itself again for each connection.
    command = [_path("sshd"), "-D", "-e", "-f", str(config)]
    if prepare:
        # `ip netns exec` runs its command in a mount namespace of its own.
        command = ["sh", "-c", f'{prepare} && exec "$@"', "sh", *command]
    return _daemon(stack, node.command(command), folder / f"{node.name}.log")


def _ssh_client(folder: Path) -> Path:
    """Write a program `ssh` that adds a configuration; a HOME's would be the user's own."""
    config = folder / "ssh_config"
    config.write_text(
        f"Port 2222\nIdentityFile {folder}/client\nIdentitiesOnly yes\nBatchMode yes\n"
        "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
    )
    client = folder / "bin" / "ssh"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\nexec {_path("ssh")} -F {config} "$@"\n')
    client.chmod(0o755)
    return client


def _sshd_config(folder: Path, node: Node, variables: dict[str, str]) -> Path:
    # StrictModes would reject keys below /tmp, which is world-writable.
    lines = [
        "Port 2222",
        f"HostKey {folder}/host",
        f"AuthorizedKeysFile {folder}/client.pub",
        "PidFile none",
        "PermitRootLogin prohibit-password",
        "UsePAM no",
        "StrictModes no",
    ]
    if variables:  # the first SetEnv counts
        settings = [f'"{name}={value}"' for name, value in variables.items()]
        lines.append(f"SetEnv {' '.join(settings)}")
    config = folder / f"{node.name}.sshd_config"
    config.write_text("\n".join([*lines, ""]))
    return config


@dataclass(frozen=True)
class Slurm:
    """A running Slurm whose nodes are all this machine."""

    environment: dict[str, str]
    nodes: list[str]

    @property
    def folder(self) -> Path:
        return Path(self.environment["SLURM_CONF"]).parent

    def output(self, *words: str) -> str:
        return _output(words, os.environ | self.environment)

    def idle(self) -> bool:
        """Whether every node is up and has no job, not even a completing one."""
        states = self.output("sinfo", "--noheader", "--Node", "--format=%T").split()
        return states == ["idle"] * len(self.nodes)

    def wait_idle(self) -> None:
        """Wait for the last job to end, about 3 s after its last process if it was killed."""
        _until(self.folder, self.idle)

    def job_processes(self, node: str | None = None) -> list[psutil.Process]:
        """Return the processes of all jobs and their steps; on one node, if it is given."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                variables = process.environ()
                if (
                    variables.get("SLURM_CONF") == self.environment["SLURM_CONF"]
                    and "SLURM_JOB_ID" in variables
                    and node in (None, variables.get("SLURMD_NODENAME"))
                ):
                    found.append(process)
        return found

    def kill_node(self, name: str) -> None:
        """Kill a node's slurmd and all that runs there, as if its power were cut."""
        _kill(_processes_of, self, name)


@contextmanager
def slurm_cluster(nodes: int = 4, gpus: int = 0) -> Iterator[Slurm]:
    """Yield a Slurm with several nodes of two CPUs each; srun needs its `.environment`.

    Each node has `gpus` GPUs in name only, which a job or step gets by `--gres gpu:N`: its
    processes see their numbers in CUDA_VISIBLE_DEVICES. Works without root: the daemons then
    run only this user's jobs.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perfkit-slurm-")))
        _start_munge(stack, folder)
        config = folder / "slurm.conf"
        config.write_text(_slurm_conf(folder, nodes, gpus))
        (folder / "gres.conf").write_text(_gres_conf(folder, nodes, gpus))
        names = [f"node{number}" for number in range(1, nodes + 1)]
        slurm = Slurm({"SLURM_CONF": str(config)}, names)
        _daemon(stack, [_path("slurmctld"), "-D"], folder / "ctld.log", slurm.environment)
        for name in slurm.nodes:
            slurmd = [_path("slurmd"), "-D", "-N", name]
            _daemon(stack, slurmd, folder / f"{name}.log", slurm.environment)
        stack.callback(_kill, _processes_of, slurm)
        _until(folder, slurm.idle)
        yield slurm


def _start_munge(stack: ExitStack, folder: Path) -> None:
    """Start Slurm's authentication service."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    socket_file = folder / "munge.socket"
    # With --force, munged only warns about a world-writable folder such as /tmp.
    munged = [_path("munged"), "--foreground", "--force"]
    munged += [f"--key-file={key}", f"--socket={socket_file}"]
    munged += [f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed"]
    _daemon(stack, munged, folder / "munged.log")
    _until(folder, socket_file.exists)


def _gres_conf(folder: Path, nodes: int, gpus: int) -> str:
    lines = []
    for number in range(gpus):
        file = folder / f"gpu{number}"
        file.symlink_to("/dev/null")  # Slurm accepts only devices
        lines.append(f"NodeName=node[1-{nodes}] Name=gpu File={file}\n")
    return "".join(lines)


def _slurm_conf(folder: Path, nodes: int, gpus: int) -> str:
    host, user = socket.gethostname(), getpass.getuser()
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(1 + nodes)]
        for free in sockets:
            free.bind(("", 0))
        control, *ports = [str(free.getsockname()[1]) for free in sockets]
    gres = f" Gres=gpu:{gpus}" if gpus else ""
    # This host is every node, each with its own slurmd and port. Cgroups and accounting would
    # need further daemons. config_overrides sets two CPUs per node on any machine.
    return f"""\
ClusterName=perfkit
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
GresTypes=gpu
NodeName=node[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{",".join(ports)}] \
CPUs=2{gres}
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


def skip_if(reason: str) -> None:
    """Skip the test if there is a reason."""
    if reason:
        pytest.skip(reason)


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
) -> Process:
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
    return process


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


def _processes_of(slurm: Slurm, node: str | None = None) -> set[psutil.Process]:
    """Return the cluster's daemons, clients and tasks, and their descendants; of one node, if
    it is given."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if _belongs_to(process, slurm, node) and process.pid != os.getpid():
                found |= {process, *process.children(recursive=True)}
    return found


def _belongs_to(process: psutil.Process, slurm: Slurm, node: str | None) -> bool:
    if process.name() == "slurmstepd":
        # A step daemon has no parent and overwrites its environment, but listens on a socket
        # in its node's folder.
        folder = slurm.folder / node if node else slurm.folder
        sockets = process.net_connections("unix")
        return any(f"{folder}/" in str(listening.laddr) for listening in sockets)
    variables = process.environ()
    if variables.get("SLURM_CONF") != slurm.environment["SLURM_CONF"]:
        return False
    if node and process.name() == "slurmd":
        return process.cmdline()[-1] == node
    return not node or variables.get("SLURMD_NODENAME") == node


def _kill(find: Callable[..., Collection[psutil.Process]], *arguments: Any) -> None:
    """Kill until nothing is found, because a process may have started another meanwhile."""
    deadline = time.monotonic() + 5
    while (found := find(*arguments)) and time.monotonic() < deadline:
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.05)


NODE_PROGRAM = "perfkit.measuring.driver.node"
"""The module that the launcher starts on every node but the first."""
SUPERVISOR = "perfkit.measuring.driver.supervisor"
# Python keeps ignoring SIGINT if its parent did, as for a background job.
DRIVER = """
import json, signal, sys, perfkit
signal.signal(signal.SIGINT, signal.default_int_handler)
plan = perfkit.plan(sys.argv[2], json.loads(sys.argv[1]))
failure = perfkit.measure(plan.config, plan.protocol).result.failure
print(failure.line() if failure else "complete", flush=True)
"""
"""Measures the request in its first argument, as JSON, of the model in its second one, and
prints its failure or `complete`."""
FAKE_TRAINER = f"""
import sys
is_driver = sys.orig_argv[1:3] == ["-c", {DRIVER!r}]
if is_driver or sys.orig_argv[1:4] == ["-P", "-m", "{NODE_PROGRAM}"]:
    sys.path.append({str(Path(__file__).parent.parent)!r})
    import fake_trainer
    from perfkit.measuring.driver import workers

    train = workers.launcher_command

    def command(config, place, log_dir, job, words):
        seconds = {{first}} if job.endswith("-1") else {{later}}
        start = fake_trainer.launcher_command(seconds) if seconds else train
        return start(config, place, log_dir, job, words)

    workers.launcher_command = command
"""
SMALL = {
    "device": "cpu",
    "batch_size": 2,
    "image_size": 32,
    "input": "synthetic",
    "warmup_steps": 1,
    "measured_steps": 2,
    "measured_seconds": 0,
    "repeats": 1,
    "timeout": 120,
}

SMALL_SCRIPT = {
    "device": "cpu",
    "warmup_steps": 2,
    "measured_steps": 3,
    "measured_seconds": 0,
    "repeats": 1,
    "timeout": 120,
}


def fake_training(first: float, later: float | None) -> str:
    """Return code to plant that makes the first repeat take so many seconds instead of
    training, and the later repeats; None: they train."""
    return FAKE_TRAINER.format(first=first, later=later)


class Driver(ABC):
    """A driver in a process of its own, which prints into the file `printed`."""

    printed: Path

    @property
    @abstractmethod
    def process(self) -> psutil.Process:
        """The driver's process."""

    @abstractmethod
    def status(self) -> int | None:
        """Return the exit status; None if the driver still runs."""

    def wait(self, seconds: float = 240) -> str:
        """Wait until the driver ends and return what it printed."""
        deadline = time.monotonic() + seconds
        while self.status() is None:
            assert time.monotonic() < deadline, f"the driver did not end within {seconds} s"
            time.sleep(0.05)
        return self.printed.read_text()


class Nodes(ABC):
    """Two nodes and the folder `outputs`, which both see.

    Each has a folder for scratch files, and each Python process on them first runs the planted
    code.
    """

    place: dict[str, Any]
    """The parameters of a request that choose these nodes."""
    names: tuple[str, str]
    """The nodes' names in results and failures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs"
        for name in ("outputs", "planted", "scratch0", "scratch1"):
            (folder / name).mkdir(exist_ok=True)

    @abstractmethod
    def start_program(self, words: list[str], **variables: str) -> Driver:
        """Start a program on the first node, with these environment variables."""

    @abstractmethod
    def processes(self, node: int | None = None) -> list[psutil.Process]:
        """Return the live processes of drivers and their workers on a node, or on both."""

    def request(self, **changes: Any) -> dict[str, Any]:
        return SMALL | self.place | {"outputs_dir": str(self.outputs)} | changes

    def start(
        self, request: dict[str, Any], model: str = "resnet50", **variables: str
    ) -> Driver:
        """Start a driver that measures this request."""
        words = [sys.executable, "-c", DRIVER, json.dumps(request), model]
        return self.start_program(words, **variables)

    def plant(self, code: str) -> None:
        (self.folder / "planted" / "sitecustomize.py").write_text(code)

    def measure(self, **changes: Any) -> Result:
        """Measure to the end and return the stored result."""
        return self.result_of(self.start(self.request(**changes)))

    def measure_script(self, script: Path, **changes: Any) -> Result:
        """Measure a script to the end and return the stored result."""
        request = SMALL_SCRIPT | self.place | changes
        request |= {"script": str(script), "outputs_dir": str(self.outputs)}
        return self.result_of(self.start(request, "script"))

    def result_of(self, driver: Driver) -> Result:
        """Wait for the driver's end and return the stored result."""
        output = driver.wait()
        assert driver.status() == 0, output
        return self.result()

    def result(self) -> Result:
        (path,) = self.outputs.glob("*/result.json")
        return read_result(path)

    def in_second_repeat(self) -> bool:
        """Whether the first repeat is stored and each node, in its scratch folder, has a raw
        file with a step of the second."""
        if not [*self.outputs.glob("*/result.json")] or not self.result().repeats:
            return False
        raw_files = [*self.folder.glob("scratch*/**/rank*.jsonl")]
        return len([file for file in raw_files if '"step"' in file.read_text()]) == 2

    def running(self, module: str, node: int) -> list[psutil.Process]:
        """Return the processes on a node that `python -m module` started."""
        found = []
        for process in self.processes(node):
            with suppress(psutil.Error):
                if process.cmdline()[1:4] == ["-P", "-m", module]:
                    found.append(process)
        return found

    def node_program(self) -> psutil.Process:
        """Return the process of the second node's NODE_PROGRAM."""
        return self.running(NODE_PROGRAM, 1)[0]

    def workers_supervisor(self) -> psutil.Process:
        """Return the supervisor of the second node's workers, below its node program."""
        return self.running(SUPERVISOR, 1)[0]

    def left(self, node: int | None = None) -> list[str]:
        """Return what remains on a node, or on both: command lines and scratch folders.

        PyTorch's cache of compiled code is not counted: it makes and keeps its folder there.
        """
        commands = []
        for process in self.processes(node):
            with suppress(psutil.Error):
                commands.append(shlex.join(process.cmdline()))
        scratch = self.folder.glob(f"scratch{'*' if node is None else node}/*")
        kept = (path for path in scratch if not path.name.startswith("torchinductor_"))
        return [*commands, *map(str, kept)]

    def assert_nothing_left(self, node: int | None = None, seconds: float = 20) -> None:
        """Wait until nothing remains on a node, or on both, and fail with what does."""
        deadline = time.monotonic() + seconds
        while (left := self.left(node)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == [], left


class ChildDriver(Driver):
    """A driver that is a child of this process."""

    def __init__(self, command: list[str], environment: dict[str, str], printed: Path) -> None:
        self.printed = printed
        with printed.open("w") as output:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
            )

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.child.pid)

    def status(self) -> int | None:
        return self.child.poll()

    def close(self) -> None:
        """Kill the driver if it still runs."""
        self.child.kill()
        self.child.wait()


class NodesOverSsh(Nodes):
    """Two network namespaces, with an sshd on each."""

    def __init__(self, folder: Path, namespaces: Namespaces, ssh: Ssh) -> None:
        super().__init__(folder)
        self.namespaces = namespaces
        self.ssh = ssh
        first, second = [node.address for node in namespaces.nodes]
        self.place = {"nodes": 2, "launcher": "ssh", "hosts": f"{first},{second}"}
        self.names = (f"node 0 ({first})", f"node 1 ({second})")
        self.drivers: list[ChildDriver] = []

    def start_program(self, words: list[str], **variables: str) -> Driver:
        environment = _variables(self.folder, 0) | self.ssh.environment | variables
        command = self.namespaces.nodes[0].command(words)
        driver = ChildDriver(command, environment, self.folder / "printed")
        self.drivers.append(driver)
        return driver

    def processes(self, node: int | None = None) -> list[psutil.Process]:
        found = []
        for number, namespace in enumerate(self.namespaces.nodes):
            for process in namespace.processes() if node in (None, number) else ():
                with suppress(psutil.Error):
                    ended = process.status() == psutil.STATUS_ZOMBIE
                    if not ended and process.name() != "sshd":
                        found.append(process)
        return found


@contextmanager
def nodes_over_ssh(folder: Path, prepare: str = "", **remote: str) -> Iterator[NodesOverSsh]:
    """Yield two nodes whose files are in `folder`. The shell command `prepare` may mount other
    files on the second node; `remote` are environment variables there."""
    variables = _variables(folder, 1) | remote
    (folder / "outputs").mkdir(exist_ok=True)
    (folder / "scratch1").mkdir(exist_ok=True)
    with (
        two_namespaces() as namespaces,
        ssh_between(namespaces, prepare, variables) as ssh,
    ):
        nodes = NodesOverSsh(folder, namespaces, ssh)
        try:
            yield nodes
        finally:
            for driver in nodes.drivers:
                driver.close()


class BatchDriver(Driver):
    """A driver in a Slurm job, whose files are in `folder`."""

    def __init__(self, nodes: "NodesInSlurm") -> None:
        self.nodes = nodes
        self.printed = nodes.folder / "printed"
        self.status_file = nodes.folder / "status"
        self.status_file.unlink(missing_ok=True)

    @property
    def process(self) -> psutil.Process:
        for process in self.nodes.processes(0):
            with suppress(psutil.Error):
                if process.cmdline()[1:3] == ["-c", DRIVER]:
                    return process
        raise LookupError("the driver does not run")

    def status(self) -> int | None:
        # sbatch --wait polls only twice a minute.
        written = self.status_file.read_text() if self.status_file.exists() else ""
        return int(written) if written else None


class NodesInSlurm(Nodes):
    """The first two of the nodes that a Slurm job has."""

    def __init__(self, folder: Path, cluster: Slurm, options: list[str]) -> None:
        super().__init__(folder)
        self.place = {"nodes": 2, "launcher": "srun"}
        self.names = ("node 0 (node1)", "node 1 (node2)")
        self.cluster = cluster
        self.options = options

    def start_program(self, words: list[str], **variables: str) -> Driver:
        driver = BatchDriver(self)
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{shlex.join(words)}\necho $? > {driver.status_file}\n")
        options = ["--exclusive", "--no-requeue", "--output", str(driver.printed)]
        environment = self.cluster.environment | _variables(self.folder, 0) | variables
        subprocess.run(
            ["sbatch", *options, *self.options, str(script)],
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return driver

    def processes(self, node: int | None = None) -> list[psutil.Process]:
        return self.cluster.job_processes(None if node is None else f"node{node + 1}")


@contextmanager
def nodes_in_slurm(
    folder: Path, nodes: int = 4, gpus: int = 0, options: tuple[str, ...] = ()
) -> Iterator[NodesInSlurm]:
    """Yield two nodes of jobs with all nodes of a cluster and these options of sbatch."""
    with slurm_cluster(nodes, gpus) as cluster:
        yield NodesInSlurm(folder, cluster, ["--nodes", str(nodes), *options])


def _variables(folder: Path, node: int) -> dict[str, str]:
    """Return the environment variables for scratch files and planted code."""
    return {"TMPDIR": f"{folder}/scratch{node}", "PYTHONPATH": f"{folder}/planted:{ROOT}"}
