"""Messages between the driver and the nodes of a measurement: JSON objects, a line each, over
TCP. Both sides say that they are alive, so that a link that went down is noticed too."""

import json
import socket
import threading
import time
from typing import Any

ALIVE_SECONDS = 1.0
SILENT_SECONDS = 8.0
"""Who says nothing for so long is taken for lost."""
SENDING_SECONDS = 30.0
LONGEST_BYTES = 64 * 2**20

Message = dict[str, Any]


class LostError(ConnectionError):
    """The other side is gone or does not answer; the message says how."""


class Wire:
    """One connection. `say` names what a message is; the rest is its content.

    A thread says that this side is alive, whatever keeps the caller busy.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SENDING_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.longest_bytes = LONGEST_BYTES
        self.received = b""
        self.heard_at = self.opened_at = time.monotonic()
        self.sending = threading.Lock()
        self.closed = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self.closed.wait(ALIVE_SECONDS):
            try:
                self.send("alive")
            except LostError:
                return

    def fileno(self) -> int:
        return self.connection.fileno()

    def close(self) -> None:
        self.closed.set()
        self.connection.close()

    @property
    def address(self) -> str:
        """This side's IP address."""
        return str(self.connection.getsockname()[0])

    @property
    def peer(self) -> str:
        """The other side's IP address."""
        return str(self.connection.getpeername()[0])

    def send(self, say: str, **content: Any) -> None:
        """Raises LostError."""
        try:
            with self.sending:
                self.connection.sendall(json.dumps({"say": say} | content).encode() + b"\n")
        except OSError as error:
            raise LostError(f"sending failed: {error.strerror or error}") from error

    def receive(self) -> list[Message]:
        """The messages that have come whole; to be called when there is something to read.

        Raises LostError at the end of the connection and for what is no message.
        """
        try:
            chunk = self.connection.recv(2**20)
        except OSError as error:
            raise LostError(f"receiving failed: {error.strerror or error}") from error
        if not chunk:
            raise LostError("it closed the connection")
        self.heard_at = time.monotonic()
        *lines, self.received = (self.received + chunk).split(b"\n")
        if len(self.received) > self.longest_bytes:
            raise LostError("it sent a line without an end")
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as error:
            raise LostError(f"it sent what is no message: {error}") from error
        if not all(isinstance(m, dict) and isinstance(m.get("say"), str) for m in messages):
            raise LostError("it sent what is no message")
        return [message for message in messages if message["say"] != "alive"]

    def check(self) -> None:
        """Raises LostError if the other side has been silent for too long."""
        if time.monotonic() - self.heard_at > SILENT_SECONDS:
            raise LostError(f"it has not answered for {SILENT_SECONDS:g} s")
