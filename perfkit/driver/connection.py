"""The connections between the driver and the nodes of a measurement. Each NodeMessage is sent
as JSON by multiprocessing.connection, whose HMAC challenge keeps the secret off the network.

A message is a model that validates what is received: no unknown field, no value of another
type, no number out of its range. Both sides send one every second, so that each notices when
the other is gone.
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
"""Of a node, a rank or a repeat, or how many there are."""
Port = Annotated[int, Field(ge=0, le=65535)]
Address = Annotated[str, Field(pattern=r"^\d{1,3}(\.\d{1,3}){3}$")]
Name = Annotated[str, Field(max_length=255)]
DETAIL_LENGTH = 4096
Detail = Annotated[str, Field(max_length=DETAIL_LENGTH)]
Value = Detail | int | float | bool | list[Detail] | None


class LostError(ConnectionError):
    """The other side is gone or does not answer; the message says how."""


class InvalidMessageError(LostError):
    """The other side sent something that it may not send; `field` is message type and field."""

    def __init__(self, field: str, reason: str) -> None:
        self.field, self.reason = field, reason
        super().__init__(f"it sent an invalid message: {field}: {reason}")


class NodeMessage(BaseModel):
    """One message; `type` says which."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Alive(NodeMessage):
    """The sender is there."""

    type: Literal["alive"] = "alive"


class Hello(NodeMessage):
    """A node's first: its number, the digest of its perfkit and, if it was started by hand,
    what it was asked for."""

    type: Literal["hello"] = "hello"
    node: Number
    source: Name
    config: dict[Name, Value] = {}
    protocol: dict[Name, Value] = {}


class Ready(NodeMessage):
    """Where a node can be reached: there it listens until its first run. And what the nodes
    must have in common."""

    type: Literal["ready"] = "ready"
    address: Address
    interface: Name
    port: Port
    name: Name
    gpus: Number
    facts: dict[Name, Value]


class Refused(NodeMessage):
    """Why a node can't do what it was told."""

    type: Literal["refused"] = "refused"
    code: Literal["nodes_differ", "port_taken"]
    detail: Detail
    address: Name = ""
    port: Port | None = None


class Reached(NodeMessage):
    """The answer to Reach: why which node can't be reached."""

    type: Literal["reached"] = "reached"
    errors: dict[int, Detail]


class Report(NodeMessage):
    """What ranks have appended to their raw files, and whose processes have exited."""

    type: Literal["report"] = "report"
    raw: dict[Number, str]
    exited: list[Number]


class Ended(NodeMessage):
    """How the workers of a node exited; see ExitInfo."""

    type: Literal["ended"] = "ended"
    status: int | None
    killed_for_memory: bool
    free_bytes: Annotated[int, Field(ge=0)]
    logs: dict[Name, str]


class Job(NodeMessage):
    """What is to be measured."""

    type: Literal["job"] = "job"
    config: Config
    protocol: Protocol


class Run(NodeMessage):
    """Start the workers of a repeat, which meet at this address and port of node 0. No other
    run has the name `job`."""

    type: Literal["run"] = "run"
    repeat: Annotated[Number, Field(ge=1)]
    job: Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=300)]
    address: Address
    port: Port


class Steady(NodeMessage):
    """The warm-up is over."""

    type: Literal["steady"] = "steady"


class End(NodeMessage):
    """End the workers now."""

    type: Literal["end"] = "end"
    dump_stacks: bool


class Reach(NodeMessage):
    """Try to reach the address and port of each node."""

    type: Literal["reach"] = "reach"
    ports: dict[int, tuple[Address, Port]]


class Bye(NodeMessage):
    """The end: the text of result.json, or why there is none."""

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
    """Raises InvalidMessageError for what is none of `messages`."""
    try:
        return messages.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part)[:80] for part in first["loc"]) or "message"
        raise InvalidMessageError(field, first["msg"][:200]) from error


SECRET = "PERFKIT_SECRET"
"""The variable with the secret that all nodes share; connections without it are closed."""
ALIVE_SECONDS = 1.0
IDLE_SECONDS = 8
"""A peer that sends nothing for so long is lost."""
SENDING_SECONDS = 30
MESSAGE_BYTES = 64 * 2**20
INBOX_MESSAGES = 64
"""How many messages may wait: a busy receiver slows the senders down, and does not grow."""
UNAUTHENTICATED = 64
"""How many connections besides the nodes' may be in their challenge at once."""


class RejectedError(LostError):
    """The other side has another secret."""


Inbox = Queue[tuple["Channel", NodeMessage | LostError]]
"""What has come from all channels; the LostError is the last of each."""


class Channel:
    """One connection, from which `messages` are taken.

    Nothing is read before `receive_all`, which is for a thread of its own. Another thread
    shows that this side is alive, whatever keeps the caller busy.
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
        """Why nothing more is received."""
        self.sending = threading.Lock()
        self.closed = threading.Event()

    def authenticate(self, secret: str, *, first: bool) -> None:
        """Challenge the other side, before or after being challenged. Raises LostError."""
        challenges = [deliver_challenge, answer_challenge]
        try:
            with _losing():
                for challenge in challenges if first else reversed(challenges):
                    challenge(self.connection, os.fsencode(secret))
        except LostError:
            self._release()
            raise

    def send(self, message: NodeMessage) -> None:
        """Raises LostError."""
        data = message.model_dump_json().encode()
        try:
            with self.sending, _losing():
                self.connection.send_bytes(data)
        except LostError as error:
            # The message may have been sent in part.
            self.close()
            raise self.lost or error from error

    def receive_all(self) -> None:
        """Put all messages into the inbox, up to the end of the connection."""
        threading.Thread(target=self._show_alive, daemon=True).start()
        try:
            while True:
                with _losing():
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
        """End the connection: both threads end with it."""
        self.closed.set()
        shut_down(self.stream)

    def _release(self) -> None:
        with self.sending:
            self.connection.close()
            self.stream.close()

    def _deliver(self, message: NodeMessage | LostError) -> None:
        while not self.closed.is_set():
            with contextlib.suppress(Full):
                return self.inbox.put((self, message), timeout=ALIVE_SECONDS)

    def _show_alive(self) -> None:
        with contextlib.suppress(LostError):
            while not self.closed.wait(ALIVE_SECONDS):
                self.send(Alive())


class Listener:
    """Takes the connections of `nodes` at `port`, 0 for any, of `address`; those that pass the
    challenge deliver their messages into `inbox`. Raises OSError for the port."""

    def __init__(self, address: str, port: int, nodes: int, secret: str, inbox: Inbox) -> None:
        self.server = socket.create_server((address, port))
        self.server.settimeout(ALIVE_SECONDS)
        self.port = int(self.server.getsockname()[1])
        self.limit = UNAUTHENTICATED + nodes
        self.secret, self.inbox = secret, inbox
        self.unauthenticated: dict[socket.socket, float] = {}
        """Connections in their challenge, the oldest first, and since when."""
        self.rejected: set[str] = set()
        """The addresses of those that had another secret."""
        self.closed = threading.Event()
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def close(self) -> None:
        """Accept no more connections, and drop those in their challenge."""
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
                # The peer has gone already, or no descriptors are left for the moment.
                self.closed.wait(0.1)
            except RuntimeError:
                # No thread is left for the moment.
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
    """A channel to the driver, tried for up to `seconds`. Raises LostError, if it has another
    secret RejectedError."""
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
    """The secret of nodes that are started by hand: SECRET or, without it, generated and shown
    on the first of `hosts`, and asked for on the others; SECRET from then on. Raises
    RequestError where nobody can be asked."""
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
    """End a connection at once, also for a thread that reads from it or accepts by it."""
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    """Raises a LostError for all that a connection can end with."""
    try:
        yield
    except LostError:
        raise
    except BlockingIOError as error:
        raise LostError(f"it has not answered for {IDLE_SECONDS} s") from error
    except EOFError as error:
        raise LostError("it closed the connection") from error
    except AuthenticationError as error:
        raise RejectedError(f"{SECRET} is another one there") from error
    except Exception as error:
        # Whatever else comes of what was sent in place of a challenge.
        too_long = str(error) == "bad message length"
        limit = f"it sent a message of over {MESSAGE_BYTES >> 20} MiB"
        raise LostError(limit if too_long else f"the connection failed: {error}") from error
