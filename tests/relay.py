"""A network that a test can break: a relay between the browser and a server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PAUSE_S = 0.01


class Relay:
    """Passes bytes on between its own port and a server's, as long as the network is whole."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._dumb: set[socket.socket] = set()  # open, and nothing comes through
        self._is_mute = False
        self._open: set[socket.socket] = set()
        self._door = self._listening(0)
        self.port = self._door.getsockname()[1]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def cut(self) -> None:
        """As when the server is gone: what is open breaks, what is new is refused."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self, target: int | None = None) -> None:
        """Listens again on the same port, in front of the same server or of another."""
        self.target = target or self.target
        self._door = self._listening(self.port)

    def mute(self) -> None:
        """As when a cable is pulled: nothing breaks, and nothing comes through."""
        self._is_mute = True

    def unmute(self) -> None:
        self._is_mute = False

    def strand(self) -> None:
        """What is open now says nothing more; what is new works."""
        self._dumb |= self._open

    def close(self) -> None:
        self._is_mute = False
        self._dumb.clear()
        self.cut()

    def _listening(self, port: int) -> socket.socket:
        door = socket.create_server(("127.0.0.1", port), reuse_port=False)
        threading.Thread(target=self._welcome, args=(door,), daemon=True).start()
        return door

    def _welcome(self, door: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = door.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                self._open |= {near, far}
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                while self._is_mute or one in self._dumb:
                    time.sleep(PAUSE_S)
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.discard(one)


@contextmanager
def relayed(address: str) -> Iterator[Relay]:
    relay = Relay(int(address.rstrip("/").rsplit(":", 1)[1]))
    try:
        yield relay
    finally:
        relay.close()
