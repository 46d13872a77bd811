"""Connections and messages between the driver and the nodes of a measurement. Messages are sent
as JSON by multiprocessing.connection, whose HMAC challenge keeps the secret off the network.

Each message is a pydantic model, which refuses unknown fields, wrong types and numbers out of
range. Both sides send Alive every second and so detect a lost peer.
"""

import contextlib
import getpass
import os
import secrets
import shlex
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from queue import Full, Queue
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from perfkit.config import Config, Protocol
from perfkit.request import RequestError

Number = Annotated[int, Field(ge=0, le=10**6)]
"""Index or count of nodes, ranks or repeats."""
Port = Annotated[int, Field(ge=0, le=65535)]
Address = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}$")]
Name = Annotated[str, Field(max_length=255)]
DETAIL_LENGTH = 4096
Detail = Annotated[str, Field(max_length=DETAIL_LENGTH)]
Fact = Annotated[str, Field(max_length=2**16)]
"""A parameter or a fact, such as the matrix of `nvidia-smi topo -m`."""
Value = Fact | int | float | bool | list[Detail] | None


class LostError(ConnectionError):
    """The connection to the peer is lost; the message says why."""


class InvalidMessageError(LostError):
    """The peer sent an invalid message; `field` holds the message's type and field."""

    def __init__(self, field: str, reason: str) -> None:
        self.field, self.reason = field, reason
        super().__init__(f"invalid message: {field}: {reason}")


class NodeMessage(BaseModel):
    """Base of all messages; the field `type` names the subclass."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Alive(NodeMessage):
    type: Literal["alive"] = "alive"


class Hello(NodeMessage):
    """A node's first message: number, digest of perfkit, parameters with launcher=manual."""

    type: Literal["hello"] = "hello"
    node: Number
    source: Name
    config: dict[Name, Value] = {}
    protocol: dict[Name, Value] = {}


class Ready(NodeMessage):
    """A node's facts, and the address and port where it listens until its first run."""

    type: Literal["ready"] = "ready"
    address: Address
    interface: Name
    port: Port
    name: Name
    gpus: Number
    facts: dict[Name, Value]


class Refused(NodeMessage):
    """Why a node can't carry out a message."""

    type: Literal["refused"] = "refused"
    code: Literal["nodes_differ", "port_taken", "disk_full", "io_error", "out_of_memory"]
    detail: Detail
    address: Name = ""
    port: Port | None = None


class Reached(NodeMessage):
    """The answer to Reach: for each unreachable node, the reason."""

    type: Literal["reached"] = "reached"
    errors: dict[int, Detail]


class Report(NodeMessage):
    """Text that ranks have appended to their raw files, and the ranks that have exited."""

    type: Literal["report"] = "report"
    raw: dict[Number, str]
    exited: list[Number]


class Ended(NodeMessage):
    """How the workers of a node exited (see ExitInfo)."""

    type: Literal["ended"] = "ended"
    status: int | None
    killed_for_memory: bool
    free_bytes: Annotated[int, Field(ge=0)]
    logs: dict[Name, str]


class Job(NodeMessage):
    """The configuration and protocol to measure."""

    type: Literal["job"] = "job"
    config: Config
    protocol: Protocol


class Run(NodeMessage):
    """Start the workers of a repeat, with this rendezvous on node 0; `job` is a unique name."""

    type: Literal["run"] = "run"
    repeat: Annotated[Number, Field(ge=1)]
    job: Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=300)]
    address: Address
    port: Port


class Steady(NodeMessage):
    type: Literal["steady"] = "steady"


class End(NodeMessage):
    type: Literal["end"] = "end"
    dump_stacks: bool


class Reach(NodeMessage):
    """Try to reach the address and port of each node."""

    type: Literal["reach"] = "reach"
    ports: dict[int, tuple[Address, Port]]


class Bye(NodeMessage):
    """The end of the measurement: the text of result.json, or the reason for its absence."""

    type: Literal["bye"] = "bye"
    result: str | None
    reason: str | None


BY_TYPE = Field(discriminator="type")
FROM_NODE: TypeAdapter[Any] = TypeAdapter(
    Annotated[Alive | Hello | Ready | Refused | Reached | Report | Ended, BY_TYPE]
)
FROM_DRIVER: TypeAdapter[Any] = TypeAdapter(
    Annotated[Alive | Job | Run | Steady | End | Reach | Bye, BY_TYPE]
)


def decode(messages: TypeAdapter[Any], data: bytes) -> NodeMessage:
    """Parse one of `messages`. Raises InvalidMessageError."""
    try:
        return messages.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part)[:80] for part in first["loc"]) or "message"
        raise InvalidMessageError(field, first["msg"][:200]) from error


SECRET = "PERFKIT_SECRET"
"""The environment variable with the secret of all nodes; connections without it are closed."""
ALIVE_SECONDS = 1.0
IDLE_SECONDS = 8
"""A peer that sends nothing for this time is lost."""
SENDING_SECONDS = 30
MESSAGE_BYTES = 64 * 2**20
INBOX_MESSAGES = 64
"""Capacity of an inbox: a busy receiver slows the senders down instead of using more memory."""
UNAUTHENTICATED = 64
"""Largest number of unauthenticated connections, besides the nodes'."""


class RejectedError(LostError):
    """The peer has a different secret."""


Inbox = Queue[tuple["Channel", NodeMessage | LostError]]
"""Messages of all channels; a LostError is the last item of its channel."""


class Channel:
    """One connection that receives `messages`.

    Reading starts with `receive_all`, which needs its own thread. Another thread sends Alive,
    independently of the caller's work.
    """

    def __init__(self, stream: socket.socket, inbox: Inbox, messages: TypeAdapter[Any]) -> None:
        stream.setblocking(True)
        limits = {socket.SO_RCVTIMEO: IDLE_SECONDS, socket.SO_SNDTIMEO: SENDING_SECONDS}
        for option, seconds in limits.items():
            stream.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = stream
        self.address = str(stream.getsockname()[0])
        self.connection = Connection(os.dup(stream.fileno()))
        self.inbox, self.messages = inbox, messages
        self.lost: LostError | None = None
        """Why receiving ended."""
        self.sending = threading.Lock()
        self.closed = threading.Event()

    def authenticate(self, secret: str, *, first: bool) -> None:
        """Exchange challenges, delivering before answering if `first`. Raises LostError."""
        challenges = [deliver_challenge, answer_challenge]
        try:
            with _raising_lost():
                for challenge in challenges if first else reversed(challenges):
                    challenge(self.connection, os.fsencode(secret))
        except LostError:
            self._release()
            raise

    def send(self, message: NodeMessage) -> None:
        """Send `message`. Raises LostError."""
        data = message.model_dump_json().encode()
        try:
            with self.sending, _raising_lost():
                self.connection.send_bytes(data)
        except LostError as error:
            # The message may have been sent in part.
            self.close()
            raise self.lost or error from error

    def receive_all(self) -> None:
        """Put all messages into the inbox until the connection ends."""
        threading.Thread(target=self._send_alive, daemon=True).start()
        try:
            while True:
                with _raising_lost():
                    message = decode(self.messages, self.connection.recv_bytes(MESSAGE_BYTES))
                if not isinstance(message, Alive):
                    self._deliver(message)
        except LostError as error:
            self.lost = error
            self._deliver(error)
        finally:
            self.close()
            self._release()

    def close(self) -> None:
        """Close the connection, which ends both threads."""
        self.closed.set()
        shut_down(self.stream)

    def _release(self) -> None:
        with self.sending:
            self.connection.close()
            self.stream.close()

    def _deliver(self, message: NodeMessage | LostError) -> None:
        # Also if the connection has been closed: the error says why.
        while True:
            with contextlib.suppress(Full):
                return self.inbox.put((self, message), timeout=ALIVE_SECONDS)
            if self.closed.is_set():
                return None

    def _send_alive(self) -> None:
        with contextlib.suppress(LostError):
            while not self.closed.wait(ALIVE_SECONDS):
                self.send(Alive())


class Listener:
    """Accepts connections of `nodes` at `address` and `port` (0: any free port); messages of
    authenticated connections go to `inbox`. Raises OSError if the port is taken."""

    def __init__(self, address: str, port: int, nodes: int, secret: str, inbox: Inbox) -> None:
        self.server = socket.create_server((address, port))
        self.server.settimeout(ALIVE_SECONDS)
        self.port = int(self.server.getsockname()[1])
        self.limit = UNAUTHENTICATED + nodes
        self.secret, self.inbox = secret, inbox
        self.unauthenticated: dict[socket.socket, float] = {}
        """Unauthenticated connections, oldest first, and the time of their acceptance."""
        self.rejected: set[str] = set()
        """Addresses of peers with a different secret."""
        self.closed = threading.Event()
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def close(self) -> None:
        """Stop accepting connections, and drop the unauthenticated ones."""
        self.closed.set()
        shut_down(self.server)
        self.accepting.join()
        self.server.close()

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                stream, (address, _port) = self.server.accept()
                self.unauthenticated[stream] = time.monotonic()
                challenge = (stream, address)
                threading.Thread(target=self._challenge, args=challenge, daemon=True).start()
            except TimeoutError:
                pass
            except OSError:
                # The peer has disconnected already, or no descriptors are left for now.
                self.closed.wait(0.1)
            except RuntimeError:
                # No thread can be started for now.
                self.unauthenticated.popitem()
            self._drop_idle()
        self._drop_idle()

    def _drop_idle(self) -> None:
        newest_first = reversed(self.unauthenticated.copy().items())
        for position, (stream, since) in enumerate(newest_first, 1):
            idle = time.monotonic() - since > IDLE_SECONDS
            if idle or position > self.limit or self.closed.is_set():
                shut_down(stream)

    def _challenge(self, stream: socket.socket, address: str) -> None:
        try:
            channel = Channel(stream, self.inbox, FROM_NODE)
            channel.authenticate(self.secret, first=True)
        except OSError as error:
            if isinstance(error, RejectedError):
                self.rejected.add(address)
            return
        finally:
            self.unauthenticated.pop(stream, None)
        channel.receive_all()


def connect(address: str, port: int, secret: str, seconds: float, inbox: Inbox) -> Channel:
    """Connect to the driver within `seconds`. Raises LostError, RejectedError."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            stream = socket.create_connection((address, port), timeout=5)
            channel = Channel(stream, inbox, FROM_DRIVER)
            channel.authenticate(secret, first=False)
            break
        except RejectedError:
            raise
        except OSError as error:
            if time.monotonic() > deadline:
                reason = error.strerror or error
                raise LostError(f"no driver at {address} port {port}: {reason}") from error
            time.sleep(0.5)
    threading.Thread(target=channel.receive_all, daemon=True).start()
    return channel


def shared_secret(hosts: list[str], node: int) -> str:
    """Return the secret for launcher=manual: the variable SECRET. If it is unset, the first of
    `hosts` generates and prints a secret, the others prompt for it, and SECRET is set. Raises
    RequestError without a terminal for the prompt."""
    typed = Path(sys.argv[0]).name == "perfkit"
    command = shlex.join(["perfkit", *sys.argv[1:]]) if typed else "<the same command>"
    if not os.environ.get(SECRET):
        if node == 0:
            os.environ[SECRET] = secrets.token_hex(16)
            line = f"{SECRET}={os.environ[SECRET]} {command}"
            print(f"On the other hosts, type:\n{line}", file=sys.stderr, flush=True)
        elif sys.stdin and sys.stdin.isatty():
            os.environ[SECRET] = getpass.getpass(f"{SECRET}, as {hosts[0]} shows it: ").strip()
    if secret := os.environ.get(SECRET):
        return secret
    raise RequestError(
        [f"{SECRET} is not set. Type what {hosts[0]} shows: {SECRET}=… {command}"]
    )


def shut_down(stream: socket.socket) -> None:
    """Shut a socket down at once, also for a thread blocked in recv or accept."""
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _raising_lost() -> Iterator[None]:
    """Turn every error of a connection into a LostError."""
    try:
        yield
    except LostError:
        raise
    except BlockingIOError as error:
        raise LostError(f"no answer for {IDLE_SECONDS} s") from error
    except EOFError as error:
        raise LostError("the connection was closed") from error
    except AuthenticationError as error:
        raise RejectedError(f"{SECRET} differs there") from error
    except Exception as error:
        # Arbitrary bytes in place of a challenge cause other errors.
        too_long = str(error) == "bad message length"
        limit = f"a message of over {MESSAGE_BYTES >> 20} MiB was received"
        raise LostError(limit if too_long else f"the connection failed: {error}") from error
