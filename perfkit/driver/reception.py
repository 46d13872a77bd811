"""Where nodes come to the driver: who does not know the secret is hung up on."""

import hmac
import socket
import time
from typing import Any

from perfkit.driver.wire import LONGEST_BYTES, SILENT_SECONDS, LostError, Message, Wire

STRANGER_BYTES = 1024 * 1024
STRANGERS = 64
"""Connections that have not said who they are: how much they may send, how many may wait."""


class Reception:
    """Listens for so many `nodes` on `port`, 0 for any. A connection is a stranger's until its
    first message, which must be a `hello` with the secret. Raises OSError for the port."""

    def __init__(self, address: str, port: int, nodes: int, secret: str) -> None:
        self.listener = socket.create_server((address, port), backlog=nodes)
        self.most = STRANGERS + nodes
        self.secret = secret
        self.strangers: list[Wire] = []
        self.turned_away: set[str] = set()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def sources(self) -> list[Any]:
        """What can be selected on, and then be given to `hear`."""
        return [self.listener, *self.strangers]

    def hear(self, source: Any) -> tuple[Wire, list[Message]] | None:
        """The connection of one that knows the secret, with what it said, if that is who came:
        it is the caller's from now on."""
        if source is self.listener:
            self._accept()
            return None
        try:
            if not (messages := source.receive()):
                return None
            secret = str(messages[0].get("secret")).encode()
        except (LostError, ValueError):
            self._hang_up(source)
            return None
        known = messages[0]["say"] == "hello" and hmac.compare_digest(
            secret, self.secret.encode()
        )
        if not known:
            self.turned_away.add(source.peer)
            self._hang_up(source)
            return None
        self.strangers.remove(source)
        source.longest_bytes = LONGEST_BYTES
        return source, messages

    def hang_up_on_the_silent(self) -> None:
        """On strangers that have not said who they are in time."""
        for stranger in [*self.strangers]:
            if time.monotonic() - stranger.opened_at > SILENT_SECONDS:
                self._hang_up(stranger)

    def close(self) -> None:
        """Hang up on all strangers, and listen no more."""
        for wire in self.strangers:
            wire.close()
        self.listener.close()

    def _accept(self) -> None:
        try:
            wire = Wire(self.listener.accept()[0])
        except OSError:
            # It is gone again already.
            return
        wire.longest_bytes = STRANGER_BYTES
        self.strangers.append(wire)
        if len(self.strangers) > self.most:
            self._hang_up(self.strangers[0])

    def _hang_up(self, wire: Wire) -> None:
        if wire in self.strangers:
            self.strangers.remove(wire)
        wire.close()
